// All float kernels for one instruction set. No include guard: each float_kernels_*.cpp includes it once, after the
// simd_*.hpp of its set, with BANKML_SIMD naming that header's namespace and BANKML_FLOAT_KERNELS the table to define.
// Nothing here may be an inline function of a shared namespace: the linker would keep one compilation of it for all
// sets.

namespace bankml {
namespace BANKML_SIMD {
namespace {

#include "device/cpu/elementwise_impl.hpp"

#include "device/cpu/attention_tiled_impl.hpp"

#include "device/cpu/attention_cells_impl.hpp"

}  // namespace
}  // namespace BANKML_SIMD

const FloatKernels BANKML_FLOAT_KERNELS = {
    BANKML_SIMD::norm_row,        BANKML_SIMD::silu_mul,     BANKML_SIMD::gelu_mul,       BANKML_SIMD::soft_max,
    BANKML_SIMD::rotate_adjacent, BANKML_SIMD::rotate_neox,  BANKML_SIMD::store_half_row, BANKML_SIMD::tile_scratch,
    BANKML_SIMD::attend_tile,     BANKML_SIMD::attend_cells,
};

}  // namespace bankml
