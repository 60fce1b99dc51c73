#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "device/cpu/float_kernels.hpp"
#include "device/cpu/hadamard.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/kv_rows.hpp"
#include "device/cpu/norm.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/scratch.hpp"

namespace bankml {
namespace {

// YaRN (Peng et al. 2023; docs/architectures.md, 3.3): pairs that turn often keep their angle, slow ones are
// interpolated, with a ramp between. Of two products added, the first is fused, as everywhere in the peer's rotation.
struct Yarn {
  float low, high;  // pairs between which the ramp falls
  float ext_factor;

  explicit Yarn(const RopeParams& params) : ext_factor(params.ext_factor) {
    low = std::max(0.0f, std::floor(pair_of_turns(params, params.beta_fast)));
    high = std::min(static_cast<float>(params.n_rot - 1), std::ceil(pair_of_turns(params, params.beta_slow)));
  }
  // The pair that turns `turns` times within the original context.
  static float pair_of_turns(const RopeParams& params, float turns) {
    const float n_rot = static_cast<float>(params.n_rot), context = static_cast<float>(params.n_ctx_orig);
    return n_rot * std::log(context / (turns * 2.0f * std::numbers::pi_v<float>)) / (2.0f * std::log(params.base));
  }
  float angle(float extrapolated, float interpolated, int pair) const {
    const float ramp = (static_cast<float>(pair) - low) / std::max(0.001f, high - low);
    const float mix = (1.0f - std::clamp(ramp, 0.0f, 1.0f)) * ext_factor;
    return std::fma(interpolated, 1.0f - mix, extrapolated * mix);
  }
  static float magnitude(float freq_scale) { return std::fma(0.1f, std::log(1.0f / freq_scale), 1.0f); }
};

// The angles of one position; the powers of the base are iterated products (docs/arithmetic.md, 2.6).
void rope_row(float* table, const RopeParams& params, const Yarn& yarn, float step, std::int32_t position) {
  const bool interpolate = params.ext_factor != 0.0f;
  const float magnitude = interpolate ? params.attn_factor * Yarn::magnitude(params.freq_scale) : params.attn_factor;
  float theta = static_cast<float>(position);
  for (int pair = 0; pair < params.n_rot / 2; ++pair) {
    const float extrapolated = params.factors ? theta / params.factors[pair] : theta;
    float angle = params.freq_scale * extrapolated;
    if (interpolate) angle = yarn.angle(extrapolated, angle, pair);
    table[2 * pair] = std::cos(angle) * magnitude;
    table[2 * pair + 1] = std::sin(angle) * magnitude;
    theta *= step;
  }
}

// Where a row of `x` goes: rounded to the cache's type.
void store_row(const FloatKernels& kernel, const Kernels& quantizers, DType type, std::byte* to, const float* x, int n,
               const Q8Row& quantized) {
  if (type == DType::f16) {
    kernel.store_half(reinterpret_cast<half*>(to), x, n);
  } else if (type == DType::f32) {
    std::memcpy(to, x, static_cast<std::size_t>(n) * sizeof(float));
  } else {
    quantizers.quantize_q8(x, n, quantized);
    for (int block = 0; block < n / kQ8Block; ++block, to += kQ8BlockBytes) {
      const half scale = to_half(quantized.scale[block]);
      std::memcpy(to, &scale, sizeof scale);
      std::memcpy(to + sizeof scale, quantized.quants + block * kQ8Block, kQ8Block);
    }
  }
}

// What one row of a batch goes through on its way into the cache.
class RowStore {
 public:
  RowStore(const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch, const FloatKernels& kernel,
           const Kernels& quantizers) noexcept
      : args_(args), kv_(kv), batch_(batch), kernel_(kernel), quantizers_(quantizers) {}

  std::size_t scratch_bytes() const noexcept {
    ScratchArrays arrays;
    take(arrays);
    return arrays.bytes();
  }

  void run(std::int64_t row, std::byte* memory) const {
    ScratchArrays arrays(memory);
    const auto [x, quantized] = take(arrays);
    rotate_q(row);
    const int k_size = kv_.kv_heads * kv_.head_dim_k, v_size = kv_.kv_heads * kv_.head_dim_v;
    std::copy_n(args_.k + row * k_size, k_size, x);
    norm_and_rotate(row, x, kv_.kv_heads, args_.k_norm);
    walsh_hadamard(x, k_size, key_rotation(kv_.type_k, kv_.head_dim_k));
    const std::int32_t cell = batch_.cell[row];
    std::byte* const block = block_of(batch_, batch_.sequence[row], cell / kBlockCells);
    const int slot = static_cast<int>(cell % kBlockCells);
    for (int head = 0; head < kv_.kv_heads; ++head) {
      store_row(kernel_, quantizers_, kv_.type_k, k_row(kv_, block, head, slot), x + head * kv_.head_dim_k,
                kv_.head_dim_k, quantized);
    }
    const float* v = args_.v + row * v_size;
    const int rotation = value_rotation(kv_.type_v, kv_.head_dim_v);
    if (rotation != 0) {
      std::copy_n(v, v_size, x);
      walsh_hadamard(x, v_size, rotation);
      v = x;
    }
    for (int head = 0; head < kv_.kv_heads; ++head) {
      store_row(kernel_, quantizers_, kv_.type_v, v_row(kv_, block, head, slot), v + head * kv_.head_dim_v,
                kv_.head_dim_v, quantized);
    }
  }

