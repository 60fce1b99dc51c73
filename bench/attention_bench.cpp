// Milliseconds of attention in all layers of a forward pass, in the shape of SmolLM2-135M unless told otherwise.
//   attention_bench [threads] [kv_heads group head_dim layers]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "bankml/device/ops.hpp"

namespace {

using namespace bankml;

struct Heads {
  int kv_heads, group, head_dim, layers;
};

// Blocks full of small halves, each with the keys and values of all layers as in the pool of a model.
class Cache {
 public:
  Cache(const Heads& heads, int cells) {
    const std::size_t halves = static_cast<std::size_t>(heads.kv_heads * kBlockCells * heads.head_dim);
    for (int layer = 0; layer < heads.layers; ++layer) {
      KvLayout& layout = layouts.emplace_back();
      layout.kv_heads = heads.kv_heads;
      layout.head_dim_k = layout.head_dim_v = heads.head_dim;
      layout.k_offset = static_cast<std::int64_t>(2 * static_cast<std::size_t>(layer) * halves * sizeof(half));
      layout.v_offset = layout.k_offset + static_cast<std::int64_t>(halves * sizeof(half));
    }
    std::mt19937 random{1};
    std::normal_distribution<float> normal;
    std::vector<half> some(2 * halves);
    for (int first = 0; first < cells; first += static_cast<int>(kBlockCells)) {
      for (half& h : some) h = to_half(normal(random));
      auto& block = memory_.emplace_back();
      for (int layer = 0; layer < heads.layers; ++layer) block.insert(block.end(), some.begin(), some.end());
      blocks.push_back(reinterpret_cast<std::byte*>(block.data()));
    }
  }
  std::vector<KvLayout> layouts;
  std::vector<std::byte*> blocks;

 private:
  std::vector<std::vector<half>> memory_;
};

double milliseconds_of(Device& device, const Heads& heads, const Cache& cache, int rows, int cells) {
  const int query_heads = heads.kv_heads * heads.group;
  std::vector<float> q(static_cast<std::size_t>(rows * query_heads * heads.head_dim));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  std::vector<std::int32_t> position, sequence(static_cast<std::size_t>(rows), 0);
  for (int row = 0; row < rows; ++row) position.push_back(cells - rows + row);
  const std::int32_t padded = (cells + 255) / 256 * 256;
  BatchView batch;
  batch.rows = rows;
  batch.sequences = 1;
  batch.position = position.data();
  batch.sequence = sequence.data();
  batch.blocks = cache.blocks.data();
  batch.blocks_stride = static_cast<std::int64_t>(cache.blocks.size());
  batch.cells = &cells;
  batch.padded_cells = &padded;
  AttentionArgs args;
  args.q = q.data();
  args.heads = query_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(heads.head_dim));
  const auto stream = device.make_stream();
  const auto out = device.make_activation(rows, query_heads * heads.head_dim, ActFormats::q8);

  using Clock = std::chrono::steady_clock;
  double best = 1e9, total = 0;
  for (int i = 0; i < 2 || total < 300; ++i) {
    const auto start = Clock::now();
    for (const KvLayout& layout : cache.layouts) device.ops().attention(*stream, *out, args, layout, batch);
    stream->synchronize();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = std::min(best, ms);
    total += ms;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const Heads heads{number(2, 3), number(3, 3), number(4, 64), number(5, 30)};
  const auto device = make_cpu_device(number(1, 1));
  fmt::print("{}; {} KV heads x {}, head_dim {}, {} layers\n", device->description(), heads.kv_heads, heads.group,
             heads.head_dim, heads.layers);
  const Cache cache(heads, 4096);
  fmt::print("{:>6} {:>6} {:>10} {:>10}\n", "rows", "cells", "ms", "GMAC/s");
  constexpr int kBatches[][2] = {{1, 256},  {1, 500},  {1, 600}, {1, 2000},  {1, 4000},   {8, 256},
                                 {32, 500}, {63, 500}, {64, 64}, {512, 512}, {512, 1024}, {512, 2048}};
  for (const auto [rows, cells] : kBatches) {
    const double ms = milliseconds_of(*device, heads, cache, rows, cells);
    const double seen = rows * (cells - 0.5 * (rows - 1));
    const double macs = 2.0 * seen * heads.kv_heads * heads.group * heads.head_dim * heads.layers;
    fmt::print("{:>6} {:>6} {:>10.3f} {:>10.1f}\n", rows, cells, ms, macs / ms / 1e6);
  }
}
