#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/activation.hpp"
#include "device/cpu/attention_path.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/hadamard.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/kv_rows.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/scratch.hpp"

namespace bankml {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// What all parts of one call share. `out` is (rows, heads, head_dim_v).
struct Call {
  const AttentionArgs& args;
  const KvLayout& kv;
  const BatchView& batch;
  const FloatKernels& kernel;
  const Kernels& quantizers;
  ThreadPool& pool;
  float* out;

  int group() const noexcept { return args.heads / kv.kv_heads; }
  // The peer divides the scale, not the score, by the cap.
  float scale() const noexcept { return args.softcap != 0.0f ? args.scale / args.softcap : args.scale; }
  const float* q(std::int64_t row, int head) const noexcept {
    return args.q + (row * args.heads + head) * kv.head_dim_k;
  }
  float* out_head(std::int64_t row, int head) const noexcept { return out + (row * args.heads + head) * kv.head_dim_v; }
};

// One more score without a value: it only takes its share of the softmax.
void add_sink(float sink, float& max, float& sum, float* acc, int n) {
  float rescale = 1.0f, weight = 1.0f;
  if (sink > max) {
    rescale = std::exp(max - sink);
    max = sink;
    for (int d = 0; d < n; ++d) acc[d] *= rescale;
  } else {
    weight = std::exp(sink - max);
  }
  sum = std::fma(sum, rescale, weight);
}

void divide_by_sum(float* out, const float* acc, float sum, int n) {
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int d = 0; d < n; ++d) out[d] = acc[d] * inverse;
}

// Path C. An item is a KV head and up to 64 successive rows of one sequence: each block of cells is laid out once for
// all of them and all query heads of the group.
class TiledAttention {
 public:
  explicit TiledAttention(const Call& call)
      : call_(call), shape_{call.kv.type_k, call.kv.head_dim_k, call.kv.head_dim_v, call.scale(), call.args.softcap} {}

  void run() {
    find_row_tiles();
    ScratchArrays arrays;
    take(arrays);
    // Later rows see more cells: from the last on, so that no long item is left over at the end.
    const std::int64_t items = std::int64_t{tiles_} * call_.kv.kv_heads;
    for_each_with_scratch(call_.pool, items, arrays.bytes(), [&](std::int64_t item, std::byte* memory) {
      const std::int64_t reversed = items - 1 - item;
      ScratchArrays own(memory);
      run_item(first_row_[reversed / call_.kv.kv_heads], first_row_[reversed / call_.kv.kv_heads + 1],
               static_cast<int>(reversed % call_.kv.kv_heads), take(own));
    });
  }

 private:
  static constexpr int kRowTile = 64;

  struct Memory {
    TiledRow* rows;
    VisibleCells* cells;
    float* tile;
  };

  Memory take(ScratchArrays& arrays) const {
    return {arrays.take<TiledRow>(static_cast<std::size_t>(kRowTile * call_.group())),
            arrays.take<VisibleCells>(kRowTile), arrays.take<float>(call_.kernel.tile_scratch(shape_))};
  }

  void find_row_tiles() {
    const BatchView& batch = call_.batch;
    const std::size_t most = static_cast<std::size_t>(batch.rows) + 1;
    first_row_ = reinterpret_cast<std::int32_t*>(scratch(ScratchUse::items, most * sizeof(std::int32_t)));
    tiles_ = 0;
    for (int row = 0; row < batch.rows;) {
      first_row_[tiles_++] = row;
      const int first = row;
      while (row < batch.rows && row - first < kRowTile && batch.sequence[row] == batch.sequence[first]) ++row;
    }
    first_row_[tiles_] = batch.rows;
  }

