// Answers of /v1/messages and /v1/responses; expectations are recordings of llama-server b11192.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <regex>

#include "server/answer_format.hpp"
#include "server/generation_fixture.hpp"
#include "server/json_writer.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Event {
  std::string name;
  boost::json::object data;
};

std::vector<Event> events(std::string_view text) {
  std::vector<Event> list;
  while (!text.empty()) {
    const std::size_t line = text.find('\n'), end = text.find("\n\n");
    EXPECT_TRUE(text.starts_with("event: ")) << text;
    EXPECT_TRUE(text.substr(line + 1).starts_with("data: ")) << text;
    const std::size_t data = line + 1 + std::string_view("data: ").size();
    list.push_back(
        {std::string(text.substr(7, line - 7)), boost::json::parse({text.data() + data, end - data}).as_object()});
    EXPECT_EQ(list.back().name, std::string(list.back().data.at("type").as_string()));
    text.remove_prefix(end + 2);
  }
  return list;
}

std::vector<std::string> names(const std::vector<Event>& list) {
  std::vector<std::string> out;
  for (const Event& event : list) out.push_back(event.name);
  return out;
}

// Random ids as "ID".
std::string without_ids(const boost::json::value& value) {
  static const std::regex id("(resp_|msg_|rs_)[A-Za-z0-9]{32}");
  return std::regex_replace(to_json(value), id, "$1ID");
}

class ChatFormatTest : public GenerationFixture {
 protected:
  std::string stream(MakeFormat make, const std::vector<Piece>& pieces, const Done& end) {
    std::string out;
    const auto format = make(generation);
    for (const Piece& one : pieces) format->append_piece(0, one, out);
    format->append_done(0, end, out);
    format->append_end(out);
    return out;
  }
};

TEST_F(ChatFormatTest, MessageHasTheFieldsOfThePeer) {
  EXPECT_EQ(to_json(whole(make_messages_format, {done()})),
            R"({"id":"chatcmpl-1","type":"message","role":"assistant","content":[{"type":"text","text":"ab"}],)"
            R"("model":"tiny","stop_reason":"end_turn","stop_sequence":null,)"
            R"("usage":{"cache_read_input_tokens":1,"input_tokens":1,"output_tokens":2}})");
}

TEST_F(ChatFormatTest, MessageTellsWhyItEnded) {
  Done end = done();
  end.stop = StopType::limit;
  EXPECT_EQ(whole(make_messages_format, {end}).at("stop_reason"), "max_tokens");
  end.stop = StopType::word;
  end.stopping_word = "STOP";
  EXPECT_EQ(whole(make_messages_format, {end}).at("stop_reason"), "end_turn");
  EXPECT_EQ(whole(make_messages_format, {end}).at("stop_sequence"), "STOP");
}

TEST_F(ChatFormatTest, MessageWithoutTextHasNoContent) {
  Done end = done();
  end.text.clear();
  EXPECT_EQ(to_json(whole(make_messages_format, {end}).at("content")), "[]");
}

TEST_F(ChatFormatTest, MessageStreamsOneBlock) {
  const auto list = events(stream(make_messages_format, {piece("a", 97, 1), piece("b", 98, 2)}, done()));
  EXPECT_THAT(names(list), ElementsAre("message_start", "content_block_start", "content_block_delta",
                                       "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(to_json(list[0].data.at("message").at("usage")),
            R"({"cache_read_input_tokens":0,"input_tokens":2,"output_tokens":0})");
  EXPECT_EQ(to_json(list[1].data),
            R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})");
  EXPECT_EQ(to_json(list[2].data),
            R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}})");
  EXPECT_EQ(to_json(list[5].data), R"({"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},)"
                                   R"("usage":{"output_tokens":2}})");
}

TEST_F(ChatFormatTest, MessageStreamsNoBlockWithoutText) {
  EXPECT_THAT(names(events(stream(make_messages_format, {piece("", 97, 1)}, done()))),
              ElementsAre("message_start", "message_delta", "message_stop"));
}

TEST_F(ChatFormatTest, MessageStreamEndsWithABareErrorObject) {
  std::string out;
  Failed failure;
  failure.message = "broken";
  make_messages_format(generation)->append_error(failure, out);
  EXPECT_EQ(out, "event: error\ndata: {\"code\":500,\"message\":\"broken\",\"type\":\"server_error\"}\n\n");
}

