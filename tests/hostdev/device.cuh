#pragma once
// What a kernel may use, for g++: the twin of kernels/cuda/device.cuh and of what nvcc knows by itself.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bankml/base/numeric.hpp"
#include "kernels/launch_shape.hpp"
#include "namespace.hpp"
#include "scheduler.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// Keyed by a static of the instantiation, like the variable of a GPU kernel.
#define SHARED(type, name)                                                             \
  static const char name##_key = 0;                                                    \
  auto& name = *static_cast<std::type_identity_t<type>*>(                              \
      ::bankml::host::shared_variable(&name##_key, sizeof(std::type_identity_t<type>), \
                                      alignof(std::type_identity_t<type>), ::bankml::host::Site::current()))

#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(::bankml::host::dynamic_shared())

namespace bankml::host {

using bankml::to_bfloat16;
using bankml::to_float;
using bankml::to_half;
using std::max;
using std::min;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline float2 half2_to_float2(std::uint32_t word) {
  return {to_float(half{static_cast<std::uint16_t>(word)}), to_float(half{static_cast<std::uint16_t>(word >> 16)})};
}
inline float2 bfloat162_to_float2(std::uint32_t word) {
  return {std::bit_cast<float>(word << 16), std::bit_cast<float>(word & 0xffff0000u)};
}
inline std::uint32_t float2_to_half2(float low, float high) {
  return to_half(low).bits | std::uint32_t{to_half(high).bits} << 16;
}

// Barriers of the block, and of the lanes of a warp.
inline void __syncthreads(Site at = Site::current()) {
  block_barrier(Reduction::none, false, at);
}
inline int __syncthreads_count(int predicate, Site at = Site::current()) {
  return block_barrier(Reduction::count, predicate != 0, at);
}
inline int __syncthreads_or(int predicate, Site at = Site::current()) {
  return block_barrier(Reduction::any, predicate != 0, at);
}
inline int __syncthreads_and(int predicate, Site at = Site::current()) {
  return block_barrier(Reduction::all, predicate != 0, at);
}
inline void __syncwarp(std::uint32_t mask = 0xffffffffu, Site at = Site::current()) {
  meet(
      "__syncwarp", mask, nullptr, nullptr, [](const Meeting&) {}, true, at);
}
inline void __threadfence(Site at = Site::current()) {
  fence(at);
}
inline void __threadfence_block(Site at = Site::current()) {
  fence(at);
}

// Atomics of integers only: the sum of floats would depend on the order.
template <class T>
concept AtomicInteger = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <AtomicInteger T, class Next>
T atomic_update(T* p, Next next, Site at) {
  if (!before_atomic(p, at)) {
    const T old = *p;
    *p = next(old);
    return old;
  }
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, next(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  after_atomic(p);
  return old;
}
template <AtomicInteger T>
T atomicAdd(T* p, std::type_identity_t<T> value, Site at = Site::current()) {
  return atomic_update(
      p, [=](T old) { return static_cast<T>(old + value); }, at);
}
template <AtomicInteger T>
T atomicExch(T* p, std::type_identity_t<T> value, Site at = Site::current()) {
  return atomic_update(
      p, [=](T) { return value; }, at);
}
template <AtomicInteger T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value, Site at = Site::current()) {
  return atomic_update(
      p, [=](T old) { return old == expected ? value : old; }, at);
}
template <AtomicInteger T>
T atomicMax(T* p, std::type_identity_t<T> value, Site at = Site::current()) {
  return atomic_update(
      p, [=](T old) { return old < value ? value : old; }, at);
}

// Integer intrinsics.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += std::int8_t(a >> (8 * i)) * std::int8_t(b >> (8 * i));
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
  return c;
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i) & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (s & 7))) & 0xff;
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;  // the sign of that byte, spread
    result |= byte << (8 * i);
  }
  return result;
}
namespace byte_lanes {
template <class F>
unsigned each(unsigned a, unsigned b, F f) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= (static_cast<unsigned>(f(std::int8_t(a >> (8 * i)), std::int8_t(b >> (8 * i)))) & 0xff) << (8 * i);
  }
  return result;
}
}  // namespace byte_lanes
// Four bytes at a time: difference and sum modulo 256, and the difference held within -128..127.
inline unsigned __vsub4(unsigned a, unsigned b) {
  return byte_lanes::each(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vadd4(unsigned a, unsigned b) {
  return byte_lanes::each(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsubss4(unsigned a, unsigned b) {
  return byte_lanes::each(a, b, [](int x, int y) { return std::clamp(x - y, -128, 127); });
}

// Bit casts and conversions.
inline int __float_as_int(float f) {
  return std::bit_cast<int>(f);
}
inline float __int_as_float(int i) {
  return std::bit_cast<float>(i);
}
inline unsigned __float_as_uint(float f) {
  return std::bit_cast<unsigned>(f);
}
inline float __uint_as_float(unsigned u) {
  return std::bit_cast<float>(u);
}
namespace rounding {
inline int to_int(float rounded) {
  if (std::isnan(rounded)) return 0;
  if (rounded >= 2147483648.0f) return std::numeric_limits<int>::max();
  if (rounded < -2147483648.0f) return std::numeric_limits<int>::min();
  return static_cast<int>(rounded);
}
}  // namespace rounding
inline int __float2int_rn(float f) {
  return rounding::to_int(std::nearbyint(f));
}
inline int __float2int_rd(float f) {
  return rounding::to_int(std::floor(f));
}
inline int __float2int_ru(float f) {
  return rounding::to_int(std::ceil(f));
}
inline int __float2int_rz(float f) {
  return rounding::to_int(std::trunc(f));
}
inline float __int2float_rn(int i) {
  return static_cast<float>(i);
}

// Approximate on a GPU, exact to the last bit or two here.
inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline void sincosf(float x, float* s, float* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}

template <class T>
T __ldg(const T* p) {
  return *p;
}

// Gives the grid to the stream: host_stream.cpp.
void enqueue_grid(Stream& stream, Grid grid);

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream& stream, Arguments&&... arguments) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  check_launch(address, shape);
  std::tuple<std::remove_cv_t<Parameters>...> copies(static_cast<Parameters>(arguments)...);
  enqueue_grid(stream, {address, shape, [kernel, copies] { std::apply(kernel, copies); }});
}

template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t bytes, Site at = Site::current()) {
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), bytes, at);
}

}  // namespace bankml::host
