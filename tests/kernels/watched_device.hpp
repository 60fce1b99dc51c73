#pragma once
// The host device, with its streams in reach: a test holds one to see who waits for it.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bankml/device/stream_priority.hpp"
#include "kernels/host_device.hpp"

namespace bankml::test {

class WatchedDevice final : public host::HostDevice, public PrioritizesStreams {
 public:
  using HostDevice::HostDevice;
  std::unique_ptr<Stream> make_stream() override { return make_stream_of(StreamPriority::normal); }
  std::unique_ptr<Stream> make_stream_of(StreamPriority priority) override {
    auto stream = HostDevice::make_stream();
    streams_.push_back(stream.get());
    priorities_.push_back(priority);
    return stream;
  }
  // In the order in which they were made.
  Stream& stream(std::size_t i) const { return *streams_.at(i); }
  StreamPriority priority(std::size_t i) const { return priorities_.at(i); }
  Stream& stream_of(StreamPriority priority) const {  // the first one
    return stream(static_cast<std::size_t>(std::ranges::find(priorities_, priority) - priorities_.begin()));
  }

 private:
  std::vector<Stream*> streams_;
  std::vector<StreamPriority> priorities_;
};

// Long enough for other streams to run ahead, where nothing makes them wait. Nothing fails if it is too short.
inline void let_others_run() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace bankml::test
