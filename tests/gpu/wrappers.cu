#include "tests/gpu/wrappers.hpp"

#include "device.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kUsed = 8;  // words that a probe writes; the rest stay as they are

// A float near 1 that a word stands for.
__device__ inline float float_of(std::uint32_t word) {
  return static_cast<float>(static_cast<int>(word % 4001) - 2000) / 512.0f;
}
// Small integers: products and sums of theirs are exact in every order.
__device__ inline float small_of(std::uint32_t word) {
  return static_cast<float>(static_cast<int>(word % 9) - 4);
}

template <class F>
__global__ void __launch_bounds__(32) probe(std::uint32_t* out, const std::uint32_t* in) {
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t words[kUsed] = {};
  F::run(in + lane * kProbeWords, words, lane);
  for (int i = 0; i < kUsed; ++i) out[lane * kProbeWords + i] = words[i];
}

template <class F>
void run_probe(Stream& stream, std::uint32_t* out, const std::uint32_t* in) {
  launch(probe<F>, {.grid = 1, .block = 32}, stream, out, in);
}

struct MmaS8 {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    MmaA a;
    MmaB b;
    MmaInt c;
    for (int i = 0; i < 4; ++i) a.x[i] = in[i];
    for (int i = 0; i < 2; ++i) b.x[i] = in[4 + i];
    for (int i = 0; i < 4; ++i) c.x[i] = static_cast<std::int32_t>(in[6 + i]) >> 8;
    const MmaInt d = mma_m16n8k32_s8(a, b, c);
    for (int i = 0; i < 4; ++i) out[i] = static_cast<std::uint32_t>(d.x[i]);
  }
};

template <bool kHalf>
struct MmaFloats {
  __device__ static std::uint32_t pair(std::uint32_t word) {
    const float low = small_of(word), high = small_of(word >> 8);
    if constexpr (kHalf) return float2_to_half2(low, high);
    return to_bfloat16(low).bits | static_cast<std::uint32_t>(to_bfloat16(high).bits) << 16;
  }
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    MmaA a;
    MmaB b;
    MmaFloat c, d;
    for (int i = 0; i < 4; ++i) a.x[i] = pair(in[i]);
    for (int i = 0; i < 2; ++i) b.x[i] = pair(in[4 + i]);
    for (int i = 0; i < 4; ++i) c.x[i] = small_of(in[6 + i]);
    if constexpr (kHalf) {
      d = mma_m16n8k16_f16(a, b, c);
    } else {
      d = mma_m16n8k16_bf16(a, b, c);
    }
    for (int i = 0; i < 4; ++i) out[i] = __float_as_uint(d.x[i]);
  }
};

struct alignas(16) Rows {
  std::uint32_t word[32][4];  // one of the 32 rows of 16 bytes that four matrices have
};

template <int kMatrices, bool kTransposed>
struct LoadMatrices {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int lane) {
    SHARED(Rows, rows);
    for (int i = 0; i < 4; ++i) rows.word[lane][i] = in[i];
    __syncwarp();
    if constexpr (kMatrices == 2) {
      const Matrices2 m = ldmatrix_x2(rows.word[lane % 16]);
      for (int i = 0; i < 2; ++i) out[i] = m.x[i];
    } else {
      Matrices4 m;
      if constexpr (kTransposed) {
        m = ldmatrix_x4_trans(rows.word[lane]);
      } else {
        m = ldmatrix_x4(rows.word[lane]);
      }
      for (int i = 0; i < 4; ++i) out[i] = m.x[i];
    }
  }
};

struct AsyncCopy {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int lane) {
    SHARED(Rows, rows);
    cp_async_16(rows.word[lane], in, lane % 5 * 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    for (int i = 0; i < 4; ++i) out[i] = rows.word[(lane + 1) % 32][i];
    const uint4 v = load_streaming(reinterpret_cast<const uint4*>(in));
    out[4] = v.x;
    out[5] = v.y;
    out[6] = v.z;
    out[7] = v.w;
  }
};

struct WarpSums {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    const float x = float_of(in[0]);
    out[0] = __float_as_uint(warp_sum(x));
    out[1] = __float_as_uint(warp_sum<8>(x));
    out[2] = __float_as_uint(warp_sum<4>(x));
    out[3] = __float_as_uint(warp_max(x));
    out[4] = __float_as_uint(warp_max<4>(x));
    out[5] = static_cast<std::uint32_t>(warp_sum(static_cast<int>(in[1] >> 8)));
    out[6] = __float_as_uint(static_cast<float>(warp_sum(static_cast<double>(x) * 1e-3)));
  }
};

