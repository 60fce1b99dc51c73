#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "sanitizers.hpp"

namespace bankml::host {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;

// Frames grow under the sanitizers.
constexpr std::size_t kStackBytes = (sanitizer::kAddress || sanitizer::kThread ? 256 : 64) * std::size_t{1024};
constexpr std::size_t kStaggerStep = 256;
constexpr int kStaggerSteps = 32;

}  // namespace

Fiber::Fiber(int index, Entry entry) : stagger_(kStaggerStep * static_cast<std::size_t>(index % kStaggerSteps)) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  size_ = kStackBytes;
  void* const mapping = mmap(nullptr, size_ + page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  mprotect(mapping_, page, PROT_NONE);  // an overrun faults instead of writing elsewhere
  bottom_ = mapping_ + page;
  sanitizer::register_stack(bottom_, bottom_ + size_);
  reset(entry);
}

Fiber::~Fiber() {
  if (!mapping_) return;
  if (tsan_) sanitizer::destroy_fiber(tsan_);
  sanitizer::unpoison(bottom_, size_);
  munmap(mapping_, size_ + static_cast<std::size_t>(bottom_ - mapping_));
}

void Fiber::reset(Entry entry) {
  sanitizer::unpoison(bottom_, size_);  // frames that were given up
  if (tsan_) sanitizer::destroy_fiber(tsan_);
  tsan_ = sanitizer::create_fiber();
  context = make_fcontext(bottom_ + size_ - stagger_, size_ - stagger_, entry);
}

void Fiber::release_from_outside(const void* address) const {
  void* const caller = sanitizer::current_fiber();
  sanitizer::enter_fiber(tsan_);
  sanitizer::release(address);
  sanitizer::enter_fiber(caller);
}

void Fiber::run(Fiber& self) {
  if (!self.mapping_) self.tsan_ = sanitizer::current_fiber();
  sanitizer::start_switch(&self.fake_stack_, bottom_, size_);
  sanitizer::enter_fiber(tsan_);
  const auto from = jump_fcontext(context, &self);
  static_cast<Fiber*>(from.data)->context = from.fctx;
  sanitizer::finish_switch(self.fake_stack_, nullptr, nullptr);
}

void Fiber::entered(boost::context::detail::transfer_t from) {
  auto& previous = *static_cast<Fiber*>(from.data);
  previous.context = from.fctx;
  const void* bottom = nullptr;
  std::size_t size = 0;
  sanitizer::finish_switch(nullptr, &bottom, &size);
  if (!previous.mapping_) {  // the calling thread's stack, whose place is known only now
    previous.bottom_ = const_cast<std::byte*>(static_cast<const std::byte*>(bottom));
    previous.size_ = size;
  }
}

}  // namespace bankml::host
