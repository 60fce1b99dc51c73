// RoPE, the store of K and V, and the turning of keys, against the CPU backend.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/kv_problem.hpp"
#include "orders.hpp"

namespace bankml {
namespace {

using test::Bench;
using test::KvProblem;
using test::KvShape;

// Sines and norms agree to the last bits; K and V are then rounded to their type, now and then to the neighbour.
constexpr float kFloats = 2e-6f;
float tolerance_of(DType type) {
  return type == DType::f32 ? kFloats : type == DType::f16 ? 1e-3f : 0.05f;
}

struct Options {
  RopeStyle style = RopeStyle::neox;
  int n_rot = 0;  // 0: head_dim
  bool norm = false;
  float q_scale = 1;
};

class RopeKernels : public testing::TestWithParam<host::Order> {
 protected:
  struct Result {
    std::vector<float> q;
    std::vector<std::byte> memory;
  };

  void expect_stored(const KvShape& shape, const Options& options) {
    SCOPED_TRACE(testing::Message() << "head length " << shape.head_dim << ", " << dtype_info(shape.type_k).name);
    KvProblem problem(shape);
    const auto floats = [&](int per_row) {
      return test::random_floats(static_cast<std::size_t>(problem.rows() * per_row), problem.random, 3.0f);
    };
    const std::vector<float> q = floats(problem.heads() * shape.head_dim),
                             k = floats(shape.kv_heads * problem.kv.head_dim_k),
                             v = floats(shape.kv_heads * problem.kv.head_dim_v);
    const std::vector<float> weight = test::random_floats(static_cast<std::size_t>(shape.head_dim), problem.random);
    const auto run = [&](Bench& bench) {
      const KvProblem::Placed placed(bench, problem);
      const Buffer q_memory = bench.upload(q), k_memory = bench.upload(k), v_memory = bench.upload(v),
                   w = bench.upload(weight);
      RopeParams params;
      params.style = options.style;
      params.n_rot = options.n_rot != 0 ? options.n_rot : shape.head_dim;
      const Buffer table =
          bench.device().allocate(static_cast<std::size_t>(problem.rows() * params.n_rot) * sizeof(float));
      bench.ops().rope_table(bench.stream(), table.as<float>(), params, placed.view);
      RopeStoreArgs args;
      args.q = q_memory.as<float>();
      args.k = k_memory.as<float>();
      args.v = v_memory.as<float>();
      args.heads = problem.heads();
      if (options.norm) args.q_norm = args.k_norm = w.as<float>();
      args.norm_eps = 1e-6f;
      args.q_scale = options.q_scale;
      args.style = options.style;
      args.n_rot = params.n_rot;
      args.table = table.as<float>();
      bench.ops().rope_store(bench.stream(), args, problem.kv, placed.view);
      Result result;
      result.q = bench.download(q_memory.as<float>(), q.size());
      result.memory = placed.memory(bench);
      return result;
    };
    compare(problem, run(cpu_), run(gpu_));
  }

  void expect_turned(const KvShape& shape) {
    SCOPED_TRACE(testing::Message() << "head length " << shape.head_dim << ", " << dtype_info(shape.type_k).name);
    KvProblem problem(shape);
    const std::vector<std::int32_t> difference = {-37};
    const auto run = [&](Bench& bench) {
      const KvProblem::Placed placed(bench, problem);
      const Buffer position = bench.upload(difference), cells = bench.upload(problem.cell);
      const Buffer table = bench.device().allocate(static_cast<std::size_t>(shape.head_dim) * sizeof(float));
      RopeParams params{.style = RopeStyle::neox, .n_rot = shape.head_dim};
      BatchView one;
      one.rows = 1;
      one.position = position.as<std::int32_t>();
      bench.ops().rope_table(bench.stream(), table.as<float>(), params, one);
      bench.ops().rotate_keys(bench.stream(), problem.kv, placed.view.blocks, cells.as<std::int32_t>(), problem.rows(),
                              table.as<float>(), params.style, params.n_rot);
      bench.stream().synchronize();
      return placed.memory(bench);
    };
    compare_cells(problem, run(cpu_), run(gpu_));
  }

  void compare(const KvProblem& problem, const Result& cpu, const Result& gpu) {
    for (std::size_t i = 0; i < cpu.q.size(); ++i) {
      ASSERT_NEAR(gpu.q[i], cpu.q[i], kFloats * std::max(1.0f, std::abs(cpu.q[i]))) << "q " << i;
    }
    compare_cells(problem, cpu.memory, gpu.memory);
  }
  // Every byte outside the batch's cells as it was, the cells near.
  void compare_cells(const KvProblem& problem, const std::vector<std::byte>& cpu, const std::vector<std::byte>& gpu) {
    KvProblem a = problem, b = problem;
    a.memory = cpu;
    b.memory = gpu;
    const auto expect_row = [](DType type, const std::byte* expected, const std::byte* actual, int dim) {
      const std::vector<double> x = test::widened(type, expected, dim), y = test::widened(type, actual, dim);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(y[i], x[i], double{tolerance_of(type)} * std::max(1.0, std::abs(x[i]))) << "element " << i;
      }
    };
    for (int r = 0; r < problem.rows(); ++r) {
      const int seq = problem.sequence[static_cast<std::size_t>(r)], c = problem.cell[static_cast<std::size_t>(r)];
      for (int head = 0; head < problem.shape.kv_heads; ++head) {
        expect_row(problem.kv.type_k, a.k(seq, head, c), b.k(seq, head, c), problem.kv.head_dim_k);
        expect_row(problem.kv.type_v, a.v(seq, head, c), b.v(seq, head, c), problem.kv.head_dim_v);
        // From here on both are the CPU's.
        std::memcpy(const_cast<std::byte*>(b.k(seq, head, c)), a.k(seq, head, c),
                    row_bytes(problem.kv.type_k, problem.kv.head_dim_k));
        std::memcpy(const_cast<std::byte*>(b.v(seq, head, c)), a.v(seq, head, c),
                    row_bytes(problem.kv.type_v, problem.kv.head_dim_v));
      }
    }
    EXPECT_TRUE(a.memory == b.memory) << "cells outside the batch were written";
  }

