// Mat-mul speed of each weight type: GMAC/s for several numbers of rows, and GB/s of weights read for one row.
//   matmul_bench [TYPE] [ROWSxCOLS]      e.g. matmul_bench Q4_1 1536x576
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bankml/device/ops.hpp"
#include "base/blocks.hpp"

namespace bankml {
namespace {

constexpr DType kTypes[] = {DType::q4_1,   DType::q8_0,   DType::q4_0, DType::q5_0, DType::q5_1,
                            DType::iq4_nl, DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                            DType::q6_k,   DType::iq4_xs, DType::f16,  DType::bf16, DType::f32};

// Random codes; scales of one.
std::vector<std::byte> make_weight(DType type, std::int64_t rows, std::int64_t cols, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes(type, cols));
  if (dtype_info(type).block_len == 1) return bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  with_block(type, [&]<class Block>() {
    for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i)
      set_scale(reinterpret_cast<Block*>(bytes.data())[i].d, 1);
  });
  return bytes;
}

// Seconds of CPU time of this thread: other processes don't count.
double cpu_seconds() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Best seconds of one call, over about a fifth of a second.
template <class F>
double best_seconds(F&& f) {
  double best = 1e9, now = cpu_seconds();
  for (const double end = now + 0.2; now < end;) {
    const double start = now;
    f();
    now = cpu_seconds();
    best = std::min(best, now - start);
  }
  return best;
}

void measure(Device& device, DType type, std::int64_t rows, std::int64_t cols) {
  std::mt19937 random(1);
  const std::unique_ptr<Stream> stream = device.make_stream();
  // For one row as much memory is read as no cache holds, as when a whole model is passed.
  constexpr std::size_t kBeyondCaches = 96 << 20;
  const std::vector<std::byte> bytes = make_weight(type, rows, cols, random);
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<std::vector<std::byte>> sources;  // one each: a weight may be read where it was loaded from
  while (weights.empty() || weights.size() * bytes.size() < kBeyondCaches) {
    sources.push_back(bytes);
    weights.push_back(device.load_weight(type, rows, cols, sources.back().data()));
  }
  constexpr int kMostRows = 512;
  const std::unique_ptr<Activation> a = device.make_activation(kMostRows, cols, activation_format(type));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(kMostRows * cols));
  for (float& value : x) value = normal(random);
  device.ops().quantize(*stream, *a, x.data(), kMostRows);
  std::vector<float> out(static_cast<std::size_t>(kMostRows * rows));

  std::string line = fmt::format("{:7} {}x{}", dtype_info(type).name, rows, cols);
  for (const int batch : {1, 2, 4, 8, 64, 512}) {
    const MatmulOutput output{.weight = weights[0].get(), .out = out.data()};
    const double seconds = best_seconds([&] { device.ops().matmul(*stream, {&output, 1}, *a, batch); });
    line += fmt::format("  {}: {:6.1f}", batch, static_cast<double>(rows * cols * batch) / seconds * 1e-9);
  }
  const auto seconds_from_memory = [&](int batch) {
    return best_seconds([&] {
      for (const auto& weight : weights) {
        const MatmulOutput output{.weight = weight.get(), .out = out.data()};
        device.ops().matmul(*stream, {&output, 1}, *a, batch);
      }
    });
  };
  constexpr int kFew = 32;  // rows: a short prompt
  const auto passes = static_cast<double>(weights.size());
  fmt::print("{} GMAC/s; from memory: {:.1f} GB/s for one row, {}: {:.1f} GMAC/s\n", line,
             passes * static_cast<double>(bytes.size()) / seconds_from_memory(1) * 1e-9, kFew,
             passes * static_cast<double>(rows * cols * kFew) / seconds_from_memory(kFew) * 1e-9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace bankml

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  long long rows = 1536, cols = 768;
  if (argc > 2 && std::sscanf(argv[2], "%lldx%lld", &rows, &cols) != 2) {
    fmt::print(stderr, "expected ROWSxCOLS, got '{}'\n", argv[2]);
    return 2;
  }
  const auto device = bankml::make_cpu_device(1);
  fmt::print("{}\n", device->description());
  for (const bankml::DType type : bankml::kTypes) {
    if (only.empty() || only == bankml::dtype_info(type).name) bankml::measure(*device, type, rows, cols);
  }
}
