#include "bankml/model/kv_pool.hpp"

#include <algorithm>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSlabBytes = std::size_t{32}
                                   << 20;  // device memory grows by pieces of this size, at least one block

std::size_t align_up(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t blocks_for(std::int64_t cells) noexcept {
  return static_cast<std::size_t>((cells + kBlockCells - 1) / kBlockCells);
}

}  // namespace

struct KvPool::Slabs {
  std::vector<Buffer> buffers;
  std::vector<std::byte*> address;        // of each block
  std::vector<std::uint32_t> references;  // of each block; 0: free
  std::vector<std::uint32_t> free;
  std::size_t blocks_per_slab = 1;
  std::size_t bytes = 0;
};

KvBlock::KvBlock(const KvBlock& other) noexcept : pool_(other.pool_), index_(other.index_) {
  if (pool_) ++pool_->slabs_->references[index_];
}

KvBlock& KvBlock::operator=(KvBlock other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(index_, other.index_);
  return *this;
}

KvBlock::~KvBlock() {
  if (pool_ && --pool_->slabs_->references[index_] == 0) pool_->slabs_->free.push_back(index_);
}

std::byte* KvBlock::data() const noexcept {
  return pool_->slabs_->address[index_];
}

bool KvBlock::shared() const noexcept {
  return pool_->slabs_->references[index_] > 1;
}

KvPool::KvPool(Device& device, const ModelConfig& config, DType type_k, DType type_v, std::size_t max_blocks)
    : device_(device),
      type_k_(type_k),
      type_v_(type_v),
      layers_(config.layers),
      max_blocks_(max_blocks),
      slabs_(std::make_unique<Slabs>()) {
  for (const LayerConfig& layer : config.layer) {
    KvLayout layout;
    layout.type_k = type_k;
    layout.type_v = type_v;
    layout.kv_heads = layer.kv_heads;
    layout.head_dim_k = config.head_dim_k;
    layout.head_dim_v = config.head_dim_v;
    const std::size_t row_k = row_bytes(type_k, std::int64_t{layer.kv_heads} * config.head_dim_k);
    const std::size_t row_v = row_bytes(type_v, std::int64_t{layer.kv_heads} * config.head_dim_v);
    layout.k_offset = static_cast<std::int64_t>(block_bytes_);
    block_bytes_ += align_up(row_k * kBlockCells);
    layout.v_offset = static_cast<std::int64_t>(block_bytes_);
    block_bytes_ += align_up(row_v * kBlockCells);
    accounted_per_token_ += row_k + row_v;
    layouts_.push_back(layout);
  }
  slabs_->blocks_per_slab = std::max<std::size_t>(1, kSlabBytes / block_bytes_);
  if (max_blocks_ > 0) slabs_->blocks_per_slab = std::min(slabs_->blocks_per_slab, max_blocks_);
}

KvPool::~KvPool() = default;

KvBlock KvPool::allocate() {
  Slabs& slabs = *slabs_;
  if (slabs.free.empty()) {
    const std::size_t have = slabs.address.size();
    std::size_t more = slabs.blocks_per_slab;
    if (max_blocks_ > 0) more = std::min(more, max_blocks_ - have);
    if (more == 0) {
      throw Error(ErrorKind::out_of_memory, "all " + std::to_string(max_blocks_) + " KV blocks of " +
                                                std::to_string(block_bytes_) + " bytes are in use");
    }
    Buffer buffer = device_.allocate(more * block_bytes_);
    slabs.address.reserve(have + more);
    slabs.references.reserve(have + more);
    slabs.free.reserve(have + more);  // so that giving a block back never allocates
    slabs.bytes += buffer.bytes();
    for (std::size_t i = more; i-- > 0;) slabs.free.push_back(static_cast<std::uint32_t>(have + i));
    for (std::size_t i = 0; i < more; ++i) slabs.address.push_back(buffer.data() + i * block_bytes_);
    slabs.references.resize(have + more, 0);
    slabs.buffers.push_back(std::move(buffer));
  }
  const std::uint32_t index = slabs.free.back();
  slabs.free.pop_back();
  slabs.references[index] = 1;
  return KvBlock(this, index);
}

std::size_t KvPool::blocks_in_use() const noexcept {
  return slabs_->address.size() - slabs_->free.size();
}

std::size_t KvPool::bytes_reserved() const noexcept {
  return slabs_->bytes;
}

std::size_t KvPool::accounted_bytes(std::int64_t tokens) const noexcept {
  constexpr std::size_t kHead = 24, kPerCell = 12, kPerLayer = 24;
  const std::size_t n = static_cast<std::size_t>(tokens);
  return kHead + kPerCell * n + kPerLayer * static_cast<std::size_t>(layers_) + n * accounted_per_token_;
}

