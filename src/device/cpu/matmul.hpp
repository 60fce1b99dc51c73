#pragma once
#include <span>

#include "bankml/device/ops.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/thread_pool.hpp"

namespace bankml {

// Ops::matmul() with the kernels given.
void multiply(ThreadPool& pool, const Kernels& kernels, std::span<const MatmulOutput> outputs, const CpuActivation& a,
              int rows);

}  // namespace bankml
