// Reasoning in chat answers, as llama-server b11192 gives it for the same template and generated text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/answer_format.hpp"
#include "server/chat_text.hpp"
#include "server/generation_fixture.hpp"
#include "server/json_writer.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Reasoning : public GenerationFixture {
 protected:
  Reasoning() {
    generation.request.think = {"<think>\n", "\n</think>\n\n"};
    generation.request.echoed.chat_format = kChatFormatOfTemplates;
    generation.request.echoed.generation_prompt = "<|im_start|>assistant\n";
  }

  // The message of a whole answer.
  std::string message(const std::string& text) {
    Done one = done();
    one.text = text;
    return to_json(whole(make_chat_format, {one}).at("choices").at(0).at("message"));
  }
  // The deltas of a stream.
  std::vector<std::string> deltas(const std::vector<std::string>& pieces) {
    const auto format = make_chat_format(generation);
    std::string events;
    for (const std::string& text : pieces) format->append_piece(0, piece(text, 97, 1), events);
    std::vector<std::string> out;
    for (std::size_t end; (end = events.find("\n\n")) != std::string::npos; events.erase(0, end + 2)) {
      constexpr std::size_t kData = std::string_view("data: ").size();
      out.push_back(to_json(boost::json::parse(events.substr(kData, end - kData)).at("choices").at(0).at("delta")));
    }
    return out;
  }
};

constexpr const char* kRole = R"({"role":"assistant","content":null})";

TEST_F(Reasoning, IsAFieldOfItsOwn) {
  EXPECT_EQ(message("<think>\nabc\n</think>\n\nhello"),
            R"({"role":"assistant","content":"hello","reasoning_content":"abc\n"})");
  EXPECT_EQ(message("<think>abc"), R"({"role":"assistant","content":"","reasoning_content":"abc"})");
  EXPECT_EQ(message("hello"), R"({"role":"assistant","content":"hello"})");
}

TEST_F(Reasoning, IsStreamedAsItsOwnDelta) {
  EXPECT_THAT(deltas({"<think", ">", "a", "b", "</th", "ink>", "c", "d"}),
              ElementsAre(kRole, R"({"reasoning_content":"a"})", R"({"reasoning_content":"b"})", R"({"content":"c"})",
                          R"({"content":"d"})"));
}

TEST_F(Reasoning, StaysInTheContentWithoutTags) {
  generation.request.think = {};
  EXPECT_EQ(message("<think>abc</think>hello"), R"({"role":"assistant","content":"<think>abc</think>hello"})");
  EXPECT_THAT(deltas({"<think>", "a"}), ElementsAre(kRole, R"({"content":"<think>"})", R"({"content":"a"})"));
}

TEST_F(Reasoning, StaysInTheContentWhenItIsToBeHeard) {
  generation.request.thinking = Thinking::aloud;
  generation.request.echoed.generation_prompt = "<|im_start|>assistant\n<think>\n";
  EXPECT_EQ(message("abc\n</think>\n\nhello"), R"({"role":"assistant","content":"<think>\nabc\n</think>\n\nhello"})");
  EXPECT_THAT(deltas({"a", "</think>b"}),
              ElementsAre(kRole, R"({"content":"<think>\na"})", R"({"content":"</think>b"})"));
}

// Every API's last event is the error then.
TEST_F(Reasoning, AnAnswerThatItsTemplateDoesNotKnowFails) {
  generation.request.think = {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"};
  generation.request.echoed.generation_prompt = "<|start|>assistant";
  Done one = done();
  one.text = "hello";
  for (const MakeFormat make : {make_chat_format, make_responses_format, make_messages_format}) {
    EXPECT_THROW(whole(make, {one}), Error);
    const auto format = make(generation);
    std::string events;
    format->append_piece(0, piece("hello", 97, 1), events);
    EXPECT_THAT(events, Not(HasSubstr("hello")));
    EXPECT_THROW(format->append_done(0, one, events), Error);
  }
}

TEST_F(Reasoning, OfAContinuedMessageComesFirst) {
  generation.request.echoed.generation_prompt = "<|im_start|>assistant\n<think>\nrea\n</think>\n\n";
  generation.request.prefill = "pre";
  EXPECT_EQ(message("he"), R"({"role":"assistant","content":"prehe","reasoning_content":"rea\n"})");
  EXPECT_THAT(deltas({"h", "e"}),
              ElementsAre(kRole, R"({"reasoning_content":"rea\n"})", R"({"content":"preh"})", R"({"content":"e"})"));
  generation.request.streams_prefill = false;
  EXPECT_THAT(deltas({"h", "e"}), ElementsAre(kRole, R"({"content":"h"})", R"({"content":"e"})"));
}

// llama-server b11192 leaves it out of the deltas only.
TEST_F(Reasoning, TheLastEventsOfAResponseHaveTheContinuedText) {
  generation.request.prefill = "pre";
  generation.request.echoed.generation_prompt = "<|im_start|>assistant\n<think>\nrea\n</think>\n\npre";
  generation.request.streams_prefill = false;
  const auto format = make_responses_format(generation);
  std::string events;
  format->append_piece(0, piece("he", 97, 1), events);
  EXPECT_THAT(events, HasSubstr(R"("delta":"he")"));
  format->append_done(0, done(), events);
  EXPECT_THAT(events, HasSubstr(R"("text":"prehe"})"));
}

TEST_F(Reasoning, MayItselfBeContinued) {
  generation.request.echoed.generation_prompt = "<|im_start|>assistant\n<think>\nrea";
  EXPECT_EQ(message("x</think>he"), R"({"role":"assistant","content":"he","reasoning_content":"reax"})");
  generation.request.streams_prefill = false;
  EXPECT_THAT(deltas({"x", "</think>", "h"}), ElementsAre(kRole, R"({"reasoning_content":"x"})", R"({"content":"h"})"));
}

}  // namespace
}  // namespace bankml::test
