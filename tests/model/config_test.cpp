#include "bankml/model/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "support/expect_error.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::expect_error;
using test::GgufBuilder;
using test::tiny_model;
using testing::ElementsAre;
using testing::Optional;

ModelConfig config_of(const GgufBuilder& builder, const RopeOverrides& overrides = {}) {
  const auto bytes = builder.build();
  return read_config(GgufFile::parse(bytes, "test.gguf"), overrides);
}
VocabularySource vocabulary_of(const GgufBuilder& builder) {
  const auto bytes = builder.build();
  return read_vocabulary(GgufFile::parse(bytes, "test.gguf"));
}
void expect_refused(const GgufBuilder& builder, std::string_view part, ErrorKind kind = ErrorKind::invalid_request) {
  expect_error(kind, part, [&] { config_of(builder); });
}
void expect_vocabulary_refused(const GgufBuilder& builder, std::string_view part) {
  expect_error(ErrorKind::invalid_request, part, [&] { vocabulary_of(builder); });
}
RopeParams rope_of(const GgufBuilder& builder, const RopeOverrides& overrides = {}) {
  return config_of(builder, overrides).layer.at(0).rope;
}
GgufFile tiny_file(const std::string& name) {
  return GgufFile::open(std::filesystem::path(BANKML_TEST_DATA) / "tiny" / (name + ".gguf"));
}

TEST(ModelConfig, HasTheShapeOfALlamaFile) {
  const ModelConfig config = config_of(tiny_model());
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.file_type, "all F32");
  EXPECT_EQ(config.context, 256);
  EXPECT_EQ(config.dim, 64);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.vocab, 258);
  EXPECT_EQ(config.head_dim_k, 16);
  EXPECT_EQ(config.head_dim_v, 16);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.attention_scale, 0.25f);
  ASSERT_EQ(config.layer.size(), 2u);
  EXPECT_EQ(config.layer[1].heads, 4);
  EXPECT_EQ(config.layer[1].kv_heads, 2);
  EXPECT_EQ(config.layer[1].hidden, 96);
  EXPECT_EQ(config.layer[1].window, 0);
  EXPECT_EQ(config.layer[1].rope.style, RopeStyle::adjacent);
  EXPECT_EQ(config.layer[1].rope.n_rot, 16);
  EXPECT_EQ(config.layer[1].rope.base, 10000.0f);
  EXPECT_EQ(config.layer[1].rope.freq_scale, 1.0f);
  EXPECT_EQ(config.layer[1].rope.ext_factor, 0.0f);
  EXPECT_EQ(config.layer[1].rope.attn_factor, 1.0f);
  EXPECT_EQ(config.layer[1].rope.n_ctx_orig, 256);
}

TEST(ModelConfig, TakesDefaultsForOptionalKeys) {
  GgufBuilder builder = tiny_model();
  for (const char* key :
       {"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    builder.remove("llama." + std::string(key));
  }
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.layer[0].kv_heads, 4);
  EXPECT_EQ(config.head_dim_k, 16);  // 64 / 4
  EXPECT_EQ(config.head_dim_v, 16);
  EXPECT_EQ(config.layer[0].rope.n_rot, 16);
}

TEST(ModelConfig, TakesAHeadLengthThatIsNotTheWidthDividedByTheHeads) {
  const ModelConfig config = config_of(tiny_model({.head_dim = 32}));
  EXPECT_EQ(config.head_dim_k, 32);
  EXPECT_EQ(config.attention_scale, 1.0f / std::sqrt(32.0f));
}

TEST(ModelConfig, TakesOneValuePerLayer) {
  GgufBuilder builder = tiny_model();
  builder.i32s("llama.feed_forward_length", {96, 96}).i32s("llama.attention.head_count_kv", {4, 1});
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.layer[1].hidden, 96);
  EXPECT_EQ(config.layer[0].kv_heads, 4);
  EXPECT_EQ(config.layer[1].kv_heads, 1);
}

TEST(ModelConfig, RefusesLayersOfDifferentWidths) {
  expect_refused(tiny_model().i32s("llama.feed_forward_length", {96, 32}),
                 "layers of different widths are not supported, found 96 in layer 0 and 32 in layer 1",
                 ErrorKind::unsupported);
  expect_refused(tiny_model().i32s("llama.attention.head_count", {4, 2}), "layers of different widths",
                 ErrorKind::unsupported);
}

