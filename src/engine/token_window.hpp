#pragma once
// The last tokens of a conversation, as the penalties see them.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "bankml/text/tokenizer.hpp"

namespace bankml {

class TokenWindow {
 public:
  explicit TokenWindow(std::size_t capacity) : capacity_(capacity) {}  // above 0

  // Adds the newest token; returns the one that falls out, or -1. Memory grows with the tokens, not with the capacity.
  TokenId push(TokenId token) {
    if (tokens_.size() < capacity_) {
      tokens_.push_back(token);
      return -1;
    }
    const TokenId oldest = tokens_[next_];
    tokens_[next_] = token;
    next_ = (next_ + 1) % capacity_;
    return oldest;
  }

  std::size_t size() const noexcept { return tokens_.size(); }
  // i = 0 is the newest.
  TokenId from_newest(std::size_t i) const noexcept {
    return tokens_[(next_ + tokens_.size() - 1 - i) % tokens_.size()];
  }

 private:
  std::vector<TokenId> tokens_;  // a ring once it is full
  std::size_t capacity_, next_ = 0;
};

}  // namespace bankml
