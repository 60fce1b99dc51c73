#include "engine/dry.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "bankml/base/error.hpp"
#include "engine/token_window.hpp"

namespace bankml {
namespace {

constexpr std::size_t kLongestBreaker = 40;  // bytes
constexpr std::size_t kLongestTail = 20;     // tokens
constexpr std::size_t kMostBreakers = 64;    // each is compared with the whole vocabulary

class Dry final : public SamplingStage {
 public:
  Dry(const SamplingParams& params, std::size_t vocab, DryBreakers breakers)
      : multiplier_(params.dry_multiplier),
        base_(params.dry_base),
        allowed_(static_cast<std::size_t>(std::max(params.dry_allowed_length, 0))),
        breakers_(std::move(breakers)),
        window_(static_cast<std::size_t>(params.dry_penalty_last_n)),
        longest_match_(vocab, kNoMatch) {}

  void apply(CandidateArray& candidates) override {
    if (window_.size() <= allowed_) return;
    const std::size_t limit = repetition_limit();
    if (limit < allowed_) return;
    newest_first_.clear();
    for (std::size_t i = 0; i < window_.size(); ++i) newest_first_.push_back(window_.from_newest(i));
    find_suffix_matches();
    matched_.clear();
    for (std::size_t i = 1; i < newest_first_.size(); ++i) {
      const std::size_t match = std::min(match_[i], limit);
      if (match < allowed_) continue;
      const TokenId following = newest_first_[i - 1];
      auto& longest = longest_match_[static_cast<std::size_t>(following)];
      longest = std::max(longest, static_cast<std::int64_t>(match));
      matched_.push_back(following);
    }
    candidates.for_each([this](TokenId id, float& logit) {
      const std::int64_t match = longest_match_[static_cast<std::size_t>(id)];
      if (match != kNoMatch && !breakers_.ends_alone(id)) logit -= penalty(static_cast<std::size_t>(match) - allowed_);
    });
    for (const TokenId token : matched_) longest_match_[static_cast<std::size_t>(token)] = kNoMatch;
    candidates.set_sorted(false);
  }

  void accept(TokenId token) override {
    if (token >= 0 && static_cast<std::size_t>(token) < longest_match_.size()) window_.push(token);
  }

 private:
  static constexpr std::int64_t kNoMatch = -1;

  // Tokens after the newest breaker: a repetition reaches back no further.
  std::size_t repetition_limit() const {
    for (std::size_t i = 0; i < window_.size(); ++i) {
      const std::vector<DryBreakers::Tail>* tails = breakers_.tails(window_.from_newest(i));
      if (tails == nullptr) continue;
      std::optional<std::size_t> longest;
      for (const DryBreakers::Tail& tail : *tails) {
        if (follows(tail, i) && tail.size() >= longest.value_or(0)) longest = tail.size();
      }
      if (longest) return i - *longest;
    }
    return window_.size();
  }

  // Whether the tokens after the one at this distance from the newest begin with the tail.
  bool follows(const DryBreakers::Tail& tail, std::size_t distance) const {
    if (tail.size() > distance) return false;
    for (std::size_t i = 0; i < tail.size(); ++i) {
      if (window_.from_newest(distance - 1 - i) != tail[i]) return false;
    }
    return true;
  }

  // match_[i]: how many tokens the sequence ending at distance i shares with the end of the whole one (Z-algorithm on
  // the reversed sequence; Gusfield 1997, section 1.4).
  void find_suffix_matches() {
    const std::vector<TokenId>& s = newest_first_;
    match_.assign(s.size(), 0);
    std::size_t begin = 0, end = 0;  // the match that reaches furthest
    for (std::size_t i = 1; i < s.size(); ++i) {
      std::size_t n = i < end ? std::min(end - i, match_[i - begin]) : 0;
      while (i + n < s.size() && s[n] == s[i + n]) ++n;
      match_[i] = n;
      if (i + n > end) {
        begin = i;
        end = i + n;
      }
    }
  }

  float penalty(std::size_t excess) const {
    constexpr float kNearlyOne = 1.000001f, kLogOfGreatestFloat = 88.7228391f;
    auto exponent = static_cast<float>(excess);
    if (base_ > kNearlyOne) exponent = std::min(exponent, std::floor(kLogOfGreatestFloat / std::log(base_)));
    return multiplier_ * std::pow(base_, exponent);
  }

  float multiplier_, base_;
  std::size_t allowed_;
  DryBreakers breakers_;
  TokenWindow window_;
  std::vector<std::int64_t> longest_match_;  // by token
  std::vector<TokenId> newest_first_, matched_;
  std::vector<std::size_t> match_;
};

}  // namespace

void DryBreakers::add(TokenId head, Tail tail) {
  std::vector<Tail>& tails = tails_[head];
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

const std::vector<DryBreakers::Tail>* DryBreakers::tails(TokenId head) const {
  const auto found = tails_.find(head);
  return found == tails_.end() ? nullptr : &found->second;
}

bool DryBreakers::ends_alone(TokenId token) const {
  const std::vector<Tail>* all = tails(token);
  return all != nullptr && std::any_of(all->begin(), all->end(), [](const Tail& tail) { return tail.empty(); });
}

DryBreakers find_dry_breakers(std::span<const std::string> strings, const Tokenizer& tokenizer) {
  DryBreakers breakers;
  if (strings.size() > kMostBreakers) {
    throw Error(ErrorKind::invalid_request, "dry_sequence_breakers: expected at most " + std::to_string(kMostBreakers) +
                                                " strings, found " + std::to_string(strings.size()));
  }
  for (const std::string& string : strings) {
    const std::string_view breaker = std::string_view(string).substr(0, kLongestBreaker);
    if (breaker.empty()) continue;
    std::vector<std::optional<DryBreakers::Tail>> rest(
        breaker.size());  // [n]: tokens of what follows the first n bytes
    for (TokenId id = 0; id < tokenizer.size(); ++id) {
      const std::string_view text = tokenizer.piece(id, true);
      if (text.find(breaker) != std::string_view::npos) {
        breakers.add(id, {});
        continue;
      }
      for (std::size_t n = 1; n < breaker.size() && n <= text.size(); ++n) {
        if (text[text.size() - n] != breaker.front()) continue;  // most often, and cheaper than what follows
        if (text.substr(text.size() - n) != breaker.substr(0, n)) continue;
        if (!rest[n]) {
          rest[n] = tokenizer.encode(breaker.substr(n), false, false);
          rest[n]->resize(std::min(rest[n]->size(), kLongestTail));
        }
        breakers.add(id, *rest[n]);
      }
    }
  }
  return breakers;
}

bool dry_is_on(const SamplingParams& params) noexcept {
  return params.dry_multiplier != 0.0f && params.dry_base >= 1.0f && params.dry_penalty_last_n > 0;
}

std::unique_ptr<SamplingStage> make_dry(const SamplingParams& params, std::size_t vocab, DryBreakers breakers) {
  return std::make_unique<Dry>(params, vocab, std::move(breakers));
}

}  // namespace bankml
