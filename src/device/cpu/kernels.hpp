#pragma once
// The inner loops, compiled once for each instruction set and reached through a table.
#include <cstdint>

#include "bankml/device/ops.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/isa.hpp"

namespace bankml {

struct Kernels {
  void (*to_f16)(const float* x, std::int64_t n, half* out);
  void (*quantize_q8)(const float* x, std::int64_t n, const Q8Row& out);
  void (*quantize_q8_k)(const float* x, std::int64_t n, const Q8KRow& out);
};

const Kernels& kernels(Isa isa) noexcept;

}  // namespace bankml
