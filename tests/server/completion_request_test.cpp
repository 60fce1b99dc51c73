#include "server/completion_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>

#include "server/fake_service.hpp"
#include "server/fields.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

constexpr float kNever = -std::numeric_limits<float>::infinity();

class CompletionRequestTest : public testing::Test {
 protected:
  CompletionRequest parse(std::string_view body) {
    return parse_completion_request(parse_body(body), options, app_.tokenizer(), 2);
  }
  // The field given as `text` is refused with a message that has `part`.
  void expect_refused(const std::string& name, const std::string& text, std::string_view part = {},
                      ErrorKind kind = ErrorKind::invalid_request) {
    const std::string body = "{\"" + name + "\":" + text + "}";
    expect_error(kind, name, [&] { parse(body); });
    expect_error(kind, part, [&] { parse(body); });
  }

  ServerOptions options;

 private:
  FakeApp app_;
};

TEST_F(CompletionRequestTest, TakesDefaultsFromTheServer) {
  options.defaults.n_predict = 64;
  options.defaults.sampling.temperature = 0.25f;
  options.defaults.stop = {"END"};
  const CompletionRequest request = parse("{}");
  EXPECT_EQ(request.params.n_predict, 64);
  EXPECT_EQ(request.params.sampling.temperature, 0.25f);
  EXPECT_EQ(request.params.sampling.top_k, 40);
  EXPECT_THAT(request.params.stop, ElementsAre("END"));
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.copies, 1);
  EXPECT_EQ(request.sse_ping_interval_s, 30);
}

TEST_F(CompletionRequestTest, TreatsNullAsAbsent) {
  const CompletionRequest request =
      parse(R"({"n_predict":null,"max_tokens":7,"stream":null,"top_k":null,"seed":null,"stop":null,"samplers":null})");
  EXPECT_EQ(request.params.n_predict, 7);
  EXPECT_EQ(request.params.sampling.top_k, 40);
  EXPECT_EQ(request.params.sampling.seed, kRandomSeed);
}

TEST_F(CompletionRequestTest, IgnoresUnknownFields) {
  EXPECT_NO_THROW(parse(R"({"user":"me","best_of":{"a":[1]}})"));
}

TEST_F(CompletionRequestTest, TakesTheFirstAliasThatIsPresent) {
  EXPECT_EQ(parse(R"({"max_tokens":7,"n_predict":3})").params.n_predict, 3);
  EXPECT_EQ(parse(R"({"max_tokens":7,"max_completion_tokens":8})").params.n_predict, 8);
  EXPECT_EQ(parse(R"({"logprobs":4})").params.n_probs, 4);
  EXPECT_EQ(parse(R"({"logprobs":4,"n_probs":2})").params.n_probs, 2);
  EXPECT_EQ(parse(R"({"n":2})").copies, 2);
}

TEST_F(CompletionRequestTest, ReadsIntegersFromFloatsAndBooleans) {
  EXPECT_EQ(parse(R"({"n_predict":3.9})").params.n_predict, 3);
  EXPECT_EQ(parse(R"({"n_predict":true})").params.n_predict, 1);
  EXPECT_EQ(parse(R"({"temperature":true})").params.sampling.temperature, 1.0f);
}

TEST_F(CompletionRequestTest, RefusesNumbersOfAnotherType) {
  for (const char* name : {"n_predict", "temperature", "top_k", "seed", "n_probs", "min_p", "n_keep"}) {
    expect_refused(name, "\"5\"", "got string");
    expect_refused(name, "[1]", "got array");
    expect_refused(name, "{}", "got object");
  }
}

TEST_F(CompletionRequestTest, RefusesBooleansOfAnotherType) {
  for (const char* name : {"stream", "cache_prompt", "return_tokens", "return_progress", "timings_per_token",
                           "post_sampling_probs", "ignore_eos", "backend_sampling", "verbose"}) {
    expect_refused(name, "1", "got number");
    expect_refused(name, "\"true\"", "got string");
  }
}

