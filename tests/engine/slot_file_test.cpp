#include "bankml/engine/slot_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "bankml/base/error.hpp"
#include "engine/checksum.hpp"

namespace bankml {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kVocab = 1000;
constexpr std::size_t kContext = 64;

SlotFileFormat small_format() {
  SlotFileFormat format;
  format.model = "tiny";
  format.type_k = DType::f16;
  format.type_v = DType::q8_0;
  format.layers = {{8, 34}, {8, 34}, {16, 34}};
  return format;
}

// What the rows of a token hold in these tests.
std::byte row_byte(std::size_t cell, std::size_t i) {
  return static_cast<std::byte>(cell * 31 + i * 7 + 1);
}

void fill(std::size_t cell, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = row_byte(cell, i);
}

class SlotFileTest : public ::testing::Test {
 protected:
  SlotFileTest() {
    std::string name = (fs::temp_directory_path() / "bankml-slots-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    path = folder_ / "slot.bin";
  }
  ~SlotFileTest() override { fs::remove_all(folder_); }

  std::uint64_t write(const std::vector<TokenId>& tokens) { return write_slot_file(path, tokens, format, fill); }
  SlotFile open() const { return SlotFile::open(path, format, kContext, kVocab); }

  std::vector<char> bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::vector<char>& data) const {
    std::ofstream(path, std::ios::binary).write(data.data(), static_cast<std::streamsize>(data.size()));
  }
  std::vector<std::uint32_t> words() const {
    const std::vector<char> data = bytes();
    std::vector<std::uint32_t> out(data.size() / 4);
    std::memcpy(out.data(), data.data(), out.size() * 4);
    return out;
  }
  // Puts a word into the file, by its index.
  void set_word(std::size_t index, std::uint32_t value) const {
    std::vector<char> data = bytes();
    std::memcpy(data.data() + index * 4, &value, 4);
    put(data);
  }
  // Puts other words in the place of the head; the state behind stays.
  void replace_head(std::size_t old_words, const std::vector<std::uint32_t>& head) const {
    const std::vector<char> old = bytes();
    std::vector<char> data(head.size() * 4);
    std::memcpy(data.data(), head.data(), data.size());
    data.insert(data.end(), old.begin() + static_cast<std::ptrdiff_t>(old_words * 4), old.end());
    put(data);
  }

  // The message of the refusal, "" if there is none.
  std::string refusal() const {
    try {
      open();
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      return error.what();
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path().filename());
    return out;
  }

  fs::path folder_, path;
  SlotFileFormat format = small_format();
};

SlotFileFormat with_a_window(SlotFileFormat format) {
  format.window_layers = {{4, 6}};
  format.window = 3;
  return format;
}

TEST_F(SlotFileTest, GivesBackTheRowsOfLayersWithAWindowInTheirOrder) {
  const SlotFileFormat windowed = with_a_window(format);
  const std::vector<TokenId> tokens = {1, 999, 0, 5};
  const std::vector<std::int32_t> window_tokens = {3, 1, 2};
  const std::uint64_t written = write_slot_file(path, tokens, windowed, fill, window_tokens);
  EXPECT_EQ(written, fs::file_size(path));
  const SlotFile file = SlotFile::open(path, windowed, kContext, kVocab);
  EXPECT_EQ(file.window_tokens(), window_tokens);
  std::vector<std::size_t> sizes;
  file.read_cells([&](std::size_t cell, std::span<const std::byte> rows) {
    sizes.push_back(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], row_byte(cell, i)) << "cell " << cell;
  });
  const std::size_t all = format.cell_bytes();
  EXPECT_THAT(sizes, ElementsAre(all, all, all, all, 10, 10, 10));
}

TEST_F(SlotFileTest, RefusesOtherTokensThanTheLastOnesInLayersWithAWindow) {
  format = with_a_window(format);
  const std::vector<TokenId> tokens = {1, 999, 0, 5};
  write_slot_file(path, tokens, format, fill, std::vector<std::int32_t>{3, 0, 2});
  EXPECT_THAT(refusal(), HasSubstr("expected token 1 in layers with a window, got 0"));
  write_slot_file(path, tokens, format, fill, std::vector<std::int32_t>{3, 2});
  EXPECT_THAT(refusal(), HasSubstr("expected 3 tokens in layers with a window, got 2"));
  write_slot_file(path, tokens, small_format(), fill);
  EXPECT_NE(refusal(), "");
}

TEST_F(SlotFileTest, GivesBackTokensAndRows) {
  const std::vector<TokenId> tokens = {1, 999, 0, 5};
  const std::uint64_t written = write(tokens);
  EXPECT_EQ(written, fs::file_size(path));
  const SlotFile file = open();
  EXPECT_EQ(file.tokens(), tokens);
  EXPECT_EQ(file.bytes(), written);
  std::size_t cells = 0;
  file.read_cells([&](std::size_t cell, std::span<const std::byte> rows) {
    EXPECT_EQ(cell, cells++);
    ASSERT_EQ(rows.size(), format.cell_bytes());
    for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], row_byte(cell, i));
  });
  EXPECT_EQ(cells, 4u);
}

