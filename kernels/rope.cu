// RoPE (Su et al. 2021), fused with what stands around it: norm of heads before, the rotation of a quantised cache and
// the store after. A warp takes a head.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"
#include "kv_cells.cuh"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// The powers of the base are iterated products, as on the CPU (docs/arithmetic.md, 2.6). Sines are the accurate ones:
// the peer's CUDA backend takes fast ones, which are off by 1e-4 at positions of thousands.
__global__ void __launch_bounds__(kThreads) rope_angles(RopeTableArgs args) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.rows * args.pairs) return;
  const int row = i / args.pairs, pair = i % args.pairs;
  float theta = static_cast<float>(args.position[row]);
  for (int k = 0; k < pair; ++k) theta *= args.step;
  const float extrapolated = theta / args.factor[pair];
  float angle = args.freq_scale * extrapolated;
  if (args.ext_factor != 0.0f) {
    const float ramp = (static_cast<float>(pair) - args.low) / fmaxf(0.001f, args.high - args.low);
    const float mix = (1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f)) * args.ext_factor;
    angle = fmaf(angle, 1.0f - mix, extrapolated * mix);
  }
  args.table[2 * i] = cosf(angle) * args.magnitude;
  args.table[2 * i + 1] = sinf(angle) * args.magnitude;
}

// A head in shared memory, worked on by one warp. Each step ends with a warp barrier.
struct Head {
  float* x;
  int dim, lane;

  __device__ void load(const float* from) const {
    for (int i = lane; i < dim; i += 32) x[i] = from[i];
    __syncwarp();
  }
  __device__ void store(float* to) const {
    for (int i = lane; i < dim; i += 32) to[i] = x[i];
  }
  __device__ void norm(const float* weight, float eps) const {
    double sum = 0;
    for (int i = lane; i < dim; i += 32) sum += static_cast<double>(x[i] * x[i]);
    sum = warp_sum(sum);
    const float factor = 1.0f / sqrtf(static_cast<float>(sum / dim) + eps);
    for (int i = lane; i < dim; i += 32) x[i] = x[i] * factor * weight[i];
    __syncwarp();
  }
  // `table`: cosine and sine of each pair.
  __device__ void rotate(const float* table, Rotation rotation, int n_rot) const {
    if (rotation == Rotation::none) return;
    for (int pair = lane; pair < n_rot / 2; pair += 32) {
      const int a = rotation == Rotation::adjacent ? 2 * pair : pair;
      const int b = rotation == Rotation::adjacent ? 2 * pair + 1 : pair + n_rot / 2;
      const float cosine = table[2 * pair], sine = table[2 * pair + 1], u = x[a], v = x[b];
      x[a] = fmaf(u, cosine, -(v * sine));
      x[b] = fmaf(u, sine, v * cosine);
    }
    __syncwarp();
  }
  __device__ void scale(float factor) const {
    if (factor == 1.0f) return;
    for (int i = lane; i < dim; i += 32) x[i] *= factor;
    __syncwarp();
  }
  // Each `width` elements times the orthonormal Walsh-Hadamard matrix.
  __device__ void walsh_hadamard(int width) const {
    if (width == 0) return;
    scale(1.0f / sqrtf(static_cast<float>(width)));
    for (int stride = 1; stride < width; stride *= 2) {
      for (int i = lane; i < dim / 2; i += 32) {
        const int a = i / stride * 2 * stride + i % stride, b = a + stride;
        const float u = x[a], v = x[b];
        x[a] = u + v;
        x[b] = u - v;
      }
      __syncwarp();
    }
  }
  // Rounds to the cache's type.
  __device__ void store_cell(std::byte* to, DType type) const {
    if (type == DType::f32) {
      store(reinterpret_cast<float*>(to));
    } else if (type == DType::f16) {
      for (int i = lane; i < dim; i += 32) reinterpret_cast<half*>(to)[i] = to_half(x[i]);
    } else {
      for (int block = 0; block < dim / kQ8Block; ++block) {
        const float value = x[block * kQ8Block + lane];
        const float most = warp_max(fabsf(value));
        std::byte* at = to + block * kQ8BlockBytes;
        if (lane == 0) *reinterpret_cast<half*>(at) = to_half(most / 127.0f);
        reinterpret_cast<std::int8_t*>(at)[2 + lane] =
            static_cast<std::int8_t>(__float2int_rn(value * quotient(127.0f, most)));
      }
    }
  }
  __device__ void load_cell(const std::byte* from, DType type) const {
    for (int i = lane; i < dim; i += 32) x[i] = cell_value(from, type, i);
    __syncwarp();
  }
};