TEST_F(CompletionRequestTest, RefusesValuesOutOfRange) {
  expect_refused("n_predict", "-2", "from -1 to 2147483647");
  expect_refused("n_predict", "3000000000", "from -1 to 2147483647");
  expect_refused("n_cmpl", "3", "from 1 to 2");
  expect_refused("n", "0", "from 1 to 2");
  expect_refused("sse_ping_interval", "-2");
  expect_refused("n_keep", "-2");
  expect_refused("n_discard", "-1");
  expect_refused("n_indent", "-1");
  expect_refused("n_cache_reuse", "-1");
  expect_refused("t_max_predict_ms", "-2");
  expect_refused("t_max_predict_ms", "1e39");
  expect_refused("t_max_predict_ms", "9223372036854775808");
  expect_refused("t_max_predict_ms", "true", "got boolean");
  expect_refused("min_keep", "-1");
  expect_refused("repeat_last_n", "-1");
  expect_refused("dry_allowed_length", "-1");
  expect_refused("dry_penalty_last_n", "-1");
  expect_refused("repeat_penalty", "0");
  expect_refused("repeat_penalty", "1e-45");
  expect_refused("adaptive_decay", "1.0");
}

TEST_F(CompletionRequestTest, ClampsSamplingParameters) {
  const SamplingParams s =
      parse(R"({"temperature":-1,"top_k":-5,"top_p":2,"min_p":-1,"xtc_probability":7,"xtc_threshold":-2,
                                     "mirostat":5,"adaptive_target":3})")
          .params.sampling;
  EXPECT_EQ(s.temperature, 0.0f);
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.top_p, 1.0f);
  EXPECT_EQ(s.min_p, 0.0f);
  EXPECT_EQ(s.xtc_probability, 1.0f);
  EXPECT_EQ(s.xtc_threshold, 0.0f);
  EXPECT_EQ(s.mirostat, 2);
  EXPECT_EQ(s.adaptive_target, 1.0f);
}

TEST_F(CompletionRequestTest, ReadsATemperatureAboveAllFloatsAsInfinity) {
  EXPECT_EQ(parse(R"({"temperature":1e39})").params.sampling.temperature, std::numeric_limits<float>::infinity());
  EXPECT_EQ(parse(R"({"dynatemp_range":1e39})").params.sampling.dynatemp_range, std::numeric_limits<float>::max());
}

TEST_F(CompletionRequestTest, IgnoresResponseFieldsThatAreNotAllStrings) {
  EXPECT_THAT(parse(R"({"response_fields":["a","b"]})").response_fields, ElementsAre("a", "b"));
  EXPECT_THAT(parse(R"({"response_fields":["a",1]})").response_fields, IsEmpty());
  EXPECT_THAT(parse(R"({"response_fields":"a"})").response_fields, IsEmpty());
}

TEST_F(CompletionRequestTest, ChecksAndRepeatsTheFieldsOfParsers) {
  const EchoedSettings echoed =
      parse(R"({"grammar_lazy":true,"chat_format":2,"generation_prompt":"G","preserved_tokens":[]})").echoed;
  EXPECT_TRUE(echoed.grammar_lazy);
  EXPECT_EQ(echoed.chat_format, "peg-native");
  EXPECT_EQ(echoed.generation_prompt, "G");
  for (const char* name : {"grammar_lazy", "reasoning_control", "parse_tool_calls", "echo"}) expect_refused(name, "1");
  for (const char* name : {"chat_parser", "generation_prompt", "reasoning_budget_start_tag"}) expect_refused(name, "1");
  for (const char* name : {"preserved_tokens", "grammar_triggers", "reasoning_budget_end_tags"}) {
    expect_refused(name, "1");
    expect_refused(name, "[1]", "empty array", ErrorKind::unsupported);
  }
  expect_refused("chat_format", "\"x\"");
  expect_refused("chat_format", "5");
  expect_refused("reasoning_budget_tokens", "-2");
}

TEST_F(CompletionRequestTest, KeepsTheServersDryBaseInsteadOfOneBelowOne) {
  EXPECT_EQ(parse(R"({"dry_base":0.5})").params.sampling.dry_base, 1.75f);
  EXPECT_EQ(parse(R"({"dry_base":2})").params.sampling.dry_base, 2.0f);
}

