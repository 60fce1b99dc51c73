#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/graph.hpp"
#include "host_runtime.hpp"
#include "queue.hpp"

namespace bankml::host {

class HostEvent final : public Event {
 public:
  bool ready() const override { return !signal_ || signal_->finished(); }
  void wait() const override;

 private:
  friend class HostStream;
  const Signal* signal_ = nullptr;  // of the last record(); nullptr: never recorded
};

// Jobs run one after the other on a thread of its own. After one that throws, the others are skipped until
// synchronize() has thrown that error.
class HostStream final : public Stream {
 public:
  HostStream(HostRuntime& runtime, std::uint64_t delay_seed);
  ~HostStream() override;

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_on_device(void* to, const void* from, std::size_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;

  // Queues a kernel, or what a library does in its place.
  void run(Grid grid);
  void run(std::function<void()> kernel);
  const HostRuntime& runtime() const noexcept { return runtime_; }

  void hold() noexcept { held_.store(1, std::memory_order_relaxed); }
  void release() noexcept;

  void begin_capture();
  std::vector<Job> end_capture();
  void run_captured(std::shared_ptr<const std::vector<Job>> jobs);
  void set_deferred(Deferred* deferred) noexcept { deferred_ = deferred; }

 private:
  void flush();
  void enqueue(Operation operation, std::function<void()> run);
  void push(Job job);
  void refuse_after_error() const;
  void refuse_in_capture(const char* what) const;
  void work();
  void delay();

  HostRuntime& runtime_;
  JobQueue queue_;
  std::atomic<std::uint32_t> held_{0};
  std::atomic<bool> failed_{false};
  std::string error_;     // the worker's until failed_ is set, then constant until synchronize()
  bool stopped_ = false;  // the worker's
  std::uint64_t delay_state_;
  bool capturing_ = false;
  std::vector<Job> captured_;
  Deferred* deferred_ = nullptr;
  std::thread worker_;
};

// Throws Error(internal) for a stream of another device.
HostStream& host_stream(Stream& stream);

}  // namespace bankml::host
