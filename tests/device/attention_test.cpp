// Attention of every instruction set and thread count against the plain statement of it, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/activation.hpp"
#include "device/cpu/hadamard.hpp"
#include "device/cpu/kv_rows.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/reference_attention.hpp"
#include "device/float_kernel_sets.hpp"

namespace bankml {
namespace {

struct Shape {
  int rows = 1;
  int cells = 1;
  int head_dim = 64;
  int kv_heads = 1;
  int group = 3;
  int window = 0;
  DType type = DType::f16;
  DType type_v = DType::f16;
  float softcap = 0.0f;
  bool sinks = false;
  bool scattered = false;  // cells hold positions in another order, some of them none
  int head_dim_v = 0;      // 0: head_dim
};

constexpr int kPadding = 256;

// A sequence of random keys and values in blocks, its last `rows` positions being the batch.
class Problem {
 public:
  explicit Problem(const Shape& given, unsigned seed = 1) : shape(given), random(seed) {
    kv.type_k = shape.type;
    kv.type_v = shape.type_v;
    kv.kv_heads = shape.kv_heads;
    kv.head_dim_k = shape.head_dim;
    kv.head_dim_v = shape.head_dim_v != 0 ? shape.head_dim_v : shape.head_dim;
    const std::size_t cells_of_heads = static_cast<std::size_t>(shape.kv_heads * kBlockCells);
    kv.v_offset = static_cast<std::int64_t>(cells_of_heads * row_bytes(kv.type_k, kv.head_dim_k));
    block_bytes = static_cast<std::size_t>(kv.v_offset) + cells_of_heads * row_bytes(kv.type_v, kv.head_dim_v);
    heads = shape.kv_heads * shape.group;
    padded = std::max(kPadding, (shape.cells + kPadding - 1) / kPadding * kPadding);
    lay_out_cells();
    fill_blocks();
    q.resize(static_cast<std::size_t>(shape.rows * heads * kv.head_dim_k));
    for (float& x : q) x = 2.0f * normal(random);
    for (int head = 0; head < heads; ++head) sinks.push_back(2.0f * normal(random));
  }

  AttentionArgs args() const {
    AttentionArgs a;
    a.q = q.data();
    a.heads = heads;
    a.scale = 1.0f / std::sqrt(static_cast<float>(kv.head_dim_k));
    a.softcap = shape.softcap;
    a.window = shape.window;
    a.sinks = shape.sinks ? sinks.data() : nullptr;
    return a;
  }

  std::vector<float> run(const test::FloatKernelSet& set, int threads) const {
    return run_together(set, threads, {this});
  }

  // Several sequences of one shape in one batch, row after row of the one and then of the next.
  static std::vector<float> run_together(const test::FloatKernelSet& set, int threads,
                                         const std::vector<const Problem*>& problems) {
    const Problem& one = *problems.front();
    std::vector<std::int32_t> all_positions, all_sequences, cells, padded_cells, all_held;
    std::vector<std::byte*> all_blocks;
    std::vector<float> all_q;
    for (const Problem* problem : problems) {
      all_sequences.insert(all_sequences.end(), problem->position.size(), static_cast<int>(cells.size()));
      all_positions.insert(all_positions.end(), problem->position.begin(), problem->position.end());
      all_blocks.insert(all_blocks.end(), problem->blocks.begin(), problem->blocks.end());
      all_held.insert(all_held.end(), problem->held.begin(), problem->held.end());
      all_q.insert(all_q.end(), problem->q.begin(), problem->q.end());
      cells.push_back(problem->shape.cells);
      padded_cells.push_back(problem->padded);
    }
    BatchView batch;
    batch.rows = static_cast<int>(all_positions.size());
    batch.sequences = static_cast<int>(problems.size());
    batch.position = all_positions.data();
    batch.sequence = all_sequences.data();
    batch.blocks = all_blocks.data();
    batch.blocks_stride = static_cast<std::int64_t>(one.blocks.size());
    batch.cells = cells.data();
    batch.padded_cells = padded_cells.data();
    if (one.shape.scattered) {
      batch.cell_position = all_held.data();
      batch.cell_position_stride = static_cast<std::int64_t>(one.held.size());
    }
    AttentionArgs a = one.args();
    a.q = all_q.data();
    ThreadPool pool(threads);
    CpuOps ops(pool, set.isa, *set.kernels);
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    CpuActivation out(batch.rows, one.heads * one.kv.head_dim_v, ActFormats::f32, set.isa);
    ops.attention(*stream, out, a, one.kv, batch);
    return {out.f32(), out.f32() + batch.rows * one.heads * one.kv.head_dim_v};
  }