TEST_F(CompletionRequestTest, CutsSeedsTo32Bits) {
  EXPECT_EQ(parse(R"({"seed":-1})").params.sampling.seed, 4294967295u);
  EXPECT_EQ(parse(R"({"seed":4294967297})").params.sampling.seed, 1u);
  EXPECT_EQ(parse(R"({"seed":-2.5})").params.sampling.seed, 4294967294u);
  EXPECT_EQ(parse(R"({"seed":18446744073709551615})").params.sampling.seed, 4294967295u);
}

TEST_F(CompletionRequestTest, DropsEmptyStopWords) {
  options.defaults.stop = {"END"};
  EXPECT_THAT(parse(R"({"stop":"a"})").params.stop, ElementsAre("a"));
  EXPECT_THAT(parse(R"({"stop":["a","","b"]})").params.stop, ElementsAre("a", "b"));
  EXPECT_THAT(parse(R"({"stop":[""]})").params.stop, ElementsAre("END"));
  EXPECT_THAT(parse(R"({"stop":5})").params.stop, ElementsAre("END"));
  expect_refused("stop", "[1]", "got number");
}

// All of them are gone through for every token, while other requests wait.
TEST_F(CompletionRequestTest, LimitsWhatIsGoneThroughForEveryToken) {
  const auto list_of = [](std::size_t count, const char* element) {
    std::string list = "[";
    for (std::size_t i = 0; i < count; ++i) (list += i == 0 ? "" : ",") += element;
    return list + "]";
  };
  EXPECT_EQ(parse("{\"stop\":" + list_of(1024, "\"a\"") + "}").params.stop.size(), 1024u);
  expect_refused("stop", list_of(1025, "\"a\""), "expected at most 1024 words, got 1025");
  EXPECT_THAT(parse("{\"stop\":" + list_of(2000, "\"\"") + "}").params.stop, IsEmpty());
  expect_refused("logit_bias", "[[\"" + std::string((1 << 20) + 1, 'a') + "\",1]]", "at most 1048576 tokens");
}

TEST_F(CompletionRequestTest, RefusesDrySequenceBreakersThatAreNoStrings) {
  expect_refused("dry_sequence_breakers", "[]");
  expect_refused("dry_sequence_breakers", "\"a\"");
  expect_refused("dry_sequence_breakers", "[1]");
  EXPECT_THAT(parse(R"({"dry_sequence_breakers":["x"]})").params.sampling.dry_sequence_breakers, ElementsAre("x"));
}

TEST_F(CompletionRequestTest, ReadsSamplersAsNamesOrLetters) {
  EXPECT_THAT(parse(R"({"samplers":["top_k","nonsense"]})").params.sampling.samplers, ElementsAre(SamplerKind::top_k));
  EXPECT_THAT(parse(R"({"samplers":"kp"})").params.sampling.samplers,
              ElementsAre(SamplerKind::top_k, SamplerKind::top_p));
  EXPECT_EQ(parse(R"({"samplers":5})").params.sampling.samplers, SamplingParams::default_samplers());
  expect_refused("samplers", "[1]", "got number");
}

TEST_F(CompletionRequestTest, ReadsBiasesByIdAndByText) {
  const auto biases = [&](std::string_view body) { return parse(body).params.sampling.logit_bias; };
  EXPECT_THAT(biases(R"({"logit_bias":[[5,1.5],[6,false],["ab",2]]})"),
              ElementsAre(FieldsAre(5, 1.5f), FieldsAre(6, kNever), FieldsAre('a', 2.0f), FieldsAre('b', 2.0f)));
  EXPECT_THAT(biases(R"({"logit_bias":{"5":1,"a":false}})"), ElementsAre(FieldsAre(5, 1.0f), FieldsAre('a', kNever)));
}

TEST_F(CompletionRequestTest, KeepsBiasesFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_THAT(parse(R"({"logit_bias":[[5,1e300],[6,-1e300]]})").params.sampling.logit_bias,
              ElementsAre(FieldsAre(5, kMax), FieldsAre(6, -kMax)));
}

TEST_F(CompletionRequestTest, SkipsBiasesThatMakeNoSense) {
  EXPECT_THAT(parse(R"({"logit_bias":[[1],"a",[7,true],[99999,1],[-1,1],[5,"x"],[[],1]]})").params.sampling.logit_bias,
              IsEmpty());
  EXPECT_THAT(parse(R"({"logit_bias":5})").params.sampling.logit_bias, IsEmpty());
}