  void run_item(int begin, int end, int kv_head, const Memory& memory) const {
    const int group = call_.group(), width = call_.kv.head_dim_v, count = (end - begin) * group;
    std::int64_t first_block = std::numeric_limits<std::int64_t>::max(), last_block = 0;
    for (int row = begin; row < end; ++row) {
      const VisibleCells& cells = memory.cells[row - begin] = VisibleCells(call_.batch, row, call_.args.window);
      first_block = std::min(first_block, cells.first_block());
      last_block = std::max(last_block, cells.last_block());
      for (int h = 0; h < group; ++h) {
        const int head = kv_head * group + h;
        memory.rows[(row - begin) * group + h] = {call_.q(row, head), call_.out_head(row, head), kNothing, 0.0f, 0};
        std::fill_n(call_.out_head(row, head), width, 0.0f);
      }
    }
    const std::int32_t sequence = call_.batch.sequence[begin];
    for (std::int64_t b = first_block; b < last_block; ++b) {
      for (int row = begin; row < end; ++row) {
        const std::uint64_t visible = memory.cells[row - begin].of_block(b);
        for (int h = 0; h < group; ++h) memory.rows[(row - begin) * group + h].visible = visible;
      }
      std::byte* block = block_of(call_.batch, sequence, b);
      call_.kernel.attend_tile(memory.rows, count, shape_, k_row(call_.kv, block, kv_head, 0),
                               v_row(call_.kv, block, kv_head, 0), memory.tile);
    }
    for (int i = 0; i < count; ++i) {
      TiledRow& row = memory.rows[i];
      if (call_.args.sinks) add_sink(call_.args.sinks[kv_head * group + i % group], row.max, row.sum, row.acc, width);
      divide_by_sum(row.acc, row.acc, row.sum, width);
    }
  }

  const Call& call_;
  TileShape shape_;
  std::int32_t* first_row_ = nullptr;  // (tiles_ + 1)
  int tiles_ = 0;
};

// Paths A and B. An item is a row, a chunk of cells and some heads of one KV head; its result is a partial softmax. One
// chunk takes in all cells; several are merged in order at the end.
class CellwiseAttention {
 public:
  CellwiseAttention(const Call& call, int chunks) : call_(call), chunks_(chunks) {
    const std::int64_t items = std::int64_t{call.batch.rows} * chunks * call.kv.kv_heads;
    const std::int64_t wanted = 2 * std::int64_t{call.pool.size()};
    const std::int64_t parts = std::clamp<std::int64_t>((wanted + items - 1) / items, 1, call.group());
    heads_ = static_cast<int>((call.group() + parts - 1) / parts);
    parts_ = (call.group() + heads_ - 1) / heads_;
  }

  void run() {
    const auto partials = static_cast<std::size_t>(std::int64_t{call_.batch.rows} * chunks_ * call_.args.heads);
    ScratchArrays counted;
    take_partials(counted, partials);
    ScratchArrays shared(scratch(ScratchUse::items, counted.bytes()));
    take_partials(shared, partials);

    ScratchArrays own_size;
    take(own_size);
    const int per_row = chunks_ * call_.kv.kv_heads * parts_;
    for_each_with_scratch(call_.pool, std::int64_t{call_.batch.rows} * per_row, own_size.bytes(),
                          [&](std::int64_t item, std::byte* memory) {
                            const int in_row = static_cast<int>(item % per_row);
                            const int chunk = in_row / (call_.kv.kv_heads * parts_);
                            const int part = in_row % (call_.kv.kv_heads * parts_);
                            ScratchArrays own(memory);
                            run_item(item / per_row, chunk, part / parts_, part % parts_ * heads_, take(own));
                          });
    call_.pool.for_each(call_.batch.rows, [&](std::int64_t row) {
      for (int head = 0; head < call_.args.heads; ++head) finish(row, head);
    });
  }

 private:
  struct Memory {
    float *q, *q8_scale, *weights, *folded;
    std::uint64_t* raises;
    std::int8_t* q8;
    Q8Row unused;  // what the quantiser gives beyond integers and scales
  };

