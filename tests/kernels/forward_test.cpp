// The forward pass on the host device against the CPU backend's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "bankml/model/model.hpp"
#include "kernels/host_device.hpp"

namespace bankml {
namespace {

constexpr int kContext = 256;

struct Step {
  TokenId token;                // the most likely one
  std::vector<float> log_probs;
};

// A model on a device, and one sequence.
class Side {
 public:
  Side(Device& device, const std::filesystem::path& file, DType kv = DType::f16)
      : model_(Model::load(file, device)),
        pool_(device, model_->config(), kv, kv, 0),
        transformer_(*model_, pool_, {.max_rows = 128, .max_logit_rows = 1, .max_sequences = 1, .context = kContext}) {}

  int vocab() const { return model_->config().vocab; }

  // Runs the tokens as one batch; the last one's log-probabilities.
  Step run(const std::vector<TokenId>& tokens) {
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
    Step step;
    step.token = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    for (const float x : logits) step.log_probs.push_back(x - most - static_cast<float>(std::log(sum)));
    return step;
  }

 private:
  std::unique_ptr<Model> model_;
  KvPool pool_;
  Transformer transformer_;
  KvSequence sequence_;
};

std::filesystem::path tiny(const std::string& name) {
  return std::filesystem::path(BANKML_TEST_DATA) / "tiny" / (name + ".gguf");
}

std::vector<TokenId> prompt(int n, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>((i * 37 + 11) % (vocab - 1)));
  return tokens;
}

// The ten most likely tokens, as the server shows them.
std::vector<std::size_t> most_likely(const std::vector<float>& log_probs) {
  constexpr std::ptrdiff_t kShown = 10;
  std::vector<std::size_t> tokens(log_probs.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  std::partial_sort(tokens.begin(), tokens.begin() + kShown, tokens.end(),
                    [&](std::size_t a, std::size_t b) { return log_probs[a] > log_probs[b]; });
  tokens.resize(kShown);
  return tokens;
}

// The largest difference of the log-probabilities of likely tokens over a prompt and some tokens after it, both sides fed with the
// CPU's.
struct Comparison {
  float worst = 0;
  bool same_tokens = true;
};
Comparison compare(const std::filesystem::path& file, int prompt_tokens, int steps, DType kv = DType::f16) {
  const auto cpu = make_cpu_device(1);
  host::HostDevice gpu;
  Side expected(*cpu, file, kv), actual(gpu, file, kv);
  Comparison result;
  std::vector<TokenId> next = prompt(prompt_tokens, expected.vocab());
  for (int step = 0; step < steps; ++step) {
    const Step a = expected.run(next), b = actual.run(next);
    for (const std::size_t i : most_likely(a.log_probs)) {
      const float difference = std::abs(a.log_probs[i] - b.log_probs[i]);
      result.worst = difference <= result.worst ? result.worst : difference;  // NaN counts as worst
    }
    result.same_tokens = result.same_tokens && a.token == b.token;
    next = {a.token};
  }
  return result;
}

class FloatModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, FloatModel, testing::Values("F16", "BF16"));

TEST_P(FloatModel, GivesTheCpuBackendsTokensAndLogProbabilities) {
  for (const int n : {3, 12, 70}) {
    const Comparison c = compare(tiny("tiny-llama-" + GetParam()), n, 8);
    RecordProperty("worst_" + std::to_string(n), std::to_string(c.worst));
    EXPECT_TRUE(c.same_tokens) << n;
    EXPECT_LE(c.worst, 0.01f) << n;
  }
}

}  // namespace
}  // namespace bankml
