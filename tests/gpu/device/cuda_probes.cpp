#include "gpu/device/cuda_probes.hpp"

#include "tests/gpu/wrappers.hpp"

namespace bankml::gpu {

void run_cuda_probe(int index, Stream& stream, std::uint32_t* out, const std::uint32_t* in) {
  int count = 0;
  cuda::probes(count)[index].run(stream, out, in);
}
void cuda_int8_products(Stream& stream, int* out, int blocks, int iterations) {
  cuda::int8_products(stream, out, blocks, iterations);
}

}  // namespace bankml::gpu
