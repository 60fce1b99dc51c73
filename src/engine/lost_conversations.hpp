#pragma once
// What the limits of the prompt cache have pushed out lately, so that an answer can say what that has cost it.
#include <algorithm>
#include <deque>
#include <span>
#include <vector>

#include "bankml/engine/prompt_cache.hpp"

namespace bankml {

class LostConversations {
 public:
  void add(std::span<const TokenId> tokens) {
    // A few: they are compared with each prompt, and what was dropped long ago is no surprise.
    constexpr std::size_t kRemembered = 16;
    if (conversations_.size() == kRemembered) conversations_.pop_front();
    conversations_.emplace_back(tokens.begin(), tokens.end());
  }

  // The most tokens of the prompt that one of them began with.
  std::size_t longest_prefix(std::span<const TokenId> prompt) const noexcept {
    std::size_t longest = 0;
    for (const auto& tokens : conversations_) longest = std::max(longest, lcp(tokens, prompt));
    return longest;
  }

 private:
  std::deque<std::vector<TokenId>> conversations_;
};

}  // namespace bankml
