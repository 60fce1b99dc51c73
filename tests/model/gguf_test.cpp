#include "bankml/model/gguf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/expect_error.hpp"
#include "support/gguf_builder.hpp"

namespace bankml {
namespace {

using test::Bytes;
using test::expect_error;
using test::GgufBuilder;
using testing::ElementsAre;
using testing::Optional;

constexpr std::int32_t kTypeF32 = 0, kTypeQ8 = 8;  // of tensors

GgufFile parse(const std::vector<std::byte>& bytes) {
  return GgufFile::parse(bytes, "test.gguf");
}

void expect_refused(const std::vector<std::byte>& bytes, std::string_view part,
                    ErrorKind kind = ErrorKind::invalid_request) {
  expect_error(kind, part, [&] { parse(bytes); });
}
void expect_refused(const GgufBuilder& builder, std::string_view part, ErrorKind kind = ErrorKind::invalid_request) {
  expect_refused(builder.build(), part, kind);
}

GgufBuilder small_file() {
  GgufBuilder out;
  out.string("general.architecture", "none").u32("general.alignment", 32).f32("f", 0.5f).boolean("b", true);
  out.strings("words", {"a", "", "bc"}).i32s("numbers", {-1, 2}).floats("reals", {0.25f});
  out.f32_tensor("first", {2, 3}, {1, 2, 3, 4, 5, 6});
  out.tensor("second", {32, 2}, kTypeQ8, std::vector<std::byte>(68, std::byte{7}));
  return out;
}

// Bytes of a file up to and with the two counts.
Bytes header(std::uint64_t tensors, std::uint64_t keys) {
  return Bytes().text("GGUF").number(std::uint32_t{3}).number(tensors).number(keys);
}

TEST(GgufFile, GivesEveryTypeOfValue) {
  GgufBuilder builder;
  builder.u8("u8", 255).u32("u32", 4294967295u).i32("i32", -5).u64("u64", std::numeric_limits<std::uint64_t>::max());
  builder.i64("i64", std::numeric_limits<std::int64_t>::min())
      .f32("f32", 0.1f)
      .boolean("bool", true)
      .string("s", "x\0y");
  builder.strings("ss", {"", "\xff"}).floats("ff", {1.5f, -2.0f}).i32s("ii", {1, -1}).bools("bb", {0, 1});
  const auto bytes = builder.build();
  const GgufFile file = parse(bytes);
  EXPECT_THAT(file.unsigned_value("u8"), Optional(255u));
  EXPECT_THAT(file.unsigned_value("u32"), Optional(4294967295u));
  EXPECT_THAT(file.signed_value("i32"), Optional(-5));
  EXPECT_THAT(file.unsigned_value("u64"), Optional(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_THAT(file.signed_value("i64"), Optional(std::numeric_limits<std::int64_t>::min()));
  EXPECT_THAT(file.float_value("f32"), Optional(0.1f));
  EXPECT_THAT(file.bool_value("bool"), Optional(true));
  EXPECT_THAT(file.string_value("s"), Optional(std::string_view("x")));
  EXPECT_THAT(file.strings("ss"), Optional(ElementsAre("", "\xff")));
  EXPECT_THAT(file.floats("ff"), Optional(ElementsAre(1.5f, -2.0f)));
  EXPECT_THAT(file.integers("ii"), Optional(ElementsAre(1, -1)));
  EXPECT_THAT(file.integers("bb"), Optional(ElementsAre(0, 1)));
  EXPECT_THAT(file.array_size("ss"), Optional(2u));
  EXPECT_EQ(file.array_size("u8"), std::nullopt);
  EXPECT_TRUE(file.has("u8"));
}

TEST(GgufFile, GivesNothingForAnAbsentKey) {
  const auto bytes = GgufBuilder().build();
  const GgufFile file = parse(bytes);
  EXPECT_FALSE(file.has("k"));
  EXPECT_EQ(file.unsigned_value("k"), std::nullopt);
  EXPECT_EQ(file.signed_value("k"), std::nullopt);
  EXPECT_EQ(file.float_value("k"), std::nullopt);
  EXPECT_EQ(file.bool_value("k"), std::nullopt);
  EXPECT_EQ(file.string_value("k"), std::nullopt);
  EXPECT_EQ(file.strings("k"), std::nullopt);
  EXPECT_EQ(file.floats("k"), std::nullopt);
  EXPECT_EQ(file.integers("k"), std::nullopt);
  EXPECT_EQ(file.find_tensor("k"), nullptr);
}

TEST(GgufFile, TakesIntegersOfAnotherWidthOnlyWhereTheyFit) {
  const auto bytes = GgufBuilder().i32("minus", -1).u64("big", std::numeric_limits<std::uint64_t>::max()).build();
  const GgufFile file = parse(bytes);
  EXPECT_THAT(file.signed_value("minus"), Optional(-1));
  expect_error(ErrorKind::invalid_request, "'minus'", [&] { file.unsigned_value("minus"); });
  expect_error(ErrorKind::invalid_request, "'big'", [&] { file.signed_value("big"); });
}

TEST(GgufFile, NamesKeyAndTypesOfAWrongRead) {
  const auto bytes = GgufBuilder().string("s", "1").f32("f", 1).i32s("ii", {1}).strings("ss", {"a"}).build();
  const GgufFile file = parse(bytes);
  constexpr auto kKind = ErrorKind::invalid_request;
  expect_error(kKind, "key 's': expected an integer, found string", [&] { file.unsigned_value("s"); });
  expect_error(kKind, "key 'f': expected an integer, found f32", [&] { file.signed_value("f"); });
  expect_error(kKind, "key 'ii': expected an integer, found array of i32", [&] { file.signed_value("ii"); });
  expect_error(kKind, "key 'ii': expected f32, found array of i32", [&] { file.float_value("ii"); });
  expect_error(kKind, "key 'f': expected bool, found f32", [&] { file.bool_value("f"); });
  expect_error(kKind, "key 'f': expected string, found f32", [&] { file.string_value("f"); });
  expect_error(kKind, "key 's': expected array of string, found string", [&] { file.strings("s"); });
  expect_error(kKind, "key 'ii': expected array of string, found array of i32", [&] { file.strings("ii"); });
  expect_error(kKind, "key 'ss': expected array of f32, found array of string", [&] { file.floats("ss"); });
  expect_error(kKind, "key 'ss': expected array of integers", [&] { file.integers("ss"); });
}

TEST(GgufFile, RefusesAFloatThatIsNotFinite) {
  const auto bytes = GgufBuilder().f32("f", std::nanf("")).build();
  const GgufFile file = parse(bytes);
  expect_error(ErrorKind::invalid_request, "key 'f': expected a finite number", [&] { file.float_value("f"); });
}

TEST(GgufFile, GivesTensorsInTheOrderOfTheFile) {
  const auto bytes = small_file().build();
  const GgufFile file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor& first = file.tensors()[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.type, DType::f32);
  EXPECT_EQ(first.row_length(), 2);
  EXPECT_EQ(first.rows(), 3);
  float last = 0;
  std::memcpy(&last, first.data.data() + 20, 4);
  EXPECT_EQ(last, 6.0f);
  const GgufTensor* const second = file.find_tensor("second");
  ASSERT_EQ(second, &file.tensors()[1]);
  EXPECT_EQ(second->data.size(), 68u);
  EXPECT_EQ(second->data[0], std::byte{7});
  EXPECT_EQ(file.bytes(), bytes.size());
}

TEST(GgufFile, TakesVersionTwo) {
  GgufBuilder builder = small_file();
  builder.version = 2;
  const auto bytes = builder.build();
  EXPECT_EQ(parse(bytes).tensors().size(), 2u);
}

TEST(GgufFile, TakesAnotherAlignment) {
  GgufBuilder builder = small_file();
  builder.alignment = 64;
  builder.u32("general.alignment", 64);
  const auto bytes = builder.build();
  const GgufFile file = parse(bytes);
  EXPECT_EQ((file.tensors()[1].data.data() - bytes.data()) % 64, 0);
  EXPECT_EQ(file.tensors()[1].data[0], std::byte{7});
}

TEST(GgufFile, TakesAScalarTensor) {
  const auto bytes = GgufBuilder().f32_tensor("scalar", {}, {2.5f}).build();
  const GgufFile file = parse(bytes);
  EXPECT_THAT(file.tensors()[0].dims, ElementsAre(1));
  EXPECT_EQ(file.tensors()[0].data.size(), 4u);
}

TEST(GgufFile, RefusesEveryTruncation) {
  const auto bytes = small_file().build();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(GgufFile::parse(std::span(bytes).first(n), "t"), Error) << n << " bytes";
  }
}

TEST(GgufFile, LoadsOrRefusesAFileWithAnyOneByteOfTheHeaderChanged) {
  auto bytes = small_file().build();
  int loaded = 0;
  for (std::size_t i = 0; i < small_file().header_bytes(); ++i) {
    const std::byte right = bytes[i];
    for (int change = 1; change < 256; ++change) {
      bytes[i] = right ^ static_cast<std::byte>(change);
      try {
        const GgufFile file = parse(bytes);
        for (const GgufTensor& tensor : file.tensors()) {
          EXPECT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
        }
        ++loaded;
      } catch (const Error&) {
      }
    }
    bytes[i] = right;
  }
  EXPECT_GT(loaded, 0);  // a letter of a name may be any other
}

TEST(GgufFile, RefusesOtherVersions) {
  GgufBuilder builder;
  for (const std::uint32_t version : {0u, 1u, 4u}) {
    builder.version = version;
    expect_refused(builder, "expected GGUF version 2 or 3, found " + std::to_string(version), ErrorKind::unsupported);
  }
}

TEST(GgufFile, HintsAtTheByteOrderOfAVersionWithBytesSwapped) {
  GgufBuilder builder;
  builder.version = 0x03000000;
  expect_refused(builder, "big-endian", ErrorKind::unsupported);
}

TEST(GgufFile, RefusesAnotherMagicNumber) {
  expect_refused(Bytes().text("GGML").pad(64).data(), "expected a GGUF file");
}

TEST(GgufFile, RefusesCountsThatCannotFit) {
  for (const std::uint64_t count : {std::uint64_t{1} << 40, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 1}) {
    expect_refused(header(count, 0).pad(256).data(), "tensors in a file of this size");
    expect_refused(header(0, count).pad(256).data(), "keys in a file of this size");
  }
}

TEST(GgufFile, RefusesCountsAboveWhatFollows) {
  GgufBuilder keys = small_file();
  keys.extra_key_count = 1;
  EXPECT_THROW(parse(keys.build()), Error);
  GgufBuilder tensors = small_file();
  tensors.extra_tensor_count = 1;
  EXPECT_THROW(parse(tensors.build()), Error);
}

TEST(GgufFile, RefusesStringsLongerThanTheFile) {
  const auto with_length = [](std::uint64_t length) { return header(0, 1).number(length).pad(128).data(); };
  expect_refused(with_length(std::numeric_limits<std::uint64_t>::max()), "expected at most");
  expect_refused(with_length(1000), "expected 1000 bytes");
}

TEST(GgufFile, RefusesArraysLongerThanTheFile) {
  for (const std::int32_t type : {test::kString, test::kU64, test::kU8}) {
    for (const std::uint64_t count : {std::uint64_t{1} << 30, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
      GgufBuilder builder;
      builder.value("a", test::kArray, Bytes().number(type).number(count).pad(64));
      expect_refused(builder, "key 'a': expected an array that fits");
    }
  }
}

TEST(GgufFile, RefusesAnArrayWhoseStringsExceedTheFile) {
  GgufBuilder builder;
  builder.value("a", test::kArray,
                Bytes().number(test::kString).number(std::uint64_t{2}).string("x").number(~std::uint64_t{0}));
  expect_refused(builder, "string in an array");
}

TEST(GgufFile, RefusesNestedArrays) {
  GgufBuilder builder;
  builder.value("a", test::kArray, Bytes().number(test::kArray).number(std::uint64_t{0}));
  expect_refused(builder, "arrays of arrays");
}

TEST(GgufFile, RefusesUnknownValueTypes) {
  for (const std::int32_t type : {13, -1, std::numeric_limits<std::int32_t>::max()}) {
    GgufBuilder builder;
    builder.value("k", type, Bytes().number(std::uint64_t{0}));
    expect_refused(builder, "key 'k': expected a value type from 0 to 12, found " + std::to_string(type));
  }
}

TEST(GgufFile, RefusesBoolsOtherThanZeroAndOne) {
  GgufBuilder scalar, array;
  expect_refused(scalar.value("b", test::kBool, Bytes().number(std::uint8_t{2})), "key 'b': expected a bool");
  expect_refused(array.bools("b", {0, 1, 255}), "key 'b': expected a bool");
}

TEST(GgufFile, RefusesAKeyThatOccursTwice) {
  expect_refused(small_file().duplicate_key("f"), "key 'f' occurs twice");
}

TEST(GgufFile, RefusesAKeyWithoutName) {
  expect_refused(GgufBuilder().u8("", 1), "expected a name");
}

TEST(GgufFile, RefusesATensorThatOccursTwice) {
  expect_refused(small_file().f32_tensor("first", {1}, {0}), "tensor 'first' occurs twice");
}

TEST(GgufFile, RefusesBadAlignments) {
  for (const std::uint32_t alignment : {0u, 3u, 4u, 48u}) {
    expect_refused(small_file().u32("general.alignment", alignment), "expected a power of two of at least 8");
  }
  expect_refused(small_file().u32("general.alignment", 1u << 31), "expected offset 2147483648");
  expect_refused(small_file().u64("general.alignment", 32), "key 'general.alignment': expected u32, found u64");
}

TEST(GgufFile, RefusesBadTensorNames) {
  expect_refused(GgufBuilder().f32_tensor("", {1}, {0}), "name of 1 to 63 bytes, found 0");
  expect_refused(GgufBuilder().f32_tensor(std::string(64, 'n'), {1}, {0}), "name of 1 to 63 bytes, found 64");
}

TEST(GgufFile, RefusesMoreThanFourDimensions) {
  expect_refused(GgufBuilder().f32_tensor("t", {1, 1, 1, 1, 1}, {0}), "at most 4 dimensions, found 5");
}

TEST(GgufFile, RefusesDimensionsBelowOne) {
  for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    expect_refused(GgufBuilder().f32_tensor("t", {4, dim}, {0}),
                   "dimensions of at least 1, found " + std::to_string(dim));
  }
}

TEST(GgufFile, RefusesSizesThatOverflow) {
  constexpr std::int64_t k32 = std::int64_t{1} << 32;
  expect_refused(GgufBuilder().f32_tensor("t", {k32, k32 / 2}, {0}), "more than 2^63 elements");
  expect_refused(GgufBuilder().f32_tensor("t", {k32, k32 / 2 - 1}, {0}), "blocks of 4 bytes");
  expect_refused(GgufBuilder().f32_tensor("t", {std::numeric_limits<std::int64_t>::max()}, {0}), "blocks of 4 bytes");
}

TEST(GgufFile, RefusesRowsThatAreNoWholeBlocks) {
  expect_refused(GgufBuilder().tensor("t", {33}, kTypeQ8, std::vector<std::byte>(68)),
                 "multiple of 32 elements for Q8_0");
}

TEST(GgufFile, RefusesRemovedAndUndefinedTensorTypes) {
  for (const std::int32_t type : {4, 5, 31, 33, 36, 38, 43, -1}) {
    expect_refused(GgufBuilder().tensor("t", {256}, type, std::vector<std::byte>(1024)),
                   "found id " + std::to_string(type));
  }
}

TEST(GgufFile, NamesTensorTypesThatAreNotSupported) {
  expect_refused(GgufBuilder().tensor("t", {256}, 19, std::vector<std::byte>(50)), "IQ1_S", ErrorKind::unsupported);
  expect_refused(GgufBuilder().tensor("t", {256}, 15, std::vector<std::byte>(292)), "Q8_K", ErrorKind::unsupported);
}

TEST(GgufFile, RefusesHolesAndOverlapsBetweenTensors) {
  for (const std::int64_t shift : {-32, -1, 1, 32}) {
    GgufBuilder builder = small_file();
    builder.tensor("third", {1}, kTypeF32, std::vector<std::byte>(4), shift);
    expect_refused(builder, "tensor 'third': expected offset 128, found " + std::to_string(128 + shift));
  }
}

TEST(GgufFile, RefusesATensorThatEndsOneByteAfterTheFile) {
  auto bytes = small_file().build();
  bytes.pop_back();
  expect_refused(bytes, "tensor 'second': expected 68 bytes");
}

TEST(GgufFile, EscapesNamesInMessages) {
  GgufBuilder builder;
  builder.string(std::string(1000, 'k') + "\n", "");
  builder.duplicate_key(std::string(1000, 'k') + "\n");
  expect_refused(builder, "kkk...' occurs twice");
  expect_refused(GgufBuilder().u8("a\n\xff", 1).duplicate_key("a\n\xff"), "key 'a\\x0a\\xff' occurs twice");
}

TEST(GgufFile, OpensAFileOnDisk) {
  const test::TemporaryFile disk(small_file().build());
  GgufFile file = GgufFile::open(disk.path());
  EXPECT_EQ(file.name(), disk.path().string());
  const GgufFile moved = std::move(file);
  EXPECT_EQ(moved.tensors()[1].data[67], std::byte{7});
}

TEST(GgufFile, ReadsDiscardedBytesAgain) {
  std::vector<float> values(5000);
  std::iota(values.begin(), values.end(), 0.0f);
  const test::TemporaryFile disk(GgufBuilder().f32_tensor("t", {5000}, values).build());
  const GgufFile file = GgufFile::open(disk.path());
  const auto data = file.tensors()[0].data;
  EXPECT_EQ(std::memcmp(data.data(), values.data(), data.size()), 0);
  file.discard(data);
  EXPECT_EQ(std::memcmp(data.data(), values.data(), data.size()), 0);
}

TEST(GgufFile, SaysWhyAFileCannotBeOpened) {
  expect_error(ErrorKind::not_found, "/no/such/file.gguf", [] { GgufFile::open("/no/such/file.gguf"); });
  expect_error(ErrorKind::io, "expected a regular file", [] { GgufFile::open("/"); });
  const test::TemporaryFile empty(std::span<const std::byte>{});
  expect_error(ErrorKind::invalid_request, "found a file of 0 bytes", [&] { GgufFile::open(empty.path()); });
}

}  // namespace
}  // namespace bankml
