#include "text/special_split.hpp"

#include <algorithm>

namespace bankml {
namespace {

constexpr TokenAttributes kCandidate = kControl | kUnknown | kUserDefined;

// isspace of the C locale
bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::uint64_t edge(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocabulary& vocabulary) : vocabulary_(vocabulary), nodes_(1), first_bytes_(256) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id, kCandidate)) continue;
    NodeId node = kNone;
    for (const char byte : vocabulary.text(id)) {
      const auto next = static_cast<NodeId>(nodes_.size());
      const auto [entry, is_new] = children_.try_emplace(edge(node, byte), next);
      if (is_new) nodes_.push_back({std::nullopt, kNone, nodes_[node].length + 1});
      node = entry->second;
    }
    nodes_[node].token = id;
    first_bytes_[static_cast<unsigned char>(vocabulary.text(id)[0])] = true;
  }
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].token) continue;
    NodeId walk = kNone;
    for (const char byte : vocabulary.text(*nodes_[node].token)) {
      if (nodes_[walk].token) nodes_[node].shorter = walk;
      walk = child(walk, byte);
    }
  }
}

SpecialSplitter::NodeId SpecialSplitter::child(NodeId node, char byte) const {
  const auto entry = children_.find(edge(node, byte));
  return entry == children_.end() ? kNone : entry->second;
}

// Of those that `text` begins with.
SpecialSplitter::NodeId SpecialSplitter::longest_candidate(std::string_view text) const {
  NodeId best = kNone, node = kNone;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == kNone) break;
    if (nodes_[node].token) best = node;
  }
  return best;
}

// The node itself, or the next shorter one that may be cut.
SpecialSplitter::NodeId SpecialSplitter::allowed(NodeId node, bool parse_special) const {
  while (node != kNone && !parse_special && vocabulary_.has(*nodes_[node].token, kControl | kUnknown)) {
    node = nodes_[node].shorter;
  }
  return node;
}

// Each place is tried with the longest candidate that begins there, and again with the next shorter one if that
// overlaps with what was cut before: so memory stays in proportion to the text, however many candidates overlap.
std::vector<SpecialSplitter::Cut> SpecialSplitter::find_cuts(std::string_view text, bool parse_special) const {
  struct Place {
    TokenId token;
    NodeId node;
    std::size_t begin;
    bool operator<(const Place& other) const {
      return token != other.token ? token < other.token : begin < other.begin;
    }
  };
  std::vector<std::vector<Place>> by_length;
  const auto add_place = [&](NodeId node, std::size_t begin) {
    node = allowed(node, parse_special);
    if (node == kNone) return;
    const Node& candidate = nodes_[node];
    if (by_length.size() <= candidate.length) by_length.resize(candidate.length + 1);
    by_length[candidate.length].push_back({*candidate.token, node, begin});
  };
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    if (first_bytes_[static_cast<unsigned char>(text[pos])]) add_place(longest_candidate(text.substr(pos)), pos);
  }
  std::vector<Cut> cuts;
  if (by_length.empty()) return cuts;

  std::vector<bool> taken(text.size());
  for (std::size_t length = by_length.size() - 1; length > 0; --length) {
    const std::vector<Place> places = [&] {
      std::sort(by_length[length].begin(), by_length[length].end());
      return std::move(by_length[length]);
    }();
    for (const auto& [token, node, begin] : places) {
      // What was cut before is not shorter, so that looking at both ends suffices.
      if (taken[begin]) continue;
      std::size_t end = begin + length;
      if (taken[end - 1]) {
        add_place(nodes_[node].shorter, begin);
        continue;
      }
      if (vocabulary_.has(token, kStripRight)) {
        while (end < text.size() && !taken[end] && is_ascii_space(text[end])) ++end;
      }
      std::fill(taken.begin() + static_cast<std::ptrdiff_t>(begin), taken.begin() + static_cast<std::ptrdiff_t>(end),
                true);
      cuts.push_back({begin, end, token});
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
