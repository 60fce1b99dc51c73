#pragma once
// The kernels as host code calls them. Every pointer is device memory; a call queues work on the stream and returns.
// Throws Error(device) for a shape that no device takes.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cuda/planes.hpp"
#include "namespace.hpp"

namespace bankml {

class Stream;

inline constexpr int kVecRows = 8;       // rows of activations up to which a weight is streamed past them (mat-vec)
inline constexpr int kLibraryRows = 32;  // rows up to which float weights don't go to the vendor's library
inline constexpr int kMaxOutputs = 4;    // weights multiplied by one launch
inline constexpr int kMaxPairs = 256;    // pairs that RoPE turns in a head

// Rows of activations in the forms that mat-muls read; those that aren't wanted are null. Integers, scales and sums are
// those of the CPU backend (docs/arithmetic.md, 2.3 and 3.1).
struct ActivationPlanes {
  float* f32 = nullptr;
  half* f16 = nullptr;
  bfloat16* bf16 = nullptr;
  std::int8_t* q8 = nullptr;         // blocks of 32
  float* q8_d = nullptr;             // scale, rounded to half
  float* q8_s = nullptr;             // scale times the sum of the integers, rounded to half
  std::int8_t* q8k = nullptr;        // blocks of 256
  float* q8k_d = nullptr;            // scale
  std::int16_t* q8k_sums = nullptr;  // of 16 integers
  int dim = 0;
  bool operator==(const ActivationPlanes&) const = default;
};

struct NormArgs {
  const float* x = nullptr;  // (rows, dim)
  const float* weight = nullptr;
  int rows = 0, dim = 0;
  float eps = 0;
  bool operator==(const NormArgs&) const = default;
};

struct MatmulPart {
  WeightPlanes weight;
  float* out = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;
  float scale = 1;
  bool operator==(const MatmulPart&) const = default;
};

enum class GluFunction { silu, gelu, clamped_swiglu };

// At most kGroupTile pairs of one expert; count 0: none.
inline constexpr int kGroupTile = 32;
struct ExpertTile {
  std::int32_t expert, first, count;  // first: index into what is sorted
};

// Pairs of a row and one of its experts: pair p multiplies row p / divisor of the activations by expert[p] of the
// weight.
struct ExpertPairs {
  const std::int32_t* expert = nullptr;
  int pairs = 0, divisor = 1;
  int first = 0;  // pair of a launch that takes a part of them
  // The pairs sorted by expert and cut into tiles, where they are many; or none.
  const std::int32_t* sorted = nullptr;
  const ExpertTile* tile = nullptr;
  int tiles = 0;
  bool operator==(const ExpertPairs&) const = default;
};

struct RouteArgs {
  const float* scores = nullptr;   // (rows, experts)
  std::int32_t* expert = nullptr;  // (rows, used)
  float* weight = nullptr;         // (rows, used)
  int rows = 0, experts = 0, used = 0;
  bool softmax_of_chosen = false, normalize = false;
  float scale = 1;
  bool operator==(const RouteArgs&) const = default;
};

struct GroupArgs {
  const std::int32_t* expert = nullptr;  // (pairs)
  std::int32_t* sorted = nullptr;        // (pairs): by expert, those of one in their order
  ExpertTile* tile = nullptr;            // (tiles)
  int pairs = 0, experts = 0, tiles = 0;
  bool operator==(const GroupArgs&) const = default;
};
// Tiles that so many pairs take at most.
constexpr int group_tiles(int pairs, int experts) noexcept {
  return pairs / kGroupTile + (pairs < experts ? pairs : experts);
}

struct ExpertSumArgs {
  float* out = nullptr;
  const float* branch = nullptr;  // (rows * used, dim)
  const float* weight = nullptr;  // (rows, used)
  const float *shared = nullptr, *residual = nullptr;
  float scale = 1;
  int rows = 0, used = 0, dim = 0;
  bool operator==(const ExpertSumArgs&) const = default;
};

enum class Rotation { none, adjacent, neox };

// The angles of RoPE but for the position, which comes from device memory.
struct RopeTableArgs {
  float* table = nullptr;                  // (rows, n_rot / 2, 2)
  const std::int32_t* position = nullptr;  // (rows)
  int rows = 0, pairs = 0;
  float freq_scale = 1, magnitude = 1;
  float ext_factor = 0, low = 0, high = 0;  // YaRN's ramp; 0: none
  float step = 1;                           // base^(-2 / n_rot)
  float factor[kMaxPairs] = {};             // angle = position * step^j / factor
  bool operator==(const RopeTableArgs&) const = default;
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
  bool operator==(const KvView&) const = default;
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
  bool operator==(const RopeStoreLaunch&) const = default;
};

struct RotateKeysLaunch {
  std::byte* const* blocks = nullptr;
  const std::int32_t* cells = nullptr;
  int n = 0;
  const float* table = nullptr;
  Rotation rotation = Rotation::none;
  int n_rot = 0;
  bool operator==(const RotateKeysLaunch&) const = default;
};

struct AttentionLaunch {
  const float* q = nullptr;  // (rows, heads, head_dim_k)
  int rows = 0, heads = 0;
  float scale = 1, softcap = 0;
  int window = 0;
  bool half_q = false;  // Q is rounded to half
  const float* sinks = nullptr;
  int max_splits = 1;
  // Partial softmaxes, (rows, heads, max_splits): weighted sums of V (head_dim_v each), and the pairs of maximum and
  // sum.
  float* partial = nullptr;
  float* partial_max_sum = nullptr;
  bool operator==(const AttentionLaunch&) const = default;
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
void glu(Stream& stream, const ActivationPlanes& out, const float* gate, const float* up, int rows,
         GluFunction function);
// n parts, at most kMaxOutputs, of one type and row length.
void matmul(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows);
// The same for pairs: out is (pairs, weight rows), bias (experts, weight rows).
void matmul_experts(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs);
void route(Stream& stream, const RouteArgs& args);
void group_pairs(Stream& stream, const GroupArgs& args);
void sum_experts(Stream& stream, const ExpertSumArgs& args);
void rope_table(Stream& stream, const RopeTableArgs& args);
void rope_store(Stream& stream, const RopeStoreLaunch& args, const KvView& kv);
void rotate_keys(Stream& stream, const RotateKeysLaunch& args, const KvView& kv);
void attention(Stream& stream, const ActivationPlanes& out, const AttentionLaunch& args, const KvView& kv);
void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap);

}  // namespace KERNEL_NAMESPACE
