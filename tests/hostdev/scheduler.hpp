#pragma once
// Runs the threads of a kernel's blocks as fibers on the calling OS thread, one block at a time.
//
// A thread runs until it waits: at a barrier, or at a meeting (a warp operation: each lane leaves its input, the last
// to arrive computes everyone's output). Mistakes that a GPU answers with a hang or with nothing (a barrier that not
// all threads reach, lanes at two different operations, asynchronous copies never waited for) end the launch with
// Error(device) naming kernel, block, threads and lines. Kernels reach all of this through the functions of device.cuh,
// warp.cuh and ptx.cuh.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "kernels/launch_shape.hpp"

namespace bankml::host {

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline thread_local constinit uint3 threadIdx;
inline thread_local constinit uint3 blockIdx;
inline thread_local constinit dim3 blockDim;
inline thread_local constinit dim3 gridDim;

using Site = std::source_location;

// The order in which threads and blocks get their turns. Random: another one for every seed.
struct Order {
  enum class Kind { forward, reverse, random } kind = Kind::forward;
  std::uint64_t seed = 0;
  static constexpr Order forward() { return {}; }
  static constexpr Order reverse() { return {Kind::reverse, 0}; }
  static constexpr Order random(std::uint64_t seed) { return {Kind::random, seed}; }
};

// A launch: `body` is called once per thread of the grid.
struct Grid {
  const void* kernel = nullptr;  // names it in reports
  LaunchShape shape;
  std::function<void()> body;
};

// Throws Error(device) unless a device takes such a launch of this kernel: extents, shared memory.
void check_launch(const void* kernel, const LaunchShape& shape);
// Lets the kernel have so many bytes of dynamic shared memory.
void allow_shared_bytes(const void* kernel, std::size_t bytes, Site at);
// "rms_norm<256>": the kernel's name from the program's symbols.
std::string kernel_name(const void* kernel);

// Runs all blocks of the grid. Throws Error(device) at the first mistake found; the calling thread can run other grids
// then.
void run_grid(const Grid& grid, Order order);

// What a running CUDA thread calls. Nothing here allocates.

// The block's variable `key` (the same for all threads); `dynamic` is the launch's dynamic shared memory.
void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment, Site at);
void* dynamic_shared();

enum class Reduction { none, count, any, all };
int block_barrier(Reduction reduction, bool predicate, Site at);
void named_barrier(int id, int threads, Site at = Site::current());

constexpr int kWarp = 32;
struct Meeting {
  std::uint32_t mask = 0;
  const void* in[kWarp] = {};
  void* out[kWarp] = {};
};
// Waits for the lanes of `mask`; the last of them calls `combine`. `orders_memory`: writes before are visible after.
void meet(const char* operation, std::uint32_t mask, const void* in, void* out, void (*combine)(const Meeting&),
          bool orders_memory, Site at);

// Ends the launch: "thread (0,0,0): <what> at FILE:LINE". `what` is a literal.
[[noreturn]] void report_mistake(const char* what, Site at);

// Asynchronous copies of the calling thread. cp_async: remembers one of the open group. next_due_copy: takes one whose
// group is not among the `pending` youngest closed ones; false when there is none left.
struct AsyncCopy {
  void* to;
  const void* from;
  int bytes;
  unsigned group;
};
void remember_copy(void* to, const void* from, int bytes, Site at);
void close_copy_group();
bool next_due_copy(unsigned pending, AsyncCopy& copy, Site at);

// ThreadSanitizer's view of relaxed atomics and fences: a fence acquires from the atomics that its thread touched
// before, and makes those that follow release. before_atomic: false where a mutant asks for plain accesses.
bool before_atomic(const void* address, Site at);
void after_atomic(const void* address);
void fence(Site at);

}  // namespace bankml::host
