#pragma once
// Cutting a text at the texts of special tokens, before anything else (docs/tokenizers.md, section 2).
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace bankml {

struct Fragment {
  std::string_view text;         // raw text, never empty, or
  std::optional<TokenId> token;  // this token
};

class SpecialSplitter {
 public:
  // `vocabulary` must outlive it, with the attributes that it has now.
  explicit SpecialSplitter(const Vocabulary& vocabulary);

  // The longest candidate is cut first, wherever it is, then the next; of equally long ones that of the lower id; each
  // from left to right. Control and unknown tokens are candidates only with `parse_special`, user-defined ones always.
  std::vector<Fragment> split(std::string_view text, bool parse_special) const;

 private:
  struct Cut {
    std::size_t begin, end;  // of the token's text and the white space that it takes
    TokenId token;
  };
  std::vector<Cut> find_cuts(std::string_view text, bool parse_special) const;
  std::optional<TokenId> candidate(std::string_view text, bool parse_special) const;

  const Vocabulary& vocabulary_;
  std::vector<std::size_t> lengths_;                   // of candidates, descending
  std::array<std::vector<bool>, 256> first_byte_has_;  // [byte][index of length]; empty: no candidate begins with it
};

}  // namespace bankml
