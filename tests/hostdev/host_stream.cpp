#include "host_stream.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <utility>

#include "bankml/base/error.hpp"
#include "device.cuh"
#include "mutation.hpp"
#include "sanitizers.hpp"

namespace bankml::host {
namespace {

// CUDA copies so much from pageable memory to a buffer of its own before the call returns.
constexpr std::size_t kStagedBytes = 64 * 1024;

class HostGraph final : public Graph {
 public:
  explicit HostGraph(std::vector<Job> jobs) : jobs_(std::make_shared<const std::vector<Job>>(std::move(jobs))) {}
  void launch(Stream& stream) override { host_stream(stream).run_captured(jobs_); }

 private:
  std::shared_ptr<const std::vector<Job>> jobs_;
};

const char* name(Operation operation) {
  switch (operation) {
    case Operation::allocation:
      return "allocation";
    case Operation::copy:
      return "copy";
    case Operation::launch:
      return "launch";
  }
  return "";
}

}  // namespace

HostStream& host_stream(Stream& stream) {
  if (auto* const host = dynamic_cast<HostStream*>(&stream)) return *host;
  throw Error(ErrorKind::internal, "a kernel of the host device was given a stream of another device");
}

void Signal::finish(std::string error) {
  error_ = std::move(error);
  state_.store(1, std::memory_order_release);
  futex_wake(state_);
}

void Signal::wait() const noexcept {
  while (!finished()) futex_wait(state_, 0);
}

void HostEvent::wait() const {
  if (!signal_ || omitted_call(__builtin_return_address(0))) return;
  signal_->wait();
  if (!signal_->error().empty()) throw Error(ErrorKind::device, signal_->error());
}

HostStream::HostStream(HostRuntime& runtime, std::uint64_t delay_seed)
    : runtime_(runtime), delay_state_(delay_seed), worker_([this] { work(); }) {}

HostStream::~HostStream() {
  try {
    flush();
  } catch (const std::exception&) {  // nobody waits for it
  }
  release();
  queue_.push({[this] { stopped_ = true; }, true});
  worker_.join();
}

void HostStream::work() {
  while (!stopped_) {
    const Job job = queue_.pop();
    while (held_.load(std::memory_order_relaxed) != 0) futex_wait(held_, 1);
    delay();
    if (!error_.empty() && !job.after_error) continue;
    try {
      job.run();
    } catch (const std::exception& error) {
      error_ = error.what();
      failed_.store(true, std::memory_order_release);
    }
  }
}

void HostStream::delay() {
  const auto most = runtime_.options().max_delay.count();
  if (most == 0) return;
  delay_state_ = delay_state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
  std::this_thread::sleep_for(std::chrono::microseconds(static_cast<std::int64_t>(delay_state_ >> 33) % (most + 1)));
}

void HostStream::release() noexcept {
  held_.store(0, std::memory_order_relaxed);
  futex_wake(held_);
}

void HostStream::push(Job job) {
  if (capturing_) {
    captured_.push_back(std::move(job));
  } else {
    queue_.push(std::move(job));
  }
}

void HostStream::refuse_after_error() const {
  if (failed_.load(std::memory_order_acquire)) {
    throw Error(ErrorKind::device, "work for a stream after its error: " + error_);
  }
}

void HostStream::refuse_in_capture(const char* what) const {
  if (capturing_) throw Error(ErrorKind::device, fmt::format("{} while the stream's work is being captured", what));
}

void HostStream::flush() {
  if (Deferred* const deferred = std::exchange(deferred_, nullptr)) deferred->flush(*this);
}

void HostStream::enqueue(Operation operation, std::function<void()> run) {
  refuse_after_error();
  if (runtime_.fails_now(operation)) {
    // A failure is no part of a graph.
    if (capturing_)
      throw Error(ErrorKind::device, fmt::format("{} failed in a capture, as asked for", name(operation)));
    run = [operation] { throw Error(ErrorKind::device, fmt::format("{} failed, as asked for", name(operation))); };
  }
  push({std::move(run)});
}

void HostStream::copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  flush();
  runtime_.check_device_range("copy_to_device", device, bytes);
  if (runtime_.check_host_range("copy_to_device", host, bytes)) {
    enqueue(Operation::copy, [=] { std::memcpy(device, host, bytes); });
    return;
  }
  if (bytes > kStagedBytes) {
    throw Error(ErrorKind::internal, fmt::format("copy_to_device of {} bytes from memory that isn't pinned", bytes));
  }
  const auto* const begin = static_cast<const std::byte*>(host);
  enqueue(Operation::copy, [device, bytes = std::vector<std::byte>(begin, begin + bytes)] {
    std::memcpy(device, bytes.data(), bytes.size());
  });
}

