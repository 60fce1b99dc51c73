// GCC 12's own intrinsics pass a value that they call undefined where no lane of it is used.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include "device/cpu/rows_avx512.hpp"
//
#include "device/cpu/kernel_table.hpp"

#ifdef BANKML_SIMDE  // a test's build of the same kernels beside the library's own
#define BANKML_MATMUL_AVX512 avx512_simde
#else
#define BANKML_MATMUL_AVX512 avx512
#endif

namespace bankml::BANKML_MATMUL_AVX512 {

extern const Kernels kKernels;
const Kernels kKernels{simd_round_to_f16, simd_quantize_q8, simd_quantize_q8_k, simd_matmul};

}  // namespace bankml::BANKML_MATMUL_AVX512