  std::vector<float> expected() const {
    const AttentionPath path = attention_path(shape.rows, padded, kv.type_k, kv.type_v, kv.head_dim_k, kv.head_dim_v);
    std::vector<float> out(static_cast<std::size_t>(shape.rows * heads * kv.head_dim_v));
    const AttentionArgs a = args();
    for (int head = 0; head < heads; ++head) {
      const std::vector<std::byte> k = rows_of(head / shape.group, true), v = rows_of(head / shape.group, false);
      const reference::KvCells cells{kv.type_k, kv.type_v, kv.head_dim_k, kv.head_dim_v, padded, k.data(), v.data()};
      for (int row = 0; row < shape.rows; ++row) {
        const std::vector<std::uint8_t> visible = seen_by(row);
        const std::size_t at = static_cast<std::size_t>(row * heads + head);
        reference::QueryRow query{q.data() + at * static_cast<std::size_t>(kv.head_dim_k), visible.data(), a.scale,
                                  a.softcap, a.sinks ? a.sinks + head : nullptr};
        float* to = out.data() + at * static_cast<std::size_t>(kv.head_dim_v);
        reference::attention(to, path, a.virtual_threads, cells, query);
        walsh_hadamard(to, kv.head_dim_v, value_rotation(kv.type_v, kv.head_dim_v));
      }
    }
    return out;
  }

 private:
  void lay_out_cells() {
    held.assign(static_cast<std::size_t>(shape.cells), -1);
    std::vector<int> order;
    for (int cell = 0; cell < shape.cells; ++cell) {
      if (!shape.scattered || cell % 7 != 3) order.push_back(cell);
    }
    if (shape.scattered) std::shuffle(order.begin(), order.end(), random);
    for (std::size_t p = 0; p < order.size(); ++p) held[static_cast<std::size_t>(order[p])] = static_cast<int>(p);
    const int positions = static_cast<int>(order.size());
    for (int row = 0; row < shape.rows; ++row) position.push_back(std::max(0, positions - shape.rows + row));
  }

  void fill_blocks() {
    const int count = (shape.cells + static_cast<int>(kBlockCells) - 1) / static_cast<int>(kBlockCells);
    memory.resize(static_cast<std::size_t>(count));
    for (auto& block : memory) {
      block.assign(block_bytes, std::byte{0xff});  // a NaN in every type: what is never written must not be used
      blocks.push_back(block.data());
    }
    for (int cell = 0; cell < shape.cells; ++cell) {
      if (held[static_cast<std::size_t>(cell)] < 0) continue;
      for (int head = 0; head < shape.kv_heads; ++head) {
        std::byte* block = blocks[static_cast<std::size_t>(cell / kBlockCells)];
        fill_row(kv.type_k, kv.head_dim_k, k_row(kv, block, head, static_cast<int>(cell % kBlockCells)));
        fill_row(kv.type_v, kv.head_dim_v, v_row(kv, block, head, static_cast<int>(cell % kBlockCells)));
      }
    }
  }

