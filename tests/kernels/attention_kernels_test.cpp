// Attention against sums in double precision over the same rounded inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bankml/base/error.hpp"
#include "device/cpu/hadamard.hpp"
#include "kernels/kv_problem.hpp"
#include "orders.hpp"

namespace bankml {
namespace {

using test::Bench;
using test::KvProblem;
using test::KvShape;

struct Options {
  int window = 0;
  float softcap = 0;
  bool sinks = false;
};

// Single precision; or weights rounded to half in front of V, and Q beside them.
constexpr double kSums = 3e-6, kHalfWeights = 1.5e-3;

class AttentionKernels : public testing::Test {
 protected:
  static std::vector<float> expected_head(const KvProblem& p, const AttentionArgs& args, const std::vector<float>& q,
                                          bool half_q, int row, int head) {
    const int dim = p.kv.head_dim_k, kv_head = head / p.shape.group, seq = p.sequence[static_cast<std::size_t>(row)];
    const int position = p.position[static_cast<std::size_t>(row)];
    std::vector<double> out(static_cast<std::size_t>(p.kv.head_dim_v)), scores, weights;
    std::vector<int> seen;
    for (int c = 0; c < p.shape.cells[static_cast<std::size_t>(seq)]; ++c) {
      const int held = p.position_of(seq, c);
      if (held < 0 || held > position || (args.window > 0 && position - held >= args.window)) continue;
      const std::vector<double> k = test::widened(p.kv.type_k, p.k(seq, kv_head, c), dim);
      double score = 0;
      for (int d = 0; d < dim; ++d) {
        const float x = q[static_cast<std::size_t>((row * p.heads() + head) * dim + d)];
        score += (half_q ? to_float(to_half(x)) : x) * k[static_cast<std::size_t>(d)];
      }
      score *= args.scale;
      if (args.softcap != 0) score = args.softcap * std::tanh(score / args.softcap);
      seen.push_back(c);
      scores.push_back(score);
    }
    double max = args.sinks ? 1.0 * sink(head) : scores[0], sum = 0;
    for (const double s : scores) max = std::max(max, s);
    if (args.sinks) sum = std::exp(sink(head) - max);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double weight = std::exp(scores[i] - max);
      const std::vector<double> v = test::widened(p.kv.type_v, p.v(seq, kv_head, seen[i]), p.kv.head_dim_v);
      sum += weight;
      for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * v[d];
    }
    std::vector<float> y;
    for (const double x : out) y.push_back(static_cast<float>(x / sum));
    walsh_hadamard(y.data(), p.kv.head_dim_v, value_rotation(p.kv.type_v, p.kv.head_dim_v));
    return y;
  }
  static double sink(int head) { return 0.5 * head - 1.0; }

  static void expect_attention(const KvShape& shape, const Options& options, double tolerance,
                               const host::Order& order = host::Order::forward()) {
    KvProblem problem(shape, static_cast<unsigned>(shape.head_dim + shape.cells[0]));
    SCOPED_TRACE(testing::Message() << "head length " << shape.head_dim << ", " << problem.rows() << " rows, "
                                    << shape.cells[0] << " cells, " << shape.kv_heads << " x " << shape.group
                                    << " heads, " << dtype_info(shape.type_k).name);
    host::HostDevice device({.order = order});
    Bench bench(device);
    const int heads = problem.heads(), width = heads * problem.kv.head_dim_v;
    const std::vector<float> q =
        test::random_floats(static_cast<std::size_t>(problem.rows() * heads * shape.head_dim), problem.random, 2.0f);
    std::vector<float> sinks;
    for (int h = 0; h < heads; ++h) sinks.push_back(static_cast<float>(sink(h)));
    const Buffer q_memory = bench.upload(q), sink_memory = bench.upload(sinks);
    const KvProblem::Placed placed(bench, problem);
    AttentionArgs args;
    args.q = q_memory.as<float>();
    args.heads = heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    args.softcap = options.softcap;
    args.window = options.window;
    if (options.sinks) args.sinks = sink_memory.as<float>();
    const auto out = device.make_activation(problem.rows(), width, ActFormats::f32);
    bench.ops().attention(bench.stream(), *out, args, problem.kv, placed.view);
    const std::vector<float> actual = bench.download(out->f32(), static_cast<std::size_t>(problem.rows() * width));

    const bool half_q = (shape.type_k == DType::f16 && problem.rows() < 64) || tolerance == kHalfWeights;
    for (int row = 0; row < problem.rows(); ++row) {
      for (int head = 0; head < heads; ++head) {
        const std::vector<float> expected = expected_head(problem, args, q, half_q, row, head);
        for (int d = 0; d < problem.kv.head_dim_v; ++d) {
          // V is near 1 in size.
          ASSERT_NEAR(actual[static_cast<std::size_t>(row * width + head * problem.kv.head_dim_v + d)],
                      expected[static_cast<std::size_t>(d)], 4 * tolerance)
              << "row " << row << ", head " << head << ", element " << d;
        }
      }
    }
  }
};

constexpr int kLengths[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 200};

TEST_F(AttentionKernels, OneRowOfEveryHeadLength) {
  for (const int dim : {16, 64, 80, 96, 128, 256}) {
    for (const int cells : kLengths) expect_attention({.head_dim = dim, .kv_heads = 2, .cells = {cells}}, {}, kSums);
  }
}

TEST_F(AttentionKernels, OneRowOfEveryGroupOfHeads) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9})
    expect_attention({.kv_heads = 3, .group = group, .cells = {130}}, {}, kSums);
}

