#pragma once
// Files that hold the state of a slot: tokens and their KV rows. The head is words that tools may edit; the rows have a
// checksum.
//
//   head   u32 magic, version, number of payload words; payload: -1, 1, token count n, n tokens, 0 (media keys).
//          A payload that doesn't begin with -1 is a plain list of tokens, as older tools write it.
//   state  u32 magic, version, cells, type of K, type of V, layers, length of the model's name; the name, zeros up to a
//   whole
//          word; for each layer u32 bytes of a K row, of a V row; the rows, cell by cell: for each layer K, V; u64
//          checksum of the state up to here.
//
// All numbers are little-endian. Layout in memory doesn't show: cells are in the order of the tokens.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/base/numeric.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

// What a state fits to.
struct SlotFileFormat {
  struct LayerRows {
    std::uint32_t k, v;  // bytes of one token's rows
    bool operator==(const LayerRows&) const = default;
  };
  std::string model;  // names the weights
  DType type_k = DType::f16, type_v = DType::f16;
  std::vector<LayerRows> layers;

  std::size_t cell_bytes() const noexcept;  // of one token, all layers
};

// Throws Error(invalid_request), saying why, for a name that is no plain file name on every system
// (docs/prompt-cache.md, section 6).
void check_slot_file_name(std::string_view name);

// Writes the file under a temporary name beside `path`, syncs it and renames it: the old file or the new one is there,
// never a torn one. `fill_cell(i, out)` gives the rows of token i (format.cell_bytes() bytes), i ascending. Returns the
// file's size. Throws Error(io) if it can't be written; then no partial or temporary file is left behind. Exceptions of `fill_cell` pass
// through.
std::uint64_t write_slot_file(const std::filesystem::path& path, std::span<const TokenId> tokens,
                              const SlotFileFormat& format,
                              const std::function<void(std::size_t, std::span<std::byte>)>& fill_cell);

// A file that was checked whole, checksum included, when it was opened.
class SlotFile {
 public:
  // Throws Error(invalid_request), with what was expected and what came, for a file that can't be read, is damaged,
  // fits another model or cache type, has more than `max_tokens` tokens or one outside the vocabulary of `vocab`
  // tokens.
  static SlotFile open(const std::filesystem::path& path, const SlotFileFormat& format, std::size_t max_tokens,
                       TokenId vocab);
  ~SlotFile();
  SlotFile(SlotFile&&) noexcept;
  SlotFile& operator=(SlotFile&&) noexcept;

  const std::vector<TokenId>& tokens() const noexcept;
  std::uint64_t bytes() const noexcept;  // size of the file
  // Calls take_cell(i, rows) for each token in order. Throws Error(io) if the file can't be read any more.
  void read_cells(const std::function<void(std::size_t, std::span<const std::byte>)>& take_cell) const;

 private:
  struct Impl;
  explicit SlotFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
