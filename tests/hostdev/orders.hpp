#pragma once
// A fixture for tests of kernels: a runtime and a stream that run threads in the order of the test's parameter.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "host_runtime.hpp"

namespace bankml::host {

class OnEveryOrder : public testing::TestWithParam<Order> {
 protected:
  HostRuntime& runtime() { return runtime_; }
  Stream& stream() { return *stream_; }

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    Buffer pinned = runtime_.allocate_host(bytes), device = runtime_.allocate(bytes);
    if (bytes != 0) std::memcpy(pinned.data(), values.data(), bytes);
    stream_->copy_to_device(device.data(), pinned.data(), bytes);
    stream_->synchronize();
    return device;
  }
  // All of the buffer, once the stream's work is done.
  template <class T>
  std::vector<T> download(const Buffer& device) {
    const Buffer pinned = runtime_.allocate_host(device.bytes());
    stream_->copy_to_host(pinned.data(), device.data(), device.bytes());
    stream_->synchronize();
    std::vector<T> values(device.bytes() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), pinned.data(), device.bytes());
    return values;
  }

 private:
  HostRuntime runtime_{HostOptions{.order = GetParam()}};
  std::unique_ptr<Stream> stream_ = runtime_.make_stream();
};

inline void PrintTo(const Order& order, std::ostream* out) {
  *out << "kind " << static_cast<int>(order.kind) << ", seed " << order.seed;
}

inline auto every_order() {
  return testing::Values(Order::forward(), Order::reverse(), Order::random(1), Order::random(2), Order::random(3));
}
inline std::string order_name(const testing::TestParamInfo<Order>& info) {
  switch (info.param.kind) {
    case Order::Kind::forward:
      return "Forward";
    case Order::Kind::reverse:
      return "Reverse";
    case Order::Kind::random:
      return "Random" + std::to_string(info.param.seed);
  }
  return "";
}

}  // namespace bankml::host
