#include "device/cpu/self_check.hpp"

#include <cstring>
#include <random>
#include <vector>

#include "base/blocks.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                            DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};
constexpr int kRows = 24, kCols = 512;

// Random codes with scales that keep the products apart; random floats of both signs around one.
std::vector<std::byte> random_weight(DType type, std::mt19937& random) {
  std::vector<std::byte> bytes(kRows * row_bytes(type, kCols));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const auto scale = [&] { return static_cast<float>(random() % 2001) * 1e-5f - 0.01f; };
  with_block(type, [&]<class Block>() {
    auto* blocks = reinterpret_cast<Block*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i) {
      set_scale(blocks[i].d, scale());
      if constexpr (requires { blocks[i].m; }) blocks[i].m = to_half(scale());
      if constexpr (requires { blocks[i].dmin; }) blocks[i].dmin = to_half(scale());
    }
  });
  if (dtype_info(type).block_len > 1) return bytes;
  for (int i = 0; i < kRows * kCols; ++i) {
    if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = scale();
    if (type == DType::f16) reinterpret_cast<half*>(bytes.data())[i] = to_half(scale());
    if (type == DType::bf16) reinterpret_cast<bfloat16*>(bytes.data())[i] = to_bfloat16(scale());
  }
  return bytes;
}

std::vector<float> product(ThreadPool& pool, const Kernels& kernels, const Weight& weight,
                           const std::vector<float>& x) {
  const int batch = static_cast<int>(x.size()) / kCols;
  CpuActivation a(batch, kCols, activation_format(weight.type()), kernels);
  for (int t = 0; t < batch; ++t) quantize_row(a, t, x.data() + t * kCols);
  std::vector<float> out(static_cast<std::size_t>(batch) * kRows);
  const MatmulOutput output{.weight = &weight, .out = out.data()};
  multiply(pool, kernels, {&output, 1}, a, batch);
  return out;
}

}  // namespace

bool passes_self_check(const Kernels& kernels) {
  ThreadPool pool(1);
  MemoryArena arena;
  std::mt19937 random(1);
  for (const DType type : kTypes) {
    const std::vector<std::byte> bytes = random_weight(type, random);
    const CpuWeight weight(pool, arena, type, kRows, kCols, bytes.data());
    for (const int batch :
         {1, 2, 3, 9}) {  // every tile of the kernels: two groups of rows and one, four tokens and fewer
      std::vector<float> x(static_cast<std::size_t>(batch) * kCols);
      for (float& value : x) value = static_cast<float>(static_cast<int>(random() % 4001) - 2000) * 0.001f;
      const std::vector<float> expected = product(pool, portable::kKernels, weight, x);
      const std::vector<float> out = product(pool, kernels, weight, x);
      if (std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

}  // namespace bankml
