#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "bankml/base/error.hpp"
#include "bankml/device/cuda.hpp"
#include "bankml/device/stream_priority.hpp"
#include "device/cpu/memory.hpp"
#include "device/cuda/backend.hpp"
#include "device/cuda/runtime/status.hpp"
#include "device/cuda/runtime/stream.hpp"

namespace bankml {
namespace cuda {
namespace {

constexpr int kLeastCapability = 80;  // cp.async, and mma with 32 int8 or 16 half elements of k
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
// From this size on, memory is mapped in huge pages and then pinned: 1.0 to 1.5 s for 8 GiB, against 2.7 s by
// cudaHostAlloc.
constexpr std::size_t kMappedBytes = std::size_t{16} << 20;

// Without a driver the count is left as it was: only the code tells.
std::string probe(int& count) {
  const cudaError_t code = cudaGetDeviceCount(&count);
  switch (code) {
    case cudaSuccess:
      return count > 0 ? std::string() : "no CUDA device";
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no CUDA driver is installed";
      return fmt::format("the CUDA driver is too old: it serves CUDA {}.{}, this build needs {}.{}", driver / 1000,
                         driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    case cudaErrorStubLibrary:
      return "the CUDA driver in the library path is the stub for linking";
    case cudaErrorNoDevice:
      return "the CUDA driver finds no device";
    default:
      return fmt::format("the CUDA driver can't be used: {} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
  }
}

CudaDeviceInfo describe(int index, bool with_free_memory) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  std::size_t free = 0, total = 0;
  if (with_free_memory) {
    check(cudaSetDevice(index), "cudaSetDevice");
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  }
  return {index, properties.name, properties.major * 10 + properties.minor, properties.totalGlobalMem, free};
}

class CudaDevice final : public Device, public PrioritizesStreams, public LimitsShapes {
 public:
  explicit CudaDevice(const CudaDeviceInfo& info) : info_(info) {
    use();
    if (cudaDeviceGetAttribute(&numa_node_, cudaDevAttrHostNumaId, info.index) != cudaSuccess) {
      (void)cudaGetLastError();  // only a hint is lost
      numa_node_ = kNoNumaNode;
    }
    ops_ = make_ops(*this);
  }

  std::string description() const override {
    return fmt::format("CUDA {}, {}, compute capability {}.{}, {:.1f} GiB", info_.index, info_.name,
                       info_.capability / 10, info_.capability % 10, static_cast<double>(info_.total_bytes) / kGiB);
  }
  bool shares_host_memory() const noexcept override { return false; }

  Buffer allocate(std::size_t bytes) override {
    use();
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
    if (code == cudaErrorMemoryAllocation) refuse_memory(bytes);
    check(code, "cudaMalloc");
    return Buffer(
        data, bytes, [](void* p, std::size_t, void*) { cudaFree(p); }, nullptr);
  }

  Buffer allocate_host(std::size_t bytes) override {
    use();
    if (bytes >= kMappedBytes) return pin_mapping(bytes, numa_node_);
    void* data = nullptr;
    const cudaError_t code = cudaHostAlloc(&data, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable);
    if (code != cudaSuccess) check(code, fmt::format("pinning {} bytes of host memory", bytes));
    return Buffer(
        data, bytes, [](void* p, std::size_t, void*) { cudaFreeHost(p); }, nullptr);
  }

  std::unique_ptr<Stream> make_stream() override { return make_stream_of(StreamPriority::normal); }
  std::unique_ptr<Stream> make_stream_of(StreamPriority priority) override {
    return std::make_unique<CudaStream>(info_.index, priority);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(info_.index); }
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
    return cuda::make_activation(*this, max_rows, dim, formats);
  }
  std::unique_ptr<ExpertChoice> make_expert_choice(int max_rows, int experts, int used) override {
    return cuda::make_expert_choice(*this, max_rows, experts, used);
  }
  ShapeLimits shape_limits() const noexcept override { return cuda::shape_limits(); }
  Ops& ops() noexcept override { return *ops_; }

 private:
  // Pinning touches the pages, so where they shall lie is said before.
  static Buffer pin_mapping(std::size_t bytes, int numa_node) {
    Buffer mapping = allocate_memory(bytes);
    prefer_numa_node(mapping, numa_node);
    const cudaError_t code = cudaHostRegister(mapping.data(), bytes, cudaHostRegisterPortable);
    if (code != cudaSuccess) check(code, fmt::format("pinning {} bytes of host memory", bytes));
    std::byte* const data = mapping.data();
    const auto unpin = [](void* pinned, std::size_t, void* owner) {
      cudaHostUnregister(pinned);
      delete static_cast<Buffer*>(owner);
    };
    return Buffer(data, bytes, unpin, new Buffer(std::move(mapping)));
  }

  // Each host thread has a current device; another one's memory would come from a second context of some 600 MiB.
  void use() const { check(cudaSetDevice(info_.index), "cudaSetDevice"); }

  [[noreturn]] void refuse_memory(std::size_t bytes) const {
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw Error(ErrorKind::out_of_memory,
                fmt::format("can't allocate {} bytes of device memory: {} of {} are free", bytes, free, total));
  }

  CudaDeviceInfo info_;
  int numa_node_ = kNoNumaNode;  // of the host memory next to the device
  std::unique_ptr<Ops> ops_;
  WeightLoaderPtr loader_;
};

}  // namespace
}  // namespace cuda

CudaDevices find_cuda_devices(bool with_free_memory) {
  CudaDevices found;
  int count = 0;
  found.reason = cuda::probe(count);
  if (!found.reason.empty()) return found;
  for (int i = 0; i < count; ++i) {
    CudaDeviceInfo info = cuda::describe(i, with_free_memory);
    if (info.capability < cuda::kLeastCapability) {
      found.reason = fmt::format("{} has compute capability {}.{}, {}.{} is needed", info.name, info.capability / 10,
                                 info.capability % 10, cuda::kLeastCapability / 10, cuda::kLeastCapability % 10);
      continue;
    }
    found.devices.push_back(std::move(info));
  }
  if (!found.devices.empty()) found.reason.clear();
  return found;
}

std::size_t free_cuda_memory(int index) {
  cuda::check(cudaSetDevice(index), "cudaSetDevice");
  std::size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  const CudaDevices found = find_cuda_devices();
  for (const CudaDeviceInfo& info : found.devices) {
    if (info.index == index) return std::make_unique<cuda::CudaDevice>(info);
  }
  throw Error(ErrorKind::device,
              found.devices.empty()
                  ? found.reason
                  : fmt::format("there is no usable CUDA device {}: {} found, from 0", index, found.devices.size()));
}

}  // namespace bankml
