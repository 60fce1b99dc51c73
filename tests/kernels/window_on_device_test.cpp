// Models whose layers see a window, on a device with memory of its own: what their conversations use again, and where
// their checkpoints lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/host_device.hpp"
#include "support/engine_fixture.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::EngineFixture;
using test::GgufBuilder;
using test::range;

std::unique_ptr<Device> device() {
  return std::make_unique<host::HostDevice>();
}

// Every second layer sees 64 tokens; a block of either part takes 32 KiB. Quick on the host device.
GgufBuilder window_model() {
  GgufBuilder model = test::tiny_model({.dim = 32,
                                        .heads = 2,
                                        .head_dim = 64,
                                        .hidden = 32,
                                        .context = 1024,
                                        .experts = 2,
                                        .sinks = true,
                                        .ffn_norm = "post_attention_norm",
                                        .architecture = "gpt-oss"});
  model.u32("gpt-oss.expert_feed_forward_length", 32).u32("gpt-oss.attention.sliding_window", 64);
  return model;
}

class WindowOnDevice : public testing::Test {
 protected:
  const test::TemporaryFile file{window_model().build()};
};

// Twelve conversations that are longer than the window; each returns once, soon. cache_n of each request.
std::vector<int> window_conversations(EngineFixture& fixture) {
  constexpr int kConversations = 12;
  const std::uint64_t limit = fixture.engine().metrics().cache_limit_bytes;
  CompletionParams params = EngineFixture::default_params();
  params.n_predict = 1;
  std::vector<int> cached;
  std::vector<std::vector<TokenId>> said(kConversations);
  for (int k = 0; k < 2 * kConversations; ++k) {
    const int c = k % 2 == 0 ? k / 2 : std::max(0, k / 2 - 1);
    std::vector<TokenId>& prompt = said[static_cast<std::size_t>(c)];
    const int held = static_cast<int>(prompt.size()), added = held == 0 ? 70 + 3 * c : 20;
    for (int i = held; i < held + added; ++i) prompt.push_back((c * 31 + i * 7 + i / 13) % 250);
    cached.push_back(fixture.ask(prompt, params).timings.cache_n);
    const EngineMetrics metrics = fixture.engine().metrics();
    EXPECT_LE(metrics.cache_bytes, limit);
    EXPECT_LE(metrics.cache_checkpoint_bytes, metrics.cache_bytes);
    EXPECT_LE(metrics.pinned_bytes + metrics.pageable_bytes, limit) << "copies under way are a part of them";
  }
  const EngineMetrics metrics = fixture.engine().metrics();
  EXPECT_GT(metrics.cache_checkpoints, 0u);
  EXPECT_GT(metrics.checkpoints_restored, 0u);
  return cached;
}

EngineOptions window_options(int cache_mib) {
  EngineOptions steps = EngineFixture::default_options();
  steps.context = 512;
  steps.batch = 64;
  steps.ubatch = 32;
  steps.cache_ram_mib = cache_mib;
  return steps;
}

TEST_F(WindowOnDevice, ConversationsReturnAsOnTheCpu) {
  EngineFixture cpu(window_options(16), file.path()), gpu(window_options(16), file.path(), device());
  EXPECT_EQ(window_conversations(gpu), window_conversations(cpu));
}

TEST_F(WindowOnDevice, ConversationsNeverTakeMoreThanTheLimit) {
  EngineFixture gpu(window_options(1), file.path(), device());
  window_conversations(gpu);
  const EngineMetrics metrics = gpu.engine().metrics();
  EXPECT_GT(metrics.cache_hits, 0u);
  EXPECT_GT(metrics.evicted_for_bytes + metrics.evicted_for_memory, 0u);
}

// Without host memory for them, checkpoints lie where keys and values do.
TEST_F(WindowOnDevice, CheckpointsGiveWayToAPromptWhereDeviceMemoryIsShort) {
  EngineOptions steps = window_options(0);
  steps.device_free_bytes = [] { return std::uint64_t{1} << 30; };
  EngineFixture fixture(steps, file.path(), device());
  CompletionParams params = EngineFixture::default_params();
  params.n_predict = 1;
  std::vector<TokenId> prompt;
  for (int turn = 0; turn < 16; ++turn) {
    for (int i = 0; i < 30; ++i) prompt.push_back((turn * 31 + i * 7) % 250);
    auto [id, answer] = fixture.submit(prompt, params);
    EXPECT_EQ(answer.result().tokens.size(), 1u) << "turn " << turn;
  }
  EXPECT_GT(fixture.engine().metrics().checkpoints_made, 16u);
}

TEST(GemmaOnDevice, UsesCheckpointsAsOnTheCpu) {
  EngineOptions steps = window_options(8);
  steps.checkpoint_min_step = 30;
  const auto ask = [&](std::unique_ptr<Device> on) {
    EngineFixture fixture(steps, BANKML_TEST_DATA "/tiny/tiny-gemma3-Q8_0.gguf", std::move(on));
    CompletionParams params = EngineFixture::default_params();
    params.sampling.logit_bias = {{286, -INFINITY}, {287, -INFINITY}};
    params.n_predict = 1;
    std::vector<int> cached;
    const auto text = [](int n) {
      std::vector<TokenId> tokens;
      for (int i = 0; i < n; ++i) tokens.push_back((i * 7 + i / 11) % 200);
      return tokens;
    };
    for (const auto& prompt : {text(30), text(80), text(110), range(100, 140), text(60), range(100, 145)})
      cached.push_back(fixture.ask(prompt, params).timings.cache_n);
    EXPECT_GT(fixture.engine().metrics().checkpoints_restored, 0u);
    return cached;
  };
  EXPECT_EQ(ask(device()), ask(make_cpu_device(1)));
}

}  // namespace
}  // namespace bankml
