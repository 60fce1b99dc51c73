#pragma once
// The computations of a transformer, as coarse as the fastest kernel of a backend wants them. Every pointer is device
// memory unless said otherwise; floats are rows one after the other, (rows, dim). An op may run in place only where
// that is said.
//
// Which value is rounded to which type decides the tokens: the CPU backend gives llama-server b11192's bits (x86-64,
// AVX-512 build), section numbers below are those of docs/arithmetic.md.
#include <cstdint>
#include <span>

#include "bankml/device/device.hpp"

namespace bankml {

inline constexpr std::int64_t kBlockCells = 64;  // positions held by one KV block

// out = a W^T (+ bias) (* scale) (+ residual), in this order of f32 operations; out may be the residual's memory.
struct MatmulOutput {
  const Weight* weight = nullptr;   // (rows, a.dim)
  float* out = nullptr;             // (batch rows, weight->rows()); may be pinned host memory
  const float* bias = nullptr;      // (weight->rows()), or none
  const float* residual = nullptr;  // (batch rows, weight->rows()), or none
  float scale = 1.0f;               // 1: no multiplication
};

// clamped_swiglu: g = min(gate, 7), u = clamp(up, -7, 7), g / (1 + exp(-1.702 g)) * (u + 1)
enum class GluKind { silu, gelu, clamped_swiglu };

// What the scores of a router turn into.
struct RouterParams {
  bool softmax_of_chosen = false;  // weights are the softmax over the chosen scores, not over all
  bool normalize = false;          // weights are divided by their sum
  float scale = 1.0f;              // multiplied into the weights; 1: no multiplication
};

// out[pair] = W of the pair's expert times the pair's row of activations (+ bias of the expert).
struct ExpertOutput {
  const Weight* weight = nullptr;  // from load_experts(), (experts, rows, a.dim)
  float* out = nullptr;            // (batch rows * used, weight->rows())
  const float* bias = nullptr;     // (experts, weight->rows()), or none
};

// What a row of the activations that experts multiply belongs to.
enum class ExpertInput { rows, pairs };

// out = sum over the row's experts of branch * weight, in the order of choice (+ shared) (* scale) + residual, in this
// order of f32 operations; out may be the memory of shared or residual.
struct ExpertSum {
  float* out = nullptr;             // (rows, dim)
  const float* branch = nullptr;    // (rows * used, dim), from matmul_experts()
  const float* shared = nullptr;    // (rows, dim), or none
  const float* residual = nullptr;  // (rows, dim), or none
  float scale = 1.0f;               // 1: no multiplication
  int dim = 0;
};

enum class RopeStyle { none, adjacent, neox };  // pairs (2j, 2j+1), or (j, j + n_rot/2)

struct RopeParams {
  RopeStyle style = RopeStyle::none;
  int n_rot = 0;  // elements rotated per head; the rest is copied
  float base = 10000.0f;
  float freq_scale = 1.0f;
  const float* factors = nullptr;  // host memory, (n_rot / 2), or none: angle = theta / factor
  float ext_factor = 0.0f;         // YaRN: 0 = off
  float attn_factor = 1.0f;
  float beta_fast = 32.0f, beta_slow = 1.0f;
  int n_ctx_orig = 0;
};

// The rows of one forward pass and where their sequences' KV lies. Arrays are device memory; counts are host values.
struct BatchView {
  int rows = 0;
  int sequences = 0;
  const std::int32_t* position = nullptr;  // (rows)
  const std::int32_t* sequence = nullptr;  // (rows): index into the arrays below
  const std::int32_t* cell = nullptr;      // (rows): where this row's K and V are stored in its sequence
  std::byte* const* blocks = nullptr;      // (sequences, blocks_stride): block addresses by cell / kBlockCells
  std::int64_t blocks_stride = 0;
  const std::int32_t* cells = nullptr;  // (sequences): highest used cell + 1, this batch's rows included
  const std::int32_t* padded_cells =
      nullptr;  // (sequences): the peer's n_kv: min(cache, max(256, cells rounded up to 256))
  // Position held by each cell, (sequences, cell_position_stride); -1 empty. nullptr: cell c holds position c.
  const std::int32_t* cell_position = nullptr;
  std::int64_t cell_position_stride = 0;
};

// One layer's part of every KV block: K as (kv_heads, kBlockCells, head_dim_k) of type_k at k_offset, V alike at
// v_offset.
struct KvLayout {
  DType type_k = DType::f16, type_v = DType::f16;  // f16, f32 or q8_0
  int kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  std::int64_t k_offset = 0, v_offset = 0;  // bytes from the start of a block
};

struct RopeStoreArgs {
  float* q = nullptr;        // (rows, heads, head_dim_k), rotated in place
  const float* k = nullptr;  // (rows, kv_heads, head_dim_k)
  const float* v = nullptr;  // (rows, kv_heads, head_dim_v)
  int heads = 0;
  const float* q_norm = nullptr;  // (head_dim_k): RMS norm of each head before the rotation, or none
  const float* k_norm = nullptr;
  float norm_eps = 0.0f;
  float q_scale = 1.0f;  // multiplied into q after the rotation; 1: no multiplication
  RopeStyle style = RopeStyle::none;
  int n_rot = 0;
  const float* table = nullptr;  // from rope_table()
};

struct AttentionArgs {
  const float* q = nullptr;  // (rows, heads, head_dim_k)
  int heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;          // 0: none
  int window = 0;                // 0: none; else positions p with row position - p < window are visible
  const float* sinks = nullptr;  // (heads), or none
  // The peer divides long single-row attention among its threads; its recordings used 2 (docs/arithmetic.md, path B).
  int virtual_threads = 2;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // x[r] = row tokens[r] of `table`, widened, times scale (1: no multiplication).
  virtual void embed(Stream& stream, float* x, const Weight& table, const std::int32_t* tokens, int rows,
                     float scale) = 0;

