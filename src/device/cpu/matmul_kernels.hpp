#pragma once
// The mat-mul kernels, written once over the operations of a `Simd` struct and compiled for each instruction set that
// has one. Which sums are formed in which order is given by docs/arithmetic.md; everything else here is about
// registers and caches.
#include "device/cpu/kernels.hpp"
#include "device/cpu/packing.hpp"

namespace bankml {
namespace {

// bias, scale and residual, in the order of MatmulOutput, for the eight rows of a group.
inline void finish(const MatmulJob& job, std::int64_t group, int token, Simd::Rows sum) noexcept {
  const std::int64_t row = group * kGroup, at = token * job.rows + row;
  if (row + kGroup <= job.rows) {
    if (job.bias) sum = Simd::add(sum, Simd::load(job.bias + row));
    if (job.scale != 1.0f) sum = Simd::mul(sum, Simd::broadcast(job.scale));
    if (job.residual) sum = Simd::add(sum, Simd::load(job.residual + at));
    Simd::store(job.out + at, sum);
    return;
  }
  float sums[kGroup];
  Simd::store(sums, sum);
  for (std::int64_t i = 0; row + i < job.rows; ++i) {
    float value = sums[i];
    if (job.bias) value += job.bias[row + i];
    if (job.scale != 1.0f) value *= job.scale;
    if (job.residual) value += job.residual[at + i];
    job.out[at + i] = value;
  }
}

// Integers of 32 elements of rows 2 * pair and 2 * pair + 1. Q6_K stays 0..63: its offset is taken off the sums.
template <class Block>
[[gnu::always_inline]] inline Simd::Bytes integers(const std::uint8_t* piece, int pair) noexcept {
  using P = Packing<Block>;
  constexpr BlockTraits traits = P::traits;
  Simd::Bytes w = Simd::codes<traits.low_bits>(piece, pair);
  if constexpr (traits.high_bits != 0) {
    w = Simd::join<traits.low_bits>(w, Simd::codes<traits.high_bits>(piece + P::low_bytes, pair));
  }
  if constexpr (traits.has_table) return Simd::look_up_pair(traits.table, w);
  if constexpr (traits.offset != 0 && !std::is_same_v<Block, BlockQ6K>) return Simd::minus<traits.offset>(w);
  return w;
}

template <class Block>
inline constexpr bool kSigned = kTraits<Block>.has_table || kTraits<Block>.low_bits == 8 ||
                                (kTraits<Block>.offset != 0 && !std::is_same_v<Block, BlockQ6K>);

// Integers of columns `unit` and `unit` + 4.
template <class Block>
[[gnu::always_inline]] inline Simd::Columns column_integers(const std::uint8_t* piece, int unit) noexcept {
  using P = Packing<Block>;
  constexpr BlockTraits traits = P::traits;
  auto codes = Simd::two_columns<traits.low_bits>(piece, unit);
  if constexpr (traits.high_bits == 1) codes = Simd::with_fifth_bit(codes, piece + P::low_bytes, unit);
  if constexpr (traits.offset != 0) return Simd::columns_minus<traits.offset>(Simd::columns(codes));
  return Simd::columns(codes);
}

// Blocks of 32 whose lanes are added up apart: Q4_1, Q5_0, Q5_1, Q8_0. Eight rows, T tokens; a pair of columns after
// the other passes over all blocks with its sums in registers. Where that takes several passes, the scales of a stretch
// of blocks are multiplied first, for all of them.
template <class Block, int T>
void lanes_tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  constexpr int kUnits = Simd::units(T);
  constexpr bool kOnePass = kUnits == 4;
  constexpr std::int64_t kStretch = 128;  // blocks: keeps the scales within 16 KiB
  const std::int64_t blocks = job.cols / kBlock;
  const std::uint8_t* quants = job.quants + group * blocks * P::quant_bytes;
  const std::uint8_t* meta = job.meta + group * blocks * P::meta_bytes;
  const std::int8_t* acts = job.q8.quants + token * job.cols;
  const float* act_scales = job.q8.scale + token * blocks;
  const float* act_sums = job.q8.scaled_sum + token * blocks;

