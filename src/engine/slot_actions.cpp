// Slots to files and back (docs/prompt-cache.md, section 6). A file has the rows token by token; blocks have them head by head.
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
  for (int layer = 0; layer < model.config().layers; ++layer) {
    const KvLayout& kv = pool.layout(layer);
    format.layers.push_back({static_cast<std::uint32_t>(kv.kv_heads * row_bytes(kv.type_k, kv.head_dim_k)),
                             static_cast<std::uint32_t>(kv.kv_heads * row_bytes(kv.type_v, kv.head_dim_v))});
  }
  return format;
}

// Calls row(bytes in the block, bytes in the file's cell, length) for every row of one cell, in the file's order.
template <class Row>
void for_each_row(const KvPool& pool, int layers, std::int64_t slot, Row&& row) {
  std::size_t at = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const KvLayout& kv = pool.layout(layer);
    const auto part = [&](std::int64_t offset, DType type, int head_dim) {
      const std::size_t bytes = row_bytes(type, head_dim);
      for (int head = 0; head < kv.kv_heads; ++head, at += bytes) {
        row(static_cast<std::size_t>(offset) + static_cast<std::size_t>(head * kBlockCells + slot) * bytes, at, bytes);
      }
    };
    part(kv.k_offset, kv.type_k, kv.head_dim_k);
    part(kv.v_offset, kv.type_v, kv.head_dim_v);
  }
}

// One block of a sequence at a time, where the host can reach it.
class BlockWindow {
 public:
  BlockWindow(Device& device, const KvPool& pool, const KvSequence& sequence, Stream& stream)
      : pool_(pool), sequence_(sequence), stream_(stream), direct_(device.shares_host_memory()) {
    if (!direct_) staging_ = device.allocate_host(pool.block_bytes());
  }

  const std::byte* read(std::size_t block) {
    if (direct_) return sequence_.blocks()[block].data();
    if (block != current_) {
      stream_.copy_to_host(staging_.data(), sequence_.blocks()[block].data(), pool_.block_bytes());
      stream_.synchronize();
      current_ = block;
    }
    return staging_.data();
  }
  // Blocks are written in ascending order, each whole; the last one becomes visible with flush().
  std::byte* write(std::size_t block) {
    if (direct_) return sequence_.blocks()[block].data();
    if (block != current_) {
      flush();
      current_ = block;
    }
    return staging_.data();
  }
  void flush() {
    if (direct_ || current_ == kNone) return;
    stream_.copy_to_device(sequence_.blocks()[current_].data(), staging_.data(), pool_.block_bytes());
    stream_.synchronize();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  const KvPool& pool_;
  const KvSequence& sequence_;
  Stream& stream_;
  bool direct_;
  Buffer staging_;
  std::size_t current_ = kNone;
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
  BlockWindow window(model.device(), *pool, slot.kv, transformer->stream());
  const auto fill = [&](std::size_t token, std::span<std::byte> out) {
    const std::int64_t cell = slot.kv.cell_of(static_cast<std::int64_t>(token));
    const std::byte* block = window.read(static_cast<std::size_t>(cell / kBlockCells));
    for_each_row(*pool, model.config().layers, cell % kBlockCells, [&](std::size_t in_block, std::size_t at, std::size_t bytes) {
      std::memcpy(out.data() + at, block + in_block, bytes);
    });
  };
  SlotActionResult result;
  result.tokens = static_cast<int>(slot.tokens.size());
  result.bytes = write_slot_file(path, slot.tokens, slot_file_format(model, *pool), fill);
  return result;
}

// The slot is touched only when the whole file has been read.
SlotActionResult Engine::Impl::restore_slot(Slot& slot, const std::filesystem::path& path) {
  const SlotFile file = SlotFile::open(path, slot_file_format(model, *pool), static_cast<std::size_t>(slot_context), tokenizer.size());
  KvSequence restored;
  restored.extend(static_cast<std::int64_t>(file.tokens().size()), *pool, transformer->stream());
  BlockWindow window(model.device(), *pool, restored, transformer->stream());
  file.read_cells([&](std::size_t token, std::span<const std::byte> rows_of_token) {
    const std::int64_t cell = static_cast<std::int64_t>(token);
    std::byte* block = window.write(static_cast<std::size_t>(cell / kBlockCells));
    for_each_row(*pool, model.config().layers, cell % kBlockCells, [&](std::size_t in_block, std::size_t at, std::size_t bytes) {
      std::memcpy(block + in_block, rows_of_token.data() + at, bytes);
    });
  });
  window.flush();
  slot.kv = std::move(restored);
  slot.tokens = file.tokens();
  return {static_cast<int>(slot.tokens.size()), file.bytes(), 0.0};
}

void Engine::Impl::start_action(Slot& slot, Job& job) {
  const auto start = Clock::now();
  SlotActionResult result;
  try {
    switch (job.kind) {
      case Job::Kind::save: result = save_slot(slot, slot_file(job)); break;
      case Job::Kind::restore: result = restore_slot(slot, slot_file(job)); break;
      case Job::Kind::erase:
        result.tokens = static_cast<int>(slot.tokens.size());
        slot.clear();
        break;
      case Job::Kind::completion: break;
    }
  } catch (const Error& error) {
    return job.done(Failed{error.kind(), error.what()});
  } catch (const std::exception& error) {
    return job.done(Failed{ErrorKind::internal, error.what()});
  }
  result.ms = milliseconds(Clock::now() - start);
  publish();
  job.done(result);
}

}  // namespace bankml
