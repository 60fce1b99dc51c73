#include "gpu/device/cuda_probes.hpp"

#include "tests/gpu/wrappers.hpp"

namespace bankml::gpu {

void run_cuda_probe(int index, Stream& stream, std::uint32_t* out, const std::uint32_t* in) {
  int count = 0;
  cuda::probes(count)[index].run(stream, out, in);
}

}  // namespace bankml::gpu
