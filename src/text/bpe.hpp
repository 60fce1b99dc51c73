#pragma once
// Byte-level byte pair encoding (Sennrich et al. 2016, over bytes as in GPT-2): docs/tokenizers.md, section 3.
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/encode_work.hpp"
#include "text/pair_merger.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/vocabulary.hpp"

namespace bankml {

class Bpe {
 public:
  // `vocabulary` must outlive it. Throws Error(invalid_request) for a merge that isn't two texts with a space between.
  Bpe(const Vocabulary& vocabulary, const PreTokenizer& pre_tokenizer, const std::vector<std::string>& merges);

  // Appends the tokens of a raw fragment to work.out. A byte that is not part of valid UTF-8 counts as U+FFFD.
  void encode(std::string_view text, EncodeWork& work) const;

 private:
  // Texts that merging can meet are numbered: below vocabulary_.size() they are tokens, the others are only steps on
  // the way.
  using SymbolId = std::int32_t;
  struct Merge {
    std::uint32_t rank;
    SymbolId merged;
  };

  SymbolId intern(std::string_view text);
  void encode_piece(std::string_view piece, PairMerger& merger, std::vector<TokenId>& out) const;
  void append_symbol(SymbolId id, std::string_view bytes, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  const PreTokenizer& pre_tokenizer_;
  boost::unordered_flat_map<std::string, SymbolId> other_symbols_;
  std::array<SymbolId, 256> byte_symbols_;
  boost::unordered_flat_map<std::uint64_t, Merge> merges_;  // by left << 32 | right
};

}  // namespace bankml
