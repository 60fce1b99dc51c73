// Mixtures of experts (docs/architectures.md, section 6). To the peer every pair of a row and an expert is a mat-mul of
// one row, so how many rows an expert gets doesn't change the sums; here they are multiplied together.
#include <algorithm>
#include <cstring>
#include <string>

#include "bankml/base/error.hpp"
#include "device/cpu/expert_choice.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/packing.hpp"
#include "device/cpu/scratch.hpp"

namespace bankml {

CpuExpertChoice::CpuExpertChoice(int max_rows, int experts, int used) : ExpertChoice(max_rows, experts, used) {
  if (max_rows < 1 || used < 1 || used > experts) {
    throw Error(ErrorKind::invalid_request, "experts: expected from 1 to " + std::to_string(experts) +
                                                " for each row, got " + std::to_string(used));
  }
  const std::size_t pairs = static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(used);
  expert_.resize(pairs);
  place_.resize(pairs);
  weight_.resize(pairs);
  begin_.resize(static_cast<std::size_t>(experts) + 1);
}

void CpuExpertChoice::sort(int rows) {
  const std::size_t pairs = static_cast<std::size_t>(rows) * static_cast<std::size_t>(used());
  std::fill(begin_.begin(), begin_.end(), 0);
  for (std::size_t pair = 0; pair < pairs; ++pair) ++begin_[static_cast<std::size_t>(expert_[pair]) + 1];
  for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
  // Each place taken moves the beginning; afterwards they stand one expert further.
  for (std::size_t pair = 0; pair < pairs; ++pair) place_[pair] = begin_[static_cast<std::size_t>(expert_[pair])]++;
  std::copy_backward(begin_.begin(), begin_.end() - 1, begin_.end());
  begin_.front() = 0;
}

CpuActivation& CpuExpertChoice::gathered(std::int64_t dim, ActFormats formats, const Kernels& kernels) {
  if (!gathered_ || gathered_->dim() != dim || gathered_->formats() != formats) {
    gathered_ = std::make_unique<CpuActivation>(std::int64_t{max_rows()} * used(), dim, formats, kernels);
  }
  return *gathered_;
}

namespace {

// The `used` largest of n values, the first of equal ones first.
void choose(const float* values, int n, int used, std::uint8_t* taken, std::int32_t* chosen) {
  std::fill_n(taken, n, std::uint8_t{0});
  for (int i = 0; i < used; ++i) {
    int best = -1;
    for (int e = 0; e < n; ++e) {
      if (taken[e] == 0 && (best < 0 || values[e] > values[best])) best = e;
    }
    taken[best] = 1;
    chosen[i] = best;
  }
}

void normalize(float* weights, int n) {
  constexpr double kSmallestHalf = 0x1p-14;  // of the normal ones: a sum below it counts as this
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(weights[i]);
  const float divisor = std::max(static_cast<float>(sum), static_cast<float>(kSmallestHalf));
  for (int i = 0; i < n; ++i) weights[i] /= divisor;
}

// Copies the forms of a row that `to` has.
void copy_row(const CpuActivation& to, std::int64_t to_row, const CpuActivation& from, std::int64_t row) {
  const auto copy = [](auto* out, const auto* in, std::int64_t n) { std::copy_n(in, n, out); };
  const std::int64_t n = to.dim();
  const auto uses = [&](ActFormats format) { return has(to.formats(), format); };
  if (uses(ActFormats::f32)) copy(to.f32_row(to_row), from.f32_row(row), n);
  if (uses(ActFormats::f16)) copy(to.f16_row(to_row), from.f16_row(row), n);
  if (uses(ActFormats::bf16)) copy(to.bf16_row(to_row), from.bf16_row(row), n);
  if (uses(ActFormats::q8)) {
    const Q8Row out = to.q8_row(to_row), in = from.q8_row(row);
    copy(out.quants, in.quants, n);
    copy(out.scale, in.scale, n / kBlock);
    copy(out.scaled_sum, in.scaled_sum, n / kBlock);
    copy(out.sum, in.sum, n / kBlock);
  }
  if (uses(ActFormats::q8_k)) {
    const Q8KRow out = to.q8_k_row(to_row), in = from.q8_k_row(row);
    copy(out.quants, in.quants, n);
    copy(out.scale, in.scale, n / kSuperBlock);
    copy(out.sums, in.sums, n / 16);
  }
}

// The rows that one expert multiplies for one output, cut into parts.
struct ExpertJob {
  MatmulJob job;
  MatmulKernel kernel;
  int tokens;
  std::int64_t part_rows, part_tokens, row_parts, end;  // end: of its parts among those of all jobs

  void run(std::int64_t part) const {
    const std::int64_t row = part % row_parts * part_rows, token = part / row_parts * part_tokens;
    kernel(job, row, std::min(row + part_rows, job.rows), static_cast<int>(token),
           static_cast<int>(std::min<std::int64_t>(token + part_tokens, tokens)));
  }
};

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t unit) noexcept {
  return (n + unit - 1) / unit;
}

// Parts of about this many multiplications: large beside handing one out, small beside an operation.
constexpr std::int64_t kPartProducts = std::int64_t{1} << 18;
constexpr std::int64_t kPartTokens = 64;

ExpertJob make_expert_job(const ExpertOutput& output, const CpuActivation& a, std::int64_t first, int expert,
                          std::int64_t place, int tokens, const Kernels& kernels) {
  const auto& weight = static_cast<const CpuWeight&>(*output.weight);
  ExpertJob j{};
  j.job = make_job(weight, expert, a, first);
  j.job.out = output.out + place * weight.rows();
  j.job.bias = output.bias ? output.bias + expert * weight.rows() : nullptr;
  j.kernel = matmul_kernel(kernels, weight);
  j.tokens = tokens;
  j.part_tokens = kPartTokens;
  const std::int64_t products_a_row = weight.cols() * std::min<std::int64_t>(tokens, kPartTokens);
  j.part_rows = divide_up(std::max<std::int64_t>(kPartProducts / products_a_row, 1), kGroup) * kGroup;
  j.row_parts = divide_up(weight.rows(), j.part_rows);
  return j;
}

}  // namespace

