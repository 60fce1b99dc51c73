#include "device/cpu/kernels.hpp"

namespace bankml {

const Kernels& kernels(Isa isa) noexcept {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::portable:
      break;
    case Isa::avx2:
      return avx2::kKernels;
    case Isa::avx512:
      return avx512::kKernels;
  }
#else
  static_cast<void>(isa);
#endif
  return portable::kKernels;
}

}  // namespace bankml
