// The forward pass on the host device: recorded continuations of the peer's CPU backend, which ours repeats bit for
// bit, and models of floats beside ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "bankml/model/model.hpp"
#include "kernels/host_device.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr int kContext = 512;
constexpr std::size_t kLongPrompt = 70;

// A model on a device, and one sequence.
class Side {
 public:
  Side(Device& device, GgufFile file, DType kv = DType::f16)
      : model_(Model::load(std::move(file), device)),
        pool_(device, model_->config(), kv, kv, 0),
        transformer_(*model_, pool_,
                     {.max_rows = kContext, .max_logit_rows = 1, .max_sequences = 1, .context = kContext}) {}

  const Model& model() const { return *model_; }
  void restart() { sequence_.truncate(0); }

  // Runs the tokens as one batch; the last one's log-probabilities.
  std::vector<float> run(const std::vector<TokenId>& tokens) {
    std::vector<BatchRow> rows;
    for (const TokenId token : tokens) {
      const auto position = static_cast<std::int32_t>(sequence_.length()) + static_cast<std::int32_t>(rows.size());
      rows.push_back({token, position, 0, rows.size() + 1 == tokens.size()});
    }
    KvSequence* const one[] = {&sequence_};
    transformer_.forward(rows, one);
    const auto logits = transformer_.logits(0);
    const float most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x - most));
    std::vector<float> out;
    for (const float x : logits) out.push_back(x - most - static_cast<float>(std::log(sum)));
    return out;
  }

 private:
  std::unique_ptr<Model> model_;
  KvPool pool_;
  Transformer transformer_;
  KvSequence sequence_;
};

TokenId likeliest(const std::vector<float>& log_probs) {
  return static_cast<TokenId>(std::max_element(log_probs.begin(), log_probs.end()) - log_probs.begin());
}

json::value fixture(const std::string& name) {
  std::ifstream in(fs::path(BANKML_TEST_DATA) / "fixtures" / (name + ".json"));
  return json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}
std::vector<TokenId> token_ids(const json::value& ids) {
  std::vector<TokenId> out;
  for (const json::value& id : ids.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

class Recorded : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (fs::exists(path_)) return;
    const char* models = std::getenv("BANKML_MODELS");
    path_ = fs::path(models != nullptr ? models : "") / GetParam();
    if (!fs::exists(path_))
      GTEST_SKIP() << GetParam() << " is neither among the tests' data nor in the folder that BANKML_MODELS names";
  }

  // The largest difference from a recorded log-probability.
  float worst_of_recordings(bool continuations) {
    host::HostDevice device;
    Side side(device, GgufFile::open(path_));
    const bool windows = side.model().config().layer.front().window > 0;
    float worst = 0;
    for (const json::value& c : recordings_.at(GetParam()).as_array()) {
      spread_ = std::max(spread_, c.at("spread").to_number<float>());
      // Slow, and nothing new but where a prompt is longer than the window.
      if (!continuations && !windows && c.at("prompt").as_array().size() > kLongPrompt) continue;
      side.restart();
      std::vector<float> log_probs = side.run(token_ids(c.at("prompt")));
      for (const json::value& pair : c.at("top").as_array()) {
        const auto token = pair.at(0).to_number<std::size_t>();
        const float difference = std::abs(log_probs[token] - pair.at(1).to_number<float>());
        worst = difference <= worst ? worst : difference;  // not a number is the worst
      }
      if (!continuations || !c.at("robust").as_bool()) continue;
      for (const TokenId token : token_ids(c.at("tokens"))) {
        // Another token where the recorded one is as likely within the peer's own spread.
        const float behind =
            log_probs[static_cast<std::size_t>(likeliest(log_probs))] - log_probs[static_cast<std::size_t>(token)];
        EXPECT_LE(behind, ties_) << "prompt of " << c.at("prompt").as_array().size();
        log_probs = side.run({token});
      }
    }
    RecordProperty("worst", std::to_string(worst));
    return worst;
  }
  void allow_ties(float difference) { ties_ = difference; }
  // How far the peer's own log-probabilities move between one thread and several, with and without flash attention.
  float spread() const { return spread_; }

 private:
  fs::path path_ = fs::path(BANKML_TEST_DATA) / "tiny" / GetParam();
  json::value recordings_ = fixture("tiny-models");
  float spread_ = 0, ties_ = 0;
};

std::string model_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = fs::path(info.param).stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

using FloatModels = Recorded;
INSTANTIATE_TEST_SUITE_P(, FloatModels, testing::Values("tiny-llama-F16.gguf", "tiny-llama-BF16.gguf"), model_name);

// Both round activations to bfloat16 before a product, so one moves by a 256th where a sum falls to the other side:
// the peer's own runs are 0.033 apart. With a cache of floats 0.01 holds (FloatCache).
TEST_P(FloatModels, ContinueAsRecorded) {
  const bool rounds_coarsely = GetParam() == "tiny-llama-BF16.gguf";
  constexpr float kBfloat16Spread = 0.033f;
  if (rounds_coarsely) allow_ties(kBfloat16Spread);
  EXPECT_LE(worst_of_recordings(true), rounds_coarsely ? 1.5f * kBfloat16Spread : 0.01f);
}

