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
//          Models with a window: the layers above are those without one. After their row sizes: u32 number of the
//          others, their row sizes, u32 number of cells, i32 position of each; and their rows behind the rows of the
//          tokens.
//
// All numbers are little-endian. Layout in memory doesn't show: cells are in the order of the tokens; those of a window
// in the order that they have in memory, which their sum depends on.
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
  std::vector<LayerRows> layers;         // those that hold every token
  std::vector<LayerRows> window_layers;  // those that hold the last `window` tokens
  int window = 0;

  std::size_t cell_bytes() const noexcept;         // of one token, all `layers`
  std::size_t window_cell_bytes() const noexcept;  // all `window_layers`
};

// Throws Error(invalid_request), saying why, for a name that is no plain file name on every system
// (docs/prompt-cache.md, section 6).
void check_slot_file_name(std::string_view name);

// Writes the file under a temporary name beside `path`, syncs it and renames it: the old file or the new one is there,
// never a torn one. `fill_cell(i, out)` gives the rows of token i (format.cell_bytes() bytes), i ascending, and then
// for each i from tokens.size() on those that the window layers hold of the token window_tokens[i - tokens.size()].
// Returns the file's size. Throws Error(io) if it can't be written; then no partial or temporary file is left behind.
// Exceptions of `fill_cell` pass through.
std::uint64_t write_slot_file(const std::filesystem::path& path, std::span<const TokenId> tokens,
                              const SlotFileFormat& format,
                              const std::function<void(std::size_t, std::span<std::byte>)>& fill_cell,
                              std::span<const std::int32_t> window_tokens = {});

// A file that was checked whole, checksum included, when it was opened.
class SlotFile {
 public:
  // Throws Error(invalid_request), with what was expected and what came, for a file that can't be read, is damaged,
  // fits another model or cache type, has more than `max_tokens` tokens or one outside the vocabulary of `vocab`
  // tokens, or others than the last ones for the window layers.
  static SlotFile open(const std::filesystem::path& path, const SlotFileFormat& format, std::size_t max_tokens,
                       TokenId vocab);
  ~SlotFile();
  SlotFile(SlotFile&&) noexcept;
  SlotFile& operator=(SlotFile&&) noexcept;

  const std::vector<TokenId>& tokens() const noexcept;
  const std::vector<std::int32_t>& window_tokens() const noexcept;
  std::uint64_t bytes() const noexcept;  // size of the file
  // Calls take_cell(i, rows) for each i in the order of write_slot_file(). Throws Error(io) if the file can't be read
  // any more.
  void read_cells(const std::function<void(std::size_t, std::span<const std::byte>)>& take_cell) const;

 private:
  struct Impl;
  explicit SlotFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
