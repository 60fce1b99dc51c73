#include "scheduler.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "bankml/base/error.hpp"
#include "block.hpp"
#include "fiber.hpp"
#include "mutation.hpp"
#include "sanitizers.hpp"

namespace bankml::host {
namespace {

constexpr std::size_t kMaxOutstandingCopies =
    256;                            // of a thread; hardware has no such limit, but it has registers to count them
constexpr int kNamedBarriers = 16;  // barrier 0 is the block's

// Same steps on every machine (Steele et al., "Fast splittable pseudorandom number generators", 2014).
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

 private:
  std::uint64_t state_;
};

class Scheduler {
 public:
  void run(const Grid& grid, Order order);

  int arrive(int barrier, int expected, const char* operation, bool one_line, Reduction reduction, bool vote, Site at);
  void meet(const char* operation, std::uint32_t mask, const void* in, void* out, void (*combine)(const Meeting&),
            bool orders_memory, Site at);
  [[noreturn]] void fail(const Mistake& mistake);
  [[noreturn]] void fail(const char* what, Site at) { fail({.what = what, .thread = current_->index, .at = at}); }
  CudaThread& current() { return *current_; }
  SharedArena& arena() { return arena_; }
  int block_threads() const { return static_cast<int>(count_); }

 private:
  static void fiber_main(boost::context::detail::transfer_t from);
  void prepare(const Grid& grid, Order order);
  void run_block(const Grid& grid, std::int64_t index);
  void reset_threads(const Grid& grid);
  void give_up();
  void finish_thread();
  Fiber& choose(Fiber* idle);
  CudaThread* pick();
  void wait(const char* operation, Site at);
  void wake(CudaThread& thread);
  template <class It>
  void wake_all(It begin, It end);
  void let_others_first(const char* operation, Site at);
  void start_current();

  std::vector<CudaThread> threads_;
  std::size_t count_ = 0;
  std::vector<std::size_t> start_order_;
  std::size_t started_ = 0;
  std::size_t returned_ = 0;
  std::vector<CudaThread*> ready_;  // a ring with room for all threads
  std::size_t ready_first_ = 0, ready_count_ = 0;
  CudaThread* current_ = nullptr;

  Fiber main_;
  Fiber* running_ = &main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_fibers_;
  std::size_t blocks_run_ = 0;

  Barrier barriers_[kNamedBarriers];
  std::vector<Warp> warps_;
  SharedArena arena_;
  Mistake mistake_;

