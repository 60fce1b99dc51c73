#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/engine/engine.hpp"
#include "bankml/model/model.hpp"
#include "gpu/checks.hpp"

namespace bankml::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kContext = 512;
constexpr std::chrono::seconds kPatience{60};
// Of log-probabilities: what float models may differ by, and twice what the peer's own runs of the quantised ones do
// (recorded: up to 0.24). Rounding to bfloat16 counts as quantising.
constexpr double kFloats = 0.01, kBlocks = 0.48;

struct Side {
  Side(const fs::path& path, Device& device)
      : model(Model::load(path, device)),
        pool(device, model->config(), DType::f16, DType::f16, 0),
        transformer(*model, pool, {.max_rows = 256, .max_logit_rows = 1, .max_sequences = 1, .context = kContext}) {}

  std::vector<float> log_probabilities(const std::vector<TokenId>& tokens) {
    std::vector<BatchRow> rows;
    for (const TokenId token : tokens) {
      const auto position = static_cast<std::int32_t>(sequence.length()) + static_cast<std::int32_t>(rows.size());
      rows.push_back({token, position, 0, rows.size() + 1 == tokens.size()});
    }
    KvSequence* const one[] = {&sequence};
    transformer.forward(rows, one);
    const auto logits = transformer.logits(0);
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - most);
    std::vector<float> out;
    for (const float x : logits) out.push_back(static_cast<float>(x - most - std::log(sum)));
    return out;
  }

  std::unique_ptr<Model> model;
  KvPool pool;
  Transformer transformer;
  KvSequence sequence;
};

std::vector<TokenId> some_tokens(int n, int seed, const Model& model) {
  std::vector<TokenId> out;
  for (int i = 0; i < n; ++i)
    out.push_back(static_cast<TokenId>((i * 37 + seed * 101 + 11) % std::min(250, model.config().vocab)));
  return out;
}

void compare_with_cpu(Report& report, const Subject& subject, Device& cpu, const fs::path& path) {
  Side expected(path, cpu), actual(path, subject.device);
  double worst = 0;
  int other = 0, steps = 0;
  for (const int n : subject.small ? std::vector<int>{9} : std::vector<int>{1, 9, 40, 150}) {
    expected.sequence.truncate(0);
    actual.sequence.truncate(0);
    std::vector<TokenId> next = some_tokens(n, 1, *expected.model);
    for (int step = 0; step < 8; ++step, ++steps) {
      const std::vector<float> a = expected.log_probabilities(next), b = actual.log_probabilities(next);
      const auto best = [](const std::vector<float>& x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
      std::vector<std::size_t> order(a.size());
      std::iota(order.begin(), order.end(), 0u);
      std::partial_sort(order.begin(), order.begin() + 8, order.end(),
                        [&](std::size_t x, std::size_t y) { return a[x] > a[y]; });
      for (int i = 0; i < 8; ++i) {
        const double difference =
            std::abs(double{a[order[static_cast<std::size_t>(i)]]} - b[order[static_cast<std::size_t>(i)]]);
        worst = difference <= worst ? worst : difference;
      }
      other += best(a) != best(b);
      next = {static_cast<TokenId>(best(a))};
    }
  }
  const std::string name = path.stem().string();
  const bool floats = name.ends_with("-F16") || name.ends_with("-F32");
  report.check(
      3, name, worst <= (floats ? kFloats : kBlocks) && (!floats || other == 0),
      fmt::format("log-probabilities within {:.4f} of the CPU backend's, {} of {} tokens differ", worst, other, steps));
}

// Two conversations take turns in one slot: each answer's tokens, and how many of its prompt's were there already.
struct Turn {
  std::vector<TokenId> tokens;
  int cached = 0;
  bool operator==(const Turn&) const = default;
};

std::vector<Turn> take_turns(const Model& model) {
  const Tokenizer tokenizer(read_vocabulary(model.file()));
  EngineOptions options;
  options.context = kContext;
  options.cache_ram_mib = 256;
  options.warmup = false;
  Engine engine(model, tokenizer, options);
  CompletionParams params;
  params.n_predict = 6;
  params.sampling.temperature = 0;
  std::vector<Turn> turns;
  std::vector<TokenId> conversations[] = {some_tokens(70, 2, model), some_tokens(90, 3, model)};
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<TokenId>& conversation = conversations[turn % 2];
    const auto answered = std::make_shared<std::promise<Turn>>();
    engine.submit(conversation, std::make_shared<const CompletionParams>(params), [answered](JobEvent&& event) {
      if (const auto* done = std::get_if<Done>(&event)) answered->set_value({done->tokens, done->timings.cache_n});
      if (const auto* failed = std::get_if<Failed>(&event)) {
        answered->set_exception(std::make_exception_ptr(Error(failed->kind, failed->message)));
      }
    });
    std::future<Turn> answer = answered->get_future();
    if (answer.wait_for(kPatience) != std::future_status::ready) {
      throw Error(ErrorKind::internal, fmt::format("turn {} of two conversations was not answered", turn + 1));
    }
    turns.push_back(answer.get());
    // Goes on with tokens of its own, so that both devices see the same prompts.
    const std::vector<TokenId> more = some_tokens(9, turn, model);
    conversation.insert(conversation.end(), more.begin(), more.end());
  }
  return turns;
}

void compare_turns(Report& report, const Subject& subject, Device& cpu, const fs::path& path) {
  const auto expected_model = Model::load(path, cpu), model = Model::load(path, subject.device);
  const std::vector<Turn> expected = take_turns(*expected_model), actual = take_turns(*model),
                          again = take_turns(*model);
  int same_cache = 0, same_tokens = 0, restored = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    same_cache += actual[i].cached == expected[i].cached;
    same_tokens += actual[i].tokens == expected[i].tokens;
    restored += i >= 2 && actual[i].cached > 0;
  }
  const int n = static_cast<int>(expected.size());
  report.check(
      3, path.stem().string() + ", conversations that take turns",
      same_cache == n && restored == n - 2 && again == actual,
      fmt::format(
          "cache_n of {} of {} turns as on the CPU, {} restored, {} turns with the CPU's tokens, {} when repeated",
          same_cache, n, restored, same_tokens, again == actual ? "the same" : "others"));
}

}  // namespace

void check_models(Report& report, const Subject& subject, const fs::path& folder) {
  const auto cpu = make_cpu_device(0);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf" && entry.path().filename().string().starts_with("tiny-"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (subject.small && files.size() > 2) files.resize(2);
  for (const fs::path& path : files) {
    for (const auto check : {compare_with_cpu, compare_turns}) {
      try {
        check(report, subject, *cpu, path);
      } catch (const Error& error) {
        report.check(3, path.stem().string(), false, error.what());
      }
    }
  }
  if (files.empty()) report.note("part 3: no tiny models in " + folder.string());
}

}  // namespace bankml::gpu
