#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <random>
#include <vector>

#include "bankml/base/error.hpp"
#include "gpu/checks.hpp"
#include "kernels/host_device.hpp"
#include "kernels/kv_problem.hpp"

namespace bankml::gpu {
namespace {

using test::Bench;
using test::random_floats;

// Floats are added in one order by both builds, but for tensor cores and approximate functions.
constexpr double kSameOrder = 1e-6, kTensorCores = 2e-3;

constexpr DType kTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                            DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

// Runs the same operations on both devices and compares what comes of them, relative to its largest size.
class Comparison {
 public:
  Comparison(Report& report, const Subject& subject) : report_(report), bench_(subject.device), twin_(host_) {}

  void run(const std::string& name, double tolerance,
           const std::function<std::vector<float>(Bench&, std::mt19937&)>& work) {
    try {
      std::mt19937 random(3), same_random(3);
      const std::vector<float> expected = work(twin_, random), actual = work(bench_, same_random);
      double size = 0, worst = 0;
      std::size_t equal = 0;
      for (const float x : expected) size = std::max(size, std::abs(double{x}));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        equal += actual[i] == expected[i];
        const double difference = std::abs(double{actual[i]} - expected[i]) / size;
        worst = difference <= worst ? worst : difference;
      }
      report_.check(2, name, worst <= tolerance,
                    fmt::format("{} of {} equal, others within {:.1e} of the largest, {:.0e} allowed", equal,
                                expected.size(), worst, tolerance));
    } catch (const Error& error) {
      report_.check(2, name, false, error.what());
    }
  }

 private:
  Report& report_;
  Bench bench_;
  host::HostDevice host_;
  Bench twin_;
};

std::vector<float> multiply(Bench& bench, std::mt19937& random, DType type, int rows) {
  constexpr int kOutputs = 150, kCols = 512;
  const std::vector<std::byte> bytes = test::random_weight(type, kOutputs, kCols, random);
  const auto weight = bench.load(type, kOutputs, kCols, bytes);
  const auto act = bench.device().make_activation(rows, kCols, activation_format(type));
  const Buffer in = bench.upload(random_floats(static_cast<std::size_t>(rows * kCols), random));
  const Buffer bias = bench.upload(random_floats(kOutputs, random)),
               out = bench.upload(random_floats(static_cast<std::size_t>(rows * kOutputs), random));
  bench.ops().quantize(bench.stream(), *act, in.as<float>(), rows);
  const MatmulOutput output{weight.get(), out.as<float>(), bias.as<float>(), out.as<float>(), 0.5f};
  bench.ops().matmul(bench.stream(), {&output, 1}, *act, rows);
  return bench.download(out.as<float>(), static_cast<std::size_t>(rows * kOutputs));
}

std::vector<float> mix_experts(Bench& bench, std::mt19937& random, DType type, int rows) {
  constexpr int kExperts = 8, kUsed = 3, kOutputs = 64, kCols = 256;
  const std::vector<std::byte> bytes = test::random_weight(type, kExperts * kOutputs, kCols, random);
  const auto weight =
      bench.device().load_experts(type, kExperts, kOutputs, kCols, bytes.data(), bytes.size() / kExperts);
  const auto act = bench.device().make_activation(rows, kCols, activation_format(type));
  const auto choice = bench.device().make_expert_choice(rows, kExperts, kUsed);
  const Buffer in = bench.upload(random_floats(static_cast<std::size_t>(rows * kCols), random));
  const Buffer scores = bench.upload(random_floats(static_cast<std::size_t>(rows * kExperts), random));
  const std::size_t n = static_cast<std::size_t>(rows * kOutputs);
  const Buffer branch = bench.device().allocate(n * kUsed * sizeof(float)),
               out = bench.upload(random_floats(n, random));
  bench.ops().quantize(bench.stream(), *act, in.as<float>(), rows);
  bench.ops().route(bench.stream(), *choice, scores.as<float>(), {.normalize = true}, rows);
  const ExpertOutput output{weight.get(), branch.as<float>(), nullptr};
  bench.ops().matmul_experts(bench.stream(), {&output, 1}, *act, ExpertInput::rows, *choice, rows);
  bench.ops().sum_experts(
      bench.stream(), {out.as<float>(), branch.as<float>(), nullptr, out.as<float>(), 1.0f, kOutputs}, *choice, rows);
  return bench.download(out.as<float>(), n);
}

// Norm, quantising, gate and lookup: read back through a mat-mul by the unit matrix's like, a weight of one type.
std::vector<float> small_operations(Bench& bench, std::mt19937& random, GluKind kind) {
  constexpr int kRows = 5, kDim = 512, kVocab = 40;
  constexpr std::size_t kAll = kRows * kDim;
  const Buffer table_tokens = bench.upload(std::vector<std::int32_t>{3, 39, 0, 3, 17});
  const std::vector<std::byte> bytes = test::random_weight(DType::q6_k, kVocab, kDim, random);
  const auto table = bench.load(DType::q6_k, kVocab, kDim, bytes);
  const auto act = bench.device().make_activation(kRows, kDim, ActFormats::f32 | ActFormats::q8 | ActFormats::q8_k);
  const Buffer x = bench.device().allocate(kAll * sizeof(float)), weight = bench.upload(random_floats(kDim, random));
  const Buffer up = bench.upload(random_floats(kAll, random)), out = bench.device().allocate(kAll * sizeof(float));
  bench.ops().embed(bench.stream(), x.as<float>(), *table, table_tokens.as<std::int32_t>(), kRows, 2.0f);
  bench.ops().rms_norm(bench.stream(), *act, x.as<float>(), weight.as<float>(), kRows, 1e-5f);
  bench.ops().rms_norm_add(bench.stream(), x.as<float>(), act->f32(), weight.as<float>(), kRows, kDim, 1e-6f);
  bench.ops().glu(bench.stream(), *act, x.as<float>(), up.as<float>(), kRows, kind);
  bench.ops().gather_rows(bench.stream(), out.as<float>(), act->f32(), table_tokens.as<std::int32_t>() + 2, 1, kDim);
  bench.ops().scale_softcap(bench.stream(), out.as<float>(), kDim, 3.0f, 30.0f);
  return bench.download(out.as<float>(), kDim);
}

std::vector<float> attend(Bench& bench, std::mt19937& random, const test::KvShape& shape) {
  const test::KvProblem problem(shape);
  test::KvProblem::Placed placed(bench, problem);
  const int rows = problem.rows(), heads = problem.heads(), dim = shape.head_dim;
  const std::size_t n = static_cast<std::size_t>(rows * heads * dim),
                    kv_n = static_cast<std::size_t>(rows * shape.kv_heads * dim);
  const Buffer q = bench.upload(random_floats(n, random)), k = bench.upload(random_floats(kv_n, random)),
               v = bench.upload(random_floats(kv_n, random));
  const Buffer norm = bench.upload(random_floats(static_cast<std::size_t>(dim), random));
  const Buffer table = bench.device().allocate(static_cast<std::size_t>(rows * dim) * sizeof(float));
  RopeParams rope;
  rope.style = RopeStyle::neox;
  rope.n_rot = dim;
  bench.ops().rope_table(bench.stream(), table.as<float>(), rope, placed.view);
  RopeStoreArgs store;
  store.q = q.as<float>();
  store.k = k.as<float>();
  store.v = v.as<float>();
  store.heads = heads;
  store.q_norm = store.k_norm = norm.as<float>();
  store.norm_eps = 1e-5f;
  store.style = rope.style;
  store.n_rot = dim;
  store.table = table.as<float>();
  bench.ops().rope_store(bench.stream(), store, problem.kv, placed.view);
  const auto out = bench.device().make_activation(rows, std::int64_t{heads} * dim, ActFormats::f32);
  AttentionArgs args;
  args.q = q.as<float>();
  args.heads = heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  args.window = 90;
  args.softcap = 20.0f;
  bench.ops().attention(bench.stream(), *out, args, problem.kv, placed.view);
  return bench.download(out->f32(), n);
}

}  // namespace

