// Paths A and B of attention, once for each instruction set: included by float_kernels_impl.hpp inside its namespace.
//
// Scores of all cells of a block first, eight cells to a register; then the weights, whose exponentials are independent
// of each other once the running maximum is known; then the weighted sum of V, lanes over elements and several heads
// side by side, because each accumulator is a chain of fused multiply-add and rounding to half.

inline float* head_row(float* base, int head, int width) {
  return base + static_cast<std::ptrdiff_t>(head) * width;
}
inline const float* head_row(const float* base, int head, int width) {
  return base + static_cast<std::ptrdiff_t>(head) * width;
}

inline constexpr std::size_t kCacheLine = 64;
inline constexpr int kFoldedCells = 8 * 8;  // of one head: eight lanes each of eight cells

// Adds what is left of the dot products behind the groups of 64 elements.
inline void add_tails(const CellsState& state, int head, const std::byte* k, std::size_t k_bytes, float* sums,
                      int cells) {
  const float* q = head_row(state.q, head, state.head_dim_k);
  const int n = state.head_dim_k, begin = n / 64 * 64, end8 = n / 8 * 8;
  for (int c = 0; c < cells; ++c, k += k_bytes) {
    if (state.type_k == DType::f16) {
      double total = static_cast<double>(sums[c]);
      for (int i = begin; i < n; ++i) total += static_cast<double>(widen(reinterpret_cast<const half*>(k)[i]) * q[i]);
      sums[c] = static_cast<float>(total);
    } else {
      const float* x = reinterpret_cast<const float*>(k);
      float sum = sums[c];
      for (int i = begin; i < end8; ++i) sum = sum + x[i] * q[i];
      for (int i = end8; i < n; ++i) sum = __builtin_fmaf(x[i], q[i], sum);
      sums[c] = sum;
    }
  }
}

inline void multiply_q8_heads(const CellsState& state, const std::byte* k, float* folded, int stride) {
  const int blocks = state.head_dim_k / kQ8Block;
  for (int head = 0; head < state.heads; ++head) {
    const std::int8_t* q = state.q8 + static_cast<std::ptrdiff_t>(head) * state.head_dim_k;
    const float* q_scale = head_row(state.q8_scale, head, blocks);
    F32x8 acc = zero8();
    for (int b = 0; b < blocks; ++b) {
      const std::byte* block = k + b * kQ8BlockBytes;
      half d;
      __builtin_memcpy(&d, block, sizeof d);
      acc = fma_dot4(widen(d) * q_scale[b], reinterpret_cast<const std::int8_t*>(block + sizeof d), q + b * kQ8Block,
                     acc);
    }
    store8(folded + head * stride, acc);
  }
}

// Products of one cell's half K with the Q of all heads, 64 elements each: products of halves are exact, so that the
// first additions of the tree may be fused with them.
inline void multiply_half_heads_of_64(const CellsState& state, const std::byte* k, float* folded, int stride) {
  F32x16 key[4];
  BANKML_UNROLL
  for (int i = 0; i < 4; ++i) key[i] = load_half(reinterpret_cast<const half*>(k) + 16 * i);
  for (int head = 0; head < state.heads; ++head) {
    const float* q = head_row(state.q, head, 64);
    const F32x16 even = fma(key[0], load(q), mul(key[2], load(q + 32)));
    const F32x16 odd = fma(key[1], load(q + 16), mul(key[3], load(q + 48)));
    store8(folded + head * stride, fold(add(even, odd)));
  }
}

// Products of one cell's K with the Q of all heads, the sixteen lanes of the four accumulators folded to eight:
// folded[head] is (8). The first kGroups * 64 elements; K stays in registers as far as they go.
template <int kGroups>
inline void multiply_heads(const CellsState& state, const std::byte* k, float* folded, int stride) {
  F32x16 key[4 * kGroups];
  BANKML_UNROLL
  for (int i = 0; i < 4 * kGroups; ++i) key[i] = load_wide(state.type_k, k, 16 * i);
  for (int head = 0; head < state.heads; ++head) {
    const float* q = head_row(state.q, head, state.head_dim_k);
    F32x16 acc[4];
    BANKML_UNROLL
    for (int a = 0; a < 4; ++a) acc[a] = mul(key[a], load(q + 16 * a));
    BANKML_UNROLL
    for (int i = 4; i < 4 * kGroups; ++i) acc[i % 4] = fma(key[i], load(q + 16 * i), acc[i % 4]);
    store8(folded + head * stride, fold(add(add(acc[0], acc[2]), add(acc[1], acc[3]))));
  }
}