 private:
  struct Memory {
    float* x;  // all KV heads
    Q8Row quantized;
  };

  Memory take(ScratchArrays& arrays) const noexcept {
    const auto dim = static_cast<std::size_t>(std::max(kv_.head_dim_k, kv_.head_dim_v));
    float* x = arrays.take<float>(dim * static_cast<std::size_t>(kv_.kv_heads));
    const std::size_t blocks = (dim + kQ8Block - 1) / kQ8Block;
    return {x,
            {arrays.take<std::int8_t>(dim), arrays.take<float>(blocks), arrays.take<float>(blocks),
             arrays.take<std::int32_t>(blocks)}};
  }

  void rotate_q(std::int64_t row) const {
    const int size = args_.heads * kv_.head_dim_k;
    float* q = args_.q + row * size;
    norm_and_rotate(row, q, args_.heads, args_.q_norm);
    if (args_.q_scale != 1.0f) kernel_.norm_row(q, q, args_.q_scale, nullptr, nullptr, size);
    walsh_hadamard(q, size, key_rotation(kv_.type_k, kv_.head_dim_k));
  }

  void norm_and_rotate(std::int64_t row, float* x, int heads, const float* norm) const {
    if (norm) rms_norm_heads(kernel_, x, x, norm, heads, kv_.head_dim_k, args_.norm_eps);
    if (args_.style == RopeStyle::none) return;
    const auto rotate = args_.style == RopeStyle::adjacent ? kernel_.rotate_adjacent : kernel_.rotate_neox;
    const float* table = args_.table + row * args_.n_rot;
    for (int head = 0; head < heads; ++head) rotate(x + head * kv_.head_dim_k, table, args_.n_rot);
  }

  const RopeStoreArgs& args_;
  const KvLayout& kv_;
  const BatchView& batch_;
  const FloatKernels& kernel_;
  const Kernels& quantizers_;
};

}  // namespace

void CpuOps::rope_table(Stream&, float* table, const RopeParams& params, const BatchView& batch) {
  if (params.style == RopeStyle::none) return;
  const float step = std::pow(params.base, -2.0f / static_cast<float>(params.n_rot));
  const Yarn yarn(params);
  pool_.for_each(batch.rows, [&](std::int64_t row) {
    rope_row(table + row * params.n_rot, params, yarn, step, batch.position[row]);
  });
}

void CpuOps::rope_store(Stream&, const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch) {
  const RowStore store(args, kv, batch, floats_, kernels(isa_));
  for_each_with_scratch(pool_, batch.rows, store.scratch_bytes(),
                        [&](std::int64_t row, std::byte* memory) { store.run(row, memory); });
}

// In single precision, whatever the cache holds: widened, turned, rounded again. A quantised cache is turned in front
// of its Walsh-Hadamard rotation, which is its own inverse.
void CpuOps::rotate_keys(Stream&, const KvLayout& kv, std::byte* const* blocks, const std::int32_t* cells, int n,
                         const float* table, RopeStyle style, int n_rot) {
  const int dim = kv.head_dim_k;
  const std::size_t quant_blocks = static_cast<std::size_t>((dim + kQ8Block - 1) / kQ8Block);
  const auto take = [&](ScratchArrays& arrays) {
    float* x = arrays.take<float>(static_cast<std::size_t>(dim));
    const Q8Row quantized{arrays.take<std::int8_t>(static_cast<std::size_t>(dim)), arrays.take<float>(quant_blocks),
                          arrays.take<float>(quant_blocks), arrays.take<std::int32_t>(quant_blocks)};
    return std::pair(x, quantized);
  };
  ScratchArrays sizes;
  take(sizes);
  const auto rotate = style == RopeStyle::adjacent ? floats_.rotate_adjacent : floats_.rotate_neox;
  for_each_with_scratch(pool_, std::int64_t{n} * kv.kv_heads, sizes.bytes(), [&](std::int64_t item, std::byte* memory) {
    ScratchArrays arrays(memory);
    const auto [x, quantized] = take(arrays);
    const std::int32_t cell = cells[item / kv.kv_heads];
    std::byte* const row = k_row(kv, blocks[cell / kBlockCells], static_cast<int>(item % kv.kv_heads),
                                 static_cast<int>(cell % kBlockCells));
    dequantize_row(kv.type_k, row, dim, x);
    walsh_hadamard(x, dim, key_rotation(kv.type_k, dim));
    rotate(x, table, n_rot);
    walsh_hadamard(x, dim, key_rotation(kv.type_k, dim));
    store_row(floats_, kernels(isa_), kv.type_k, row, x, dim, quantized);
  });
}

}  // namespace bankml
