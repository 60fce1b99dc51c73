#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "bankml/base/error.hpp"
#include "bankml/model/model.hpp"
#include "model/batch_arrays.hpp"

namespace bankml {
namespace {

// Attention spans are padded to this many cells, as the peer pads them (docs/prompt-cache.md, section 4).
constexpr std::int64_t kCellPadding = 256;

std::int64_t round_up(std::int64_t n, std::int64_t unit) noexcept {
  return (n + unit - 1) / unit * unit;
}

std::int64_t blocks_for(std::int64_t cells) noexcept {
  return (cells + kBlockCells - 1) / kBlockCells;
}

bool same_rotation(const RopeParams& a, const RopeParams& b) noexcept {
  return a.n_rot == b.n_rot && a.base == b.base && a.freq_scale == b.freq_scale && a.factors == b.factors &&
         a.ext_factor == b.ext_factor && a.attn_factor == b.attn_factor && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow && a.n_ctx_orig == b.n_ctx_orig;
}

// What a part of the batch's sequences holds where, once some cell holds another position than its own number.
struct CellPositions {
  Buffer device, host;
};

}  // namespace

struct Transformer::Impl {
  Impl(const Model& m, KvPool& p, const TransformerLimits& l)
      : model(m),
        config(m.config()),
        device(m.device()),
        ops(m.device().ops()),
        pool(p),
        limits(l),
        cache_cells{
            round_up(l.context, kCellPadding),
            p.window() == 0 ? 0 : (p.window_cells() > 0 ? p.window_cells() : round_up(l.context, kCellPadding))},
        arrays(device, l, {blocks_for(cache_cells[0]), blocks_for(cache_cells[1])}) {
    limits.max_logit_rows = std::min(limits.max_logit_rows, limits.max_rows);
    stream = device.make_stream();
    allocate_scratch();
    collect_rotations();
  }

  Buffer floats(std::int64_t rows, std::int64_t dim) {
    return device.allocate(static_cast<std::size_t>(rows * dim) * sizeof(float));
  }