class QuantisedModels : public Recorded {};
INSTANTIATE_TEST_SUITE_P(, QuantisedModels,
                         testing::Values("tiny-llama-Q4_0.gguf", "tiny-llama-Q4_1.gguf", "tiny-llama-Q5_0.gguf",
                                         "tiny-llama-Q5_1.gguf", "tiny-llama-Q8_0.gguf", "tiny-llama-Q2_K.gguf",
                                         "tiny-llama-Q3_K.gguf", "tiny-llama-Q4_K.gguf", "tiny-llama-Q5_K.gguf",
                                         "tiny-llama-Q6_K.gguf", "tiny-llama-IQ4_NL.gguf", "tiny-llama-IQ4_XS.gguf",
                                         "tiny-llama-2-Q8_0.gguf", "tiny-fused-qkv-Q8_0.gguf",
                                         "tiny-llama-rope-factors-Q8_0.gguf", "tiny-llama-rope-linear-Q8_0.gguf",
                                         "tiny-llama-yarn-Q8_0.gguf", "tiny-qwen2-Q8_0.gguf", "tiny-qwen3-Q8_0.gguf",
                                         "tiny-gemma2-Q8_0.gguf", "tiny-gemma3-Q8_0.gguf", "tiny-granite-Q8_0.gguf",
                                         "tiny-olmo2-Q8_0.gguf", "tiny-mixtral-Q8_0.gguf", "tiny-qwen3moe-Q8_0.gguf"),
                         model_name);

// The peer's runs share its accumulators of halves behind V, cell after cell; ours are floats of many lanes (see
// FloatCache), so two models come a little farther than the rest: 1.57 (Q3_K) and 1.54 spreads (Q5_1). Rounding alone
// doesn't follow the peer: with outputs of attention rounded to half others do so instead (1.76, 1.58), and only one
// chain of additions over all cells, which no GPU can afford, would give its bits.
TEST_P(QuantisedModels, StayNearThePeersOwnSpread) {
  const bool far = GetParam() == "tiny-llama-Q3_K.gguf" || GetParam() == "tiny-llama-Q5_1.gguf";
  const float worst = worst_of_recordings(false);
  EXPECT_LE(worst, (far ? 1.6f : 1.5f) * spread());
}

// How far apart the CPU backend and the kernels are over the same tokens, the CPU backend's likeliest ones.
struct Comparison {
  float worst = 0;  // difference of the log-probabilities of the eight likeliest tokens
  int other_tokens = 0;
};

Comparison compare(const std::function<GgufFile()>& file, const std::vector<std::vector<TokenId>>& prompts, int steps,
                   DType kv) {
  const auto cpu = make_cpu_device(1);
  host::HostDevice gpu;
  Side expected(*cpu, file(), kv), actual(gpu, file(), kv);
  Comparison out;
  for (std::vector<TokenId> next : prompts) {
    expected.restart();
    actual.restart();
    for (int step = 0; step < steps; ++step) {
      const std::vector<float> a = expected.run(next), b = actual.run(next);
      std::vector<std::size_t> order(a.size());
      std::iota(order.begin(), order.end(), 0u);
      std::partial_sort(order.begin(), order.begin() + 8, order.end(),
                        [&](std::size_t x, std::size_t y) { return a[x] > a[y]; });
      for (int i = 0; i < 8; ++i) {
        const float difference =
            std::abs(a[order[static_cast<std::size_t>(i)]] - b[order[static_cast<std::size_t>(i)]]);
        out.worst = difference <= out.worst ? out.worst : difference;
      }
      out.other_tokens += likeliest(a) != likeliest(b);
      next = {likeliest(a)};
    }
  }
  testing::Test::RecordProperty("worst", std::to_string(out.worst));
  return out;
}

std::vector<std::vector<TokenId>> prompts_of(std::initializer_list<int> lengths) {
  std::vector<std::vector<TokenId>> out;
  for (const int n : lengths) {
    out.emplace_back();
    for (int i = 0; i < n; ++i) out.back().push_back((i * 37 + 11) % 256);
  }
  return out;
}

GgufFile tiny_file(const std::string& name) {
  return GgufFile::open(fs::path(BANKML_TEST_DATA) / "tiny" / name);
}

// With a cache of floats both add up V in single precision: what is left is the order of sums. (With a cache of halves
// the CPU backend adds V in halves, as the peer's does, which moves attention by a part in 2000, and rounding to
// bfloat16 makes a part in 700 of that.)
class FloatCache : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, FloatCache,
                         testing::Values("tiny-llama-F16.gguf", "tiny-llama-BF16.gguf", "tiny-llama-Q5_1.gguf",
                                         "tiny-llama-Q3_K.gguf"),
                         model_name);

