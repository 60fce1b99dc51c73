// What stands for the vendor's library on the host device, where HostOptions::cublas says that there is one.
#include "device/cuda/library_matmul.hpp"

#include <cmath>

#include "host_stream.hpp"

namespace bankml::host {
namespace {

template <class T>
float widen(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_float(x);
  }
}

template <class T>
void multiply(float* out, const T* w, const T* a, int rows, std::int64_t outputs, std::int64_t k, ProductUse use) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum = std::fma(widen(w[o * k + i]), widen(a[r * k + i]), sum);
      float& to = out[r * outputs + o];
      to = use.add ? use.scale * sum + to : use.scale * sum;
    }
  }
}

}  // namespace

bool library_matmul(Stream& stream, DType type, float* out, const void* w, const void* a, int rows,
                    std::int64_t outputs, std::int64_t k, ProductUse use) {
  HostStream& host = host_stream(stream);
  if (!host.runtime().options().cublas) return false;
  const auto queue = [&]<class T>() {
    host.run([=] { multiply(out, static_cast<const T*>(w), static_cast<const T*>(a), rows, outputs, k, use); });
  };
  if (type == DType::f32) queue.template operator()<float>();
  if (type == DType::f16) queue.template operator()<half>();
  if (type == DType::bf16) queue.template operator()<bfloat16>();
  return true;
}

}  // namespace bankml::host
