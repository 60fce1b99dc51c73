// Which cells a sequence takes (docs/prompt-cache.md, 3.3 and 3.4), and how its states are saved and come back.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/model/kv_pool.hpp"

namespace bankml {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

std::size_t block_of(std::int64_t cell) noexcept {
  return static_cast<std::size_t>(cell / kBlockCells);
}

std::size_t blocks_for(std::int64_t cells) noexcept {
  return static_cast<std::size_t>((cells + kBlockCells - 1) / kBlockCells);
}

// Cells that the part may have in all.
std::int64_t capacity_of(const KvPool& pool, KvPart part) noexcept {
  return part == KvPart::window && pool.window_cells() > 0 ? pool.window_cells() : kNoEnd;
}

// Positions that a next row no longer sees, counted from it.
int window_of(const KvPool& pool, KvPart part) noexcept {
  return part == KvPart::window && pool.window_cells() > 0 ? pool.window() : 0;
}

bool has_part(const KvPool& pool, KvPart part) noexcept {
  return part == KvPart::full || pool.window() > 0;
}

}  // namespace

std::int64_t KvCells::cell_of(std::int64_t position) const noexcept {
  if (in_order()) return position;
  const std::int64_t placed = position - placed_from_;
  if (placed >= 0 && placed < static_cast<std::int64_t>(placed_.size()))
    return placed_[static_cast<std::size_t>(placed)];
  return std::find(position_of_.begin(), position_of_.end(), position) - position_of_.begin();
}

std::int64_t KvCells::first_position() const noexcept {
  if (in_order()) return cells_ > 0 ? 0 : -1;
  std::int32_t first = -1;
  for (const std::int32_t p : position_of_) {
    if (p >= 0 && (first < 0 || p < first)) first = p;
  }
  return first;
}

std::int64_t KvCells::count_from(std::int64_t position) const noexcept {
  if (in_order()) return std::max<std::int64_t>(0, cells_ - std::max<std::int64_t>(0, position));
  const std::int64_t least = std::max<std::int64_t>(0, position);
  return std::count_if(position_of_.begin(), position_of_.end(), [&](std::int32_t held) { return held >= least; });
}

void KvCells::make_explicit() {
  if (!in_order()) return;
  position_of_.resize(static_cast<std::size_t>(cells_));
  std::iota(position_of_.begin(), position_of_.end(), 0);
}

// Drops what lies behind the highest used cell; goes back to the plain form where nothing is left.
void KvCells::shrink() {
  if (!in_order()) {
    while (!position_of_.empty() && position_of_.back() < 0) position_of_.pop_back();
    cells_ = static_cast<std::int64_t>(position_of_.size());
  }
  blocks_.resize(blocks_for(cells_));
}

void KvCells::truncate(std::int64_t n) {
  placed_.clear();
  if (in_order()) {
    if (n >= cells_) return;
    cells_ = used_ = n;
    head_ = std::min(head_, n);
    return shrink();
  }
  for (std::size_t c = position_of_.size(); c-- > 0;) {
    if (position_of_[c] < n) continue;
    position_of_[c] = -1;
    --used_;
    head_ = std::min(head_, static_cast<std::int64_t>(c));
  }
  shrink();
}

// Forgets the positions below `from`, and the blocks that held nothing else.
void KvCells::keep_last(std::int64_t from) {
  placed_.clear();
  if (from <= 0 || used_ == 0) return;
  make_explicit();
  std::vector<bool> needed(blocks_.size(), false);
  for (std::size_t c = 0; c < position_of_.size(); ++c) {
    if (position_of_[c] >= from) {
      needed[block_of(static_cast<std::int64_t>(c))] = true;
    } else if (position_of_[c] >= 0) {
      position_of_[c] = -1;
      --used_;
    }
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (!needed[b]) blocks_[b] = KvBlock();
  }
  shrink();
}

// The cells for positions from, from + 1, ..., as the peer finds them for one forward pass.
std::vector<std::int32_t> KvCells::find_cells(std::int64_t from, std::int64_t count, std::int64_t capacity,
                                              int window) const {
  std::vector<std::int32_t> found;
  found.reserve(static_cast<std::size_t>(count));
  std::int64_t cell = head_ > used_ + 2 * count ? 0 : head_;
  for (std::int64_t tested = 0; std::ssize(found) < count; ++tested, ++cell) {
    if (tested >= capacity) throw Error(ErrorKind::out_of_memory, "no KV cell is free");
    if (cell >= capacity) cell = 0;
    const std::int32_t held = cell < cells_ ? position(cell) : -1;
    if (held < 0 || (window > 0 && from - held >= window)) found.push_back(static_cast<std::int32_t>(cell));
  }
  return found;
}

