#include "bankml/base/memory_reserve.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace bankml {
namespace {

constexpr std::size_t kReserveBytes = std::size_t{1} << 20;

std::atomic<void*> reserve = nullptr;
std::atomic<bool> installed = false;

// Called by operator new, which tries again when this returns.
void use_reserve() {
  void* const piece = reserve.exchange(nullptr);
  if (piece == nullptr) throw std::bad_alloc();
  std::free(piece);
}

}  // namespace

void install_memory_reserve() {
  installed.store(true);
  refill_memory_reserve();
  std::set_new_handler(use_reserve);
}

void refill_memory_reserve() noexcept {
  if (!installed.load(std::memory_order_relaxed) || reserve.load(std::memory_order_relaxed) != nullptr) return;
  void* const piece = std::malloc(kReserveBytes);  // of operator new it would use itself
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, piece)) std::free(piece);
}

}  // namespace bankml
