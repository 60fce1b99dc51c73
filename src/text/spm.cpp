#include "text/spm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "bankml/base/error.hpp"
#include "text/byte_alphabet.hpp"

namespace bankml {
namespace {

constexpr int kNeighbourBits = 20;  // 128 KiB; gemma-3 has 34 thousand different pairs

// Characters by their first byte alone, whether they are valid or not. A character of a token is one of any text that
// the token occurs in.
std::size_t char_length(std::string_view text, std::size_t pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  std::size_t length = 1;
  if (lead >= 0xC0) length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(length, text.size() - pos);
}

std::uint32_t pack(std::string_view character) {
  std::uint32_t packed = 0;
  for (const char byte : character) packed = packed << 8 | static_cast<unsigned char>(byte);
  return packed;
}

std::size_t neighbour_hash(std::uint32_t left, std::uint32_t right) {
  const std::uint64_t pair = std::uint64_t{left} << 32 | right;
  return static_cast<std::size_t>(pair * 0x9E3779B97F4A7C15u >> (64 - kNeighbourBits));  // Fibonacci hashing
}

std::string with_spm_spaces(std::string_view text, bool add_space_prefix) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  if (add_space_prefix) out += kSpmSpace;
  for (;;) {
    const std::size_t word = std::min(text.find(' '), text.size());
    out += text.substr(0, word);
    if (word == text.size()) return out;
    out += kSpmSpace;
    text.remove_prefix(word + 1);
  }
}

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, const std::vector<float>& scores, bool add_space_prefix)
    : vocabulary_(vocabulary), add_space_prefix_(add_space_prefix), neighbours_(std::size_t{1} << kNeighbourBits) {
  rank_by_score(scores);
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {static_cast<char>(byte)};
    auto token = vocabulary.find(byte_token(static_cast<std::uint8_t>(byte)));
    if (!token) token = vocabulary.find({text, 1});
    byte_tokens_[static_cast<std::size_t>(byte)] = token.value_or(-1);
  }
  for (TokenId id = 0; id < vocabulary.size(); ++id) note_neighbours(vocabulary.text(id));
}

void Spm::rank_by_score(const std::vector<float>& scores) {
  const auto count = static_cast<std::size_t>(vocabulary_.size());
  ranks_.assign(count, 0);
  if (scores.empty()) return;
  if (scores.size() < count) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("vocabulary: expected scores for {} tokens, got {}", count, scores.size()));
  }
  const auto nan = std::find_if(scores.begin(), scores.end(), [](float score) { return std::isnan(score); });
  if (nan != scores.end()) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("vocabulary: the score of token {} is not a number", nan - scores.begin()));
  }
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  for (std::size_t i = 1; i < count; ++i) {
    ranks_[order[i]] = ranks_[order[i - 1]] + (scores[order[i]] != scores[order[i - 1]]);
  }
}

void Spm::note_neighbours(std::string_view token_text) {
  std::uint32_t left = 0;
  for (std::size_t pos = 0; pos < token_text.size();) {
    const std::size_t length = char_length(token_text, pos);
    const std::uint32_t right = pack(token_text.substr(pos, length));
    if (pos > 0) neighbours_[neighbour_hash(left, right)] = true;
    left = right;
    pos += length;
  }
}

// Where two characters meet that are side by side in no token, nothing can ever merge: the runs between such places are
// independent of each other. They are about as long as words, which keeps the heaps small and makes the runs repeat.
void Spm::encode(std::string_view text, EncodeWork& work) const {
  const std::string_view all = work.respelled.emplace_front(with_spm_spaces(text, add_space_prefix_));
  std::size_t run = 0;
  const auto end_run = [&](std::size_t end) {
    const std::string_view bytes = all.substr(run, end - run);
    work.runs.append(bytes, work.out, [&] { encode_run(bytes, work.merger, work.out); });
    run = end;
  };
  std::uint32_t left = 0;
  for (std::size_t pos = 0; pos < all.size();) {
    const std::size_t length = char_length(all, pos);
    const std::uint32_t right = pack(all.substr(pos, length));
    if (pos > 0 && !neighbours_[neighbour_hash(left, right)]) end_run(pos);
    left = right;
    pos += length;
  }
  if (run < all.size()) end_run(all.size());
}

void Spm::encode_run(std::string_view run, PairMerger& merger, std::vector<TokenId>& out) const {
  constexpr std::int32_t kUnmerged = -1;
  merger.clear();
  for (std::size_t pos = 0; pos < run.size();) {
    const std::size_t end = pos + char_length(run, pos);
    merger.add(kUnmerged, static_cast<std::uint32_t>(pos), static_cast<std::uint32_t>(end));
    pos = end;
  }
  merger.run([&](const PairMerger::Symbol& left, const PairMerger::Symbol& right) -> std::optional<PairMerger::Merge> {
    if (right.end - left.begin > vocabulary_.longest()) return std::nullopt;
    const auto token = vocabulary_.find(run.substr(left.begin, right.end - left.begin));
    if (!token) return std::nullopt;
    return PairMerger::Merge{ranks_[static_cast<std::size_t>(*token)], *token};
  });
  merger.for_each([&](const PairMerger::Symbol& symbol) {
    if (symbol.id != kUnmerged) {
      out.push_back(symbol.id);
    } else {
      append_symbol(run.substr(symbol.begin, symbol.end - symbol.begin), out);
    }
  });
}

void Spm::append_symbol(std::string_view text, std::vector<TokenId>& out) const {
  if (const auto token = vocabulary_.find(text)) return out.push_back(*token);
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte_tokens_[byte] < 0) {
      throw Error(ErrorKind::invalid_request,
                  fmt::format("the vocabulary has no token for byte 0x{:02X} of the text", byte));
    }
    out.push_back(byte_tokens_[byte]);
  }
}

}  // namespace bankml
