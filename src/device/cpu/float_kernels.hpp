#pragma once
// The inner loops of norm, rotation, activation functions and attention, compiled once for each instruction set from
// one text (float_kernels_impl.hpp over simd_*.hpp) and reached through a table. All sets give the same bits.
#include <cstddef>
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "bankml/device/ops.hpp"
#include "device/cpu/isa.hpp"

// In front of a loop over registers: only when it is unrolled can its array be kept in them.
#if defined(__clang__)
#define BANKML_UNROLL _Pragma("unroll")
#else
#define BANKML_UNROLL _Pragma("GCC unroll 16")
#endif

namespace bankml {

// One query row of one head on the tiled path. `q` and `acc` belong to the caller; max starts at -infinity, the rest at
// 0.
struct TiledRow {
  const float* q;         // (head_dim_k)
  float* acc;             // (head_dim_v), weighted sum of V
  float max, sum;         // largest score so far, sum of the weights
  std::uint64_t visible;  // cells of the present block that the row sees
};

struct TileShape {
  DType type;  // of K and V: f16 or f32
  int head_dim_k, head_dim_v;
  float scale, softcap;  // softcap 0: none; otherwise scale is already divided by it
};

// One item of the one-chunk and split paths: one query row, some heads of one KV head.
struct CellsState {
  DType type_k, type_v;
  int head_dim_k, head_dim_v;
  float scale, softcap;  // as in TileShape
  int heads;
  const float* q;           // (heads, head_dim_k): as the dot product reads it; rounded to half for half K
  const std::int8_t* q8;    // (heads, head_dim_k) for q8_0 K
  const float* q8_scale;    // (heads, head_dim_k / 32) for q8_0 K
  float* acc;               // (heads, head_dim_v)
  float* max;               // (heads)
  float* sum;               // (heads)
  float* weights;           // scratch, (heads, kBlockCells)
  std::uint64_t* raises;    // scratch, (heads): cells that raise the maximum
  const std::byte* next_k;  // K of the block that comes next, or any other readable block: it is fetched ahead
  float* folded;            // scratch, (heads, 8, 8)
};

inline constexpr int kQ8Block = 32;       // elements of a q8_0 block
inline constexpr int kQ8BlockBytes = 34;  // half scale, then the integers

// Bytes of a row of K or V of one head.
constexpr std::size_t kv_row_bytes(DType type, int head_dim) noexcept {
  const auto n = static_cast<std::size_t>(head_dim);
  return type == DType::f16 ? 2 * n : type == DType::f32 ? 4 * n : n / kQ8Block * kQ8BlockBytes;
}

struct FloatKernels {
  // out = (x * scale) * weight + residual; weight, residual: may be none. out may be x or residual.
  void (*norm_row)(float* out, const float* x, float scale, const float* weight, const float* residual, int n);
  // out = silu(gate) * up
  void (*silu_mul)(float* out, const float* gate, const float* up, int n);
  // out = gelu(gate) * up; table: gelu of every half
  void (*gelu_mul)(float* out, const float* gate, const float* up, const half* table, int n);
  // out = soft_max(x); out may be x
  void (*soft_max)(float* out, const float* x, int n);
  // Rotates pairs of x in place; table: (n_rot / 2) of cosine, sine.
  void (*rotate_adjacent)(float* x, const float* table, int n_rot);
  void (*rotate_neox)(float* x, const float* table, int n_rot);
  void (*store_half)(half* out, const float* x, int n);

  // Floats a tiled block needs as scratch for K, V and what else; attend_tile() takes them aligned to 64 bytes.
  std::size_t (*tile_scratch)(const TileShape& shape);
  // All `rows` over one block of cells: k (kBlockCells, head_dim_k), v alike.
  void (*attend_tile)(TiledRow* rows, int count, const TileShape& shape, const std::byte* k, const std::byte* v,
                      float* scratch);
  // All heads over cells [begin, end) of one block, every one of them visible.
  void (*attend_cells)(const CellsState& state, const std::byte* k, const std::byte* v, int begin, int end);
};

// The last is a test's: the AVX-512 kernels on emulated intrinsics.
extern const FloatKernels float_kernels_portable, float_kernels_avx2, float_kernels_avx512, float_kernels_avx512_simde;

const FloatKernels& float_kernels(Isa isa) noexcept;

}  // namespace bankml
