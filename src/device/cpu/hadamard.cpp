#include "device/cpu/hadamard.hpp"

#include <cmath>

namespace bankml {

void walsh_hadamard(float* x, int n, int width) noexcept {
  if (width == 0) return;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (int i = 0; i < n; ++i) x[i] *= scale;
  for (int length = 1; length < width; length *= 2) {
    for (int first = 0; first < n; first += 2 * length) {
      for (int i = first; i < first + length; ++i) {
        const float u = x[i], v = x[i + length];
        x[i] = u + v;
        x[i + length] = u - v;
      }
    }
  }
}

}  // namespace bankml
