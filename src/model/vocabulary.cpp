#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/model/config.hpp"
#include "model/printable.hpp"

namespace bankml {
namespace {

std::string key(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

[[noreturn]] void fail(const GgufFile& file, const std::string& message) {
  throw Error(ErrorKind::invalid_request, fmt::format("{}: {}", file.name(), message));
}

// Tables beside the tokens may be longer than these, as the peer allows; what exceeds them has no token.
template <class T>
void fit_to_tokens(const GgufFile& file, std::string_view name, std::vector<T>& table, std::size_t tokens) {
  if (table.size() < tokens) {
    fail(file, fmt::format("key '{}': expected an entry for each of the {} tokens, found {}", key(name), tokens,
                           table.size()));
  }
  table.resize(tokens);
}

// Each text stands for one id: encoding looks texts up.
void check_texts(const GgufFile& file, std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(tokens.size());
  std::size_t empty = 0;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) {
      tokens[id] = fmt::format("[EMPTY_{}]", id);
      ++empty;
    }
    const auto [other, added] = ids.try_emplace(tokens[id], id);
    if (!added) {
      fail(file, fmt::format("key '{}': tokens {} and {} have the same text {}", key("tokens"), other->second, id,
                             printable(tokens[id])));
    }
  }
  if (empty > 0) log_warning("tokens of the vocabulary without text, renamed [EMPTY_id]: {}", empty);
}

std::vector<std::int32_t> read_types(const GgufFile& file, std::size_t tokens) {
  constexpr std::int64_t kUndefined = 0, kLast = static_cast<std::int64_t>(TokenType::byte);
  auto stored = file.integers(key("token_type"));
  if (!stored) return {};
  fit_to_tokens(file, "token_type", *stored, tokens);
  std::vector<std::int32_t> types;
  types.reserve(tokens);
  for (const std::int64_t type : *stored) {
    if (type < kUndefined || type > kLast) {
      fail(file, fmt::format("key '{}': expected token types from {} to {}, found {}", key("token_type"), kUndefined,
                             kLast, type));
    }
    types.push_back(
        static_cast<std::int32_t>(type == kUndefined ? static_cast<std::int64_t>(TokenType::normal) : type));
  }
  return types;
}

std::vector<float> read_scores(const GgufFile& file, std::size_t tokens) {
  auto scores = file.floats(key("scores"));
  if (!scores) return {};
  fit_to_tokens(file, "scores", *scores, tokens);
  for (std::size_t id = 0; id < tokens; ++id) {
    if (std::isnan((*scores)[id])) fail(file, fmt::format("key '{}': the score of token {} is NaN", key("scores"), id));
  }
  return std::move(*scores);
}

// The first of the keys that is present; an id that isn't in the vocabulary counts as absent.
std::optional<std::uint32_t> special_id(const GgufFile& file, std::initializer_list<std::string_view> names,
                                        std::size_t tokens) {
  for (const std::string_view name : names) {
    const auto id = file.unsigned_value(key(name));
    if (!id) continue;
    if (*id < tokens) return static_cast<std::uint32_t>(*id);
    log_warning("key '{}': {} is not one of the {} tokens, ignored", key(name), *id, tokens);
  }
  return std::nullopt;
}

void read_special_ids(const GgufFile& file, VocabularySource& out) {
  const auto read = [&](std::initializer_list<std::string_view> names) {
    return special_id(file, names, out.tokens.size());
  };
  out.bos = read({"bos_token_id"});
  out.eos = read({"eos_token_id"});
  out.eot = read({"eot_token_id"});
  out.eom = read({"eom_token_id"});
  out.unk = read({"unknown_token_id"});
  out.sep = read({"seperator_token_id"});  // spelled so in the files
  out.pad = read({"padding_token_id"});
  out.fim_pre = read({"fim_pre_token_id", "prefix_token_id"});
  out.fim_suf = read({"fim_suf_token_id", "suffix_token_id"});
  out.fim_mid = read({"fim_mid_token_id", "middle_token_id"});
  out.fim_pad = read({"fim_pad_token_id"});
  out.fim_rep = read({"fim_rep_token_id"});
  out.fim_sep = read({"fim_sep_token_id"});
  std::size_t unknown = 0;
  for (const std::int64_t id : file.integers(key("suppress_tokens")).value_or(std::vector<std::int64_t>{})) {
    if (std::cmp_greater_equal(id, 0) && std::cmp_less(id, out.tokens.size())) {
      out.suppress_tokens.push_back(static_cast<TokenId>(id));
    } else {
      ++unknown;
    }
  }
  if (unknown > 0) log_warning("key '{}': ids that are no tokens, ignored: {}", key("suppress_tokens"), unknown);
}

}  // namespace

VocabularySource read_vocabulary(const GgufFile& file) {
  VocabularySource out;
  const auto model = file.string_value(key("model"));
  if (!model) fail(file, fmt::format("key '{}' is missing", key("model")));
  out.model = *model;
  out.pre = file.string_value(key("pre")).value_or("");
  out.model_name = file.string_value("general.name").value_or("");

  auto tokens = file.strings(key("tokens"));
  if (!tokens || tokens->empty())
    fail(file, fmt::format("key '{}': expected a list of tokens, found none", key("tokens")));
  if (tokens->size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    fail(file, fmt::format("key '{}': {} tokens are too many", key("tokens"), tokens->size()));
  }
  out.tokens = std::move(*tokens);
  check_texts(file, out.tokens);
  out.scores = read_scores(file, out.tokens.size());
  out.types = read_types(file, out.tokens.size());
  out.merges = file.strings(key("merges")).value_or(std::vector<std::string>{});
  read_special_ids(file, out);
  out.add_bos = file.bool_value(key("add_bos_token"));
  out.add_eos = file.bool_value(key("add_eos_token"));
  out.add_space_prefix = file.bool_value(key("add_space_prefix"));
  return out;
}

std::string read_chat_template(const GgufFile& file, std::string_view variant) {
  std::string name = "tokenizer.chat_template";
  if (!variant.empty()) name.append(".").append(variant);
  return std::string(file.string_value(name).value_or(""));
}

}  // namespace bankml
