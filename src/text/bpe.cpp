#include "text/bpe.hpp"

#include <fmt/format.h>

#include "bankml/base/error.hpp"
#include "bankml/base/utf8.hpp"
#include "base/printable.hpp"
#include "text/byte_alphabet.hpp"

namespace bankml {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Every byte of a bad sequence becomes a character of its own.
std::string replace_invalid_bytes(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    for (int i = 0; i < (c.valid ? 1 : c.length); ++i) append_utf8(out, c.code);
    pos += c.length;
  }
  return out;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const PreTokenizer& pre_tokenizer, const std::vector<std::string>& merges)
    : vocabulary_(vocabulary), pre_tokenizer_(pre_tokenizer) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {static_cast<char>(byte)};
    byte_symbols_[static_cast<std::size_t>(byte)] = intern(alphabet_from_bytes({text, 1}));
  }
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 == merge.size()) {
      throw Error(
          ErrorKind::invalid_request,
          fmt::format("vocabulary: merge {} is {}, expected two texts and a space between", rank, printable(merge)));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const SymbolId merged = intern(std::string(left).append(right));
    merges_.try_emplace(pair_key(intern(left), intern(right)), Merge{static_cast<std::uint32_t>(rank), merged});
  }
}

Bpe::SymbolId Bpe::intern(std::string_view text) {
  if (const auto token = vocabulary_.find(text)) return *token;
  const auto next = vocabulary_.size() + static_cast<SymbolId>(other_symbols_.size());
  return other_symbols_.try_emplace(std::string(text), next).first->second;
}

void Bpe::encode(std::string_view text, EncodeWork& work) const {
  if (!is_valid_utf8(text)) text = work.respelled.emplace_front(replace_invalid_bytes(text));
  for (const std::string_view piece : pre_tokenizer_.split(text)) {
    work.runs.append(piece, work.out, [&] { encode_piece(piece, work.merger, work.out); });
  }
}

void Bpe::encode_piece(std::string_view piece, PairMerger& merger, std::vector<TokenId>& out) const {
  if (pre_tokenizer_.ignore_merges) {
    if (const auto token = vocabulary_.find(alphabet_from_bytes(piece))) return out.push_back(*token);
  }
  merger.clear();
  for (std::uint32_t i = 0; i < piece.size(); ++i) {
    merger.add(byte_symbols_[static_cast<std::uint8_t>(piece[i])], i, i + 1);
  }
  merger.run([&](const PairMerger::Symbol& left, const PairMerger::Symbol& right) -> std::optional<PairMerger::Merge> {
    const auto merge = merges_.find(pair_key(left.id, right.id));
    if (merge == merges_.end()) return std::nullopt;
    return PairMerger::Merge{merge->second.rank, merge->second.merged};
  });
  merger.for_each([&](const PairMerger::Symbol& symbol) {
    append_symbol(symbol.id, piece.substr(symbol.begin, symbol.end - symbol.begin), out);
  });
}

void Bpe::append_symbol(SymbolId id, std::string_view bytes, std::vector<TokenId>& out) const {
  if (id < vocabulary_.size()) return out.push_back(id);
  // Not a token: by the bytes of its spelling, and those that are no tokens either are dropped, as the peer does.
  for (const char& byte : alphabet_from_bytes(bytes)) {
    if (const auto token = vocabulary_.find({&byte, 1})) out.push_back(*token);
  }
}

}  // namespace bankml