  void fill_row(DType type, int n, std::byte* to) {
    for (int i = 0; i < n; ++i) {
      const float x = normal(random) * (i % 61 == 7 ? 20.0f : 1.0f);
      if (type == DType::f32) std::memcpy(to + 4 * i, &x, 4);
      if (type == DType::f16) reinterpret_cast<half*>(to)[i] = to_half(x);
      if (type != DType::q8_0) continue;
      std::byte* block = to + i / kQ8Block * kQ8BlockBytes;
      if (i % kQ8Block == 0) reinterpret_cast<half&>(*block) = to_half(0.01f * std::fabs(x));
      block[2 + i % kQ8Block] = static_cast<std::byte>(static_cast<int>(random() % 255) - 127);
    }
  }

  std::vector<std::byte> rows_of(int kv_head, bool keys) const {
    const std::size_t bytes = keys ? row_bytes(kv.type_k, kv.head_dim_k) : row_bytes(kv.type_v, kv.head_dim_v);
    std::vector<std::byte> out(bytes * static_cast<std::size_t>(padded));
    for (int cell = 0; cell < shape.cells; ++cell) {
      std::byte* block = blocks[static_cast<std::size_t>(cell / kBlockCells)];
      const int slot = static_cast<int>(cell % kBlockCells);
      const std::byte* row = keys ? k_row(kv, block, kv_head, slot) : v_row(kv, block, kv_head, slot);
      std::memcpy(out.data() + static_cast<std::size_t>(cell) * bytes, row, bytes);
    }
    return out;
  }

  std::vector<std::uint8_t> seen_by(int row) const {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(padded), 0);
    const int p = position[static_cast<std::size_t>(row)];
    for (std::size_t cell = 0; cell < held.size(); ++cell) {
      const int h = held[cell];
      out[cell] = h >= 0 && h <= p && (shape.window == 0 || p - h < shape.window);
    }
    return out;
  }

  Shape shape;
  KvLayout kv;
  int heads = 0, padded = 0;
  std::size_t block_bytes = 0;
  std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<int> held, position;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> blocks;
  std::vector<float> q, sinks;
};

void expect_reference(const Shape& shape) {
  SCOPED_TRACE("rows " + std::to_string(shape.rows) + " cells " + std::to_string(shape.cells) + " head_dim " +
               std::to_string(shape.head_dim) + " kv_heads " + std::to_string(shape.kv_heads) + " group " +
               std::to_string(shape.group) + " window " + std::to_string(shape.window));
  const Problem problem(shape);
  const std::vector<float> expected = problem.expected();
  ASSERT_TRUE(std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); }));
  for (const auto& set : test::float_kernel_sets()) {
    for (const int threads : {1, 3}) {
      const std::vector<float> out = problem.run(set, threads);
      std::size_t different = 0, first = out.size();
      for (std::size_t i = out.size(); i-- > 0;) {
        if (std::memcmp(&out[i], &expected[i], sizeof(float)) != 0) ++different, first = i;
      }
      EXPECT_EQ(different, 0u) << set.name << ", " << threads << " threads: from element " << first << " of "
                               << out.size() << ", got " << out[first % out.size()] << " instead of "
                               << expected[first % out.size()];
    }
  }
}

TEST(Attention, OfFewRowsGivesTheBitsOfPathA) {
  for (const int rows : {1, 2, 3, 5, 63}) {
    for (const int cells : {63, 64, 65, 256, 257}) {
      if (cells >= rows) expect_reference({.rows = rows, .cells = cells});
    }
  }
  expect_reference({.rows = 1, .cells = 1});
}

TEST(Attention, OfOneRowOverManyCellsGivesTheBitsOfPathB) {
  for (const int cells : {511, 512, 513, 700}) expect_reference({.cells = cells, .kv_heads = 3});
  expect_reference({.rows = 2, .cells = 700});
}

TEST(Attention, OfManyRowsGivesTheBitsOfPathC) {
  for (const int rows : {64, 65, 130}) {
    for (const int cells : {130, 256, 700}) expect_reference({.rows = rows, .cells = cells, .kv_heads = 2, .group = 1});
  }
}

