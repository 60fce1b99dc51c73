#include "device/cpu/float_kernels.hpp"
#include "device/cpu/simd_portable.hpp"

#define BANKML_SIMD simd_portable
#define BANKML_FLOAT_KERNELS float_kernels_portable
#include "device/cpu/float_kernels_impl.hpp"