void KvCells::add_copy(Extension& plan, std::size_t block, KvPool& pool, KvPart part, Stream& stream) const {
  if (block >= blocks_.size() || !blocks_[block].shared()) return;
  const auto is_block = [&](const auto& copy) { return copy.first == block; };
  if (std::any_of(plan.copies.begin(), plan.copies.end(), is_block)) return;
  KvBlock copy = pool.allocate(part);
  stream.copy_on_device(copy.data(), blocks_[block].data(), pool.block_bytes(part));
  plan.copies.emplace_back(block, std::move(copy));
}

KvCells::Extension KvCells::plan(std::int64_t from, std::int64_t to, KvPool& pool, KvPart part, Stream& stream) const {
  Extension plan;
  const std::int64_t capacity = capacity_of(pool, part);
  std::int64_t cells = to;
  if (in_order() && head_ == cells_ && from == cells_ && to <= capacity) {
    add_copy(plan, block_of(cells_), pool, part, stream);
  } else {
    plan.cells = find_cells(from, to - from, capacity, window_of(pool, part));
    cells = cells_;
    for (const std::int32_t cell : plan.cells) {
      cells = std::max<std::int64_t>(cells, cell + 1);
      add_copy(plan, block_of(cell), pool, part, stream);
    }
  }
  while (blocks_.size() + plan.fresh.size() < blocks_for(cells)) plan.fresh.push_back(pool.allocate(part));
  return plan;
}

void KvCells::apply(Extension&& plan, std::int64_t from, std::int64_t to) {
  for (auto& [block, copy] : plan.copies) blocks_[block] = std::move(copy);
  for (KvBlock& block : plan.fresh) blocks_.push_back(std::move(block));
  placed_.clear();
  if (plan.cells.empty()) {
    cells_ = used_ = head_ = to;
    return;
  }
  make_explicit();
  std::int32_t overwritten = -1;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    const std::size_t cell = static_cast<std::size_t>(plan.cells[i]);
    if (cell >= position_of_.size()) position_of_.resize(cell + 1, -1);
    if (position_of_[cell] < 0) ++used_;
    overwritten = std::max(overwritten, position_of_[cell]);
    position_of_[cell] = static_cast<std::int32_t>(from + static_cast<std::int64_t>(i));
  }
  for (std::int32_t& held : position_of_) {
    if (held < 0 || held > overwritten) continue;
    held = -1;
    --used_;
  }
  head_ = plan.cells.back() + 1;
  placed_ = std::move(plan.cells);
  placed_from_ = from;
  shrink();
}

// Takes over `saved`: this part's own content is forgotten first, which decides where the search for cells begins.
void KvCells::place(const KvCells& saved, KvPool& pool, KvPart part, Stream& stream) {
  std::vector<std::pair<std::int64_t, std::int32_t>> held;  // cell, position
  for (std::int64_t c = 0; c < saved.cells_; ++c) {
    if (const std::int32_t p = saved.position(c); p >= 0) held.emplace_back(c, p);
  }
  KvCells before = *this;
  before.truncate(0);
  const auto n = static_cast<std::int64_t>(held.size());
  std::int64_t start = before.head_;
  if (start > 2 * n || start > capacity_of(pool, part) - n) start = 0;

  KvCells placed;
  placed.cells_ = placed.head_ = n > 0 ? start + n : start;
  placed.used_ = n;
  placed.blocks_.resize(blocks_for(n > 0 ? placed.cells_ : 0));
  const auto cell_at = [&](std::int64_t i) { return start + i; };
  for (std::int64_t i = 0; i < n;) {
    KvBlock& to = placed.blocks_[block_of(cell_at(i))];
    const std::int64_t in_block = cell_at(i) % kBlockCells;
    // A run of successive cells that lie in one block before and after.
    std::int64_t run = 1;
    const std::int64_t from_cell = held[static_cast<std::size_t>(i)].first;
    while (i + run < n && in_block + run < kBlockCells && from_cell % kBlockCells + run < kBlockCells &&
           held[static_cast<std::size_t>(i + run)].first == from_cell + run) {
      ++run;
    }
    const KvBlock& from = saved.blocks_[block_of(from_cell)];
    const bool fills_block = in_block + run == kBlockCells || i + run == n;
    if (!to && in_block == from_cell % kBlockCells && fills_block) {
      to = from;
    } else {
      if (!to) to = pool.allocate(part);
      pool.copy_cells(stream, part, to, in_block, from, from_cell % kBlockCells, run);
    }
    i += run;
  }
  bool ordered = start == 0;
  for (std::int64_t i = 0; i < n; ++i) ordered = ordered && held[static_cast<std::size_t>(i)].second == i;
  if (!ordered && n > 0) {
    placed.position_of_.assign(static_cast<std::size_t>(placed.cells_), -1);
    for (std::int64_t i = 0; i < n; ++i) {
      placed.position_of_[static_cast<std::size_t>(cell_at(i))] = held[static_cast<std::size_t>(i)].second;
    }
  }
  if (n == 0) placed.cells_ = 0;
  // Blocks in front of the first cell hold nothing yet, but later rows will look for them.
  for (KvBlock& block : placed.blocks_) {
    if (!block) block = pool.allocate(part);
  }
  *this = std::move(placed);
}