  void allocate_scratch() {
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
  void collect_rotations() {
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

  // The batch as each part of the layers sees it.
  using BatchViews = std::array<BatchView, kKvParts.size()>;

  BatchViews prepare(std::span<const BatchRow> rows, std::span<KvSequence* const> sequences);
  void prepare_part(BatchView& view, KvPart part, std::span<const BatchRow> rows,
                    std::span<KvSequence* const> sequences);
  const std::int32_t* upload_cell_positions(KvPart part, std::span<KvSequence* const> sequences);
  void layer(std::size_t index, const BatchView& batch, int& n, bool last, int n_logits);
  void rotate_run(const KvCells& held, KvPart part, const KvSequence::Run& run, const BatchView& view);
  void feed_forward(std::size_t index, float* residual, int n);
  void mix_experts(const LayerWeights& w, float* residual, int n);
  void project(float* residual, const Weight& weight, const Buffer& bias, const Buffer& post_norm, const Activation& in,
               int n);

  const Model& model;
  const ModelConfig& config;
  Device& device;
  Ops& ops;
  KvPool& pool;
  TransformerLimits limits;
  std::array<std::int64_t, kKvParts.size()> cache_cells;  // of a sequence at most, in each part
  BatchArrays arrays;
  std::unique_ptr<Stream> stream;
  std::vector<RopeParams> rotations;
  std::vector<Buffer> tables;                              // one a rotation: (rows, n_rot / 2, 2)
  std::vector<int> rotation_of;                            // per layer; -1: none
  std::vector<std::int64_t> length_before, length_needed;  // per sequence of a batch; kept, so that no pass allocates
  std::array<CellPositions, kKvParts.size()> cell_positions;
  Buffer moved_cells, moved_cells_host;
  Buffer x, q, k, v, gate, up, branch, x_logits, logits;
  Buffer scores, expert_branch, shared_gate, shared_up;
  std::unique_ptr<ExpertChoice> choice;
  std::unique_ptr<Activation> normed, attention, activated, shared_activated, final;
};

Transformer::Impl::BatchViews Transformer::Impl::prepare(std::span<const BatchRow> rows,
                                                         std::span<KvSequence* const> sequences) {
  BatchView common;
  common.rows = static_cast<int>(rows.size());
  common.sequences = static_cast<int>(sequences.size());
  int n_logits = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    arrays.tokens()[i] = rows[i].token;
    arrays.position()[i] = rows[i].position;
    arrays.sequence()[i] = rows[i].sequence;
    if (rows[i].wants_logits) arrays.logit_rows()[n_logits++] = static_cast<std::int32_t>(i);
  }
  common.position = arrays.on_device(arrays.position());
  common.sequence = arrays.on_device(arrays.sequence());
  BatchViews views{common, common};
  prepare_part(views[0], KvPart::full, rows, sequences);
  if (pool.window() > 0) prepare_part(views[1], KvPart::window, rows, sequences);
  arrays.upload(*stream);
  return views;
}

void Transformer::Impl::prepare_part(BatchView& view, KvPart part, std::span<const BatchRow> rows,
                                     std::span<KvSequence* const> sequences) {
  const std::int64_t cache = cache_cells[static_cast<std::size_t>(part)];
  view.blocks_stride = arrays.blocks_stride(part);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KvSequence& sequence = *sequences[static_cast<std::size_t>(rows[i].sequence)];
    arrays.cell(part)[i] = static_cast<std::int32_t>(sequence.part(part).cell_of(rows[i].position));
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const KvCells& held = sequences[s]->part(part);
    std::byte** table = arrays.blocks(part) + static_cast<std::int64_t>(s) * view.blocks_stride;
    for (const KvBlock& block : held.blocks()) *table++ = block.data();
    arrays.cells(part)[s] = static_cast<std::int32_t>(held.cells());
    arrays.padded_cells(part)[s] =
        static_cast<std::int32_t>(std::min(cache, std::max(kCellPadding, round_up(held.cells(), kCellPadding))));
  }
  if (!std::all_of(sequences.begin(), sequences.end(), [&](const KvSequence* s) { return s->part(part).in_order(); })) {
    view.cell_position = upload_cell_positions(part, sequences);
    view.cell_position_stride = cache;
  }
  view.cell = arrays.on_device(arrays.cell(part));
  view.blocks = arrays.on_device(arrays.blocks(part));
  view.cells = arrays.on_device(arrays.cells(part));
  view.padded_cells = arrays.on_device(arrays.padded_cells(part));
}

// The memory is taken when the first sequence needs it.
const std::int32_t* Transformer::Impl::upload_cell_positions(KvPart part, std::span<KvSequence* const> sequences) {
  const std::int64_t cache = cache_cells[static_cast<std::size_t>(part)];
  CellPositions& positions = cell_positions[static_cast<std::size_t>(part)];
  const std::size_t bytes = sequences.size() * static_cast<std::size_t>(cache) * sizeof(std::int32_t);
  if (positions.device.bytes() < bytes) {
    positions.host = device.allocate_host(bytes);
    positions.device = device.allocate(bytes);  // last: its size tells that both are there
  }
  std::int32_t* out = positions.host.as<std::int32_t>();
  for (const KvSequence* sequence : sequences) {
    const KvCells& held = sequence->part(part);
    for (std::int64_t c = 0; c < cache; ++c) *out++ = c < held.cells() ? held.position(c) : -1;
  }
  stream->copy_to_device(positions.device.data(), positions.host.data(), bytes);
  return positions.device.as<std::int32_t>();
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
  if (config.pre_norms) {
    ops.rms_norm(*stream, *normed, residual, w.ffn_norm.as<float>(), n, config.norm_eps);
  } else {
    ops.quantize(*stream, *normed, residual, n);
  }
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

void Transformer::Impl::layer(std::size_t index, const BatchView& batch, int& n, bool last, int n_logits) {
  const LayerWeights& w = model.layers()[index];
  const LayerConfig& c = config.layer[index];
  float* residual = x.as<float>();
  if (config.pre_norms) {
    ops.rms_norm(*stream, *normed, residual, w.attn_norm.as<float>(), n, config.norm_eps);
  } else {
    ops.quantize(*stream, *normed, residual, n);
  }
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
  const KvLayout& kv = pool.layout(static_cast<int>(index));
  ops.rope_store(*stream, store, kv, batch);
  if (last && n_logits == 0) return;  // nothing reads the rest of the last layer

  AttentionArgs attend;
  attend.q = q.as<float>();
  attend.heads = c.heads;
  attend.scale = config.attention_scale;
  attend.softcap = config.attention_softcap;
  attend.window = c.window;
  attend.sinks = w.sinks.as<float>();
  ops.attention(*stream, *attention, attend, kv, batch);
  project(residual, *w.output, w.output_bias, w.post_attention_norm, *attention, n);
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
  ops.rms_norm(*stream, *final, residual, model.output_norm(), n, config.norm_eps);
  const MatmulOutput head{&model.output(), logits.as<float>(), model.output_bias()};
  ops.matmul(*stream, {&head, 1}, *final, n);
  if (config.logit_scale != 1.0f || config.logit_softcap != 0.0f) {
    ops.scale_softcap(*stream, logits.as<float>(), std::int64_t{n} * config.vocab, config.logit_scale,
                      config.logit_softcap);
  }
}

Transformer::Transformer(const Model& model, KvPool& pool, const TransformerLimits& limits)
    : impl_(std::make_unique<Impl>(model, pool, limits)) {}

Transformer::~Transformer() = default;

Stream& Transformer::stream() noexcept {
  return *impl_->stream;
}

std::span<const float> Transformer::logits(int i) const noexcept {
  const std::size_t vocab = static_cast<std::size_t>(impl_->config.vocab);
  return {impl_->logits.as<float>() + static_cast<std::size_t>(i) * vocab, vocab};
}

void Transformer::keep(KvSequence& sequence, std::span<const KvSequence::Run> runs) {
  Impl& impl = *impl_;
  Stream& stream = *impl.stream;
  sequence.keep(runs, impl.pool, stream);
  KvSequence* const one[] = {&sequence};
  Impl::BatchViews views = impl.prepare({}, one);
  for (BatchView& view : views) view.rows = 1;
  const std::size_t bytes = static_cast<std::size_t>(impl.cache_cells[0]) * sizeof(std::int32_t);
  if (impl.moved_cells.bytes() < bytes) {
    impl.moved_cells_host = impl.device.allocate_host(bytes);
    impl.moved_cells = impl.device.allocate(bytes);  // last: its size tells that both are there
  }
  for (const KvSequence::Run& run : runs) {
    if (run.from == run.to || run.count == 0) continue;
    for (const KvPart part : kKvParts)
      impl.rotate_run(sequence.part(part), part, run, views[static_cast<std::size_t>(part)]);
  }
  stream.synchronize();
}

// Turns the keys of the cells that hold the run's new positions by the distance that it has moved.
void Transformer::Impl::rotate_run(const KvCells& held, KvPart part, const KvSequence::Run& run,
                                   const BatchView& view) {
  stream->synchronize();  // what was uploaded for the last run has been read
  std::int32_t* cells = moved_cells_host.as<std::int32_t>();
  int n = 0;
  for (std::int64_t c = 0; c < held.cells(); ++c) {
    const std::int32_t position = held.position(c);
    if (position >= run.to && position < run.to + run.count) cells[n++] = static_cast<std::int32_t>(c);
  }
  if (n == 0) return;
  stream->copy_to_device(moved_cells.data(), cells, static_cast<std::size_t>(n) * sizeof(std::int32_t));
  arrays.position()[0] = static_cast<std::int32_t>(run.to - run.from);
  arrays.upload(*stream);
  for (std::size_t i = 0; i < rotations.size(); ++i) ops.rope_table(*stream, tables[i].as<float>(), rotations[i], view);
  for (std::size_t i = 0; i < config.layer.size(); ++i) {
    if (rotation_of[i] < 0 || pool.part_of(static_cast<int>(i)) != part) continue;
    const RopeParams& rope = config.layer[i].rope;
    ops.rotate_keys(*stream, pool.layout(static_cast<int>(i)), view.blocks, moved_cells.as<std::int32_t>(), n,
                    tables[static_cast<std::size_t>(rotation_of[i])].as<float>(), rope.style, rope.n_rot);
  }
}

bool Transformer::forward(std::span<const BatchRow> rows, std::span<KvSequence* const> sequences,
                          const std::atomic<bool>* abort) {
  Impl& impl = *impl_;
  const auto n_logits = std::count_if(rows.begin(), rows.end(), [](const BatchRow& row) { return row.wants_logits; });
  if (rows.empty() || rows.size() > static_cast<std::size_t>(impl.limits.max_rows) ||
      sequences.size() > static_cast<std::size_t>(impl.limits.max_sequences) || n_logits > impl.limits.max_logit_rows) {
    throw Error(ErrorKind::internal, "a forward pass larger than the transformer was made for");
  }
  std::vector<std::int64_t>&before = impl.length_before, &needed = impl.length_needed;
  before.clear();
  needed.clear();
  for (const KvSequence* sequence : sequences) {
    before.push_back(sequence->length());
    needed.push_back(sequence->length());
  }
  for (const BatchRow& row : rows) {
    std::int64_t& length = needed[static_cast<std::size_t>(row.sequence)];
    length = std::max<std::int64_t>(length, row.position + 1);
    if (length > impl.cache_cells[0]) throw Error(ErrorKind::internal, "a position beyond the context");
  }
  const auto cut_back = [&] {
    for (std::size_t s = 0; s < sequences.size(); ++s) sequences[s]->truncate(before[s]);
  };
  // Unless the pass ends well, the stream is waited for, which also takes its error from it, and no sequence keeps rows
  // that were not computed.
  bool done = false;
  const auto clean_up = [&](Impl*) {
    if (done) return;
    try {
      impl.stream->synchronize();
    } catch (const Error&) {  // told already
    }
    cut_back();
  };
  const std::unique_ptr<Impl, decltype(clean_up)> guard(&impl, clean_up);
  for (std::size_t s = 0; s < sequences.size(); ++s) sequences[s]->extend(needed[s], impl.pool, *impl.stream);

  const Impl::BatchViews views = impl.prepare(rows, sequences);
  const BatchView& batch = views[0];
  Stream& stream = *impl.stream;
  impl.ops.embed(stream, impl.x.as<float>(), impl.model.token_embedding(), impl.arrays.on_device(impl.arrays.tokens()),
                 batch.rows, impl.config.embedding_scale);
  for (std::size_t i = 0; i < impl.rotations.size(); ++i) {
    impl.ops.rope_table(stream, impl.tables[i].as<float>(), impl.rotations[i], batch);
  }
  int n = batch.rows;
  for (std::size_t i = 0; i < impl.config.layer.size(); ++i) {
    if (abort && abort->load(std::memory_order_relaxed)) return false;
    const BatchView& view = views[static_cast<std::size_t>(impl.pool.part_of(static_cast<int>(i)))];
    impl.layer(i, view, n, i + 1 == impl.config.layer.size(), static_cast<int>(n_logits));
  }
  stream.synchronize();
  done = true;
  return true;
}

}  // namespace bankml