  const std::function<void()>* body_ = nullptr;
  Order order_;
  SplitMix random_{0};
  char launched_ = 0,
       ended_ = 0;  // their addresses carry the edges from launch to thread and from thread to the grid's end
};

thread_local Scheduler* scheduler_of_thread = nullptr;

Scheduler& scheduler() {
  return *scheduler_of_thread;
}

void Scheduler::fiber_main(boost::context::detail::transfer_t from) {
  Fiber::entered(from);
  Scheduler& self = scheduler();
  Fiber& fiber = *self.running_;
  for (;;) {
    self.start_current();
    sanitizer::acquire(&self.launched_);
    (*self.body_)();
    sanitizer::release(&self.ended_);
    self.finish_thread();
    Fiber& next = self.choose(&fiber);
    if (&next == &fiber) continue;
    if (!sanitizer::kThread) self.idle_fibers_.push_back(&fiber);
    self.running_ = &next;
    next.run(fiber);
  }
}

void Scheduler::start_current() {
  current_->state = ThreadState::running;
  threadIdx = current_->index;
}

void Scheduler::finish_thread() {
  if (current_->copies_issued != current_->copies_done) {
    fail("returned before its asynchronous copies were waited for", Site());
  }
  current_->state = ThreadState::returned;
  ++returned_;
}

// The fiber whose turn it is, with its thread made current; the scheduler's own when nothing can run. `idle`: the
// caller's, if it has nothing more to do.
Fiber& Scheduler::choose(Fiber* idle) {
  CudaThread* const thread = pick();
  if (!thread) return main_;
  current_ = thread;
  if (thread->fiber) return *thread->fiber;
  if (sanitizer::kThread) {
    // A fiber for each thread, in two sets that take turns: a fiber used again would order one block after the other.
    thread->fiber = fibers_[blocks_run_ % 2 * (fibers_.size() / 2) + static_cast<std::size_t>(thread->id)].get();
  } else if (idle) {
    thread->fiber = idle;
  } else {
    thread->fiber = idle_fibers_.back();
    idle_fibers_.pop_back();
  }
  return *thread->fiber;
}

CudaThread* Scheduler::pick() {
  const std::size_t unstarted = count_ - started_;
  const bool random = order_.kind == Order::Kind::random;
  constexpr std::size_t kStartEvery = 4;
  if (ready_count_ != 0 && !(random && unstarted != 0 && random_.below(kStartEvery) == 0)) {
    if (random) std::swap(ready_[ready_first_], ready_[(ready_first_ + random_.below(ready_count_)) % ready_.size()]);
    CudaThread* const thread = ready_[ready_first_];
    ready_first_ = (ready_first_ + 1) % ready_.size();
    --ready_count_;
    return thread;
  }
  return unstarted == 0 ? nullptr : &threads_[start_order_[started_++]];
}

void Scheduler::wait(const char* operation, Site at) {
  CudaThread& self = *current_;
  self.state = ThreadState::waiting;
  self.waits_in = operation;
  self.waits_at = at;
  Fiber& mine = *self.fiber;
  Fiber& next = choose(nullptr);
  running_ = &next;
  if (&next != &mine) next.run(mine);
  start_current();
}

void Scheduler::wake(CudaThread& thread) {
  thread.state = ThreadState::ready;
  ready_[(ready_first_ + ready_count_++) % ready_.size()] = &thread;
}

template <class It>
void Scheduler::wake_all(It begin, It end) {
  if (order_.kind == Order::Kind::reverse) {
    while (end != begin) {
      if (*--end) wake(**end);
    }
  } else {
    for (; begin != end; ++begin) {
      if (*begin) wake(**begin);
    }
  }
}

// The last to arrive usually goes on at once; under random order it may find itself behind the others.
void Scheduler::let_others_first(const char* operation, Site at) {
  if (order_.kind != Order::Kind::random || random_.below(2) == 0) return;
  wake(*current_);
  wait(operation, at);
}

int Scheduler::arrive(int index, int expected, const char* operation, bool one_line, Reduction reduction, bool vote,
                      Site at) {
  Barrier& barrier = barriers_[index];
  if (barrier.arrived == 0) {
    barrier.operation = operation;
    barrier.at = at;
    barrier.expected = expected;
    barrier.votes = 0;
  } else if (barrier.expected != expected) {
    fail("named barrier with another number of threads than those that wait at it", at);
  } else if (one_line &&
             (barrier.at.line() != at.line() || std::string_view(barrier.operation) != std::string_view(operation))) {
    fail({.what = "barriers at two lines",
          .thread = current_->index,
          .at = at,
          .operation = operation,
          .other_operation = barrier.operation,
          .other_at = barrier.at});
  }
  barrier.votes += vote;
  const unsigned generation = barrier.generation;
  const void* const edge = arena_.sync_address(index, generation);
  sanitizer::release(edge);
  if (++barrier.arrived < expected) {
    barrier.waiting[static_cast<std::size_t>(current_->id)] = current_;
    wait(operation, at);
    sanitizer::acquire(edge);
    return barrier.result;
  }
  const int result = reduction == Reduction::count ? barrier.votes
                     : reduction == Reduction::any ? barrier.votes != 0
                                                   : barrier.votes == expected;
  barrier.result = result;
  ++barrier.generation;
  barrier.arrived = 0;
  wake_all(barrier.waiting.begin(), barrier.waiting.end());
  for (CudaThread*& waiting : barrier.waiting) waiting = nullptr;
  let_others_first(operation, at);
  sanitizer::acquire(edge);
  return result;
}

void Scheduler::meet(const char* operation, std::uint32_t mask, const void* in, void* out,
                     void (*combine)(const Meeting&), bool orders_memory, Site at) {
  CudaThread& self = *current_;
  const int lane = self.id % kWarp, warp_index = self.id / kWarp;
  Warp& warp = warps_[static_cast<std::size_t>(warp_index)];
  if (!(mask >> lane & 1)) fail("warp operation whose mask lacks the caller", at);
  const int lanes = std::min(kWarp, block_threads() - warp_index * kWarp);
  if (lanes < kWarp && mask >> lanes != 0) fail("warp operation whose mask has lanes that the block lacks", at);

  const int slot = std::countr_zero(mask);
  WarpMeeting& meeting = warp.meetings[slot];
  const auto differs = [&](const WarpMeeting& open) {
    return open.lanes.mask != mask || open.at.line() != at.line() ||
           std::string_view(open.operation) != std::string_view(operation);
  };
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int open = warp.meeting_of[std::countr_zero(rest)];
    if (open < 0) continue;
    const WarpMeeting& other = warp.meetings[open];
    if (!differs(other)) break;
    fail({.what = "lanes of one warp at two operations",
          .thread = self.index,
          .at = at,
          .operation = operation,
          .other_operation = other.operation,
          .other_at = other.at});
  }
  if (meeting.arrived == 0) {
    meeting.lanes.mask = mask;
    meeting.operation = operation;
    meeting.at = at;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      warp.meeting_of[std::countr_zero(rest)] = static_cast<std::int8_t>(slot);
    }
  }
  meeting.lanes.in[lane] = in;
  meeting.lanes.out[lane] = out;
  meeting.threads[lane] = &self;
  meeting.arrived |= 1u << lane;
  const void* const edge = arena_.sync_address(kNamedBarriers + warp_index * kWarp + slot, meeting.generation);
  if (orders_memory) sanitizer::release(edge);
  if (meeting.arrived != mask) {
    wait(operation, at);
  } else {
    {
      const sanitizer::Ignore ignore;  // it hands values around; what the lanes wrote elsewhere stays unordered
      combine(meeting.lanes);
    }
    CudaThread* others[kWarp];
    int n = 0;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      const int i = std::countr_zero(rest);
      warp.meeting_of[i] = -1;
      if (i != lane) others[n++] = meeting.threads[i];
    }
    meeting.arrived = 0;
    ++meeting.generation;
    wake_all(others, others + n);
    let_others_first(operation, at);
  }
  if (orders_memory) sanitizer::acquire(edge);
}

