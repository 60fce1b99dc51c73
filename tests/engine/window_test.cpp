// A model whose layers see a window of 64 tokens, except one: checkpoints, and what is used again
// (docs/prompt-cache.md, 3.4). `cache_n` is what llama-server b11192 answered to the same requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "support/engine_fixture.hpp"

namespace bankml::test {
namespace {

using ::testing::ElementsAre;

constexpr const char* kModel = BANKML_TEST_DATA "/tiny/tiny-gemma3-Q8_0.gguf";
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

EngineOptions options(int batch, int ubatch) {
  EngineOptions options = EngineFixture::default_options();
  options.context = 512;
  options.batch = batch;
  options.ubatch = ubatch;
  return options;
}

CompletionParams params(int n_predict = 1) {
  CompletionParams params;
  params.sampling.temperature = 0.0f;
  params.n_predict = n_predict;
  for (const TokenId eos : {286, 287}) params.sampling.logit_bias.emplace_back(eos, -INFINITY);
  return params;
}

// The first n tokens of an endless text.
std::vector<TokenId> text(int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 7 + i / 11) % 200);
  return tokens;
}

std::vector<int> cached(EngineFixture& fixture, std::initializer_list<int> lengths) {
  std::vector<int> out;
  for (const int n : lengths) out.push_back(fixture.ask(text(n), params()).timings.cache_n);
  return out;
}

TEST(Window, GoesBackToACheckpointWhereTheWindowIsGone) {
  EngineOptions small_steps = options(64, 32);
  small_steps.checkpoints = 4;
  small_steps.checkpoint_min_step = 30;
  EngineFixture fixture(small_steps, kModel);
  EXPECT_THAT(cached(fixture, {50, 70, 90, 200, 210, 220, 300, 310}), ElementsAre(0, 45, 70, 90, 200, 210, 220, 300));
  EXPECT_EQ(fixture.engine().slots()[0].checkpoints, 4u);
  EXPECT_THAT(cached(fixture, {100, 150, 205, 305}), ElementsAre(0, 100, 150, 205));
}

// Of 69 tokens in slot 0 llama-server b11192 evaluates 1, 64 and 4, and the prompt of slot 1 beside them: who has more
// tokens ends later.
TEST(Window, APromptOfAnotherSlotJoinsAStepThatACheckpointCutShort) {
  EngineOptions two_slots = options(2048, 64);
  two_slots.slots = 2;
  two_slots.context = 1024;
  EngineFixture fixture(two_slots, kModel);
  std::vector<int> ended;
  std::promise<void> all;
  std::vector<Submission> submissions;
  for (const int length : {20, 69}) {  // the first takes slot 1
    Submission one{text(length), {std::make_shared<const CompletionParams>(params())}, {}};
    one.sinks.push_back([&, length](JobEvent&& event) {
      if (!std::holds_alternative<Done>(event)) return;
      ended.push_back(length);
      if (ended.size() == 2) all.set_value();
    });
    submissions.push_back(std::move(one));
  }
  fixture.engine().submit(std::move(submissions));
  all.get_future().wait();
  EXPECT_THAT(ended, ElementsAre(20, 69));
}

// R12 of docs/prompt-cache.md: a checkpoint of 16 tokens gives back 15.
TEST(Window, ACheckpointGivesBackAllItsTokensButOne) {
  EngineFixture fixture(options(2048, 512), kModel);
  const Done first = fixture.ask(text(20), params(5));
  EXPECT_EQ(fixture.engine().slots()[0].checkpoints, 1u);
  const auto held = text(20) + std::vector<TokenId>(first.tokens.begin(), first.tokens.end() - 1);
  EXPECT_EQ(fixture.ask(held + range(100, 110), params()).timings.cache_n, 15);
}

TEST(Window, StartsAnewWithoutCheckpoints) {
  EngineOptions none = options(2048, 512);
  none.checkpoints = 0;
  EngineFixture fixture(none, kModel);
  EXPECT_THAT(cached(fixture, {20, 40}), ElementsAre(0, 0));
}

// What came back from the prompt cache has forgotten what the moved tokens see.
TEST(Window, StartsAnewWhereChunksMoveBehindForgottenTokens) {
  EngineFixture fixture(options(2048, 512), kModel);
  fixture.ask(text(300), params());
  fixture.ask(std::vector<TokenId>(150, 202), params());
  EXPECT_EQ(fixture.ask(text(300) + std::vector<TokenId>{203}, params()).timings.cache_n, 295);
  const std::vector<TokenId> all = text(200);
  const std::vector<TokenId> without_ten = text(100) + std::vector<TokenId>(all.begin() + 110, all.end());
  CompletionParams reuse = params();
  reuse.n_cache_reuse = 5;
  EXPECT_EQ(fixture.ask(without_ten + std::vector<TokenId>(3, 201), reuse).timings.cache_n, 0);
}

TEST(Window, FullSizeWindowLayersNeedNoCheckpoints) {
  EngineOptions full = options(2048, 512);
  full.swa_full = true;
  EngineFixture fixture(full, kModel);
  EXPECT_THAT(cached(fixture, {10, 60, 100, 300}), ElementsAre(0, 10, 60, 100));
  EXPECT_EQ(fixture.engine().slots()[0].checkpoints, 0u);
}