// Heads of q, then of k, then of v.
__global__ void __launch_bounds__(kThreads) rope_store_heads(RopeStoreLaunch args, KvView kv) {
  DYNAMIC_SHARED(float, memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = blockIdx.y;
  int head = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (head >= args.heads + 2 * kv.kv_heads) return;
  float* x = memory + warp * (kv.head_dim_k > kv.head_dim_v ? kv.head_dim_k : kv.head_dim_v);
  const float* table = args.table + row * args.n_rot;
  if (head < args.heads) {
    const Head h{x, kv.head_dim_k, lane};
    float* q = args.q + (row * args.heads + head) * kv.head_dim_k;
    h.load(q);
    if (args.q_norm) h.norm(args.q_norm, args.norm_eps);
    h.rotate(table, args.rotation, args.n_rot);
    h.scale(args.q_scale);
    h.walsh_hadamard(kv.key_rotation);
    h.store(q);
    return;
  }
  head -= args.heads;
  const std::int32_t cell = kv.cell[row];
  std::byte* block = kv.blocks[kv.sequence[row] * kv.blocks_stride + cell / kCellsPerBlock];
  if (head < kv.kv_heads) {
    const Head h{x, kv.head_dim_k, lane};
    h.load(args.k + (row * kv.kv_heads + head) * kv.head_dim_k);
    if (args.k_norm) h.norm(args.k_norm, args.norm_eps);
    h.rotate(table, args.rotation, args.n_rot);
    h.walsh_hadamard(kv.key_rotation);
    h.store_cell(k_cells(kv, block, head) + cell % kCellsPerBlock * cell_bytes(kv.type_k, kv.head_dim_k), kv.type_k);
  } else {
    head -= kv.kv_heads;
    const Head h{x, kv.head_dim_v, lane};
    h.load(args.v + (row * kv.kv_heads + head) * kv.head_dim_v);
    h.walsh_hadamard(kv.value_rotation);
    h.store_cell(v_cells(kv, block, head) + cell % kCellsPerBlock * cell_bytes(kv.type_v, kv.head_dim_v), kv.type_v);
  }
}

// In single precision, whatever the cache holds; a quantised cache in front of its rotation, which is its own inverse.
__global__ void __launch_bounds__(kThreads) rotate_cells(RotateKeysLaunch args, KvView kv) {
  DYNAMIC_SHARED(float, memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (head >= kv.kv_heads) return;
  const std::int32_t cell = args.cells[blockIdx.x];
  std::byte* at = k_cells(kv, args.blocks[cell / kCellsPerBlock], head) +
                  cell % kCellsPerBlock * cell_bytes(kv.type_k, kv.head_dim_k);
  const Head h{memory + warp * kv.head_dim_k, kv.head_dim_k, lane};
  h.load_cell(at, kv.type_k);
  h.walsh_hadamard(kv.key_rotation);
  h.rotate(args.table, args.rotation, args.n_rot);
  h.walsh_hadamard(kv.key_rotation);
  h.store_cell(at, kv.type_k);
}

}  // namespace

void rope_table(Stream& stream, const RopeTableArgs& args) {
  launch(rope_angles, {.grid = (args.rows * args.pairs + kThreads - 1) / kThreads, .block = kThreads}, stream, args);
}

void rope_store(Stream& stream, const RopeStoreLaunch& args, const KvView& kv) {
  const int heads = args.heads + 2 * kv.kv_heads;
  const int dim = kv.head_dim_k > kv.head_dim_v ? kv.head_dim_k : kv.head_dim_v;
  launch(
      rope_store_heads,
      {.grid = {(heads + kWarps - 1) / kWarps, args.rows}, .block = kThreads, .shared = kWarps * dim * sizeof(float)},
      stream, args, kv);
}

void rotate_keys(Stream& stream, const RotateKeysLaunch& args, const KvView& kv) {
  launch(rotate_cells,
         {.grid = {args.n, (kv.kv_heads + kWarps - 1) / kWarps},
          .block = kThreads,
          .shared = kWarps * kv.head_dim_k * sizeof(float)},
         stream, args, kv);
}

}  // namespace KERNEL_NAMESPACE
