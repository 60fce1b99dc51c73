#include "bankml/base/error.hpp"
#include "tensor_peak/tensor_peak.hpp"

namespace bankml::bench {

void cuda_tensor_products(Stream&, TensorType, std::uint32_t*, int, int) {
  throw Error(ErrorKind::device, "this build has no CUDA backend");
}

}  // namespace bankml::bench
