// Norms, rotation and activation functions of every instruction set against recordings of llama-server b11192, bit for
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "device/cpu/activation.hpp"
#include "device/cpu/hadamard.hpp"
#include "device/cpu/ops.hpp"
#include "device/float_kernel_sets.hpp"
#include "device/op_vectors.hpp"

namespace bankml {
namespace {

using test::OpArray;
using test::OpVectors;
using test::read_op_vectors;

std::vector<float> floats(const OpArray& array) {
  return {array.as<float>(), array.as<float>() + array.size<float>()};
}

void expect_same_bits(const std::vector<float>& out, const std::vector<float>& expected) {
  ASSERT_EQ(out.size(), expected.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < out.size(); ++i) different += std::memcmp(&out[i], &expected[i], sizeof(float)) != 0;
  EXPECT_EQ(different, 0u);
}

class ElementwiseOps : public testing::TestWithParam<test::FloatKernelSet> {
 protected:
  // Rows of `out` as they went into its float format.
  static std::vector<float> rows_of(CpuActivation& out) { return {out.f32(), out.f32() + out.max_rows() * out.dim()}; }

  ThreadPool pool{2};
  CpuOps ops{pool, GetParam().isa, *GetParam().kernels};
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Stream> stream = device->make_stream();
};

TEST_P(ElementwiseOps, RmsNormGivesTheRecordedBits) {
  const OpVectors vectors = read_op_vectors("rms_norm");
  const auto x = floats(vectors.at("x")), w = floats(vectors.at("w"));
  const int dim = static_cast<int>(vectors.at("x").dims[0]), rows = static_cast<int>(vectors.at("x").dims[1]);
  std::vector<float> y(x.size());
  ops.rms_norm(*stream, y.data(), x.data(), w.data(), rows, dim, 1e-5f);
  expect_same_bits(y, floats(vectors.at("y_eps1e-5_times_w")));
  ops.rms_norm(*stream, y.data(), x.data(), nullptr, rows, dim, 1e-6f);
  expect_same_bits(y, floats(vectors.at("y_eps1e-6")));
  y = x;
  ops.rms_norm(*stream, y.data(), y.data(), w.data(), rows, dim, 1e-5f);
  expect_same_bits(y, floats(vectors.at("y_eps1e-5_times_w")));
}

TEST_P(ElementwiseOps, RmsNormWritesAllFormatsOfTheActivation) {
  const OpVectors vectors = read_op_vectors("rms_norm");
  const auto x = floats(vectors.at("x")), w = floats(vectors.at("w")), y = floats(vectors.at("y_eps1e-5_times_w"));
  const int dim = static_cast<int>(vectors.at("x").dims[0]), rows = static_cast<int>(vectors.at("x").dims[1]);
  CpuActivation with_floats(rows, dim, ActFormats::f32 | ActFormats::q8, GetParam().isa);
  CpuActivation without(rows, dim, ActFormats::q8, GetParam().isa);
  CpuActivation expected(rows, dim, ActFormats::q8, GetParam().isa);
  ops.rms_norm(*stream, with_floats, x.data(), w.data(), rows, 1e-5f);
  ops.rms_norm(*stream, without, x.data(), w.data(), rows, 1e-5f);
  ops.quantize(*stream, expected, y.data(), rows);
  expect_same_bits(rows_of(with_floats), y);
  for (int row = 0; row < rows; ++row) {
    const Q8Row e = expected.q8_row(row);
    for (const Q8Row& r : {with_floats.q8_row(row), without.q8_row(row)}) {
      EXPECT_TRUE(std::equal(e.quants, e.quants + dim, r.quants));
      EXPECT_TRUE(std::equal(e.scale, e.scale + dim / 32, r.scale));
    }
  }
}

TEST_P(ElementwiseOps, RmsNormAddAddsTheNormToTheStream) {
  const OpVectors vectors = read_op_vectors("rms_norm");
  const auto branch = floats(vectors.at("x")), w = floats(vectors.at("w")), y = floats(vectors.at("y_eps1e-5_times_w"));
  const int dim = static_cast<int>(vectors.at("x").dims[0]), rows = static_cast<int>(vectors.at("x").dims[1]);
  std::vector<float> x(branch.size()), expected(branch.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 101) * 0.37f, expected[i] = y[i] + x[i];
  ops.rms_norm_add(*stream, x.data(), branch.data(), w.data(), rows, dim, 1e-5f);
  expect_same_bits(x, expected);
}

TEST_P(ElementwiseOps, GluGivesTheRecordedBits) {
  const OpVectors vectors = read_op_vectors("glu");
  const auto gate = floats(vectors.at("gate")), up = floats(vectors.at("up"));
  const int dim = static_cast<int>(vectors.at("gate").dims[0]), rows = static_cast<int>(vectors.at("gate").dims[1]);
  CpuActivation out(rows, dim, ActFormats::f32, GetParam().isa);
  ops.glu(*stream, out, gate.data(), up.data(), rows, GluKind::silu);
  expect_same_bits(rows_of(out), floats(vectors.at("swiglu")));
  ops.glu(*stream, out, gate.data(), up.data(), rows, GluKind::gelu);
  expect_same_bits(rows_of(out), floats(vectors.at("geglu_tanh")));
  ops.glu(*stream, out, gate.data(), up.data(), rows, GluKind::clamped_swiglu);
  expect_same_bits(rows_of(out), floats(vectors.at("swiglu_oai_1.702_7")));
}

TEST_P(ElementwiseOps, SoftcapMultipliesByTheInverse) {
  const OpVectors vectors = read_op_vectors("libm");
  auto x = floats(vectors.at("tanh_x"));
  std::vector<float> expected;
  for (const float t : floats(vectors.at("tanhf"))) expected.push_back(t * 0.5f);
  for (float& value : x) value = value * 0.5f;  // undone, exactly, by the division by the cap
  ops.scale_softcap(*stream, x.data(), static_cast<std::int64_t>(x.size()), 1.0f, 0.5f);
  expect_same_bits(x, expected);
}

TEST_P(ElementwiseOps, ScaleComesBeforeTheSoftcap) {
  std::vector<float> x = {1.0f, -3.0f, 100.0f};
  ops.scale_softcap(*stream, x.data(), 3, 0.5f, 0.0f);
  expect_same_bits(x, {0.5f, -1.5f, 50.0f});
  ops.scale_softcap(*stream, x.data(), 3, 2.0f, 30.0f);
  const float inverse = 1.0f / 30.0f;
  expect_same_bits(
      x, {std::tanh(1.0f * inverse) * 30.0f, std::tanh(-3.0f * inverse) * 30.0f, std::tanh(100.0f * inverse) * 30.0f});
}

// One row of Q and K through rope_table() and rope_store() with a cache that keeps floats.
class Rope : public ElementwiseOps {
 protected:
  struct Result {
    std::vector<float> q, k, v;
  };

