// Tokenization speed: tokenize_bench MODEL.gguf TEXT_FILE prints milliseconds of processor time per megabyte, the
// best of several runs: what other programs do meanwhile hardly counts.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/text/tokenizer.hpp"

namespace {

std::string read_text(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(fmt::format("{}: can't be read", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const char* model, const char* text_file) {
  constexpr int kRuns = 7;
  const auto now = [] { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };  // ms

  const bankml::GgufFile file = bankml::GgufFile::open(model);
  const double loading = now();
  const bankml::Tokenizer tokenizer(bankml::read_vocabulary(file));
  fmt::print("load   {:8.1f} ms\n", now() - loading);

  const std::string text = read_text(text_file);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::vector<bankml::TokenId> ids;
  const auto measure = [&](const char* what, auto&& work) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRuns; ++i) {
      const double start = now();
      work();
      best = std::min(best, now() - start);
    }
    fmt::print("{} {:8.1f} ms/MB\n", what, best / megabytes);
  };
  measure("encode", [&] { ids = tokenizer.encode(text, false, true); });
  measure("decode", [&] { tokenizer.decode(ids, true); });
  fmt::print("{} bytes, {} tokens\n", text.size(), ids.size());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: tokenize_bench MODEL.gguf TEXT_FILE");
  run(argv[1], argv[2]);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
