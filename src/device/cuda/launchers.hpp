#pragma once
// The kernels as host code calls them. Every pointer is device memory; a call queues work on the stream and returns. Throws
// Error(device) for a shape that no device takes.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cuda/planes.hpp"
#include "namespace.hpp"

namespace bankml {

class Stream;

inline constexpr int kVecRows = 8;    // rows of activations up to which a weight is streamed past them (mat-vec)
inline constexpr int kMaxOutputs = 4;  // weights multiplied by one launch
inline constexpr int kMaxPairs = 256;  // pairs that RoPE turns in a head

// Rows of activations in the forms that mat-muls read; those that aren't wanted are null. q, d and s: blocks of 32 (Q8_1 of the
// peer's CUDA backend; docs/gguf.md, 4.2): integers, scale, sum of the floats rounded to half.
struct ActivationPlanes {
  float* f32 = nullptr;
  half* f16 = nullptr;
  bfloat16* bf16 = nullptr;
  std::int8_t* q = nullptr;
  float* d = nullptr;             // rounded to half if it is meant for mat-vec
  float* s = nullptr;
  std::int16_t* sums = nullptr;   // of 16 integers: for super-blocks
  int dim = 0;
};

struct NormArgs {
  const float* x = nullptr;  // (rows, dim)
  const float* weight = nullptr;
  int rows = 0, dim = 0;
  float eps = 0;
};

struct MatmulPart {
  WeightPlanes weight;
  float* out = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;
  float scale = 1;
};

enum class GluFunction { silu, gelu };
enum class Rotation { none, adjacent, neox };

// The angles of RoPE but for the position, which comes from device memory.
struct RopeTableArgs {
  float* table = nullptr;                  // (rows, n_rot / 2, 2)
  const std::int32_t* position = nullptr;  // (rows)
  int rows = 0, pairs = 0;
  float freq_scale = 1, magnitude = 1;
  float ext_factor = 0, low = 0, high = 0;  // YaRN's ramp; 0: none
  float power[kMaxPairs] = {};              // base^(-2j / n_rot)
  float factor[kMaxPairs] = {};             // angle = position * power / factor
};

// One layer's part of the KV blocks of a batch.
struct KvView {
  DType type_k = DType::f16, type_v = DType::f16;  // f16, f32 or q8_0
  int kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  std::int64_t k_offset = 0, v_offset = 0;
  int key_rotation = 0, value_rotation = 0;  // elements turned together by the Walsh-Hadamard rotation; 0: none
  const std::int32_t *position = nullptr, *sequence = nullptr, *cell = nullptr, *cells = nullptr;
  std::byte* const* blocks = nullptr;
  std::int64_t blocks_stride = 0;
  const std::int32_t* cell_position = nullptr;  // or none
  std::int64_t cell_position_stride = 0;
};

struct RopeStoreLaunch {
  float* q = nullptr;
  const float *k = nullptr, *v = nullptr;
  int rows = 0, heads = 0;
  const float *q_norm = nullptr, *k_norm = nullptr;
  float norm_eps = 0, q_scale = 1;
  Rotation rotation = Rotation::none;
  int n_rot = 0;
  const float* table = nullptr;
};

struct RotateKeysLaunch {
  std::byte* const* blocks = nullptr;
  const std::int32_t* cells = nullptr;
  int n = 0;
  const float* table = nullptr;
  Rotation rotation = Rotation::none;
  int n_rot = 0;
};

struct AttentionLaunch {
  const float* q = nullptr;  // (rows, heads, head_dim_k)
  int rows = 0, heads = 0;
  float scale = 1, softcap = 0;
  int window = 0;
  const float* sinks = nullptr;
  int max_splits = 1;
  // Partial softmaxes, (rows, heads, max_splits): weighted sums of V (head_dim_v each), and the pairs of maximum and sum.
  float* partial = nullptr;
  float* partial_max_sum = nullptr;
};

}  // namespace bankml

namespace KERNEL_NAMESPACE {

// x[r] = row tokens[r] of the table, widened, times scale.
void embed(Stream& stream, float* x, const WeightPlanes& table, const std::int32_t* tokens, int rows, float scale);
void gather_rows(Stream& stream, float* to, const float* from, const std::int32_t* rows, int n, int dim);
void quantize(Stream& stream, const ActivationPlanes& out, const float* x, int rows);
void rms_norm(Stream& stream, const ActivationPlanes& out, const NormArgs& args);
void rms_norm_floats(Stream& stream, float* out, const NormArgs& args);    // out may be args.x
void rms_norm_add(Stream& stream, float* residual, const NormArgs& args);  // residual += norm of args.x
void glu(Stream& stream, const ActivationPlanes& out, const float* gate, const float* up, int rows, GluFunction function);
// n parts, at most kMaxOutputs, of one type and row length.
void matmul(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows);
void rope_table(Stream& stream, const RopeTableArgs& args);
void rope_store(Stream& stream, const RopeStoreLaunch& args, const KvView& kv);
void rotate_keys(Stream& stream, const RotateKeysLaunch& args, const KvView& kv);
void attention(Stream& stream, const ActivationPlanes& out, const AttentionLaunch& args, const KvView& kv);
void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap);

}  // namespace KERNEL_NAMESPACE
