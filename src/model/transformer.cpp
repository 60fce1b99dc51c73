#include <algorithm>

#include "bankml/base/error.hpp"
#include "bankml/model/model.hpp"
#include "model/cell_counts.hpp"
#include "model/transformer_impl.hpp"

namespace bankml {

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
        static_cast<std::int32_t>(std::min(cache, std::max(kCellPadding, padded(held.cells()))));
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
