#include "bankml/model/kv_transport.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/device/stream_priority.hpp"
#include "model/kv_arena.hpp"

namespace bankml {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Copy {
  KvBlock from, to;
};

// The distinct blocks among many references, each with the block that takes its place.
class Exchange {
 public:
  explicit Exchange(KvTransport::Blocks blocks) : blocks_(blocks) {}

  // `take(block)` gives the block for a copy, and may throw.
  template <class Take>
  void plan(bool of_host, Take&& take) {
    for (const KvBlock* block : blocks_) {
      if (!*block || block->on_host() != of_host || known_.contains(block->data())) continue;
      copies_.push_back({*block, take(*block)});
      known_.emplace(block->data(), copies_.size() - 1);
    }
  }
  const std::vector<Copy>& copies() const noexcept { return copies_; }

  void apply() {
    for (KvBlock* block : blocks_) {
      if (const auto copy = known_.find(block->data()); copy != known_.end()) *block = copies_[copy->second].to;
    }
  }

 private:
  KvTransport::Blocks blocks_;
  std::vector<Copy> copies_;
  std::unordered_map<const std::byte*, std::size_t> known_;
};

}  // namespace

struct KvTransport::Impl {
  // Copies that were queued together.
  struct Flight {
    std::uint64_t id = 0;
    std::unique_ptr<Event> done;
    std::vector<KvBlock> held;  // nobody else may write to them meanwhile
    std::size_t bytes = 0;
    Clock::time_point start;
  };

  Impl(Device& d, KvPool& p, KvTransportOptions options)
      : device(d),
        pool(p),
        host(d, {.piece_bytes = std::max(p.block_bytes(KvPart::full), p.block_bytes(KvPart::window)),
                 .limit_bytes = options.limit_bytes,
                 .slab_bytes = options.slab_bytes,
                 .ahead_of_need = options.ahead_of_need,
                 .available = std::move(options.available)}),
        save_stream(make_stream(d, StreamPriority::low)),   // nobody waits for a save
        load_stream(make_stream(d, StreamPriority::high)),  // the next prefill does for a load
        computed(d.make_event()) {
    for (const KvPart part : kKvParts) arena(part) = std::make_unique<KvHostArena>(host, part, pool.block_bytes(part));
  }

  std::unique_ptr<KvHostArena>& arena(KvPart part) { return arenas[static_cast<std::size_t>(part)]; }
  static KvPart part_of(const KvBlock& block) { return block.arena_->part; }
  static std::size_t bytes_of(const KvBlock& block) { return block.arena_->block_bytes; }
  // Of a block in host memory.
  static KvHostArena::Write& write_of(const KvBlock& block) {
    return static_cast<KvHostArena*>(block.arena_)->writes[block.index_];
  }
  static bool pinned(const KvBlock& block) {
    return static_cast<const KvHostArena*>(block.arena_)->pinned(block.index_);
  }

  bool fits(Blocks blocks) const;
  KvBlock take_host(KvPart part);
  void queue_save(const std::vector<Copy>& copies, Stream& compute, Flight& flight);
  void queue_load(const std::vector<Copy>& copies, Stream& compute, Flight& flight);
  void wait_for_saves_of(const std::vector<Copy>& copies);
  std::byte* staging();
  void copy_out(const Copy& copy);
  void copy_in(const Copy& copy);
  bool finish(std::deque<Flight>& flights);
  bool wait_for_oldest(bool saves_only);
  void poll();
  void settle();

  template <class Work>
  void wait_counted(Work&& work) {
    const auto start = Clock::now();
    ++stats.waits;
    work();
    stats.wait_seconds += seconds_since(start);
  }

  Device& device;
  KvPool& pool;
  PinnedPool host;
  std::array<std::unique_ptr<KvHostArena>, kKvParts.size()> arenas;
  Buffer pageable_staging;
  std::unique_ptr<Stream> save_stream, load_stream;
  std::unique_ptr<Event> computed;
  std::deque<Flight> saves, loads;  // in the order of their streams
  std::uint64_t last_id = 0;
  KvTransportStats stats;
};

