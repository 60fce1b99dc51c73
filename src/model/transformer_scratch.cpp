// What a transformer takes of its device: scratch memory for the largest batch, and tables of rotations.
#include <algorithm>

#include "model/cell_counts.hpp"
#include "model/transformer_impl.hpp"

namespace bankml {
namespace {

bool same_rotation(const RopeParams& a, const RopeParams& b) noexcept {
  return a.n_rot == b.n_rot && a.base == b.base && a.freq_scale == b.freq_scale && a.factors == b.factors &&
         a.ext_factor == b.ext_factor && a.attn_factor == b.attn_factor && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow && a.n_ctx_orig == b.n_ctx_orig;
}

}  // namespace

Transformer::Impl::Impl(const Model& m, KvPool& p, const TransformerLimits& l)
    : model(m),
      config(m.config()),
      device(m.device()),
      ops(m.device().ops()),
      pool(p),
      limits(l),
      cache_cells{padded(l.context),
                  p.window() == 0 ? 0 : (p.window_cells() > 0 ? p.window_cells() : padded(l.context))},
      arrays(device, l, {blocks_for(cache_cells[0]), blocks_for(cache_cells[1])}) {
  limits.max_logit_rows = std::min(limits.max_logit_rows, limits.max_rows);
  stream = device.make_stream();
  allocate_scratch();
  collect_rotations();
}

Buffer Transformer::Impl::floats(std::int64_t rows, std::int64_t dim) {
  return device.allocate(static_cast<std::size_t>(rows * dim) * sizeof(float));
}

void Transformer::Impl::allocate_scratch() {
  std::int64_t q_width = 0, k_width = 0, v_width = 0, hidden = 0;
  ActFormats in = ActFormats::none, attended = ActFormats::none, gated = ActFormats::none;
  ActFormats shared = ActFormats::none;
  const ExpertConfig& experts = config.experts;
  for (std::size_t i = 0; i < config.layer.size(); ++i) {
    const LayerConfig& layer = config.layer[i];
    const LayerWeights& w = model.layers()[i];
    q_width = std::max(q_width, std::int64_t{layer.heads} * config.head_dim_k);
    k_width = std::max(k_width, std::int64_t{layer.kv_heads} * config.head_dim_k);
    v_width = std::max(v_width, std::int64_t{layer.kv_heads} * config.head_dim_v);
    hidden = std::max(hidden, std::int64_t{layer.hidden});
    for (const auto* weight : {&w.q, &w.k, &w.v, &w.gate, &w.up, &w.router, &w.shared_gate, &w.shared_up}) {
      if (*weight) in = in | activation_format((*weight)->type());
    }
    attended = attended | activation_format(w.output->type());
    gated = gated | activation_format(w.down->type());
    if (w.shared_down) shared = shared | activation_format(w.shared_down->type());
  }
  const LayerConfig& first = config.layer.front();
  const std::int64_t rows = limits.max_rows;
  x = floats(rows, config.dim);
  q = floats(rows, q_width);
  k = floats(rows, k_width);
  v = floats(rows, v_width);
  // Rows of the feed-forward part: with experts one for each pair.
  const std::int64_t pairs = experts.count > 0 ? rows * experts.used : rows;
  if (experts.count > 0) {
    hidden = experts.hidden;
    choice = device.make_expert_choice(limits.max_rows, experts.count, experts.used);
    scores = floats(rows, experts.count);
    expert_branch = floats(pairs, config.dim);
  }
  if (experts.shared_hidden > 0) {
    shared_gate = floats(rows, experts.shared_hidden);
    shared_up = floats(rows, experts.shared_hidden);
    shared_activated = device.make_activation(rows, experts.shared_hidden, shared);
  }
  gate = floats(pairs, hidden);
  up = floats(pairs, hidden);
  x_logits = floats(limits.max_logit_rows, config.dim);
  if (config.post_norms || experts.shared_hidden > 0) branch = floats(rows, config.dim);
  normed = device.make_activation(rows, config.dim, in);
  attention = device.make_activation(rows, std::int64_t{first.heads} * config.head_dim_v, attended);
  activated = device.make_activation(pairs, hidden, gated);
  final = device.make_activation(limits.max_logit_rows, config.dim, activation_format(model.output().type()));
  logits = device.allocate_host(static_cast<std::size_t>(limits.max_logit_rows) *
                                static_cast<std::size_t>(config.vocab) * sizeof(float));
}

// Layers that rotate alike share one table of cosines and sines.
void Transformer::Impl::collect_rotations() {
  const float* factors = model.rope_factors(limits.context);
  for (const LayerConfig& layer : config.layer) {
    RopeParams params = layer.rope;
    if (params.style == RopeStyle::none) {
      rotation_of.push_back(-1);
      continue;
    }
    params.factors = factors;
    const auto found = std::find_if(rotations.begin(), rotations.end(),
                                    [&](const RopeParams& known) { return same_rotation(known, params); });
    rotation_of.push_back(static_cast<int>(found - rotations.begin()));
    if (found == rotations.end()) {
      rotations.push_back(params);
      tables.push_back(floats(limits.max_rows, params.n_rot));
    }
  }
}

}  // namespace bankml