TEST_F(SlotFileTest, HoldsStatesLargerThanTheBuffer) {
  format.layers = {{300000, 300000}, {300000, 500000}};
  write({1, 2, 3});
  std::size_t cells = 0;
  open().read_cells([&](std::size_t cell, std::span<const std::byte> rows) {
    ++cells;
    EXPECT_EQ(rows.back(), row_byte(cell, rows.size() - 1));
  });
  EXPECT_EQ(cells, 3u);
}

TEST_F(SlotFileTest, HoldsAnEmptySlot) {
  write({});
  EXPECT_THAT(open().tokens(), IsEmpty());
}

TEST_F(SlotFileTest, BeginsWithTheWordsThatToolsEdit) {
  write({7, 8});
  const auto all = words();
  EXPECT_THAT(std::vector(all.begin() + 2, all.begin() + 9), ElementsAre(6, 0xFFFFFFFF, 1, 2, 7, 8, 0));
}

TEST_F(SlotFileTest, TakesAPlainListOfTokens) {
  write({7, 8});
  const auto old = words();
  replace_head(9, {old[0], old[1], 2, 7, 8});
  EXPECT_THAT(open().tokens(), ElementsAre(7, 8));
}

TEST_F(SlotFileTest, TakesEditedTokens) {
  write({7, 8});
  set_word(7, 99);
  EXPECT_THAT(open().tokens(), ElementsAre(7, 99));
}

TEST_F(SlotFileTest, RefusesEditsOfTheHeadThatDoNotFit) {
  write({7, 8});
  const auto good = bytes();
  const auto after = [&](std::size_t index, std::uint32_t value) {
    put(good);
    set_word(index, value);
    return refusal();
  };
  EXPECT_THAT(after(0, 1), HasSubstr("magic"));
  EXPECT_THAT(after(1, 2), HasSubstr("expected version 1, got 2"));
  EXPECT_THAT(after(2, 0x7FFFFFFF), HasSubstr("words"));
  EXPECT_THAT(after(2, 3), HasSubstr("payload words"));
  EXPECT_THAT(after(2, 5), HasSubstr("tokens"));
  EXPECT_THAT(after(4, 9), HasSubstr("payload version 1, got 9"));
  EXPECT_THAT(after(5, 1000000), HasSubstr("tokens"));
  EXPECT_THAT(after(5, 1), HasSubstr("media"));
  EXPECT_THAT(after(6, 1000), HasSubstr("expected tokens from 0 to 999, got 1000"));
  EXPECT_THAT(after(6, 0xFFFFFFFF), HasSubstr("got -1"));
  EXPECT_THAT(after(8, 1), HasSubstr("media"));
}

// Texts that clients of llama-server look for (docs/http-api.md 6).
TEST_F(SlotFileTest, SaysInTheWordsOfLlamaServerWhatCannotBeRestored) {
  constexpr const char* kNoSlotFile = "No available space in KV cache or invalid slot save file";
  write({7, 8});
  const auto good = bytes();
  set_word(4, 99);
  EXPECT_THAT(refusal(), HasSubstr("Unsupported server tokens state version"));
  put(good);
  set_word(2, 0xFFFFFFF0);
  EXPECT_THAT(refusal(), HasSubstr(kNoSlotFile));
  put({good.begin(), good.begin() + 20});
  EXPECT_THAT(refusal(), HasSubstr(kNoSlotFile));
}

TEST_F(SlotFileTest, RefusesATokenMoreThanThereAreCells) {
  write({7, 8});
  const auto old = words();
  replace_head(9, {old[0], old[1], 3, 7, 8, 9});
  EXPECT_THAT(refusal(), HasSubstr("cells"));
}