bool KvTransport::Impl::fits(Blocks blocks) const {
  std::array<std::vector<const std::byte*>, kKvParts.size()> needed;
  for (const KvBlock* block : blocks) {
    if (*block && !block->on_host()) needed[static_cast<std::size_t>(part_of(*block))].push_back(block->data());
  }
  std::size_t pieces = 0;
  for (const KvPart part : kKvParts) {
    const KvHostArena& a = *arenas[static_cast<std::size_t>(part)];
    std::vector<const std::byte*>& distinct = needed[static_cast<std::size_t>(part)];
    std::sort(distinct.begin(), distinct.end());
    const auto wanted = static_cast<std::size_t>(std::unique(distinct.begin(), distinct.end()) - distinct.begin());
    std::size_t free = a.free.size();
    for (const auto* flights : {&saves, &loads}) {
      for (const Flight& flight : *flights) {
        free +=
            static_cast<std::size_t>(std::count_if(flight.held.begin(), flight.held.end(), [&](const KvBlock& held) {
              return held.arena_ == &a && !held.shared();
            }));
      }
    }
    if (wanted > free) pieces += (wanted - free + a.per_piece - 1) / a.per_piece;
  }
  return pieces == 0 || pieces <= host.room();
}

KvBlock KvTransport::Impl::take_host(KvPart part) {
  for (;;) {
    try {
      KvBlock block(arena(part).get(), arena(part)->take());
      write_of(block) = {};
      return block;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory || !wait_for_oldest(false)) throw;
    }
  }
}

// Where pageable memory is copied through, since a device copies from and to pinned memory only.
std::byte* KvTransport::Impl::staging() {
  if (!pageable_staging) pageable_staging = device.allocate_host(host.piece_bytes());
  return pageable_staging.data();
}

void KvTransport::Impl::copy_out(const Copy& copy) {
  const std::size_t bytes = bytes_of(copy.from);
  if (pinned(copy.to)) return save_stream->copy_to_host(copy.to.data(), copy.from.data(), bytes);
  save_stream->copy_to_host(staging(), copy.from.data(), bytes);
  wait_counted([&] { save_stream->synchronize(); });
  std::memcpy(copy.to.data(), staging(), bytes);
}

void KvTransport::Impl::copy_in(const Copy& copy) {
  const std::size_t bytes = bytes_of(copy.from);
  if (pinned(copy.from)) return load_stream->copy_to_device(copy.to.data(), copy.from.data(), bytes);
  std::memcpy(staging(), copy.from.data(), bytes);
  load_stream->copy_to_device(copy.to.data(), staging(), bytes);
  wait_counted([&] { load_stream->synchronize(); });
}

void KvTransport::Impl::queue_save(const std::vector<Copy>& copies, Stream& compute, Flight& flight) {
  compute.record(*computed);
  save_stream->wait(*computed);
  for (const Copy& copy : copies) copy_out(copy);
  save_stream->record(*flight.done);
}

// The blocks that are written may have been read by `compute` a moment ago, before they were free.
void KvTransport::Impl::queue_load(const std::vector<Copy>& copies, Stream& compute, Flight& flight) {
  compute.record(*computed);
  load_stream->wait(*computed);
  wait_for_saves_of(copies);
  for (const Copy& copy : copies) copy_in(copy);
  load_stream->record(*flight.done);
  compute.wait(*flight.done);
}

// Saves end in the order of their numbers, so the load waits for the latest that is under way.
void KvTransport::Impl::wait_for_saves_of(const std::vector<Copy>& copies) {
  std::uint64_t latest = 0;
  for (const Copy& copy : copies) latest = std::max(latest, write_of(copy.from).save);
  const auto save = std::find_if(saves.begin(), saves.end(), [&](const Flight& flight) { return flight.id == latest; });
  if (save != saves.end()) load_stream->wait(*save->done);
}

// Takes the first of these flights off, which has ended or is waited for; false if it failed.
bool KvTransport::Impl::finish(std::deque<Flight>& flights) {
  const Flight flight = std::move(flights.front());
  flights.pop_front();
  const bool is_save = &flights == &saves;
  try {
    flight.done->wait();
  } catch (const Error& error) {
    log_error("prompt cache: a copy of {} bytes {} host memory failed: {}", flight.bytes, is_save ? "to" : "from",
              error.what());
    ++(is_save ? stats.failed_saves : stats.failed_loads);
    for (const KvBlock& block : flight.held) {
      if (is_save && block.on_host()) write_of(block).failed = true;
    }
    return false;
  }
  (is_save ? stats.saved_bytes : stats.loaded_bytes) += flight.bytes;
  (is_save ? stats.save_seconds : stats.load_seconds) += seconds_since(flight.start);
  return true;
}

