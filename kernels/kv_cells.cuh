#pragma once
// Cells of the KV blocks, and which of them a row sees.
#include "device.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {

inline constexpr int kCellsPerBlock = 64;
inline constexpr int kQ8Block = 32;
inline constexpr int kQ8BlockBytes = 34;  // half scale, 32 integers: aligned to two bytes only

__host__ __device__ inline std::int64_t cell_bytes(DType type, int head_dim) {
  if (type == DType::q8_0) return head_dim / kQ8Block * kQ8BlockBytes;
  return std::int64_t{head_dim} * (type == DType::f16 ? 2 : 4);
}
// The first cell of a head in a block.
__device__ inline std::byte* k_cells(const KvView& kv, std::byte* block, int kv_head) {
  return block + kv.k_offset + kv_head * kCellsPerBlock * cell_bytes(kv.type_k, kv.head_dim_k);
}
__device__ inline std::byte* v_cells(const KvView& kv, std::byte* block, int kv_head) {
  return block + kv.v_offset + kv_head * kCellsPerBlock * cell_bytes(kv.type_v, kv.head_dim_v);
}

__device__ inline float cell_value(const std::byte* cell, DType type, int i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(cell)[i];
  if (type == DType::f16) return to_float(reinterpret_cast<const half*>(cell)[i]);
  const std::byte* block = cell + i / kQ8Block * kQ8BlockBytes;
  return to_float(*reinterpret_cast<const half*>(block)) *
         static_cast<float>(reinterpret_cast<const std::int8_t*>(block)[2 + i % kQ8Block]);
}

inline constexpr int kChunk = 8;  // elements of a cell that a thread widens at once: 16 bytes of halves

// Elements 8 * chunk to 8 * chunk + 7 of a cell. Cells of halves and floats start at multiples of 16 bytes.
template <DType kType>
__device__ inline void load_chunk(const std::byte* cell, int chunk, float (&to)[kChunk]) {
  if constexpr (kType == DType::f16) {
    const uint4 v = *reinterpret_cast<const uint4*>(cell + 16 * chunk);
    const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; ++i) {
      const float2 pair = half2_to_float2(words[i]);
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  } else if constexpr (kType == DType::f32) {
    const float4* from = reinterpret_cast<const float4*>(cell + 32 * chunk);
    const float4 a = from[0], b = from[1];
    to[0] = a.x;
    to[1] = a.y;
    to[2] = a.z;
    to[3] = a.w;
    to[4] = b.x;
    to[5] = b.y;
    to[6] = b.z;
    to[7] = b.w;
  } else {
    const std::byte* block = cell + chunk / 4 * kQ8BlockBytes;
    const float d = to_float(*reinterpret_cast<const half*>(block));
    const std::uint16_t* q = reinterpret_cast<const std::uint16_t*>(block + 2 + chunk % 4 * kChunk);
    for (int i = 0; i < kChunk / 2; ++i) {
      const std::uint32_t pair = q[i];
      to[2 * i] = d * static_cast<float>(static_cast<std::int8_t>(pair & 255));
      to[2 * i + 1] = d * static_cast<float>(static_cast<std::int8_t>(pair >> 8));
    }
  }
}

// The cells that a row sees: of [begin, end), those whose position is right where cells aren't in order of positions.
struct VisibleCells {
  std::int32_t position, window;
  std::int64_t begin, end;
  const std::int32_t* held;

  __device__ VisibleCells(const KvView& kv, std::int64_t row, int row_window) {
    position = kv.position[row];
    window = row_window;
    begin = 0;
    end = kv.cells[kv.sequence[row]];
    held = nullptr;
    if (kv.cell_position) {
      held = kv.cell_position + kv.sequence[row] * kv.cell_position_stride;
      return;
    }
    if (end > position + 1) end = position + 1;
    if (window > 0 && position - window + 1 > 0) begin = position - window + 1;
  }
  __device__ bool sees(std::int64_t cell) const {
    if (cell < begin || cell >= end) return false;
    if (!held) return true;
    const std::int32_t p = held[cell];
    return p >= 0 && p <= position && (window <= 0 || position - p < window);
  }
};

}  // namespace KERNEL_NAMESPACE
