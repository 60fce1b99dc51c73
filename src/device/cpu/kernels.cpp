#include "device/cpu/kernels.hpp"

#include "device/cpu/reference.hpp"

namespace bankml {
namespace {

void to_f16(const float* x, std::int64_t n, half* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_half(x[i]);
}

constexpr Kernels kPortable{to_f16, reference_quantize_q8, reference_quantize_q8_k};

}  // namespace

const Kernels& kernels(Isa) noexcept {
  return kPortable;
}

}  // namespace bankml
