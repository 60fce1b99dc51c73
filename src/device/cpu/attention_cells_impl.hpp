// Paths A and B of attention, once for each instruction set: included by float_kernels_impl.hpp inside its namespace.
//
// Scores of all cells of a block first, eight cells to a register; then the weights, whose exponentials are independent of
// each other once the running maximum is known; then the weighted sum of V, lanes over elements and several heads side by
// side, because each accumulator is a chain of fused multiply-add and rounding to half.

inline float* head_row(float* base, int head, int width) { return base + static_cast<std::ptrdiff_t>(head) * width; }
inline const float* head_row(const float* base, int head, int width) {
  return base + static_cast<std::ptrdiff_t>(head) * width;
}

// What is left of a dot product behind the groups of 64 elements.
inline float add_tail_of_halves(float sum, const float* x, const float* y, int from, int n) {
  double total = static_cast<double>(sum);
  for (int i = from; i < n; ++i) total += static_cast<double>(x[i] * y[i]);
  return static_cast<float>(total);
}
inline float add_tail_of_floats(float sum, const float* x, const float* y, int from, int n) {
  int i = from;
  for (; i + 8 <= n; i += 8) {
    for (int l = i; l < i + 8; ++l) sum = sum + x[l] * y[l];
  }
  for (; i < n; ++i) sum = __builtin_fmaf(x[i], y[i], sum);
  return sum;
}

// Sixteen lanes of four accumulators over the groups of 64 elements, folded to eight.
inline F32x8 multiply_groups(const float* x, const float* y, int groups) {
  F32x16 acc[4];
  for (int a = 0; a < 4; ++a) acc[a] = broadcast(0.0f);
  for (int i = 0; i < 64 * groups; i += 64) {
    for (int a = 0; a < 4; ++a) acc[a] = fma(load(x + i + 16 * a), load(y + i + 16 * a), acc[a]);
  }
  return fold(add(add(acc[0], acc[2]), add(acc[1], acc[3])));
}

inline F32x8 multiply_q8(const std::byte* k, const std::int8_t* q, const float* q_scale, int blocks) {
  F32x8 acc = zero8();
  for (int b = 0; b < blocks; ++b) {
    const std::byte* block = k + b * kQ8BlockBytes;
    half d;
    __builtin_memcpy(&d, block, sizeof d);
    acc = fma_dot4(widen(d) * q_scale[b], reinterpret_cast<const std::int8_t*>(block + sizeof d), q + b * kQ8Block, acc);
  }
  return acc;
}

// K of `cells` cells as floats, one row after the other: K itself, or wide_k.
inline const float* widen_k(const CellsState& state, const std::byte* k, int cells) {
  if (state.type_k == DType::f32) return reinterpret_cast<const float*>(k);
  const half* from = reinterpret_cast<const half*>(k);
  const std::ptrdiff_t n = static_cast<std::ptrdiff_t>(cells) * state.head_dim_k;
  std::ptrdiff_t i = 0;
  for (; i + 16 <= n; i += 16) store(state.wide_k + i, load_half(from + i));
  for (; i < n; ++i) state.wide_k[i] = widen(from[i]);
  return state.wide_k;
}

// weights[head][cell] = dot product of K and Q, for up to eight cells from `k` on.
inline void score_cells(const CellsState& state, const std::byte* k, std::size_t k_bytes, int first, int cells) {
  const int n = state.head_dim_k, groups = n / 64;
  const bool q8 = state.type_k == DType::q8_0;
  const float* wide = q8 ? nullptr : widen_k(state, k, cells);
  for (int head = 0; head < state.heads; ++head) {
    const float* q = head_row(state.q, head, n);
    F32x8 folded[8];
    for (int c = 0; c < 8; ++c) {
      if (c >= cells) {
        folded[c] = zero8();
      } else if (q8) {
        folded[c] = multiply_q8(k + static_cast<std::size_t>(c) * k_bytes, state.q8 + static_cast<std::ptrdiff_t>(head) * n,
                                head_row(state.q8_scale, head, n / kQ8Block), n / kQ8Block);
      } else {
        folded[c] = multiply_groups(head_row(wide, c, n), q, groups);
      }
    }
    float sums[8];
    sum_lanes_of_8(sums, folded);
    float* out = head_row(state.weights, head, kTileCells) + first;
    for (int c = 0; c < cells; ++c) {
      float sum = sums[c];
      if (!q8 && n % 64 != 0) {
        const float* x = head_row(wide, c, n);
        sum = state.type_k == DType::f16 ? add_tail_of_halves(sum, x, q, 64 * groups, n)
                                         : add_tail_of_floats(sum, x, q, 64 * groups, n);
      }
      out[c] = sum;
    }
  }
}

// Scores of `count` cells of one head to what the sum over cells needs: for a cell that raises the maximum the factor for
// what was summed before, and its bit in the result; for others their weight.
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
  return mul(load_int8(reinterpret_cast<const std::int8_t*>(block + sizeof d) + element % kQ8Block), broadcast(widen(d)));
}

// acc[head][d..] += weights[head][cell] * V[cell][d..], cell after cell, for kHeads heads and kVectors vectors from element
// d on.
template <DType kType, int kHeads, int kVectors>
inline void add_values(const CellsState& state, int head, int d, const std::byte* v, std::size_t v_bytes, int begin,
                       int end) {
  F32x16 acc[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kVectors; ++p) acc[h][p] = load(head_row(state.acc, head + h, state.head_dim_v) + d + 16 * p);
  }
  for (int cell = begin; cell < end; ++cell) {
    const std::byte* row = v + static_cast<std::size_t>(cell) * v_bytes;
    F32x16 value[kVectors];
    for (int p = 0; p < kVectors; ++p) {
      if constexpr (kType == DType::q8_0) {
        value[p] = load_q8_values(row, d + 16 * p);
      } else {
        value[p] = load_wide(kType, row, d + 16 * p);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const F32x16 weight = broadcast(head_row(state.weights, head + h, kTileCells)[cell]);
      for (int p = 0; p < kVectors; ++p) {
        acc[h][p] = fma(value[p], weight, acc[h][p]);
        if constexpr (kType == DType::f16) acc[h][p] = round_to_half(acc[h][p]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kVectors; ++p) store(head_row(state.acc, head + h, state.head_dim_v) + d + 16 * p, acc[h][p]);
  }
}

// Elements from d on: as many vectors at once as fit, then half as many.
template <DType kType, int kHeads, int kVectors>
inline void add_values_from(const CellsState& state, int head, int d, const std::byte* v, std::size_t v_bytes, int begin,
                            int end) {
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

// sum[head] over the weights of `count` cells.
inline void add_weights(const CellsState& state, int count) {
  for (int head = 0; head < state.heads; ++head) {
    const float* weights = head_row(state.weights, head, kTileCells);
    const std::uint64_t raises = state.raises[head];
    float sum = state.sum[head];
    for (int i = 0; i < count; ++i) {
      sum = (raises >> i & 1) != 0 ? __builtin_fmaf(sum, weights[i], 1.0f) : sum + weights[i];
    }
    state.sum[head] = sum;
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
    score_cells(state, k + static_cast<std::size_t>(first) * k_bytes, k_bytes, first, cells);
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
