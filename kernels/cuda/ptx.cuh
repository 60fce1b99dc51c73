#pragma once
// Instructions that CUDA C++ has no function for, one wrapper each, for nvcc (PTX ISA, sections named by the
// instruction). Fragments: kernels/launch_shape.hpp. All lanes of a warp take part in mma and ldmatrix.
#include "device.cuh"

namespace bankml::cuda {

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes from device to shared memory, both aligned to 16, without waiting: the target is undefined until
// cp_async_wait(). With fewer `bytes`, a multiple of 4, the rest of the 16 is zeroed and not read.
__device__ __forceinline__ void cp_async_16(void* shared, const void* source, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(source), "r"(bytes)
               : "memory");
}
// Closes the group of the copies that this thread issued since the last one.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the kPending youngest groups of this thread are under way. Other threads see the data after a
// barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// C + A B with int8 operands, exact (modulo 2^32).
__device__ __forceinline__ MmaInt mma_m16n8k32_s8(const MmaA& a, const MmaB& b, const MmaInt& c) {
  MmaInt d;
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=r"(d.x[0]), "=r"(d.x[1]), "=r"(d.x[2]), "=r"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]), "r"(c.x[0]), "r"(c.x[1]),
        "r"(c.x[2]), "r"(c.x[3]));
  return d;
}

// C + A B with 16-bit operands and f32 accumulators; the order of the additions is the hardware's.
__device__ __forceinline__ MmaFloat mma_m16n8k16_f16(const MmaA& a, const MmaB& b, const MmaFloat& c) {
  MmaFloat d;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=f"(d.x[0]), "=f"(d.x[1]), "=f"(d.x[2]), "=f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]), "f"(c.x[0]), "f"(c.x[1]),
        "f"(c.x[2]), "f"(c.x[3]));
  return d;
}
__device__ __forceinline__ MmaFloat mma_m16n8k16_bf16(const MmaA& a, const MmaB& b, const MmaFloat& c) {
  MmaFloat d;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, "
      "%13};"
      : "=f"(d.x[0]), "=f"(d.x[1]), "=f"(d.x[2]), "=f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]), "f"(c.x[0]), "f"(c.x[1]),
        "f"(c.x[2]), "f"(c.x[3]));
  return d;
}

// Lane l names row l % 8 (16 bytes, aligned to 16) of matrix l / 8 in shared memory. Register i holds of matrix i the
// elements (lane / 4, 2 (lane % 4)) and the one to its right; transposed: (2 (lane % 4), lane / 4) and the one below.
__device__ __forceinline__ Matrices4 ldmatrix_x4(const void* shared_row) {
  Matrices4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.x[0]), "=r"(m.x[1]), "=r"(m.x[2]), "=r"(m.x[3])
               : "r"(shared_address(shared_row))
               : "memory");
  return m;
}
__device__ __forceinline__ Matrices4 ldmatrix_x4_trans(const void* shared_row) {
  Matrices4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.x[0]), "=r"(m.x[1]), "=r"(m.x[2]), "=r"(m.x[3])
               : "r"(shared_address(shared_row))
               : "memory");
  return m;
}
// Two matrices: the rows are named by lanes 0 to 15.
__device__ __forceinline__ Matrices2 ldmatrix_x2(const void* shared_row) {
  Matrices2 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(m.x[0]), "=r"(m.x[1])
               : "r"(shared_address(shared_row))
               : "memory");
  return m;
}

// 16 bytes that are read once: they needn't displace others in the caches.
__device__ __forceinline__ uint4 load_streaming(const uint4* p) {
  return __ldcs(p);
}

// Under programmatic launch: waits until the kernels before this one in the stream have finished.
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace bankml::cuda
