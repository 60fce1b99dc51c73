#include "bankml/text/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "base/printable.hpp"
#include "text/bpe.hpp"
#include "text/clean_spaces.hpp"
#include "text/encode_work.hpp"
#include "text/special_split.hpp"
#include "text/spm.hpp"
#include "text/vocabulary.hpp"

namespace bankml {
namespace {

// What a vocabulary does unless its file says otherwise: docs/tokenizers.md, sections 1.2 and 3.2.
struct Defaults {
  const PreTokenizer* pre_tokenizer = nullptr;  // null: SPM
  bool add_bos = false, add_space_prefix = false, clean_spaces = false;
};

Defaults choose_defaults(const VocabularySource& source) {
  if (source.model == "llama") return {nullptr, true, true, false};
  if (source.model != "gpt2") {
    throw Error(ErrorKind::unsupported,
                fmt::format("tokenizer model {} is not built in (gpt2, llama are)", printable(source.model)));
  }
  if (source.pre.empty()) log_warning("the model names no pre-tokenizer: \"default\" is taken, expect worse answers");
  const PreTokenizer* pre = find_pre_tokenizer(source.pre.empty() ? "default" : source.pre);
  if (pre == nullptr) {
    throw Error(ErrorKind::unsupported,
                fmt::format("pre-tokenizer {} is not built in ({} are)", printable(source.pre), pre_tokenizer_names()));
  }
  return {pre, pre->adds_bos, false, pre->clean_spaces};
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(VocabularySource source)
      : defaults(choose_defaults(source)),
        vocabulary(std::move(source.tokens), source.types),
        special(derive_special_tokens(source, vocabulary)),
        pieces(vocabulary, is_spm()),
        splitter(vocabulary),
        add_bos(source.add_bos.value_or(defaults.add_bos) && special.bos),
        add_eos(source.add_eos.value_or(false) && special.eos),
        add_space_prefix(source.add_space_prefix.value_or(defaults.add_space_prefix)),
        model(make_model(source)),
        suppressed(std::move(source.suppress_tokens)) {
    newline = find_newline();
    const auto unknown = std::erase_if(suppressed, [&](TokenId id) { return id < 0 || id >= vocabulary.size(); });
    if (unknown > 0) log_warning("vocabulary: suppressed ids that are no tokens, ignored: {}", unknown);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool is_spm() const { return defaults.pre_tokenizer == nullptr; }

  std::variant<Bpe, Spm> make_model(const VocabularySource& source) const {
    if (is_spm()) return Spm(vocabulary, source.scores, add_space_prefix);
    return Bpe(vocabulary, *defaults.pre_tokenizer, source.merges);
  }

  void encode_raw(std::string_view text, EncodeWork& work) const {
    std::visit([&](const auto& m) { m.encode(text, work); }, model);
  }

  std::optional<TokenId> find_newline() const {
    if (is_spm()) {
      const auto byte = vocabulary.find("<0x0A>");
      return byte ? byte : vocabulary.find("\n");
    }
    EncodeWork work(1);
    encode_raw("\n", work);
    return work.out.empty() ? std::nullopt : std::optional(work.out.front());
  }

  std::string_view piece(TokenId id, bool show_special) const {
    if (!show_special && vocabulary.has(id, kControl | kUnknown)) return {};
    return pieces[id];
  }

  // In the order of construction: each needs those above it.
  Defaults defaults;
  Vocabulary vocabulary;
  SpecialTokens special;
  PieceTable pieces;
  SpecialSplitter splitter;
  bool add_bos, add_eos, add_space_prefix;
  std::variant<Bpe, Spm> model;
  std::vector<TokenId> suppressed;
  std::optional<TokenId> newline;
};

Tokenizer::Tokenizer(VocabularySource source) : impl_(std::make_unique<const Impl>(std::move(source))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  // Offsets into a text have 32 bits, and a space may become 3 bytes.
  constexpr std::size_t kLongest = std::numeric_limits<std::int32_t>::max() / 3;
  if (text.size() > kLongest) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("a text of {} bytes is too long to tokenize, the limit is {}", text.size(), kLongest));
  }
  EncodeWork work(text.size());
  std::vector<TokenId>& out = work.out;
  if (add_special && impl_->add_bos) out.push_back(*impl_->special.bos);
  for (const Fragment& fragment : impl_->splitter.split(text, parse_special)) {
    if (fragment.token) {
      out.push_back(*fragment.token);
    } else {
      impl_->encode_raw(fragment.text, work);
    }
  }
  if (add_special && impl_->add_eos) out.push_back(*impl_->special.eos);
  return std::move(work.out);
}

std::string_view Tokenizer::piece(TokenId id, bool special) const {
  return impl_->piece(id, special);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  for (const TokenId id : ids) out += piece(id, special);
  return out;
}

std::string Tokenizer::decode_clean(std::span<const TokenId> ids, bool special) const {
  std::string out = decode(ids, special);
  if (impl_->add_space_prefix && !ids.empty() && piece(ids.front(), special).starts_with(' ')) out.erase(0, 1);
  if (impl_->defaults.clean_spaces) clean_spaces(out);
  return out;
}

std::int32_t Tokenizer::size() const noexcept {
  return impl_->vocabulary.size();
}
bool Tokenizer::is_eog(TokenId id) const {
  return std::binary_search(impl_->special.eog.begin(), impl_->special.eog.end(), id);
}
std::span<const TokenId> Tokenizer::eog_tokens() const {
  return impl_->special.eog;
}
bool Tokenizer::is_control(TokenId id) const {
  return impl_->vocabulary.has(id, kControl);
}
std::span<const TokenId> Tokenizer::suppressed() const {
  return impl_->suppressed;
}
std::optional<TokenId> Tokenizer::bos() const {
  return impl_->special.bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return impl_->special.eos;
}
std::optional<TokenId> Tokenizer::eot() const {
  return impl_->special.eot;
}
std::optional<TokenId> Tokenizer::newline() const {
  return impl_->newline;
}

std::optional<Tokenizer::Infill> Tokenizer::infill() const {
  const SpecialTokens& special = impl_->special;
  if (!special.fim_pre || !special.fim_suf || !special.fim_mid) return std::nullopt;
  return Infill{*special.fim_pre, *special.fim_suf, *special.fim_mid, special.fim_rep, special.fim_sep};
}

bool Tokenizer::adds_bos() const noexcept {
  return impl_->add_bos;
}
bool Tokenizer::adds_eos() const noexcept {
  return impl_->add_eos;
}
bool Tokenizer::is_spm() const noexcept {
  return impl_->is_spm();
}

}  // namespace bankml