// The same for any number of groups.
inline void multiply_heads(const CellsState& state, const std::byte* k, float* folded, int stride) {
  const int end = state.head_dim_k / 64 * 64;
  for (int head = 0; head < state.heads; ++head) {
    const float* q = head_row(state.q, head, state.head_dim_k);
    F32x16 acc[4];
    BANKML_UNROLL
    for (int a = 0; a < 4; ++a) acc[a] = broadcast(0.0f);
    for (int i = 0; i < end; i += 64) {
      BANKML_UNROLL
      for (int a = 0; a < 4; ++a) acc[a] = fma(load_wide(state.type_k, k, i + 16 * a), load(q + i + 16 * a), acc[a]);
    }
    store8(folded + head * stride, fold(add(add(acc[0], acc[2]), add(acc[1], acc[3]))));
  }
}

// weights[head][cell] = dot product of K and Q, for up to eight cells from `k` on, the first being cell `first`.
// Fetches their V ahead.
inline void score_cells(const CellsState& state, const std::byte* k, std::size_t k_bytes, const std::byte* v,
                        std::size_t v_bytes, int first, int cells) {
  const int n = state.head_dim_k;
  const bool q8 = state.type_k == DType::q8_0;
  for (int c = 0; c < cells; ++c) {
    const std::byte* row = k + static_cast<std::size_t>(c) * k_bytes;
    for (std::size_t line = 0; line < v_bytes; line += kCacheLine) {
      __builtin_prefetch(v + static_cast<std::size_t>(c) * v_bytes + line);
    }
    float* folded = state.folded + 8 * c;
    if (q8) {
      multiply_q8_heads(state, row, folded, kFoldedCells);
    } else if (n == 64 && state.type_k == DType::f16) {
      multiply_half_heads_of_64(state, row, folded, kFoldedCells);
    } else if (n == 64) {
      multiply_heads<1>(state, row, folded, kFoldedCells);
    } else if (n == 128) {
      multiply_heads<2>(state, row, folded, kFoldedCells);
    } else {
      multiply_heads(state, row, folded, kFoldedCells);
    }
  }
  for (int head = 0; head < state.heads; ++head) {
    F32x8 folded[8];
    BANKML_UNROLL
    for (int c = 0; c < 8; ++c) folded[c] = load8(head_row(state.folded, head, kFoldedCells) + 8 * c);
    float sums[8];  // those of cells that aren't there come from an earlier run
    sum_lanes_of_8(sums, folded);
    float* out = head_row(state.weights, head, kTileCells) + first;
    for (int c = 0; c < cells; ++c) out[c] = sums[c];
    if (!q8 && n % 64 != 0) add_tails(state, head, k, k_bytes, out, cells);
  }
}

// Scores of `count` cells of one head to what the sum over cells needs: for a cell that raises the maximum the factor
// for what was summed before, and its bit in the result; for others their weight.
inline std::uint64_t weigh_cells(float* s, int count, float& running_max, float scale, float softcap) {
  for (int i = 0; i < kTileCells; i += 16) {
    if (i < count) store(s + i, mul(load(s + i), broadcast(scale)));
  }
  if (softcap != 0.0f) {
    for (int i = 0; i < count; ++i) s[i] = softcap * __builtin_tanhf(s[i]);
  }
  for (int i = count; i % 16 != 0; ++i) s[i] = -__builtin_inff();
  F32x16 most = load(s);
  for (int i = 16; i < count; i += 16) most = max(most, load(s + i));

  std::uint64_t raises = 0;
  if (!(reduce_max(most) > running_max)) {
    for (int i = 0; i < count; i += 16) store(s + i, sub(load(s + i), broadcast(running_max)));
  } else {
    float m = running_max;
    for (int i = 0; i < count; ++i) {
      const float x = s[i];
      if (x > m) {
        raises |= std::uint64_t{1} << i;
        s[i] = m - x;
        m = x;
      } else {
        s[i] = x - m;
      }
    }
    running_max = m;
  }
  // from -104 on expf is 0
  for (int i = 0; i < count; i += 16) store(s + i, expf_of_nonpositive(max(load(s + i), broadcast(-106.0f))));
  return raises;
}