TEST(Attention, WorksForAllHeadSizes) {
  for (const int head_dim : {40, 72, 80, 96, 112, 128, 256}) {
    for (const int rows : {1, 3, 65}) expect_reference({.rows = rows, .cells = 70, .head_dim = head_dim, .group = 2});
    expect_reference({.rows = 1, .cells = 600, .head_dim = head_dim, .group = 2});
  }
  expect_reference({.rows = 3, .cells = 100, .head_dim = 96, .head_dim_v = 64});
  expect_reference({.rows = 70, .cells = 100, .head_dim = 96, .head_dim_v = 64});
}

TEST(Attention, SharesKeysAmongAnyNumberOfQueryHeads) {
  for (int group = 1; group <= 8; ++group) {
    for (const int rows : {1, 2, 64}) expect_reference({.rows = rows, .cells = 80, .kv_heads = 2, .group = group});
    expect_reference({.rows = 1, .cells = 520, .kv_heads = 2, .group = group});
  }
}

TEST(Attention, SeesNoFurtherThanItsWindow) {
  for (const int window : {1, 10, 64, 100}) {
    for (const int rows : {1, 5, 64, 130}) expect_reference({.rows = rows, .cells = 300, .window = window});
    expect_reference({.rows = 1, .cells = 600, .window = window});
  }
}

TEST(Attention, TakesCellsInTheOrderTheyLie) {
  for (const int rows : {1, 5, 70}) {
    expect_reference({.rows = rows, .cells = 200, .scattered = true});
    expect_reference({.rows = rows, .cells = 600, .window = 90, .scattered = true});
  }
}

TEST(Attention, OfSeveralSequencesReadsTheCellsOfEach) {
  for (const Shape& shape : {Shape{.rows = 3, .cells = 600}, Shape{.rows = 70, .cells = 130},
                             Shape{.rows = 3, .cells = 200, .scattered = true}}) {
    const Problem first(shape, 1), second(shape, 2);
    for (const auto& set : test::float_kernel_sets()) {
      std::vector<float> expected = first.run(set, 1);
      const std::vector<float> more = second.run(set, 1);
      expected.insert(expected.end(), more.begin(), more.end());
      EXPECT_EQ(Problem::run_together(set, 2, {&first, &second}), expected) << set.name;
    }
  }
}

TEST(Attention, CapsScores) {
  for (const int rows : {1, 5, 70}) expect_reference({.rows = rows, .cells = 200, .softcap = 5.0f});
}

TEST(Attention, CountsSinks) {
  for (const int rows : {1, 5, 70}) expect_reference({.rows = rows, .cells = 200, .sinks = true});
  expect_reference({.cells = 600, .sinks = true});
}

TEST(Attention, ReadsQuantizedAndMixedCaches) {
  constexpr DType q8 = DType::q8_0, f16 = DType::f16, f32 = DType::f32;
  for (const int rows : {1, 5, 70}) {
    for (const int head_dim : {64, 96, 128}) {
      expect_reference({.rows = rows, .cells = 100, .head_dim = head_dim, .type = q8, .type_v = q8});
      expect_reference({.rows = rows, .cells = 100, .head_dim = head_dim, .type = f32, .type_v = f32});
      expect_reference({.rows = rows, .cells = 100, .head_dim = head_dim, .type = q8, .type_v = f16});
      expect_reference({.rows = rows, .cells = 100, .head_dim = head_dim, .type = f16, .type_v = q8});
      expect_reference({.rows = rows, .cells = 100, .head_dim = head_dim, .type = f32, .type_v = f16});
    }
  }
  expect_reference({.cells = 600, .type = q8, .type_v = q8});
  expect_reference({.cells = 600, .head_dim = 84, .type = f32, .type_v = f32});
}

}  // namespace
}  // namespace bankml
