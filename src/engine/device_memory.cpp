// What an engine takes of a device with memory of its own: the plan at the start, and the transport of saved states.
#include <algorithm>

#include "bankml/base/log.hpp"
#include "engine/checksum.hpp"
#include "engine/engine_impl.hpp"
#include "engine/memory_limit.hpp"
#include "engine/memory_plan.hpp"

namespace bankml {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Where nobody named a context (docs/prompt-cache.md, section 7): bytes that stay free, and tokens of a slot at least.
constexpr std::uint64_t kStaysFree = std::uint64_t{1} << 30;
constexpr std::int64_t kLeastContext = 4096;

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

KvDemand demand_of(const KvPool& pool, int slots, bool shared_context, std::int64_t context) {
  bool full = false, window = false;
  for (int layer = 0; layer < pool.layers(); ++layer) (pool.part_of(layer) == KvPart::full ? full : window) = true;
  KvDemand demand;
  if (full) demand.full_block_bytes = pool.block_bytes(KvPart::full);
  if (window) demand.window_block_bytes = pool.block_bytes(KvPart::window);
  demand.slots = slots;
  demand.shared_context = shared_context;
  demand.window_cells = pool.window_cells() > 0 ? pool.window_cells() : context;
  return demand;
}

}  // namespace

// Takes the memory for keys and values, for a smaller context if that is all there is room for and nobody named one.
void Engine::Impl::fit_into_device() {
  if (!options.device_free_bytes || model.device().shares_host_memory()) return;
  const auto free = options.device_free_bytes();
  if (!free) return;
  std::int64_t context = one_stream ? total_context : total_context / options.slots;
  const KvDemand demand = demand_of(*pool, options.slots, one_stream, context);
  KvBlocks needed = blocks_for_context(demand, context);
  const bool named = options.context > 0;
  if (needed.bytes(demand) > *free ||
      (!named && needed.bytes(demand) + kStaysFree > *free && context > kLeastContext)) {
    const std::int64_t fits =
        context_that_fits(demand, context, named ? *free : std::max(*free, kStaysFree) - kStaysFree);
    const std::int64_t total_that_fits = one_stream ? fits : fits * options.slots;
    if (named || fits < std::min(kLeastContext, context)) {
      throw Error(
          ErrorKind::out_of_memory,
          fmt::format(
              "keys and values of {} tokens of context take {:.0f} MiB, but {:.0f} MiB of the device are free beside "
              "weights and scratch memory: {}",
              total_context, mib(needed.bytes(demand)), mib(*free),
              fits > 0 ? fmt::format("a context of {0} tokens would fit (-c {0})", total_that_fits)
                       : "not even 256 tokens fit"));
    }
    log_warning("the context is {} tokens instead of {}, to leave {:.0f} MiB of the device free", total_that_fits,
                total_context, mib(kStaysFree));
    make_context(total_that_fits);
    context = fits;
    needed = blocks_for_context(demand, context);
  }
  const KvBlocks spare = spare_blocks(demand, needed, *free);
  pool->reserve(KvPart::full, needed.full, needed.full + spare.full);
  pool->reserve(KvPart::window, needed.window, needed.window + spare.window);
  log_info(
      "device memory: {:.0f} MiB for keys and values of {} tokens, {:.0f} MiB more at most while others are being "
      "saved, {:.0f} MiB were free",
      mib(needed.bytes(demand)), total_context, mib(spare.bytes(demand)), mib(*free));
}

// `limit_bytes`: 0 for none.
void Engine::Impl::make_transport(std::uint64_t limit_bytes) {
  Checksum checksum;
  const std::string layout = fmt::format("{} {} {} {} {} {} {}", model.fingerprint(), static_cast<int>(pool->type_k()),
                                         static_cast<int>(pool->type_v()), pool->block_bytes(KvPart::full),
                                         pool->block_bytes(KvPart::window), pool->window(), pool->window_cells());
  checksum.add(std::as_bytes(std::span(layout)));
  state_fingerprint = checksum.value();
  if (model.device().shares_host_memory()) return;
  KvTransportOptions transport_options;
  transport_options.limit_bytes = limit_bytes;
  transport_options.available = [] { return available_memory(); };
  transport = std::make_unique<KvTransport>(model.device(), *pool, std::move(transport_options));
}

void Engine::Impl::read_transport_stats() {
  const KvTransportStats stats = transport->stats();
  metrics.save_seconds = stats.save_seconds;
  metrics.load_seconds = stats.load_seconds;
  metrics.copied_to_host = stats.saved_bytes;
  metrics.copied_to_device = stats.loaded_bytes;
  metrics.failed_copies = stats.failed_saves + stats.failed_loads;
  metrics.copy_waits = stats.waits;
  metrics.copy_wait_seconds = stats.wait_seconds;
  metrics.pinned_bytes = stats.host.pinned_bytes;
  metrics.pageable_bytes = stats.host.pageable_bytes;
  metrics.host_bytes_used = stats.host.used_bytes;
}

}  // namespace bankml