  // x: (positions, heads, 64), the same for Q, K and V; positions as recorded.
  Result run(const std::vector<float>& x, const RopeParams& params, const RopeStoreArgs& given, DType type) {
    const int rows = static_cast<int>(position.size()), head_dim = 64;
    const int heads = static_cast<int>(x.size()) / rows / head_dim;
    KvLayout kv;
    kv.type_k = kv.type_v = type;
    kv.kv_heads = heads;
    kv.head_dim_k = kv.head_dim_v = head_dim;
    const std::size_t row = row_bytes(type, head_dim);
    const std::size_t plane = row * static_cast<std::size_t>(heads * kBlockCells);
    kv.v_offset = static_cast<std::int64_t>(plane);
    std::vector<std::byte> memory(2 * plane);
    std::byte* block = memory.data();
    std::vector<std::int32_t> sequence(position.size(), 0), cell;
    for (int i = 0; i < rows; ++i) cell.push_back(i * 5 + 3);
    BatchView batch;
    batch.rows = rows;
    batch.sequences = 1;
    batch.position = position.data();
    batch.sequence = sequence.data();
    batch.cell = cell.data();
    batch.blocks = &block;
    batch.blocks_stride = 1;

    std::vector<float> table(static_cast<std::size_t>(rows * params.n_rot));
    ops.rope_table(*stream, table.data(), params, batch);
    Result result{x, {}, {}};
    RopeStoreArgs args = given;
    args.q = result.q.data();
    args.k = args.v = x.data();
    args.heads = heads;
    args.style = params.style;
    args.n_rot = params.n_rot;
    args.table = table.data();
    ops.rope_store(*stream, args, kv, batch);
    for (int r = 0; r < rows; ++r) {
      for (int head = 0; head < heads; ++head) {
        const std::size_t at = row * static_cast<std::size_t>(head * kBlockCells + cell[static_cast<std::size_t>(r)]);
        for (auto* to : {&result.k, &result.v}) {
          to->resize(to->size() + static_cast<std::size_t>(head_dim));
          dequantize_row(type, block + at + (to == &result.v ? plane : 0), head_dim, &to->back() - (head_dim - 1));
        }
      }
    }
    return result;
  }

