#include "model/kv_arena.hpp"

#include <algorithm>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

// Device memory grows by pieces of this size, at least one block.
constexpr std::size_t kSlabBytes = std::size_t{32} << 20;

}  // namespace

std::uint32_t KvArena::take() {
  while (free.empty()) {
    try {
      grow();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory || !on_shortage || !on_shortage()) throw;
    }
  }
  const std::uint32_t index = free.back();
  free.pop_back();
  references[index] = 1;
  return index;
}

void KvArena::add_blocks(std::size_t first, std::size_t count, std::byte* memory) {
  const std::size_t all = std::max(address.size(), first + count);
  // Memory first: what fails leaves no half-made blocks, and giving a block back never allocates.
  address.reserve(all);
  references.reserve(all);
  free.reserve(all);
  address.resize(all);
  references.resize(all, 0);
  for (std::size_t i = count; i-- > 0;) free.push_back(static_cast<std::uint32_t>(first + i));
  for (std::size_t i = 0; i < count; ++i) address[first + i] = memory + i * block_bytes;
}

void KvDeviceArena::reserve(std::size_t blocks) {
  while (address.size() < blocks) add(blocks - address.size());
}

void KvDeviceArena::grow() {
  std::size_t more = std::max<std::size_t>(1, kSlabBytes / block_bytes);
  if (max_blocks > 0) more = std::min(more, max_blocks - std::min(max_blocks, address.size()));
  if (more == 0) {
    throw Error(ErrorKind::out_of_memory, "all " + std::to_string(max_blocks) + " KV blocks of " +
                                              std::to_string(block_bytes) + " bytes are in use");
  }
  add(more);
}

// So many blocks, or as many as there is memory for.
void KvDeviceArena::add(std::size_t more) {
  Buffer buffer;
  while (!buffer) {
    try {
      buffer = device.allocate(more * block_bytes);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory || more == 1) throw;
      more /= 2;
    }
  }
  buffers.reserve(buffers.size() + 1);
  add_blocks(address.size(), more, buffer.data());
  bytes += buffer.bytes();
  buffers.push_back(std::move(buffer));
}

KvHostArena::KvHostArena(PinnedPool& pinned_pool, KvPart p, std::size_t bytes)
    : KvArena(p), per_piece(std::max<std::size_t>(1, pinned_pool.piece_bytes() / bytes)), pool(pinned_pool) {
  block_bytes = bytes;
}

void KvHostArena::grow() {
  Buffer memory = pool.take();
  if (!memory) throw Error(ErrorKind::out_of_memory, "the host memory for saved states is used up");
  const auto unused = std::find_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return !piece.memory; });
  const auto piece = static_cast<std::size_t>(unused - pieces.begin());
  if (unused == pieces.end()) pieces.emplace_back();
  writes.resize(pieces.size() * per_piece);
  add_blocks(piece * per_piece, per_piece, memory.data());
  pieces[piece].pinned = pool.pinned(memory);
  pieces[piece].memory = std::move(memory);
}

void KvHostArena::give_back(std::uint32_t index) noexcept {
  const std::size_t piece = index / per_piece;
  const auto first = references.begin() + static_cast<std::ptrdiff_t>(piece * per_piece);
  if (std::any_of(first, first + static_cast<std::ptrdiff_t>(per_piece), [](std::uint32_t n) { return n > 0; })) {
    free.push_back(index);
    return;
  }
  std::erase_if(free, [&](std::uint32_t other) { return other / per_piece == piece; });
  pieces[piece].memory = Buffer();
}

}  // namespace bankml
