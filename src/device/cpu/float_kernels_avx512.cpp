// GCC 12's own intrinsics pass a value that they call undefined where no lane of it is used.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include "device/cpu/float_kernels.hpp"
#include "device/cpu/simd_avx512.hpp"

#define BANKML_SIMD BANKML_SIMD_AVX512
#ifdef BANKML_SIMDE
#define BANKML_FLOAT_KERNELS float_kernels_avx512_simde
#else
#define BANKML_FLOAT_KERNELS float_kernels_avx512
#endif
#include "device/cpu/float_kernels_impl.hpp"