inline F32x16 load_q8_values(const std::byte* row, int element) {
  const std::byte* block = row + element / kQ8Block * kQ8BlockBytes;
  half d;
  __builtin_memcpy(&d, block, sizeof d);
  return mul(load_int8(reinterpret_cast<const std::int8_t*>(block + sizeof d) + element % kQ8Block),
             broadcast(widen(d)));
}

// acc[head][d..] += weights[head][cell] * V[cell][d..], cell after cell, for kHeads heads and kVectors vectors from
// element d on.
template <DType kType, int kHeads, int kVectors>
inline void add_values(const CellsState& state, int head, int d, const std::byte* v, std::size_t v_bytes, int begin,
                       int end) {
  constexpr int kElementBytes = kType == DType::f32 ? 4 : kType == DType::f16 ? 2 : 1;
  F32x16 acc[kHeads][kVectors];
  BANKML_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) acc[h][p] = load(head_row(state.acc, head + h, state.head_dim_v) + d + 16 * p);
  }
  for (int cell = begin; cell < end; ++cell) {
    const std::byte* row = v + static_cast<std::size_t>(cell) * v_bytes;
    __builtin_prefetch(state.next_k + (row - v) + d * kElementBytes);  // one line of as many bytes as are read here
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) {  // outside, so that one value at a time takes up registers
      F32x16 value;
      if constexpr (kType == DType::q8_0) {
        value = load_q8_values(row, d + 16 * p);
      } else {
        value = load_wide(kType, row, d + 16 * p);
      }
      BANKML_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        acc[h][p] = fma(value, broadcast(head_row(state.weights, head + h, kTileCells)[cell]), acc[h][p]);
        if constexpr (kType == DType::f16) acc[h][p] = round_to_half(acc[h][p]);
      }
    }
  }
  BANKML_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) store(head_row(state.acc, head + h, state.head_dim_v) + d + 16 * p, acc[h][p]);
  }
}

// Elements from d on: as many vectors at once as fit, then half as many.
template <DType kType, int kHeads, int kVectors>
inline void add_values_from(const CellsState& state, int head, int d, const std::byte* v, std::size_t v_bytes,
                            int begin, int end) {
  for (; d + 16 * kVectors <= state.head_dim_v; d += 16 * kVectors) {
    add_values<kType, kHeads, kVectors>(state, head, d, v, v_bytes, begin, end);
  }
  if constexpr (kVectors > 1) {
    add_values_from<kType, kHeads, kVectors / 2>(state, head, d, v, v_bytes, begin, end);
  } else if constexpr (kType != DType::q8_0) {
    for (; d < state.head_dim_v; ++d) {
      for (int h = head; h < head + kHeads; ++h) {
        float acc = head_row(state.acc, h, state.head_dim_v)[d];
        for (int cell = begin; cell < end; ++cell) {
          const std::byte* row = v + static_cast<std::size_t>(cell) * v_bytes;
          const float weight = head_row(state.weights, h, kTileCells)[cell];
          if constexpr (kType == DType::f16) {
            acc = widen(narrow(__builtin_fmaf(widen(reinterpret_cast<const half*>(row)[d]), weight, acc)));
          } else {
            acc = __builtin_fmaf(reinterpret_cast<const float*>(row)[d], weight, acc);
          }
        }
        head_row(state.acc, h, state.head_dim_v)[d] = acc;
      }
    }
  }
}

// All heads over a run of cells; heads side by side, so that their accumulators hide the latency of each other's chains
// and still fit into registers.
template <DType kType>
inline void add_values_of_heads(const CellsState& state, const std::byte* v, std::size_t v_bytes, int begin, int end) {
  int head = 0;
  for (; head + 3 <= state.heads; head += 3) {
    add_values_from<kType, 3, kCellVectors>(state, head, 0, v, v_bytes, begin, end);
  }
  for (; head + 2 <= state.heads; head += 2) {
    add_values_from<kType, 2, kCellVectors>(state, head, 0, v, v_bytes, begin, end);
  }
  for (; head < state.heads; ++head) {
    add_values_from<kType, 1, 2 * kCellVectors>(state, head, 0, v, v_bytes, begin, end);
  }
}