void CpuOps::route(Stream&, ExpertChoice& out, const float* scores, const RouterParams& params, int rows) {
  auto& choice = static_cast<CpuExpertChoice&>(out);
  const int experts = out.experts(), used = out.used();
  const std::size_t floats = static_cast<std::size_t>(experts) * sizeof(float);
  for_each_with_scratch(pool_, rows, floats + static_cast<std::size_t>(experts),
                        [&](std::int64_t row, std::byte* memory) {
                          auto* probabilities = reinterpret_cast<float*>(memory);
                          auto* taken = reinterpret_cast<std::uint8_t*>(memory + floats);
                          const float* own = scores + row * experts;
                          std::int32_t* chosen = choice.experts_of(row);
                          float* weights = choice.weights_of(row);
                          if (params.softmax_of_chosen) {
                            choose(own, experts, used, taken, chosen);
                            for (int i = 0; i < used; ++i) probabilities[i] = own[chosen[i]];
                            floats_.soft_max(weights, probabilities, used);
                          } else {
                            floats_.soft_max(probabilities, own, experts);
                            choose(probabilities, experts, used, taken, chosen);
                            for (int i = 0; i < used; ++i) weights[i] = probabilities[chosen[i]];
                          }
                          if (params.normalize) normalize(weights, used);
                          if (params.scale != 1.0f) {
                            for (int i = 0; i < used; ++i) weights[i] *= params.scale;
                          }
                        });
  choice.sort(rows);
}

void CpuOps::matmul_experts(Stream&, std::span<const ExpertOutput> outputs, const Activation& a, ExpertInput input,
                            ExpertChoice& chosen, int rows) {
  auto& choice = static_cast<CpuExpertChoice&>(chosen);
  const Kernels& kernel = kernels(isa_);
  const auto* in = &static_cast<const CpuActivation&>(a);
  const bool one_row = input == ExpertInput::rows && rows == 1;  // all experts multiply it where it is
  if (input == ExpertInput::rows && !one_row) {
    ActFormats formats = ActFormats::none;
    for (const ExpertOutput& output : outputs) formats = formats | activation_format(output.weight->type());
    CpuActivation& gathered = choice.gathered(a.dim(), formats, kernel);
    pool_.for_each(rows, [&](std::int64_t row) {
      for (int i = 0; i < choice.used(); ++i) copy_row(gathered, choice.places_of(row)[i], *in, row);
    });
    in = &gathered;
  }
  const std::size_t most = outputs.size() * static_cast<std::size_t>(choice.experts());
  auto* jobs = reinterpret_cast<ExpertJob*>(scratch(ScratchUse::items, most * sizeof(ExpertJob)));
  std::size_t n = 0;
  std::int64_t parts = 0;
  for (const ExpertOutput& output : outputs) {
    for (int e = 0; e < choice.experts(); ++e) {
      const std::int32_t first = choice.begin(e), tokens = choice.begin(e + 1) - first;
      if (tokens == 0) continue;
      ExpertJob& job =
          *new (jobs + n++) ExpertJob(make_expert_job(output, *in, one_row ? 0 : first, e, first, tokens, kernel));
      parts += job.row_parts * divide_up(tokens, job.part_tokens);
      job.end = parts;
    }
  }
  pool_.for_each(parts, [&](std::int64_t part) {
    const ExpertJob* job =
        std::upper_bound(jobs, jobs + n, part, [](std::int64_t p, const ExpertJob& j) { return p < j.end; });
    job->run(part - (job == jobs ? 0 : (job - 1)->end));
  });
}

void CpuOps::sum_experts(Stream&, const ExpertSum& args, const ExpertChoice& chosen, int rows) {
  const auto& choice = static_cast<const CpuExpertChoice&>(chosen);
  constexpr int kStretch = 256;  // floats whose sums stay in the first cache
  pool_.for_each(rows, [&](std::int64_t row) {
    const float* weights = choice.weights_of(row);
    const std::int32_t* places = choice.places_of(row);
    for (std::int64_t begin = 0; begin < args.dim; begin += kStretch) {
      const int n = static_cast<int>(std::min<std::int64_t>(kStretch, args.dim - begin));
      const std::int64_t at = row * args.dim + begin;
      float sum[kStretch];
      for (int i = 0; i < choice.used(); ++i) {
        const float* branch = args.branch + std::int64_t{places[i]} * args.dim + begin;
        for (int j = 0; j < n; ++j) sum[j] = i == 0 ? branch[j] * weights[i] : sum[j] + branch[j] * weights[i];
      }
      for (int j = 0; j < n; ++j) {
        if (args.shared) sum[j] += args.shared[at + j];
        if (args.scale != 1.0f) sum[j] *= args.scale;
        if (args.residual) sum[j] += args.residual[at + j];
        args.out[at + j] = sum[j];
      }
    }
  });
}

}  // namespace bankml
