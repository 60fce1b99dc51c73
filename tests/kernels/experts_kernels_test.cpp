// Routing, the mat-muls of experts and their sum, against the CPU backend: one branch of a mixture from scores to
// output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <vector>

#include "bankml/base/error.hpp"
#include "device/cuda/launchers.hpp"
#include "device/random_weight.hpp"
#include "kernels/host_device.hpp"
#include "orders.hpp"

namespace bankml {
namespace {

using test::Bench;
using test::random_floats;

constexpr DType kShortBlocks[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,   DType::q4_1,
                                  DType::q5_0, DType::q5_1, DType::q8_0, DType::iq4_nl, DType::mxfp4};
constexpr DType kSuperBlocks[] = {DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_xs};

class ExpertKernels : public testing::TestWithParam<host::Order> {
 protected:
  struct Shape {
    DType type = DType::q8_0;
    int experts = 8, used = 2, rows = 3, hidden = 64, dim = 256;
    RouterParams router{.normalize = true};
  };

  // Each expert is a matrix up (hidden, dim) and one down (dim, hidden), with a bias each.
  static std::vector<float> branch(Bench& bench, const Shape& s, unsigned seed) {
    std::mt19937 random(seed);
    const auto floats = [&](int n) { return random_floats(static_cast<std::size_t>(n), random); };
    Device& device = bench.device();
    const Buffer scores = bench.upload(floats(s.rows * s.experts)), x = bench.upload(floats(s.rows * s.dim));
    const Buffer up_bias = bench.upload(floats(s.experts * s.hidden)),
                 down_bias = bench.upload(floats(s.experts * s.dim));
    const Buffer residual = bench.upload(floats(s.rows * s.dim)), shared = bench.upload(floats(s.rows * s.dim));
    std::list<std::vector<std::byte>> sources;  // a weight may go on reading them
    const auto weight = [&](int rows, int cols) {
      const std::size_t bytes = row_bytes(s.type, cols) * static_cast<std::size_t>(rows), gap = 64;
      std::vector<std::byte>& all = sources.emplace_back();
      for (int e = 0; e < s.experts; ++e) {
        const std::vector<std::byte> one = test::random_weight(s.type, rows, cols, random);
        all.insert(all.end(), one.begin(), one.end());
        all.resize(all.size() + gap);
      }
      return device.load_experts(s.type, s.experts, rows, cols, all.data(), bytes + gap);
    };
    const auto up = weight(s.hidden, s.dim), down = weight(s.dim, s.hidden);
    const int pairs = s.rows * s.used;
    const auto floats_on_device = [&](int n) { return device.allocate(static_cast<std::size_t>(n) * sizeof(float)); };
    const Buffer hidden = floats_on_device(pairs * s.hidden), out = floats_on_device(pairs * s.dim);
    const auto choice = device.make_expert_choice(s.rows, s.experts, s.used);
    const auto in = device.make_activation(s.rows, s.dim, activation_format(s.type));
    const auto middle = device.make_activation(pairs, s.hidden, activation_format(s.type));
    Ops& ops = bench.ops();
    Stream& stream = bench.stream();
    ops.quantize(stream, *in, x.as<float>(), s.rows);
    ops.route(stream, *choice, scores.as<float>(), s.router, s.rows);
    const ExpertOutput first{up.get(), hidden.as<float>(), up_bias.as<float>()};
    ops.matmul_experts(stream, {&first, 1}, *in, ExpertInput::rows, *choice, s.rows);
    ops.quantize(stream, *middle, hidden.as<float>(), pairs);
    const ExpertOutput second{down.get(), out.as<float>(), down_bias.as<float>()};
    ops.matmul_experts(stream, {&second, 1}, *middle, ExpertInput::pairs, *choice, s.rows);
    const ExpertSum sum{residual.as<float>(), out.as<float>(), shared.as<float>(), residual.as<float>(), 0.5f, s.dim};
    ops.sum_experts(stream, sum, *choice, s.rows);
    return bench.download(residual.as<float>(), static_cast<std::size_t>(s.rows * s.dim));
  }