void KvSequence::truncate(std::int64_t n) {
  if (n > length_) return;
  for (KvCells& part : parts_) part.truncate(n);
  length_ = n;
}

void KvSequence::extend(std::int64_t n, KvPool& pool, Stream& stream) {
  if (n <= length_) return;
  KvCells::Extension full = cells(KvPart::full).plan(length_, n, pool, KvPart::full, stream);
  if (has_part(pool, KvPart::window)) {
    KvCells::Extension window = cells(KvPart::window).plan(length_, n, pool, KvPart::window, stream);
    cells(KvPart::window).apply(std::move(window), length_, n);
  }
  cells(KvPart::full).apply(std::move(full), length_, n);
  length_ = n;
}

void KvSequence::keep(std::span<const Run> runs, KvPool& pool, Stream& stream) {
  const auto run_of = [&](std::int64_t position) -> const Run* {
    const auto found = std::find_if(runs.begin(), runs.end(), [&](const Run& run) {
      return position >= run.from && position < run.from + run.count;
    });
    return found != runs.end() ? &*found : nullptr;
  };
  std::array<KvCells::Extension, kKvParts.size()> plans;
  for (const KvPart part : kKvParts) {
    const KvCells& old = cells(part);
    for (std::int64_t c = 0; c < old.cells(); ++c) {
      const Run* run = old.position(c) >= 0 ? run_of(old.position(c)) : nullptr;
      if (run && run->from != run->to)
        old.add_copy(plans[static_cast<std::size_t>(part)], block_of(c), pool, part, stream);
    }
  }
  for (const KvPart part : kKvParts) {
    KvCells& changed = cells(part);
    for (auto& [block, copy] : plans[static_cast<std::size_t>(part)].copies) changed.blocks_[block] = std::move(copy);
    changed.make_explicit();
    changed.placed_.clear();
    for (std::int32_t& held : changed.position_of_) {
      if (held < 0) continue;
      const Run* run = run_of(held);
      if (!run) --changed.used_;
      held = run ? static_cast<std::int32_t>(held + run->to - run->from) : -1;
    }
    changed.shrink();
    changed.head_ = 0;
    const std::vector<std::int32_t>& held = changed.position_of_;
    if (changed.used_ == changed.cells_ && std::is_sorted(held.begin(), held.end()) &&
        (held.empty() || held.front() == 0)) {
      changed.position_of_.clear();
      changed.head_ = changed.cells_;
    }
  }
  length_ = std::accumulate(runs.begin(), runs.end(), std::int64_t{0},
                            [](std::int64_t sum, const Run& run) { return sum + run.count; });
}

KvSequence KvSequence::saved(const KvPool& pool) const {
  KvSequence copy = *this;
  copy.cells(KvPart::window).keep_last(length_ - pool.window());
  return copy;
}

KvCells KvSequence::saved_window(const KvPool& pool) const {
  KvCells copy = part(KvPart::window);
  copy.keep_last(length_ - pool.window());
  return copy;
}

void KvSequence::restore(const KvSequence& saved, KvPool& pool, Stream& stream) {
  KvSequence restored = *this;
  for (const KvPart part : kKvParts) {
    if (has_part(pool, part)) restored.cells(part).place(saved.part(part), pool, part, stream);
  }
  restored.length_ = saved.length_;
  *this = std::move(restored);
}

void KvSequence::restore_window(const KvCells& saved, KvPool& pool, Stream& stream) {
  KvCells restored = part(KvPart::window);
  restored.place(saved, pool, KvPart::window, stream);
  cells(KvPart::window) = std::move(restored);
}

void KvSequence::create(std::int64_t full, std::span<const std::int32_t> window, KvPool& pool) {
  KvSequence created;
  const auto fill = [&](KvPart part, std::int64_t n) {
    KvCells& made = created.cells(part);
    made.cells_ = made.used_ = made.head_ = n;
    for (std::size_t b = 0; b < blocks_for(n); ++b) made.blocks_.push_back(pool.allocate(part));
  };
  fill(KvPart::full, full);
  fill(KvPart::window, std::ssize(window));
  created.cells(KvPart::window).position_of_.assign(window.begin(), window.end());
  created.length_ = full;
  *this = std::move(created);
}

}  // namespace bankml
