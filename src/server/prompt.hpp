#pragma once
// The `prompt` field in all its shapes (docs/http-api.md 8).
#include <boost/json/value.hpp>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bankml/text/tokenizer.hpp"

namespace bankml {

using TokenIds = std::vector<TokenId>;

// One or several prompts as tokens. Throws Error(invalid_request).
std::vector<TokenIds> parse_prompts(const boost::json::value* prompt, const Tokenizer& tokenizer);

// An array that mixes texts and token ids, or one text: special tokens of the vocabulary are added, if `add_special`,
// in front of a text that comes first. Ids are not looked at. Throws Error(internal), as llama-server's /tokenize does,
// for other elements.
TokenIds tokenize_mixed(const boost::json::value& content, const Tokenizer& tokenizer, bool add_special,
                        bool parse_special);

// Where messages of the user start in a rendered prompt: the tokens that begin what `marker` is tokenized to,
// ascending. None for an empty marker.
std::vector<std::int32_t> find_user_messages(std::span<const TokenId> prompt, std::string_view marker,
                                             const Tokenizer& tokenizer);

}  // namespace bankml
