#include "server/answer_format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/generation_fixture.hpp"
#include "server/json_writer.hpp"
#include "server/shapes.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The keys of an object, in order.
std::vector<std::string> keys(const boost::json::value& value) {
  std::vector<std::string> names;
  for (const auto& member : value.as_object()) names.emplace_back(member.key());
  return names;
}

// The JSON texts of a stream of events.
std::vector<std::string> events(std::string_view text) {
  constexpr std::string_view kStart = "data: ", kEnd = "\n\n";
  std::vector<std::string> list;
  while (!text.empty()) {
    EXPECT_TRUE(text.starts_with(kStart)) << text;
    const std::size_t end = text.find(kEnd);
    list.emplace_back(text.substr(kStart.size(), end - kStart.size()));
    text.remove_prefix(end + kEnd.size());
  }
  return list;
}

class AnswerFormatTest : public GenerationFixture {};

TEST_F(AnswerFormatTest, NativeAnswerHasTheFieldsOfThePeer) {
  const auto answer = whole(make_native_format, {done()});
  EXPECT_THAT(keys(answer), ElementsAre("index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted",
                                        "tokens_evaluated", "generation_settings", "prompt", "has_new_line",
                                        "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"));
  EXPECT_EQ(answer.at("content"), "ab");
  EXPECT_EQ(answer.at("prompt"), "hi");
  EXPECT_EQ(answer.at("stop_type"), "eos");
  EXPECT_EQ(answer.at("tokens_predicted").as_int64(), 2);
  EXPECT_EQ(answer.at("tokens_evaluated").as_int64(), 2);
  EXPECT_EQ(answer.at("tokens_cached").as_int64(), 3);
  EXPECT_TRUE(answer.at("tokens").as_array().empty());
}

TEST_F(AnswerFormatTest, ReturnsTokensOnRequest) {
  generation.request.return_tokens = true;
  EXPECT_EQ(to_json(whole(make_native_format, {done()}).at("tokens")), "[97,98]");
}

TEST_F(AnswerFormatTest, SettingsHaveTheKeysOfThePeerInTheirOrder) {
  EXPECT_THAT(keys(generation_settings(params, {}, false)),
              ElementsAre("seed", "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p",
                          "top_n_sigma", "xtc_probability", "xtc_threshold", "typical_p", "repeat_last_n",
                          "repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
                          "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "mirostat",
                          "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "stop", "max_tokens",
                          "n_predict", "n_keep", "n_discard", "ignore_eos", "stream", "logit_bias", "n_probs",
                          "min_keep", "grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens", "chat_format",
                          "reasoning_format", "reasoning_in_content", "generation_prompt", "samplers",
                          "speculative.types", "timings_per_token", "post_sampling_probs", "backend_sampling", "lora"));
}

