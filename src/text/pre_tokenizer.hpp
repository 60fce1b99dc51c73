#pragma once
// Cutting text into the pieces inside which byte-level BPE merges.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer_steps.hpp"

namespace bankml {

// One value of tokenizer.ggml.pre: docs/tokenizers.md, section 3.2.
struct PreTokenizer {
  std::span<const StepFunction> steps;  // each is applied to every piece that the one before has left
  bool clean_spaces;                    // default of Tokenizer::decode_clean
  bool ignore_merges;                   // a piece that is a token as a whole becomes that token
  bool adds_bos;

  // `text` is valid UTF-8 of less than 2^32 bytes. The pieces are non-empty and, put together, the text.
  std::vector<std::string_view> split(std::string_view text) const;
};

// nullptr if there is none of that name.
const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept;

// All names, separated by ", ": for error messages.
std::string pre_tokenizer_names();

}  // namespace bankml