  const OpVectors vectors = read_op_vectors("rope");
  const std::vector<float> recorded = floats(vectors.at("x"));
  const std::vector<std::int32_t> position = {vectors.at("pos").as<std::int32_t>(),
                                              vectors.at("pos").as<std::int32_t>() + vectors.at("pos").dims[0]};
};

TEST_P(Rope, GivesTheRecordedBits) {
  const std::vector<float> factors = floats(vectors.at("factors"));
  const auto expect = [&](const char* name, RopeParams params) {
    SCOPED_TRACE(name);
    const Result result = run(recorded, params, {}, DType::f32);
    expect_same_bits(result.q, floats(vectors.at(name)));
    expect_same_bits(result.k, floats(vectors.at(name)));
    expect_same_bits(result.v, recorded);
  };
  expect("adjacent_1e5", {.style = RopeStyle::adjacent, .n_rot = 64, .base = 1e5f});
  expect("adjacent_1e4", {.style = RopeStyle::adjacent, .n_rot = 64, .base = 1e4f});
  expect("neox_1e4", {.style = RopeStyle::neox, .n_rot = 64, .base = 1e4f});
  expect("neox_1e6", {.style = RopeStyle::neox, .n_rot = 64, .base = 1e6f});
  expect("neox_1e6_scale_eighth", {.style = RopeStyle::neox, .n_rot = 64, .base = 1e6f, .freq_scale = 0.125f});
  expect("neox_1e4_first32", {.style = RopeStyle::neox, .n_rot = 32, .base = 1e4f});
  expect("adjacent_5e5_factors", {.style = RopeStyle::adjacent, .n_rot = 64, .base = 5e5f, .factors = factors.data()});
}

TEST_P(Rope, RoundsKeysAndValuesToHalf) {
  const Result result = run(recorded, {.style = RopeStyle::adjacent, .n_rot = 64, .base = 1e5f}, {}, DType::f16);
  std::vector<float> k = floats(vectors.at("adjacent_1e5")), v = recorded;
  expect_same_bits(result.q, k);
  for (auto* values : {&k, &v}) {
    for (float& value : *values) value = to_float(to_half(value));
  }
  expect_same_bits(result.k, k);
  expect_same_bits(result.v, v);
}

TEST_P(Rope, NormsEachHeadFirstAndScalesQueriesLast) {
  std::vector<float> weight(64), normed(recorded.size());
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + 0.01f * static_cast<float>(i);
  ops.rms_norm(*stream, normed.data(), recorded.data(), weight.data(), static_cast<int>(recorded.size() / 64), 64,
               1e-6f);
  const RopeParams params{.style = RopeStyle::neox, .n_rot = 64, .base = 1e6f};
  const Result plain = run(normed, params, {}, DType::f32);
  const Result result =
      run(recorded, params, {.q_norm = weight.data(), .k_norm = weight.data(), .norm_eps = 1e-6f, .q_scale = 0.3f},
          DType::f32);
  std::vector<float> q = plain.q;
  for (float& value : q) value = value * 0.3f;
  expect_same_bits(result.q, q);
  expect_same_bits(result.k, plain.k);
}

TEST_P(Rope, RotatesBeforeItQuantizes) {
  const RopeParams params{.style = RopeStyle::adjacent, .n_rot = 64, .base = 1e5f};
  const Result plain = run(recorded, params, {}, DType::f32);
  const Result result = run(recorded, params, {}, DType::q8_0);
  Result rotated = plain;
  for (auto* values : {&rotated.q, &rotated.k, &rotated.v})
    walsh_hadamard(values->data(), static_cast<int>(recorded.size()), 64);
  expect_same_bits(result.q, rotated.q);
  CpuActivation quantized(1, static_cast<std::int64_t>(recorded.size()), ActFormats::q8, GetParam().isa);
  for (const auto& [stored, values] : {std::pair{&result.k, &rotated.k}, std::pair{&result.v, &rotated.v}}) {
    quantize_row(quantized, 0, values->data());
    std::vector<float> expected;
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      expected.push_back(static_cast<float>(quantized.q8_row(0).quants[i]) * quantized.q8_row(0).scale[i / 32]);
    }
    expect_same_bits(*stored, expected);
  }
}

TEST_P(Rope, OfNoStyleLeavesQueriesAndKeysAlone) {
  const Result result = run(recorded, {}, {}, DType::f32);
  expect_same_bits(result.q, recorded);
  expect_same_bits(result.k, recorded);
}

// With one turn of the whole circle per pair out of reach of the ramp, the angle is either kept or interpolated.
TEST_P(Rope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  RopeParams params{.style = RopeStyle::neox, .n_rot = 64, .base = 1e4f, .freq_scale = 0.25f, .ext_factor = 1.0f};
  params.n_ctx_orig = 4096;
  RopeParams kept = params, interpolated = params;
  kept.ext_factor = interpolated.ext_factor = 0.0f;
  kept.freq_scale = 1.0f;
  const float magnitude = std::fma(0.1f, std::log(4.0f), 1.0f);
  kept.attn_factor = interpolated.attn_factor = magnitude;
  BatchView batch;
  const std::int32_t at = 1234;
  batch.rows = 1;
  batch.position = &at;
  std::vector<float> yarn(64), fast(64), slow(64);
  ops.rope_table(*stream, yarn.data(), params, batch);
  ops.rope_table(*stream, fast.data(), kept, batch);
  ops.rope_table(*stream, slow.data(), interpolated, batch);
  // dim(32) = 64 ln(4096 / (64 pi)) / (2 ln 10000) = 10.5 and dim(1) = 22.5: the ramp is between pairs 10 and 23
  for (std::size_t pair = 0; pair < 32; ++pair) {
    EXPECT_EQ(yarn[2 * pair] == fast[2 * pair], pair <= 10) << pair;
    EXPECT_EQ(yarn[2 * pair + 1] == slow[2 * pair + 1], pair >= 23) << pair;
  }
}

TEST(WalshHadamard, SpreadsOneElementEvenlyWithTheSignsOfItsRow) {
  std::vector<float> x(64, 0.0f);
  x[5] = 8.0f;  // times 1/8
  walsh_hadamard(x.data(), 64, 64);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(x[i], __builtin_parity(i & 5u) != 0 ? -1.0f : 1.0f) << i;
  walsh_hadamard(x.data(), 64, 64);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(x[i], i == 5 ? 8.0f : 0.0f);
}

TEST(WalshHadamard, IsAsWideAsTheHeadAllows) {
  EXPECT_EQ(key_rotation(DType::q8_0, 64), 64);
  EXPECT_EQ(key_rotation(DType::q8_0, 128), 128);
  EXPECT_EQ(key_rotation(DType::q8_0, 192), 64);
  EXPECT_EQ(key_rotation(DType::q8_0, 96), 0);
  EXPECT_EQ(key_rotation(DType::f16, 64), 0);
  EXPECT_EQ(value_rotation(DType::q8_0, 128), 64);
  EXPECT_EQ(value_rotation(DType::q8_0, 96), 0);
}

// If one of these differs, the C library isn't glibc 2.36 with FMA, and everything else will differ too.
TEST(Libm, GivesTheRecordedBits) {
  const OpVectors vectors = read_op_vectors("libm");
  std::vector<float> exponential, sine, cosine, tangent, power;
  for (const float x : floats(vectors.at("exp_x"))) exponential.push_back(std::exp(x));
  for (const float x : floats(vectors.at("angle"))) sine.push_back(std::sin(x)), cosine.push_back(std::cos(x));
  for (const float x : floats(vectors.at("tanh_x"))) tangent.push_back(std::tanh(x));
  const auto pairs = floats(vectors.at("pow_base_nrot"));
  for (std::size_t i = 0; i < pairs.size(); i += 2) power.push_back(std::pow(pairs[i], -2.0f / pairs[i + 1]));
  expect_same_bits(exponential, floats(vectors.at("expf")));
  expect_same_bits(sine, floats(vectors.at("sin")));
  expect_same_bits(cosine, floats(vectors.at("cos")));
  expect_same_bits(tangent, floats(vectors.at("tanhf")));
  expect_same_bits(power, floats(vectors.at("powf")));
}

const auto kSetName = [](const testing::TestParamInfo<test::FloatKernelSet>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(AllKernels, ElementwiseOps, testing::ValuesIn(test::float_kernel_sets()), kSetName);
INSTANTIATE_TEST_SUITE_P(AllKernels, Rope, testing::ValuesIn(test::float_kernel_sets()), kSetName);

}  // namespace
}  // namespace bankml