void Scheduler::fail(const Mistake& mistake) {
  mistake_ = mistake;
  Fiber& mine = *current_->fiber;
  running_ = &main_;
  main_.run(mine);
  __builtin_unreachable();  // the block is given up
}

void Scheduler::prepare(const Grid& grid, Order order) {
  count_ = static_cast<std::size_t>(grid.shape.block.count());
  order_ = order;
  random_ = SplitMix(order.seed);
  body_ = &grid.body;
  if (threads_.size() < count_) {
    threads_.resize(count_);
    ready_.resize(count_);
    start_order_.resize(count_);
    for (Barrier& barrier : barriers_) barrier.waiting.resize(count_);
    warps_.resize((count_ + kWarp - 1) / kWarp);
    for (CudaThread& thread : threads_) thread.copies.resize(kMaxOutstandingCopies);
  }
  const std::size_t fibers = sanitizer::kThread ? 2 * threads_.size() : threads_.size();
  const std::size_t before = fibers_.size();
  for (std::size_t i = before; i < fibers; ++i) {
    fibers_.push_back(std::make_unique<Fiber>(static_cast<int>(i), fiber_main));
  }
  idle_fibers_.reserve(fibers);
  for (std::size_t i = before; i < fibers; ++i) idle_fibers_.push_back(fibers_[i].get());
}

