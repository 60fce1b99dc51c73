#include "server/chat_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/fake_service.hpp"
#include "server/fields.hpp"
#include "server/json_writer.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::HasSubstr;

class ChatRequestTest : public testing::Test {
 protected:
  // The prompt of one user message with these fields beside it.
  std::string render(const std::string& fields) {
    return render_chat(app_.app(), parse_body(R"({"messages":[{"role":"user","content":"hi"}])" +
                                              (fields.empty() ? "" : "," + fields) + "}"))
        .text;
  }

  FakeApp app_;
};

std::string messages_of(std::string_view body) {
  return to_json(chat_body_of_messages(parse_body(body)).at("messages"));
}

// The messages that these items become.
std::string items(const std::string& input) {
  return to_json(chat_body_of_responses(parse_body(R"({"input":)" + input + "}")).at("messages"));
}

TEST_F(ChatRequestTest, ChecksWhatOnlyChatsHaveWhereNothingIsGeneratedToo) {
  const auto refused = [&](const std::string& fields, ErrorKind kind, std::string_view part) {
    expect_error(kind, part, [&] { render(fields); });
  };
  refused(R"("top_logprobs":2)", ErrorKind::invalid_request, "top_logprobs");
  refused(R"("logprobs":false,"top_logprobs":2)", ErrorKind::invalid_request, "top_logprobs");
  refused(R"("response_format":{"type":"zz"})", ErrorKind::invalid_request, "got 'zz'");
  refused(R"("response_format":{"type":"json_object","schema":123})", ErrorKind::invalid_request,
          "an object as schema");
  refused(R"("response_format":{"type":"json_object","schema":{"type":7}})", ErrorKind::invalid_request, "got '7'");
  refused(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":["string","zz"]}}})",
          ErrorKind::invalid_request, "zz");
  refused(R"("tool_choice":"zz")", ErrorKind::invalid_request, "got 'zz'");
  refused(R"("reasoning_format":"zz")", ErrorKind::internal, "reasoning_format");
  refused(R"("json_schema":{},"grammar":"root ::= x")", ErrorKind::internal, "json_schema");
  refused(R"("tools":[{"type":"function","function":{"name":"f"}}],"grammar":"root ::= x")", ErrorKind::invalid_request,
          "grammar");
  refused(R"("tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true,"stream":true)",
          ErrorKind::invalid_request, "logprobs");
}

TEST_F(ChatRequestTest, RendersToolsAndFormatsThatOnlyAnAnswerCouldNotHave) {
  const std::string prompt = render("");
  EXPECT_THAT(prompt, HasSubstr("hi"));
  EXPECT_EQ(render(R"("tools":[{"type":"function","function":{"name":"f"}}])"), prompt);
  EXPECT_EQ(render(R"("response_format":{"type":"json_object"})"), prompt);
  EXPECT_EQ(render(R"("max_tokens":"x","seed":[])"), prompt);
}

TEST(MessagesRequest, WantsMessages) {
  expect_error(ErrorKind::internal, "messages", [] { messages_of("{}"); });
  expect_error(ErrorKind::invalid_request, "got string", [] { messages_of(R"({"messages":"x"})"); });
  EXPECT_EQ(messages_of(R"({"messages":[]})"), "[]");
}

TEST(MessagesRequest, PutsTheSystemPromptFirst) {
  EXPECT_EQ(messages_of(R"({"system":"S","messages":[]})"), R"([{"role":"system","content":"S"}])");
  EXPECT_EQ(messages_of(R"({"system":[{"type":"text","text":"A"},{"type":"x"},{"type":"text","text":"B"}],
                            "messages":[]})"),
            R"([{"role":"system","content":"AB"}])");
}

TEST(MessagesRequest, NeutralizesTheStampOfABillingHeader) {
  const auto system = [](const std::string& text) {
    const auto chat = chat_body_of_messages(parse_body(R"({"messages":[],"system":")" + text + "\"}"));
    return std::string(chat.at("messages").at(0).at("content").as_string());
  };
  EXPECT_EQ(system("x-anthropic-billing-header: cc_version=1; cch=abcde; x"),
            "x-anthropic-billing-header: cc_version=1; cch=fffff; x");
  EXPECT_EQ(system("x-anthropic-billing-header:cch=12345;"), "x-anthropic-billing-header:cch=fffff;");
  for (const char* same :
       {"x-anthropic-billing-header: cch=123456;", "x-anthropic-billing-header: cch=1234;",
        "x-anthropic-billing-header: cch=12345", "X cch=12345;", " x-anthropic-billing-header: cch=12345;"}) {
    EXPECT_EQ(system(same), same);
  }
}

