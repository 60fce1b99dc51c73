// Path C of attention, once for each instruction set: included by float_kernels_impl.hpp inside its namespace.
//
// A block of cells is 64 wide, K transposed and V as it is, both as panels of sixteen lanes: panel p of K holds cells
// 16p..16p+15 as (head_dim_k, 16), panel p of V holds elements 16p..16p+15 as (kBlockCells, 16). So scores and weighted
// sums are both products of a few rows with a panel, each lane one chain of fused multiply-adds.

inline constexpr int kTileCells = static_cast<int>(kBlockCells);
inline constexpr int kTilePanels = kTileCells / 16;

// c[r] (+)= sum over k < depth of a[r][k] * b[k], for `kVectors` panels of b, each (depth, 16), `panel` floats apart.
template <int kRows, int kVectors, bool kAccumulate>
inline void multiply_panels(const float* const (&a)[kRows], const float* b, std::ptrdiff_t panel, int depth,
                            float* const (&c)[kRows]) {
  F32x16 acc[kRows][kVectors];
  BANKML_UNROLL
  for (int r = 0; r < kRows; ++r) {
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) acc[r][p] = kAccumulate ? load(c[r] + 16 * p) : broadcast(0.0f);
  }
  for (int k = 0; k < depth; ++k) {
    F32x16 lanes[kVectors];
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) lanes[p] = load(b + p * panel + 16 * k);
    BANKML_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const F32x16 x = broadcast(a[r][k]);
      BANKML_UNROLL
      for (int p = 0; p < kVectors; ++p) acc[r][p] = fma(x, lanes[p], acc[r][p]);
    }
  }
  BANKML_UNROLL
  for (int r = 0; r < kRows; ++r) {
    BANKML_UNROLL
    for (int p = 0; p < kVectors; ++p) store(c[r] + 16 * p, acc[r][p]);
  }
}

// The same over the first `panels` of b, c[r] being (panels, 16).
template <int kRows, bool kAccumulate>
inline void multiply_rows(const float* const (&a)[kRows], const float* b, std::ptrdiff_t panel, int depth, int panels,
                          float* const (&c)[kRows]) {
  float* to[kRows];
  for (int p = 0; p < panels;) {
    BANKML_UNROLL
    for (int r = 0; r < kRows; ++r) to[r] = c[r] + 16 * p;
    if (p + kProductVectors <= panels) {
      multiply_panels<kRows, kProductVectors, kAccumulate>(a, b + p * panel, panel, depth, to);
      p += kProductVectors;
    } else {
      multiply_panels<kRows, 1, kAccumulate>(a, b + p * panel, panel, depth, to);
      ++p;
    }
  }
}

inline F32x8 load_wide8(DType type, const std::byte* p, std::ptrdiff_t element) {
  if (type == DType::f16) return load_half8(reinterpret_cast<const half*>(p) + element);
  return load8(reinterpret_cast<const float*>(p) + element);
}
inline F32x16 load_wide(DType type, const std::byte* p, std::ptrdiff_t element) {
  if (type == DType::f16) return load_half(reinterpret_cast<const half*>(p) + element);
  return load(reinterpret_cast<const float*>(p) + element);
}

inline void transpose_k(float* panels, DType type, const std::byte* k, int head_dim) {
  for (int cell = 0; cell < kTileCells; cell += 8) {
    float* to = panels + (cell / 16) * (static_cast<std::ptrdiff_t>(head_dim) * 16) + cell % 16;
    for (int d = 0; d < head_dim; d += 8) {
      F32x8 square[8];
      BANKML_UNROLL
      for (int i = 0; i < 8; ++i) {
        square[i] = load_wide8(type, k, static_cast<std::ptrdiff_t>(cell + i) * head_dim + d);
      }
      transpose(square);
      BANKML_UNROLL
      for (int i = 0; i < 8; ++i) store8(to + (d + i) * 16, square[i]);
    }
  }
}

// Cells that no row sees count as zeros: their memory may never have been written.
inline void arrange_v(float* panels, DType type, const std::byte* v, int head_dim, std::uint64_t seen) {
  for (int cell = 0; cell < kTileCells; ++cell) {
    const bool zero = (seen >> cell & 1) == 0;
    for (int d = 0; d < head_dim; d += 16) {
      const std::ptrdiff_t element = static_cast<std::ptrdiff_t>(cell) * head_dim + d;
      store(panels + static_cast<std::ptrdiff_t>(d) * kTileCells + cell * 16,
            zero ? broadcast(0.0f) : load_wide(type, v, element));
    }
  }
}

