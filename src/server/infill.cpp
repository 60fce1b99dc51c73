#include "server/infill.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "bankml/base/error.hpp"
#include "server/fields.hpp"

namespace bankml {
namespace {

// What models see as the project's and the open file's name, which a request does not tell.
constexpr std::string_view kProject = "myproject\n";
constexpr std::string_view kOpenFile = "filename\n";
constexpr std::string_view kUnnamedFile = "tmp";
// Stands before a file's text where the vocabulary has no token for it.
constexpr std::string_view kSnippet = "\n\n--- snippet ---\n\n";

[[noreturn]] void throw_extra(std::string_view came) {
  throw Error(ErrorKind::invalid_request,
              fmt::format("field 'input_extra': expected an array of objects with a string 'text' and, if it has one, "
                          "a string 'filename', got {}",
                          came));
}

std::string required_text(const Fields& fields, std::string_view name) {
  const auto* value = fields.find(name);
  if (value == nullptr || !value->is_string()) {
    throw Error(ErrorKind::internal, fmt::format("field '{}': a string is required", name));
  }
  return std::string(value->get_string());
}

InfillText::File parse_file(const boost::json::value& value) {
  if (!value.is_object()) throw_extra(json_type_name(value));
  const Fields fields(value.get_object());
  const auto* text = fields.find("text");
  const auto* name = fields.find("filename");
  if (text == nullptr || !text->is_string()) throw_extra("an entry without text");
  if (name != nullptr && !name->is_string()) throw_extra("a file name of another type");
  return {name == nullptr ? std::string(kUnnamedFile) : std::string(name->get_string()),
          std::string(text->get_string())};
}

void append(TokenIds& out, const TokenIds& tokens) {
  out.insert(out.end(), tokens.begin(), tokens.end());
}

void keep_last(TokenIds& tokens, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  tokens.erase(tokens.begin(), tokens.begin() + (size - std::clamp<std::int64_t>(count, 0, size)));
}

void keep_first(TokenIds& tokens, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  tokens.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, size)));
}

// The other files, and the open one's name.
TokenIds project_tokens(const InfillText& text, const Tokenizer& tokenizer, const Tokenizer::Infill& marks) {
  TokenIds out;
  if (marks.repository) {
    out.push_back(*marks.repository);
    append(out, tokenizer.encode(kProject, false, false));
  }
  for (const InfillText::File& file : text.extra) {
    if (marks.separator) {
      out.push_back(*marks.separator);
      append(out, tokenizer.encode(file.name + "\n", false, false));
    } else {
      append(out, tokenizer.encode(kSnippet, false, false));
    }
    append(out, tokenizer.encode(file.text, false, false));
  }
  if (marks.separator) {
    out.push_back(*marks.separator);
    append(out, tokenizer.encode(kOpenFile, false, false));
  }
  return out;
}

}  // namespace

void check_can_infill(const Tokenizer& tokenizer) {
  if (tokenizer.infill()) return;
  throw Error(ErrorKind::unsupported, "infill: the model's vocabulary lacks a prefix, suffix or middle token");
}

InfillText parse_infill(const boost::json::object& body) {
  const Fields fields(body);
  InfillText text;
  text.prefix = required_text(fields, "input_prefix");
  text.suffix = required_text(fields, "input_suffix");
  if (const auto* prompt = fields.find("prompt"); prompt != nullptr && prompt->is_string()) {
    text.prompt = prompt->get_string();
  }
  if (const auto* extra = fields.find("input_extra")) {
    if (!extra->is_array()) throw_extra(json_type_name(*extra));
    for (const auto& file : extra->get_array()) text.extra.push_back(parse_file(file));
  }
  return text;
}

TokenIds infill_prompt(const InfillText& text, const Tokenizer& tokenizer, const InfillLimits& limits,
                       bool suffix_first) {
  const Tokenizer::Infill marks = *tokenizer.infill();
  // Only the prompt may hold special tokens: files are read as they are.
  const TokenIds prompt = tokenizer.encode(text.prompt, false, true);
  TokenIds prefix = tokenizer.encode(text.prefix, false, false);
  TokenIds suffix = tokenizer.encode(text.suffix, false, false);
  TokenIds out = project_tokens(text, tokenizer, marks);

  constexpr std::int64_t kMarks = 2;
  keep_last(prefix, std::int64_t{3} * limits.batch / 4);
  keep_first(suffix, limits.batch / 4 - kMarks - static_cast<std::int64_t>(prompt.size()));
  keep_last(out, limits.context - limits.batch - 2 * std::int64_t{limits.n_predict});

  prefix.insert(prefix.begin(), marks.prefix);
  append(prefix, prompt);
  suffix.insert(suffix.begin(), marks.suffix);
  if (tokenizer.adds_bos() && tokenizer.bos()) out.push_back(*tokenizer.bos());
  append(out, suffix_first ? suffix : prefix);
  append(out, suffix_first ? prefix : suffix);
  out.push_back(marks.middle);
  return out;
}

}  // namespace bankml