  Memory take(ScratchArrays& arrays) const {
    constexpr std::size_t kFoldedFloats = 64;
    const auto heads = static_cast<std::size_t>(heads_), dim = static_cast<std::size_t>(call_.kv.head_dim_k);
    const std::size_t blocks = (dim + kQ8Block - 1) / kQ8Block;
    Memory memory{};
    memory.q = arrays.take<float>(heads * dim);
    memory.q8_scale = arrays.take<float>(heads * blocks);
    memory.weights = arrays.take<float>(heads * static_cast<std::size_t>(kBlockCells));
    memory.folded = arrays.take<float>(heads * kFoldedFloats);
    memory.raises = arrays.take<std::uint64_t>(heads);
    memory.q8 = arrays.take<std::int8_t>(heads * dim);
    memory.unused.scaled_sum = arrays.take<float>(blocks);
    memory.unused.sum = arrays.take<std::int32_t>(blocks);
    return memory;
  }

  void take_partials(ScratchArrays& arrays, std::size_t count) {
    max_ = arrays.take<float>(count);
    sum_ = arrays.take<float>(count);
    acc_ = arrays.take<float>(count * static_cast<std::size_t>(call_.kv.head_dim_v));
  }
  std::int64_t partial(std::int64_t row, int chunk, int head) const noexcept {
    return (row * chunks_ + chunk) * call_.args.heads + head;
  }

  // Q in the form that the dot product with K reads.
  void prepare_q(std::int64_t row, int head, int index, const Memory& memory) const {
    const int n = call_.kv.head_dim_k;
    const float* q = call_.q(row, head);
    float* to = memory.q + index * n;
    if (call_.kv.type_k == DType::f32) {
      std::copy_n(q, n, to);
    } else if (call_.kv.type_k == DType::f16) {
      for (int i = 0; i < n; ++i) to[i] = to_float(to_half(q[i]));
    } else {
      call_.quantizers.quantize_q8(q, n,
                                   {memory.q8 + index * n, memory.q8_scale + index * (n / kQ8Block),
                                    memory.unused.scaled_sum, memory.unused.sum});
    }
  }

  void run_item(std::int64_t row, int chunk, int kv_head, int part_head, const Memory& memory) const {
    const BatchView& batch = call_.batch;
    const int first_head = kv_head * call_.group() + part_head;
    const int heads = std::min(heads_, call_.group() - part_head);
    const std::int64_t result = partial(row, chunk, first_head);
    for (int h = 0; h < heads; ++h) prepare_q(row, first_head + h, h, memory);
    CellsState state{call_.kv.type_k,
                     call_.kv.type_v,
                     call_.kv.head_dim_k,
                     call_.kv.head_dim_v,
                     call_.scale(),
                     call_.args.softcap,
                     heads,
                     memory.q,
                     memory.q8,
                     memory.q8_scale,
                     acc_ + result * call_.kv.head_dim_v,
                     max_ + result,
                     sum_ + result,
                     memory.weights,
                     memory.raises,
                     nullptr,
                     memory.folded};
    std::fill_n(state.max, heads, kNothing);
    std::fill_n(state.sum, heads, 0.0f);
    std::fill_n(state.acc, heads * call_.kv.head_dim_v, 0.0f);

    const std::int32_t sequence = batch.sequence[row];
    const std::int64_t padded = batch.padded_cells[sequence], length = (padded + chunks_ - 1) / chunks_;
    const std::int64_t begin = chunk * length, end = chunks_ == 1 ? padded : std::min(begin + length, padded);
    const VisibleCells cells(batch, row, call_.args.window);
    const std::int64_t last_block = std::min(cells.last_block(), (end + kBlockCells - 1) / kBlockCells);
    for (std::int64_t b = std::max(cells.first_block(), begin / kBlockCells); b < last_block; ++b) {
      const std::uint64_t inside =
          VisibleCells::below(end - b * kBlockCells) & ~VisibleCells::below(begin - b * kBlockCells);
      std::byte* next = block_of(batch, sequence, b + 1 < last_block ? b + 1 : b);
      state.next_k = k_row(call_.kv, next, kv_head, 0);
      attend_block(state, b, sequence, kv_head, cells.of_block(b) & inside);
    }
    if (call_.args.sinks && chunk == 0) {
      for (int h = 0; h < heads; ++h) {
        add_sink(call_.args.sinks[first_head + h], state.max[h], state.sum[h], state.acc + h * call_.kv.head_dim_v,
                 call_.kv.head_dim_v);
      }
    }
  }

