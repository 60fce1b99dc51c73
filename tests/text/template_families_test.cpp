// Families of templates and the tags around their reasoning: what llama-server b11192 answered for templates of the
// same form (docs/chat-templates.md section 2.5).
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <string_view>

#include "bankml/base/error.hpp"
#include "bankml/text/chat_template.hpp"

namespace bankml {
namespace {

std::string render(std::string_view source, std::string_view request, TemplateOptions options = {}) {
  return ChatTemplate(source, std::move(options)).render(boost::json::parse(request).as_object()).text;
}

// Shows the members of messages, "<role:content|reasoning|thinking>", and has `mark` in a comment.
std::string showing(std::string_view mark) {
  return "{# " + std::string(mark) +
         " #}{% for m in messages %}<{{ m.role }}:{{ m.content if m.content is string else m.content|tojson }}|"
         "{{ m.reasoning_content }}|{{ m.thinking }}>{% endfor %}{% if add_generation_prompt %}GEN{% endif %}";
}

constexpr std::string_view kUser = R"({"messages": [{"role": "user", "content": "u"}]})",
                           kContinued = R"({"messages": [{"role": "user", "content": "u"},
    {"role": "assistant", "content": "c", "reasoning_content": "r"}]})",
                           kReasoned = R"({"messages": [{"role": "assistant", "content": "c", "reasoning_content": "r"},
    {"role": "user", "content": "u"}]})",
                           kCalled = R"({"messages": [{"role": "assistant", "content": "c", "reasoning_content": "r",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": "t"}]})";

constexpr std::string_view kGptOss = "<|channel|>", kMinistral = "[SYSTEM_PROMPT] [TOOL_CALLS] [ARGS]",
                           kLfm2 = "<|im_start|> List of tools: ", kKimi = "<|tool_calls_section_begin|>",
                           kQwenCoder = "<tool_call> <function= <parameter=";

ErrorKind kind_of_failure(std::string_view mark) {
  try {
    render(
        "{# " + std::string(mark) +
            " #}{% if messages[0].content == 'bad' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}",
        R"({"messages": [{"role": "user", "content": "bad"}]})");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no");
    return error.kind();
  }
  ADD_FAILURE() << "did not fail";
  return ErrorKind::io;
}

// As Command R7B's.
constexpr std::string_view kReasonsBeforeCalls =
    "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}<|START_THINKING|>{{ m.reasoning_content }}"
    "<|END_THINKING|>CALLS{% else %}{{ m.content }}{% endif %}{% endfor %}<assistant>"
    "{% if not enable_thinking %}<|START_THINKING|><|END_THINKING|>{% endif %}";

TEST(ReasoningTags, AreFoundWhereOnlyMessagesWithCallsShowThem) {
  EXPECT_EQ(render(kReasonsBeforeCalls, kUser), "<user>u<assistant>") << "the model is to think";
  TemplateOptions off;
  off.thinking = false;
  EXPECT_EQ(render(kReasonsBeforeCalls, kUser, off), "<user>u<assistant><|START_THINKING|><|END_THINKING|>");
  EXPECT_EQ(render(kReasonsBeforeCalls, kContinued), "<user>u<assistant><|START_THINKING|>r<|END_THINKING|>c");
}

// As Laguna's: history and generation prompts write them differently.
TEST(ReasoningTags, AreThoseOfGenerationPromptsThatOpenAndCloseTheBlock) {
  constexpr std::string_view kOpening =
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n"
      "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{{ '<think>' if enable_thinking else '</think>' }}{% endif %}";
  EXPECT_EQ(render(kOpening, kContinued), "<user>u<assistant><think>r</think>c");
  EXPECT_EQ(render(kOpening, kReasoned), "<assistant><think>\nr\n</think>\nc<user>u<assistant><think>");
}

TEST(ReasoningTags, MayBeClosedByAGenerationPromptThatOpensThem) {
  constexpr std::string_view kClosing =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant><think>"
      "{% if not enable_thinking %}{{ '\\n</think>' }}{% endif %}{% endif %}";
  EXPECT_EQ(render(kClosing, kContinued), "<user>u<assistant><think>r\n</think>c");
}