void Scheduler::reset_threads(const Grid& grid) {
  const LaunchExtent& block = grid.shape.block;
  for (std::size_t i = 0; i < count_; ++i) {
    CudaThread& thread = threads_[i];
    const auto id = static_cast<std::int64_t>(i);
    thread.id = static_cast<int>(i);
    thread.index = {static_cast<unsigned>(id % block.x), static_cast<unsigned>(id / block.x % block.y),
                    static_cast<unsigned>(id / (block.x * block.y))};
    thread.state = ThreadState::unstarted;
    thread.fiber = nullptr;
    thread.copies_issued = thread.copies_done = 0;
    thread.open_group = 0;
    thread.atomics_used = 0;
    thread.fenced = false;
  }
  std::iota(start_order_.begin(), start_order_.end(), std::size_t{0});
  const auto begin = start_order_.begin(), end = begin + static_cast<std::ptrdiff_t>(count_);
  if (order_.kind == Order::Kind::reverse) std::reverse(begin, end);
  if (order_.kind == Order::Kind::random) {
    for (std::size_t i = count_; i > 1; --i) std::swap(start_order_[i - 1], start_order_[random_.below(i)]);
  }
  started_ = returned_ = 0;
  ready_first_ = ready_count_ = 0;
  for (Barrier& barrier : barriers_) {
    barrier.arrived = 0;
    std::fill(barrier.waiting.begin(), barrier.waiting.end(), nullptr);
  }
  for (Warp& warp : warps_) {
    std::fill(std::begin(warp.meeting_of), std::end(warp.meeting_of), std::int8_t{-1});
    for (WarpMeeting& meeting : warp.meetings) meeting.arrived = 0;
  }
}

void Scheduler::run_block(const Grid& grid, std::int64_t index) {
  const LaunchExtent& extent = grid.shape.grid;
  blockIdx = {static_cast<unsigned>(index % extent.x), static_cast<unsigned>(index / extent.x % extent.y),
              static_cast<unsigned>(index / (extent.x * extent.y))};
  const uint3 block = blockIdx;
  reset_threads(grid);
  arena_.begin(grid.shape.shared);
  mistake_ = {};
  Fiber& first = choose(nullptr);
  running_ = &first;
  first.run(main_);
  arena_.end();
  ++blocks_run_;
  if (returned_ == count_) return;
  const std::string message =
      mistake_.what ? describe_mistake(grid, block, mistake_) : describe_deadlock(grid, block, threads_, count_);
  give_up();
  throw Error(ErrorKind::device, message);
}

// Fibers that will never be continued are made new. What ran on them came before whatever follows, as at the end of a
// grid.
void Scheduler::give_up() {
  idle_fibers_.clear();
  for (const auto& fiber : fibers_) {
    fiber->release_from_outside(&ended_);
    fiber->reset(fiber_main);
    idle_fibers_.push_back(fiber.get());
  }
  sanitizer::acquire(&ended_);
}

void Scheduler::run(const Grid& grid, Order order) {
  prepare(grid, order);
  const auto dimensions = [](const LaunchExtent& e) {
    return dim3{static_cast<unsigned>(e.x), static_cast<unsigned>(e.y), static_cast<unsigned>(e.z)};
  };
  gridDim = dimensions(grid.shape.grid);
  blockDim = dimensions(grid.shape.block);
  sanitizer::release(&launched_);
  const std::int64_t blocks = grid.shape.grid.count();
  // Random: steps of a size that has no divisor in common with the number of blocks, from anywhere.
  std::int64_t step = 1, at = 0;
  if (order.kind == Order::Kind::random) {
    const auto n = static_cast<std::size_t>(blocks);
    at = static_cast<std::int64_t>(random_.below(n));
    do {
      step = 1 + static_cast<std::int64_t>(random_.below(n));
    } while (std::gcd(step, blocks) != 1);
  }
  for (std::int64_t i = 0; i < blocks; ++i) {
    run_block(grid, order.kind == Order::Kind::reverse ? blocks - 1 - i : at);
    at = (at + step) % blocks;
  }
  sanitizer::acquire(&ended_);
}

