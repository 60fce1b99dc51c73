#pragma once
// Sequences of random keys and values in blocks that lie in any order, and the rows of a batch over them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bankml/device/ops.hpp"
#include "device/cpu/kv_rows.hpp"
#include "device/random_weight.hpp"
#include "kernels/host_device.hpp"

namespace bankml::test {

struct KvShape {
  int head_dim = 64, kv_heads = 1, group = 1;
  DType type_k = DType::f16, type_v = DType::f16;
  std::vector<int> rows = {1};    // of each sequence: its last positions
  std::vector<int> cells = {64};  // of each sequence
  bool scattered = false;         // cells hold positions in another order, some of them none
  int head_dim_v = 0;             // 0: head_dim
};

class KvProblem {
 public:
  explicit KvProblem(const KvShape& given, unsigned seed = 1) : shape(given), random(seed) {
    kv.type_k = shape.type_k;
    kv.type_v = shape.type_v;
    kv.kv_heads = shape.kv_heads;
    kv.head_dim_k = shape.head_dim;
    kv.head_dim_v = shape.head_dim_v != 0 ? shape.head_dim_v : shape.head_dim;
    const std::size_t cells_of_heads = static_cast<std::size_t>(shape.kv_heads * kBlockCells);
    kv.k_offset = kGap;
    kv.v_offset = kGap + static_cast<std::int64_t>(cells_of_heads * row_bytes(kv.type_k, kv.head_dim_k));
    block_bytes = static_cast<std::size_t>(kv.v_offset) + cells_of_heads * row_bytes(kv.type_v, kv.head_dim_v);
    const int most = *std::max_element(shape.cells.begin(), shape.cells.end());
    stride = (most + kBlockCells - 1) / kBlockCells + 1;
    for (std::size_t s = 0; s < shape.cells.size(); ++s) add_sequence(static_cast<int>(s));
  }

  int heads() const { return shape.kv_heads * shape.group; }
  int rows() const { return static_cast<int>(position.size()); }
  const std::byte* k(int seq, int head, int c) const {
    return at(seq, c) + kv.k_offset + offset(kv.type_k, kv.head_dim_k, head, c);
  }
  const std::byte* v(int seq, int head, int c) const {
    return at(seq, c) + kv.v_offset + offset(kv.type_v, kv.head_dim_v, head, c);
  }
  int position_of(int seq, int c) const { return held[static_cast<std::size_t>(seq * stride * kBlockCells + c)]; }

  // The batch on a device, as long as this lives.
  class Placed {
   public:
    Placed(Bench& bench, const KvProblem& problem)
        : blocks_(bench.upload(problem.memory)),
          position_(bench.upload(problem.position)),
          sequence_(bench.upload(problem.sequence)),
          cell_(bench.upload(problem.cell)),
          cells_(bench.upload(problem.cells())),
          padded_(bench.upload(problem.padded())),
          held_(bench.upload(problem.held)) {
      std::vector<std::byte*> table;
      for (const std::size_t index : problem.block_of) table.push_back(blocks_.data() + index * problem.block_bytes);
      table_ = bench.upload(table);
      view.rows = problem.rows();
      view.sequences = static_cast<int>(problem.shape.cells.size());
      view.position = position_.as<std::int32_t>();
      view.sequence = sequence_.as<std::int32_t>();
      view.cell = cell_.as<std::int32_t>();
      view.blocks = table_.as<std::byte*>();
      view.blocks_stride = problem.stride;
      view.cells = cells_.as<std::int32_t>();
      view.padded_cells = padded_.as<std::int32_t>();
      if (!problem.shape.scattered) return;
      view.cell_position = held_.as<std::int32_t>();
      view.cell_position_stride = problem.stride * kBlockCells;
    }
    std::vector<std::byte> memory(Bench& bench) const { return bench.download(blocks_.data(), blocks_.bytes()); }

    BatchView view;

   private:
    Buffer blocks_, position_, sequence_, cell_, cells_, padded_, held_, table_;
  };

