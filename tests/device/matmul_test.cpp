// The kernels of every instruction set against the reference, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "bankml/base/error.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/reference.hpp"
#include "device/cpu/self_check.hpp"
#include "device/cpu/weight.hpp"
#include "random_weight.hpp"

namespace bankml {

#ifdef BANKML_EMULATED_KERNELS
namespace avx512_simde {
extern const Kernels kKernels;
}
#endif

namespace {

constexpr DType kAllTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                               DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                               DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

struct NamedKernels {
  const char* name;
  const Kernels* kernels;
};

// Those that this machine runs; the AVX-512 ones always, by way of SIMDe's portable intrinsics where it has been found.
std::vector<NamedKernels> all_kernels() {
  std::vector<NamedKernels> all = {{"portable", &portable::kKernels}};
  if (isa_available(Isa::avx2)) all.push_back({"avx2", &avx2::kKernels});
  if (isa_available(Isa::avx512)) all.push_back({"avx512", &avx512::kKernels});
#ifdef BANKML_EMULATED_KERNELS
  if (isa_available(Isa::avx2)) all.push_back({"avx512_by_simde", &avx512_simde::kKernels});
#endif
  return all;
}

struct Case {
  DType type;
  NamedKernels kernels;
};

std::string name(const testing::TestParamInfo<Case>& test) {
  return std::string(dtype_info(test.param.type).name) + "_" + test.param.kernels.name;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType type : kAllTypes) {
    for (const NamedKernels& kernels : all_kernels()) cases.push_back({type, kernels});
  }
  return cases;
}

class Matmul : public testing::TestWithParam<Case> {
 protected:
  // Lengths that end a 64-step, a 32-step or neither of the float types, and one to five blocks of the others.
  std::vector<std::int64_t> lengths() const {
    switch (dtype_info(GetParam().type).block_len) {
      case 1:
        return {64, 100, 160, 320, 333};
      case 32:
        return {32, 96, 160, 64 * 32 + 96};
      default:
        return {256, 768};
    }
  }

  // Multiplies and compares with the reference; false bits are counted.
  void expect_reference(std::int64_t rows, std::int64_t cols, int batch, int threads, bool with_rest = false) {
    const DType type = GetParam().type;
    const Kernels& kernels = *GetParam().kernels.kernels;
    std::mt19937 random(static_cast<unsigned>(rows * 7 + cols * 3 + batch));
    const std::vector<std::byte> bytes = test::random_weight(type, rows, cols, random);
    std::vector<float> x = test::random_floats(static_cast<std::size_t>(batch * cols), random);
    x[3] = 900.0f;  // an outlier: its neighbours become small integers
    ThreadPool pool(threads);
    MemoryArena arena;
    const CpuWeight weight(pool, arena, type, rows, cols, bytes.data());
    CpuActivation a(batch, cols, activation_format(type), kernels);
    for (int t = 0; t < batch; ++t) quantize_row(a, t, x.data() + t * cols);
    const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(rows), random);
    const std::vector<float> residual = test::random_floats(static_cast<std::size_t>(batch * rows), random);
    std::vector<float> out(static_cast<std::size_t>(batch * rows), -1.0f);
    MatmulOutput output{.weight = &weight, .out = out.data()};
    if (with_rest) {
      output.bias = bias.data();
      output.residual = residual.data();
      output.scale = 0.3f;
    }
    multiply(pool, kernels, {&output, 1}, a, batch);

    CpuActivation expected_a(batch, cols, activation_format(type), Isa::portable);
    std::size_t different = 0;
    for (int t = 0; t < batch; ++t) quantize_row(expected_a, t, x.data() + t * cols);
    for (int t = 0; t < batch; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::byte* row = bytes.data() + static_cast<std::size_t>(r) * row_bytes(type, cols);
        float expected = reference_dot(type, {rows, cols, batch, is_repacked(type, rows)}, row, expected_a, t);
        const auto at = static_cast<std::size_t>(t * rows + r);
        if (with_rest) {
          expected += bias[static_cast<std::size_t>(r)];
          expected *= 0.3f;
          expected += residual[at];
        }
        different += std::memcmp(&expected, &out[at], sizeof expected) != 0;
      }
    }
    EXPECT_EQ(different, 0u) << rows << " x " << cols << ", " << batch << " rows, " << threads << " threads";
  }
};

TEST_P(Matmul, GivesTheBitsOfTheReferenceForAnyNumberOfRows) {
  for (const int batch : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33}) {
    for (const std::int64_t cols : lengths()) expect_reference(16, cols, batch, 1);
  }
}

TEST_P(Matmul, GivesTheBitsOfTheReferenceForWeightsThatEndWithinAGroup) {
  for (const int batch : {1, 2, 5, 9}) {
    for (const std::int64_t rows : {1, 4, 13, 20}) expect_reference(rows, lengths().back(), batch, 1);
  }
}

TEST_P(Matmul, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const int threads : {2, 3}) {
    expect_reference(72, lengths().back(), 1, threads);
    expect_reference(72, lengths().back(), 13, threads);
  }
}

TEST_P(Matmul, AddsBiasThenScalesThenAddsTheResidual) {
  expect_reference(16, lengths().back(), 5, 1, true);
  expect_reference(13, lengths().back(), 5, 1, true);
}

TEST_P(Matmul, DividesLongBatchesWithoutChangingThem) {
  const std::int64_t cols = dtype_info(GetParam().type).block_len == 1 ? 4096 : 4096 + 256;
  expect_reference(16, cols, 131, 2);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Matmul, testing::ValuesIn(all_cases()), name);

