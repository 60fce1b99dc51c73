#include "device/cpu/float_kernels.hpp"
#include "device/cpu/simd_avx2.hpp"

#define BANKML_SIMD simd_avx2
#define BANKML_FLOAT_KERNELS float_kernels_avx2
#include "device/cpu/float_kernels_impl.hpp"