  Simd::Lanes sums[4][T];
  Simd::Rows mins[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    mins[t] = Simd::zero();
#pragma GCC unroll 8
    for (auto& unit : sums) unit[t] = Simd::lanes_zero();
  }
  const auto add_minimum = [&](std::int64_t k) {
    if constexpr (P::traits.minimum) {
      const Simd::Rows m = Simd::widen(meta + k * P::meta_bytes + P::m_at);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) mins[t] = Simd::fma(m, Simd::broadcast(act_sums[t * blocks + k]), mins[t]);
    }
  };
  const auto scale = [&](std::int64_t k, int t) {
    return Simd::mul(Simd::widen(meta + k * P::meta_bytes), Simd::broadcast(act_scales[t * blocks + k]));
  };
  alignas(64) float scales[kOnePass ? 1 : kStretch][T][kGroup];
  for (std::int64_t begin = 0; begin < blocks; begin += kStretch) {
    const std::int64_t end = begin + kStretch < blocks ? begin + kStretch : blocks;
    if constexpr (!kOnePass) {
      for (std::int64_t k = begin; k < end; ++k) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) Simd::store(scales[k - begin][t], scale(k, t));
        add_minimum(k);
      }
    }
    for (int first = 0; first < 4; first += kUnits) {
      Simd::Lanes acc[kUnits][T];
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) acc[u][t] = sums[first + u][t];
      }
      for (std::int64_t k = begin; k < end; ++k) {
        Simd::Columns w[kUnits];
#pragma GCC unroll 8
        for (int u = 0; u < kUnits; ++u) w[u] = column_integers<Block>(quants + k * P::quant_bytes, first + u);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const Simd::ColumnAct x = Simd::column_act(acts + t * job.cols + k * kBlock);
          const auto d = Simd::column_scale(kOnePass ? scale(k, t) : Simd::load(scales[k - begin][t]));
#pragma GCC unroll 8
          for (int u = 0; u < kUnits; ++u) {
            acc[u][t] = Simd::column_fma<kSigned<Block>>(d, w[u], x, first + u, acc[u][t]);
          }
        }
        if constexpr (kOnePass) add_minimum(k);
      }
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[first + u][t] = acc[u][t];
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {  // the tree of eight lanes, each of which is a register
    Simd::Rows sum = Simd::add(Simd::add(Simd::fold(sums[0][t]), Simd::fold(sums[2][t])),
                               Simd::add(Simd::fold(sums[1][t]), Simd::fold(sums[3][t])));
    if constexpr (P::traits.minimum) sum = Simd::add(sum, mins[t]);
    finish(job, group, token + t, sum);
  }
}

// Sums of 32 activations from sums of 16.
inline void add_neighbours(const std::int16_t* sums, std::int16_t (&out)[8]) noexcept {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) out[j] = static_cast<std::int16_t>(sums[2 * j] + sums[2 * j + 1]);
}

// Super-blocks with lanes: Q3_K, Q5_K, Q6_K, IQ4_XS. `whole`: one accumulator per output (IQ4_XS with eight and more
// tokens).
template <class Block, int T, bool whole>
void super_lanes_tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  const std::int64_t blocks = job.cols / kSuperBlock;
  Simd::Lanes acc[4][T];
  Simd::Rows rows_acc[T], mins[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (auto& pair : acc) pair[t] = Simd::lanes_zero();
    rows_acc[t] = mins[t] = Simd::zero();
  }
  for (std::int64_t k = 0; k < blocks; ++k) {
    const std::uint8_t* quants = job.quants + (group * blocks + k) * P::quant_bytes;
    const std::uint8_t* meta = job.meta + (group * blocks + k) * P::meta_bytes;
    const std::int8_t* acts = job.q8_k.quants + token * job.cols + k * kSuperBlock;
    const std::int16_t* act_sums = job.q8_k.sums + (token * job.cols + k * kSuperBlock) / 16;
    alignas(64) float scales[T][kGroup];
    const Simd::Rows d = Simd::widen(meta);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Simd::Rows act_scale = Simd::broadcast(job.q8_k.scale[(token + t) * blocks + k]);
      Simd::store(scales[t], Simd::mul(d, act_scale));
      if constexpr (P::traits.minimum) {
        std::int16_t sums[8];
        add_neighbours(act_sums + t * job.cols / 16, sums);
        Simd::IntRows products = Simd::int_zero();
#pragma GCC unroll 8
        for (int pair = 0; pair < 4; ++pair) {
          const auto pair_mins = Simd::byte_pairs(meta + P::mins_at + pair * 2 * kGroup);
          products = Simd::int_add(products, Simd::pair_dot(pair_mins, sums + 2 * pair));
        }
        const Simd::Rows factor = Simd::mul(Simd::sub(Simd::zero(), act_scale), Simd::widen(meta + P::m_at));
        mins[t] = Simd::fma(factor, Simd::to_float(products), mins[t]);
      }
    }
    Simd::Ints totals[4][T];