  void expect_branch(const Shape& shape) {
    SCOPED_TRACE(testing::Message() << dtype_info(shape.type).name << ", " << shape.used << " of " << shape.experts
                                    << ", " << shape.rows << " rows");
    const auto cpu_device = make_cpu_device(1);
    host::HostDevice gpu_device({.order = GetParam()});
    Bench cpu(*cpu_device), gpu(gpu_device);
    const std::vector<float> expected = branch(cpu, shape, 11), actual = branch(gpu, shape, 11);
    double size = 0;
    for (const float x : expected) size = std::max(size, std::abs(double{x}));
    // An integer between the two mat-muls may be rounded to its neighbour: a part in 127 of one of its block.
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-3 * size) << i;
  }
};
INSTANTIATE_TEST_SUITE_P(, ExpertKernels, host::every_order(), host::order_name);

TEST_P(ExpertKernels, OneRowAndMany) {
  for (const int rows : {1, 2, 9, 33}) expect_branch({.rows = rows});
}

// Several tiles of an expert, experts without any pair, and a tile that is full.
TEST_P(ExpertKernels, ManyPairsOfFewAndOfManyExperts) {
  expect_branch({.experts = 2, .used = 2, .rows = 64});
  expect_branch({.experts = 3, .used = 1, .rows = 70});
  expect_branch({.experts = 67, .used = 7, .rows = 33});
}

TEST_P(ExpertKernels, AllWaysOfWeighing) {
  for (const bool chosen : {false, true}) {
    for (const bool normalize : {false, true}) expect_branch({.router = {chosen, normalize, 2.5f}});
  }
}

TEST_P(ExpertKernels, OneExpertAllOfThemAndMoreThanAWarpHasLanes) {
  expect_branch({.experts = 5, .used = 1});
  expect_branch({.experts = 4, .used = 4});
  expect_branch({.experts = 67, .used = 7, .rows = 5});
}

TEST_P(ExpertKernels, WeightsOfEveryKind) {
  for (const DType type : kShortBlocks) expect_branch({.type = type});
  for (const DType type : kSuperBlocks) expect_branch({.type = type, .hidden = 256});
}

TEST_P(ExpertKernels, TilesOfWeightsOfEveryKind) {
  for (const DType type : kShortBlocks) expect_branch({.type = type, .rows = 11});
  for (const DType type : kSuperBlocks) expect_branch({.type = type, .rows = 11, .hidden = 256});
}

// Pairs of an expert stay in their order, tiles cover each pair once, and what is left over is said to be empty.
TEST_P(ExpertKernels, PairsAreSortedByExpertAndCutIntoTiles) {
  host::HostDevice device({.order = GetParam()});
  Bench bench(device);
  constexpr int kExperts = 40, kPairs = 203;
  std::mt19937 random(9);
  std::vector<std::int32_t> expert(kPairs);
  for (std::int32_t& e : expert) e = static_cast<std::int32_t>(random() % 3 == 0 ? random() % kExperts : 7);
  const int tiles = group_tiles(kPairs, kExperts);
  const Buffer in = bench.upload(expert), sorted = device.allocate(kPairs * sizeof(std::int32_t));
  const Buffer tile = device.allocate(static_cast<std::size_t>(tiles) * sizeof(ExpertTile));
  host::group_pairs(bench.stream(),
                    {in.as<std::int32_t>(), sorted.as<std::int32_t>(), tile.as<ExpertTile>(), kPairs, kExperts, tiles});
  std::vector<std::int32_t> expected(kPairs);
  for (int p = 0; p < kPairs; ++p) expected[static_cast<std::size_t>(p)] = p;
  const auto expert_of = [&](std::int32_t pair) { return expert[static_cast<std::size_t>(pair)]; };
  std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) { return expert_of(a) < expert_of(b); });
  EXPECT_EQ(bench.download(sorted.as<std::int32_t>(), kPairs), expected);
  int next = 0;
  bool empty = false;
  for (const ExpertTile& t : bench.download(tile.as<ExpertTile>(), static_cast<std::size_t>(tiles))) {
    empty = empty || t.count == 0;
    ASSERT_EQ(t.count == 0, empty);
    if (empty) continue;
    ASSERT_EQ(t.first, next);
    ASSERT_LE(t.count, kGroupTile);
    for (int i = 0; i < t.count; ++i) ASSERT_EQ(expert_of(expected[static_cast<std::size_t>(next++)]), t.expert);
  }
  EXPECT_EQ(next, kPairs);
}

TEST(GpuExpertChoice, RefusesMoreExpertsThanThereAre) {
  host::HostDevice device;
  EXPECT_THROW(device.make_expert_choice(1, 4, 5), Error);
  EXPECT_THROW(device.make_expert_choice(1, 64, 33), Error);
}

}  // namespace
}  // namespace bankml
