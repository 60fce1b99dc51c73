#include "support/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <span>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/engine/engine.hpp"
#include "bankml/model/kv_pool.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoomForAnswers = 64;  // tokens of context beside a conversation that takes turns

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One model's transformer with room for `sequences` of `context` tokens.
struct Runner {
  Runner(const Model& model, Device& device, DType kv, int rows, int sequences, std::int64_t context)
      : pool(device, model.config(), kv, kv, 0),
        transformer(model, pool,
                    {.max_rows = rows, .max_logit_rows = sequences, .max_sequences = sequences, .context = context}) {}

  // All tokens into an empty sequence, with the logits of the last, as the server does it.
  void prefill(KvSequence& sequence, std::span<const TokenId> tokens, int rows) {
    KvSequence* const one[] = {&sequence};
    for (std::size_t at = 0; at < tokens.size();) {
      batch.clear();
      for (; at < tokens.size() && batch.size() < static_cast<std::size_t>(rows); ++at) {
        batch.push_back({tokens[at], static_cast<std::int32_t>(at), 0, at + 1 == tokens.size()});
      }
      transformer.forward(batch, one);
    }
  }

  KvPool pool;
  Transformer transformer;
  std::vector<BatchRow> batch;
};

// Calls f(weight, times) for the matrices of all layers that a row multiplies, `times` being how many of a set of
// experts.
template <class F>
void for_each_matrix(const Model& model, F&& f) {
  const int used = model.config().experts.used;
  for (const LayerWeights& w : model.layers()) {
    for (const auto* weight : {&w.q, &w.k, &w.v, &w.output, &w.gate, &w.up, &w.down, &w.router, &w.shared_gate,
                               &w.shared_up, &w.shared_down}) {
      if (*weight) f(**weight, (*weight)->experts() > 1 ? used : 1);
    }
  }
}

double elements(const Weight& weight) {
  return static_cast<double>(weight.rows()) * static_cast<double>(weight.cols());
}
double bytes(const Weight& weight) {
  return static_cast<double>(weight.rows()) * static_cast<double>(row_bytes(weight.type(), weight.cols()));
}

// Submits a prompt for one token and waits; milliseconds until it was there.
double milliseconds_of_one_token(Engine& engine, const std::vector<TokenId>& prompt) {
  auto params = std::make_shared<CompletionParams>();
  params->n_predict = 1;
  params->sampling.temperature = 0;
  std::promise<std::string> ended;
  const auto start = Clock::now();
  engine.submit(prompt, params, [&](JobEvent&& event) {
    if (std::holds_alternative<Done>(event)) ended.set_value("");
    if (const auto* failed = std::get_if<Failed>(&event)) ended.set_value(failed->message);
  });
  const std::string failure = ended.get_future().get();
  if (!failure.empty()) throw Error(ErrorKind::internal, failure);
  return milliseconds_since(start);
}

}  // namespace

Measurement::Measurement(const Plan& plan, const std::filesystem::path& path, std::string name, Device& device,
                         int threads, const MachineLimits& limits, std::function<void()> step)
    : plan_(plan),
      path_(path),
      name_(std::move(name)),
      threads_(threads),
      limits_(limits),
      step_(std::move(step)),
      device_(device) {}

int Measurement::steps(const Plan& plan) {
  const auto n = [](const auto& list) { return static_cast<int>(list.size()); };
  const int settings = n(plan.prefill) * n(plan.rows) + n(plan.decode) * n(plan.sequences) + n(plan.held);
  return plan.runs * (1 + n(plan.kv) * settings);
}

Figure Measurement::figure(const char* what, DType kv, int tokens, int batch, const char* unit) const {
  Figure f;
  f.what = what;
  f.model = name_;
  f.kv = dtype_info(kv).name;
  f.threads = threads_;
  f.tokens = tokens;
  f.batch = batch;
  f.unit = unit;
  return f;
}

std::vector<TokenId> Measurement::random_tokens(int n, unsigned seed) const {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<unsigned>(model_->config().vocab));
  return tokens;
}

