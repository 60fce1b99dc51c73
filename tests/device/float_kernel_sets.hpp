#pragma once
// The sets of float kernels that can run here, the emulated AVX-512 ones among them.
#include <string>
#include <vector>

#include "device/cpu/float_kernels.hpp"

namespace bankml::test {

struct FloatKernelSet {
  std::string name;
  Isa isa;  // of what isn't a float kernel
  const FloatKernels* kernels;
};

inline std::vector<FloatKernelSet> float_kernel_sets() {
  std::vector<FloatKernelSet> sets;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) sets.push_back({std::string(isa_name(isa)), isa, &float_kernels(isa)});
  }
#ifdef BANKML_EMULATED_KERNELS
  if (isa_available(Isa::avx2)) sets.push_back({"avx512_emulated", Isa::avx2, &float_kernels_avx512_simde});
#endif
  return sets;
}

}  // namespace bankml::test
