#include "bankml/text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "bankml/base/error.hpp"
#include "text/vocabularies.hpp"

namespace bankml {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The message of the error that constructing it throws, "" if none.
std::string refusal(const VocabularySource& source, ErrorKind kind = ErrorKind::invalid_request) {
  try {
    const Tokenizer tokenizer(source);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return {};
}

TEST(Tokenizer, RefusesWhatIsNotBuiltInByName) {
  auto source = bpe_of_bytes("viking");
  EXPECT_THAT(refusal(source, ErrorKind::unsupported), AllOf(HasSubstr("viking"), HasSubstr("llama-bpe, llama3")));
  source.model = "bert";
  EXPECT_THAT(refusal(source, ErrorKind::unsupported), AllOf(HasSubstr("bert"), HasSubstr("gpt2")));
}

TEST(Tokenizer, TakesTheDefaultPreTokenizerIfNoneIsNamed) {
  const Tokenizer tokenizer(bpe_of_bytes(""));
  EXPECT_EQ(tokenizer.decode_clean(tokenizer.encode("a !", false, false), false), "a!") << "its clean_spaces is on";
}

TEST(Tokenizer, RefusesInconsistentTables) {
  auto source = bpe_of_bytes();
  source.tokens[7] = source.tokens[5];
  EXPECT_THAT(refusal(source), AllOf(HasSubstr("5"), HasSubstr("7")));
  source = bpe_of_bytes();
  source.types.pop_back();
  EXPECT_THAT(refusal(source), AllOf(HasSubstr("255"), HasSubstr("256")));
  source.tokens.clear();
  EXPECT_NE(refusal(source), "");
}

TEST(Tokenizer, CutsLongTextsOfAFileInItsMessages) {
  auto source = bpe_of_bytes(std::string(100'000, 'x'));
  EXPECT_LT(refusal(source, ErrorKind::unsupported).size(), 1000u);
  source = bpe_of_bytes();
  source.merges = {std::string(100'000, 'x')};
  EXPECT_LT(refusal(source).size(), 1000u);
  source = bpe_of_bytes();
  source.tokens[1] = source.tokens[0] = std::string(1000, '\n');
  EXPECT_THAT(refusal(source), AllOf(HasSubstr("\\x0a"), Not(HasSubstr("\n"))));
}

// As llama-server b11192 shows them.
TEST(Tokenizer, NeverShowsTokensOfUndefinedOrUnknownTypes) {
  for (const std::int32_t type : {0, 7, -1}) {
    auto source = bpe_of_bytes();
    source.types['a'] = type;
    const Tokenizer tokenizer(source);
    EXPECT_THAT(tokenizer.encode("ab", false, false), ElementsAre('a', 'b'));
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{'a', 'b'}, true), "b");
  }
}

TEST(Tokenizer, IgnoresSuppressedIdsOutsideTheVocabulary) {
  auto source = bpe_of_bytes();
  source.suppress_tokens = {-1, 3, 256};
  EXPECT_THAT(Tokenizer(source).suppressed(), ElementsAre(3));
}

TEST(Tokenizer, GivesTokensWithoutTextAName) {
  auto source = bpe_of_bytes();
  const TokenId id = add_token(source, "");
  EXPECT_EQ(Tokenizer(source).piece(id, false), "[EMPTY_256]");
}

TEST(Tokenizer, AddsBosAndEosIfAskedAndWantedByTheVocabulary) {
  auto source = spm_of_bytes();
  source.add_space_prefix = false;
  EXPECT_THAT(Tokenizer(source).encode("", true, false), ElementsAre(1));
  EXPECT_THAT(Tokenizer(source).encode("", false, false), ElementsAre());
  source.add_eos = true;
  EXPECT_THAT(Tokenizer(source).encode("A", true, false), ElementsAre(1, kFirstSpmByte + 'A', 2));
  source.add_bos = false;
  EXPECT_FALSE(Tokenizer(source).adds_bos());
  EXPECT_THAT(Tokenizer(source).encode("A", true, false), ElementsAre(kFirstSpmByte + 'A', 2));
}

TEST(Tokenizer, DoublesABosThatTheTextBeginsWith) {
  EXPECT_THAT(Tokenizer(spm_of_bytes()).encode("<s>", true, true), ElementsAre(1, 1));
}

TEST(Tokenizer, BpeAddsBosOnlyForSomePreTokenizers) {
  auto source = bpe_of_bytes("llama-bpe");
  source.bos = 3;
  EXPECT_THAT(Tokenizer(source).encode("", true, false), ElementsAre(3));
  source.pre = "gpt-2";
  EXPECT_THAT(Tokenizer(source).encode("", true, false), ElementsAre());
}

TEST(Tokenizer, DefaultIdsOutsideTheVocabularyAreNone) {
  VocabularySource source;
  source.model = "gpt2";
  source.pre = "llama-bpe";
  add_token(source, "a");
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_THAT(tokenizer.encode("a", true, false), ElementsAre(0));
}

TEST(Tokenizer, IgnoresIdsOutsideTheVocabulary) {
  auto source = spm_of_bytes();
  source.bos = 100'000;
  source.eot = 100'000;
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eot(), std::nullopt);
}

TEST(Tokenizer, BpePiecesAreBytes) {
  auto source = bpe_of_bytes();
  const TokenId word = add_token(source, "\u0120na\u00c3\u00af\u010a");
  const TokenId foreign = add_token(source, "\u4e16");
  const TokenId user = add_token(source, "\u0120\u0120", TokenType::user_defined);
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.piece(0xE2, false), "\xE2");
  EXPECT_EQ(tokenizer.piece(word, false), " na\u00ef\n");
  EXPECT_EQ(tokenizer.piece(foreign, false), "\u4e16") << "outside of the byte alphabet";
  EXPECT_EQ(tokenizer.piece(user, false), "\u0120\u0120") << "user-defined texts are as they are";
}

TEST(Tokenizer, SpmPiecesHaveSpacesAndBytes) {
  auto source = spm_of_bytes();
  const TokenId word = add_token(source, "\u2581a\u2581");
  const TokenId user = add_token(source, "\u2581", TokenType::user_defined);
  const TokenId unused = add_token(source, "<unused0>", TokenType::unused);
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.piece(word, false), " a ");
  EXPECT_EQ(tokenizer.piece(user, false), "\u2581");
  EXPECT_EQ(tokenizer.piece(unused, true), "");
  EXPECT_EQ(tokenizer.piece(kFirstSpmByte, false), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer.piece(kFirstSpmByte + 0xAF, false), "\xAF");
}

TEST(Tokenizer, ControlAndUnknownTokensShowOnlyAsSpecial) {
  const Tokenizer tokenizer(spm_of_bytes());
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, 1, kFirstSpmByte + 'A', 2}, false), "A");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, 1, kFirstSpmByte + 'A', 2}, true), "<unk><s>A</s>");
  EXPECT_TRUE(tokenizer.is_control(1));
  EXPECT_FALSE(tokenizer.is_control(0));
}

