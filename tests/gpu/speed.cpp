#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/model/model.hpp"
#include "gpu/checks.hpp"
#include "support/synthetic.hpp"

namespace bankml::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 5;
constexpr int kSuperBlock = 256;  // whole blocks of every type
constexpr double kDecodeGoal = 0.7, kPrefillGoal = 0.5, kCopyGoal = 0.9;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The best of some runs of what the stream is given, after one that doesn't count.
template <class Work>
double best_seconds(Stream& stream, Work&& work) {
  double best = 1e30;
  for (int i = 0; i <= kRuns; ++i) {
    stream.synchronize();
    const auto start = Clock::now();
    work();
    stream.synchronize();
    if (i > 0) best = std::min(best, seconds_since(start));
  }
  return best;
}

struct Limits {
  double copy_bytes = 0;  // read and written on the device, a second
  double int8_macs = 0;
  double to_host = 0, to_device = 0;  // one bare copy of pinned memory, bytes a second
};

Limits measure_limits(Report& report, const Subject& subject) {
  Limits limits;
  Device& device = subject.device;
  const auto stream = device.make_stream();
  const std::size_t bytes = subject.small ? std::size_t{1} << 20 : std::size_t{2} << 30;
  const Buffer a = device.allocate(bytes), b = device.allocate(bytes);
  limits.copy_bytes = 2.0 * static_cast<double>(bytes) /
                      best_seconds(*stream, [&] { stream->copy_on_device(b.data(), a.data(), bytes); });
  const std::size_t pinned_bytes = bytes / 2;
  const Buffer pinned = device.allocate_host(pinned_bytes);
  std::memset(pinned.data(), 1, pinned_bytes);
  limits.to_device = static_cast<double>(pinned_bytes) /
                     best_seconds(*stream, [&] { stream->copy_to_device(a.data(), pinned.data(), pinned_bytes); });
  limits.to_host = static_cast<double>(pinned_bytes) /
                   best_seconds(*stream, [&] { stream->copy_to_host(pinned.data(), a.data(), pinned_bytes); });
  const auto peak = [&](bench::TensorType type) {
    return bench::measure_tensor_peak(device, subject.tensor_products, type, subject.small);
  };
  limits.int8_macs = peak(bench::TensorType::int8);
  report.figure("copy on the device (read + written)", limits.copy_bytes * 1e-9, "GB/s");
  report.figure("int8 mma.sync peak", limits.int8_macs * 1e-12, "TMAC/s");
  report.figure("f16 mma.sync peak", peak(bench::TensorType::f16) * 1e-12, "TMAC/s");
  report.figure("bare pinned copy to the device", limits.to_device * 1e-9, "GB/s");
  report.figure("bare pinned copy to the host", limits.to_host * 1e-9, "GB/s");
  return limits;
}

class Speed {
 public:
  Speed(Report& report, const Subject& subject, const Limits& limits, const std::string& shape)
      : report_(report),
        subject_(subject),
        limits_(limits),
        name_(shape),
        file_(bench::parse_synthetic(shape)),
        model_(Model::load(file_.path(), subject.device)) {}

  void prefill(int tokens) {
    const int rows = std::min(tokens, 512);
    KvPool pool(subject_.device, model_->config(), DType::f16, DType::f16, 0);
    Transformer transformer(*model_, pool,
                            {.max_rows = rows, .max_logit_rows = 1, .max_sequences = 1, .context = tokens});
    double best = 1e30;
    for (int i = 0; i <= kRuns; ++i) {
      KvSequence sequence;
      const auto start = Clock::now();
      run(transformer, sequence, tokens, rows);
      if (i > 0) best = std::min(best, seconds_since(start));
    }
    report_.figure(fmt::format("{}: prefill of {} tokens", name_, tokens), tokens / best, "tokens/s",
                   limits_.int8_macs / matrix_elements(), kPrefillGoal);
  }

