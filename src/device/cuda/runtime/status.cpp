#include "device/cuda/runtime/status.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/device/cuda.hpp"

namespace bankml::cuda {
namespace {

// The context is gone: every later call gives the same code. Asked of the runtime and not read from a list of codes,
// which grows. Destructors are skipped: they would wait for the device.
void end_if_lost(cudaError_t code, const std::string& what) {
  (void)cudaGetLastError();  // forgets a code that isn't kept
  if (cudaStreamQuery(cudaStreamPerThread) != code) return;
  log_error("the CUDA device is lost, bankmld ends: {}", what);
  std::_Exit(kDeviceLostStatus);
}

}  // namespace

void check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return;
  const std::string what = fmt::format("{}: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code));
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error(ErrorKind::out_of_memory, what);
  }
  end_if_lost(code, what);
  throw Error(ErrorKind::device, what);
}

}  // namespace bankml::cuda
