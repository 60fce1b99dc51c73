#pragma once
// The array that the sampling chain works on: one candidate per token of the vocabulary, in id order, then whatever
// each stage left of it. Orders, also of equal logits, are those of libstdc++'s algorithms (docs/sampling.md, 2.3).
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "bankml/engine/sampling.hpp"

namespace bankml {

class CandidateArray {
 public:
  // Starts over with one value per token. `logits` must stay valid until the next call; nothing is copied before a
  // stage needs it, since most chains begin by keeping only a few.
  void assign(std::span<const float> logits);

  std::size_t size() const noexcept { return size_; }
  bool sorted() const noexcept { return sorted_; }  // by logit, descending
  void set_sorted(bool sorted) noexcept { sorted_ = sorted; }
  std::span<Candidate> items();  // all of them, in array order

  // Calls f(id, float& logit) for each candidate in array order.
  template <class F>
  void for_each(F&& f) {
    if (is_raw()) {
      float* logits = editable_logits();
      for (std::size_t i = 0; i < size_; ++i) f(static_cast<TokenId>(i), logits[i]);
    } else {
      for (Candidate& candidate : items()) f(candidate.id, candidate.logit);
    }
  }
  // The only candidate.
  void assign_single(const Candidate& candidate);
  // Adds to the logit of one token, wherever it is.
  void add_bias(TokenId token, float bias);

  // Keeps the first n, n <= size().
  void cut(std::size_t n);
  // Keeps those for which keep(candidate), in order.
  template <class F>
  void filter(F&& keep) {
    const std::span<Candidate> all = items();
    std::size_t kept = 0;
    for (const Candidate& candidate : all) {
      if (keep(candidate)) all[kept++] = candidate;
    }
    cut(kept);
  }
  // Sorts unless sorted, and keeps the k greatest logits.
  void keep_top(std::size_t k);
  void sort() { keep_top(size_); }
  // The k greatest, sorted, beside the array as it is; take_peeked(n) makes the first n of them the array.
  std::span<const Candidate> peek_top(std::size_t k);
  void take_peeked(std::size_t n);

  float max_logit();
  // p of each from its logit: exponentials and their sum in array order, in single precision.
  void softmax();
  void sort_and_softmax() {
    sort();
    softmax();
  }

 private:
  bool is_raw() const noexcept { return raw_ != nullptr; }
  float* editable_logits();
  void select_by_buckets(std::size_t k);  // into scratch_

  const float* raw_ = nullptr;  // the logits in id order, as long as no candidates were made of them
  std::vector<float> logits_;   // what raw_ points to once a logit was changed
  std::vector<Candidate> items_, scratch_;
  std::size_t size_ = 0;
  bool sorted_ = false;
};

struct GreaterLogit {
  bool operator()(const Candidate& a, const Candidate& b) const noexcept { return a.logit > b.logit; }
};

inline constexpr std::size_t kScanBlock = 64;

// Whether any of a block of values is above the bound. Without branches and with a fixed count, so that it becomes
// vector code.
inline bool any_above(const float* values, float bound) noexcept {
  int above = 0;
  for (std::size_t i = 0; i < kScanBlock; ++i) above |= values[i] > bound ? 1 : 0;
  return above != 0;
}

// Puts the k greatest of `logits` in descending order into out[0, k), out having room for k + 1; 0 < k <=
// logits.size(). It is the head that std::partial_sort leaves of the candidates in id order, equal logits included, by
// the same heap operations, but without an array of all of them. `displaced(i, logit)` is called for each i >= k whose
// place std::partial_sort fills with another candidate, with that one's logit.
template <class F>
void select_top(std::span<const float> logits, std::size_t k, Candidate* out, F&& displaced) {
  for (std::size_t i = 0; i < k; ++i) out[i] = {static_cast<TokenId>(i), logits[i], 0.0f};
  std::make_heap(out, out + k, GreaterLogit{});
  for (std::size_t begin = k; begin < logits.size(); begin += kScanBlock) {
    const std::size_t n = std::min(kScanBlock, logits.size() - begin);
    if (n == kScanBlock && !any_above(&logits[begin], out[0].logit)) continue;
    for (std::size_t i = begin; i < begin + n; ++i) {
      if (!(logits[i] > out[0].logit)) continue;
      out[k] = {static_cast<TokenId>(i), logits[i], 0.0f};
      std::pop_heap(out, out + k + 1,
                    GreaterLogit{});  // the least of the heap moves to out[k], the new one into the heap
      displaced(i, out[k].logit);
    }
  }
  std::sort_heap(out, out + k, GreaterLogit{});
}

}  // namespace bankml
