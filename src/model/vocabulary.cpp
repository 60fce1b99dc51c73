#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/model/config.hpp"

namespace bankml {
namespace {

std::string key(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

[[noreturn]] void fail_missing(const GgufFile& file, std::string_view name) {
  throw Error(ErrorKind::invalid_request, fmt::format("{}: key '{}' is missing", file.name(), key(name)));
}

// A list of integers, `otherwise` in place of those that have more than 32 bits.
std::vector<std::int32_t> read_integers(const GgufFile& file, std::string_view name, std::int32_t otherwise) {
  std::vector<std::int32_t> out;
  for (const std::int64_t value : file.integers(key(name)).value_or(std::vector<std::int64_t>{})) {
    out.push_back(std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : otherwise);
  }
  return out;
}

// The first of the keys that is present. No vocabulary has the largest id.
std::optional<std::uint32_t> special_id(const GgufFile& file, std::initializer_list<std::string_view> names) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  for (const std::string_view name : names) {
    if (const auto id = file.unsigned_value(key(name))) return static_cast<std::uint32_t>(std::min(*id, kLargest));
  }
  return std::nullopt;
}

void read_special_ids(const GgufFile& file, VocabularySource& out) {
  out.bos = special_id(file, {"bos_token_id"});
  out.eos = special_id(file, {"eos_token_id"});
  out.eot = special_id(file, {"eot_token_id"});
  out.eom = special_id(file, {"eom_token_id"});
  out.fim_pre = special_id(file, {"fim_pre_token_id", "prefix_token_id"});
  out.fim_suf = special_id(file, {"fim_suf_token_id", "suffix_token_id"});
  out.fim_mid = special_id(file, {"fim_mid_token_id", "middle_token_id"});
  out.fim_pad = special_id(file, {"fim_pad_token_id"});
  out.fim_rep = special_id(file, {"fim_rep_token_id"});
  out.fim_sep = special_id(file, {"fim_sep_token_id"});
}

}  // namespace

VocabularySource read_vocabulary(const GgufFile& file) {
  constexpr std::int32_t kUndefinedType = 0, kNoToken = -1;
  VocabularySource out;
  const auto model = file.string_value(key("model"));
  if (!model) fail_missing(file, "model");
  out.model = *model;
  out.pre = file.string_value(key("pre")).value_or("");
  out.model_name = file.string_value("general.name").value_or("");
  auto tokens = file.strings(key("tokens"));
  if (!tokens) fail_missing(file, "tokens");
  out.tokens = std::move(*tokens);
  out.scores = file.floats(key("scores")).value_or(std::vector<float>{});
  out.types = read_integers(file, "token_type", kUndefinedType);
  out.merges = file.strings(key("merges")).value_or(std::vector<std::string>{});
  out.suppress_tokens = read_integers(file, "suppress_tokens", kNoToken);
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
