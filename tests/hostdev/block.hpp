#pragma once
// The state of the block that an OS thread is running: threads, barriers, meetings, shared memory.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"
#include "scheduler.hpp"

namespace bankml::host {

enum class ThreadState : std::uint8_t { unstarted, ready, running, waiting, returned };

struct CudaThread {
  int id = 0;
  uint3 index;
  ThreadState state = ThreadState::unstarted;
  Fiber* fiber = nullptr;
  const char* waits_in = nullptr;
  Site waits_at;

  std::vector<AsyncCopy> copies;  // a ring: copy i is at i % size
  std::size_t copies_issued = 0, copies_done = 0;
  unsigned open_group = 0;

  static constexpr int kAtomics = 8;
  const void* atomics[kAtomics] = {};  // the addresses touched last
  int atomics_used = 0;
  bool fenced = false;
};

struct Barrier {
  std::vector<CudaThread*> waiting;  // by thread; nullptr: not here
  int arrived = 0;
  const char* operation = nullptr;
  Site at;
  int expected = 0;
  int votes = 0;
  int result = 0;
  unsigned generation = 0;
};

struct WarpMeeting {
  Meeting lanes;
  CudaThread* threads[kWarp] = {};
  const char* operation = nullptr;
  Site at;
  std::uint32_t arrived = 0;
  unsigned generation = 0;
};

struct Warp {
  WarpMeeting meetings[kWarp];    // by the lowest lane of their mask
  std::int8_t meeting_of[kWarp];  // the open meeting whose mask has the lane; -1: none
};

// What a thread did wrong: enough for the report, which is written when no CUDA thread runs.
struct Mistake {
  const char* what = nullptr;  // nullptr: none
  uint3 thread{};
  Site at{};
  const char* operation = nullptr;        // that the thread is in, ...
  const char* other_operation = nullptr;  // ... while others are in this one
  Site other_at{};
};

// The block's shared memory: variables one after the other, with poisoned gaps between them.
class SharedArena {
 public:
  // A block begins, with so much dynamic shared memory. Everything is filled with 0xFF, NaN in every float format.
  void begin(std::size_t dynamic_bytes);
  void end();
  void* dynamic() const noexcept { return dynamic_; }
  // nullptr if the static variables then take more than 48 KiB. Alignment: up to 128.
  void* variable(const void* key, std::size_t bytes, std::size_t alignment);
  // An address that stands for barrier `index`, in one of two generations.
  const void* sync_address(int index, unsigned generation) const noexcept;

 private:
  std::byte* place(std::size_t bytes, std::size_t alignment);
  struct Variable {
    const void* key;
    void* address;
  };
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0, used_ = 0, static_bytes_ = 0;
  void* dynamic_ = nullptr;
  static constexpr int kMaxVariables = 64;
  Variable variables_[kMaxVariables];
  int variable_count_ = 0;
};

// report.cpp: the text of a failed launch.
std::string place_of(const Site& at);  // "norm.cu:41"
std::string describe_mistake(const Grid& grid, uint3 block, const Mistake& mistake);
std::string describe_deadlock(const Grid& grid, uint3 block, const std::vector<CudaThread>& threads, std::size_t count);

}  // namespace bankml::host
