#pragma once
// Memory, streams and events of the host device. A stream is a thread with a queue; device and pinned memory are heap
// blocks of the exact size, filled with 0xFF.
//
// The queue orders the producer before the consumer and nothing else, so that ThreadSanitizer sees every event wait
// that is missing: jobs and signals are published with release and read with acquire, and threads sleep on bare
// futexes.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bankml/device/device.hpp"
#include "scheduler.hpp"

namespace bankml::host {

struct HostOptions {
  Order order{};
  // Each job of a stream starts after a random delay of up to so much.
  std::chrono::microseconds max_delay{0};
  std::uint64_t delay_seed = 0;
  bool cublas = false;  // whether there is one, to which large products of floats go
};

// What can be made to fail.
enum class Operation { allocation, copy, launch };
inline constexpr int kOperations = 3;

// A thing that happens once. Kept by the runtime until its end, so that nobody counts its users: the count would order
// them.
class Signal {
 public:
  // `error`: why the stream that should have reached it failed; "": it was reached.
  void finish(std::string error);
  bool finished() const noexcept { return state_.load(std::memory_order_acquire) != 0; }
  void wait() const noexcept;
  const std::string& error() const noexcept { return error_; }  // once finished

 private:
  std::atomic<std::uint32_t> state_{0};
  std::string error_;
};

class HostRuntime {
 public:
  explicit HostRuntime(HostOptions options = {}) : options_(options) {}
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  const HostOptions& options() const noexcept { return options_; }

  // As Device's. Buffers, streams and events end before the runtime.
  Buffer allocate(std::size_t bytes) { return allocate(Kind::device, bytes); }
  Buffer allocate_host(std::size_t bytes) { return allocate(Kind::pinned, bytes); }
  std::unique_ptr<Stream> make_stream();
  std::unique_ptr<Event> make_event();

  // The n-th operation of this kind from now on fails, once; n from 1. An allocation throws Error(out_of_memory);
  // copies and launches put their stream in error.
  void fail_at(Operation operation, std::int64_t n);
  // Operations of this kind so far.
  std::int64_t count(Operation operation) const noexcept;
  // Buffers that are alive, and their bytes.
  std::size_t buffers() const;
  std::size_t bytes() const;

  // For streams.
  Signal& make_signal();
  bool fails_now(Operation operation) noexcept;
  // Throw Error(internal) unless the bytes lie inside one buffer of that kind. A host pointer that is no buffer's:
  // false.
  void check_device_range(const char* operation, const void* p, std::size_t bytes) const;
  bool check_host_range(const char* operation, const void* p, std::size_t bytes) const;

 private:
  enum class Kind { device, pinned };
  struct Block {
    std::size_t bytes;
    Kind kind;
  };
  struct Fault {
    std::atomic<std::int64_t> count{0}, fails_at{0};
  };
  struct Found {
    std::uintptr_t base = 0;
    Block block{0, Kind::device};
  };
  Buffer allocate(Kind kind, std::size_t bytes);
  static void release(void* data, std::size_t bytes, void* runtime);
  Found find(const void* p) const;

  HostOptions options_;
  Fault faults_[kOperations];
  std::atomic<std::uint64_t> streams_made_{0};
  // Host threads only: streams' threads never come here.
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::deque<Signal> signals_;
};

// Holds a stream of this runtime before its next job, until released; for tests of what waits for what.
void hold(Stream& stream);
void release(Stream& stream);

}  // namespace bankml::host
