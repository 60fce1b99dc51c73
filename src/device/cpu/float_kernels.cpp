#include "device/cpu/float_kernels.hpp"

namespace bankml {

const FloatKernels& float_kernels(Isa isa) noexcept {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx512:
      return float_kernels_avx512;
    case Isa::avx2:
      return float_kernels_avx2;
#endif
    default:
      return float_kernels_portable;
  }
}

}  // namespace bankml
