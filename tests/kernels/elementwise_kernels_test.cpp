// Kernels that work on rows of floats, against the CPU backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "device/cpu/activation.hpp"
#include "device/cuda/activation.hpp"
#include "device/random_weight.hpp"
#include "kernels/host_device.hpp"
#include "orders.hpp"

namespace bankml {
namespace {

using test::Bench;
using test::random_floats;

constexpr int kLengths[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 2049};
constexpr ActFormats kFloats = ActFormats::f32 | ActFormats::f16 | ActFormats::bf16;
constexpr ActFormats kAll = kFloats | ActFormats::q8 | ActFormats::q8_k;

class Elementwise : public testing::TestWithParam<host::Order> {
 protected:
  using Run = std::function<const float*(Bench&)>;  // queues work; device memory that has its result
  using Write = std::function<void(Bench&, Activation&)>;

  // Both devices' results.
  void expect_near(std::size_t n, float tolerance, const Run& run) {
    const std::vector<float> expected = cpu_.download(run(cpu_), n), actual = gpu_.download(run(gpu_), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i])))
          << "element " << i << " of " << n;
    }
  }
  // The same for an activation: floats near, and from its floats the CPU's bits in every other form.
  void expect_activation(int rows, int dim, ActFormats formats, float tolerance, const Write& write) {
    auto cpu = cpu_.device().make_activation(rows, dim, ActFormats::f32);
    auto gpu = gpu_.device().make_activation(rows, dim, formats);
    write(cpu_, *cpu);
    write(gpu_, *gpu);
    const std::size_t n = static_cast<std::size_t>(rows * dim);
    const std::vector<float> expected = cpu_.download(cpu->f32(), n), floats = gpu_.download(gpu->f32(), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(floats[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i])))
          << "element " << i << " of " << dim;
    }
    CpuActivation rounded(rows, dim, formats, Isa::portable);
    for (int row = 0; row < rows; ++row) quantize_row(rounded, row, floats.data() + row * dim);
    expect_forms(static_cast<const host::GpuActivation&>(*gpu).planes(), rounded, rows);
  }

  Bench& gpu() { return gpu_; }
  Bench& cpu() { return cpu_; }

  std::mt19937 random{7};

 private:
  template <class T>
  void expect_same(const T* device, const T* expected, std::size_t n, const char* what) {
    const std::vector<T> actual = gpu_.download(device, n);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(std::memcmp(&actual[i], expected + i, sizeof(T)), 0) << what << ' ' << i;
  }
  void expect_forms(const ActivationPlanes& planes, const CpuActivation& expected, int rows) {
    const std::size_t n = static_cast<std::size_t>(rows * planes.dim);
    if (planes.f16) {
      std::vector<half> halves(n);
      std::transform(expected.f16_row(0), expected.f16_row(0) + n, halves.begin(), to_half);
      expect_same(planes.f16, halves.data(), n, "half");
    }
    if (planes.bf16) expect_same(planes.bf16, expected.bf16_row(0), n, "bfloat16");
    if (planes.q8) {
      const Q8Row row = expected.q8_row(0);
      expect_same(planes.q8, row.quants, n, "integer");
      expect_same(planes.q8_d, row.scale, n / 32, "scale");
      expect_same(planes.q8_s, row.scaled_sum, n / 32, "sum");
    }
    if (planes.q8k) {
      const Q8KRow row = expected.q8_k_row(0);
      expect_same(planes.q8k, row.quants, n, "integer of a super-block");
      expect_same(planes.q8k_d, row.scale, n / 256, "scale of a super-block");
      expect_same(planes.q8k_sums, row.sums, n / 16, "sum of a super-block");
    }
  }

  std::unique_ptr<Device> cpu_device_ = make_cpu_device(1);
  host::HostDevice gpu_device_{{.order = GetParam()}};
  Bench cpu_{*cpu_device_}, gpu_{gpu_device_};
};
INSTANTIATE_TEST_SUITE_P(, Elementwise, host::every_order(), host::order_name);

TEST_P(Elementwise, FormsOfAnActivationHaveTheCpusBits) {
  std::vector<float> x = random_floats(3 * 768, random, 3.0f);
  // A block of zeros, one of equal sizes with either sign, products that end in a half, a tiny one and a huge element.
  std::fill_n(x.begin(), 256, 0.0f);
  for (int i = 256; i < 512; ++i) x[static_cast<std::size_t>(i)] = i % 2 ? -1.5f : 1.5f;
  for (int i = 512; i < 544; ++i) x[static_cast<std::size_t>(i)] = 127.0f * 0.5f * static_cast<float>(i - 512) / 31.0f;
  x[768] = 1e-39f;
  x[1024] = 3e38f;
  expect_activation(3, 768, kAll, 0.0f, [&](Bench& bench, Activation& out) {
    const Buffer in = bench.upload(x);
    bench.ops().quantize(bench.stream(), out, in.as<float>(), 3);
    bench.stream().synchronize();
  });
}

TEST_P(Elementwise, RowsOfAnyLengthAreWrittenWhole) {
  for (const int dim : kLengths) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(2 * dim), random);
    expect_activation(2, dim, kFloats, 0.0f, [&](Bench& bench, Activation& out) {
      const Buffer in = bench.upload(x);
      bench.ops().quantize(bench.stream(), out, in.as<float>(), 2);
      bench.stream().synchronize();
    });
  }
}

