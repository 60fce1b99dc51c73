#include "server/prompt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/fake_service.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PromptTest : public testing::Test {
 protected:
  std::vector<TokenIds> parse(std::string_view json) {
    const boost::json::value value = boost::json::parse({json.data(), json.size()});
    return parse_prompts(&value, tokenizer_);
  }
  Tokenizer tokenizer_{tiny_vocabulary()};
};

TEST_F(PromptTest, TokenizesAStringWithItsSpecialTokens) {
  EXPECT_THAT(parse(R"("ab</s>")"), ElementsAre(ElementsAre('a', 'b', 257)));
}

TEST_F(PromptTest, TakesTokenIdsAsTheyAre) {
  EXPECT_THAT(parse("[1,2,257]"), ElementsAre(ElementsAre(1, 2, 257)));
}

TEST_F(PromptTest, MixesTextsAndTokens) {
  EXPECT_THAT(parse(R"([1,"ab",2])"), ElementsAre(ElementsAre(1, 'a', 'b', 2)));
  EXPECT_THAT(parse(R"(["a",1])"), ElementsAre(ElementsAre('a', 1)));
}

TEST_F(PromptTest, AddsBosOnlyInFrontOfALeadingString) {
  VocabularySource source = tiny_vocabulary();
  source.add_bos = true;
  const Tokenizer tokenizer(source);
  const auto tokens = [&](const char* json) {
    const boost::json::value value = boost::json::parse(json);
    return parse_prompts(&value, tokenizer);
  };
  EXPECT_THAT(tokens(R"("a")"), ElementsAre(ElementsAre(256, 'a')));
  EXPECT_THAT(tokens(R"(["a",1,"b"])"), ElementsAre(ElementsAre(256, 'a', 1, 'b')));
  EXPECT_THAT(tokens(R"([1,"b"])"), ElementsAre(ElementsAre(1, 'b')));
}

TEST_F(PromptTest, FindsAPromptInAnObject) {
  EXPECT_THAT(parse(R"({"prompt_string":"ab"})"), ElementsAre(ElementsAre('a', 'b')));
  EXPECT_THAT(parse(R"({"prompt_string":[1,"a"]})"), ElementsAre(ElementsAre(1, 'a')));
}

TEST_F(PromptTest, ReadsAnArrayWithoutIntegersAsSeveralPrompts) {
  EXPECT_THAT(parse(R"(["a",[1,2],{"prompt_string":"b"}])"),
              ElementsAre(ElementsAre('a'), ElementsAre(1, 2), ElementsAre('b')));
}

TEST_F(PromptTest, AllowsPromptsWithoutTokens) {
  EXPECT_THAT(parse(R"("")"), ElementsAre(IsEmpty()));
  EXPECT_THAT(parse("[[]]"), ElementsAre(IsEmpty()));
}

TEST_F(PromptTest, RefusesOtherShapes) {
  for (const char* json : {"3", "true", "[1.5]", "[true]", "{}", R"(["a",1.5])", R"(["a",null])",
                           R"({"prompt_string":3})", R"({"prompt_string":{"prompt_string":"a"}})"}) {
    expect_error(ErrorKind::invalid_request, "prompt", [&] { parse(json); });
  }
  expect_error(ErrorKind::invalid_request, "empty array", [&] { parse("[]"); });
  expect_error(ErrorKind::invalid_request, "required", [&] { parse_prompts(nullptr, tokenizer_); });
  expect_error(ErrorKind::invalid_request, "text only",
               [&] { parse(R"({"prompt_string":"x","multimodal_data":["a"]})"); });
  expect_error(ErrorKind::invalid_request, "multimodal_data",
               [&] { parse(R"({"prompt_string":"x","multimodal_data":null})"); });
}

TEST_F(PromptTest, RefusesMoreThan1024Prompts) {
  boost::json::value prompts = boost::json::array(1024, "a");
  EXPECT_EQ(parse_prompts(&prompts, tokenizer_).size(), 1024u);
  prompts.get_array().emplace_back("a");
  expect_error(ErrorKind::invalid_request, "at most 1024", [&] { parse_prompts(&prompts, tokenizer_); });
}

TEST_F(PromptTest, RefusesIdsOutsideTheVocabulary) {
  for (const char* json : {"[1,258]", "[-1]", "[99999999999]", "[18446744073709551615]"}) {
    expect_error(ErrorKind::invalid_request, "not in the vocabulary", [&] { parse(json); });
  }
}

TEST_F(PromptTest, FindsWhereMessagesOfTheUserStart) {
  const TokenIds prompt = tokenizer_.encode("<u>one<a>two<u>three", true, true);
  EXPECT_THAT(find_user_messages(prompt, "<u>", tokenizer_), ElementsAre(0, 12));
  EXPECT_THAT(find_user_messages(prompt, "<x>", tokenizer_), IsEmpty());
  EXPECT_THAT(find_user_messages(prompt, "", tokenizer_), IsEmpty());
}

}  // namespace
}  // namespace bankml::test