  Bench& cpu() { return cpu_; }
  Bench& gpu() { return gpu_; }

 private:
  std::unique_ptr<Device> cpu_device_ = make_cpu_device(1);
  host::HostDevice gpu_device_{{.order = GetParam()}};
  Bench cpu_{*cpu_device_}, gpu_{gpu_device_};
};
INSTANTIATE_TEST_SUITE_P(, RopeKernels, host::every_order(), host::order_name);

TEST_P(RopeKernels, TablesOfEveryScalingAreTheCpus) {
  std::vector<float> factors;
  for (int i = 0; i < 32; ++i) factors.push_back(1.0f + 0.25f * static_cast<float>(i));
  RopeParams plain{.style = RopeStyle::neox, .n_rot = 64};
  RopeParams linear = plain, with_factors = plain, yarn = plain;
  linear.freq_scale = 0.25f;
  with_factors.factors = factors.data();
  with_factors.attn_factor = 1.19f;
  yarn.freq_scale = 0.125f;
  yarn.ext_factor = 1.0f;
  yarn.n_ctx_orig = 4096;
  const std::vector<std::int32_t> positions = {0, 1, 77, 4095, 131071};
  for (const RopeParams& params : {plain, linear, with_factors, yarn}) {
    const auto run = [&](Bench& bench) {
      const Buffer position = bench.upload(positions),
                   table = bench.device().allocate(positions.size() * 64 * sizeof(float));
      BatchView view;
      view.rows = static_cast<int>(positions.size());
      view.position = position.as<std::int32_t>();
      bench.ops().rope_table(bench.stream(), table.as<float>(), params, view);
      return bench.download(table.as<float>(), positions.size() * 64);
    };
    const std::vector<float> expected = run(cpu()), actual = run(gpu());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-6f) << i;
  }
}

TEST_P(RopeKernels, HeadsOfEveryLength) {
  for (const int dim : {16, 64, 80, 96, 128, 256}) {
    expect_stored({.head_dim = dim, .kv_heads = 3, .group = 3, .rows = {5}, .cells = {70}}, {});
    expect_stored({.head_dim = dim, .kv_heads = 1, .group = 7, .rows = {1}, .cells = {1}},
                  {.style = RopeStyle::adjacent});
  }
}

TEST_P(RopeKernels, AnyNumberOfRowsAndHeads) {
  for (const int rows : {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129})
    expect_stored({.kv_heads = rows % 5 + 1, .group = rows % 8 + 1, .rows = {rows}, .cells = {130}}, {});
}

TEST_P(RopeKernels, APartOfAHeadOrNothingIsRotated) {
  expect_stored({.head_dim = 96, .rows = {3}, .cells = {9}}, {.n_rot = 32});
  expect_stored({.head_dim = 96, .rows = {3}, .cells = {9}}, {.style = RopeStyle::adjacent, .n_rot = 48});
  expect_stored({.head_dim = 64, .rows = {3}, .cells = {9}}, {.style = RopeStyle::none});
}

// With a head of 96 the two of a pair are the work of different lanes.
TEST_P(RopeKernels, HeadsAreNormedBeforeAndQIsScaledAfter) {
  for (const int dim : {96, 128}) {
    expect_stored({.head_dim = dim, .kv_heads = 2, .group = 2, .rows = {4}, .cells = {64}},
                  {.norm = true, .q_scale = 0.0883883f});
  }
}

TEST_P(RopeKernels, EveryTypeOfCache) {
  for (const DType k : {DType::f16, DType::f32, DType::q8_0}) {
    for (const DType v : {DType::f16, DType::f32, DType::q8_0}) {
      expect_stored(
          {.head_dim = 64, .kv_heads = 2, .group = 2, .type_k = k, .type_v = v, .rows = {2, 3}, .cells = {66, 5}}, {});
    }
  }
  expect_stored({.head_dim = 256, .type_k = DType::q8_0, .type_v = DType::q8_0, .rows = {2}, .cells = {5}}, {});
  expect_stored({.head_dim = 96, .type_k = DType::q8_0, .type_v = DType::q8_0, .rows = {2}, .cells = {5}}, {});
}

TEST_P(RopeKernels, KeysAreTurnedWhereTheyAre) {
  for (const DType type : {DType::f16, DType::f32, DType::q8_0}) {
    for (const int dim : {64, 96})
      expect_turned({.head_dim = dim, .kv_heads = 3, .type_k = type, .rows = {70}, .cells = {130}});
  }
}

}  // namespace
}  // namespace bankml
