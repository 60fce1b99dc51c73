#include "bankml/base/error.hpp"
#include "gpu/device/cuda_probes.hpp"

namespace bankml::gpu {

void run_cuda_probe(int, Stream&, std::uint32_t*, const std::uint32_t*) {
  throw Error(ErrorKind::device, "this build has no CUDA backend");
}

}  // namespace bankml::gpu