  // out[r] = RMS norm of x[r] times weight (nullptr: no weight), in all formats of `out`.
  virtual void rms_norm(Stream& stream, Activation& out, const float* x, const float* weight, int rows, float eps) = 0;
  // The same to plain floats; out may be x.
  virtual void rms_norm(Stream& stream, float* out, const float* x, const float* weight, int rows, int dim,
                        float eps) = 0;
  // x[r] = RMS norm of branch[r] times weight, then + x[r].
  virtual void rms_norm_add(Stream& stream, float* x, const float* branch, const float* weight, int rows, int dim,
                            float eps) = 0;
  // Writes plain float rows into all formats of `out`.
  virtual void quantize(Stream& stream, Activation& out, const float* x, int rows) = 0;

  // Several weights multiply the same rows.
  virtual void matmul(Stream& stream, std::span<const MatmulOutput> outputs, const Activation& a, int rows) = 0;

  // out[r] = act(gate[r]) * up[r], in all formats of `out`; gate and up are (rows, out.dim).
  virtual void glu(Stream& stream, Activation& out, const float* gate, const float* up, int rows, GluKind kind) = 0;

  // The used() experts of each row with the highest scores, best first, of equal scores the expert that comes first;
  // and their weights. `scores` is (rows, experts).
  virtual void route(Stream& stream, ExpertChoice& out, const float* scores, const RouterParams& params, int rows) = 0;

  // Several weights multiply the same rows. Each pair is a mat-mul of one row of its own: that decides how sums are
  // formed. `rows` are those of the batch; `a` has one for each of them, or one for each pair, in the order of an
  // earlier output.
  virtual void matmul_experts(Stream& stream, std::span<const ExpertOutput> outputs, const Activation& a,
                              ExpertInput input, ExpertChoice& choice, int rows) = 0;

  virtual void sum_experts(Stream& stream, const ExpertSum& args, const ExpertChoice& choice, int rows) = 0;

  // Cosines and sines of every row's position for all layers: table is (rows, n_rot / 2, 2), cosine first.
  virtual void rope_table(Stream& stream, float* table, const RopeParams& params, const BatchView& batch) = 0;

  // Norm, rotation and scale of Q; norm and rotation of K; K and V into their cells. With a q8_0 cache the rows go
  // through the Walsh-Hadamard rotation first (section 4.6 of the arithmetic).
  virtual void rope_store(Stream& stream, const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch) = 0;

  // Turns the keys in these cells of one sequence further by the angles of one position difference: `table` is one row
  // of rope_table(). In the cache's own precision, as the peer does when positions move (docs/prompt-cache.md, 3.2).
  // `blocks` as in BatchView, of one sequence; `cells` (n).
  virtual void rotate_keys(Stream& stream, const KvLayout& kv, std::byte* const* blocks, const std::int32_t* cells,
                           int n, const float* table, RopeStyle style, int n_rot) = 0;

  // out[r] = attention of row r over the visible cells of its sequence, (rows, heads * head_dim_v), in all formats of
  // `out`.
  virtual void attention(Stream& stream, Activation& out, const AttentionArgs& args, const KvLayout& kv,
                         const BatchView& batch) = 0;

  // dst[i] = src[rows[i]]
  virtual void gather_rows(Stream& stream, float* dst, const float* src, const std::int32_t* rows, int n, int dim) = 0;

  // x = x * scale (1: no multiplication), then tanh(x * (1 / cap)) * cap unless cap is 0; in place.
  virtual void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap) = 0;
};

}  // namespace bankml