struct Exchanges {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int lane) {
    out[0] = __shfl_sync(kAllLanes, in[0], (lane * 7 + 3) % 32);
    out[1] = __shfl_xor_sync(kAllLanes, in[1], 5);
    out[2] = __ballot_sync(kAllLanes, in[2] & 1);
    out[3] = static_cast<std::uint32_t>(__ffs(static_cast<int>(in[3])));
    out[4] = static_cast<std::uint32_t>(__popc(in[4]));
  }
};

struct Integers {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    out[0] = static_cast<std::uint32_t>(
        __dp4a(static_cast<int>(in[0]), static_cast<int>(in[1]), static_cast<int>(in[2] >> 4)));
    out[1] = __byte_perm(in[0], in[1], in[2]);
    out[2] = static_cast<std::uint32_t>(__float2int_rn(float_of(in[3]) * 100.5f));
  }
};

struct Conversions {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    const float x = __uint_as_float(in[0] % 0x7f800000u);  // any size, not infinite
    out[0] = to_half(x).bits;
    out[1] = to_bfloat16(x).bits;
    out[2] = __float_as_uint(to_float(half{static_cast<std::uint16_t>(in[1] % 0x7c00u)}));
    const float2 halves = half2_to_float2(in[2] & 0x7bff7bffu), wide = bfloat162_to_float2(in[3] & 0x7f7f7f7fu);
    out[3] = __float_as_uint(halves.x) ^ __float_as_uint(halves.y);
    out[4] = __float_as_uint(wide.x) ^ __float_as_uint(wide.y);
    out[5] = float2_to_half2(float_of(in[4]), float_of(in[5]));
  }
};

struct Arithmetic {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    const float x = float_of(in[0]), y = float_of(in[1]), z = float_of(in[2]);
    out[0] = __float_as_uint(x * y + z);  // two roundings
    out[1] = __float_as_uint(fmaf(x, y, z));
    out[2] = __float_as_uint(x / (fabsf(y) + 0.25f));
    out[3] = __float_as_uint(sqrtf(fabsf(z)));
    out[4] = __float_as_uint(fmaxf(x, y));
  }
};

struct Approximations {
  __device__ static void run(const std::uint32_t* in, std::uint32_t* out, int) {
    const float x = float_of(in[0]);
    out[0] = __float_as_uint(__expf(-fabsf(x)));
    out[1] = __float_as_uint(expf(x));
    out[2] = __float_as_uint(tanhf(x));
    out[3] = __float_as_uint(2.0f + cosf(x * 100.0f));
    out[4] = __float_as_uint(2.0f + sinf(x * 100.0f));
    out[5] = __float_as_uint(rsqrtf(fabsf(x) + 0.5f));
  }
};

constexpr Probe kProbes[] = {
    {"mma_m16n8k32_s8", run_probe<MmaS8>, 0},
    {"mma_m16n8k16_f16", run_probe<MmaFloats<true>>, 0},
    {"mma_m16n8k16_bf16", run_probe<MmaFloats<false>>, 0},
    {"ldmatrix_x4", run_probe<LoadMatrices<4, false>>, 0},
    {"ldmatrix_x4_trans", run_probe<LoadMatrices<4, true>>, 0},
    {"ldmatrix_x2", run_probe<LoadMatrices<2, false>>, 0},
    {"cp_async_16, load_streaming", run_probe<AsyncCopy>, 0},
    {"warp_sum, warp_max", run_probe<WarpSums>, 0},
    {"shuffles and votes", run_probe<Exchanges>, 0},
    {"dp4a, byte_perm, float2int", run_probe<Integers>, 0},
    {"half and bfloat16", run_probe<Conversions>, 0},
    {"fmaf, division, square root", run_probe<Arithmetic>, 0},
    {"exp, tanh, sine, rsqrt", run_probe<Approximations>, 2e-6},
};

}  // namespace

const Probe* probes(int& count) {
  count = static_cast<int>(sizeof kProbes / sizeof kProbes[0]);
  return kProbes;
}

}  // namespace KERNEL_NAMESPACE