  void decode(int sequences) {
    constexpr int kHeld = 256, kSteps = 32;
    KvPool pool(subject_.device, model_->config(), DType::f16, DType::f16, 0);
    Transformer transformer(
        *model_, pool,
        {.max_rows = 256, .max_logit_rows = sequences, .max_sequences = sequences, .context = kHeld + kSteps});
    KvSequence held;
    run(transformer, held, subject_.small ? 8 : kHeld, 256);
    std::vector<KvSequence> all(static_cast<std::size_t>(sequences), held);
    std::vector<KvSequence*> pointers;
    for (KvSequence& sequence : all) pointers.push_back(&sequence);
    double best = 1e30;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<BatchRow> rows;
      for (int s = 0; s < sequences; ++s)
        rows.push_back({token(step * 31 + s), static_cast<std::int32_t>(all[0].length()), s, true});
      const auto start = Clock::now();
      transformer.forward(rows, pointers);
      if (step >= 3) best = std::min(best, seconds_since(start));  // the first ones are launched one by one
    }
    const double bytes = static_cast<double>(model_->tensor_bytes()) + sequences * kHeld * state_bytes_per_token(pool);
    report_.figure(fmt::format("{}: decode of {} rows", name_, sequences), sequences / best, "tokens/s",
                   sequences * limits_.copy_bytes / bytes, kDecodeGoal);
  }

  // States in their blocks, copied as the prompt cache copies them: a stream of its own, one call a block.
  void states() {
    Device& device = subject_.device;
    KvPool pool(device, model_->config(), DType::f16, DType::f16, 0);
    const auto save = device.make_stream();
    const std::size_t block_bytes = pool.block_bytes(KvPart::full);
    for (const int tokens : subject_.small ? std::vector<int>{64} : std::vector<int>{1024, 4096, 32768}) {
      std::vector<KvBlock> blocks;
      for (int t = 0; t < tokens; t += static_cast<int>(kBlockCells)) blocks.push_back(pool.allocate(KvPart::full));
      const std::size_t bytes = blocks.size() * block_bytes;
      const Buffer pinned = device.allocate_host(bytes);
      const auto copy = [&](bool to_host) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          if (to_host) {
            save->copy_to_host(pinned.data() + i * block_bytes, blocks[i].data(), block_bytes);
          } else {
            save->copy_to_device(blocks[i].data(), pinned.data() + i * block_bytes, block_bytes);
          }
        }
      };
      copy(false);  // so that what is saved has been written
      const auto figure = [&](const char* what, bool to_host, double limit) {
        const double rate = static_cast<double>(bytes) / best_seconds(*save, [&] { copy(to_host); });
        report_.figure(fmt::format("{}: {} of {} tokens", name_, what, tokens), rate * 1e-9, "GB/s", limit * 1e-9,
                       kCopyGoal);
      };
      figure("save", true, limits_.to_host);
      figure("load", false, limits_.to_device);
      hide(
          tokens, [&] { copy(true); }, *save, static_cast<double>(bytes) / limits_.to_host);
    }
  }

 private:
  // How much of a save the next prefill doesn't see.
  template <class Copy>
  void hide(int tokens, Copy&& copy, Stream& save, double save_seconds) {
    const int prompt = subject_.small ? 8 : 512;
    KvPool pool(subject_.device, model_->config(), DType::f16, DType::f16, 0);
    Transformer transformer(*model_, pool,
                            {.max_rows = prompt, .max_logit_rows = 1, .max_sequences = 1, .context = prompt});
    const auto prefill_seconds = [&](bool beside_save) {
      double best = 1e30;
      for (int i = 0; i <= kRuns; ++i) {
        KvSequence sequence;
        const auto start = Clock::now();
        if (beside_save) copy();
        run(transformer, sequence, prompt, prompt);
        if (i > 0) best = std::min(best, seconds_since(start));
        save.synchronize();
      }
      return best;
    };
    const double alone = prefill_seconds(false), beside = prefill_seconds(true);
    const double seen = std::clamp((beside - alone) / save_seconds, 0.0, 1.0);
    report_.figure(fmt::format("{}: of a save of {} tokens, hidden from the next prefill", name_, tokens),
                   (1 - seen) * 100, "%", 100, kCopyGoal);
  }

  static TokenId token(int i) { return static_cast<TokenId>(i * 7919 % 251); }

  static void run(Transformer& transformer, KvSequence& sequence, int tokens, int rows) {
    KvSequence* const one[] = {&sequence};
    std::vector<BatchRow> batch;
    for (int at = 0; at < tokens;) {
      batch.clear();
      for (; at < tokens && static_cast<int>(batch.size()) < rows; ++at)
        batch.push_back({token(at), at, 0, at + 1 == tokens});
      transformer.forward(batch, one);
    }
  }

  double matrix_elements() const {
    const auto of = [](const Weight& weight) {
      return static_cast<double>(weight.rows()) * static_cast<double>(weight.cols());
    };
    double sum = 0;
    for (const LayerWeights& w : model_->layers()) {
      for (const auto* weight : {&w.q, &w.k, &w.v, &w.output, &w.gate, &w.up, &w.down}) sum += of(**weight);
    }
    return sum;
  }
  static double state_bytes_per_token(const KvPool& pool) {
    return static_cast<double>(pool.block_bytes(KvPart::full)) / static_cast<double>(kBlockCells);
  }

  Report& report_;
  const Subject& subject_;
  Limits limits_;
  std::string name_;
  bench::SyntheticFile file_;
  std::unique_ptr<Model> model_;
};