// Scores to weights, in place. Returns with row.max and, where it grew, row.acc and row.sum brought up to date.
inline void weigh_scores(float* s, TiledRow& row, const TileShape& shape) {
  F32x16 x[kTilePanels];
  BANKML_UNROLL
  for (int p = 0; p < kTilePanels; ++p) x[p] = mul(load(s + 16 * p), broadcast(shape.scale));
  if (shape.softcap != 0.0f) {
    for (int p = 0; p < kTilePanels; ++p) {
      store(s + 16 * p, x[p]);
      for (int l = 0; l < 16; ++l) s[16 * p + l] = __builtin_tanhf(s[16 * p + l]) * shape.softcap;
      x[p] = load(s + 16 * p);
    }
  }
  if (row.visible != ~std::uint64_t{0}) {
    BANKML_UNROLL
    for (int p = 0; p < kTilePanels; ++p) {
      x[p] = select(static_cast<std::uint16_t>(row.visible >> 16 * p), x[p], broadcast(-__builtin_inff()));
    }
  }
  F32x16 most = x[0];
  for (int p = 1; p < kTilePanels; ++p) most = max(most, x[p]);
  const float tile_max = reduce_max(most);
  if (tile_max > row.max) {
    const float rescale = __builtin_expf(row.max - tile_max);
    row.max = tile_max;
    row.sum = row.sum * rescale;
    for (int d = 0; d < shape.head_dim_v; d += 16) store(row.acc + d, mul(load(row.acc + d), broadcast(rescale)));
  }
  BANKML_UNROLL
  for (int p = 0; p < kTilePanels; ++p) store(s + 16 * p, vector_exp_of_nonpositive(sub(x[p], broadcast(row.max))));
}

// Adds the weights of two rows at once: eight sixteen-lane sums fill a register.
inline void sum_weights(const float* a, const float* b, TiledRow& row_a, TiledRow& row_b) {
  F32x8 folded[8];
  BANKML_UNROLL
  for (int p = 0; p < kTilePanels; ++p) {
    folded[p] = fold(load(a + 16 * p));
    folded[p + kTilePanels] = fold(load(b + 16 * p));
  }
  float sums[8];
  sum_lanes_of_8(sums, folded);
  BANKML_UNROLL
  for (int half_index = 0; half_index < 2; ++half_index) {
    const float* t = sums + half_index * kTilePanels;
    TiledRow& row = half_index == 0 ? row_a : row_b;
    double total = 0.0;
    BANKML_UNROLL
    for (int p = 0; p < kTilePanels; ++p) total += static_cast<double>(t[p]);
    row.sum = static_cast<float>(static_cast<double>(row.sum) + total);
  }
}

std::size_t tile_scratch(const TileShape& shape) {
  const int spare_row = shape.head_dim_v;
  return static_cast<std::size_t>((shape.head_dim_k + shape.head_dim_v + kProductRows) * kTileCells + spare_row);
}

void attend_tile(TiledRow* rows, int count, const TileShape& shape, const std::byte* k, const std::byte* v,
                 float* scratch) {
  std::uint64_t seen = 0;
  for (int i = 0; i < count; ++i) seen |= rows[i].visible;
  if (seen == 0) return;
  float* k_panels = scratch;
  float* v_panels = k_panels + shape.head_dim_k * kTileCells;
  float* scores = v_panels + shape.head_dim_v * kTileCells;
  float* spare_acc = scores + kProductRows * kTileCells;
  transpose_k(k_panels, shape.type, k, shape.head_dim_k);
  arrange_v(v_panels, shape.type, v, shape.head_dim_v, seen);

  for (int next = 0; next < count;) {
    TiledRow* group[kProductRows];
    int members = 0, cells = 0;  // cells: none beyond is seen
    for (; next < count && members < kProductRows; ++next) {
      if (rows[next].visible == 0) continue;  // such a row is left as it is
      group[members++] = &rows[next];
      const int end = kTileCells - __builtin_clzll(rows[next].visible);
      cells = end > cells ? end : cells;
    }
    if (members == 0) return;
    const float *q[kProductRows], *p[kProductRows];
    float *s[kProductRows], *acc[kProductRows];
    for (int r = 0; r < kProductRows; ++r) {
      const bool used = r < members;
      q[r] = group[used ? r : 0]->q;
      p[r] = s[r] = scores + r * kTileCells;
      acc[r] = used ? group[r]->acc : spare_acc;
    }
    multiply_rows<kProductRows, false>(q, k_panels, std::ptrdiff_t{shape.head_dim_k} * 16, shape.head_dim_k,
                                       (cells + 15) / 16, s);
    for (int r = 0; r < members; ++r) weigh_scores(s[r], *group[r], shape);
    for (int r = 0; r < members; r += 2) {
      TiledRow unused = *group[r];
      const bool pair = r + 1 < members;
      sum_weights(s[r], s[pair ? r + 1 : r], *group[r], pair ? *group[r + 1] : unused);
    }
    multiply_rows<kProductRows, true>(p, v_panels, std::ptrdiff_t{kTileCells} * 16, cells, shape.head_dim_v / 16, acc);
  }
}
