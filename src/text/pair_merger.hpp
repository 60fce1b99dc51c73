#pragma once
// The merging of neighbours that BPE and SPM share: they differ in which pairs may merge, and in which order.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace bankml {

// Merges the adjacent pair of lowest rank, of equal ones the leftmost, until none is left. O(n log n), by a heap of
// candidates in which outdated ones stay until they come up. Kept between texts for the sake of its memory.
class PairMerger {
 public:
  struct Symbol {
    std::int32_t id;           // what the caller knows it by
    std::uint32_t begin, end;  // where it is in the text; empty: merged into its left neighbour
    std::int32_t prev, next;   // indices, -1 at the ends
  };
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;  // of the merged symbol
  };

  void clear() { symbols_.clear(); }
  std::size_t size() const noexcept { return symbols_.size(); }

  // Appends a symbol that begins where the last one ends.
  void add(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
    const auto index = static_cast<std::int32_t>(symbols_.size());
    if (index > 0) symbols_.back().next = index;
    symbols_.push_back({id, begin, end, index - 1, -1});
  }

  // find(left, right) gives std::optional<Merge> and depends only on the two symbols.
  template <class Find>
  void run(Find&& find) {
    candidates_.clear();
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
      if (const auto candidate = make_candidate(i, find)) candidates_.push_back(*candidate);
    }
    std::make_heap(candidates_.begin(), candidates_.end());
    while (!candidates_.empty()) {
      std::pop_heap(candidates_.begin(), candidates_.end());
      const Candidate top = candidates_.back();
      candidates_.pop_back();
      Symbol& left = symbols_[top.left];
      if (left.begin == left.end || left.end != top.middle || symbols_[left.next].end != top.end) continue;  // outdated
      Symbol& right = symbols_[left.next];
      left.id = top.id;
      left.end = right.end;
      left.next = right.next;
      right.begin = right.end;
      if (left.next >= 0) {
        symbols_[left.next].prev = static_cast<std::int32_t>(top.left);
        push(top.left, find);
      }
      if (left.prev >= 0) push(static_cast<std::uint32_t>(left.prev), find);
    }
  }

  // Calls visit(symbol) for what is left, from left to right.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next) visit(symbols_[i]);
  }

 private:
  // Outdated when the text from the left symbol's begin to the middle to the end is no longer that of two neighbours.
  struct Candidate {
    std::uint32_t rank, left;
    std::uint32_t middle, end;
    std::int32_t id;
    // Of the standard heap's "largest": the one to merge first.
    bool operator<(const Candidate& other) const noexcept {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  template <class Find>
  std::optional<Candidate> make_candidate(std::size_t left, Find& find) const {
    const Symbol& a = symbols_[left];
    const Symbol& b = symbols_[a.next];
    const std::optional<Merge> merge = find(a, b);
    if (!merge) return std::nullopt;
    return Candidate{merge->rank, static_cast<std::uint32_t>(left), b.begin, b.end, merge->id};
  }

  template <class Find>
  void push(std::uint32_t left, Find& find) {
    if (const auto candidate = make_candidate(left, find)) {
      candidates_.push_back(*candidate);
      std::push_heap(candidates_.begin(), candidates_.end());
    }
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;
};

}  // namespace bankml