TEST(MessagesRequest, TurnsBlocksIntoPartsCallsAndResults) {
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"assistant","content":[
                {"type":"thinking","thinking":"TH"},{"type":"text","text":"T"},
                {"type":"tool_use","id":"i","name":"f","input":{"a":1}}]}]})"),
            R"([{"role":"assistant","content":[{"type":"text","text":"T"}],"tool_calls":[{"id":"i","type":"function",)"
            R"("function":{"name":"f","arguments":"{\"a\":1}"}}],"reasoning_content":"TH"}])");
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"user","content":[
                {"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"R"}]},
                {"type":"text","text":"after"}]}]})"),
            R"([{"role":"user","content":[{"type":"text","text":"after"}]},)"
            R"({"role":"tool","tool_call_id":"i","content":[{"type":"text","text":"R"}]}])");
}

TEST(MessagesRequest, SkipsMessagesOfUnknownBlocksOnly) {
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"user","content":[{"type":"document"},5]}]})"), "[]");
}

TEST(MessagesRequest, PassesOnlyTheFieldsOfItsApi) {
  const auto chat = chat_body_of_messages(parse_body(
      R"({"messages":[],"stop_sequences":["a"],"temperature":0,"top_p":0.5,"top_k":3,"stream":true,"min_p":1,"n":2,
          "tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"}})"));
  EXPECT_EQ(to_json(chat),
            R"({"messages":[],"max_tokens":4096,"stop":["a"],"temperature":0,"top_p":0.5,"top_k":3,"stream":true,)"
            R"("tools":[{"type":"function","function":{"name":"f","description":"","parameters":{}}}],)"
            R"("tool_choice":"required"})");
}

TEST(ResponsesRequest, WantsInput) {
  const auto refused = [](std::string_view body, std::string_view part) {
    expect_error(ErrorKind::invalid_request, part, [&] { chat_body_of_responses(parse_body(body)); });
  };
  refused("{}", "required");
  refused(R"({"input":null})", "got null");
  refused(R"({"input":5})", "got number");
  refused(R"({"input":"x","previous_response_id":"r"})", "previous_response_id");
  refused(R"({"input":"x","tools":5})", "expected an array");
}

TEST(ResponsesRequest, TakesTextAsTheUsersMessage) {
  const auto chat = chat_body_of_responses(parse_body(
      R"({"input":"hi","instructions":"S","max_output_tokens":7,"reasoning":{"effort":"low"},"temperature":0})"));
  EXPECT_EQ(to_json(chat.at("messages")), R"([{"role":"system","content":"S"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(chat.at("max_tokens").as_int64(), 7);
  EXPECT_EQ(chat.at("reasoning_effort"), "low");
  EXPECT_EQ(chat.at("temperature").as_int64(), 0);
  EXPECT_FALSE(chat.contains("input"));
}

TEST(ResponsesRequest, ReadsMessages) {
  EXPECT_EQ(items(R"([{"role":"developer","content":"D"},
                      {"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}])"),
            R"([{"role":"developer","content":"D"},{"role":"user","content":[{"type":"text","text":"x"}]}])");
}

TEST(ResponsesRequest, MergesWhatTheAssistantDidInOneTurn) {
  EXPECT_EQ(items(R"([{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"th"}]},
                      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"y"}]},
                      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
                      {"type":"function_call_output","call_id":"c","output":"R"}])"),
            R"([{"role":"assistant","reasoning_content":"th","content":[{"type":"text","text":"y"}],)"
            R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f",)"
            R"("arguments":"{}"}}]},{"role":"tool","content":"R","tool_call_id":"c"}])");
}

TEST(ResponsesRequest, RefusesItemsItDoesNotKnow) {
  for (const char* item : {"5", "{}", R"({"type":"item_reference","id":"x"})", R"({"role":"user"})",
                           R"({"role":"assistant","content":"y"})", R"({"type":"function_call","name":"f"})",
                           R"({"type":"message","role":"user","content":[{"type":"input_file"}]})",
                           R"({"role":"user","content":[{"type":"input_text"}]})"}) {
    expect_error(ErrorKind::invalid_request, "field 'input'", [&] { items("[" + std::string(item) + "]"); });
  }
}

TEST(ResponsesRequest, KeepsFunctionToolsOnly) {
  const auto chat = chat_body_of_responses(
      parse_body(R"({"input":"x","tools":[{"type":"function","name":"f"},{"type":"web_search"}]})"));
  EXPECT_EQ(to_json(chat.at("tools")), R"([{"type":"function","function":{"name":"f","strict":true}}])");
}

}  // namespace
}  // namespace bankml::test
