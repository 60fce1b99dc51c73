// Slots to files and back (docs/prompt-cache.md, section 6). A file has the rows token by token; blocks have them head
// by head.
#include <array>
#include <cstring>
#include <filesystem>

#include "bankml/base/log.hpp"
#include "bankml/engine/slot_file.hpp"
#include "engine/engine_impl.hpp"

namespace bankml {
namespace {

SlotFileFormat slot_file_format(const Model& model, const KvPool& pool) {
  SlotFileFormat format;
  format.model = model.fingerprint();
  format.type_k = pool.type_k();
  format.type_v = pool.type_v();
  format.window = pool.window();
  for (int layer = 0; layer < model.config().layers; ++layer) {
    const KvLayout& kv = pool.layout(layer);
    auto& layers = pool.part_of(layer) == KvPart::full ? format.layers : format.window_layers;
    layers.push_back({static_cast<std::uint32_t>(kv.kv_heads * row_bytes(kv.type_k, kv.head_dim_k)),
                      static_cast<std::uint32_t>(kv.kv_heads * row_bytes(kv.type_v, kv.head_dim_v))});
  }
  return format;
}

// Calls row(bytes in the block, bytes in the file's cell, length) for every row of one cell, in the file's order.
template <class Row>
void for_each_row(const KvPool& pool, int layers, KvPart wanted, std::int64_t cell, Row&& row) {
  std::size_t at = 0;
  for (int layer = 0; layer < layers; ++layer) {
    if (pool.part_of(layer) != wanted) continue;
    const KvLayout& kv = pool.layout(layer);
    const auto part = [&](std::int64_t offset, DType type, int head_dim) {
      const std::size_t bytes = row_bytes(type, head_dim);
      for (int head = 0; head < kv.kv_heads; ++head, at += bytes) {
        row(static_cast<std::size_t>(offset) + static_cast<std::size_t>(head * kBlockCells + cell) * bytes, at, bytes);
      }
    };
    part(kv.k_offset, kv.type_k, kv.head_dim_k);
    part(kv.v_offset, kv.type_v, kv.head_dim_v);
  }
}

// One block of one part of a sequence at a time, where the host can reach it.
class BlockWindow {
 public:
  BlockWindow(Device& device, const KvPool& pool, const KvCells& cells, KvPart part, Stream& stream)
      : bytes_(pool.block_bytes(part)), cells_(cells), stream_(stream), direct_(device.shares_host_memory()) {
    if (!direct_) staging_ = device.allocate_host(bytes_);
  }

  const std::byte* read(std::size_t block) {
    if (direct_) return cells_.blocks()[block].data();
    if (block != current_) {
      stream_.copy_to_host(staging_.data(), cells_.blocks()[block].data(), bytes_);
      stream_.synchronize();
      current_ = block;
    }
    return staging_.data();
  }
  // Blocks are written in ascending order, each whole; the last one becomes visible with flush().
  std::byte* write(std::size_t block) {
    if (direct_) return cells_.blocks()[block].data();
    if (block != current_) {
      flush();
      current_ = block;
    }
    return staging_.data();
  }
  void flush() {
    if (direct_ || current_ == kNone) return;
    stream_.copy_to_device(cells_.blocks()[current_].data(), staging_.data(), bytes_);
    stream_.synchronize();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t bytes_;
  const KvCells& cells_;
  Stream& stream_;
  bool direct_;
  Buffer staging_;
  std::size_t current_ = kNone;
};

// Both parts of a sequence, by the index that a cell has in the file.
class SequenceRows {
 public:
  SequenceRows(const Model& model, const KvPool& pool, const KvSequence& sequence, Stream& stream)
      : model_(model),
        pool_(pool),
        sequence_(sequence),
        windows_{BlockWindow(model.device(), pool, sequence.part(KvPart::full), KvPart::full, stream),
                 BlockWindow(model.device(), pool, sequence.part(KvPart::window), KvPart::window, stream)} {
    const KvCells& window = sequence.part(KvPart::window);
    for (std::int64_t cell = 0; cell < window.cells(); ++cell) {
      if (window.position(cell) < 0) continue;
      window_cells_.push_back(cell);
      window_tokens_.push_back(window.position(cell));
    }
  }

  const std::vector<std::int32_t>& window_tokens() const noexcept { return window_tokens_; }