TEST_F(ChatFormatTest, FirstDeltaBringsTheTextThatIsContinued) {
  generation.request.prefill = "The ";
  const auto list = events(stream(make_messages_format, {piece("a", 97, 1), piece("b", 98, 2)}, done()));
  EXPECT_EQ(list[2].data.at("delta").at("text"), "The a");
  EXPECT_EQ(list[3].data.at("delta").at("text"), "b");
  EXPECT_EQ(whole(make_messages_format, {done()}).at("content").at(0).at("text"), "The ab");
}

TEST_F(ChatFormatTest, AnUnfinishedCharacterAtTheEndIsLeftOutUnderATemplate) {
  Done end = done();
  end.text = "ab\xc3";
  EXPECT_EQ(whole(make_chat_format, {end}).at("choices").at(0).at("message").at("content"), "ab\xc3");
  generation.request.echoed.chat_format = kChatFormatOfTemplates;
  EXPECT_EQ(whole(make_chat_format, {end}).at("choices").at(0).at("message").at("content"), "ab");
}

TEST_F(ChatFormatTest, ResponseHasTheFieldsOfThePeer) {
  auto answer = whole(make_responses_format, {done()});
  EXPECT_GE(answer.at("completed_at").as_int64(), 5);
  answer.as_object()["completed_at"] = 0;
  EXPECT_EQ(without_ids(answer),
            R"({"completed_at":0,"created_at":5,"id":"resp_ID","model":"tiny","object":"response",)"
            R"("output":[{"type":"message","status":"completed","id":"msg_ID","content":[{"type":"output_text",)"
            R"("annotations":[],"logprobs":[],"text":"ab"}],"role":"assistant"}],"status":"completed",)"
            R"("usage":{"input_tokens":2,"output_tokens":2,"total_tokens":4,)"
            R"("input_tokens_details":{"cached_tokens":1}}})");
}

TEST_F(ChatFormatTest, SeveralResponsesComeAsAnArrayWithTheirOwnIds) {
  add_task();
  const auto answer = whole(make_responses_format, {done(), done()});
  ASSERT_EQ(answer.as_array().size(), 2u);
  EXPECT_NE(answer.at(0).at("id"), answer.at(1).at("id"));
}

TEST_F(ChatFormatTest, ResponseStreamsTheSequenceOfThePeer) {
  const auto list = events(stream(make_responses_format, {piece("a", 97, 1), piece("b", 98, 2)}, done()));
  EXPECT_THAT(names(list),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.completed"));
  const auto id = list[2].data.at("item").at("id");
  for (const std::size_t i : {3, 4, 5, 6, 7}) EXPECT_EQ(list[i].data.at("item_id"), id) << list[i].name;
  EXPECT_EQ(list[8].data.at("item").at("id"), id);
  EXPECT_EQ(list[6].data.at("text"), "ab");
  EXPECT_EQ(list[9].data.at("response").at("output").at(0).at("id"), id);
  EXPECT_EQ(list[9].data.at("timings").at("predicted_n").as_int64(), 2);
}

TEST_F(ChatFormatTest, ResponseTimingsRideOnTheLastEventOfAToken) {
  params.timings_per_token = true;
  use_params();
  const auto list = events(stream(make_responses_format, {piece("a", 97, 1)}, done()));
  EXPECT_FALSE(list[3].data.contains("timings"));
  EXPECT_TRUE(list[4].data.contains("timings"));
}

TEST_F(ChatFormatTest, ResponseProgressComesWithInProgress) {
  std::string out;
  const auto format = make_responses_format(generation);
  format->append_progress(0, {.total = 9, .cache = 0, .processed = 0, .time_ms = 0}, {}, out);
  format->append_progress(0, {.total = 9, .cache = 0, .processed = 9, .time_ms = 3}, {}, out);
  format->append_piece(0, piece("a", 97, 1), out);
  const auto list = events(out);
  EXPECT_THAT(names(list),
              ElementsAre("response.created", "response.in_progress", "response.in_progress",
                          "response.output_item.added", "response.content_part.added", "response.output_text.delta"));
  EXPECT_EQ(to_json(list[2].data.at("prompt_progress")), R"({"total":9,"cache":0,"processed":9,"time_ms":3})");
}

TEST_F(ChatFormatTest, VerboseTextStreamsHaveTheNativeObjectInEachEvent) {
  generation.request.verbose = true;
  std::string out;
  make_completions_format(generation)->append_piece(0, piece("a", 97, 1), out);
  EXPECT_THAT(out, HasSubstr(R"("__verbose":{"index":0,"content":"a","tokens":[97],"stop":false)"));
  out.clear();
  make_chat_format(generation)->append_piece(0, piece("a", 97, 1), out);
  EXPECT_THAT(out, Not(HasSubstr("__verbose")));
}

}  // namespace
}  // namespace bankml::test
