#pragma once
// The CUDA backend, where the build has it: which devices the machine offers, and one of them as a Device.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bankml/device/device.hpp"

namespace bankml {

struct CudaDeviceInfo {
  int index = 0;  // N of --device cuda:N
  std::string name;
  int capability = 0;  // 90 for compute capability 9.0
  std::size_t total_bytes = 0, free_bytes = 0;
};

struct CudaDevices {
  std::vector<CudaDeviceInfo> devices;
  std::string reason;  // why there is none, for a log line; "" if there is one
};

// Costs nothing where no driver is installed. Never throws for what a machine lacks. `with_free_memory`: fills in
// free_bytes, which costs some hundred MiB on every device while the process lives.
CudaDevices find_cuda_devices(bool with_free_memory = false);

// Throws Error(device) with the reason if there is no such device or it is too old. An error that the device can't
// recover from ends the process later, with a log line and status kDeviceLostStatus.
std::unique_ptr<Device> make_cuda_device(int index);

// Bytes that are free on it now. Throws Error(device).
std::size_t free_cuda_memory(int index);

inline constexpr int kDeviceLostStatus = 69;  // EX_UNAVAILABLE of sysexits.h

}  // namespace bankml
