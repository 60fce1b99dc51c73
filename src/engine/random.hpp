#pragma once
// Random numbers of the sampling chain, bit for bit (docs/sampling.md, section 5).
#include <cmath>
#include <cstdint>
#include <random>

#include "bankml/engine/sampling.hpp"

namespace bankml {

class RandomEngine {
 public:
  explicit RandomEngine(std::uint32_t seed) : engine_(seed == kRandomSeed ? std::random_device{}() : seed) {}

  // Uniform on [0, 1) from two outputs, the second one being the upper half.
  double uniform_double() {
    constexpr double kTwo32 = 4294967296.0;
    const auto low = static_cast<double>(engine_());
    const auto high = static_cast<double>(engine_());
    const double u = (low + high * kTwo32) / (kTwo32 * kTwo32);
    return u < 1.0 ? u : std::nextafter(1.0, 0.0);
  }

  // Uniform on [0, 1) from one output.
  float uniform_float() {
    constexpr float kTwo32 = 4294967296.0f;
    const float u = static_cast<float>(engine_()) / kTwo32;
    return u < 1.0f ? u : std::nextafter(1.0f, 0.0f);
  }

 private:
  std::mt19937 engine_;
};

}  // namespace bankml
