#include "text/pre_tokenizer.hpp"

#include <cstdint>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

constexpr StepFunction kDefault[] = {find_signs, find_gpt2, find_numbers, find_3_ascii_digits};
constexpr StepFunction kFalcon[] = {find_signs_or_backticks, find_gpt2, find_3_ascii_digits};
constexpr StepFunction kGpt2[] = {find_gpt2};
constexpr StepFunction kSmollm[] = {find_number, find_gpt2};
constexpr StepFunction kLlama3[] = {find_llama3};
constexpr StepFunction kQwen2[] = {find_qwen2};
constexpr StepFunction kQwen35[] = {find_qwen35};
constexpr StepFunction kTekken[] = {find_tekken};
constexpr StepFunction kGpt4o[] = {find_gpt4o};
constexpr StepFunction kSeedCoder[] = {find_seed_coder};
constexpr StepFunction kDeepseekLlm[] = {find_newline,         find_deepseek_cased, find_deepseek_punctuation,
                                         find_trailing_spaces, find_deepseek_han,   find_numbers};
constexpr StepFunction kDeepseekCoder[] = {find_newline, find_letters, find_punctuation, find_deepseek_han,
                                           find_number};
constexpr StepFunction kDeepseek3[] = {find_up_to_3_numbers, find_deepseek3_cjk, find_deepseek3};

struct Group {
  PreTokenizer rules;
  std::string_view names;  // separated by single spaces
};

constexpr Group kGroups[] = {
    // steps, clean_spaces, ignore_merges, adds_bos
    {{kDefault, true, false, false}, "default"},
    {{kGpt2, true, false, false},
     "gpt-2 phi-2 gigachat mellum modern-bert a.x-4.0 jina-es jina-de jina-v2-es jina-v2-de exaone4 mpt olmo jais"},
    {{kGpt2, false, false, false}, "trillion granite-docling"},
    {{kSmollm, false, false, false}, "smollm command-r"},
    {{kSmollm, true, false, false}, "starcoder refact codeshell exaone minerva-7b mellum2"},
    {{kLlama3, true, true, true}, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"},
    {{kLlama3, true, false, false}, "dbrx smaug-bpe glm4 chatglm-bpe"},
    {{kQwen2, false, false, false}, "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open"},
    {{kQwen2, true, false, false}, "megrez stablelm2"},
    // Their expression is spelled differently and matches the same.
    {{kQwen2, false, false, false}, "bailingmoe llada-moe"},
    {{kQwen35, false, false, false}, "qwen35"},
    {{kTekken, false, true, true}, "tekken"},
    {{kGpt4o, false, false, false}, "gpt-4o llama4 kanana2 talkie minimax-m2"},
    {{kDeepseekLlm, false, false, false}, "deepseek-llm"},
    {{kDeepseekCoder, false, false, false}, "deepseek-coder"},
    {{kDeepseek3, false, false, false}, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"},
    {{kFalcon, true, false, false}, "falcon"},
    {{kSeedCoder, false, false, false}, "seed-coder"},
};

// Calls visit(name) until it returns true; says whether it did.
template <class Visit>
bool any_name(std::string_view names, Visit&& visit) {
  while (!names.empty()) {
    const std::size_t length = std::min(names.find(' '), names.size());
    if (visit(names.substr(0, length))) return true;
    names.remove_prefix(std::min(length + 1, names.size()));
  }
  return false;
}

using Cuts = std::vector<std::uint32_t>;  // ends of the pieces, in code points

// The matches become pieces, and so does what lies between them.
Cuts apply_step(StepFunction step, PieceView piece, const Cuts& ends) {
  Cuts out;
  out.reserve(ends.size());
  const auto cut = [&](std::size_t end) { out.push_back(static_cast<std::uint32_t>(end)); };
  piece.begin = 0;
  for (const std::uint32_t end : ends) {
    piece.end = end;
    for (std::size_t pos = piece.begin; pos < piece.end;) {
      const StepMatch match = step(piece, pos);
      if (match.begin > pos) cut(match.begin);
      if (match.end > match.begin) cut(match.end);
      pos = match.end;
    }
    piece.begin = end;
  }
  return out;
}

}  // namespace

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<char32_t> codes;
  std::vector<CharClass> classes;
  std::vector<std::uint32_t> offsets;
  codes.reserve(text.size());
  classes.reserve(text.size());
  offsets.reserve(text.size() + 1);
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    codes.push_back(c.code);
    classes.push_back(char_class(c.code));
    offsets.push_back(static_cast<std::uint32_t>(pos));
    pos += c.length;
  }
  offsets.push_back(static_cast<std::uint32_t>(text.size()));

  std::vector<std::string_view> pieces;
  if (codes.empty()) return pieces;
  Cuts ends{static_cast<std::uint32_t>(codes.size())};
  for (const StepFunction step : steps) ends = apply_step(step, {codes.data(), classes.data(), 0, 0}, ends);
  pieces.reserve(ends.size());
  std::uint32_t begin = 0;
  for (const std::uint32_t end : ends) {
    pieces.push_back(text.substr(offsets[begin], offsets[end] - offsets[begin]));
    begin = end;
  }
  return pieces;
}

const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept {
  for (const Group& group : kGroups) {
    if (any_name(group.names, [&](std::string_view candidate) { return candidate == name; })) return &group.rules;
  }
  return nullptr;
}

std::string pre_tokenizer_names() {
  std::string out;
  for (const Group& group : kGroups) {
    any_name(group.names, [&](std::string_view name) {
      if (!out.empty()) out += ", ";
      out += name;
      return false;
    });
  }
  return out;
}

}  // namespace bankml
