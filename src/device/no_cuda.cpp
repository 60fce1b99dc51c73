// In place of the CUDA backend where the build has no CUDA compiler.
#include "bankml/base/error.hpp"
#include "bankml/device/cuda.hpp"

namespace bankml {
namespace {

constexpr const char* kReason = "this build has no CUDA backend";

}  // namespace

CudaDevices find_cuda_devices(bool) {
  return {{}, kReason};
}

std::size_t free_cuda_memory(int) {
  throw Error(ErrorKind::unsupported, kReason);
}

std::unique_ptr<Device> make_cuda_device(int) {
  throw Error(ErrorKind::unsupported, kReason);
}

}  // namespace bankml
