#pragma once
// A stack with a suspended computation on it.
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace bankml::host {

struct Fiber {
  using Entry = void (*)(boost::context::detail::transfer_t);

  Fiber() = default;  // stands for the stack of the calling thread
  // With a stack of its own; `index` staggers the stacks, so that equal frames of many fibers don't share cache sets.
  Fiber(int index, Entry entry);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Forgets what is suspended here; nothing on the stack is destroyed.
  void reset(Entry entry);
  // Suspends `self`, the running one, and continues this one. Returns when another continues `self`.
  void run(Fiber& self);
  // For ThreadSanitizer: what ran here comes before whoever acquires the address. Called where another fiber runs.
  void release_from_outside(const void* address) const;
  // First thing on a new stack.
  static void entered(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t context = nullptr;

 private:
  std::byte* mapping_ = nullptr;
  std::byte* bottom_ = nullptr;  // lowest address
  std::size_t size_ = 0;
  std::size_t stagger_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* tsan_ = nullptr;        // ThreadSanitizer's; of the calling thread: not owned
};

}  // namespace bankml::host
