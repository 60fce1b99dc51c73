#include "device/cuda/ops.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "bankml/base/error.hpp"
#include "device/cpu/attention_path.hpp"
#include "device/cpu/hadamard.hpp"
#include "device/cuda/activation.hpp"
#include "device/cuda/expert_choice.hpp"
#include "device/cuda/launchers.hpp"
#include "device/cuda/weight.hpp"

namespace KERNEL_NAMESPACE {
namespace {

const ActivationPlanes& planes_of(const Activation& activation) noexcept {
  return static_cast<const GpuActivation&>(activation).planes();
}
const WeightPlanes& planes_of(const Weight& weight) noexcept {
  return static_cast<const GpuWeight&>(weight).planes();
}

Rotation rotation_of(RopeStyle style) noexcept {
  switch (style) {
    case RopeStyle::adjacent:
      return Rotation::adjacent;
    case RopeStyle::neox:
      return Rotation::neox;
    case RopeStyle::none:
      break;
  }
  return Rotation::none;
}

KvView view_of(const KvLayout& kv) noexcept {
  KvView view;
  view.type_k = kv.type_k;
  view.type_v = kv.type_v;
  view.kv_heads = kv.kv_heads;
  view.head_dim_k = kv.head_dim_k;
  view.head_dim_v = kv.head_dim_v;
  view.k_offset = kv.k_offset;
  view.v_offset = kv.v_offset;
  view.key_rotation = key_rotation(kv.type_k, kv.head_dim_k);
  view.value_rotation = value_rotation(kv.type_v, kv.head_dim_v);
  return view;
}

KvView view_of(const KvLayout& kv, const BatchView& batch) noexcept {
  KvView view = view_of(kv);
  view.position = batch.position;
  view.sequence = batch.sequence;
  view.cell = batch.cell;
  view.cells = batch.cells;
  view.blocks = batch.blocks;
  view.blocks_stride = batch.blocks_stride;
  view.cell_position = batch.cell_position;
  view.cell_position_stride = batch.cell_position_stride;
  return view;
}

// How many blocks of the grid share the cells of a row: enough work for a large GPU whatever the rows, from a fixed
// table, so that no answer depends on the device. A split of no cells costs little.
int splits_for(int rows, std::int64_t blocks_stride) noexcept {
  constexpr struct { int rows, splits; } kTable[] = {{kVecRows, 64}, {64, 16}, {256, 4}};
  for (const auto& entry : kTable) {
    // More splits than blocks of cells are empty whatever the length, so leaving them out changes nothing.
    if (rows <= entry.rows) return static_cast<int>(std::clamp<std::int64_t>(blocks_stride, 1, entry.splits));
  }
  return 1;
}

// The pair that turns `turns` times within the original context (YaRN: Peng et al. 2023).
float pair_of_turns(const RopeParams& params, float turns) {
  const float n_rot = static_cast<float>(params.n_rot), context = static_cast<float>(params.n_ctx_orig);
  return n_rot * std::log(context / (turns * 2.0f * std::numbers::pi_v<float>)) / (2.0f * std::log(params.base));
}

// What a library keeps for a stream would be frozen in a graph.
static_assert(kLibraryRows >= kGraphRows);

using MatmulParts = std::array<MatmulPart, kMaxOutputs>;

void launch_matmul(Stream& stream, const MatmulParts& parts, int n, const ActivationPlanes& a, int rows) {
  KERNEL_NAMESPACE::matmul(stream, parts.data(), n, a, rows);
}

}  // namespace

void GpuOps::embed(Stream& stream, float* x, const Weight& table, const std::int32_t* tokens, int rows, float scale) {
  if (rows > 0) passes_.run<&KERNEL_NAMESPACE::embed>(stream, rows, x, planes_of(table), tokens, rows, scale);
}

void GpuOps::quantize(Stream& stream, Activation& out, const float* x, int rows) {
  if (rows > 0) passes_.run<&KERNEL_NAMESPACE::quantize>(stream, rows, planes_of(out), x, rows);
}

void GpuOps::gather_rows(Stream& stream, float* dst, const float* src, const std::int32_t* rows, int n, int dim) {
  if (n > 0) passes_.run<&KERNEL_NAMESPACE::gather_rows>(stream, n, dst, src, rows, n, dim);
}

void GpuOps::matmul(Stream& stream, std::span<const MatmulOutput> outputs, const Activation& a, int rows) {
  if (rows == 0) return;
  // Neighbours of one type share a launch.
  while (!outputs.empty()) {
    MatmulParts parts;
    std::size_t n = 0;
    for (; n < std::min<std::size_t>(kMaxOutputs, outputs.size()); ++n) {
      const MatmulOutput& output = outputs[n];
      if (n > 0 && output.weight->type() != outputs[0].weight->type()) break;
      parts[n] = {planes_of(*output.weight), output.out, output.bias, output.residual, output.scale};
    }
    passes_.run<&launch_matmul>(stream, rows, parts, static_cast<int>(n), planes_of(a), rows);
    outputs = outputs.subspan(n);
  }
}

void GpuOps::rms_norm(Stream& stream, Activation& out, const float* x, const float* weight, int rows, float eps) {
  if (rows > 0)
    passes_.run<&KERNEL_NAMESPACE::rms_norm>(stream, rows, planes_of(out),
                                             NormArgs{x, weight, rows, static_cast<int>(out.dim()), eps});
}

void GpuOps::rms_norm(Stream& stream, float* out, const float* x, const float* weight, int rows, int dim, float eps) {
  if (rows > 0) passes_.run<&KERNEL_NAMESPACE::rms_norm_floats>(stream, rows, out, NormArgs{x, weight, rows, dim, eps});
}

void GpuOps::rms_norm_add(Stream& stream, float* x, const float* branch, const float* weight, int rows, int dim,
                          float eps) {
  if (rows > 0) passes_.run<&KERNEL_NAMESPACE::rms_norm_add>(stream, rows, x, NormArgs{branch, weight, rows, dim, eps});
}

void GpuOps::glu(Stream& stream, Activation& out, const float* gate, const float* up, int rows, GluKind kind) {
  if (rows == 0) return;
  const GluFunction function = kind == GluKind::silu   ? GluFunction::silu
                               : kind == GluKind::gelu ? GluFunction::gelu
                                                       : GluFunction::clamped_swiglu;
  passes_.run<&KERNEL_NAMESPACE::glu>(stream, rows, planes_of(out), gate, up, rows, function);
}

void GpuOps::route(Stream& stream, ExpertChoice& out, const float* scores, const RouterParams& params, int rows) {
  if (rows == 0) return;
  const auto& choice = static_cast<GpuExpertChoice&>(out);
  passes_.run<&KERNEL_NAMESPACE::route>(
      stream, rows,
      RouteArgs{scores, choice.expert(), choice.weight(), rows, out.experts(), out.used(), params.softmax_of_chosen,
                params.normalize, params.scale});
  if (rows <= kVecRows) return;
  const int pairs = rows * out.used();
  passes_.run<&KERNEL_NAMESPACE::group_pairs>(stream, rows,
                                              GroupArgs{choice.expert(), choice.sorted(), choice.tiles(), pairs,
                                                        out.experts(), group_tiles(pairs, out.experts())});
}

void GpuOps::matmul_experts(Stream& stream, std::span<const ExpertOutput> outputs, const Activation& a,
                            ExpertInput input, ExpertChoice& choice, int rows) {
  if (rows == 0) return;
  const int used = choice.used();
  const auto& chosen = static_cast<const GpuExpertChoice&>(choice);
  ExpertPairs pairs{chosen.expert(), rows * used, input == ExpertInput::rows ? used : 1};
  if (rows > kVecRows) {
    pairs.sorted = chosen.sorted();
    pairs.tile = chosen.tiles();
    pairs.tiles = group_tiles(pairs.pairs, choice.experts());
  }
  for (const ExpertOutput& output : outputs) {
    passes_.run<&KERNEL_NAMESPACE::matmul_experts>(
        stream, rows, MatmulPart{planes_of(*output.weight), output.out, output.bias}, planes_of(a), pairs);
  }
}

void GpuOps::sum_experts(Stream& stream, const ExpertSum& args, const ExpertChoice& choice, int rows) {
  if (rows == 0) return;
  const float* weight = static_cast<const GpuExpertChoice&>(choice).weight();
  passes_.run<&KERNEL_NAMESPACE::sum_experts>(stream, rows,
                                              ExpertSumArgs{args.out, args.branch, weight, args.shared, args.residual,
                                                            args.scale, rows, choice.used(), args.dim});
}

void GpuOps::rope_table(Stream& stream, float* table, const RopeParams& params, const BatchView& batch) {
  if (params.style == RopeStyle::none || batch.rows == 0) return;
  RopeTableArgs args;
  args.table = table;
  args.position = batch.position;
  args.rows = batch.rows;
  args.pairs = params.n_rot / 2;
  if (args.pairs > kMaxPairs) {
    throw Error(ErrorKind::unsupported, "rotary embedding: expected at most " + std::to_string(2 * kMaxPairs) +
                                            " rotated elements of a head, got " + std::to_string(params.n_rot));
  }
  args.step = std::pow(params.base, -2.0f / static_cast<float>(params.n_rot));
  for (int pair = 0; pair < args.pairs; ++pair) args.factor[pair] = params.factors ? params.factors[pair] : 1.0f;
  args.freq_scale = params.freq_scale;
  args.magnitude = params.attn_factor;
  args.ext_factor = params.ext_factor;
  if (params.ext_factor != 0.0f) {
    args.magnitude = params.attn_factor * std::fma(0.1f, std::log(1.0f / params.freq_scale), 1.0f);
    args.low = std::max(0.0f, std::floor(pair_of_turns(params, params.beta_fast)));
    args.high = std::min(static_cast<float>(params.n_rot - 1), std::ceil(pair_of_turns(params, params.beta_slow)));
  }
  passes_.run<&KERNEL_NAMESPACE::rope_table>(stream, args.rows, args);
}

void GpuOps::rope_store(Stream& stream, const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch) {
  if (batch.rows == 0) return;
  RopeStoreLaunch launch;
  launch.q = args.q;
  launch.k = args.k;
  launch.v = args.v;
  launch.rows = batch.rows;
  launch.heads = args.heads;
  launch.q_norm = args.q_norm;
  launch.k_norm = args.k_norm;
  launch.norm_eps = args.norm_eps;
  launch.q_scale = args.q_scale;
  launch.rotation = rotation_of(args.style);
  launch.n_rot = args.n_rot;
  launch.table = args.table;
  passes_.run<&KERNEL_NAMESPACE::rope_store>(stream, launch.rows, launch, view_of(kv, batch));
}

void GpuOps::rotate_keys(Stream& stream, const KvLayout& kv, std::byte* const* blocks, const std::int32_t* cells, int n,
                         const float* table, RopeStyle style, int n_rot) {
  if (n == 0) return;
  passes_.run<&KERNEL_NAMESPACE::rotate_keys>(
      stream, n, RotateKeysLaunch{blocks, cells, n, table, rotation_of(style), n_rot}, view_of(kv));
}

void GpuOps::attention(Stream& stream, Activation& out, const AttentionArgs& args, const KvLayout& kv,
                       const BatchView& batch) {
  if (batch.rows == 0) return;
  for (const int dim : {kv.head_dim_k, kv.head_dim_v}) {
    if (dim % kHeadDimMultiple == 0 && dim <= kMaxHeadDim) continue;
    throw Error(ErrorKind::unsupported, "attention: expected heads whose length is a multiple of " +
                                            std::to_string(kHeadDimMultiple) + " up to " + std::to_string(kMaxHeadDim) +
                                            ", got " + std::to_string(dim));
  }
  AttentionLaunch launch;
  launch.q = args.q;
  launch.rows = batch.rows;
  launch.heads = args.heads;
  // The peer divides the scale, not the score, by the cap.
  launch.scale = args.softcap != 0.0f ? args.scale / args.softcap : args.scale;
  launch.softcap = args.softcap;
  launch.window = args.window;
  launch.half_q = kv.type_k == DType::f16 && batch.rows < kTiledRows;
  launch.sinks = args.sinks;
  launch.max_splits = splits_for(batch.rows, batch.blocks_stride);
  const auto results = static_cast<std::size_t>(std::int64_t{batch.rows} * args.heads * launch.max_splits);
  const std::size_t floats = results * static_cast<std::size_t>(kv.head_dim_v);
  const std::size_t bytes = (floats + 2 * results) * sizeof(float);
  if (partials_.bytes() < bytes) {
    stream.synchronize();  // earlier work may still use the smaller one
    partials_ = Buffer();
    partials_ = device_.allocate(bytes);
  }
  launch.partial = partials_.as<float>();
  launch.partial_max_sum = launch.partial + floats;
  passes_.run<&KERNEL_NAMESPACE::attention>(stream, batch.rows, planes_of(out), launch, view_of(kv, batch));
}

void GpuOps::scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap) {
  if (n == 0 || (scale == 1.0f && cap == 0.0f)) return;
  passes_.run<&KERNEL_NAMESPACE::scale_softcap>(stream, 1, x, n, scale, cap);
}

}  // namespace KERNEL_NAMESPACE
