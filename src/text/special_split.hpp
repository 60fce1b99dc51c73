#pragma once
// Cutting a text at the texts of special tokens, before anything else (docs/tokenizers.md, section 2).
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
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
  using NodeId = std::uint32_t;
  static constexpr NodeId kNone = 0;  // the root, which is no candidate
  // Of a trie of the candidates.
  struct Node {
    std::optional<TokenId> token;
    NodeId shorter = kNone;  // the next candidate on the way back to the root
    std::uint32_t length = 0;
  };
  struct Cut {
    std::size_t begin, end;  // of the token's text and the white space that it takes
    TokenId token;
  };

  NodeId child(NodeId node, char byte) const;
  NodeId longest_candidate(std::string_view text) const;
  NodeId allowed(NodeId node, bool parse_special) const;
  std::vector<Cut> find_cuts(std::string_view text, bool parse_special) const;

  const Vocabulary& vocabulary_;
  std::vector<Node> nodes_;
  boost::unordered_flat_map<std::uint64_t, NodeId> children_;  // by node << 8 | byte
  std::vector<bool> first_bytes_;
};

}  // namespace bankml
