// The plain statement of attention against recordings of llama-server b11192's operator, bit for bit.
#include "device/cpu/reference_attention.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/op_vectors.hpp"

namespace bankml {
namespace {

using test::OpVectors;
using test::read_op_vectors;

struct Recorded {
  const char* file;
  AttentionPath path;
  DType type;
  int threads;
};

void PrintTo(const Recorded& recorded, std::ostream* out) {
  *out << recorded.file << " threads " << recorded.threads;
}

class RecordedAttention : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedAttention, IsReproducedBitForBit) {
  const Recorded& recorded = GetParam();
  const OpVectors vectors = read_op_vectors(std::string("attention_") + recorded.file);
  const auto& q = vectors.at("q");
  const auto& expected = vectors.at("y_threads_" + std::to_string(recorded.threads));
  const int dim = static_cast<int>(q.dims[0]);
  const std::size_t tokens = q.dims[1], heads = q.dims[2], width = q.dims[0];
  const std::size_t cells = vectors.at("k").dims[1];
  const reference::KvCells kv{recorded.type,
                              recorded.type,
                              dim,
                              dim,
                              static_cast<std::int64_t>(cells),
                              vectors.at("k").as<std::byte>(),
                              vectors.at("v").as<std::byte>()};
  std::size_t different = 0;
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t head = 0; head < heads; ++head) {
      reference::QueryRow row;
      row.q = q.as<float>() + (head * tokens + token) * width;
      row.visible = vectors.at("visible").as<std::uint8_t>() + token * cells;
      row.scale = *vectors.at("scale").as<float>();
      row.softcap = *vectors.at("softcap").as<float>();
      if (vectors.contains("sinks")) row.sink = vectors.at("sinks").as<float>() + head;
      std::vector<float> out(width);
      reference::attention(out.data(), recorded.path, recorded.threads, kv, row);
      const float* y = expected.as<float>() + (token * heads + head) * width;
      for (std::size_t d = 0; d < width; ++d) different += std::memcmp(&out[d], y + d, sizeof(float)) != 0;
    }
  }
  EXPECT_EQ(different, 0u);
}

constexpr AttentionPath kOne = AttentionPath::one_chunk, kSplit = AttentionPath::split, kTiled = AttentionPath::tiled;

INSTANTIATE_TEST_SUITE_P(
    AllFiles, RecordedAttention,
    testing::Values(Recorded{"one_d64", kOne, DType::f16, 1}, Recorded{"one_d80", kOne, DType::f16, 1},
                    Recorded{"one_d128", kOne, DType::f16, 1}, Recorded{"one_d256", kOne, DType::f16, 1},
                    Recorded{"one_cap", kOne, DType::f16, 1}, Recorded{"one_sink", kOne, DType::f16, 1},
                    Recorded{"one_q8_0", kOne, DType::q8_0, 1}, Recorded{"few_d64", kOne, DType::f16, 1},
                    Recorded{"many_q8_0", kOne, DType::q8_0, 1}, Recorded{"split_d64", kSplit, DType::f16, 1},
                    Recorded{"split_d64", kSplit, DType::f16, 2}, Recorded{"split_d64", kSplit, DType::f16, 3},
                    Recorded{"split_d64", kSplit, DType::f16, 4}, Recorded{"split_sink", kSplit, DType::f16, 2},
                    Recorded{"tiled_d64", kTiled, DType::f16, 1}, Recorded{"tiled_d80", kTiled, DType::f16, 1},
                    Recorded{"tiled_d256", kTiled, DType::f16, 1}, Recorded{"tiled_cap", kTiled, DType::f16, 1},
                    Recorded{"tiled_sink", kTiled, DType::f16, 1}));

TEST(SoftMax, GivesTheRecordedBits) {
  const OpVectors vectors = read_op_vectors("soft_max");
  const auto& x = vectors.at("x");
  const std::size_t width = x.dims[0];
  for (std::size_t row = 0; row < x.dims[1]; ++row) {
    std::vector<float> out(width);
    reference::soft_max(out.data(), x.as<float>() + row * width, vectors.at("mask").as<float>() + row * width,
                        *vectors.at("scale").as<float>(), static_cast<int>(width));
    EXPECT_EQ(std::memcmp(out.data(), vectors.at("y").as<float>() + row * width, width * sizeof(float)), 0) << row;
  }
}

TEST(AttentionPath, FollowsTheRowsOfTheWholeBatchAndThePaddedCells) {
  const auto path = [](int rows, std::int64_t cells) {
    return attention_path(rows, cells, DType::f16, DType::f16, 64, 64);
  };
  EXPECT_EQ(path(1, 256), AttentionPath::one_chunk);
  EXPECT_EQ(path(1, 512), AttentionPath::split);
  EXPECT_EQ(path(2, 512), AttentionPath::one_chunk);
  EXPECT_EQ(path(63, 512), AttentionPath::one_chunk);
  EXPECT_EQ(path(64, 512), AttentionPath::tiled);
}

TEST(AttentionPath, IsOneChunkForQuantizedOrMixedCachesAndOddHeads) {
  EXPECT_EQ(attention_path(64, 512, DType::q8_0, DType::q8_0, 64, 64), AttentionPath::one_chunk);
  EXPECT_EQ(attention_path(1, 512, DType::f16, DType::f32, 64, 64), AttentionPath::one_chunk);
  EXPECT_EQ(attention_path(64, 512, DType::f16, DType::f16, 72, 72), AttentionPath::one_chunk);
  EXPECT_EQ(attention_path(64, 512, DType::f32, DType::f32, 64, 64), AttentionPath::tiled);
}

}  // namespace
}  // namespace bankml
