#include "device/cuda/runtime/stream.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "device/cuda/runtime/status.hpp"

namespace bankml::cuda {
namespace {

// CUDA copies so much from pageable memory to a buffer of its own before the call returns.
constexpr std::size_t kStagedBytes = 64 * 1024;

// Memory that isn't pinned turns a copy into a wait of the host: a mistake, not a slow path.
void check_pinned(const void* host, std::size_t bytes, const char* name) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, host), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeHost) return;
  throw Error(ErrorKind::internal, fmt::format("{} of {} bytes with host memory that isn't pinned", name, bytes));
}

// CUDA counts downwards from the least priority, which is that of a stream without one. Of the current device.
int native_priority(StreamPriority priority) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  switch (priority) {
    case StreamPriority::low:
      return least;
    case StreamPriority::normal:
      return (least + greatest) / 2;
    case StreamPriority::high:
      return greatest;
  }
  return least;
}

}  // namespace

CudaEvent::CudaEvent(int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

// An error is wait()'s to tell.
bool CudaEvent::ready() const {
  return cudaEventQuery(event_) != cudaErrorNotReady;
}

void CudaEvent::wait() const {
  check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

CudaStream::CudaStream(int device, StreamPriority priority) : device_(device) {
  check(cudaSetDevice(device_), "cudaSetDevice");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, native_priority(priority)), "cudaStreamCreate");
}

CudaStream::~CudaStream() {
  try {
    flush();
  } catch (const std::exception& error) {
    log_error("at the end of a CUDA stream: {}", error.what());
  }
  cudaStreamSynchronize(stream_);  // what is queued may use memory that is about to be freed
  cublas_state_.reset();
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaStream::native() {
  check(cudaSetDevice(device_), "cudaSetDevice");
  return stream_;
}

void CudaStream::flush() {
  if (Deferred* const deferred = std::exchange(deferred_, nullptr)) deferred->flush(*this);
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const void* host,
                      const char* name) {
  if (bytes == 0) return;
  flush();
  if (host && bytes > kStagedBytes) check_pinned(host, bytes, name);
  const cudaError_t code = cudaMemcpyAsync(to, from, bytes, kind, native());
  if (code != cudaSuccess) check(code, fmt::format("{} of {} bytes", name, bytes));
}

void CudaStream::copy_to_device(void* device, const void* host, std::size_t bytes) {
  copy(device, host, bytes, cudaMemcpyHostToDevice, host, "copy_to_device");
}

void CudaStream::copy_to_host(void* host, const void* device, std::size_t bytes) {
  copy(host, device, bytes, cudaMemcpyDeviceToHost, host, "copy_to_host");
}

void CudaStream::copy_on_device(void* to, const void* from, std::size_t bytes) {
  copy(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr, "copy_on_device");
}

void CudaStream::record(Event& event) {
  flush();
  auto& cuda_event = dynamic_cast<CudaEvent&>(event);
  check(cudaEventRecord(cuda_event.event_, native()), "cudaEventRecord");
  cuda_event.recorded_ = true;
}

void CudaStream::wait(const Event& event) {
  flush();
  const auto& cuda_event = dynamic_cast<const CudaEvent&>(event);
  if (!cuda_event.recorded_) throw Error(ErrorKind::internal, "a stream waits for an event that was never recorded");
  check(cudaStreamWaitEvent(native(), cuda_event.event_), "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  std::exception_ptr refused;
  try {
    flush();
  } catch (const Error&) {
    refused = std::current_exception();
  }
  check(cudaStreamSynchronize(stream_), "the work of a CUDA stream");
  if (refused) std::rethrow_exception(refused);
}

CudaStream& cuda_stream(Stream& stream) {
  if (auto* const cuda = dynamic_cast<CudaStream*>(&stream)) return *cuda;
  throw Error(ErrorKind::internal, "the CUDA backend was given a stream of another device");
}

}  // namespace bankml::cuda
