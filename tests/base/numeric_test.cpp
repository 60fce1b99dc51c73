#include "bankml/base/numeric.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "device/op_vectors.hpp"

namespace bankml {
namespace {

TEST(Half, GivesTheRecordedBits) {
  const test::OpVectors vectors = test::read_op_vectors("f32_to_f16");
  const test::OpArray& x = vectors.at("x");
  for (std::size_t i = 0; i < x.size<float>(); ++i) {
    ASSERT_EQ(to_half(x.as<float>()[i]).bits, vectors.at("y").as<std::uint16_t>()[i]) << x.as<float>()[i];
    ASSERT_EQ(to_bfloat16(x.as<float>()[i]).bits, vectors.at("bf16").as<std::uint16_t>()[i]) << x.as<float>()[i];
  }
}

TEST(Half, ComesBackFromWideningForEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const half h{static_cast<std::uint16_t>(bits)};
    const float f = to_float(h);
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(f));
      EXPECT_EQ(to_half(f).bits, bits | 0x0200);
    } else {
      ASSERT_EQ(to_half(f).bits, bits);
    }
  }
}

TEST(Half, WidensToTheValueOfItsFields) {
  EXPECT_EQ(to_float(half{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(half{0xc000}), -2.0f);
  EXPECT_EQ(to_float(half{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(half{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(half{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(to_float(half{0x8000})));
}

TEST(Half, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(to_half(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(to_half(1.0f + 0x3p-11f).bits, 0x3c02);
  EXPECT_EQ(to_half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(to_half(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
}

TEST(Bfloat16, RoundsTiesToEvenAndKeepsNaN) {
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x3p-8f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, KnowsTheSizeOfARow) {
  EXPECT_EQ(row_bytes(DType::q4_1, 64), 40u);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420u);
  EXPECT_EQ(row_bytes(DType::f32, 3), 12u);
}

TEST(DType, DoesNotFindIdsItCannotComputeWith) {
  EXPECT_EQ(find_dtype(4), nullptr);   // removed from the format
  EXPECT_EQ(find_dtype(40), nullptr);  // NVFP4
  EXPECT_EQ(find_dtype(-1), nullptr);
  ASSERT_NE(find_dtype(3), nullptr);
  EXPECT_EQ(find_dtype(3)->name, "Q4_1");
}

}  // namespace
}  // namespace bankml
