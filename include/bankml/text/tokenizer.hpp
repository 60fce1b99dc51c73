#pragma once
// Text to token ids and back, for byte-level BPE ("gpt2") and SentencePiece-style ("llama") vocabularies.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bankml {

using TokenId = std::int32_t;

enum class TokenType : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// What a model file says about its tokens: the keys tokenizer.ggml.*, typed. Everything that is absent stays empty.
struct VocabularySource {
  std::string model;                // tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;                  // tokenizer.ggml.pre
  std::string model_name;           // general.name: decides some attributes of special tokens
  std::vector<std::string> tokens;  // index = id; bytes, not necessarily UTF-8
  std::vector<float> scores;        // as long as tokens, or empty
  std::vector<std::int32_t> types;  // TokenType values, as long as tokens, or empty (all normal)
  std::vector<std::string> merges;  // BPE: "left right", rank = index
  std::vector<TokenId> suppress_tokens;
  std::optional<std::uint32_t> bos, eos, eot, eom;
  std::optional<std::uint32_t> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

// Immutable after construction: any thread may use it without locking.
class Tokenizer {
 public:
  // Throws Error(unsupported) for a tokenizer model or pre-tokenizer that isn't built in (naming it and what is), and
  // Error(invalid_request) for inconsistent tables.
  explicit Tokenizer(VocabularySource source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // add_special: BOS/EOS as the vocabulary wants them. parse_special: text of control tokens becomes these tokens.
  // Invalid UTF-8 is accepted. Throws Error(invalid_request) if a byte can't be expressed in the vocabulary.
  std::vector<TokenId> encode(std::string_view text, bool add_special, bool parse_special) const;

  // Bytes of one token: may be part of a UTF-8 character. Control and unknown tokens are empty unless `special`.
  // `id` must be valid.
  std::string_view piece(TokenId id, bool special) const;
  // Concatenated pieces; nothing trimmed.
  std::string decode(std::span<const TokenId> ids, bool special) const;
  // The peer's full detokenisation (space prefix removed, clean_spaces applied): the `prompt` echo of /completion.
  std::string decode_clean(std::span<const TokenId> ids, bool special) const;

  std::int32_t size() const noexcept;
  bool valid(TokenId id) const noexcept { return id >= 0 && id < size(); }
  bool is_eog(TokenId id) const;                // end of generation
  std::span<const TokenId> eog_tokens() const;  // ascending
  bool is_control(TokenId id) const;
  std::span<const TokenId> suppressed() const;  // never to be sampled
  std::optional<TokenId> bos() const, eos() const, eot() const, newline() const;
  struct Infill {  // present when prefix, suffix and middle tokens exist
    TokenId prefix, suffix, middle;
    std::optional<TokenId> repository, separator;
  };
  std::optional<Infill> infill() const;
  bool adds_bos() const noexcept;
  bool adds_eos() const noexcept;
  bool is_spm() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace bankml