TEST(ModelConfig, LeavesOutLayersThatPredictFurtherTokens) {
  GgufBuilder builder = tiny_model();
  builder.u32("llama.nextn_predict_layers", 1).i32s("llama.feed_forward_length", {96, 32});  // of the layers stored
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.layers, 1);
  EXPECT_EQ(config.layer.size(), 1u);
  expect_refused(builder.u32("llama.nextn_predict_layers", 2), "llama.nextn_predict_layers");
}

TEST(ModelConfig, TakesTheAttentionScaleOfTheFile) {
  EXPECT_EQ(config_of(tiny_model().f32("llama.attention.scale", 0.5f)).attention_scale, 0.5f);
  EXPECT_EQ(config_of(tiny_model().f32("llama.attention.scale", 0.0f)).attention_scale, 0.25f);
}

TEST(ModelConfig, NamesWhatIsMissing) {
  for (const char* key :
       {"llama.context_length", "llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    expect_refused(tiny_model().remove(key), std::string("'") + key + "'");
  }
  expect_refused(tiny_model().remove("tokenizer.ggml.tokens"),
                 "key 'tokenizer.ggml.tokens': expected a list of tokens");
}

TEST(ModelConfig, RefusesValuesOutOfRange) {
  const auto with = [](const char* key, std::uint32_t value) { return tiny_model().u32(key, value); };
  expect_refused(with("llama.block_count", 0), "expected a value from 1 to 512, found 0");
  expect_refused(with("llama.block_count", 513), "expected a value from 1 to 512, found 513");
  expect_refused(with("llama.embedding_length", 0), "llama.embedding_length");
  expect_refused(with("llama.embedding_length", 1u << 31), "llama.embedding_length");
  expect_refused(with("llama.context_length", 0), "llama.context_length");
  expect_refused(with("llama.context_length", 1u << 30), "expected a value from 1 to 16777216, found 1073741824");
  expect_refused(with("llama.feed_forward_length", 0), "llama.feed_forward_length");
  expect_refused(with("llama.attention.head_count", 0), "llama.attention.head_count");
  expect_refused(with("llama.attention.head_count_kv", 0), "llama.attention.head_count_kv");
  expect_refused(with("llama.attention.head_count_kv", 3), "expected a divisor of the 4 query heads");
  expect_refused(with("llama.attention.key_length", 15), "expected an even head length, found 15");
  expect_refused(with("llama.attention.value_length", 8), "expected the length of keys, 16, found 8");
  expect_refused(with("llama.rope.dimension_count", 8), "expected the head length, 16, found 8");
  expect_refused(with("llama.attention.head_count", 1u << 30), "too many");
  expect_refused(tiny_model().f32("llama.attention.layer_norm_rms_epsilon", -1.0f), "at least 0");
  expect_refused(tiny_model().f32("llama.rope.freq_base", 0.0f), "llama.rope.freq_base");
  expect_refused(tiny_model().i32s("llama.feed_forward_length", {96, 96, 96}), "an array of 2 elements, found 3");
  expect_refused(tiny_model().i32s("llama.feed_forward_length", {96, -1}), "found -1");
}

TEST(ModelConfig, RefusesAnUnknownArchitectureByName) {
  expect_refused(tiny_model().string("general.architecture", "mamba"),
                 "architecture 'mamba' is not supported; supported: llama, smollm3, qwen2, qwen3",
                 ErrorKind::unsupported);
}

TEST(ModelConfig, RefusesExpertsWhereTheArchitectureHasNone) {
  expect_refused(tiny_model({.architecture = "qwen2"}).u32("qwen2.expert_count", 8),
                 "key 'qwen2.expert_count': experts are not supported in this architecture", ErrorKind::unsupported);
}

TEST(ModelConfig, NamesTheFileTypeLikeThePeer) {
  EXPECT_EQ(config_of(tiny_model().u32("general.file_type", 3)).file_type, "Q4_1");
  EXPECT_EQ(config_of(tiny_model().u32("general.file_type", 15)).file_type, "Q4_K - Medium");
  EXPECT_EQ(config_of(tiny_model().u32("general.file_type", 5)).file_type, "unknown, may not work");
  EXPECT_EQ(config_of(tiny_model().remove("general.file_type")).file_type, "(guessed) F32");
}

TEST(ModelConfig, ScalesPositionsLinearly) {
  const ModelConfig config = read_config(tiny_file("tiny-llama-rope-linear-Q8_0"));
  EXPECT_EQ(config.layer[0].rope.freq_scale, 0.5f);
  EXPECT_EQ(config.layer[0].rope.ext_factor, 0.0f);
  EXPECT_EQ(config.layer[0].rope.attn_factor, 1.0f);
  EXPECT_EQ(rope_of(tiny_model().f32("llama.rope.scale_linear", 4.0f)).freq_scale, 0.25f);
  EXPECT_EQ(rope_of(tiny_model().f32("llama.rope.scaling.factor", 0.0f)).freq_scale, 1.0f);
}

TEST(ModelConfig, SetsUpYarn) {
  const RopeParams rope = read_config(tiny_file("tiny-llama-yarn-Q8_0")).layer[0].rope;
  EXPECT_EQ(rope.freq_scale, 0.25f);
  EXPECT_EQ(rope.ext_factor, 1.0f);
  EXPECT_EQ(rope.n_ctx_orig, 128);
  EXPECT_EQ(rope.beta_fast, 32.0f);
  EXPECT_EQ(rope.beta_slow, 1.0f);
  EXPECT_EQ(rope.attn_factor, 1.0f);  // (1 + 0.1 ln 4) / (1 + 0.1 ln 4)
}

TEST(ModelConfig, ReplacesTheYarnMagnitudeAndKeepsTheFactorOfTheFile) {
  GgufBuilder builder = tiny_model();
  builder.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0f);
  builder.f32("llama.rope.scaling.attn_factor", 1.5f);
  EXPECT_EQ(rope_of(builder, {.attn_factor = 3.0f}).attn_factor, 1.5f);
  EXPECT_EQ(rope_of(builder, {.ext_factor = 0.0f, .attn_factor = 3.0f}).attn_factor, 4.5f);
  // A factor below 1: 1 / (1 + 0.1 ln 0.5), times the file's.
  EXPECT_FLOAT_EQ(rope_of(builder, {.freq_scale = 2.0f}).attn_factor, 1.5f / (1.0f + 0.1f * std::log(0.5f)));
}