TEST(Tokenizer, CleanDecodingDropsTheSpacePrefix) {
  auto source = spm_of_bytes();
  add_token(source, "\u2581");
  const Tokenizer tokenizer(source);
  const auto ids = tokenizer.encode("ab", true, false);
  EXPECT_EQ(tokenizer.decode(ids, false), " ab");
  EXPECT_EQ(tokenizer.decode_clean(std::span(ids).subspan(1), false), "ab");
  EXPECT_EQ(tokenizer.decode_clean(ids, true), "<s> ab") << "the first piece is <s>";
}

TEST(Tokenizer, CleanDecodingMovesPunctuationToItsWord) {
  const Tokenizer tokenizer(bpe_of_bytes("gpt-2"));
  const auto clean = [&](std::string_view text) {
    return tokenizer.decode_clean(tokenizer.encode(text, false, false), false);
  };
  EXPECT_EQ(clean("a . b , c ! d ?"), "a. b, c! d?");
  EXPECT_EQ(clean("a  ."), "a .") << "one space";
  EXPECT_EQ(clean("a ' b"), "a'b");
  EXPECT_EQ(clean("a ' ' b"), "a'' b") << "a space is used up once";
  EXPECT_EQ(clean("it 's I 'm we 're 've"), "it's I'm we're've");
  EXPECT_EQ(clean("can 't she 'd we 'll"), "can 't she 'd we 'll");
  const Tokenizer off(bpe_of_bytes("smollm"));
  EXPECT_EQ(off.decode_clean(off.encode("a .", false, false), false), "a .");
}

TEST(Tokenizer, FindsEndOfGenerationTokensByText) {
  auto source = bpe_of_bytes();
  source.eos = 42;
  const TokenId im_end = add_token(source, "<|im_end|>", TokenType::control);
  const TokenId repo = add_token(source, "<reponame>", TokenType::control);
  add_token(source, "<|im_start|>", TokenType::control);
  const Tokenizer tokenizer(source);
  EXPECT_THAT(tokenizer.eog_tokens(), ElementsAre(42, im_end, repo));
  EXPECT_TRUE(tokenizer.is_eog(repo));
  EXPECT_FALSE(tokenizer.is_eog(0));
  EXPECT_EQ(tokenizer.eot(), im_end);
}

TEST(Tokenizer, ATokenFoundByTextBecomesAControlToken) {
  auto source = bpe_of_bytes();
  const TokenId end = add_token(source, "</s>", TokenType::user_defined);
  const Tokenizer tokenizer(source);
  EXPECT_TRUE(tokenizer.is_control(end));
  EXPECT_EQ(tokenizer.piece(end, false), "");
  EXPECT_THAT(tokenizer.encode("</s>", false, true), ElementsAre(end));
  EXPECT_THAT(tokenizer.encode("</s>", false, false), ElementsAre('<', '/', 's', '>'));
}