void KvSequence::truncate(std::int64_t n) {
  if (n >= length_) return;
  if (in_order()) {
    cells_ = n;
  } else {
    for (std::int64_t p = n; p < length_; ++p) {
      const std::int32_t cell = cell_of_[static_cast<std::size_t>(p)];
      position_of_[static_cast<std::size_t>(cell)] = -1;
      search_from_ = std::min<std::int64_t>(search_from_, cell);
    }
    cell_of_.resize(static_cast<std::size_t>(n));
    while (cells_ > 0 && position_of_[static_cast<std::size_t>(cells_ - 1)] < 0) --cells_;
    position_of_.resize(static_cast<std::size_t>(cells_));
  }
  length_ = n;
  blocks_.resize(blocks_for(cells_));
}

void KvSequence::make_private(std::span<const std::size_t> blocks, KvPool& pool, Stream& stream) {
  std::vector<KvBlock> copies(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks_[blocks[i]].shared()) copies[i] = pool.allocate();
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!copies[i]) continue;
    stream.copy_on_device(copies[i].data(), blocks_[blocks[i]].data(), pool.block_bytes());
    blocks_[blocks[i]] = std::move(copies[i]);
  }
}

void KvSequence::extend(std::int64_t n, KvPool& pool, Stream& stream) {
  if (n <= length_) return;
  if (in_order()) {
    std::vector<KvBlock> fresh(blocks_for(n) - blocks_.size());
    for (KvBlock& block : fresh) block = pool.allocate();
    const std::size_t partial = static_cast<std::size_t>(cells_ / kBlockCells);  // the block that the next cell lies in
    blocks_.reserve(blocks_.size() + fresh.size());
    if (partial < blocks_.size()) make_private({&partial, 1}, pool, stream);
    for (KvBlock& block : fresh) blocks_.push_back(std::move(block));
    cells_ = length_ = n;
    return;
  }
  std::vector<std::int32_t> chosen;
  std::vector<std::size_t> written;  // existing blocks that will be written
  std::int64_t cell = search_from_;
  for (std::int64_t p = length_; p < n; ++p, ++cell) {
    while (cell < cells_ && position_of_[static_cast<std::size_t>(cell)] >= 0) ++cell;
    chosen.push_back(static_cast<std::int32_t>(cell));
    const std::size_t block = static_cast<std::size_t>(cell / kBlockCells);
    if (block < blocks_.size() && (written.empty() || written.back() != block)) written.push_back(block);
  }
  const std::int64_t cells = std::max(cells_, cell);
  std::vector<KvBlock> fresh(blocks_for(cells) - blocks_.size());
  for (KvBlock& block : fresh) block = pool.allocate();
  make_private(written, pool, stream);
  for (KvBlock& block : fresh) blocks_.push_back(std::move(block));
  position_of_.resize(static_cast<std::size_t>(cells), -1);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    position_of_[static_cast<std::size_t>(chosen[i])] = static_cast<std::int32_t>(length_ + static_cast<std::int64_t>(i));
  }
  cell_of_.insert(cell_of_.end(), chosen.begin(), chosen.end());
  cells_ = cells;
  length_ = n;
  search_from_ = cell;
}

void KvSequence::keep(std::span<const Run> runs, KvPool& pool, Stream& stream) {
  std::vector<std::int32_t> cell_of, position_of(static_cast<std::size_t>(cells_), -1);
  std::vector<std::size_t> moved;
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t cell = this->cell_of(run.from + i);
      position_of[static_cast<std::size_t>(cell)] = static_cast<std::int32_t>(cell_of.size());
      cell_of.push_back(static_cast<std::int32_t>(cell));
      const std::size_t block = static_cast<std::size_t>(cell / kBlockCells);
      if (run.from != run.to && std::find(moved.begin(), moved.end(), block) == moved.end()) moved.push_back(block);
    }
  }
  make_private(moved, pool, stream);
  while (!position_of.empty() && position_of.back() < 0) position_of.pop_back();
  cells_ = static_cast<std::int64_t>(position_of.size());
  length_ = static_cast<std::int64_t>(cell_of.size());
  const auto free = std::find(position_of.begin(), position_of.end(), -1);
  search_from_ = free - position_of.begin();
  blocks_.resize(blocks_for(cells_));
  position_of_ = std::move(position_of);
  cell_of_ = std::move(cell_of);
  const bool ordered = length_ == cells_ && std::is_sorted(cell_of_.begin(), cell_of_.end());
  if (ordered) {
    position_of_.clear();
    cell_of_.clear();
  }
}

}  // namespace bankml
