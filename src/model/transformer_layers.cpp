// A layer of the forward pass, and the output behind the last one (docs/architectures.md, section 2).
#include "model/transformer_impl.hpp"

namespace bankml {

// Rows of the residual as what a branch multiplies: in `normed`.
void Transformer::Impl::read_rows(const float* residual, const Buffer& norm, int n) {
  if (config.pre_norms) {
    ops.rms_norm(*stream, *normed, residual, norm.as<float>(), n, config.norm_eps);
  } else {
    ops.quantize(*stream, *normed, residual, n);
  }
}

// residual += W in (+ bias), scaled or normalised as the model wants it.
void Transformer::Impl::project(float* residual, const Weight& weight, const Buffer& bias, const Buffer& post_norm,
                                const Activation& in, int n) {
  MatmulOutput output{&weight, residual, bias.as<float>(), residual, config.residual_scale};
  if (config.post_norms) {
    output.out = branch.as<float>();
    output.residual = nullptr;
  }
  ops.matmul(*stream, {&output, 1}, in, n);
  if (config.post_norms) {
    ops.rms_norm_add(*stream, residual, branch.as<float>(), post_norm.as<float>(), n, config.dim, config.norm_eps);
  }
}

void Transformer::Impl::feed_forward(std::size_t index, float* residual, int n) {
  const LayerWeights& w = model.layers()[index];
  read_rows(residual, w.ffn_norm, n);
  if (choice) return mix_experts(w, residual, n);
  const MatmulOutput outputs[] = {{w.gate.get(), gate.as<float>(), w.gate_bias.as<float>()},
                                  {w.up.get(), up.as<float>(), w.up_bias.as<float>()}};
  ops.matmul(*stream, outputs, *normed, n);
  ops.glu(*stream, *activated, gate.as<float>(), up.as<float>(), n, config.activation);
  project(residual, *w.down, w.down_bias, w.post_ffw_norm, *activated, n);
}

// The experts of each row, and the one of every row, of the rows in `normed` (docs/architectures.md, section 6).
void Transformer::Impl::mix_experts(const LayerWeights& w, float* residual, int n) {
  const MatmulOutput router{w.router.get(), scores.as<float>(), w.router_bias.as<float>()};
  ops.matmul(*stream, {&router, 1}, *normed, n);
  ops.route(*stream, *choice, scores.as<float>(), config.experts.router, n);
  const ExpertOutput in[] = {{w.gate.get(), gate.as<float>(), w.gate_bias.as<float>()},
                             {w.up.get(), up.as<float>(), w.up_bias.as<float>()}};
  ops.matmul_experts(*stream, in, *normed, ExpertInput::rows, *choice, n);
  const int pairs = n * choice->used();
  ops.glu(*stream, *activated, gate.as<float>(), up.as<float>(), pairs, config.activation);
  const ExpertOutput out{w.down.get(), expert_branch.as<float>(), w.down_bias.as<float>()};
  ops.matmul_experts(*stream, {&out, 1}, *activated, ExpertInput::pairs, *choice, n);

  ExpertSum sum;
  sum.out = residual;
  sum.branch = expert_branch.as<float>();
  sum.residual = residual;
  sum.scale = config.residual_scale;
  sum.dim = config.dim;
  if (shared_activated) {
    const MatmulOutput shared_in[] = {{w.shared_gate.get(), shared_gate.as<float>()},
                                      {w.shared_up.get(), shared_up.as<float>()}};
    ops.matmul(*stream, shared_in, *normed, n);
    ops.glu(*stream, *shared_activated, shared_gate.as<float>(), shared_up.as<float>(), n, config.activation);
    const MatmulOutput shared_out{w.shared_down.get(), branch.as<float>()};
    ops.matmul(*stream, {&shared_out, 1}, *shared_activated, n);
    sum.shared = branch.as<float>();
  }
  ops.sum_experts(*stream, sum, *choice, n);
}

// Q, K and V of the rows in `normed`, Q and K normed and rotated as the model wants it; K and V end in cells of the
// cache.
void Transformer::Impl::store_rows(std::size_t index, const BatchView& batch, int n) {
  const LayerWeights& w = model.layers()[index];
  const LayerConfig& c = config.layer[index];
  const MatmulOutput outputs[] = {{w.q.get(), q.as<float>(), w.q_bias.as<float>()},
                                  {w.k.get(), k.as<float>(), w.k_bias.as<float>()},
                                  {w.v.get(), v.as<float>(), w.v_bias.as<float>()}};
  ops.matmul(*stream, outputs, *normed, n);

  RopeStoreArgs store;
  store.q = q.as<float>();
  store.k = k.as<float>();
  store.v = v.as<float>();
  store.heads = c.heads;
  store.norm_eps = config.norm_eps;
  store.q_scale = config.q_scale;
  if (config.qk_norm == ModelConfig::QkNorm::head) {
    store.q_norm = w.q_norm.as<float>();
    store.k_norm = w.k_norm.as<float>();
  } else if (config.qk_norm == ModelConfig::QkNorm::whole) {
    ops.rms_norm(*stream, store.q, store.q, w.q_norm.as<float>(), n, static_cast<int>(w.q->rows()), config.norm_eps);
    ops.rms_norm(*stream, k.as<float>(), k.as<float>(), w.k_norm.as<float>(), n, static_cast<int>(w.k->rows()),
                 config.norm_eps);
  }
  if (const int rotation = rotation_of[index]; rotation >= 0) {
    store.style = c.rope.style;
    store.n_rot = c.rope.n_rot;
    store.table = tables[static_cast<std::size_t>(rotation)].as<float>();
  }
  ops.rope_store(*stream, store, pool.layout(static_cast<int>(index)), batch);
}

void Transformer::Impl::attend(std::size_t index, const BatchView& batch, int n) {
  const LayerWeights& w = model.layers()[index];
  const LayerConfig& c = config.layer[index];
  AttentionArgs args;
  args.q = q.as<float>();
  args.heads = c.heads;
  args.scale = config.attention_scale;
  args.softcap = config.attention_softcap;
  args.window = c.window;
  args.sinks = w.sinks.as<float>();
  ops.attention(*stream, *attention, args, pool.layout(static_cast<int>(index)), batch);
  project(x.as<float>(), *w.output, w.output_bias, w.post_attention_norm, *attention, n);
}

// `n`: rows that go in, and then those that are left.
void Transformer::Impl::layer(std::size_t index, const BatchView& batch, int& n, bool last, int n_logits) {
  float* residual = x.as<float>();
  read_rows(residual, model.layers()[index].attn_norm, n);
  store_rows(index, batch, n);
  if (last && n_logits == 0) return;  // nothing reads the rest of the last layer
  attend(index, batch, n);
  // Of the last layer, only the rows whose logits are wanted go on: the number of rows is part of the arithmetic.
  const auto keep_logit_rows = [&] {
    if (n_logits < n) {
      ops.gather_rows(*stream, x_logits.as<float>(), residual, arrays.on_device(arrays.logit_rows()), n_logits,
                      config.dim);
      residual = x_logits.as<float>();
    }
    n = n_logits;
  };
  if (last && !config.all_rows_to_end) keep_logit_rows();
  feed_forward(index, residual, n);
  if (!last) return;
  if (config.all_rows_to_end) keep_logit_rows();
  compute_logits(residual, n);
}

void Transformer::Impl::compute_logits(const float* residual, int n) {
  ops.rms_norm(*stream, *final, residual, model.output_norm(), n, config.norm_eps);
  const MatmulOutput head{&model.output(), logits.as<float>(), model.output_bias()};
  ops.matmul(*stream, {&head, 1}, *final, n);
  if (config.logit_scale != 1.0f || config.logit_softcap != 0.0f) {
    ops.scale_softcap(*stream, logits.as<float>(), std::int64_t{n} * config.vocab, config.logit_scale,
                      config.logit_softcap);
  }
}

}  // namespace bankml
