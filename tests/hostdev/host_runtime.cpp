#include "host_runtime.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "bankml/base/error.hpp"
#include "host_stream.hpp"
#include "sanitizers.hpp"

namespace bankml::host {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kFill = 0xff;  // NaN in every float format

}  // namespace

Buffer HostRuntime::allocate(Kind kind, std::size_t bytes) {
  void* data = nullptr;
  if (fails_now(Operation::allocation) || posix_memalign(&data, kAlignment, std::max<std::size_t>(bytes, 1)) != 0) {
    throw Error(ErrorKind::out_of_memory,
                fmt::format("can't allocate {} bytes of {} memory", bytes, kind == Kind::device ? "device" : "pinned"));
  }
  std::memset(data, kFill, bytes);
  sanitizer::mark_undefined(data, bytes);
  const std::lock_guard lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(data)] = {bytes, kind};
  return Buffer(data, bytes, release, this);
}

void HostRuntime::release(void* data, std::size_t, void* runtime) {
  auto& self = *static_cast<HostRuntime*>(runtime);
  {
    const std::lock_guard lock(self.mutex_);
    self.blocks_.erase(reinterpret_cast<std::uintptr_t>(data));
  }
  std::free(data);
}

std::unique_ptr<Stream> HostRuntime::make_stream() {
  return std::make_unique<HostStream>(*this, options_.delay_seed + streams_made_++);
}

std::unique_ptr<Event> HostRuntime::make_event() {
  return std::make_unique<HostEvent>();
}

void HostRuntime::fail_at(Operation operation, std::int64_t n) {
  Fault& fault = faults_[static_cast<int>(operation)];
  fault.fails_at = fault.count + n;
}

std::int64_t HostRuntime::count(Operation operation) const noexcept {
  return faults_[static_cast<int>(operation)].count;
}

bool HostRuntime::fails_now(Operation operation) noexcept {
  Fault& fault = faults_[static_cast<int>(operation)];
  return fault.count.fetch_add(1) + 1 == fault.fails_at;
}

std::size_t HostRuntime::buffers() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

std::size_t HostRuntime::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [address, block] : blocks_) sum += block.bytes;
  return sum;
}

Signal& HostRuntime::make_signal() {
  const std::lock_guard lock(mutex_);
  return signals_.emplace_back();
}

HostRuntime::Found HostRuntime::find(const void* p) const {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return {};
  --next;
  if (address - next->first >= next->second.bytes) return {};
  return {next->first, next->second};
}

void HostRuntime::check_device_range(const char* operation, const void* p, std::size_t bytes) const {
  const Found found = find(p);
  if (found.base == 0 || found.block.kind != Kind::device) {
    throw Error(ErrorKind::internal, fmt::format("{}: {} is {}, and not device memory", operation, p,
                                                 found.base == 0 ? "no buffer's" : "pinned host memory"));
  }
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(p) - found.base;
  if (bytes > found.block.bytes - offset) {
    throw Error(ErrorKind::internal, fmt::format("{}: {} bytes from byte {} of a buffer of {}", operation, bytes,
                                                 offset, found.block.bytes));
  }
}

bool HostRuntime::check_host_range(const char* operation, const void* p, std::size_t bytes) const {
  const Found found = find(p);
  if (found.base == 0) return false;
  if (found.block.kind != Kind::pinned) {
    throw Error(ErrorKind::internal, fmt::format("{}: {} is device memory, and not host memory", operation, p));
  }
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(p) - found.base;
  if (bytes > found.block.bytes - offset) {
    throw Error(ErrorKind::internal, fmt::format("{}: {} bytes from byte {} of a buffer of {}", operation, bytes,
                                                 offset, found.block.bytes));
  }
  return true;
}

}  // namespace bankml::host