TEST_F(AttentionKernels, LongSequencesAreSharedBySplitsOfSeveralBlocks) {
  expect_attention({.head_dim = 16, .group = 2, .cells = {64 * 131 + 5}}, {}, kSums);
}

TEST_F(AttentionKernels, FewRowsOfSeveralSequences) {
  expect_attention({.kv_heads = 2, .group = 3, .rows = {1, 3, 2}, .cells = {1, 70, 200}}, {}, kSums);
}

TEST_F(AttentionKernels, EveryTypeOfCacheWithFewAndManyRows) {
  for (const int rows : {2, 20}) {
    for (const DType k : {DType::f16, DType::f32, DType::q8_0}) {
      for (const DType v : {DType::f16, DType::f32, DType::q8_0}) {
        const bool tiled = rows > 8 && k == v && k != DType::f32;
        expect_attention({.kv_heads = 2, .group = 2, .type_k = k, .type_v = v, .rows = {rows}, .cells = {100}}, {},
                         tiled ? kHalfWeights : kSums);
      }
    }
  }
}

TEST_F(AttentionKernels, WindowsSoftcapAndSinks) {
  for (const int rows : {3, 20}) {
    const double tolerance = rows > 8 ? kHalfWeights : kSums;
    expect_attention({.group = 2, .rows = {rows}, .cells = {200}}, {.window = 70}, tolerance);
    expect_attention({.group = 2, .rows = {rows}, .cells = {200}}, {.softcap = 20.0f}, tolerance);
    expect_attention({.group = 2, .rows = {rows}, .cells = {200}}, {.sinks = true}, tolerance);
  }
}

TEST_F(AttentionKernels, CellsInAnyOrderOfPositions) {
  for (const int rows : {3, 20}) {
    const double tolerance = rows > 8 ? kHalfWeights : kSums;
    expect_attention({.group = 2, .rows = {rows}, .cells = {200}, .scattered = true}, {}, tolerance);
    expect_attention({.group = 2, .rows = {rows}, .cells = {200}, .scattered = true}, {.window = 50}, tolerance);
  }
}

TEST_F(AttentionKernels, ManyRowsOfEveryHeadLength) {
  for (const int dim : {64, 80, 96, 128, 256}) {
    for (const DType type : {DType::f16, DType::q8_0}) {
      if (dim % 32 != 0 && type == DType::q8_0) continue;  // no such cache
      expect_attention(
          {.head_dim = dim, .kv_heads = 2, .group = 2, .type_k = type, .type_v = type, .rows = {66}, .cells = {260}},
          {}, kHalfWeights);
    }
  }
  for (const int rows : {12, 64})
    expect_attention({.head_dim = 32, .rows = {rows}, .cells = {70}}, {}, kSums);  // no tensor-core kernel
}

TEST_F(AttentionKernels, ManyRowsOfEveryGroupOfHeads) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9})
    expect_attention({.kv_heads = 3, .group = group, .rows = {17}, .cells = {75}}, {}, kHalfWeights);
}

TEST_F(AttentionKernels, ManyRowsOverEveryNumberOfCells) {
  for (const int cells : kLengths) {
    for (const int rows : {9, 33}) {
      if (rows <= cells) expect_attention({.rows = {rows}, .cells = {cells}}, {}, kHalfWeights);
    }
  }
}

TEST_F(AttentionKernels, FewRowsOfQuantisedCachesOfEveryHeadLength) {
  for (const int dim : {64, 96, 128, 256}) {
    for (const int rows : {1, 8})
      expect_attention(
          {.head_dim = dim, .group = 3, .type_k = DType::q8_0, .type_v = DType::q8_0, .rows = {rows}, .cells = {131}},
          {}, kSums);
  }
}

TEST_F(AttentionKernels, ManyRowsOfSeveralSequencesInOneTile) {
  expect_attention({.kv_heads = 2, .rows = {5, 40, 30, 1}, .cells = {5, 200, 70, 130}}, {}, kHalfWeights);
  expect_attention({.rows = {20, 20}, .cells = {150, 90}}, {.window = 30}, kHalfWeights);
}

TEST_F(AttentionKernels, EveryOrderOfThreads) {
  for (const auto& order :
       {host::Order::reverse(), host::Order::random(1), host::Order::random(2), host::Order::random(3)}) {
    expect_attention({.kv_heads = 2, .group = 5, .rows = {2}, .cells = {200}}, {}, kSums, order);
    expect_attention({.rows = {30}, .cells = {300}}, {}, kHalfWeights, order);
  }
}

TEST_F(AttentionKernels, RefusesHeadsOfOddLength) {
  host::HostDevice device;
  Bench bench(device);
  KvProblem problem({.head_dim = 20});
  const KvProblem::Placed placed(bench, problem);
  const auto out = device.make_activation(1, 20, ActFormats::f32);
  AttentionArgs args;
  args.heads = 1;
  EXPECT_THROW(bench.ops().attention(bench.stream(), *out, args, problem.kv, placed.view), Error);
}

}  // namespace
}  // namespace bankml
