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

// Fetches the lines that finish() will write, and read: outputs of a prefill are more than a cache holds, and a store
// that waits for its line holds up those behind it.
template <int T>
[[gnu::always_inline]] inline void fetch_outputs(const MatmulJob& job, std::int64_t row, int token) noexcept {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const std::int64_t at = (token + t) * job.rows + row;
    __builtin_prefetch(job.out + at, 1);
    if (job.residual) __builtin_prefetch(job.residual + at);
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

// Blocks of 32 whose lanes are added up apart: Q4_1, Q5_0, Q5_1, Q8_0. G groups of eight rows times T tokens. As many
// columns as have their sums in registers pass over all blocks, then the next ones. Where that takes several passes,
// the scales of a stretch of blocks are multiplied first, for all of them.
template <class Block, int T, int G>
void lanes_tile(const MatmulJob& job, std::int64_t group, int token) noexcept {
  using P = Packing<Block>;
  constexpr int kOutputs = G * T;  // registers of eight rows; number o is group o / T, token o % T
  constexpr int kUnits = Simd::units(kOutputs), kHalves = Simd::halves(kOutputs);
  constexpr bool kOnePass = kUnits == 4;
  constexpr std::int64_t kStretch = 128 / G;  // blocks: keeps the scales within 16 KiB
  const std::int64_t blocks = job.cols / kBlock;
  const std::uint8_t* quants = job.quants + group * blocks * P::quant_bytes;
  const std::uint8_t* meta = job.meta + group * blocks * P::meta_bytes;
  const std::int8_t* acts = job.q8.quants + token * job.cols;
  const float* act_scales = job.q8.scale + token * blocks;
  const float* act_sums = job.q8.scaled_sum + token * blocks;

  Simd::Register sums[4][Simd::kColumnHalves][kOutputs];
  Simd::Rows mins[kOutputs];
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    mins[o] = Simd::zero();
    if constexpr (kOnePass) {  // otherwise they begin with the first stretch
#pragma GCC unroll 8
      for (int i = 0; i < 4 * Simd::kColumnHalves; ++i) sums[i % 4][i / 4][o] = Simd::Register{};
    }
  }
  const auto meta_of = [&](int o, std::int64_t k) { return meta + (o / T * blocks + k) * P::meta_bytes; };
  const auto scale = [&](int o, std::int64_t k) {
    return Simd::mul(Simd::widen(meta_of(o, k)), Simd::broadcast(act_scales[o % T * blocks + k]));
  };
  const auto add_minimum = [&](std::int64_t k) {
    if constexpr (P::traits.minimum) {
#pragma GCC unroll 8
      for (int o = 0; o < kOutputs; ++o) {
        const Simd::Rows m = Simd::widen(meta_of(o, k) + P::m_at);
        mins[o] = Simd::fma(m, Simd::broadcast(act_sums[o % T * blocks + k]), mins[o]);
      }
    }
  };
  alignas(64) float scales[kOnePass ? 1 : kStretch][kOutputs][kGroup];

  for (std::int64_t begin = 0; begin < blocks; begin += kStretch) {
    const std::int64_t end = begin + kStretch < blocks ? begin + kStretch : blocks;
    if constexpr (!kOnePass) {
      for (std::int64_t k = begin; k < end; ++k) {
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) Simd::store(scales[k - begin][o], scale(o, k));
        add_minimum(k);
      }
    }
    const auto pass = [&]<int first_half>(int first) __attribute__((always_inline)) {
      constexpr int kSums = kUnits * kHalves;
      const auto sum_of = [&](int i, int o) -> Simd::Register& {
        return sums[first + i / kHalves][first_half + i % kHalves][o];
      };
      Simd::Register acc[kSums][kOutputs];
#pragma GCC unroll 8
      for (int i = 0; i < kSums; ++i) {
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) acc[i][o] = !kOnePass && begin == 0 ? Simd::Register{} : sum_of(i, o);
      }
      for (std::int64_t k = begin; k < end; ++k) {
        Simd::Columns w[kUnits][G];
#pragma GCC unroll 8
        for (int i = 0; i < kUnits * G; ++i) {
          w[i / G][i % G] = column_integers<Block>(quants + (i % G * blocks + k) * P::quant_bytes, first + i / G);
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const Simd::BlockAct block = Simd::block_act(acts + t * job.cols + k * kBlock);
          Simd::ColumnScale d[G];
#pragma GCC unroll 8
          for (int g = 0; g < G; ++g) {
            const int o = g * T + t;
            d[g] = Simd::column_scale(kOnePass ? scale(o, k) : Simd::load(scales[k - begin][o]));
          }
#pragma GCC unroll 8
          for (int i = 0; i < kSums; ++i) {
            const int unit = i / kHalves, half_index = first_half + i % kHalves;
            const Simd::ColumnAct x = Simd::column_act(block, first + unit, half_index);
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
              Simd::Register& sum = acc[i][g * T + t];
              sum = Simd::column_fma<kSigned<Block>>(d[g], Simd::half_of(w[unit][g], half_index), x, sum);
            }
          }
        }
        if constexpr (kOnePass) add_minimum(k);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kSums; ++i) {
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) sum_of(i, o) = acc[i][o];
      }
    };
    for (int first = 0; first < 4; first += kUnits) {
      pass.template operator()<0>(first);
      if constexpr (kHalves < Simd::kColumnHalves) pass.template operator()<1>(first);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {  // the tree of eight lanes, each of which is a register
    Simd::Rows folded[4];
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) folded[i] = Simd::fold(sums[i][0][o], sums[i][Simd::kColumnHalves - 1][o]);
    Simd::Rows sum = Simd::add(Simd::add(folded[0], folded[2]), Simd::add(folded[1], folded[3]));
    if constexpr (P::traits.minimum) sum = Simd::add(sum, mins[o]);
    finish(job, group + o / T, token + o % T, sum);
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
  if constexpr (T > 1) fetch_outputs<T>(job, group * kGroup, token);
  if constexpr (P::one_sum && P::traits.length == kBlock) {
    columns_tile<Block, T>(job, group, token);
  } else if constexpr (P::one_sum) {
    if (T == 4 && job.batch >= 4) {
      super_columns_tile<Block, T, T == 4>(job, group, token);
    } else {
      super_columns_tile<Block, T, false>(job, group, token);
    }
  } else if constexpr (P::columns) {
    lanes_tile<Block, T, 1>(job, group, token);
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

// All of tokens [token, token_end) of one group.
template <class Block>
void tiles_of_group(const MatmulJob& job, std::int64_t group, int token, int token_end) noexcept {
  for (; token + 4 <= token_end; token += 4) tile<Block, 4>(job, group, token);
  switch (token_end - token) {
    case 1:
      tile<Block, 1>(job, group, token);
      break;
    case 2:
      tile<Block, 2>(job, group, token);
      break;
    case 3:
      tile<Block, 3>(job, group, token);
      break;
    default:
      break;
  }
}

// Weights stay in the first cache while all tokens pass: those of one group, or of two where both can share what is
// broadcast of an activation.
template <class Block>
void packed_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  using P = Packing<Block>;
  std::int64_t group = row / kGroup;
  if constexpr (P::columns && !P::one_sum) {
    for (; (group + 1) * kGroup < row_end && token_end - token >= 4; group += 2) {
      int t = token;
      for (; t + 4 <= token_end; t += 4) {
        fetch_outputs<4>(job, group * kGroup, t);
        lanes_tile<Block, 4, 2>(job, group, t);
      }
      for (int g = 0; g < 2; ++g) tiles_of_group<Block>(job, group + g, t, token_end);
    }
  }
  for (; group * kGroup < row_end; ++group) tiles_of_group<Block>(job, group, token, token_end);
}

}  // namespace
}  // namespace bankml
