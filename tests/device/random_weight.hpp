#pragma once
// Weights of any type with random integers and scales of a sane size, for tests and benchmarks.
#include <cstring>
#include <random>
#include <vector>

#include "base/blocks.hpp"

namespace bankml::test {

inline std::vector<float> random_floats(std::size_t n, std::mt19937& random, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

inline std::vector<std::byte> random_weight(DType type, std::int64_t rows, std::int64_t cols, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes(type, cols));
  if (dtype_info(type).block_len == 1) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(rows * cols), random);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = x[i];
      if (type == DType::f16) reinterpret_cast<half*>(bytes.data())[i] = to_half(x[i]);
      if (type == DType::bf16) reinterpret_cast<bfloat16*>(bytes.data())[i] = to_bfloat16(x[i]);
    }
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  with_block(type, [&]<class Block>() {
    auto* blocks = reinterpret_cast<Block*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i) {
      set_scale(blocks[i].d, scale(random));
      if constexpr (requires { blocks[i].m; }) blocks[i].m = to_half(scale(random));
      if constexpr (requires { blocks[i].dmin; }) blocks[i].dmin = to_half(scale(random));
    }
  });
  return bytes;
}

}  // namespace bankml::test
