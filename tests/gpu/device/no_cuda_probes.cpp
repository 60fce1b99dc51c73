#include "bankml/base/error.hpp"
#include "gpu/device/cuda_probes.hpp"

namespace bankml::gpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::device, "this build has no CUDA backend");
}

}  // namespace

void run_cuda_probe(int, Stream&, std::uint32_t*, const std::uint32_t*) {
  refuse();
}
void cuda_int8_products(Stream&, int*, int, int) {
  refuse();
}

}  // namespace bankml::gpu
