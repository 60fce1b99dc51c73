// Mat-vec and mat-mat of every weight type against sums in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bankml/base/error.hpp"
#include "device/cpu/activation.hpp"
#include "device/cuda/launchers.hpp"
#include "device/cuda/weight.hpp"
#include "device/random_weight.hpp"
#include "kernels/host_device.hpp"
#include "orders.hpp"

namespace bankml {
namespace {

using test::Bench;
using test::random_floats;

constexpr DType kAllTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                               DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                               DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

// The values that the integers of a row of activations stand for, and the sums that a minimum is multiplied by.
struct Activations {
  std::vector<double> x;
  std::vector<double> sum;  // of blocks of 32 (Q8_1)
};

Activations activations_of(DType type, const std::vector<float>& x, int rows, int dim) {
  const ActFormats format = activation_format(type);
  CpuActivation act(rows, dim, format, Isa::portable);
  Activations out;
  for (int r = 0; r < rows; ++r) {
    quantize_row(act, r, x.data() + r * dim);
    for (int i = 0; i < dim; ++i) {
      if (format == ActFormats::f32) out.x.push_back(x[static_cast<std::size_t>(r * dim + i)]);
      if (format == ActFormats::f16) out.x.push_back(act.f16_row(r)[i]);
      if (format == ActFormats::bf16) out.x.push_back(to_float(act.bf16_row(r)[i]));
      if (format == ActFormats::q8) out.x.push_back(double{act.q8_row(r).scale[i / 32]} * act.q8_row(r).quants[i]);
      if (format == ActFormats::q8_k)
        out.x.push_back(double{act.q8_k_row(r).scale[i / 256]} * act.q8_k_row(r).quants[i]);
      if (format == ActFormats::q8 && i % 32 == 0) out.sum.push_back(double{act.q8_row(r).scaled_sum[i / 32]});
    }
  }
  return out;
}

// One product, and the sum of the sizes of its terms: what its error is measured by.
struct Product {
  double value = 0, size = 0;
  void add(double term) {
    value += term;
    size += std::abs(term);
  }
};

Product multiply(DType type, const std::byte* row, const Activations& a, std::size_t at, int cols) {
  Product p;
  with_block(type, [&]<class Block>() {
    constexpr BlockTraits traits = kTraits<Block>;
    for (int k = 0; k < cols / traits.length; ++k) {
      Block block;
      std::memcpy(&block, row + static_cast<std::size_t>(k) * sizeof(Block), sizeof block);
      Decoded<Block> w;
      decode(block, w);
      for (int e = 0; e < traits.length; ++e) {
        const double x = a.x[at + static_cast<std::size_t>(k * traits.length + e)];
        const int sub = traits.sub ? e / traits.sub : 0;
        p.add(double{to_float(w.d)} * (traits.sub ? w.scale[sub] : 1) * w.q[e] * x);
        if (traits.minimum && traits.sub) p.add(-double{to_float(w.m)} * w.min[sub] * x);
      }
      if (traits.minimum && !traits.sub) p.add(double{to_float(w.m)} * a.sum[at / 32 + static_cast<std::size_t>(k)]);
    }
  });
  if (dtype_info(type).block_len != 1) return p;
  std::vector<float> w(static_cast<std::size_t>(cols));
  dequantize_row(type, row, cols, w.data());
  for (int i = 0; i < cols; ++i) p.add(double{w[static_cast<std::size_t>(i)]} * a.x[at + static_cast<std::size_t>(i)]);
  return p;
}

class MatmulKernels : public testing::TestWithParam<DType> {
 protected:
  // Every output with bias, scale and residual, against double precision.
  void expect_products(int weight_rows, int cols, int rows, const host::Order& order = host::Order::forward()) {
    expect_products(weight_rows, cols, rows, host::HostOptions{.order = order});
  }
  void expect_products(int weight_rows, int cols, int rows, const host::HostOptions& options) {
    SCOPED_TRACE(testing::Message() << weight_rows << " x " << cols << ", " << rows << " rows");
    // Sums of floats in another order: some roundings of the size of all terms together.
    constexpr double kTolerance = 3e-6;
    const DType type = GetParam();
    host::HostDevice device(options);
    Bench bench(device);
    std::mt19937 random(static_cast<unsigned>(weight_rows + 3 * cols + 7 * rows));
    const std::vector<std::byte> bytes = test::random_weight(type, weight_rows, cols, random);
    const std::vector<float> x = random_floats(static_cast<std::size_t>(rows * cols), random);
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(weight_rows), random);
    const std::vector<float> residual = random_floats(static_cast<std::size_t>(rows * weight_rows), random);
    const auto weight = bench.load(type, weight_rows, cols, bytes);
    const auto act = device.make_activation(rows, cols, activation_format(type));
    const Buffer in = bench.upload(x), b = bench.upload(bias), plain = device.allocate(residual.size() * sizeof(float));
    const Buffer out = bench.upload(residual);  // the residual's memory
    bench.ops().quantize(bench.stream(), *act, in.as<float>(), rows);
    const MatmulOutput outputs[] = {{weight.get(), out.as<float>(), b.as<float>(), out.as<float>(), 0.5f},
                                    {weight.get(), plain.as<float>()}};
    bench.ops().matmul(bench.stream(), outputs, *act, rows);
    const std::vector<float> full = bench.download(out.as<float>(), residual.size());
    const std::vector<float> product = bench.download(plain.as<float>(), residual.size());