TEST_F(SlotFileTest, RefusesEveryTornFile) {
  write({7, 8, 9});
  const auto good = bytes();
  for (std::size_t n = 0; n < good.size(); ++n) {
    put({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
    EXPECT_NE(refusal(), "") << n << " of " << good.size() << " bytes";
  }
  auto longer = good;
  longer.push_back(0);
  put(longer);
  EXPECT_THAT(refusal(), HasSubstr("file size"));
}

TEST_F(SlotFileTest, RefusesEveryDamagedByteOfTheState) {
  write({7, 8, 9});
  const auto good = bytes();
  for (std::size_t i = 10 * 4; i < good.size(); ++i) {
    auto damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    put(damaged);
    EXPECT_NE(refusal(), "") << "byte " << i;
  }
}

TEST_F(SlotFileTest, RefusesTheStateOfAnotherModelOrCacheType) {
  write({7, 8});
  const auto with = [&](auto change) {
    format = small_format();
    change(format);
    return refusal();
  };
  EXPECT_THAT(with([](SlotFileFormat& f) { f.model = "other"; }), HasSubstr("model"));
  EXPECT_THAT(with([](SlotFileFormat& f) { f.type_k = DType::q8_0; }), HasSubstr("expected K cells of type"));
  EXPECT_THAT(with([](SlotFileFormat& f) { f.type_v = DType::f16; }), HasSubstr("expected V cells of type"));
  EXPECT_THAT(with([](SlotFileFormat& f) { f.layers.pop_back(); }), HasSubstr("expected layers 2, got 3"));
  EXPECT_THAT(with([](SlotFileFormat& f) { f.layers[2].k = 8; }),
              HasSubstr("expected rows of 8 and 34 bytes in layer 2, got 16 and 34"));
}

TEST_F(SlotFileTest, TakesAsManyTokensAsTheSlotHolds) {
  write(std::vector<TokenId>(kContext, 1));
  EXPECT_EQ(refusal(), "");
  write(std::vector<TokenId>(kContext + 1, 1));
  EXPECT_THAT(refusal(), HasSubstr("Restored prompt does not fit in the slot context"));  // what clients look for
  EXPECT_THAT(refusal(), HasSubstr("holds 65 tokens, but the slot has room for 64"));
}

TEST_F(SlotFileTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(refusal(), HasSubstr("can't be read"));
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("regular file"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(refusal(), HasSubstr("regular file"));
}

TEST_F(SlotFileTest, ReplacesAnOlderFile) {
  write({1, 2, 3});
  write({4});
  EXPECT_THAT(open().tokens(), ElementsAre(4));
  EXPECT_THAT(names(), ElementsAre("slot.bin"));
}

TEST_F(SlotFileTest, LeavesTheOldFileWhenTheDiskIsFull) {
  write({1});
  // A limit on the size of files fails a write like a full disk does, once its signal is ignored.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{100, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  ErrorKind kind = ErrorKind::internal;
  try {
    write({1, 2, 3, 4});
  } catch (const Error& error) {
    kind = error.kind();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(kind, ErrorKind::io);
  EXPECT_THAT(names(), ElementsAre("slot.bin"));
  EXPECT_THAT(open().tokens(), ElementsAre(1));
}

TEST_F(SlotFileTest, LeavesNothingBehindWhenTheRowsCannotBeHad) {
  EXPECT_THROW(write_slot_file(path, std::vector<TokenId>{1, 2}, format,
                               [](std::size_t, std::span<std::byte>) { throw std::runtime_error("lost"); }),
               std::runtime_error);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(SlotFileTest, NamesTheProblemWhenTheFolderIsMissing) {
  path = folder_ / "missing" / "slot.bin";
  try {
    write({1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_THAT(error.what(), HasSubstr("slot.bin"));
  }
}

TEST(Checksum, DoesNotDependOnHowTheBytesAreDivided) {
  std::vector<std::byte> data(1000);
  fill(3, data);
  Checksum whole;
  whole.add(data);
  for (const std::size_t piece : {1u, 3u, 7u, 8u, 9u, 64u, 999u}) {
    Checksum divided;
    for (std::size_t i = 0; i < data.size(); i += piece) {
      divided.add(std::span(data).subspan(i, std::min(piece, data.size() - i)));
    }
    EXPECT_EQ(divided.value(), whole.value()) << piece;
  }
}

TEST(Checksum, TellsZerosOfDifferentLengthsApart) {
  const std::vector<std::byte> zeros(16);
  Checksum a, b;
  a.add(std::span(zeros).first(8));
  b.add(std::span(zeros).first(9));
  EXPECT_NE(a.value(), b.value());
}

bool accepted(std::string_view name) {
  try {
    check_slot_file_name(name);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    return false;
  }
}

TEST(SlotFileName, AcceptsPlainNames) {
  for (const std::string_view name :
       {"a", "slot.bin", ".hidden", "two words", "caf\u00e9.bin", "\u4f60\u597d", "a.b.c", "-x"}) {
    EXPECT_TRUE(accepted(name)) << name;
  }
  EXPECT_TRUE(accepted(std::string(255, 'a')));
}

TEST(SlotFileName, RefusesSeparatorsAndReservedCharacters) {
  for (const char c : std::string_view("/\\:*?\"<>|")) EXPECT_FALSE(accepted(std::string("a") + c + "b")) << c;
}

TEST(SlotFileName, RefusesControlCharacters) {
  using namespace std::string_view_literals;
  for (const std::string_view name : {"a\0b"sv,
                                      "a\x01"
                                      "b"sv,
                                      "a\nb"sv, "a\x1f"sv, "a\x7f"sv, "a\u0080"sv, "a\u009f"sv}) {
    EXPECT_FALSE(accepted(name));
  }
}

TEST(SlotFileName, RefusesLookalikesAndMarks) {
  for (const std::string_view name : {"a\uFFFD", "\uFEFFa", "a\uFF0E", "a\u2215b", "a\u2216b"})
    EXPECT_FALSE(accepted(name));
}

TEST(SlotFileName, RefusesWhatIsNotUtf8) {
  for (const std::string_view name : {"a\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(accepted(name));
  }
}

TEST(SlotFileName, RefusesDotsAndSpacesAtTheEdges) {
  for (const std::string_view name : {"", ".", "..", "a..b", "a.", " a", "a "}) EXPECT_FALSE(accepted(name)) << name;
  EXPECT_FALSE(accepted(std::string(256, 'a')));
}

}  // namespace
}  // namespace bankml
