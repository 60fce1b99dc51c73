// Runs a fixed prefill or a fixed decode once, marked for Valgrind's callgrind: bench/check_instructions counts with
// it.
//
//   count_instructions prefill|decode MODEL.gguf | llama:SHAPE:TYPE
//
// The last form is a model of random weights (support/synthetic.hpp): shapes of a real model without its download.
// One thread, fixed tokens: the same binary executes the same instructions each time. Only the forward passes are
// counted; loading runs without instrumentation.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bankml/device/device.hpp"
#include "bankml/model/kv_pool.hpp"
#include "bankml/model/model.hpp"
#include "support/synthetic.hpp"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else  // Valgrind's package has it: without, nothing is marked
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_DUMP_STATS_AT(name)
#endif

namespace {

constexpr int kPrefill = 64, kDecode = 16;

bool is_phase(const std::string& text) {
  return text == "prefill" || text == "decode";
}

void run(const std::string& phase, const std::filesystem::path& path) {
  const auto device = bankml::make_cpu_device(1);
  const auto model = bankml::Model::load(path, *device);
  bankml::KvPool pool(*device, model->config(), bankml::DType::f16, bankml::DType::f16, 0);
  bankml::Transformer transformer(*model, pool, {.context = kPrefill + kDecode + 1});
  bankml::KvSequence sequence;
  bankml::KvSequence* const one[] = {&sequence};
  const auto token = [&](int i) { return static_cast<bankml::TokenId>(7919 * (i + 1) % model->config().vocab); };

  // A first row fills tables: they aren't what a request costs.
  const bankml::BatchRow first{token(0), 0, 0, false};
  transformer.forward({&first, 1}, one);
  sequence.truncate(0);

  if (phase == "prefill") {
    std::vector<bankml::BatchRow> rows;
    for (int i = 0; i < kPrefill; ++i) rows.push_back({token(i), i, 0, i + 1 == kPrefill});
    CALLGRIND_START_INSTRUMENTATION;
    transformer.forward(rows, one);
  } else {
    // After as many positions as the prefill has, but of whatever fresh memory holds: computing them takes minutes
    // here, and attention's work hardly depends on the values (1 % of the tiny model's count).
    sequence.extend(kPrefill, pool, transformer.stream());
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = kPrefill; i < kPrefill + kDecode; ++i) {
      const bankml::BatchRow row{token(i), i, 0, true};
      transformer.forward({&row, 1}, one);
    }
  }
  CALLGRIND_DUMP_STATS_AT("counted");
  CALLGRIND_STOP_INSTRUMENTATION;
  fmt::print("compiler {}\n", __VERSION__);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3 || !is_phase(argv[1])) {
    fmt::print(stderr, "usage: count_instructions prefill|decode MODEL.gguf | llama:SHAPE:TYPE\n");
    return 2;
  }
  const std::string model = argv[2];
  std::optional<bankml::bench::SyntheticFile> file;
  if (model.rfind("llama:", 0) == 0) file.emplace(bankml::bench::parse_synthetic(model));
  run(argv[1], file ? file->path() : std::filesystem::path(model));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