// The sum of squares is rounded once from a double on both sides.
TEST_P(Elementwise, RmsNormGivesTheCpusFloats) {
  for (const int dim : kLengths) {
    const std::size_t n = static_cast<std::size_t>(3 * dim);
    const std::vector<float> x = random_floats(n, random, 5.0f),
                             weight = random_floats(static_cast<std::size_t>(dim), random);
    for (const bool weighted : {true, false}) {
      expect_activation(3, dim, kFloats, 1e-6f, [&](Bench& bench, Activation& out) {
        const Buffer in = bench.upload(x), w = bench.upload(weight);
        bench.ops().rms_norm(bench.stream(), out, in.as<float>(), weighted ? w.as<float>() : nullptr, 3, 1e-5f);
        bench.stream().synchronize();
      });
    }
  }
}

TEST_P(Elementwise, RmsNormMayWorkInPlaceAndAddToAResidual) {
  for (const int dim : kLengths) {
    const std::size_t n = static_cast<std::size_t>(2 * dim);
    const std::vector<float> x = random_floats(n, random, 5.0f), branch = random_floats(n, random);
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(dim), random);
    Buffer kept[3];
    expect_near(n, 1e-6f, [&](Bench& bench) {
      kept[0] = bench.upload(x);
      kept[1] = bench.upload(weight);
      bench.ops().rms_norm(bench.stream(), kept[0].as<float>(), kept[0].as<float>(), kept[1].as<float>(), 2, dim,
                           1e-6f);
      return kept[0].as<float>();
    });
    expect_near(n, 1e-6f, [&](Bench& bench) {
      kept[0] = bench.upload(x);
      kept[1] = bench.upload(weight);
      kept[2] = bench.upload(branch);
      bench.ops().rms_norm_add(bench.stream(), kept[0].as<float>(), kept[2].as<float>(), kept[1].as<float>(), 2, dim,
                               1e-6f);
      return kept[0].as<float>();
    });
  }
}

// SiLU: two exponentials that differ in the last bits. GELU: a half that may be rounded to its neighbour.
TEST_P(Elementwise, GatedUnitsGiveTheCpusFloats) {
  constexpr float kExponentials = 1e-6f, kNeighbouringHalf = 1e-3f;
  for (const int dim : kLengths) {
    const std::size_t n = static_cast<std::size_t>(2 * dim);
    std::vector<float> gate = random_floats(n, random, 6.0f), up = random_floats(n, random);
    gate[0] = -100.0f;  // where exponentials overflow and GELU is 0
    gate.back() = 100.0f;
    for (const GluKind kind : {GluKind::silu, GluKind::gelu, GluKind::clamped_swiglu}) {
      expect_activation(2, dim, kFloats, kind == GluKind::gelu ? kNeighbouringHalf : kExponentials,
                        [&](Bench& bench, Activation& out) {
                          const Buffer g = bench.upload(gate), u = bench.upload(up);
                          bench.ops().glu(bench.stream(), out, g.as<float>(), u.as<float>(), 2, kind);
                          bench.stream().synchronize();
                        });
    }
  }
}

TEST_P(Elementwise, EmbeddingsOfEveryTypeHaveTheCpusBits) {
  for (const DType type :
       {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
        DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4}) {
    constexpr int kRows = 5, kCols = 768;
    const std::vector<std::byte> bytes = test::random_weight(type, kRows, kCols, random);
    const std::vector<std::int32_t> tokens = {4, 0, 2};
    for (const float scale : {1.0f, 3.7f}) {
      SCOPED_TRACE(dtype_info(type).name);
      Buffer kept[2];
      std::unique_ptr<Weight> weight;
      expect_near(tokens.size() * kCols, 0.0f, [&](Bench& bench) {
        weight = bench.load(type, kRows, kCols, bytes);
        kept[0] = bench.device().allocate(tokens.size() * kCols * sizeof(float));
        kept[1] = bench.upload(tokens);
        bench.ops().embed(bench.stream(), kept[0].as<float>(), *weight, kept[1].as<std::int32_t>(), 3, scale);
        return kept[0].as<float>();
      });
    }
  }
}

TEST_P(Elementwise, RowsAreGathered) {
  for (const int dim : kLengths) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(4 * dim), random);
    const std::vector<std::int32_t> rows = {3, 1};
    Buffer kept[3];
    expect_near(static_cast<std::size_t>(2 * dim), 0.0f, [&](Bench& bench) {
      kept[0] = bench.upload(x);
      kept[1] = bench.upload(rows);
      kept[2] = bench.device().allocate(static_cast<std::size_t>(2 * dim) * sizeof(float));
      bench.ops().gather_rows(bench.stream(), kept[2].as<float>(), kept[0].as<float>(), kept[1].as<std::int32_t>(), 2,
                              dim);
      return kept[2].as<float>();
    });
  }
}

TEST_P(Elementwise, LogitsAreScaledAndCapped) {
  for (const int n : kLengths) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(n), random, 50.0f);
    for (const auto& [scale, cap] : {std::pair{0.25f, 0.0f}, {1.0f, 30.0f}, {2.0f, 30.0f}}) {
      Buffer kept;
      expect_near(x.size(), 1e-6f, [&, s = scale, c = cap](Bench& bench) {
        kept = bench.upload(x);
        bench.ops().scale_softcap(bench.stream(), kept.as<float>(), static_cast<std::int64_t>(x.size()), s, c);
        return kept.as<float>();
      });
    }
  }
}

}  // namespace
}  // namespace bankml