TEST(ModelConfig, DoesNotReadYarnParametersOfTheFile) {
  GgufBuilder builder = tiny_model();
  builder.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 2.0f);
  builder.f32("llama.rope.scaling.yarn_ext_factor", 0.5f).f32("llama.rope.scaling.yarn_beta_fast", 16.0f);
  EXPECT_EQ(rope_of(builder).ext_factor, 1.0f);
  EXPECT_EQ(rope_of(builder).beta_fast, 32.0f);
}

TEST(ModelConfig, PutsTheUsersPositionScalingFirst) {
  GgufBuilder builder = tiny_model();
  builder.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2.0f);
  const RopeParams rope = rope_of(builder, {.freq_base = 500000.0f,
                                            .freq_scale = 0.125f,
                                            .ext_factor = 0.75f,
                                            .beta_fast = 16.0f,
                                            .beta_slow = 2.0f,
                                            .orig_context = 64,
                                            .scaling = "yarn"});
  EXPECT_EQ(rope.base, 500000.0f);
  EXPECT_EQ(rope.freq_scale, 0.125f);
  EXPECT_EQ(rope.ext_factor, 0.75f);
  EXPECT_EQ(rope.beta_fast, 16.0f);
  EXPECT_EQ(rope.beta_slow, 2.0f);
  EXPECT_EQ(rope.n_ctx_orig, 64);
  EXPECT_EQ(rope_of(builder, {.scaling = "yarn"}).ext_factor, 1.0f);
  EXPECT_EQ(rope_of(builder, {.scaling = "none"}).freq_scale, 1.0f);
}

TEST(ModelConfig, RefusesOverridesThatCannotBeUsed) {
  const auto expect = [](const RopeOverrides& overrides, std::string_view part) {
    expect_error(ErrorKind::invalid_request, part, [&] { config_of(tiny_model(), overrides); });
  };
  expect({.freq_base = 0.0f}, "rope frequency base: expected a number above 1, found 0");
  expect({.freq_scale = -1.0f}, "rope frequency scale");
  expect({.ext_factor = std::numeric_limits<float>::infinity()}, "yarn extrapolation factor");
  expect({.beta_fast = 0.0f}, "yarn beta fast");
  expect({.orig_context = 0}, "yarn original context");
  expect({.scaling = "cubic"}, "expected none, linear or yarn, found 'cubic'");
}