  // Run after run of visible cells.
  void attend_block(const CellsState& state, std::int64_t b, std::int32_t sequence, int kv_head,
                    std::uint64_t visible) const {
    std::byte* block = block_of(call_.batch, sequence, b);
    while (visible != 0) {
      const int begin = __builtin_ctzll(visible);
      const std::uint64_t holes = ~visible & ~VisibleCells::below(begin);
      const int end = holes != 0 ? __builtin_ctzll(holes) : static_cast<int>(kBlockCells);
      call_.kernel.attend_cells(state, k_row(call_.kv, block, kv_head, 0), v_row(call_.kv, block, kv_head, 0), begin,
                                end);
      visible &= ~VisibleCells::below(end);
    }
  }

  void finish(std::int64_t row, int head) const {
    const int n = call_.kv.head_dim_v;
    const auto acc_of = [&](int chunk) { return acc_ + partial(row, chunk, head) * n; };
    float* out = call_.out_head(row, head);
    if (chunks_ == 1) {
      divide_by_sum(out, acc_of(0), sum_[partial(row, 0, head)], n);
      return;
    }
    float max = kNothing, sum = 0.0f;
    std::fill_n(out, n, 0.0f);
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const std::int64_t p = partial(row, chunk, head);
      if (sum_[p] == 0.0f) continue;
      const float grown = std::max(max, max_[p]);
      const float old_part = std::exp(max - grown), new_part = std::exp(max_[p] - grown);
      const float* acc = acc_of(chunk);
      for (int d = 0; d < n; ++d) out[d] = std::fma(out[d], old_part, acc[d] * new_part);
      sum = std::fma(sum, old_part, sum_[p] * new_part);
      max = grown;
    }
    divide_by_sum(out, out, sum, n);
  }

  const Call& call_;
  int chunks_, heads_, parts_;  // heads of an item; parts of a group
  float *max_ = nullptr, *sum_ = nullptr, *acc_ = nullptr;
};

}  // namespace

void CpuOps::attention(Stream&, Activation& out, const AttentionArgs& args, const KvLayout& kv,
                       const BatchView& batch) {
  if (batch.rows == 0) return;
  auto& activation = static_cast<CpuActivation&>(out);
  const std::int64_t width = std::int64_t{args.heads} * kv.head_dim_v;
  float* rows = out.f32();
  if (!rows) {
    rows = reinterpret_cast<float*>(
        scratch(ScratchUse::rows, static_cast<std::size_t>(batch.rows * width) * sizeof(float)));
  }
  const Call call{args, kv, batch, floats_, kernels(isa_), pool_, rows};
  const std::int64_t padded = batch.padded_cells[batch.sequence[0]];
  switch (attention_path(batch.rows, padded, kv.type_k, kv.type_v, kv.head_dim_k, kv.head_dim_v)) {
    case AttentionPath::tiled:
      TiledAttention(call).run();
      break;
    case AttentionPath::split:
      CellwiseAttention(call, args.virtual_threads).run();
      break;
    case AttentionPath::one_chunk:
      CellwiseAttention(call, 1).run();
      break;
  }
  pool_.for_each(batch.rows, [&](std::int64_t row) {
    walsh_hadamard(rows + row * width, static_cast<int>(width), value_rotation(kv.type_v, kv.head_dim_v));
    quantize_row(activation, row, rows + row * width);
  });
}

}  // namespace bankml
