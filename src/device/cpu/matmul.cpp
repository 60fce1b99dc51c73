// Divides mat-muls among the threads: over rows of the weights and, where there are many, over tokens; never over the
// length of a row, which would change the sums.
#include "device/cpu/matmul.hpp"

#include <algorithm>

#include "device/cpu/ops.hpp"
#include "device/cpu/packing.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {
namespace {

// Activations of one part of a job: they should stay in a core's second cache while the rows of the weight pass.
constexpr std::int64_t kActivationBytes = 192 << 10;
// Parts for each thread: enough that a thread that is held up doesn't hold up the others for long.
constexpr std::int64_t kPartsPerThread = 4;

std::int64_t round_up(std::int64_t n, std::int64_t unit) noexcept {
  return (n + unit - 1) / unit * unit;
}
std::int64_t divide_up(std::int64_t n, std::int64_t unit) noexcept {
  return (n + unit - 1) / unit;
}

// As the kernels read them.
std::int64_t bytes_of_element(ActFormats format) noexcept {
  if (format == ActFormats::f32 || format == ActFormats::f16) return sizeof(float);
  return format == ActFormats::bf16 ? sizeof(bfloat16) : sizeof(std::int8_t);
}

// One mat-mul, cut into parts of `part_rows` x `part_tokens`.
struct Divided {
  MatmulJob job{};
  MatmulKernel kernel = nullptr;
  std::int64_t part_rows = 0, part_tokens = 0, row_parts = 0, parts = 0;

  void run(std::int64_t part) const {
    const std::int64_t row = part % row_parts * part_rows, token = part / row_parts * part_tokens;
    kernel(job, row, std::min(row + part_rows, job.rows), static_cast<int>(token),
           static_cast<int>(std::min<std::int64_t>(token + part_tokens, job.batch)));
  }
};

Divided divide(const MatmulOutput& output, const CpuActivation& a, int batch, const Kernels& kernels, int threads) {
  const auto& weight = static_cast<const CpuWeight&>(*output.weight);
  Divided d;
  d.job = make_job(weight, 0, a, 0);
  d.job.batch = batch;
  d.job.out = output.out;
  d.job.bias = output.bias;
  d.job.residual = output.residual;
  d.job.scale = output.scale;
  d.kernel = matmul_kernel(kernels, weight);
  // A multiple of the kernels' tiles of three and of four tokens, and so of the groups of four of the peer.
  constexpr std::int64_t kTokenUnit = 12;
  const std::int64_t token_bytes = d.job.cols * bytes_of_element(activation_format(weight.type()));
  d.part_tokens = std::min<std::int64_t>(
      round_up(batch, kTokenUnit), round_up(std::max<std::int64_t>(kActivationBytes / token_bytes, 1), kTokenUnit));
  const std::int64_t token_parts = divide_up(batch, d.part_tokens);
  const std::int64_t wanted = threads == 1 ? 1 : divide_up(kPartsPerThread * threads, token_parts);
  d.part_rows = round_up(divide_up(d.job.rows, wanted), kGroup);
  d.row_parts = divide_up(d.job.rows, d.part_rows);
  d.parts = d.row_parts * token_parts;
  return d;
}

}  // namespace

MatmulJob make_job(const CpuWeight& weight, std::int64_t expert, const CpuActivation& a, std::int64_t first) noexcept {
  const auto uses = [&](ActFormats format) { return has(a.formats(), format); };
  return {
      .quants = weight.quants(expert),
      .meta = weight.meta(expert),
      .rows = weight.rows(),
      .cols = weight.cols(),
      .batch = 1,
      .q8 = uses(ActFormats::q8) ? a.q8_row(first) : Q8Row{},
      .q8_k = uses(ActFormats::q8_k) ? a.q8_k_row(first) : Q8KRow{},
      .f32 = uses(ActFormats::f32) ? a.f32_row(first) : nullptr,
      .f16 = uses(ActFormats::f16) ? a.f16_row(first) : nullptr,
      .bf16 = uses(ActFormats::bf16) ? a.bf16_row(first) : nullptr,
      .out = nullptr,
      .bias = nullptr,
      .residual = nullptr,
      .scale = 1.0f,
  };
}

MatmulKernel matmul_kernel(const Kernels& kernels, const CpuWeight& weight) {
  const MatmulKernel kernel = kernels.matmul(weight.type(), weight.packed());
  return kernel ? kernel : portable::kKernels.matmul(weight.type(), weight.packed());
}

void multiply(ThreadPool& pool, const Kernels& kernels, std::span<const MatmulOutput> outputs, const CpuActivation& a,
              int rows) {
  constexpr std::size_t kMost = 4;  // Q, K and V, or gate and up; more take turns
  for (; !outputs.empty(); outputs = outputs.subspan(std::min(kMost, outputs.size()))) {
    Divided divided[kMost];
    std::int64_t begin[kMost + 1] = {};
    std::size_t n = 0;
    for (; n < std::min(kMost, outputs.size()); ++n) {
      divided[n] = divide(outputs[n], a, rows, kernels, pool.size());
      begin[n + 1] = begin[n] + divided[n].parts;
    }
    pool.for_each(begin[n], [&](std::int64_t part) {
      std::size_t i = 0;
      while (part >= begin[i + 1]) ++i;
      divided[i].run(part - begin[i]);
    });
  }
}

void CpuOps::matmul(Stream&, std::span<const MatmulOutput> outputs, const Activation& a, int rows) {
  multiply(pool_, kernels(isa_), outputs, static_cast<const CpuActivation&>(a), rows);
}

}  // namespace bankml
