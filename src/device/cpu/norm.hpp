#pragma once
#include "device/cpu/float_kernels.hpp"

namespace bankml {

// RMS norm of each of (heads, head_dim) by itself, times weight (head_dim); out may be x.
void rms_norm_heads(const FloatKernels& kernel, float* out, const float* x, const float* weight, int heads,
                    int head_dim, float eps);

}  // namespace bankml
