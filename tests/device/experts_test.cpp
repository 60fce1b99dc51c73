// The operations of mixtures of experts against the text of docs/architectures.md, section 6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu/expert_choice.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/reference.hpp"
#include "device/cpu/reference_attention.hpp"
#include "device/cpu/weight.hpp"
#include "random_weight.hpp"
#include "support/expect_error.hpp"

namespace bankml {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::Pointwise;

constexpr DType kAllTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                               DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                               DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

class Experts : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
  }

  CpuExpertChoice route(const std::vector<float>& scores, int experts, int used, const RouterParams& params) {
    const int rows = static_cast<int>(scores.size()) / experts;
    CpuExpertChoice choice(rows, experts, used);
    ops.route(*stream, choice, scores.data(), params, rows);
    return choice;
  }
  static std::vector<int> chosen(CpuExpertChoice& choice, int row) {
    return {choice.experts_of(row), choice.experts_of(row) + choice.used()};
  }
  static std::vector<float> weights(CpuExpertChoice& choice, int row) {
    return {choice.weights_of(row), choice.weights_of(row) + choice.used()};
  }

  // Every pair's product with every weight against the reference, which multiplies one row at a time.
  void expect_reference(DType type, std::int64_t rows, std::int64_t cols, int batch, ExpertInput input) {
    constexpr int kExperts = 5, kUsed = 2;
    std::mt19937 random(static_cast<unsigned>(rows * 7 + cols * 3 + batch));
    const std::vector<std::byte> bytes = test::random_weight(type, kExperts * rows, cols, random);
    const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(kExperts * rows), random);
    CpuExpertChoice choice =
        route(test::random_floats(static_cast<std::size_t>(batch * kExperts), random), kExperts, kUsed, {});
    const int in_rows = input == ExpertInput::rows ? batch : batch * kUsed;
    const std::vector<float> x = test::random_floats(static_cast<std::size_t>(in_rows * cols), random);
    const auto activation = [&](Isa isa) {
      CpuActivation a(in_rows, cols, activation_format(type), isa);
      for (int r = 0; r < in_rows; ++r) quantize_row(a, r, x.data() + r * cols);
      return a;
    };
    const CpuActivation a = activation(GetParam()), expected_a = activation(Isa::portable);
    MemoryArena arena;
    const std::size_t row_size = row_bytes(type, cols);
    const CpuWeight weight(pool, arena, type, kExperts, rows, cols, bytes.data(),
                           static_cast<std::size_t>(rows) * row_size);
    std::vector<float> plain(static_cast<std::size_t>(batch * kUsed * rows), -1.0f), biased = plain;
    const ExpertOutput outputs[] = {{&weight, plain.data()}, {&weight, biased.data(), bias.data()}};
    ops.matmul_experts(*stream, outputs, a, input, choice, batch);

    std::size_t different = 0;
    for (int row = 0; row < batch; ++row) {
      for (int i = 0; i < kUsed; ++i) {
        const std::int64_t place = choice.places_of(row)[i], expert = choice.experts_of(row)[i];
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t weight_row = expert * rows + r;
          const float expected = reference_dot(type, {rows, cols, 1, is_repacked(type, rows)},
                                               bytes.data() + static_cast<std::size_t>(weight_row) * row_size,
                                               expected_a, static_cast<int>(input == ExpertInput::rows ? row : place));
          const auto at = static_cast<std::size_t>(place * rows + r);
          different += plain[at] != expected;
          different += biased[at] != expected + bias[static_cast<std::size_t>(weight_row)];
        }
      }
    }
    EXPECT_EQ(different, 0u) << dtype_info(type).name << ", " << rows << " x " << cols << ", " << batch << " rows";
  }

  ThreadPool pool{2};
  CpuOps ops{pool, GetParam()};
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Stream> stream = device->make_stream();
};

TEST_P(Experts, TheLargestScoresAreChosenBestFirst) {
  CpuExpertChoice choice = route({0.5f, 3.0f, -1.0f, 2.0f, 9.0f, 1.0f, 1.5f, -7.0f}, 4, 2, {});
  EXPECT_THAT(chosen(choice, 0), ElementsAre(1, 3));
  EXPECT_THAT(chosen(choice, 1), ElementsAre(0, 2));
}

TEST_P(Experts, OfEqualScoresTheFirstIsChosen) {
  CpuExpertChoice choice = route({1.0f, 2.0f, 2.0f, 2.0f}, 4, 2, {});
  EXPECT_THAT(chosen(choice, 0), ElementsAre(1, 2));
}

TEST_P(Experts, WeightsAreTheSoftmaxOverAllScores) {
  std::mt19937 random(1);
  for (const int experts : {4, 8, 16, 40, 128}) {
    const std::vector<float> scores = test::random_floats(static_cast<std::size_t>(experts), random, 3.0f);
    std::vector<float> probabilities(scores.size());
    const std::vector<float> mask(scores.size(), 0.0f);
    reference::soft_max(probabilities.data(), scores.data(), mask.data(), 1.0f, experts);
    CpuExpertChoice choice = route(scores, experts, 3, {});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(weights(choice, 0)[static_cast<std::size_t>(i)],
                probabilities[static_cast<std::size_t>(chosen(choice, 0)[static_cast<std::size_t>(i)])]);
    }
  }
}

TEST_P(Experts, NormalizedWeightsAddUpToOne) {
  CpuExpertChoice choice = route({0.0f, std::log(3.0f), std::log(4.0f), 0.0f}, 4, 2, {.normalize = true});
  EXPECT_THAT(weights(choice, 0), Pointwise(FloatEq(), {4.0f / 7.0f, 3.0f / 7.0f}));
}

