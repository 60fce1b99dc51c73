#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "bankml/device/stream_priority.hpp"
#include "device/cuda/graph.hpp"

namespace bankml::cuda {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  bool ready() const override;
  void wait() const override;

 private:
  friend class CudaStream;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

// Work of two streams never waits for one another unless an event says so: they don't know the default stream.
class CudaStream final : public Stream {
 public:
  CudaStream(int device, StreamPriority priority);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_on_device(void* to, const void* from, std::size_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;

  // The handle, with the stream's device made the calling thread's.
  cudaStream_t native();
  // What a library keeps for this stream; ends with it.
  std::shared_ptr<void>& cublas_state() noexcept { return cublas_state_; }
  void set_deferred(Deferred* deferred) noexcept { deferred_ = deferred; }

 private:
  void flush();
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const void* host, const char* name);
  int device_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<void> cublas_state_;
  Deferred* deferred_ = nullptr;
};

CudaStream& cuda_stream(Stream& stream);

}  // namespace bankml::cuda
