#include "text/special_split.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace bankml {
namespace {

constexpr TokenAttributes kCandidate = kControl | kUnknown | kUserDefined;

std::size_t byte_at(std::string_view text, std::size_t pos) {
  return static_cast<unsigned char>(text[pos]);
}

// isspace of the C locale
bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  std::set<std::size_t, std::greater<>> lengths;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.has(id, kCandidate)) lengths.insert(vocabulary.text(id).size());
  }
  lengths_.assign(lengths.begin(), lengths.end());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id, kCandidate)) continue;
    const std::string& text = vocabulary.text(id);
    const auto at = std::lower_bound(lengths_.begin(), lengths_.end(), text.size(), std::greater<>());
    std::vector<bool>& has = first_byte_has_[byte_at(text, 0)];
    has.resize(lengths_.size());
    has[static_cast<std::size_t>(at - lengths_.begin())] = true;
  }
}

std::optional<TokenId> SpecialSplitter::candidate(std::string_view text, bool parse_special) const {
  const auto id = vocabulary_.find(text);
  if (!id || !vocabulary_.has(*id, kCandidate)) return std::nullopt;
  if (!parse_special && vocabulary_.has(*id, kControl | kUnknown)) return std::nullopt;
  return id;
}

// One round for each length, so that memory stays in proportion to the text however many candidates overlap.
std::vector<SpecialSplitter::Cut> SpecialSplitter::find_cuts(std::string_view text, bool parse_special) const {
  std::vector<std::size_t> starts;  // where a candidate may begin
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    if (!first_byte_has_[byte_at(text, pos)].empty()) starts.push_back(pos);
  }
  std::vector<Cut> cuts;
  if (starts.empty()) return cuts;
  std::vector<bool> taken(text.size());
  std::vector<std::pair<TokenId, std::size_t>> found;
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    const std::size_t length = lengths_[i];
    found.clear();
    for (const std::size_t pos : starts) {
      if (text.size() - pos < length) break;
      // What was cut earlier is not shorter, so that looking at both ends suffices.
      if (taken[pos] || taken[pos + length - 1] || !first_byte_has_[byte_at(text, pos)][i]) continue;
      if (const auto id = candidate(text.substr(pos, length), parse_special)) found.emplace_back(*id, pos);
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [id, pos] : found) {
      if (taken[pos] || taken[pos + length - 1]) continue;
      std::size_t end = pos + length;
      if (vocabulary_.has(id, kStripRight)) {
        while (end < text.size() && !taken[end] && is_ascii_space(text[end])) ++end;
      }
      std::fill(taken.begin() + static_cast<std::ptrdiff_t>(pos), taken.begin() + static_cast<std::ptrdiff_t>(end),
                true);
      cuts.push_back({pos, end, id});
    }
  }
  std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.begin < b.begin; });
  return cuts;
}

std::vector<Fragment> SpecialSplitter::split(std::string_view text, bool parse_special) const {
  std::vector<Fragment> out;
  std::size_t done = 0;
  const auto raw_until = [&](std::size_t end) {
    if (end > done) out.push_back({text.substr(done, end - done), std::nullopt});
  };
  for (const Cut& cut : find_cuts(text, parse_special)) {
    raw_until(cut.begin);
    out.push_back({{}, cut.token});
    done = cut.end;
  }
  raw_until(text.size());
  return out;
}

}  // namespace bankml