TEST_P(FloatCache, LeavesTheOrderOfSumsAsTheOnlyDifference) {
  const Comparison found = compare([] { return tiny_file(GetParam()); }, prompts_of({1, 9, 40, 70}), 8, DType::f32);
  EXPECT_LE(found.worst, 0.01f);
  EXPECT_EQ(found.other_tokens, 0);
}

struct ExpertModel {
  const char* name;
  test::TinyModelOptions options;

  std::vector<std::byte> build(bool q8_0) const {
    test::TinyModelOptions with = options;
    with.q8_0 = q8_0;
    return test::tiny_model(with).build();
  }
  friend void PrintTo(const ExpertModel& model, std::ostream* out) { *out << model.name; }
};
class ExpertModels : public testing::TestWithParam<ExpertModel> {};
INSTANTIATE_TEST_SUITE_P(, ExpertModels,
                         testing::Values(ExpertModel{"Mixtral", {.dim = 96, .hidden = 64, .experts = 4}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ExpertModels, OfFloatsGiveTheCpuBackendsTokens) {
  const auto file = GetParam().build(false);
  const Comparison found =
      compare([&] { return GgufFile::parse(file, "tiny"); }, prompts_of({1, 9, 40}), 6, DType::f32);
  EXPECT_LE(found.worst, 0.01f);
  EXPECT_EQ(found.other_tokens, 0);
}

// Prompts of more than eight rows take the tiles of experts. An integer of an activation may be rounded to its
// neighbour, and what comes of that is what the peer's own runs of such models differ by: 0.21 (recorded for
// tiny-mixtral-Q8_0).
TEST_P(ExpertModels, OfBlocksStayNearTheCpuBackend) {
  const auto file = GetParam().build(true);
  const Comparison found =
      compare([&] { return GgufFile::parse(file, "tiny"); }, prompts_of({1, 9, 40}), 6, DType::f32);
  EXPECT_LE(found.worst, 0.21f);
}

// A decode step has the same launches from token to token, across a block of cells: from the third on they are one
// graph.
TEST(DecodeSteps, AreOneLaunchEachOnceTheyRepeat) {
  for (const bool experts : {false, true}) {
    const auto file = test::tiny_model({.experts = experts ? 4 : 0}).build();
    host::HostDevice gpu;
    Side side(gpu, GgufFile::parse(file, "tiny"));
    side.run(prompts_of({60}).front());
    for (int step = 0; step < 8; ++step) {
      const std::int64_t before = gpu.runtime().count(host::Operation::launch);
      side.run({5});
      const std::int64_t launches = gpu.runtime().count(host::Operation::launch) - before;
      if (step < 2) {
        EXPECT_GT(launches, 10);
      } else {
        EXPECT_EQ(launches, 1) << "step " << step;
      }
    }
  }
}

TEST(FloatModel, OfFullPrecisionGivesTheCpuBackendsTokens) {
  for (const int n : {3, 20, 80}) {
    const auto file =
        test::tiny_model({.layers = 3, .dim = 96, .heads = 6, .kv_heads = 2, .head_dim = 64, .biases = true}).build();
    const auto cpu = make_cpu_device(1);
    host::HostDevice gpu;
    Side expected(*cpu, GgufFile::parse(file, "tiny")), actual(gpu, GgufFile::parse(file, "tiny"));
    std::vector<TokenId> next;
    for (int i = 0; i < n; ++i) next.push_back((i * 37 + 11) % 256);
    for (int step = 0; step < 8; ++step) {
      const std::vector<float> a = expected.run(next), b = actual.run(next);
      ASSERT_EQ(likeliest(b), likeliest(a)) << n << " tokens, step " << step;
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(b[i], a[i], 0.01f) << n << " tokens, step " << step;
      next = {likeliest(a)};
    }
  }
}

// A real model's activations are large, so small differences grow.
TEST(RealModel, GivesTheCpuBackendsFirstTokens) {
  const char* models = std::getenv("BANKML_MODELS");
  if (models == nullptr) GTEST_SKIP() << "BANKML_MODELS does not name a folder with the real models";
  const auto path = fs::path(models) / "SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto cpu = make_cpu_device(0);
  host::HostDevice gpu;
  Side expected(*cpu, GgufFile::open(path)), actual(gpu, GgufFile::open(path));
  const Tokenizer tokenizer(read_vocabulary(expected.model().file()));
  for (const char* prompt :
       {"The capital of France is", "def fibonacci(n):\n", "Once upon a time", "2 + 2 =", "Dear Sir or Madam,",
        "Water boils at a temperature of one hundred degrees. Ice melts at"}) {
    expected.restart();
    actual.restart();
    const std::vector<TokenId> tokens = tokenizer.encode(prompt, true, true);
    EXPECT_EQ(likeliest(actual.run(tokens)), likeliest(expected.run(tokens))) << prompt;
  }
}

}  // namespace
}  // namespace bankml