void check_kernels(Report& report, const Subject& subject) {
  Comparison compare(report, subject);
  const std::vector<int> rows = subject.small ? std::vector<int>{1, 9} : std::vector<int>{1, 4, 8, 9, 33, 130};
  for (const DType type : kTypes) {
    const bool integers = dtype_info(type).block_len != 1;
    for (const int n : rows) {
      const std::string name = fmt::format("{}, {} rows", dtype_info(type).name, n);
      // Libraries add up floats in their own order.
      compare.run("mat-mul " + name, integers || n <= 32 ? kSameOrder : 1e-5,
                  [=](Bench& bench, std::mt19937& random) { return multiply(bench, random, type, n); });
      compare.run("experts " + name, 1e-5,
                  [=](Bench& bench, std::mt19937& random) { return mix_experts(bench, random, type, n); });
    }
  }
  for (const GluKind kind : {GluKind::silu, GluKind::gelu, GluKind::clamped_swiglu}) {
    compare.run(fmt::format("lookup, norms, gate {}", static_cast<int>(kind)), 1e-5,
                [=](Bench& bench, std::mt19937& random) { return small_operations(bench, random, kind); });
  }
  for (const DType type : {DType::f16, DType::q8_0, DType::f32}) {
    for (const int dim : subject.small ? std::vector<int>{64} : std::vector<int>{64, 80, 96, 128, 256}) {
      if (type == DType::q8_0 && dim % 64 != 0) continue;
      for (const int n : {1, 5, 70}) {
        const test::KvShape shape{
            .head_dim = dim, .kv_heads = 2, .group = 3, .type_k = type, .type_v = type, .rows = {n}, .cells = {200}};
        compare.run(fmt::format("rope, store, attention {}, heads of {}, {} rows", dtype_info(type).name, dim, n),
                    kTensorCores, [=](Bench& bench, std::mt19937& random) { return attend(bench, random, shape); });
      }
    }
  }
}

}  // namespace bankml::gpu