TEST_F(AnswerFormatTest, SettingsShowAForbiddenTokenAsNull) {
  params.sampling.logit_bias = {{5, -std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(to_json(generation_settings(params, {}, false).at("logit_bias")), R"([{"bias":null,"token":5}])");
}

TEST_F(AnswerFormatTest, BriefSettingsLeaveOutTextsAndLists) {
  const auto settings = generation_settings(params, {}, true);
  for (const char* name : {"dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy", "grammar_triggers",
                           "preserved_tokens"}) {
    EXPECT_FALSE(settings.contains(name)) << name;
  }
  EXPECT_EQ(settings.at("chat_format"), "Content-only");
}

// Only in streams does that format leave the thinking where it is.
TEST_F(AnswerFormatTest, SettingsTellThatTheThinkingStaysInTheContent) {
  EchoedSettings echoed;
  echoed.reasoning_format = "deepseek-legacy";
  EXPECT_EQ(generation_settings(params, echoed, false).at("reasoning_in_content"), false);
  echoed.stream = true;
  EXPECT_EQ(generation_settings(params, echoed, false).at("reasoning_in_content"), true);
}

TEST_F(AnswerFormatTest, TimingsCountTheStepsAfterTheFirstToken) {
  const Timings timings{.cache_n = 3, .prompt_n = 4, .predicted_n = 3, .prompt_ms = 8, .predicted_ms = 10};
  EXPECT_EQ(to_json(timings_object(timings)),
            R"({"cache_n":3,"prompt_n":4,"prompt_ms":8.0,"prompt_per_token_ms":2.0,"prompt_per_second":500.0,)"
            R"("predicted_n":3,"predicted_ms":10.0,"predicted_per_token_ms":5.0,"predicted_per_second":200.0,)"
            R"("cache_from":"none","cache_differs_at":-1,"cache_lost_to_limit":false,"id_task":0})");
}

TEST_F(AnswerFormatTest, TimingsAreNeverInfinite) {
  EXPECT_THAT(to_json(timings_object({})), Not(HasSubstr("null")));
}

TEST_F(AnswerFormatTest, ProbabilitiesHaveTextBytesAndAlternatives) {
  EXPECT_EQ(to_json(probability_object(probability(), false)),
            R"({"id":97,"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[)"
            R"({"id":97,"token":"a","bytes":[97],"logprob":-0.5},)"
            R"({"id":195,"token":"","bytes":[195],"logprob":-3.4028234663852886e+38}]})");
  EXPECT_THAT(keys(probability_object(probability(), true)), ElementsAre("id", "token", "bytes", "prob", "top_probs"));
}

TEST_F(AnswerFormatTest, PicksFieldsByPath) {
  generation.request.response_fields = {"content", "timings/prompt_n", "generation_settings/nope", "nope", "content/x"};
  EXPECT_EQ(to_json(whole(make_native_format, {done()})), R"({"content":"ab","timings/prompt_n":1})");
}

TEST_F(AnswerFormatTest, NativeAnswerOfSeveralPromptsIsAnArray) {
  add_task();
  const auto answer = whole(make_native_format, {done(), done()});
  EXPECT_EQ(answer.at(0).at("index").to_number<int>(), 0);
  EXPECT_EQ(answer.at(1).at("index").to_number<int>(), 1);
}

TEST_F(AnswerFormatTest, NativeStreamEventsMatchARecording) {
  generation.request.stream = true;
  std::string out;
  const auto format = make_native_format(generation);
  format->append_piece(0, piece("-", 29, 1), out);
  // Recorded from llama-server b11192, except for the count of prompt tokens.
  EXPECT_EQ(out,
            "data: {\"index\":0,\"content\":\"-\",\"tokens\":[29],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":1,"
            "\"tokens_evaluated\":2}\n\n");
}

TEST_F(AnswerFormatTest, NativeStreamEndsWithAnEmptyContent) {
  generation.request.stream = true;
  std::string out;
  const auto format = make_native_format(generation);
  format->append_done(0, done(), out);
  format->append_end(out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 1u);
  const auto last = boost::json::parse(all[0]);
  EXPECT_EQ(last.at("content"), "");
  EXPECT_TRUE(last.at("stop").as_bool());
}

TEST_F(AnswerFormatTest, NativeStreamShowsProgressBeforeTheFirstToken) {
  params.return_progress = true;
  use_params();
  std::string out;
  make_native_format(generation)
      ->append_progress(0, {.total = 9, .cache = 4, .processed = 9, .time_ms = 12.7}, {}, out);
  EXPECT_THAT(events(out)[0], HasSubstr(R"("prompt_progress":{"total":9,"cache":4,"processed":9,"time_ms":12})"));
  EXPECT_THAT(events(out)[0], HasSubstr(R"("tokens":[0])"));
}

TEST_F(AnswerFormatTest, TimingsRideOnTheEventOfAStopWord) {
  std::string out;
  Piece last = piece("", 29, 1);
  last.ends_with_stop_word = true;
  make_native_format(generation)->append_piece(0, last, out);
  EXPECT_THAT(out, HasSubstr("\"timings\""));
}

TEST_F(AnswerFormatTest, OpenAiCompletionHasTheFieldsOfThePeer) {
  const auto answer = whole(make_completions_format, {done()});
  EXPECT_THAT(keys(answer),
              ElementsAre("choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings"));
  EXPECT_EQ(to_json(answer.at("choices")), R"([{"text":"ab","index":0,"logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(
      to_json(answer.at("usage")),
      R"({"completion_tokens":2,"prompt_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}})");
}

TEST_F(AnswerFormatTest, OpenAiCompletionGathersAllChoices) {
  add_task();
  Done second = done();
  second.text = "c";
  second.stop = StopType::limit;
  second.probabilities = {probability()};
  const auto answer = whole(make_completions_format, {done(), second});
  EXPECT_EQ(answer.at("choices").at(1).at("text"), "c");
  EXPECT_EQ(answer.at("choices").at(1).at("finish_reason"), "length");
  EXPECT_EQ(answer.at("choices").at(1).at("logprobs").at("content").as_array().size(), 1u);
}

TEST_F(AnswerFormatTest, OpenAiCompletionStreamEndsWithDone) {
  std::string out;
  const auto format = make_completions_format(generation);
  format->append_piece(0, piece("a", 97, 1), out);
  format->append_done(0, done(), out);
  format->append_end(out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(to_json(boost::json::parse(all[0]).at("choices")),
            R"([{"text":"a","index":0,"logprobs":null,"finish_reason":null}])");
  EXPECT_FALSE(boost::json::parse(all[0]).as_object().contains("usage"));
  EXPECT_TRUE(boost::json::parse(all[1]).as_object().contains("usage"));
  EXPECT_EQ(all[2], "[DONE]");
}

TEST_F(AnswerFormatTest, ChatAnswerHasTheFieldsOfThePeer) {
  generation.request.prefill = "Hi ";
  const auto answer = whole(make_chat_format, {done()});
  EXPECT_THAT(keys(answer),
              ElementsAre("choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings"));
  EXPECT_EQ(to_json(answer.at("choices")),
            R"([{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"Hi ab"}}])");
  EXPECT_EQ(answer.at("object"), "chat.completion");
}

TEST_F(AnswerFormatTest, ChatStreamFollowsTheOrderOfThePeer) {
  generation.request.include_usage = true;
  std::string out;
  const auto format = make_chat_format(generation);
  format->append_piece(0, piece("a", 97, 1), out);
  format->append_piece(0, piece("", 99, 2), out);
  format->append_piece(0, piece("b", 98, 3), out);
  format->append_done(0, done(), out);
  format->append_end(out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 6u);
  const auto choices = [&](std::size_t i) { return to_json(boost::json::parse(all[i]).at("choices")); };
  EXPECT_EQ(choices(0), R"([{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}])");
  EXPECT_EQ(choices(1), R"([{"finish_reason":null,"index":0,"delta":{"content":"a"}}])");
  EXPECT_EQ(choices(2), R"([{"finish_reason":null,"index":0,"delta":{"content":"b"}}])");
  EXPECT_EQ(choices(3), R"([{"finish_reason":"stop","index":0,"delta":{}}])");
  EXPECT_EQ(choices(4), "[]");
  const auto usage = boost::json::parse(all[4]).as_object();
  EXPECT_TRUE(usage.contains("usage"));
  EXPECT_TRUE(usage.contains("timings"));
  EXPECT_FALSE(boost::json::parse(all[3]).as_object().contains("timings"));
  EXPECT_EQ(all[5], "[DONE]");
}

TEST_F(AnswerFormatTest, ChatStreamPutsTimingsOnTheLastEventWithoutUsage) {
  std::string out;
  const auto format = make_chat_format(generation);
  format->append_done(0, done(), out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(boost::json::parse(all[0]).as_object().contains("timings"));
}

TEST_F(AnswerFormatTest, ChatStreamRepeatsThePrefillInItsFirstDelta) {
  generation.request.prefill = "Hi the";
  std::string out;
  const auto format = make_chat_format(generation);
  format->append_piece(0, piece(" AI", 97, 1), out);
  format->append_piece(0, piece(",", 98, 2), out);
  const auto all = events(out);
  EXPECT_THAT(all[1], HasSubstr(R"("delta":{"content":"Hi the AI"})"));
  EXPECT_THAT(all[2], HasSubstr(R"("delta":{"content":","})"));
}

TEST_F(AnswerFormatTest, ChatStreamLeavesThePrefillOutWhenToldTo) {
  generation.request.prefill = "Hi the";
  generation.request.streams_prefill = false;
  std::string out;
  make_chat_format(generation)->append_piece(0, piece(" AI", 97, 1), out);
  EXPECT_THAT(events(out)[1], HasSubstr(R"("delta":{"content":" AI"})"));
}

TEST_F(AnswerFormatTest, LogprobsRideOnTheLastDeltaOfAToken) {
  std::string out;
  Piece first = piece("a", 97, 1);
  first.probability = probability();
  make_chat_format(generation)->append_piece(0, first, out);
  EXPECT_THAT(events(out)[0], Not(HasSubstr("logprobs")));
  EXPECT_THAT(events(out)[1], HasSubstr(R"("logprobs":{"content":[{"id":97)"));
}

TEST_F(AnswerFormatTest, VerboseAnswersCarryTheNativeResult) {
  generation.request.verbose = true;
  EXPECT_EQ(whole(make_chat_format, {done()}).at("__verbose").at("prompt"), "hi");
}

TEST(RandomId, IsAlphanumericAndDiffers) {
  const std::string id = random_id(32);
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"), std::string::npos);
  EXPECT_NE(id, random_id(32));
}

}  // namespace
}  // namespace bankml::test