// The cell raised the maximum of a head: what was summed before shrinks, and the cell's own weight is 1.
template <DType kType>
inline void shrink_values(const CellsState& state, int head, int cell) {
  float& weight = head_row(state.weights, head, kTileCells)[cell];
  float* acc = head_row(state.acc, head, state.head_dim_v);
  int d = 0;
  for (; d + 16 <= state.head_dim_v; d += 16) {
    F32x16 a = mul(load(acc + d), broadcast(weight));
    if constexpr (kType == DType::f16) a = round_to_half(a);
    store(acc + d, a);
  }
  for (; d < state.head_dim_v; ++d) {
    acc[d] = acc[d] * weight;
    if constexpr (kType == DType::f16) acc[d] = widen(narrow(acc[d]));
  }
  weight = 1.0f;
}

template <DType kType>
inline void add_all_values(const CellsState& state, const std::byte* v, std::size_t v_bytes, int count) {
  std::uint64_t raised = 0;  // cells that raise the maximum of any head
  for (int head = 0; head < state.heads; ++head) raised |= state.raises[head];
  for (int begin = 0; begin < count;) {
    for (int head = 0; head < state.heads; ++head) {
      if ((state.raises[head] >> begin & 1) != 0) shrink_values<kType>(state, head, begin);
    }
    const std::uint64_t later = begin + 1 < kTileCells ? raised >> (begin + 1) : 0;
    const int next = later != 0 ? begin + 1 + __builtin_ctzll(later) : count;
    add_values_of_heads<kType>(state, v, v_bytes, begin, next);
    begin = next;
  }
}

// The sum over cells of the weights of kHeads heads, none of which raises its maximum: one chain each, side by side.
template <int kHeads>
inline void add_weights_of_heads(const CellsState& state, int head, int count) {
  float sum[kHeads];
  BANKML_UNROLL
  for (int h = 0; h < kHeads; ++h) sum[h] = state.sum[head + h];
  for (int i = 0; i < count; ++i) {
    BANKML_UNROLL
    for (int h = 0; h < kHeads; ++h) sum[h] += head_row(state.weights, head + h, kTileCells)[i];
  }
  BANKML_UNROLL
  for (int h = 0; h < kHeads; ++h) state.sum[head + h] = sum[h];
}

inline void add_weights(const CellsState& state, int count) {
  for (int head = 0; head < state.heads;) {
    if (head + 3 <= state.heads && (state.raises[head] | state.raises[head + 1] | state.raises[head + 2]) == 0) {
      add_weights_of_heads<3>(state, head, count);
      head += 3;
      continue;
    }
    const float* weights = head_row(state.weights, head, kTileCells);
    const std::uint64_t raises = state.raises[head];
    float sum = state.sum[head];
    for (int i = 0; i < count; ++i) {
      sum = (raises >> i & 1) != 0 ? __builtin_fmaf(sum, weights[i], 1.0f) : sum + weights[i];
    }
    state.sum[head++] = sum;
  }
}

void attend_cells(const CellsState& state, const std::byte* k, const std::byte* v, int begin, int end) {
  const std::size_t k_bytes = kv_row_bytes(state.type_k, state.head_dim_k);
  const std::size_t v_bytes = kv_row_bytes(state.type_v, state.head_dim_v);
  k += static_cast<std::size_t>(begin) * k_bytes;
  v += static_cast<std::size_t>(begin) * v_bytes;
  const int count = end - begin;
  for (int first = 0; first < count; first += 8) {
    const int cells = count - first < 8 ? count - first : 8;
    score_cells(state, k + static_cast<std::size_t>(first) * k_bytes, k_bytes,
                v + static_cast<std::size_t>(first) * v_bytes, v_bytes, first, cells);
  }
  for (int head = 0; head < state.heads; ++head) {
    state.raises[head] =
        weigh_cells(head_row(state.weights, head, kTileCells), count, state.max[head], state.scale, state.softcap);
  }
  add_weights(state, count);
  if (state.type_v == DType::f16) add_all_values<DType::f16>(state, v, v_bytes, count);
  if (state.type_v == DType::f32) add_all_values<DType::f32>(state, v, v_bytes, count);
  if (state.type_v == DType::q8_0) add_all_values<DType::q8_0>(state, v, v_bytes, count);
}