// False if none is under way.
bool KvTransport::Impl::wait_for_oldest(bool saves_only) {
  std::deque<Flight>* oldest = saves.empty() ? nullptr : &saves;
  if (!saves_only && !loads.empty() && (!oldest || loads.front().id < saves.front().id)) oldest = &loads;
  if (!oldest) return false;
  bool ended_well = true;
  wait_counted([&] { ended_well = finish(*oldest); });
  if (!ended_well) settle();
  return true;
}

void KvTransport::Impl::poll() {
  bool ended_well = true;
  for (auto* flights : {&saves, &loads}) {
    while (!flights->empty() && flights->front().done->ready()) ended_well = finish(*flights) && ended_well;
  }
  if (!ended_well) settle();
}

void KvTransport::Impl::settle() {
  for (Stream* stream : {save_stream.get(), load_stream.get()}) {
    try {
      stream->synchronize();
    } catch (const Error& error) {
      log_debug("prompt cache: a stream of copies failed: {}", error.what());  // the flights tell more
    }
  }
  for (auto* flights : {&saves, &loads}) {
    while (!flights->empty()) finish(*flights);
  }
}

KvTransport::KvTransport(Device& device, KvPool& pool, KvTransportOptions options)
    : impl_(std::make_unique<Impl>(device, pool, std::move(options))) {
  pool.on_shortage([impl = impl_.get()] { return impl->wait_for_oldest(true); });
}

KvTransport::~KvTransport() {
  impl_->settle();
  impl_->pool.on_shortage({});
}

bool KvTransport::fits(Blocks blocks) const {
  return impl_->fits(blocks);
}

void KvTransport::save(Blocks blocks, Stream& compute) {
  Impl& impl = *impl_;
  impl.poll();
  Exchange exchange(blocks);
  exchange.plan(false, [&](const KvBlock& block) { return impl.take_host(Impl::part_of(block)); });
  if (exchange.copies().empty()) return;
  Impl::Flight flight{++impl.last_id, impl.device.make_event(), {}, 0, Clock::now()};
  for (const Copy& copy : exchange.copies()) {
    Impl::write_of(copy.to).save = flight.id;
    flight.held.push_back(copy.from);
    flight.held.push_back(copy.to);
    flight.bytes += Impl::bytes_of(copy.from);
  }
  try {
    impl.queue_save(exchange.copies(), compute, flight);
    impl.saves.push_back(std::move(flight));
  } catch (...) {
    impl.settle();  // what was queued still uses the blocks
    throw;
  }
  exchange.apply();
}

void KvTransport::load(Blocks blocks, Stream& compute) {
  Impl& impl = *impl_;
  impl.poll();
  Exchange exchange(blocks);
  exchange.plan(true, [&](const KvBlock& block) { return impl.pool.allocate(Impl::part_of(block)); });
  if (!intact(blocks)) throw Error(ErrorKind::device, "a saved state was not copied to host memory whole");
  if (exchange.copies().empty()) return;
  Impl::Flight flight{++impl.last_id, impl.device.make_event(), {}, 0, Clock::now()};
  for (const Copy& copy : exchange.copies()) {
    flight.held.push_back(copy.from);
    flight.bytes += Impl::bytes_of(copy.from);
  }
  try {
    impl.queue_load(exchange.copies(), compute, flight);
    impl.loads.push_back(std::move(flight));
  } catch (...) {
    impl.settle();
    throw;
  }
  exchange.apply();
}

bool KvTransport::intact(Blocks blocks) const {
  return std::none_of(blocks.begin(), blocks.end(),
                      [](const KvBlock* block) { return block->on_host() && Impl::write_of(*block).failed; });
}

void KvTransport::poll() {
  impl_->poll();
}

bool KvTransport::busy() const noexcept {
  return !impl_->saves.empty() || !impl_->loads.empty();
}

void KvTransport::settle() {
  impl_->settle();
}

KvTransportStats KvTransport::stats() const {
  KvTransportStats stats = impl_->stats;
  stats.host = impl_->host.usage();
  return stats;
}

}  // namespace bankml
