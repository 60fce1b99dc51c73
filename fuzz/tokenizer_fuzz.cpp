// Any bytes through both kinds of tokenizer. The first byte chooses the pre-tokenizer and what is parsed.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/base/utf8.hpp"
#include "bankml/text/tokenizer.hpp"
#include "text/byte_alphabet.hpp"

namespace {

using namespace bankml;

void add(VocabularySource& source, std::string text, TokenType type = TokenType::normal) {
  source.tokens.push_back(std::move(text));
  source.types.push_back(static_cast<std::int32_t>(type));
  source.scores.push_back(static_cast<float>(source.tokens.size() % 7));
}

void add_special(VocabularySource& source) {
  add(source, "<s>", TokenType::control);
  add(source, "<unk>", TokenType::unknown);
  for (const char* text : {"\n", "\n\n", "  ", "<b>", "<b><", "><"}) add(source, text, TokenType::user_defined);
}

Tokenizer make_bpe(const char* pre) {
  VocabularySource source;
  source.model = "gpt2";
  source.pre = pre;
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {static_cast<char>(byte)};
    add(source, alphabet_from_bytes({text, 1}));
  }
  add_special(source);
  for (const auto& [left, right] :
       {std::pair("a", "b"), {"b", "a"}, {"ab", "ab"}, {"\u0120", "a"}, {"\u00ef", "\u00bf"}}) {
    source.merges.push_back(std::string(left) + " " + right);
    add(source, std::string(left) + right);
  }
  return Tokenizer(std::move(source));
}

Tokenizer make_spm() {
  VocabularySource source;
  source.model = "llama";
  source.add_space_prefix = false;
  source.model_name = "phi-3";  // its special tokens take the white space that follows
  for (int byte = 0; byte < 256; ++byte) add(source, byte_token(static_cast<std::uint8_t>(byte)), TokenType::byte);
  add_special(source);
  for (const char* text : {"a", "b", "ab", "ba", "\u2581", "\u2581a", "\u2581\u2581", "\u00e9", "\xc3", "a\xc3"})
    add(source, text);
  return Tokenizer(std::move(source));
}

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Tokenizer> bpe = [] {
    std::vector<Tokenizer> all;
    for (const char* pre : {"default", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
                            "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "seed-coder"}) {
      all.push_back(make_bpe(pre));
    }
    return all;
  }();
  static const Tokenizer spm = make_spm();
  if (size == 0) return 0;
  const bool parse_special = data[0] & 0x80;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Tokenizer& tokenizer = bpe[(data[0] & 0x7F) % bpe.size()];

  const std::vector<TokenId> ids = tokenizer.encode(text, true, parse_special);
  for (const TokenId id : ids) check(tokenizer.valid(id));
  tokenizer.decode_clean(ids, true);
  if (is_valid_utf8(text)) check(tokenizer.decode(tokenizer.encode(text, false, parse_special), true) == text);
  for (const TokenId id : spm.encode(text, true, parse_special)) check(spm.valid(id));
  check(is_valid_utf8(replace_invalid_utf8(text)));
  check(complete_utf8_prefix(text) <= text.size());
  return 0;
}
