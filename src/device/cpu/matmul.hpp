#pragma once
#include <span>

#include "bankml/device/ops.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/thread_pool.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {

// The job of one matrix of `weight` with the rows of `a` from `first` on; its output is left to the caller.
MatmulJob make_job(const CpuWeight& weight, std::int64_t expert, const CpuActivation& a, std::int64_t first) noexcept;
MatmulKernel matmul_kernel(const Kernels& kernels, const CpuWeight& weight);

// Ops::matmul() with the kernels given.
void multiply(ThreadPool& pool, const Kernels& kernels, std::span<const MatmulOutput> outputs, const CpuActivation& a,
              int rows);

}  // namespace bankml
