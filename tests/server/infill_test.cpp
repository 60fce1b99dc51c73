#include "server/infill.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/fake_service.hpp"
#include "server/fields.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::StartsWith;

// The bytes, and these: 258 prefix, 259 suffix, 260 middle, 261 repository, 262 separator.
VocabularySource infill_vocabulary(bool with_files) {
  VocabularySource source = tiny_vocabulary();
  for (const char* name : {"<P>", "<S>", "<M>", "<R>", "<F>"}) {
    source.tokens.emplace_back(name);
    source.types.push_back(static_cast<std::int32_t>(TokenType::control));
  }
  if (!source.scores.empty()) source.scores.resize(source.tokens.size());
  source.fim_pre = 258;
  source.fim_suf = 259;
  source.fim_mid = 260;
  if (with_files) {
    source.fim_rep = 261;
    source.fim_sep = 262;
  }
  return source;
}

class InfillTest : public testing::Test {
 protected:
  std::string prompt(std::string_view body, const Tokenizer& tokenizer) {
    const TokenIds tokens = infill_prompt(parse_infill(parse_body(body)), tokenizer, limits, suffix_first);
    return tokenizer.decode(tokens, true);
  }
  std::string prompt(std::string_view body) { return prompt(body, tokenizer_); }

  InfillLimits limits{.batch = 64, .context = 512, .n_predict = 4};
  bool suffix_first = false;

 private:
  Tokenizer tokenizer_{infill_vocabulary(true)};
};

TEST_F(InfillTest, PutsTheProjectAndTheFileAroundTheCursor) {
  EXPECT_EQ(prompt(R"({"input_prefix":"AB","input_suffix":"CD","prompt":"PP"})"),
            "<R>myproject\n<F>filename\n<P>ABPP<S>CD<M>");
}

TEST_F(InfillTest, PutsTheSuffixFirstWhereModelsWantIt) {
  suffix_first = true;
  EXPECT_EQ(prompt(R"({"input_prefix":"AB","input_suffix":"CD","prompt":"PP"})"),
            "<R>myproject\n<F>filename\n<S>CD<P>ABPP<M>");
}

TEST_F(InfillTest, ShowsOtherFilesWithTheirNames) {
  EXPECT_EQ(prompt(R"({"input_prefix":"A","input_suffix":"C","input_extra":[
                       {"filename":"f.c","text":"XX"},{"text":"Y"}]})"),
            "<R>myproject\n<F>f.c\nXX<F>tmp\nY<F>filename\n<P>A<S>C<M>");
}

TEST_F(InfillTest, SeparatesFilesByTextWithoutATokenForIt) {
  const Tokenizer tokenizer(infill_vocabulary(false));
  EXPECT_EQ(prompt(R"({"input_prefix":"A","input_suffix":"C","input_extra":[{"text":"XX"}]})", tokenizer),
            "\n\n--- snippet ---\n\nXX<P>A<S>C<M>");
}

// Recorded from llama-server b11192: 48 tokens of the prefix, 64 / 4 - (2 + 4) of the suffix.
TEST_F(InfillTest, KeepsWhatIsNearTheCursor) {
  const std::string text =
      prompt(R"({"input_prefix":")" + std::string(100, 'a') + std::string(48, 'b') + R"(","input_suffix":")" +
             std::string(10, 'c') + std::string(90, 'd') + R"(","prompt":"PPPP"})");
  EXPECT_THAT(text, EndsWith("<P>" + std::string(48, 'b') + "PPPP<S>" + std::string(10, 'c') + "<M>"));
}

// 512 - 64 - 2 * 4 tokens of files and names.
TEST_F(InfillTest, KeepsTheEndOfOtherFiles) {
  const std::string text =
      prompt(R"({"input_prefix":"A","input_suffix":"C","input_extra":[{"text":")" + std::string(600, 'z') + R"("}]})");
  EXPECT_THAT(text, StartsWith(std::string(440 - 10, 'z') + "<F>filename\n<P>"));
}

TEST_F(InfillTest, ReadsSpecialTokensInThePromptOnly) {
  const Tokenizer tokenizer(infill_vocabulary(false));
  const InfillText text = parse_infill(parse_body(R"({"input_prefix":"<M>","input_suffix":"<M>","prompt":"<M>"})"));
  EXPECT_THAT(infill_prompt(text, tokenizer, limits, false),
              ElementsAre(258, '<', 'M', '>', 260, 259, '<', 'M', '>', 260));
}

TEST_F(InfillTest, RefusesWhatIsMissingOrOfAnotherType) {
  const auto refused = [&](std::string_view body, ErrorKind kind, std::string_view part) {
    expect_error(kind, part, [&] { parse_infill(parse_body(body)); });
  };
  refused("{}", ErrorKind::internal, "input_prefix");
  refused(R"({"input_prefix":"a","input_suffix":5})", ErrorKind::internal, "input_suffix");
  for (const char* extra : {"5", "[5]", "[{}]", R"([{"text":5}])", R"([{"text":"a","filename":5}])"}) {
    refused(R"({"input_prefix":"a","input_suffix":"b","input_extra":)" + std::string(extra) + "}",
            ErrorKind::invalid_request, "input_extra");
  }
  EXPECT_TRUE(parse_infill(parse_body(R"({"input_prefix":"a","input_suffix":"b","prompt":5})")).prompt.empty());
}

TEST_F(InfillTest, IsRefusedWithoutItsTokens) {
  const Tokenizer plain(tiny_vocabulary());
  expect_error(ErrorKind::unsupported, "infill", [&] { check_can_infill(plain); });
}

}  // namespace
}  // namespace bankml::test
