// What kernels/cuda/device.cuh declares for launchers.
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "bankml/base/error.hpp"
#include "device/cuda/runtime/status.hpp"
#include "device/cuda/runtime/stream.hpp"
#include "kernels/launch_shape.hpp"

namespace bankml::cuda {
namespace {

std::string kernel_name(const void* kernel) {
  const char* symbol = nullptr;
  if (cudaFuncGetName(&symbol, kernel) != cudaSuccess || !symbol) return "a kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name ? name.get() : symbol;
}

std::string text(const LaunchExtent& e) {
  return fmt::format("({},{},{})", e.x, e.y, e.z);
}

}  // namespace

cudaStream_t native_stream(Stream& stream) {
  return cuda_stream(stream).native();
}

void check_shape(const LaunchShape& shape) {
  const auto inside = [](std::int64_t n, std::int64_t limit) { return n >= 1 && n <= limit; };
  const LaunchExtent &grid = shape.grid, &block = shape.block;
  if (inside(grid.x, kMaxGridX) && inside(grid.y, kMaxGridYZ) && inside(grid.z, kMaxGridYZ) &&
      inside(block.x, kMaxBlockThreads) && inside(block.y, kMaxBlockThreads) && inside(block.z, kMaxBlockZ) &&
      block.count() <= kMaxBlockThreads) {
    return;
  }
  throw Error(ErrorKind::device, fmt::format("no device runs a grid of {} blocks of {} threads, launched at {}:{}",
                                             text(grid), text(block), shape.at.file_name(), shape.at.line()));
}

void check_launch(cudaError_t code, const void* kernel, const LaunchShape& shape) {
  if (code == cudaSuccess) return;
  check(code, fmt::format("{}, grid {}, block {}, {} bytes of shared memory, launched at {}:{}", kernel_name(kernel),
                          text(shape.grid), text(shape.block), shape.shared, shape.at.file_name(), shape.at.line()));
}

}  // namespace bankml::cuda
