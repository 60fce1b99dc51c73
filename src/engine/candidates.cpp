#include "engine/candidates.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace bankml {
namespace {

// Up to here the k greatest are found with a heap, above by buckets of similar logits.
constexpr std::size_t kHeapLimit = 128;
constexpr int kBuckets = 128;
constexpr float kBucketsPerUnit = 6.4f, kFirstBucketOffset = 64.0f;  // from -10 to 10

int bucket_of(float logit) noexcept {
  const float position = kBucketsPerUnit * logit + kFirstBucketOffset;
  if (!(position > 0.0f)) return 0;  // NaN too
  return position >= static_cast<float>(kBuckets - 1) ? kBuckets - 1 : static_cast<int>(position);
}

}  // namespace

void CandidateArray::assign(std::span<const float> logits) {
  raw_ = logits.data();
  size_ = logits.size();
  sorted_ = false;
}

void CandidateArray::assign_single(const Candidate& candidate) {
  raw_ = nullptr;
  if (items_.empty()) items_.resize(1);
  items_[0] = candidate;
  size_ = 1;
  sorted_ = true;
}

std::span<Candidate> CandidateArray::items() {
  if (is_raw()) {
    if (items_.size() < size_) items_.resize(size_);
    for (std::size_t i = 0; i < size_; ++i) items_[i] = {static_cast<TokenId>(i), raw_[i], 0.0f};
    raw_ = nullptr;
  }
  return {items_.data(), size_};
}

float* CandidateArray::editable_logits() {
  if (raw_ != logits_.data()) {
    logits_.assign(raw_, raw_ + size_);
    raw_ = logits_.data();
  }
  return logits_.data();
}

void CandidateArray::add_bias(TokenId token, float bias) {
  if (is_raw()) {
    if (token >= 0 && static_cast<std::size_t>(token) < size_) editable_logits()[token] += bias;
    return;
  }
  for (Candidate& candidate : items()) {
    if (candidate.id == token) candidate.logit += bias;
  }
}

void CandidateArray::cut(std::size_t n) {
  items();
  size_ = n;
}

void CandidateArray::keep_top(std::size_t k) {
  k = std::min(k, size_);
  if (sorted_) return cut(k);
  sorted_ = true;
  if (k == 0) return cut(0);
  if (k > kHeapLimit) {
    select_by_buckets(k);
    take_peeked(k);
  } else if (is_raw()) {
    if (items_.size() < k + 1) items_.resize(k + 1);
    select_top(std::span(raw_, size_), k, items_.data(), [](std::size_t, float) {});
    raw_ = nullptr;
    size_ = k;
  } else {
    const std::span<Candidate> all = items();
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k), all.end(), GreaterLogit{});
    size_ = k;
  }
}

std::span<const Candidate> CandidateArray::peek_top(std::size_t k) {
  k = std::min(k, size_);
  select_by_buckets(k);
  return {scratch_.data(), k};
}

void CandidateArray::take_peeked(std::size_t n) {
  std::swap(items_, scratch_);
  size_ = n;
  sorted_ = true;
}

void CandidateArray::select_by_buckets(std::size_t k) {
  const std::span<Candidate> all = items();
  if (scratch_.size() < size_) scratch_.resize(size_);
  std::array<std::size_t, kBuckets> count{}, end{};
  for (const Candidate& candidate : all) ++count[static_cast<std::size_t>(bucket_of(candidate.logit))];
  // Buckets from the greatest down until k are in; end[b] is first where bucket b begins.
  std::size_t first = kBuckets, taken = 0;
  while (taken < k) {
    --first;
    end[first] = taken;
    taken += count[first];
  }
  for (const Candidate& candidate : all) {
    const auto bucket = static_cast<std::size_t>(bucket_of(candidate.logit));
    if (bucket < first) continue;
    Candidate& placed = scratch_[end[bucket]++];
    placed = candidate;
    if (std::isnan(placed.logit)) placed.logit = -std::numeric_limits<float>::infinity();  // NaN would break the sort
  }
  for (std::size_t bucket = kBuckets; bucket-- > first;) {
    Candidate* const last = scratch_.data() + end[bucket];
    Candidate* const begin = last - count[bucket];
    if (bucket > first) {
      std::sort(begin, last, GreaterLogit{});
    } else {
      std::partial_sort(begin, scratch_.data() + k, last, GreaterLogit{});
    }
  }
}

float CandidateArray::max_logit() {
  const std::span<const Candidate> all = items();
  if (all.empty()) return -std::numeric_limits<float>::infinity();
  float max = all[0].logit;
  if (!sorted_) {
    for (const Candidate& candidate : all) max = std::max(max, candidate.logit);
  }
  return max;
}

void CandidateArray::softmax() {
  const float max = max_logit();
  float sum = 0.0f;
  for (Candidate& candidate : items()) {
    candidate.p = std::exp(candidate.logit - max);
    sum += candidate.p;
  }
  for (Candidate& candidate : items()) candidate.p /= sum;
}

}  // namespace bankml