const char* barrier_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return "__syncthreads";
    case Reduction::count:
      return "__syncthreads_count";
    case Reduction::any:
      return "__syncthreads_or";
    case Reduction::all:
      return "__syncthreads_and";
  }
  return "";
}

}  // namespace

void run_grid(const Grid& grid, Order order) {
  static thread_local const std::unique_ptr<Scheduler> own = std::make_unique<Scheduler>();
  scheduler_of_thread = own.get();
  own->run(grid, order);
}

int block_barrier(Reduction reduction, bool predicate, Site at) {
  if (reduction == Reduction::none && omitted(at)) return 0;
  Scheduler& s = scheduler();
  return s.arrive(0, s.block_threads(), barrier_name(reduction), true, reduction, predicate, at);
}

void named_barrier(int id, int threads, Site at) {
  if (omitted(at)) return;
  Scheduler& s = scheduler();
  if (id < 1 || id >= kNamedBarriers) report_mistake("named barrier other than 1 to 15", at);
  if (threads < kWarp || threads % kWarp != 0 || threads > s.block_threads()) {
    report_mistake("named barrier of other than whole warps of the block", at);
  }
  s.arrive(id, threads, "named_barrier", false, Reduction::none, false, at);
}

void meet(const char* operation, std::uint32_t mask, const void* in, void* out, void (*combine)(const Meeting&),
          bool orders_memory, Site at) {
  if (orders_memory && omitted(at)) return;
  scheduler().meet(operation, mask, in, out, combine, orders_memory, at);
}

void report_mistake(const char* what, Site at) {
  scheduler().fail(what, at);
}

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment, Site at) {
  void* const address = scheduler().arena().variable(key, bytes, alignment);
  if (!address) report_mistake("more than 48 KiB of shared variables", at);
  return address;
}

void* dynamic_shared() {
  return scheduler().arena().dynamic();
}

void remember_copy(void* to, const void* from, int bytes, Site at) {
  CudaThread& thread = scheduler().current();
  if (thread.copies_issued - thread.copies_done == kMaxOutstandingCopies) {
    report_mistake("more than 256 asynchronous copies under way", at);
  }
  thread.copies[thread.copies_issued++ % kMaxOutstandingCopies] = {to, from, bytes, thread.open_group};
}

void close_copy_group() {
  ++scheduler().current().open_group;
}

bool next_due_copy(unsigned pending, AsyncCopy& copy, Site at) {
  if (omitted(at)) return false;
  CudaThread& thread = scheduler().current();
  if (thread.copies_done == thread.copies_issued) return false;
  const AsyncCopy& oldest = thread.copies[thread.copies_done % kMaxOutstandingCopies];
  if (oldest.group + pending >= thread.open_group) return false;
  copy = oldest;
  ++thread.copies_done;
  return true;
}

bool before_atomic(const void* address, Site at) {
  if (omitted(at)) return false;
  if (sanitizer::kThread && scheduler().current().fenced) sanitizer::release(address);
  return true;
}

void after_atomic(const void* address) {
  if (!sanitizer::kThread) return;
  CudaThread& thread = scheduler().current();
  thread.atomics[thread.atomics_used++ % CudaThread::kAtomics] = address;
}

void fence(Site at) {
  if (!sanitizer::kThread || omitted(at)) return;
  CudaThread& thread = scheduler().current();
  const int n = std::min(thread.atomics_used, CudaThread::kAtomics);
  for (int i = 0; i < n; ++i) sanitizer::acquire(thread.atomics[i]);
  thread.fenced = true;
}

}  // namespace bankml::host