TEST_F(CompletionRequestTest, BiasesEveryEndTokenForIgnoreEos) {
  const CompletionRequest request = parse(R"({"ignore_eos":true})");
  EXPECT_TRUE(request.params.sampling.ignore_eos);
  EXPECT_THAT(request.params.sampling.logit_bias, ElementsAre(FieldsAre(257, kNever)));
}

// llama-server's answers to the same flags and fields.
TEST_F(CompletionRequestTest, ReplacesTheServersBiasesThoseOfIgnoreEosIncluded) {
  options.defaults.sampling.logit_bias = {{5, 1.0f}};
  options.defaults.sampling.ignore_eos = true;
  const auto biases = [&](std::string_view body) { return parse(body).params.sampling.logit_bias; };
  EXPECT_THAT(biases("{}"), ElementsAre(FieldsAre(5, 1.0f), FieldsAre(257, kNever)));
  EXPECT_THAT(biases(R"({"ignore_eos":false})"), ElementsAre(FieldsAre(5, 1.0f), FieldsAre(257, kNever)));
  EXPECT_THAT(biases(R"({"logit_bias":[[6,1]]})"), ElementsAre(FieldsAre(6, 1.0f)));
  EXPECT_THAT(biases(R"({"logit_bias":5})"), IsEmpty());
  EXPECT_THAT(biases(R"({"logit_bias":[[6,1]],"ignore_eos":true})"),
              ElementsAre(FieldsAre(6, 1.0f), FieldsAre(257, kNever)));
}

TEST_F(CompletionRequestTest, TakesAnySlotIdAndNoneForAnotherType) {
  EXPECT_EQ(parse(R"({"id_slot":5})").params.id_slot, 5);
  EXPECT_EQ(parse(R"({"id_slot":"a"})").params.id_slot, -1);
}

TEST_F(CompletionRequestTest, ReadsIncludeUsageFromAnObjectOnly) {
  EXPECT_TRUE(parse(R"({"stream_options":{"include_usage":true}})").include_usage);
  EXPECT_FALSE(parse(R"({"stream_options":5})").include_usage);
}

TEST_F(CompletionRequestTest, RefusesGrammarsAndAdaptersThatWouldBeIgnored) {
  expect_refused("grammar", "\"root ::= x\"", "not supported", ErrorKind::unsupported);
  expect_refused("json_schema", "{}", "not supported", ErrorKind::unsupported);
  expect_refused("lora", "[{\"id\":0}]", "not supported", ErrorKind::unsupported);
  expect_refused("lora", "5", "expected an array");
  EXPECT_NO_THROW(parse(R"({"grammar":"","json_schema":null,"lora":[]})"));
  EXPECT_NO_THROW(parse(R"({"grammar":5})"));
}

TEST_F(CompletionRequestTest, KnowsTheReasoningFormats) {
  EXPECT_EQ(parse(R"({"reasoning_format":"auto"})").echoed.reasoning_format, "auto");
  expect_refused("reasoning_format", "\"zz\"", "got 'zz'");
  expect_refused("reasoning_format", "5", "got number");
}

TEST(ParseBody, CallsWhatIsNotJsonAnInternalErrorAsThePeerDoes) {
  for (const char* body : {"", "{", "{\"a\":NaN}", "{\"a\":1}x", "\"\xff\"", "{\"a\":[1e999]}"}) {
    expect_error(ErrorKind::internal, "not valid JSON", [&] { parse_body(body); });
  }
}

TEST(ParseBody, RefusesBodiesThatAreNestedTooDeep) {
  expect_error(ErrorKind::internal, "not valid JSON", [] { parse_body(std::string(100000, '[')); });
}

TEST(ParseBody, SkipsAByteOrderMark) {
  EXPECT_TRUE(parse_body("\xEF\xBB\xBF{\"a\":1}").contains("a"));
}

TEST(ParseBody, FindsNoFieldsInWhatIsNoObject) {
  EXPECT_TRUE(parse_body("[1]").empty());
}

}  // namespace
}  // namespace bankml::test