TEST(ModelConfig, KnowsWhichContextLongRopeStartsAt) {
  GgufBuilder builder = tiny_model();
  builder.string("llama.rope.scaling.type", "longrope").u32("llama.rope.scaling.original_context_length", 100);
  builder.f32("llama.rope.scaling.attn_factor", 1.25f);
  const ModelConfig config = config_of(builder);
  EXPECT_TRUE(config.rope_long_factors);
  EXPECT_EQ(config.rope_n_ctx_orig, 100);
  EXPECT_EQ(config.layer[0].rope.attn_factor, 1.25f);
  EXPECT_FALSE(config_of(tiny_model()).rope_long_factors);
  expect_refused(builder.string("llama.rope.scaling.type", "su"),
                 "expected none, linear, yarn or longrope, found 'su'");
}

TEST(ModelConfig, ReadsAllTinyLlamaFiles) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(BANKML_TEST_DATA) / "tiny")) {
    if (!entry.path().filename().string().starts_with("tiny-llama-")) continue;
    const GgufFile file = GgufFile::open(entry.path());
    EXPECT_EQ(read_config(file).vocab, 288) << entry.path();
    EXPECT_EQ(read_vocabulary(file).tokens.size(), 288u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 18);
}

TEST(ModelConfig, ReadsSmolLM2) {
  const char* const models = std::getenv("BANKML_MODELS");
  if (models == nullptr) GTEST_SKIP() << "BANKML_MODELS names no folder with SmolLM2-135M-Instruct.Q4_1.gguf";
  const GgufFile file = GgufFile::open(std::filesystem::path(models) / "SmolLM2-135M-Instruct.Q4_1.gguf");
  const ModelConfig config = read_config(file);
  EXPECT_EQ(config.file_type, "Q4_1");
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.dim, 576);
  EXPECT_EQ(config.vocab, 49152);
  EXPECT_EQ(config.layer[0].heads, 9);
  EXPECT_EQ(config.layer[0].kv_heads, 3);
  EXPECT_EQ(config.layer[0].hidden, 1536);
  EXPECT_EQ(config.layer[0].rope.base, 100000.0f);
  EXPECT_EQ(config.attention_scale, 0.125f);
  EXPECT_EQ(file.tensors().size(), 272u);
  EXPECT_EQ(file.tensors()[0].data.size() % 32, 0u);
  const VocabularySource vocabulary = read_vocabulary(file);
  EXPECT_EQ(vocabulary.pre, "smollm");
  EXPECT_THAT(vocabulary.bos, Optional(1u));
  EXPECT_THAT(vocabulary.eos, Optional(2u));
  EXPECT_THAT(read_chat_template(file), testing::HasSubstr("<|im_start|>"));
}

TEST(ModelConfig, RefusesOrReadsAFileWithAnyByteOfItsKeysChanged) {
  const GgufBuilder builder = tiny_model();
  auto bytes = builder.build();
  for (std::size_t i = 0; i < builder.header_bytes(); ++i) {
    const std::byte right = bytes[i];
    for (const int change : {0x01, 0x80, 0xff}) {
      bytes[i] = right ^ static_cast<std::byte>(change);
      try {
        const GgufFile file = GgufFile::parse(bytes, "t");
        read_config(file);
        read_vocabulary(file);
      } catch (const Error&) {
      }
    }
    bytes[i] = right;
  }
}