  KvShape shape;
  KvLayout kv;
  std::mt19937 random;
  std::int64_t stride = 0;
  std::size_t block_bytes = 0;
  std::vector<std::byte> memory;                       // all blocks; cells that hold nothing are NaN
  std::vector<std::size_t> block_of;                   // (sequences, stride): index of a block in memory
  std::vector<std::int32_t> position, sequence, cell;  // (rows)
  std::vector<std::int32_t> held;                      // (sequences, stride * kBlockCells)

 private:
  static constexpr std::int64_t kGap = 64;  // before K: another layer's part
  static std::size_t offset(DType type, int dim, int head, int c) {
    return (static_cast<std::size_t>(head) * kBlockCells + static_cast<std::size_t>(c % kBlockCells)) *
           row_bytes(type, dim);
  }
  const std::byte* at(int seq, int c) const {
    return memory.data() + block_of[static_cast<std::size_t>(seq * stride + c / kBlockCells)] * block_bytes;
  }
  std::vector<std::int32_t> cells() const { return {shape.cells.begin(), shape.cells.end()}; }
  std::vector<std::int32_t> padded() const {
    std::vector<std::int32_t> out;
    for (const int n : shape.cells) out.push_back(std::max(256, (n + 255) / 256 * 256));
    return out;
  }

  void add_sequence(int s) {
    const int n = shape.cells[static_cast<std::size_t>(s)], rows = shape.rows[static_cast<std::size_t>(s)];
    // Which position each cell holds; scattered: every fifth holds none.
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n), -1);
    std::vector<std::int32_t> used;
    for (int c = 0; c < n; ++c) {
      if (!shape.scattered || c % 5 != 2 || c + 1 == n) used.push_back(c);
    }
    if (shape.scattered) std::shuffle(used.begin(), used.end(), random);
    for (std::size_t p = 0; p < used.size(); ++p)
      positions[static_cast<std::size_t>(used[p])] = static_cast<std::int32_t>(p);
    for (int r = 0; r < rows; ++r) {
      const std::size_t p = used.size() - static_cast<std::size_t>(rows - r);
      position.push_back(static_cast<std::int32_t>(p));
      sequence.push_back(s);
      cell.push_back(used[p]);
    }
    positions.resize(static_cast<std::size_t>(stride * kBlockCells), -1);
    held.insert(held.end(), positions.begin(), positions.end());

    const std::size_t first = memory.size() / block_bytes;
    memory.resize(memory.size() + static_cast<std::size_t>(stride) * block_bytes, std::byte{0xff});
    std::vector<std::size_t> order(static_cast<std::size_t>(stride));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = first + i;
    std::shuffle(order.begin(), order.end(), random);
    block_of.insert(block_of.end(), order.begin(), order.end());
    // Cells that held something once still do.
    for (int c = 0; c < n; ++c) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        fill(const_cast<std::byte*>(k(s, head, c)), kv.type_k, kv.head_dim_k);
        fill(const_cast<std::byte*>(v(s, head, c)), kv.type_v, kv.head_dim_v);
      }
    }
  }

  void fill(std::byte* to, DType type, int dim) {
    const std::vector<float> x = random_floats(static_cast<std::size_t>(dim), random);
    for (int i = 0; i < dim; ++i) {
      if (type == DType::f32) reinterpret_cast<float*>(to)[i] = x[static_cast<std::size_t>(i)];
      if (type == DType::f16) reinterpret_cast<half*>(to)[i] = to_half(x[static_cast<std::size_t>(i)]);
      if (type == DType::q8_0) {
        auto& block = reinterpret_cast<BlockQ8_0*>(to)[i / 32];
        if (i % 32 == 0) block.d = to_half(0.02f + 0.005f * std::abs(x[static_cast<std::size_t>(i)]));
        block.qs[i % 32] =
            static_cast<std::int8_t>(std::clamp(x[static_cast<std::size_t>(i)] * 40.0f, -127.0f, 127.0f));
      }
    }
  }
};

// A cell's row, widened.
inline std::vector<double> widened(DType type, const std::byte* row, int n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  dequantize_row(type, row, n, out.data());
  return {out.begin(), out.end()};
}

}  // namespace bankml::test
