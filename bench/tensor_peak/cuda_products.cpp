#include "bench/tensor_peak/products.hpp"

namespace bankml::bench {

void cuda_tensor_products(Stream& stream, TensorType type, std::uint32_t* out, int blocks, int iterations) {
  cuda::tensor_products(stream, type, out, blocks, iterations);
}

}  // namespace bankml::bench