    const Activations a = activations_of(type, x, rows, cols);
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < weight_rows; ++w) {
        const std::size_t at = static_cast<std::size_t>(r * weight_rows + w);
        const std::byte* row = bytes.data() + static_cast<std::size_t>(w) * row_bytes(type, cols);
        const Product p = multiply(type, row, a, static_cast<std::size_t>(r) * static_cast<std::size_t>(cols), cols);
        ASSERT_NEAR(product[at], p.value, kTolerance * p.size) << "row " << r << ", output " << w;
        const float expected = (product[at] + bias[static_cast<std::size_t>(w)]) * 0.5f + residual[at];
        ASSERT_EQ(full[at], expected) << "row " << r << ", output " << w;
      }
    }
  }
  // Lengths of rows: all sorts for floats; else an odd number of units, and more than a warp takes at once.
  std::vector<int> lengths() const {
    switch (dtype_info(GetParam()).block_len) {
      case 1:
        return {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 520};
      case 32:
        return {32, 96, 160, 64, 1120};
      default:
        return {256, 768, 1280};
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, MatmulKernels, testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

TEST_P(MatmulKernels, FewRowsOfAnyLength) {
  for (const int cols : lengths()) {
    for (const int rows : {1, 2, 3, 8}) expect_products(17, cols, rows);
  }
}

TEST_P(MatmulKernels, EveryNumberOfFewRows) {
  for (const int rows : {4, 5, 6, 7}) expect_products(17, lengths()[2], rows);
}

TEST_P(MatmulKernels, ManyRowsOfAnyLength) {
  for (const int cols : lengths()) expect_products(9, cols, 9);
}

// Partial tiles on either side, and more than one tile.
TEST_P(MatmulKernels, ManyRowsInEveryTileShape) {
  const int cols = lengths()[1] + lengths()[0];
  const int aligned = dtype_info(GetParam()).block_len == 1
                          ? 48
                          : cols / dtype_info(GetParam()).block_len * dtype_info(GetParam()).block_len;
  for (const int rows : {31, 32, 33, 63, 64, 65, 127, 129}) expect_products(rows == 65 ? 131 : 40, aligned, rows);
}

TEST_P(MatmulKernels, ManyRowsWhereCublasIsThere) {
  const int cols = lengths()[1] + lengths()[0];
  const int aligned = dtype_info(GetParam()).block_len == 1
                          ? 48
                          : cols / dtype_info(GetParam()).block_len * dtype_info(GetParam()).block_len;
  for (const int rows : {kLibraryRows, kLibraryRows + 1})
    expect_products(19, aligned, rows, host::HostOptions{.cublas = true});
}

TEST_P(MatmulKernels, EveryOrderOfThreads) {
  const int cols = lengths().back();
  for (const auto& order : {host::Order::reverse(), host::Order::random(1), host::Order::random(2)}) {
    expect_products(9, cols, 1, order);
    expect_products(9, cols, 10, order);
  }
}

TEST_P(MatmulKernels, SeveralWeightsOfTwoTypesShareTheRows) {
  host::HostDevice device;
  Bench bench(device);
  std::mt19937 random(3);
  constexpr int kCols = 256;
  const DType other = activation_format(GetParam()) == ActFormats::q8 ? DType::q8_0 : GetParam();
  const std::vector<float> x = random_floats(kCols, random);
  const auto act = device.make_activation(1, kCols, activation_format(GetParam()));
  const Buffer in = bench.upload(x);
  bench.ops().quantize(bench.stream(), *act, in.as<float>(), 1);
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<MatmulOutput> together;
  std::vector<Buffer> out;
  for (const int rows : {5, 40, 1, 12, 8, 3}) {
    const DType type = weights.size() == 2 ? other : GetParam();
    weights.push_back(bench.load(type, rows, kCols, test::random_weight(type, rows, kCols, random)));
    out.push_back(device.allocate(static_cast<std::size_t>(rows) * sizeof(float)));
    together.push_back({weights.back().get(), out.back().as<float>()});
  }
  bench.ops().matmul(bench.stream(), together, *act, 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t n = static_cast<std::size_t>(weights[i]->rows());
    const std::vector<float> shared = bench.download(out[i].as<float>(), n);
    bench.ops().matmul(bench.stream(), {&together[i], 1}, *act, 1);
    EXPECT_EQ(bench.download(out[i].as<float>(), n), shared) << i;
  }
}

// cuBLAS scales and adds to what lies in the output; the rest is a kernel of ours, or all of it.
TEST(LibraryMatmul, GivesEveryKindOfOutputThatOurKernelGives) {
  constexpr int kRows = kLibraryRows + 3, kCols = 24, kOutputs = 7;
  constexpr std::size_t kAll = kRows * kOutputs;
  std::mt19937 random(4);
  const std::vector<std::byte> bytes = test::random_weight(DType::bf16, kOutputs, kCols, random);
  const std::vector<float> x = random_floats(kRows * kCols, random), bias = random_floats(kOutputs, random),
                           old = random_floats(kAll, random);
  const auto outputs_with = [&](bool cublas) {
    host::HostDevice device({.cublas = cublas});
    Bench bench(device);
    const auto weight = bench.load(DType::bf16, kOutputs, kCols, bytes);
    const auto act = device.make_activation(kRows, kCols, ActFormats::bf16);
    const Buffer in = bench.upload(x), b = bench.upload(bias), other = bench.upload(old);
    bench.ops().quantize(bench.stream(), *act, in.as<float>(), kRows);
    std::vector<std::vector<float>> all;
    for (const float scale : {1.0f, 0.5f}) {
      for (const bool biased : {false, true}) {
        for (const int residual : {0, 1, 2}) {  // none, other memory, the output's own
          const Buffer out = bench.upload(old);
          const float* add = residual == 0 ? nullptr : residual == 1 ? other.as<float>() : out.as<float>();
          const MatmulOutput output{weight.get(), out.as<float>(), biased ? b.as<float>() : nullptr, add, scale};
          bench.ops().matmul(bench.stream(), {&output, 1}, *act, kRows);
          all.push_back(bench.download(out.as<float>(), kAll));
        }
      }
    }
    return all;
  };
  EXPECT_EQ(outputs_with(true), outputs_with(false));  // both add up in order
}

std::uint8_t unpacked_bits(int bits, const std::uint8_t* unit, int e) {
  const PlaneBits at = plane_bits(bits, e);
  return static_cast<std::uint8_t>((unit[at.byte] >> at.shift) & ((1 << bits) - 1));
}

// What a block's planes say, decoded.
template <class Block>
Decoded<Block> unpack(const host::PlaneBytes& planes, std::size_t index) {
  using Layout = PlaneLayout<Block>;
  constexpr BlockTraits traits = Layout::traits;
  Decoded<Block> out{};
  for (int e = 0; e < traits.length; ++e) {
    const std::size_t unit = index * Layout::units + static_cast<std::size_t>(e / kUnit);
    int code = unpacked_bits(traits.low_bits, planes.low + unit * Layout::low_bytes, e % kUnit);
    if constexpr (traits.high_bits != 0) {
      code |= unpacked_bits(traits.high_bits, planes.high + unit * Layout::high_bytes, e % kUnit) << traits.low_bits;
    }
    out.q[e] = static_cast<std::int8_t>(traits.table != nullptr ? traits.table[code] : code - traits.offset);
  }
  for (int j = 0; Layout::super && j < Decoded<Block>::subs; ++j) {
    const std::uint8_t* sub =
        planes.sub + (index * Decoded<Block>::subs + static_cast<std::size_t>(j)) * Layout::sub_bytes / Layout::halves;
    out.scale[j] = static_cast<std::int8_t>(sub[0]);
    if (traits.minimum && Layout::halves == 2) {
      out.scale[j] = sub[0] & 15;
      out.min[j] = static_cast<std::int8_t>(sub[0] >> 4);
    } else if (traits.minimum) {
      out.min[j] = static_cast<std::int8_t>(sub[1]);
    }
  }
  const std::uint8_t* scale = planes.scale + index * Layout::scale_bytes;
  std::memcpy(&out.d, scale, sizeof out.d);
  if constexpr (traits.minimum) std::memcpy(&out.m, scale + sizeof out.d, sizeof out.m);
  return out;
}

// Every bit of a block is in what decode() gives, so the same decoded blocks are the same bytes (MXFP4 has two codes
// for 0).
TEST_P(MatmulKernels, PlanesHoldTheFilesBits) {
  const DType type = GetParam();
  constexpr int kRows = 3, kCols = 1280;
  std::mt19937 random(5);
  const std::vector<std::byte> bytes = test::random_weight(type, kRows, kCols, random);
  const host::PlaneSizes sizes = host::plane_row_bytes(type, kCols);
  std::vector<std::uint8_t> low(kRows * sizes.low), high(kRows * sizes.high), sub(kRows * sizes.sub),
      scale(kRows * sizes.scale);
  const host::PlaneBytes planes{low.data(), high.data(), sub.data(), scale.data()};
  host::pack_planes(type, bytes.data(), kRows, kCols, planes);
  if (dtype_info(type).block_len == 1) {
    EXPECT_EQ(std::memcmp(low.data(), bytes.data(), bytes.size()), 0);
    return;
  }
  with_block(type, [&]<class Block>() {
    for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i) {
      Block block;
      std::memcpy(&block, bytes.data() + i * sizeof(Block), sizeof block);
      Decoded<Block> expected;
      decode(block, expected);
      const Decoded<Block> actual = unpack<Block>({planes.low, planes.high, planes.sub, planes.scale}, i);
      const auto same = [](const auto& x, const auto& y) { return std::memcmp(&x, &y, sizeof x) == 0; };
      ASSERT_TRUE(same(actual.d, expected.d) && same(actual.m, expected.m)) << "block " << i;
      ASSERT_TRUE(same(actual.q, expected.q) && same(actual.scale, expected.scale) && same(actual.min, expected.min))
          << "block " << i;
    }
  });
}

TEST(WeightLoader, AWeightLargerThanTheStagingMemoryArrivesWhole) {
  host::HostDevice device;
  Bench bench(device);
  for (const DType type : {DType::f32, DType::q4_1}) {
    const int cols = 4096, rows = type == DType::f32 ? 3000 : 20000;
    std::mt19937 random(5);
    const std::vector<std::byte> row = test::random_weight(type, 1, cols, random);
    std::vector<std::byte> bytes;
    for (int r = 0; r < rows; ++r) {
      bytes.insert(bytes.end(), row.begin(), row.end());
      bytes.back() = static_cast<std::byte>(r & 63);
    }
    const auto weight = bench.load(type, rows, cols, bytes);
    const WeightPlanes& planes = static_cast<const host::GpuWeight&>(*weight).planes();
    const host::PlaneSizes sizes = host::plane_row_bytes(type, cols);
    const std::size_t n = static_cast<std::size_t>(rows);
    std::vector<std::uint8_t> low(sizes.low * n), scale(sizes.scale * n);
    host::pack_planes(type, bytes.data(), rows, cols, {low.data(), nullptr, nullptr, scale.data()});
    EXPECT_TRUE(bench.download(planes.low, low.size()) == low);
    EXPECT_TRUE(scale.empty() || bench.download(planes.scale, scale.size()) == scale);
  }
}

TEST(WeightLoader, RefusesRowsThatAreNoBlocks) {
  host::HostDevice device;
  const std::vector<std::byte> data(1024);
  EXPECT_THROW(device.load_weight(DType::q4_k, 1, 128, data.data()), Error);
  EXPECT_THROW(device.load_weight(DType::f32, 0, 4, data.data()), Error);
}

}  // namespace
}  // namespace bankml