// Of its matrices, before its file is made.
double bytes_of(const bench::Synthetic& model) {
  const bench::Shape& s = model.shape;
  const double attention = 2.0 * s.dim * s.head_dim * (s.heads + s.kv_heads), feed_forward = 3.0 * s.dim * s.hidden;
  const double elements = s.layers * (attention + feed_forward) + double{1} * s.dim * s.vocab;
  return elements * static_cast<double>(row_bytes(model.type, kSuperBlock)) / kSuperBlock;
}

}  // namespace

void measure_speed(Report& report, const Subject& subject, double seconds) {
  const auto start = Clock::now();
  const Limits limits = measure_limits(report, subject);
  // 8B first: the goals are about it. 27B as a llama: 56 layers, wide enough for 26.9e9 parameters.
  const std::vector<std::string> shapes = subject.small
                                              ? std::vector<std::string>{"llama:256x1x4x2x256x300:q4_k"}
                                              : std::vector<std::string>{"llama:8b:q4_k",
                                                                         "llama:8b:q8_0",
                                                                         "llama:1b:q4_k",
                                                                         "llama:1b:q8_0",
                                                                         "llama:6144x56x48x8x20480x128256:q4_k",
                                                                         "llama:6144x56x48x8x20480x128256:q8_0"};
  double seconds_of_byte = 0;  // as the largest of those before took
  for (const std::string& shape : shapes) {
    const double bytes = bytes_of(bench::parse_synthetic(shape));
    const auto shape_start = Clock::now();
    if (seconds_since(start) + bytes * seconds_of_byte > seconds) {
      report.note("part 5: no time left for " + shape);
      continue;
    }
    try {
      Speed speed(report, subject, limits, shape);
      for (const int rows : {1, 4, 16}) speed.decode(rows);
      for (const int tokens : subject.small ? std::vector<int>{40} : std::vector<int>{512, 4096}) speed.prefill(tokens);
      if (shape == shapes.front()) speed.states();
    } catch (const Error& error) {
      report.note(fmt::format("part 5: {}: {}", shape, error.what()));
    }
    seconds_of_byte = std::max(seconds_of_byte, seconds_since(shape_start) / bytes);
  }
}

}  // namespace bankml::gpu
