#pragma once
// Attention, one query row of one head at a time, as plainly as docs/arithmetic.md 2.8 to 2.10 and 4 state it: the
// truth that the fast kernels are tested against.
#include <cstddef>
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cpu/attention_path.hpp"

namespace bankml::reference {

// The cells of one KV head: rows of head_dim elements one after the other.
struct KvCells {
  DType type_k = DType::f16, type_v = DType::f16;
  int head_dim_k = 0, head_dim_v = 0;
  std::int64_t cells = 0;  // padded
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
};

struct QueryRow {
  const float* q = nullptr;               // (head_dim_k)
  const std::uint8_t* visible = nullptr;  // (cells): 1 where the row sees the cell
  float scale = 1.0f;
  float softcap = 0.0f;         // 0: none
  const float* sink = nullptr;  // or none
};

// out: (head_dim_v). `threads` matters to the split path only.
void attention(float* out, AttentionPath path, int threads, const KvCells& kv, const QueryRow& row);

// out = soft_max(x * scale + mask).
void soft_max(float* out, const float* x, const float* mask, float scale, int n);

float vector_exp(float x);        // E(x), 2.10
float sum16(const float* lanes);  // T16, 1

}  // namespace bankml::reference