  void read(std::size_t index, std::span<std::byte> out) {
    const auto [part, cell] = find(index);
    const std::byte* block = window(part).read(static_cast<std::size_t>(cell / kBlockCells));
    for_each_row(pool_, model_.config().layers, part, cell % kBlockCells,
                 [&](std::size_t in_block, std::size_t at, std::size_t bytes) {
                   std::memcpy(out.data() + at, block + in_block, bytes);
                 });
  }
  void write(std::size_t index, std::span<const std::byte> rows) {
    const auto [part, cell] = find(index);
    std::byte* block = window(part).write(static_cast<std::size_t>(cell / kBlockCells));
    for_each_row(pool_, model_.config().layers, part, cell % kBlockCells,
                 [&](std::size_t in_block, std::size_t at, std::size_t bytes) {
                   std::memcpy(block + in_block, rows.data() + at, bytes);
                 });
  }
  void flush() {
    for (BlockWindow& window : windows_) window.flush();
  }

 private:
  BlockWindow& window(KvPart part) noexcept { return windows_[static_cast<std::size_t>(part)]; }
  std::pair<KvPart, std::int64_t> find(std::size_t index) const noexcept {
    const std::size_t tokens = static_cast<std::size_t>(sequence_.length());
    if (index < tokens) return {KvPart::full, sequence_.part(KvPart::full).cell_of(static_cast<std::int64_t>(index))};
    return {KvPart::window, window_cells_[index - tokens]};
  }

  const Model& model_;
  const KvPool& pool_;
  const KvSequence& sequence_;
  std::array<BlockWindow, kKvParts.size()> windows_;
  std::vector<std::int64_t> window_cells_;
  std::vector<std::int32_t> window_tokens_;
};

}  // namespace

std::filesystem::path Engine::Impl::slot_file(const Job& job) const {
  if (options.slot_save_path.empty()) {
    throw Error(ErrorKind::unsupported, "slot files are off: start the server with --slot-save-path");
  }
  check_slot_file_name(job.file_name);
  return options.slot_save_path / job.file_name;
}

SlotActionResult Engine::Impl::save_slot(Slot& slot, const std::filesystem::path& path) {
  const KvSequence saved = slot.kv.saved(*pool);
  SequenceRows rows_of(model, *pool, saved, transformer->stream());
  SlotActionResult result;
  result.tokens = static_cast<int>(slot.tokens.size());
  result.bytes = write_slot_file(
      path, slot.tokens, slot_file_format(model, *pool),
      [&](std::size_t i, std::span<std::byte> out) { rows_of.read(i, out); }, rows_of.window_tokens());
  return result;
}

// The slot is touched only when the whole file has been read.
SlotActionResult Engine::Impl::restore_slot(Slot& slot, const std::filesystem::path& path) {
  const SlotFile file =
      SlotFile::open(path, slot_file_format(model, *pool), static_cast<std::size_t>(slot_context), tokenizer.size());
  if (one_stream && slots.size() > 1 && std::ssize(file.tokens()) > free_cells() + slot.kv.length()) {
    throw Error(
        ErrorKind::invalid_request,
        fmt::format("the {} tokens of the file have no room beside those of the other slots", file.tokens().size()));
  }
  std::vector<TokenId> tokens = file.tokens();
  KvSequence restored;
  restored.create(std::ssize(file.tokens()), file.window_tokens(), *pool);
  SequenceRows rows_of(model, *pool, restored, transformer->stream());
  file.read_cells([&](std::size_t i, std::span<const std::byte> row) { rows_of.write(i, row); });
  rows_of.flush();
  slot.kv.restore(restored, *pool, transformer->stream());
  slot.tokens = std::move(tokens);
  slot.checkpoints.clear();
  return {static_cast<int>(slot.tokens.size()), file.bytes(), 0.0};
}

void Engine::Impl::start_action(Slot& slot, Job& job) {
  const auto start = Clock::now();
  SlotActionResult result;
  try {
    switch (job.kind) {
      case Job::Kind::save:
        result = save_slot(slot, slot_file(job));
        break;
      case Job::Kind::restore:
        result = restore_slot(slot, slot_file(job));
        break;
      case Job::Kind::erase:
        result.tokens = static_cast<int>(slot.tokens.size());
        slot.clear();
        break;
      case Job::Kind::completion:
        break;
    }
  } catch (const std::exception& error) {
    return job.done(failure(error));
  }
  result.ms = milliseconds(Clock::now() - start);
  publish();
  job.done(result);
}

}  // namespace bankml