TEST(Vocabulary, GivesTheTablesOfTheFile) {
  GgufBuilder builder = tiny_model();
  builder.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"}).i32s("tokenizer.ggml.token_type", {1, 6, 4, 3});
  builder.floats("tokenizer.ggml.scores", {0.0f, -1.0f, -2.5f, 0.0f}).strings("tokenizer.ggml.merges", {"a b"});
  builder.u32("tokenizer.ggml.bos_token_id", 3).u32("tokenizer.ggml.eos_token_id", 3);
  builder.u32("tokenizer.ggml.prefix_token_id", 1).i32s("tokenizer.ggml.suppress_tokens", {2, 7, -1});
  builder.boolean("tokenizer.ggml.add_bos_token", true).boolean("tokenizer.ggml.add_space_prefix", false);
  const VocabularySource vocabulary = vocabulary_of(builder);
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "gpt-2");
  EXPECT_EQ(vocabulary.model_name, "tiny");
  EXPECT_THAT(vocabulary.tokens, ElementsAre("a", "b", "ab", "<s>"));
  EXPECT_THAT(vocabulary.types, ElementsAre(1, 6, 4, 3));
  EXPECT_THAT(vocabulary.scores, ElementsAre(0.0f, -1.0f, -2.5f, 0.0f));
  EXPECT_THAT(vocabulary.merges, ElementsAre("a b"));
  EXPECT_THAT(vocabulary.suppress_tokens, ElementsAre(2, 7, -1));
  EXPECT_THAT(vocabulary.bos, Optional(3u));
  EXPECT_THAT(vocabulary.fim_pre, Optional(1u));
  EXPECT_EQ(vocabulary.eot, std::nullopt);
  EXPECT_THAT(vocabulary.add_bos, Optional(true));
  EXPECT_THAT(vocabulary.add_space_prefix, Optional(false));
  EXPECT_EQ(vocabulary.add_eos, std::nullopt);
}

TEST(Vocabulary, TakesScoresThatAreIntegers) {
  GgufBuilder builder = tiny_model();
  builder.strings("tokenizer.ggml.tokens", {"a", "b"}).i32s("tokenizer.ggml.scores", {-3, 4});
  EXPECT_THAT(vocabulary_of(builder.remove("tokenizer.ggml.token_type")).scores, ElementsAre(-3.0f, 4.0f));
}

TEST(Vocabulary, LeavesAbsentTablesEmpty) {
  GgufBuilder builder = tiny_model();
  builder.remove("tokenizer.ggml.token_type").remove("tokenizer.ggml.merges").remove("tokenizer.ggml.pre");
  const VocabularySource vocabulary = vocabulary_of(builder);
  EXPECT_THAT(vocabulary.types, ElementsAre());
  EXPECT_THAT(vocabulary.scores, ElementsAre());
  EXPECT_THAT(vocabulary.merges, ElementsAre());
  EXPECT_EQ(vocabulary.pre, "");
}

TEST(Vocabulary, TakesTheOlderNameOfAKeyWhereTheNewOneIsMissing) {
  GgufBuilder builder = tiny_model();
  builder.u32("tokenizer.ggml.suffix_token_id", 5).u32("tokenizer.ggml.fim_mid_token_id", 6);
  const VocabularySource vocabulary = vocabulary_of(builder.u32("tokenizer.ggml.middle_token_id", 7));
  EXPECT_THAT(vocabulary.fim_suf, Optional(5u));
  EXPECT_THAT(vocabulary.fim_mid, Optional(6u));
}

// No token has them, and the tokenizer says so.
TEST(Vocabulary, KeepsNumbersOfMoreThan32BitsOutOfRange) {
  GgufBuilder builder = tiny_model();
  builder.u64("tokenizer.ggml.bos_token_id", std::uint64_t{1} << 32 | 5);
  const VocabularySource vocabulary = vocabulary_of(builder);
  EXPECT_THAT(vocabulary.bos, Optional(std::numeric_limits<std::uint32_t>::max()));
}

TEST(Vocabulary, NamesAKeyThatIsMissingOrOfAnotherType) {
  expect_vocabulary_refused(tiny_model().remove("tokenizer.ggml.model"), "key 'tokenizer.ggml.model' is missing");
  expect_vocabulary_refused(tiny_model().remove("tokenizer.ggml.tokens"), "key 'tokenizer.ggml.tokens' is missing");
  expect_vocabulary_refused(tiny_model().strings("tokenizer.ggml.token_type", {"a"}),
                            "key 'tokenizer.ggml.token_type'");
}

TEST(ChatTemplate, IsReadWithItsVariants) {
  GgufBuilder builder = tiny_model();
  builder.string("tokenizer.chat_template", "A").string("tokenizer.chat_template.tool_use", "B");
  const auto bytes = builder.build();
  const GgufFile file = GgufFile::parse(bytes, "test.gguf");
  EXPECT_EQ(read_chat_template(file), "A");
  EXPECT_EQ(read_chat_template(file, "tool_use"), "B");
  EXPECT_EQ(read_chat_template(file, "rag"), "");
}

}  // namespace
}  // namespace bankml