#pragma GCC unroll 8
    for (int pair = 0; pair < 4; ++pair) {
      Simd::Ints sum[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sum[t] = Simd::int_lanes_zero();
      for (int j = 0; j < 8; ++j) {
        const Simd::Bytes w = integers<Block>(quants + j * P::sub_bytes, pair);
        const Simd::Scales s = Simd::scales<P::subs>(meta + P::scales_at, pair, j);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          sum[t] = Simd::scaled_dot<kSigned<Block>>(sum[t], w, Simd::act(acts + t * job.cols + 32 * j), s);
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        if constexpr (std::is_same_v<Block,
                                     BlockQ6K>) {  // 32 times the sums that the offset added, in the peer's lanes
          const Simd::Ints added = Simd::all_scales_dot(meta + P::scales_at, pair, act_sums + t * job.cols / 16);
          sum[t] = Simd::minus_shifted<5>(sum[t], added);
        }
        if constexpr (whole) {
          totals[pair][t] = sum[t];
        } else {
          acc[pair][t] = Simd::fma(scales[t] + 2 * pair, sum[t], acc[pair][t]);
        }
      }
    }
    if constexpr (whole) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const Simd::IntRows total = Simd::sum(totals[0][t], totals[1][t], totals[2][t], totals[3][t]);
        rows_acc[t] = Simd::fma(Simd::load(scales[t]), Simd::to_float(total), rows_acc[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    Simd::Rows sum = whole ? rows_acc[t] : Simd::sum(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
    if constexpr (P::traits.minimum) sum = Simd::add(sum, mins[t]);
    finish(job, group, token + t, sum);
  }
}

// Blocks of 32 that are added up together: Q4_0, IQ4_NL, MXFP4.
template <class Block, int T>
void columns_tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  constexpr bool is_signed = P::traits.has_table;  // the offset of Q4_0 is taken off the sums
  const std::int64_t blocks = job.cols / kBlock;
  const std::int8_t* acts = job.q8.quants + token * job.cols;
  Simd::Rows acc[T];
#pragma GCC unroll 8
  for (Simd::Rows& a : acc) a = Simd::zero();
  for (std::int64_t k = 0; k < blocks; ++k) {
    const std::uint8_t* quants = job.quants + (group * blocks + k) * P::quant_bytes;
    Simd::ColumnSum<is_signed> sum[T];
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      auto w = Simd::column<4>(quants, c);
      if constexpr (is_signed) w = Simd::look_up(P::traits.table, w);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sum[t].add(w, acts + t * job.cols + k * kBlock + 4 * c);
    }
    const std::uint8_t* meta = job.meta + (group * blocks + k) * P::meta_bytes;
    const Simd::Rows d = sizeof(typename P::Scale) == 1 ? Simd::widen_e8m0(meta) : Simd::widen(meta);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const std::int64_t at = (token + t) * blocks + k;
      Simd::IntRows ints = sum[t].ints();
      if constexpr (P::traits.offset != 0) {
        ints = Simd::int_sub(ints, Simd::int_broadcast(P::traits.offset * job.q8.sum[at]));
      }
      acc[t] = Simd::fma(Simd::to_float(ints), Simd::mul(d, Simd::broadcast(job.q8.scale[at])), acc[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) finish(job, group, token + t, acc[t]);
}

// Super-blocks that are added up together: Q4_K, Q2_K. `in_units`: tokens that form a group of four in their mat-mul
// add up 64 (Q4_K) or 128 (Q2_K) elements at a time, others the whole block.
template <class Block, int T, bool in_units>
void super_columns_tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  constexpr int kSub = P::traits.sub, kAllPairs = P::subs / 2;
  constexpr int kUnitPairs = !in_units ? kAllPairs : kSub == 32 ? 1 : 4;
  const std::int64_t blocks = job.cols / kSuperBlock;
  Simd::Rows acc[T], mins[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) acc[t] = mins[t] = Simd::zero();
  for (std::int64_t k = 0; k < blocks; ++k) {
    const std::uint8_t* quants = job.quants + (group * blocks + k) * P::quant_bytes;
    const std::uint8_t* meta = job.meta + (group * blocks + k) * P::meta_bytes;
    const std::int8_t* acts = job.q8_k.quants + token * job.cols + k * kSuperBlock;
    const std::int16_t* act_sums[T];
    std::int16_t sums32[T][8];
    Simd::Rows d[T], dmin[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      act_sums[t] = job.q8_k.sums + ((token + t) * job.cols + k * kSuperBlock) / 16;
      if constexpr (kSub == 32) {
        add_neighbours(act_sums[t], sums32[t]);
        act_sums[t] = sums32[t];
      }
      const Simd::Rows act_scale = Simd::broadcast(job.q8_k.scale[(token + t) * blocks + k]);
      d[t] = Simd::mul(Simd::widen(meta), act_scale);
      dmin[t] = Simd::mul(Simd::widen(meta + P::m_at), act_scale);
    }
    for (int unit = 0; unit < kAllPairs; unit += kUnitPairs) {
      Simd::IntRows total[T], products[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) total[t] = products[t] = Simd::int_zero();
      for (int pair = unit; pair < unit + kUnitPairs; ++pair) {
        auto pair_scales = Simd::byte_pairs(meta + P::scales_at + pair * 2 * kGroup);
        auto pair_mins = pair_scales;
        if constexpr (P::nibble_scales) {
          pair_mins = Simd::high_nibbles(pair_scales);
          pair_scales = Simd::low_nibbles(pair_scales);
        } else {
          pair_mins = Simd::byte_pairs(meta + P::mins_at + pair * 2 * kGroup);
        }
#pragma GCC unroll 8
        for (int second = 0; second < 2; ++second) {
          const int element = (2 * pair + second) * kSub;
          const std::uint8_t* piece = quants + element / 32 * P::sub_bytes;
          Simd::ColumnSum<false> sum[T];
#pragma GCC unroll 8
          for (int c = 0; c < kSub / 4; ++c) {
            const auto w = Simd::column<P::traits.low_bits>(piece, kSub == 32 ? c : 4 * second + c);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sum[t].add(w, acts + t * job.cols + element + 4 * c);
          }
          const auto scale = Simd::scale_of_pair(pair_scales, second);
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t) total[t] = Simd::int_add(total[t], sum[t].scaled(scale));
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          products[t] = Simd::int_add(products[t], Simd::pair_dot(pair_mins, act_sums[t] + 2 * pair));
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        acc[t] = Simd::fma(Simd::to_float(total[t]), d[t], acc[t]);
        mins[t] = Simd::fma(Simd::to_float(products[t]), dmin[t], mins[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) finish(job, group, token + t, Simd::sub(acc[t], mins[t]));
}

template <class Block, int T>
void tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  if constexpr (P::one_sum && P::traits.length == kBlock) {
    columns_tile<Block, T>(job, group, token);
  } else if constexpr (P::one_sum) {
    if (T == 4 && job.batch >= 4) {
      super_columns_tile<Block, T, T == 4>(job, group, token);
    } else {
      super_columns_tile<Block, T, false>(job, group, token);
    }
  } else if constexpr (P::columns) {
    lanes_tile<Block, T>(job, group, token);
  } else if constexpr (std::is_same_v<Block, BlockIq4Xs>) {
    if (job.batch >= 8) {
      super_lanes_tile<Block, T, true>(job, group, token);
    } else {
      super_lanes_tile<Block, T, false>(job, group, token);
    }
  } else {
    super_lanes_tile<Block, T, false>(job, group, token);
  }
}

// Weights of a group stay in the first cache while all tokens pass.
template <class Block>
void packed_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  for (std::int64_t group = row / kGroup; group * kGroup < row_end; ++group) {
    int t = token;
    for (; t + 4 <= token_end; t += 4) tile<Block, 4>(job, group, t);
    switch (token_end - t) {
      case 1:
        tile<Block, 1>(job, group, t);
        break;
      case 2:
        tile<Block, 2>(job, group, t);
        break;
      case 3:
        tile<Block, 3>(job, group, t);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace bankml
