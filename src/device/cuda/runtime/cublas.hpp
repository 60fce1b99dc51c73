#pragma once
// The few functions of cuBLAS that are used, found in the installed library at run time: it is 600 MB with what it
// needs, and most shapes have kernels of ours.
#include <cuda_runtime_api.h>

#include <cstddef>

namespace bankml::cuda {

// Names and values of the library's C interface, version 13 (cuBLAS documentation, "cublasGemmEx" and the types it
// names).
struct CublasContext;
using CublasHandle = CublasContext*;
using CublasStatus = int;

inline constexpr CublasStatus kCublasSuccess = 0;
inline constexpr int kOpNone = 0, kOpTranspose = 1;
inline constexpr int kComputeF32 = 68;
inline constexpr int kGemmDefault = -1;

struct Cublas {
  CublasStatus (*create)(CublasHandle*) = nullptr;
  CublasStatus (*destroy)(CublasHandle) = nullptr;
  CublasStatus (*set_stream)(CublasHandle, cudaStream_t) = nullptr;
  CublasStatus (*set_workspace)(CublasHandle, void*, std::size_t) = nullptr;
  CublasStatus (*gemm)(CublasHandle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                       int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c,
                       int ldc, int compute, int algorithm) = nullptr;
  const char* (*status_text)(CublasStatus) = nullptr;
};

// Opens the library at the first call (50 to 280 ms). nullptr where it isn't installed or lacks a function: one log
// line.
const Cublas* find_cublas();

}  // namespace bankml::cuda