TEST(Tokenizer, AKeyIsPreferredToATextAndLeavesTheTypeAlone) {
  auto source = bpe_of_bytes();
  source.eot = 65;
  const TokenId pad = add_token(source, "<PAD>", TokenType::user_defined);
  source.fim_pad = 66;
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.eot(), 65);
  EXPECT_FALSE(tokenizer.is_control(65));
  EXPECT_FALSE(tokenizer.is_control(pad));
  EXPECT_TRUE(tokenizer.is_eog(66));
}

TEST(Tokenizer, AnswersOfGptOssEndWithReturnOrCallOnly) {
  auto source = bpe_of_bytes();
  const TokenId end = add_token(source, "<|end|>", TokenType::control);
  const TokenId ret = add_token(source, "<|return|>", TokenType::control);
  const TokenId call = add_token(source, "<|call|>", TokenType::control);
  const TokenId channel = add_token(source, "<|channel|>", TokenType::control);
  source.eos = static_cast<std::uint32_t>(ret);
  const Tokenizer tokenizer(source);
  EXPECT_THAT(tokenizer.eog_tokens(), ElementsAre(ret, call));
  EXPECT_FALSE(tokenizer.is_control(end));
  EXPECT_EQ(tokenizer.piece(end, false), "<|end|>");
  EXPECT_THAT(tokenizer.encode("<|end|>", false, false), ElementsAre(end));
  EXPECT_EQ(tokenizer.piece(channel, false), "<|channel|>");
  EXPECT_THAT(tokenizer.encode("<|channel|>", false, false), ElementsAre(channel));
}

TEST(Tokenizer, WithToolResponsesTheEndOfSequenceTextIsAnOrdinaryToken) {
  auto source = bpe_of_bytes();
  const TokenId end = add_token(source, "</s>", TokenType::control);
  const TokenId response = add_token(source, "<|tool_response>", TokenType::control);
  source.eos = static_cast<std::uint32_t>(response);
  const Tokenizer tokenizer(source);
  EXPECT_THAT(tokenizer.eog_tokens(), ElementsAre(response));
  EXPECT_EQ(tokenizer.piece(end, false), "</s>");
}

TEST(Tokenizer, Phi3TakesTheWhiteSpaceAfterSpecialTokens) {
  auto source = spm_of_bytes();
  source.add_space_prefix = false;
  const TokenId user = add_token(source, "<|user|>", TokenType::control);
  const TokenId a = kFirstSpmByte + 'a';
  source.model_name = "Phi-3 mini";
  EXPECT_THAT(Tokenizer(source).encode("<|user|> \na</s> a", false, true), ElementsAre(user, a, 2, a));
  const TokenId newline = kFirstSpmByte + '\n';
  EXPECT_THAT(Tokenizer(source).encode("<s>\na", false, true), ElementsAre(1, newline, a)) << "not after <s>";
  source.model_name = "Phi-4";
  EXPECT_THAT(Tokenizer(source).encode("<|user|>\na", false, true), ElementsAre(user, newline, a));
}

TEST(Tokenizer, KnowsInfillTokensWhenThereAreThree) {
  auto source = bpe_of_bytes();
  const TokenId prefix = add_token(source, "<fim_prefix>", TokenType::control);
  const TokenId suffix = add_token(source, "<fim_suffix>", TokenType::control);
  EXPECT_FALSE(Tokenizer(source).infill());
  const TokenId middle = add_token(source, "<fim_middle>", TokenType::control);
  const Tokenizer tokenizer(source);
  const auto infill = tokenizer.infill();
  ASSERT_TRUE(infill);
  EXPECT_EQ(infill->prefix, prefix);
  EXPECT_EQ(infill->suffix, suffix);
  EXPECT_EQ(infill->middle, middle);
  EXPECT_FALSE(infill->repository);
}

TEST(Tokenizer, KnowsItsNewline) {
  EXPECT_EQ(Tokenizer(bpe_of_bytes()).newline(), '\n');
  EXPECT_EQ(Tokenizer(spm_of_bytes()).newline(), kFirstSpmByte + '\n');
}

TEST(Tokenizer, PiecesOfAnyTextPutTogetherAreTheText) {
  auto bpe = bpe_of_bytes();
  add_merges(bpe, {{"\u0120", "a"}, {"\u00c3", "\u00a9"}, {"a", "b"}, {"\u0120a", "b"}});
  auto spm = spm_of_bytes();
  spm.add_space_prefix = false;
  for (const char* text : {"\u2581", "\u2581a", "ab", "\u00e9", "b\u00e9"}) add_token(spm, text);
  const Tokenizer tokenizers[] = {Tokenizer(bpe), Tokenizer(spm)};
  const std::vector<std::string> parts = {" ", "a", "b", "\u00e9", "\n", "\U0001F600", "1", "'s", "\u3000", "<s>"};
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (auto n = random() % 30; n > 0; --n) text += parts[random() % parts.size()];
    for (const Tokenizer& tokenizer : tokenizers) {
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, false, true), true), text);
    }
  }
}

}  // namespace
}  // namespace bankml