TEST(CpuWeight, WidensRowsOfThePackedFormAsTheFormatSays) {
  ThreadPool pool(1);
  MemoryArena arena;
  for (const DType type : kAllTypes) {
    for (const std::int64_t rows : {16, 11}) {
      std::mt19937 random(5);
      const std::vector<std::byte> bytes = test::random_weight(type, rows, 512, random);
      const CpuWeight weight(pool, arena, type, rows, 512, bytes.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<float> expected(512), out(512);
        dequantize_row(type, bytes.data() + static_cast<std::size_t>(r) * row_bytes(type, 512), 512, expected.data());
        weight.dequantize(r, out.data());
        EXPECT_EQ(out, expected) << dtype_info(type).name << " row " << r;
      }
    }
  }
}

TEST(CpuWeight, KeepsOneCopyOfAlmostTheSizeOfTheSource) {
  ThreadPool pool(1);
  MemoryArena arena;
  for (const DType type : kAllTypes) {
    std::mt19937 random(5);
    const std::vector<std::byte> bytes = test::random_weight(type, 64, 512, random);
    const CpuWeight weight(pool, arena, type, 64, 512, bytes.data());
    EXPECT_NE(weight.uses_source(), weight.packed());
    if (!weight.packed()) continue;
    EXPECT_LE(weight.device_bytes(), bytes.size() + bytes.size() / 25 + 64) << dtype_info(type).name;
  }
}

TEST(CpuWeight, TakesASourceThatIsNotAligned) {
  ThreadPool pool(1);
  MemoryArena arena;
  for (const DType type : {DType::f32, DType::q4_1}) {
    std::mt19937 random(5);
    std::vector<std::byte> bytes = test::random_weight(type, 8, 64, random);
    const CpuWeight expected(pool, arena, type, 8, 64, bytes.data());
    std::vector<std::byte> moved(bytes.size() + 1);
    std::memcpy(moved.data() + 1, bytes.data(), bytes.size());
    const CpuWeight weight(pool, arena, type, 8, 64, moved.data() + 1);
    std::vector<float> a(64), b(64);
    expected.dequantize(5, a.data());
    weight.dequantize(5, b.data());
    EXPECT_EQ(a, b);
    EXPECT_FALSE(weight.uses_source());
  }
}

TEST(CpuWeight, RefusesRowsThatDoNotFillTheirBlocks) {
  ThreadPool pool(1);
  MemoryArena arena;
  const std::byte data[64] = {};
  EXPECT_THROW(CpuWeight(pool, arena, DType::q4_1, 1, 40, data), Error);
  EXPECT_THROW(CpuWeight(pool, arena, DType::q6_k, 0, 256, data), Error);
}

class Quantisation : public testing::TestWithParam<NamedKernels> {};

TEST_P(Quantisation, GivesTheSameRowsAsTheReference) {
  std::mt19937 random(1);
  const std::int64_t dim = 1024;
  constexpr ActFormats kAll = ActFormats::f32 | ActFormats::f16 | ActFormats::bf16 | ActFormats::q8 | ActFormats::q8_k;
  CpuActivation a(1, dim, kAll, *GetParam().kernels), expected(1, dim, kAll, Isa::portable);
  for (const float size : {1.0f, 60000.0f, 1e-30f, 1e-37f, 1e-42f, 0.0f}) {
    std::vector<float> x = test::random_floats(static_cast<std::size_t>(dim), random, size);
    x[40] = -size * 3;
    x[50] = size * 3;  // as large as another one before it
    for (std::size_t i = 100; i < 200; ++i) x[i] = static_cast<float>(static_cast<int>(i) - 150) * 0.5f * size;
    quantize_row(a, 0, x.data());
    quantize_row(expected, 0, x.data());
    EXPECT_EQ(std::memcmp(a.f32_row(0), x.data(), sizeof(float) * x.size()), 0);
    EXPECT_EQ(std::memcmp(a.f16_row(0), expected.f16_row(0), sizeof(float) * x.size()), 0) << size;
    EXPECT_EQ(std::memcmp(a.bf16_row(0), expected.bf16_row(0), 2 * x.size()), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_row(0).quants, expected.q8_row(0).quants, x.size()), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_row(0).scale, expected.q8_row(0).scale, 4 * x.size() / 32), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_row(0).scaled_sum, expected.q8_row(0).scaled_sum, 4 * x.size() / 32), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_row(0).sum, expected.q8_row(0).sum, 4 * x.size() / 32), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_k_row(0).quants, expected.q8_k_row(0).quants, x.size()), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_k_row(0).scale, expected.q8_k_row(0).scale, 4 * x.size() / 256), 0) << size;
    EXPECT_EQ(std::memcmp(a.q8_k_row(0).sums, expected.q8_k_row(0).sums, 2 * x.size() / 16), 0) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, Quantisation, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SelfCheck, PassesKernelsThatAreRightAndNoOthers) {
  for (const NamedKernels& kernels : all_kernels()) EXPECT_TRUE(passes_self_check(*kernels.kernels)) << kernels.name;
  Kernels wrong = portable::kKernels;
  wrong.quantize_q8 = [](const float* x, std::int64_t n, const Q8Row& out) {
    reference_quantize_q8(x, n, out);
    out.quants[17] = static_cast<std::int8_t>(out.quants[17] ^ 1);
  };
  EXPECT_FALSE(passes_self_check(wrong));
}

}  // namespace
}  // namespace bankml
