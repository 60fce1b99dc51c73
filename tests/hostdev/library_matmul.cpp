// The host device has no library for matrix products.
#include "device/cuda/library_matmul.hpp"

namespace bankml::host {

bool library_matmul(Stream&, DType, float*, const void*, const void*, int, std::int64_t, std::int64_t) {
  return false;
}

}  // namespace bankml::host