double Measurement::layer_macs(bool of_floats) const {
  double macs = 0;
  for_each_matrix(*model_, [&](const Weight& weight, int times) {
    if ((dtype_info(weight.type()).block_len == 1) == of_floats) macs += times * elements(weight);
  });
  return macs;
}

double Measurement::attention_macs(double cells) const {
  const ModelConfig& config = model_->config();
  double macs = 0;
  for (const LayerConfig& layer : config.layer) {
    const double seen = layer.window > 0 ? std::min<double>(cells, layer.window) : cells;
    macs += seen * layer.heads * (config.head_dim_k + config.head_dim_v);
  }
  return macs;
}

double Measurement::kv_bytes(double tokens, DType kv) const {
  const ModelConfig& config = model_->config();
  double bytes = 0;
  for (const LayerConfig& layer : config.layer) {
    bytes += static_cast<double>(layer.kv_heads) *
             static_cast<double>(row_bytes(kv, config.head_dim_k) + row_bytes(kv, config.head_dim_v));
  }
  return tokens * bytes;
}

void Measurement::load(std::vector<Figure>& out) {
  Figure f = figure("load", DType::f16, 0, 0, "ms");
  f.kv.clear();
  for (int i = 0; i < plan_.runs; ++i) {
    model_.reset();
    const auto start = Clock::now();
    model_ = Model::load(path_, device_);
    f.runs.push_back(milliseconds_since(start));
    step_();
  }
  if (threads_ > 0) {  // on a GPU the link to the host would be the limit
    f.limit = static_cast<double>(model_->tensor_bytes()) / limits_.copy_gb * 1e-6;
    f.limit_name = "a copy of the weights";
  }
  out.push_back(std::move(f));
}

// The limit adds up what the integer products and those of attention, which are floats, would take at the peak rates.
void Measurement::prefill(std::vector<Figure>& out, DType kv, int rows) {
  for (const int n : plan_.prefill) {
    Runner runner(*model_, device_, kv, rows, 1, n);
    Figure f = figure("prefill", kv, n, rows, "tokens/s");
    for (int i = -1; i < plan_.runs; ++i) {  // one that doesn't count
      KvSequence sequence;
      const std::vector<TokenId> tokens = random_tokens(n, static_cast<unsigned>(i + 1));
      const auto start = Clock::now();
      runner.prefill(sequence, tokens, rows);
      if (i < 0) continue;
      f.runs.push_back(n / milliseconds_since(start) * 1e3);
      step_();
    }
    const bool tensor_cores = limits_.f16_gmac > 0;
    const double float_peak = tensor_cores ? limits_.f16_gmac : limits_.f32_gmac;
    const double integer_peak = limits_.int8_gmac > 0 ? limits_.int8_gmac : float_peak;
    const double floats = layer_macs(true) + attention_macs(0.5 * n);
    f.limit = 1e9 / (layer_macs(false) / integer_peak + floats / float_peak);
    f.limit_name = tensor_cores ? "int8 and f16 tensor peak" : "int8 and f32 peak";
    out.push_back(std::move(f));
  }
}

// The limit is what reading all weights and the KV once a step would take.
void Measurement::decode(std::vector<Figure>& out, DType kv, int sequences) {
  for (const int n : plan_.decode) {
    Runner runner(*model_, device_, kv, std::max(512, sequences), sequences, n + plan_.decode_steps);
    KvSequence held;
    runner.prefill(held, random_tokens(n, 1), 512);
    Figure f = figure("decode", kv, n, sequences, "tokens/s");
    for (int i = -1; i < plan_.runs; ++i) {
      std::vector<KvSequence> copies(static_cast<std::size_t>(sequences), held);
      std::vector<KvSequence*> all;
      for (KvSequence& copy : copies) all.push_back(&copy);
      const std::vector<TokenId> tokens = random_tokens(plan_.decode_steps * sequences, static_cast<unsigned>(i + 2));
      double ms = 0;
      for (int step = 0; step <= plan_.decode_steps - 1; ++step) {
        std::vector<BatchRow> batch;
        for (int s = 0; s < sequences; ++s) {
          batch.push_back({tokens[static_cast<std::size_t>(step * sequences + s)], n + step, s, true});
        }
        const auto start = Clock::now();
        runner.transformer.forward(batch, all);
        ms += milliseconds_since(start);
      }
      if (i < 0) continue;
      f.runs.push_back(plan_.decode_steps * sequences / ms * 1e3);
      step_();
    }
    double read = bytes(model_->output()) + sequences * kv_bytes(n + 0.5 * plan_.decode_steps, kv);
    for_each_matrix(*model_, [&](const Weight& weight, int times) { read += times * bytes(weight); });
    f.limit = sequences * limits_.read_gb * 1e9 / read;
    f.limit_name = "reading weights and KV";
    out.push_back(std::move(f));
  }
}

