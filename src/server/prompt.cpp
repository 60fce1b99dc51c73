#include "server/prompt.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <limits>

#include "bankml/base/error.hpp"
#include "server/fields.hpp"

namespace bankml {
namespace {

// Each is a task of its own in the engine's queue.
constexpr std::size_t kMaxPrompts = 1024;

bool is_integer(const boost::json::value& value) noexcept {
  return value.is_int64() || value.is_uint64();
}

[[noreturn]] void throw_shape(const boost::json::value& value) {
  throw Error(
      ErrorKind::invalid_request,
      fmt::format("field 'prompt': expected a string, an array of token ids, an array mixing both, an object with "
                  "'prompt_string', or an array of these, got {}",
                  json_type_name(value)));
}

// Whether an array is one prompt of tokens and texts rather than several prompts.
bool is_token_array(const boost::json::array& array) noexcept {
  return !array.empty() && std::ranges::any_of(array, is_integer) &&
         std::ranges::all_of(array, [](const auto& element) { return is_integer(element) || element.is_string(); });
}

TokenIds parse_one(const boost::json::value& prompt, const Tokenizer& tokenizer) {
  if (const auto* object = prompt.if_object()) {
    if (object->contains("multimodal_data")) {
      throw Error(ErrorKind::invalid_request, "field 'prompt': 'multimodal_data' given, but the model reads text only");
    }
    const auto* text = object->if_contains("prompt_string");
    if (text == nullptr || text->is_object()) throw_shape(prompt);
    return parse_one(*text, tokenizer);
  }
  const auto* array = prompt.if_array();
  if (array != nullptr && array->empty()) return {};
  if (array == nullptr ? !prompt.is_string() : !is_token_array(*array)) throw_shape(prompt);
  TokenIds tokens = tokenize_mixed(prompt, tokenizer, true, true);
  const auto invalid = std::ranges::find_if_not(tokens, [&](TokenId id) { return tokenizer.valid(id); });
  if (invalid != tokens.end()) {
    throw Error(
        ErrorKind::invalid_request,
        fmt::format("field 'prompt': token id {} is not in the vocabulary of {} tokens", *invalid, tokenizer.size()));
  }
  return tokens;
}

}  // namespace

TokenIds tokenize_mixed(const boost::json::value& content, const Tokenizer& tokenizer, bool add_special,
                        bool parse_special) {
  const auto encode = [&](const boost::json::string& text, bool special) {
    return tokenizer.encode({text.data(), text.size()}, special, parse_special);
  };
  if (const auto* text = content.if_string()) return encode(*text, add_special);
  const auto* array = content.if_array();
  if (array == nullptr) {
    throw Error(ErrorKind::internal, fmt::format("field 'content': expected a string or an array of strings and token "
                                                 "ids, got {}",
                                                 json_type_name(content)));
  }
  TokenIds tokens;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const auto& element = (*array)[i];
    if (const auto* text = element.if_string()) {
      const TokenIds part = encode(*text, add_special && i == 0);
      tokens.insert(tokens.end(), part.begin(), part.end());
    } else if (const auto id = as_integer(element)) {
      constexpr std::int64_t kMin = std::numeric_limits<TokenId>::min(), kMax = std::numeric_limits<TokenId>::max();
      tokens.push_back(static_cast<TokenId>(std::clamp(*id, kMin, kMax)));
    } else {
      throw Error(
          ErrorKind::internal,
          fmt::format("field 'content': expected strings and token ids in the array, got {}", json_type_name(element)));
    }
  }
  return tokens;
}

std::vector<TokenIds> parse_prompts(const boost::json::value* prompt, const Tokenizer& tokenizer) {
  if (prompt == nullptr) throw Error(ErrorKind::invalid_request, "field 'prompt' is required");
  const auto* array = prompt->if_array();
  if (array == nullptr || is_token_array(*array)) return {parse_one(*prompt, tokenizer)};
  if (array->empty()) throw Error(ErrorKind::invalid_request, "field 'prompt': an empty array holds no prompt");
  if (array->size() > kMaxPrompts) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("field 'prompt': expected at most {} prompts, got {}", kMaxPrompts, array->size()));
  }
  std::vector<TokenIds> prompts;
  prompts.reserve(array->size());
  for (const auto& element : *array) prompts.push_back(parse_one(element, tokenizer));
  return prompts;
}

std::vector<std::int32_t> find_user_messages(std::span<const TokenId> prompt, std::string_view marker,
                                             const Tokenizer& tokenizer) {
  std::vector<std::int32_t> starts;
  if (marker.empty()) return starts;
  const TokenIds wanted = tokenizer.encode(marker, false, true);
  if (wanted.empty()) return starts;
  for (auto from = prompt.begin();;) {
    from = std::search(from, prompt.end(), wanted.begin(), wanted.end());
    if (from == prompt.end()) return starts;
    starts.push_back(static_cast<std::int32_t>(from - prompt.begin()));
    from += std::ssize(wanted);
  }
}

}  // namespace bankml
