#include <algorithm>
#include <cmath>

#include "device/cpu/ops.hpp"

namespace bankml {

void CpuOps::scale_softcap(Stream&, float* x, std::int64_t n, float scale, float cap) {
  if (scale == 1.0f && cap == 0.0f) return;
  constexpr std::int64_t kChunk = 4096;
  const float inverse = 1.0f / cap;
  pool_.for_each((n + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(n, (chunk + 1) * kChunk);
    for (std::int64_t i = chunk * kChunk; i < end; ++i) {
      if (scale != 1.0f) x[i] = x[i] * scale;
      if (cap != 0.0f) x[i] = std::tanh(x[i] * inverse) * cap;
    }
  });
}

}  // namespace bankml