// Two conversations of n tokens in one slot, each coming back for one more token: what a switch adds to staying, and
// what of it is the saving and the restoring. The limit is a copy of the KV, which a cache that moved it would need.
void Measurement::take_turns(std::vector<Figure>& out, DType kv) {
  const Tokenizer tokenizer(read_vocabulary(model_->file()));
  for (const int n : plan_.held) {
    EngineOptions options;
    options.context = n + kRoomForAnswers;
    options.cache_type_k = options.cache_type_v = kv;
    options.cache_ram_mib = -1;
    Engine engine(*model_, tokenizer, options);
    std::vector<TokenId> a = random_tokens(n, 1), b = random_tokens(n, 2);
    const auto ask = [&](std::vector<TokenId>& conversation, unsigned salt) {
      conversation.back() = random_tokens(1, 100 + salt)[0];
      return milliseconds_of_one_token(engine, conversation);
    };
    unsigned salt = 0;
    for (auto* conversation : {&a, &b, &a, &b}) ask(*conversation, ++salt);
    Figure change = figure("switch", kv, n, 0, "ms"), save = figure("save", kv, n, 0, "ms"),
           restore = figure("restore", kv, n, 0, "ms");
    for (int i = 0; i < plan_.runs; ++i) {
      const EngineMetrics before = engine.metrics();
      ask(a, ++salt);
      const double back = ask(b, ++salt);
      const EngineMetrics after = engine.metrics();
      double stay = ask(b, ++salt);
      stay = std::min(stay, ask(b, ++salt));
      change.runs.push_back(std::max(back - stay, 0.001));
      const auto saves = std::max<std::uint64_t>(after.cache_saves - before.cache_saves, 1);
      const auto hits = std::max<std::uint64_t>(after.cache_hits - before.cache_hits, 1);
      save.runs.push_back((after.save_seconds - before.save_seconds) * 1e3 / static_cast<double>(saves));
      restore.runs.push_back((after.load_seconds - before.load_seconds) * 1e3 / static_cast<double>(hits));
      step_();
    }
    const double copy_ms = kv_bytes(n, kv) / limits_.copy_gb * 1e-6;
    for (Figure* f : {&save, &restore}) {
      f->limit = copy_ms;
      f->limit_name = "a copy of the KV";
    }
    change.limit = 2 * copy_ms;
    change.limit_name = "two copies of the KV";
    for (Figure* f : {&save, &restore, &change}) out.push_back(std::move(*f));
  }
}

// Before minutes of measuring are lost.
void Measurement::check_held() const {
  const int context = model_->config().context, most = context - kRoomForAnswers;
  for (const int n : plan_.held) {
    if (n <= most) continue;
    throw Error(ErrorKind::invalid_request,
                fmt::format("--held: expected at most {}, as {} has a context of {}, got {}", most, name_, context, n));
  }
}

void Measurement::run(std::vector<Figure>& out) {
  load(out);
  check_held();
  for (const DType kv : plan_.kv) {
    for (const int rows : plan_.rows) prefill(out, kv, rows);
    for (const int sequences : plan_.sequences) decode(out, kv, sequences);
    take_turns(out, kv);
  }
}

}  // namespace bankml::bench
