#pragma once
// The GPU backend on the host device: its Ops, weights and activations over streams that are threads.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bankml/device/ops.hpp"
#include "device/cuda/backend.hpp"
#include "host_runtime.hpp"

namespace bankml::host {

class HostDevice : public Device, public LimitsShapes {
 public:
  explicit HostDevice(const HostOptions& options = {}) : runtime_(options), ops_(make_ops(*this)) {}

  std::string description() const override { return "host device"; }
  bool shares_host_memory() const noexcept override { return false; }
  Buffer allocate(std::size_t bytes) override { return runtime_.allocate(bytes); }
  Buffer allocate_host(std::size_t bytes) override { return runtime_.allocate_host(bytes); }
  std::unique_ptr<Stream> make_stream() override { return runtime_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return runtime_.make_event(); }
  std::unique_ptr<Weight> load_weight(DType type, std::int64_t rows, std::int64_t cols,
                                      const std::byte* data) override {
    return load_experts(type, 1, rows, cols, data, 0);
  }
  std::unique_ptr<Weight> load_experts(DType type, int experts, std::int64_t rows, std::int64_t cols,
                                       const std::byte* data, std::size_t stride) override {
    if (!loader_) loader_ = make_weight_loader(*this);
    return make_experts(*loader_, type, experts, rows, cols, data, stride);
  }
  std::unique_ptr<Activation> make_activation(std::int64_t max_rows, std::int64_t dim, ActFormats formats) override {
    return host::make_activation(*this, max_rows, dim, formats);
  }
  std::unique_ptr<ExpertChoice> make_expert_choice(int max_rows, int experts, int used) override {
    return host::make_expert_choice(*this, max_rows, experts, used);
  }
  ShapeLimits shape_limits() const noexcept override { return host::shape_limits(); }
  Ops& ops() noexcept override { return *ops_; }
  HostRuntime& runtime() noexcept { return runtime_; }

 private:
  HostRuntime runtime_;
  std::unique_ptr<Ops> ops_;
  WeightLoaderPtr loader_;
};

}  // namespace bankml::host

namespace bankml::test {

// A device with a stream, and copies from and to vectors.
class Bench {
 public:
  explicit Bench(Device& device) : device_(device), stream_(device.make_stream()) {}

  Device& device() const noexcept { return device_; }
  Ops& ops() const noexcept { return device_.ops(); }
  Stream& stream() const noexcept { return *stream_; }

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    Buffer to = device_.allocate(values.size() * sizeof(T));
    copy_in(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  void copy_in(const Buffer& to, const void* from, std::size_t bytes) {
    const Buffer pinned = device_.allocate_host(bytes);
    std::memcpy(pinned.data(), from, bytes);
    stream_->copy_to_device(to.data(), pinned.data(), bytes);
    stream_->synchronize();
  }
  // `n` elements from device memory, once the stream's work is done.
  template <class T>
  std::vector<T> download(const T* from, std::size_t n) {
    const Buffer pinned = device_.allocate_host(n * sizeof(T));
    stream_->copy_to_host(pinned.data(), from, n * sizeof(T));
    stream_->synchronize();
    const T* first = pinned.as<T>();
    return std::vector<T>(first, first + n);
  }
  std::unique_ptr<Weight> load(DType type, std::int64_t rows, std::int64_t cols, const std::vector<std::byte>& data) {
    return device_.load_weight(type, rows, cols, data.data());
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace bankml::test