TEST_P(Experts, TheScaleComesAfterTheNormalization) {
  CpuExpertChoice choice =
      route({0.0f, std::log(3.0f), std::log(4.0f), 0.0f}, 4, 2, {.normalize = true, .scale = 2.5f});
  EXPECT_THAT(weights(choice, 0), Pointwise(FloatEq(), {10.0f / 7.0f, 7.5f / 7.0f}));
}

TEST_P(Experts, WeightsMayBeTheSoftmaxOfTheChosenScores) {
  CpuExpertChoice choice = route({0.0f, 2.0f, 2.0f + std::log(3.0f), 1.0f}, 4, 2, {.softmax_of_chosen = true});
  EXPECT_THAT(chosen(choice, 0), ElementsAre(2, 1));
  EXPECT_THAT(weights(choice, 0), Pointwise(FloatEq(), {0.75f, 0.25f}));
}

TEST_P(Experts, NotANumberStillChoosesDifferentExperts) {
  const float nan = std::nanf("");
  CpuExpertChoice choice = route({nan, nan, nan, nan}, 4, 3, {});
  EXPECT_THAT(chosen(choice, 0), ElementsAre(0, 1, 2));
}

TEST_P(Experts, EveryPairIsAMatmulOfOneRow) {
  for (const DType type : kAllTypes) {
    const std::int64_t cols = dtype_info(type).block_len == 256 ? 512 : 96;
    for (const int batch : {1, 2, 9, 40}) {
      expect_reference(type, 24, cols, batch, ExpertInput::rows);
      expect_reference(type, 24, cols, batch, ExpertInput::pairs);
    }
  }
}

TEST_P(Experts, RowsOfAnExpertNeedNotBeAMultipleOfEight) {
  for (const DType type : kAllTypes) {
    expect_reference(type, 13, dtype_info(type).block_len == 256 ? 256 : 64, 9, ExpertInput::rows);
  }
}

TEST_P(Experts, OtherRowsMayLieBetweenThoseOfTheExperts) {
  constexpr int kExperts = 3, kRows = 8, kCols = 64, kSkipped = 5;
  std::mt19937 random(4);
  for (const DType type : {DType::f32, DType::q8_0, DType::mxfp4}) {
    const std::size_t row_size = row_bytes(type, kCols);
    const std::vector<std::byte> bytes = test::random_weight(type, kExperts * (kRows + kSkipped), kCols, random);
    std::vector<std::byte> packed;
    for (std::size_t e = 0; e < kExperts; ++e) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(e * (kRows + kSkipped) * row_size);
      packed.insert(packed.end(), begin, begin + static_cast<std::ptrdiff_t>(kRows * row_size));
    }
    MemoryArena arena;
    const CpuWeight apart(pool, arena, type, kExperts, kRows, kCols, bytes.data(), (kRows + kSkipped) * row_size);
    const CpuWeight together(pool, arena, type, kExperts, kRows, kCols, packed.data(), kRows * row_size);
    CpuExpertChoice choice = route({1.0f, 2.0f, 3.0f}, kExperts, 3, {});
    const std::vector<float> x = test::random_floats(kCols, random);
    CpuActivation a(1, kCols, activation_format(type), GetParam());
    quantize_row(a, 0, x.data());
    std::vector<float> out(3 * kRows), expected(3 * kRows);
    const ExpertOutput outputs[] = {{&apart, out.data()}, {&together, expected.data()}};
    ops.matmul_experts(*stream, outputs, a, ExpertInput::rows, choice, 1);
    EXPECT_EQ(out, expected);
  }
}

TEST_P(Experts, AnExpertWithManyRowsIsCutIntoParts) {
  expect_reference(DType::q8_0, 520, 1024, 300, ExpertInput::rows);
}

TEST_P(Experts, BranchesAreWeighedAndAddedInTheOrderOfChoice) {
  CpuExpertChoice choice = route({0.0f, std::log(3.0f), std::log(4.0f), 0.0f}, 4, 2, {.normalize = true});
  constexpr int kDim = 300;
  std::mt19937 random(3);
  const std::vector<float> branch = test::random_floats(2 * kDim, random), shared = test::random_floats(kDim, random);
  std::vector<float> residual = test::random_floats(kDim, random), expected;
  const float* weight = choice.weights_of(0);
  for (int j = 0; j < kDim; ++j) {
    const float first = branch[static_cast<std::size_t>(choice.places_of(0)[0] * kDim + j)] * weight[0];
    const float second = branch[static_cast<std::size_t>(choice.places_of(0)[1] * kDim + j)] * weight[1];
    float sum = first + second;
    sum += shared[static_cast<std::size_t>(j)];
    sum *= 0.3f;
    expected.push_back(sum + residual[static_cast<std::size_t>(j)]);
  }
  const ExpertSum args{residual.data(), branch.data(), shared.data(), residual.data(), 0.3f, kDim};
  ops.sum_experts(*stream, args, choice, 1);
  EXPECT_EQ(residual, expected);
}

INSTANTIATE_TEST_SUITE_P(AllKernels, Experts, testing::Values(Isa::portable, Isa::avx2, Isa::avx512),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

TEST(ExpertChoice, NeedsAsManyExpertsAsItUses) {
  test::expect_error(ErrorKind::invalid_request, "expected from 1 to 4 for each row, got 5",
                     [] { CpuExpertChoice(1, 4, 5); });
}

}  // namespace
}  // namespace bankml