void HostStream::copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  flush();
  runtime_.check_device_range("copy_to_host", device, bytes);
  if (!runtime_.check_host_range("copy_to_host", host, bytes)) {
    throw Error(ErrorKind::internal, fmt::format("copy_to_host of {} bytes to memory that isn't pinned", bytes));
  }
  enqueue(Operation::copy, [=] {
    sanitizer::check_defined(device, bytes);
    std::memcpy(host, device, bytes);
  });
}

void HostStream::copy_on_device(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  flush();
  runtime_.check_device_range("copy_on_device", to, bytes);
  runtime_.check_device_range("copy_on_device", from, bytes);
  enqueue(Operation::copy, [=] { std::memmove(to, from, bytes); });
}

void HostStream::record(Event& event) {
  flush();
  refuse_in_capture("an event is recorded");
  refuse_after_error();
  Signal& signal = runtime_.make_signal();
  dynamic_cast<HostEvent&>(event).signal_ = &signal;
  push({[this, &signal] { signal.finish(error_); }, true});
}

void HostStream::wait(const Event& event) {
  flush();
  refuse_in_capture("an event is waited for");
  refuse_after_error();
  const Signal* const signal = dynamic_cast<const HostEvent&>(event).signal_;
  if (!signal) throw Error(ErrorKind::internal, "a stream waits for an event that was never recorded");
  if (omitted_call(__builtin_return_address(0))) return;
  push({[signal] {
    signal->wait();
    if (!signal->error().empty())
      throw Error(ErrorKind::device, "the stream waited for another that failed: " + signal->error());
  }});
}

void HostStream::synchronize() {
  // What can't be launched any more is told last: the stream's own error comes first, and is forgotten.
  std::exception_ptr refused;
  try {
    flush();
  } catch (const Error&) {
    refused = std::current_exception();
  }
  refuse_in_capture("the stream is waited for");
  Signal& done = runtime_.make_signal();
  push({[this, &done] {
          std::string error = std::exchange(error_, std::string());
          failed_.store(false, std::memory_order_relaxed);
          done.finish(std::move(error));
        },
        true});
  done.wait();
  if (!done.error().empty()) throw Error(ErrorKind::device, done.error());
  if (refused) std::rethrow_exception(refused);
}

void HostStream::run(Grid grid) {
  enqueue(Operation::launch, [grid = std::move(grid), order = runtime_.options().order] { run_grid(grid, order); });
}

void HostStream::run(std::function<void()> kernel) {
  enqueue(Operation::launch, std::move(kernel));
}

void HostStream::begin_capture() {
  refuse_in_capture("another capture begins");
  refuse_after_error();
  capturing_ = true;
}

std::vector<Job> HostStream::end_capture() {
  if (!capturing_) throw Error(ErrorKind::internal, "no capture to end");
  capturing_ = false;
  return std::exchange(captured_, {});
}

void HostStream::run_captured(std::shared_ptr<const std::vector<Job>> jobs) {
  enqueue(Operation::launch, [jobs = std::move(jobs)] {
    for (const Job& job : *jobs) job.run();
  });
}

void enqueue_grid(Stream& stream, Grid grid) {
  host_stream(stream).run(std::move(grid));
}

void begin_capture(Stream& stream) {
  host_stream(stream).begin_capture();
}
std::unique_ptr<Graph> end_capture(Stream& stream) {
  return std::make_unique<HostGraph>(host_stream(stream).end_capture());
}

void set_deferred(Stream& stream, Deferred* deferred) {
  host_stream(stream).set_deferred(deferred);
}

void hold(Stream& stream) {
  host_stream(stream).hold();
}
void release(Stream& stream) {
  host_stream(stream).release();
}

}  // namespace bankml::host