TEST(Window, AnswersFromACheckpointAsFromTheStart) {
  CompletionParams anew = params(8);
  anew.cache_prompt = false;
  EngineFixture fixture(options(64, 32), kModel);
  cached(fixture, {50, 300});
  const Done reused = fixture.ask(text(60) + range(30, 60), params(8));
  EXPECT_EQ(reused.timings.cache_n, 45);
  EXPECT_EQ(reused.tokens, fixture.ask(text(60) + range(30, 60), anew).tokens);
}

// Twelve conversations, each longer than the window before long, of which the cache holds two or three. Every fifth
// request edits the end of what was said.
TEST(Window, TwelveConversationsTakeTurnsInASmallCacheAsThePeerLetsThem) {
  const std::vector<int> expected = {
      0,   0, 65,  74,  123, 0, 143, 0,   115, 0, 148, 92,  137, 0, 153, 0,   119, 0, 148, 110,
      142, 0, 153, 0,   143, 0, 168, 0,   165, 0, 173, 0,   187, 0, 208, 0,   169, 0, 203, 0,
      192, 0, 208, 164, 193, 0, 223, 0,   146, 0, 159, 0,   243, 0, 269, 0,   207, 0, 216, 0,
      262, 0, 283, 211, 245, 0, 0,   202, 249, 0, 0,   223, 253, 0, 0,   214, 247, 0, 0,   285,
      302, 0, 0,   246, 285, 0, 0,   267, 319, 0, 0,   288, 323, 0, 0,   210, 248, 0, 0,   326};
  EngineOptions small = options(128, 64);
  small.cache_ram_mib = 1;
  EngineFixture fixture(small, kModel);
  std::vector<std::vector<TokenId>> said(12);
  std::vector<int> reused;
  for (int k = 0; k < static_cast<int>(expected.size()); ++k) {
    const int c = (k / 4 + k % 2) % 12;
    std::vector<TokenId>& prompt = said[static_cast<std::size_t>(c)];
    const int added = prompt.empty() ? 70 + 9 * c : 11 + (c * 5 + k * 17) % 30;
    if (!prompt.empty() && k % 5 == 0) prompt.resize(prompt.size() - 10);
    const int held = static_cast<int>(prompt.size());
    for (int i = held; i < held + added; ++i) prompt.push_back(((c + k % 2) * 31 + i * 7 + i / 13) % 250);
    const Done done = fixture.ask(prompt, params(4));
    reused.push_back(done.timings.cache_n);
    prompt.insert(prompt.end(), done.tokens.begin(), done.tokens.end());
    const EngineMetrics metrics = fixture.engine().metrics();
    ASSERT_LE(metrics.cache_bytes, kMiB);
    ASSERT_LE(metrics.cache_checkpoint_bytes, metrics.cache_bytes);
  }
  EXPECT_EQ(reused, expected);
  const EngineMetrics metrics = fixture.engine().metrics();
  EXPECT_GT(metrics.cache_checkpoints, 0u);
  EXPECT_GT(metrics.checkpoints_restored, 0u);
}

TEST(Window, ASlotFileHasNoCheckpoints) {
  EngineOptions with_files = options(2048, 512);
  with_files.slot_save_path = std::filesystem::temp_directory_path();
  const std::string name = "bankml-window-" + std::to_string(::getpid());
  EngineFixture fixture(with_files, kModel);
  fixture.ask(text(300), params(4));
  ASSERT_TRUE(std::holds_alternative<SlotActionResult>(fixture.save(name)));
  fixture.ask(range(0, 30), params());
  const auto restored = fixture.restore(name);
  std::filesystem::remove(with_files.slot_save_path / name);
  ASSERT_TRUE(std::holds_alternative<SlotActionResult>(restored));
  EXPECT_EQ(std::get<SlotActionResult>(restored).tokens, 303);
  EXPECT_EQ(fixture.engine().slots()[0].checkpoints, 0u);
  EXPECT_EQ(fixture.ask(text(300), params()).timings.cache_n, 0)
      << "the window has gone on, and there is no checkpoint";
}

TEST(Window, ChunksAreNotReusedWhereWindowLayersKeepLess) {
  CompletionParams reuse = params();
  reuse.n_cache_reuse = 8;
  EngineFixture fixture(options(64, 32), kModel);
  fixture.ask(text(100), params());
  std::vector<TokenId> shorter = text(100);
  shorter.erase(shorter.begin() + 20, shorter.begin() + 30);
  EXPECT_EQ(fixture.ask(shorter, reuse).timings.cache_n, 0);
}

TEST(Window, MakesACheckpointBeforeTheLastMessageOfTheUser) {
  CompletionParams chat = params();
  chat.user_messages = {20, 71};
  EngineFixture fixture(options(2048, 512), kModel);
  fixture.ask(text(104), chat);
  EXPECT_EQ(fixture.engine().slots()[0].checkpoints, 3u)
      << "before 20 as there is none yet, before 71, before the last four tokens";
}

}  // namespace
}  // namespace bankml::test
