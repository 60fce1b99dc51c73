// The plain statement of the arithmetic against recordings of llama-server b11192's operators, bit for bit.
#include "device/cpu/reference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/weight.hpp"
#include "op_vectors.hpp"

namespace bankml {
namespace {

using test::OpArray;
using test::OpVectors;
using test::read_op_vectors;

struct RecordedType {
  const char* file;
  DType type;
};

class RecordedMatmul : public testing::TestWithParam<RecordedType> {
 protected:
  RecordedMatmul() : vectors(read_op_vectors(std::string("matmul_") + GetParam().file)) {}

  // (batch, rows) as the recordings have it: `batch` rows in one call, or each alone.
  std::vector<float> multiply(int batch, bool repacked) const {
    const OpArray& x = vectors.at("x");
    const std::int64_t cols = x.dims[0];
    const int tokens = static_cast<int>(x.dims[1]);
    const std::int64_t rows = vectors.at("w").dims[1];
    CpuActivation a(batch, cols, activation_format(GetParam().type), Isa::portable);
    std::vector<float> out;
    for (int first = 0; first < tokens; first += batch) {
      for (int t = 0; t < batch; ++t) quantize_row(a, t, x.as<float>() + (first + t) * cols);
      for (int t = 0; t < batch; ++t) {
        for (std::int64_t r = 0; r < rows; ++r) {
          out.push_back(reference_dot(
              GetParam().type, {rows, cols, batch, repacked},
              vectors.at("w").as<std::byte>() + static_cast<std::size_t>(r) * row_bytes(GetParam().type, cols), a, t));
        }
      }
    }
    return out;
  }

  void expect_recorded(const std::vector<float>& out, const std::string& name) const {
    const OpArray& expected = vectors.at(name);
    ASSERT_EQ(out.size(), expected.size<float>());
    std::size_t different = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      different += std::memcmp(&out[i], expected.as<float>() + i, sizeof(float)) != 0;
    EXPECT_EQ(different, 0u) << name;
  }

  OpVectors vectors;
};

TEST_P(RecordedMatmul, GivesTheRecordedBitsForOneRow) {
  expect_recorded(multiply(1, false), "plain_n1");
}

TEST_P(RecordedMatmul, GivesTheRecordedBitsForNineRows) {
  expect_recorded(multiply(9, false), "plain_n9");
}

class RepackedMatmul : public RecordedMatmul {};

TEST_P(RepackedMatmul, GivesTheRecordedBits) {
  expect_recorded(multiply(1, true), "repack_n1");
  expect_recorded(multiply(9, true), "repack_n9");
}

TEST_P(RecordedMatmul, WidensRowsToTheRecordedBits) {
  const std::int64_t cols = vectors.at("x").dims[0];
  ThreadPool pool(1);
  MemoryArena arena;
  const CpuWeight weight(pool, arena, GetParam().type, vectors.at("w").dims[1], cols, vectors.at("w").as<std::byte>());
  std::vector<float> out(static_cast<std::size_t>(2 * cols));
  weight.dequantize(3, out.data());
  weight.dequantize(0, out.data() + cols);
  expect_recorded(out, "rows_3_0");
}

std::string type_name(const testing::TestParamInfo<RecordedType>& test) {
  return test.param.file;
}

INSTANTIATE_TEST_SUITE_P(AllTypes, RecordedMatmul,
                         testing::Values(RecordedType{"f32", DType::f32}, RecordedType{"f16", DType::f16},
                                         RecordedType{"bf16", DType::bf16}, RecordedType{"q4_0", DType::q4_0},
                                         RecordedType{"q4_1", DType::q4_1}, RecordedType{"q5_0", DType::q5_0},
                                         RecordedType{"q5_1", DType::q5_1}, RecordedType{"q8_0", DType::q8_0},
                                         RecordedType{"q2_k", DType::q2_k}, RecordedType{"q3_k", DType::q3_k},
                                         RecordedType{"q4_k", DType::q4_k}, RecordedType{"q5_k", DType::q5_k},
                                         RecordedType{"q6_k", DType::q6_k}, RecordedType{"iq4_nl", DType::iq4_nl},
                                         RecordedType{"iq4_xs", DType::iq4_xs}, RecordedType{"mxfp4", DType::mxfp4}),
                         type_name);
INSTANTIATE_TEST_SUITE_P(RepackedTypes, RepackedMatmul,
                         testing::Values(RecordedType{"q4_0", DType::q4_0}, RecordedType{"q2_k", DType::q2_k},
                                         RecordedType{"q4_k", DType::q4_k}, RecordedType{"iq4_nl", DType::iq4_nl},
                                         RecordedType{"mxfp4", DType::mxfp4}),
                         type_name);

template <class T>
T read(const std::byte*& bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  bytes += sizeof value;
  return value;
}

class RecordedQuantisation : public testing::Test {
 protected:
  // Quantises the recorded rows and hands out each with the recorded blocks of that row.
  template <class F>
  void for_each_row(const std::string& file, ActFormats format, F&& f) {
    const OpVectors vectors = read_op_vectors(file);
    const OpArray& x = vectors.at("x");
    const std::int64_t cols = x.dims[0], rows = x.dims[1];
    CpuActivation a(rows, cols, format, Isa::portable);
    const std::byte* y = vectors.at("y").as<std::byte>();
    for (std::int64_t r = 0; r < rows; ++r) {
      quantize_row(a, r, x.as<float>() + r * cols);
      f(a, r, y);
    }
  }
};

TEST_F(RecordedQuantisation, GivesTheRecordedQ8_0Blocks) {
  for_each_row("quantize_q8_0", ActFormats::q8, [](const CpuActivation& a, std::int64_t r, const std::byte*& y) {
    for (int e = 0; e < a.dim(); ++e) {
      if (e % 32 == 0) {
        EXPECT_EQ(a.q8_row(r).scale[e / 32], to_float(read<half>(y)));
      }
      ASSERT_EQ(a.q8_row(r).quants[e], read<std::int8_t>(y)) << "row " << r << " element " << e;
    }
  });
}

TEST_F(RecordedQuantisation, GivesTheRecordedQ8_1Blocks) {
  for_each_row("quantize_q8_1", ActFormats::q8, [](const CpuActivation& a, std::int64_t r, const std::byte*& y) {
    for (int e = 0; e < a.dim(); ++e) {
      if (e % 32 == 0) {
        EXPECT_EQ(a.q8_row(r).scale[e / 32], to_float(read<half>(y)));
        EXPECT_EQ(a.q8_row(r).scaled_sum[e / 32], to_float(read<half>(y)));
      }
      ASSERT_EQ(a.q8_row(r).quants[e], read<std::int8_t>(y)) << "row " << r << " element " << e;
    }
  });
}

TEST_F(RecordedQuantisation, GivesTheRecordedQ8_KBlocks) {
  for_each_row("quantize_q8_k", ActFormats::q8_k, [](const CpuActivation& a, std::int64_t r, const std::byte*& y) {
    for (int block = 0; block < a.dim() / 256; ++block) {
      EXPECT_EQ(a.q8_k_row(r).scale[block], read<float>(y));
      for (int e = 0; e < 256; ++e) ASSERT_EQ(a.q8_k_row(r).quants[256 * block + e], read<std::int8_t>(y));
      for (int g = 0; g < 16; ++g) ASSERT_EQ(a.q8_k_row(r).sums[16 * block + g], read<std::int16_t>(y));
    }
  });
}

}  // namespace
}  // namespace bankml
