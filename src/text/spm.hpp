#pragma once
// SentencePiece-style merging by score ("llama" vocabularies; Kudo and Richardson 2018): docs/tokenizers.md, section 4.
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/encode_work.hpp"
#include "text/pair_merger.hpp"
#include "text/vocabulary.hpp"

namespace bankml {

class Spm {
 public:
  // `vocabulary` must outlive it. `scores`: one a token, or none at all. Throws Error(invalid_request) for too few or
  // NaN.
  Spm(const Vocabulary& vocabulary, const std::vector<float>& scores, bool add_space_prefix);

  // Appends the tokens of a raw fragment to work.out. Throws Error(invalid_request) for a byte that the vocabulary
  // can't express.
  void encode(std::string_view text, EncodeWork& work) const;

 private:
  void rank_by_score(const std::vector<float>& scores);
  void note_neighbours(std::string_view token_text);
  void encode_run(std::string_view run, PairMerger& merger, std::vector<TokenId>& out) const;
  void append_symbol(std::string_view text, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  bool add_space_prefix_;
  std::vector<std::uint32_t> ranks_;      // of each token: the higher the score the lower
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::vector<bool> neighbours_;          // hashes of the pairs of characters that stand side by side in some token
};

}  // namespace bankml
