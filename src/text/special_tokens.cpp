// Which tokens have a role: docs/tokenizers.md, section 6.
#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "bankml/base/log.hpp"
#include "base/printable.hpp"
#include "text/vocabulary.hpp"

namespace bankml {
namespace {

using Texts = std::span<const std::string_view>;

constexpr std::string_view kEotTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
constexpr std::string_view kEomTexts[] = {"<|eom_id|>"};
constexpr std::string_view kFimPreTexts[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
                                             "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSufTexts[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
                                             "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMidTexts[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
                                             "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSepTexts[] = {"<|file_sep|>"};
constexpr std::string_view kEogTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};
// Written as text by gpt-oss models, and read as such by the parsers of their answers.
constexpr std::string_view kChannelTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// The token counts as control from here on, whatever the file says of it.
void make_control(Vocabulary& vocabulary, TokenId id) {
  if (vocabulary.has(id, kControl)) return;
  log_warning("vocabulary: token {} {} is taken as a control token", id, printable(vocabulary.text(id)));
  vocabulary.add(id, kControl);
}

std::optional<TokenId> checked(const Vocabulary& vocabulary, std::optional<std::uint32_t> id, std::string_view role,
                               std::optional<TokenId> otherwise = std::nullopt) {
  if (otherwise && *otherwise >= vocabulary.size()) otherwise.reset();
  if (!id) return otherwise;
  if (*id < static_cast<std::uint32_t>(vocabulary.size())) return static_cast<TokenId>(*id);
  log_warning("vocabulary: the {} token id {} is not below {}, it is ignored", role, *id, vocabulary.size());
  return otherwise;
}

void find_by_text(std::optional<TokenId>& role, Texts texts, Vocabulary& vocabulary) {
  if (role) return;
  for (const std::string_view text : texts) {
    role = vocabulary.find(text);
    if (role) return make_control(vocabulary, *role);
  }
}

SpecialTokens read_ids(const VocabularySource& source, const Vocabulary& vocabulary) {
  const bool is_spm = source.model == "llama";
  SpecialTokens out;
  // Defaults of section 1.2.
  out.bos = checked(vocabulary, source.bos, "bos", is_spm ? 1 : 11);
  out.eos = checked(vocabulary, source.eos, "eos", is_spm ? 2 : 11);
  out.eot = checked(vocabulary, source.eot, "eot");
  out.eom = checked(vocabulary, source.eom, "eom");
  out.fim_pre = checked(vocabulary, source.fim_pre, "fim_pre");
  out.fim_suf = checked(vocabulary, source.fim_suf, "fim_suf");
  out.fim_mid = checked(vocabulary, source.fim_mid, "fim_mid");
  out.fim_pad = checked(vocabulary, source.fim_pad, "fim_pad");
  out.fim_rep = checked(vocabulary, source.fim_rep, "fim_rep");
  out.fim_sep = checked(vocabulary, source.fim_sep, "fim_sep");
  return out;
}

std::set<TokenId> collect_eog(const SpecialTokens& tokens, Vocabulary& vocabulary) {
  std::set<TokenId> eog;
  for (const std::string_view text : kEogTexts) {
    if (const auto id = vocabulary.find(text)) {
      make_control(vocabulary, *id);
      eog.insert(*id);
    }
  }
  for (const auto& role : {tokens.fim_pad, tokens.fim_rep, tokens.fim_sep, tokens.eos, tokens.eot, tokens.eom}) {
    if (role) eog.insert(*role);
  }
  const auto both = [&](std::string_view a, std::string_view b) { return vocabulary.find(a) && vocabulary.find(b); };
  if (both("<|return|>", "<|call|>") || both("<|calls|>", "<|flush|>")) {
    // There <|end|> ends a message, not the answer, and is written as text.
    if (const auto end = vocabulary.find("<|end|>")) {
      eog.erase(*end);
      vocabulary.set(*end, kUserDefined);
    }
  }
  if (vocabulary.find("<|tool_response>")) {
    if (const auto id = vocabulary.find("</s>")) {
      eog.erase(*id);
      vocabulary.set(*id, kNormal);
    }
  }
  return eog;
}

// Attributes that no key of the file tells: section 2, step 5.
void apply_model_rules(const std::string& model_name, Vocabulary& vocabulary) {
  std::string name = model_name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") == name.npos && name.find("phi3") == name.npos) return;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.has(id, kControl | kUserDefined | kUnknown)) vocabulary.add(id, kStripRight);
  }
  if (const auto id = vocabulary.find("</s>")) vocabulary.add(*id, kStripRight);
  for (const std::string_view text : {"<unk>", "<s>", "<|endoftext|>"}) {
    if (const auto id = vocabulary.find(text)) vocabulary.remove(*id, kStripRight);
  }
}

}  // namespace

SpecialTokens derive_special_tokens(const VocabularySource& source, Vocabulary& vocabulary) {
  SpecialTokens out = read_ids(source, vocabulary);
  find_by_text(out.eot, kEotTexts, vocabulary);
  find_by_text(out.eom, kEomTexts, vocabulary);
  find_by_text(out.fim_pre, kFimPreTexts, vocabulary);
  find_by_text(out.fim_suf, kFimSufTexts, vocabulary);
  find_by_text(out.fim_mid, kFimMidTexts, vocabulary);
  find_by_text(out.fim_pad, kFimPadTexts, vocabulary);
  find_by_text(out.fim_rep, kFimRepTexts, vocabulary);
  find_by_text(out.fim_sep, kFimSepTexts, vocabulary);
  const std::set<TokenId> eog = collect_eog(out, vocabulary);
  out.eog.assign(eog.begin(), eog.end());
  for (const std::string_view text : kChannelTexts) {
    if (const auto id = vocabulary.find(text)) vocabulary.set(*id, kUserDefined);
  }
  apply_model_rules(source.model_name, vocabulary);
  return out;
}

}  // namespace bankml
