#include "device/cpu/rows_avx2.hpp"
//
#include "device/cpu/kernel_table.hpp"

namespace bankml::avx2 {

const Kernels kKernels{simd_round_to_f16, simd_quantize_q8, simd_quantize_q8_k, simd_matmul};

}  // namespace bankml::avx2