TEST(ReasoningTags, OfKnownFamiliesAreTheirOwn) {
  const auto continued = [](std::string_view mark) { return render(showing(mark), kContinued); };
  EXPECT_EQ(continued(kMinistral), "<user:u||>GEN[THINK]r[/THINK]c");
  EXPECT_EQ(continued(kKimi), "<user:u||>GEN<think>r</think>c");
  EXPECT_EQ(continued(kLfm2), "<user:u||>GEN<think>r</think>c");
  EXPECT_EQ(continued("<|turn> <|channel> <channel|>"), "<user:u||>GEN<|channel>thought\nr<channel|>c");
  EXPECT_EQ(continued("<|START_THINKING|> <|START_TEXT|>"),
            "<user:u||>GEN<|START_THINKING|>r<|END_THINKING|><|START_TEXT|>c");
  EXPECT_EQ(continued("<|open|> <|close|> <|sep|>"),
            "<user:u||>GEN<|open|>think<|sep|>r<|close|>think<|sep|><|open|>response<|sep|>c");
  EXPECT_EQ(continued(std::string(kQwenCoder) + " <think>"), "<user:u||>GEN<think>\nr\n</think>\n\nc");
  EXPECT_EQ(continued("Write your thoughts between <think></think>"), "<user:u||>GEN<think>r</think>c");
  EXPECT_EQ(continued("[SYSTEM_PROMPT] [TOOL_CALLS] [ARGS] [CALL_ID]"), "<user:u||>GENc") << "Mistral Small 3.2";
}

TEST(ReasoningOfMessages, IsAlsoCalledThinkingForFamiliesThatReadThat) {
  EXPECT_EQ(render(showing(""), kReasoned), "<assistant:c|r|><user:u||>GEN");
  EXPECT_EQ(render(showing(kLfm2), kReasoned), "<assistant:c|r|r><user:u||>GEN");
  EXPECT_EQ(render(showing(kLfm2), kCalled), "<assistant:c|r|r><tool:t||>GEN");
  EXPECT_EQ(render(showing(kGptOss), kReasoned), "<assistant:c|r|r><user:u||>GEN");
  EXPECT_EQ(render(showing(kGptOss), kCalled), "<assistant:|r|r><tool:t||>GEN") << "one of the two before calls";
}

TEST(ReasoningOfMessages, IsAPartOfTheContentForMinistral) {
  EXPECT_EQ(render(showing(kMinistral), kReasoned),
            R"(<assistant:[{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "c"}]|r|><user:u||>GEN)");
}

TEST(Messages, LoseTheWhiteSpaceAroundThemForStepFun) {
  const std::string mark = std::string(kQwenCoder) + " the following functions in JSONSchema format";
  constexpr std::string_view kRequest = R"({"messages": [{"role": "user", "content": "\n u \t"}]})";
  EXPECT_EQ(render(showing(mark), kRequest), "<user:u||>GEN");
  EXPECT_EQ(render(showing(kQwenCoder), kRequest), "<user:\n u \t||>GEN");
}

TEST(Messages, MayHoldChannelMarksForGptOss) {
  constexpr std::string_view kComplaining =
      "{% for m in messages %}{% if '<|channel|>' in m.content %}{{- raise_exception(\"You have passed a message "
      "containing <|channel|> tags in the content field.\") }}{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(render(kComplaining, R"({"messages": [{"role": "user", "content": "a<|channel|>b"}]})"), "a<|channel|>b");
  EXPECT_EQ(ChatTemplate(kComplaining).source(), kComplaining);
}

TEST(TemplatesThatFail, AreTheServersErrorInKnownFamilies) {
  EXPECT_EQ(kind_of_failure(""), ErrorKind::invalid_request);
  EXPECT_EQ(kind_of_failure("[SYSTEM_PROMPT] [TOOL_CALLS] [ARGS] [CALL_ID]"), ErrorKind::invalid_request);
  for (const std::string_view mark :
       {kGptOss, kMinistral, kLfm2, kKimi, kQwenCoder, std::string_view("DSML"), std::string_view(">>>all")}) {
    EXPECT_EQ(kind_of_failure(mark), ErrorKind::internal) << mark;
  }
}

}  // namespace
}  // namespace bankml
