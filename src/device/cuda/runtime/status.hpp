#pragma once
#include <cuda_runtime_api.h>

#include <string_view>

namespace bankml::cuda {

// Throws for a code other than success: Error(out_of_memory) or Error(device) naming the call, CUDA's name for the code
// and its explanation. A code after which the device answers nothing but errors ends the process instead: a log line,
// then kDeviceLostStatus.
void check(cudaError_t code, std::string_view call);

}  // namespace bankml::cuda
