// Kernels without vector instructions: a row is decoded once and multiplied by all tokens as the reference does.
#include <vector>

#include "device/cpu/kernels.hpp"
#include "device/cpu/packing.hpp"
#include "device/cpu/reference.hpp"
#include "device/cpu/reference_dot.hpp"

namespace bankml::portable {
namespace {

void finish(const MatmulJob& job, std::int64_t row, int token, float sum) noexcept {
  const std::int64_t at = token * job.rows + row;
  if (job.bias) sum += job.bias[row];
  if (job.scale != 1.0f) sum *= job.scale;
  if (job.residual) sum += job.residual[at];
  job.out[at] = sum;
}

template <class Block, bool packed>
void quantised_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  using P = Packing<Block>;
  constexpr bool small = kTraits<Block>.length == kBlock;
  const MatmulShape shape{job.rows, job.cols, job.batch, packed && P::one_sum};
  const std::int64_t n = job.cols / kTraits<Block>.length;
  std::vector<Decoded<Block>> decoded(static_cast<std::size_t>(n));
  for (std::int64_t r = row; r < row_end; ++r) {
    for (std::int64_t k = 0; k < n; ++k) {
      Decoded<Block>& block = decoded[static_cast<std::size_t>(k)];
      if constexpr (packed) {
        const std::int64_t piece = r / kGroup * n + k;
        unpack(job.quants + piece * P::quant_bytes, job.meta + piece * P::meta_bytes, static_cast<int>(r % kGroup),
               block);
      } else {
        decode(reinterpret_cast<const Block*>(job.quants)[r * n + k], block);
      }
    }
    for (int t = token; t < token_end; ++t) {
      Q8Row q8{};
      Q8KRow q8_k{};
      if constexpr (small) {
        q8 = {job.q8.quants + t * job.cols, job.q8.scale + t * n, job.q8.scaled_sum + t * n, job.q8.sum + t * n};
      } else {
        q8_k = {job.q8_k.quants + t * job.cols, job.q8_k.scale + t * n, job.q8_k.sums + t * job.cols / 16};
      }
      finish(job, r, t, reference::dot_decoded(shape, decoded.data(), q8, q8_k, t));
    }
  }
}

template <class T, class X>
void float_matmul(const MatmulJob& job, const X* x, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  const MatmulShape shape{job.rows, job.cols, job.batch, false};
  for (std::int64_t r = row; r < row_end; ++r) {
    const T* w = reinterpret_cast<const T*>(job.quants) + r * job.cols;
    for (int t = token; t < token_end; ++t) finish(job, r, t, reference::dot_float(shape, w, x + t * job.cols));
  }
}

MatmulKernel matmul(DType type, bool packed) {
  if (type == DType::f32) {
    return [](const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
      float_matmul<float>(job, job.f32, row, row_end, token, token_end);
    };
  }
  if (type == DType::f16) {
    return [](const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
      float_matmul<half>(job, job.f16, row, row_end, token, token_end);
    };
  }
  if (type == DType::bf16) {
    return [](const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
      float_matmul<bfloat16>(job, job.bf16, row, row_end, token, token_end);
    };
  }
  MatmulKernel kernel = nullptr;
  with_block(type,
             [&]<class Block>() { kernel = packed ? quantised_matmul<Block, true> : quantised_matmul<Block, false>; });
  return kernel;
}

void round_to_f16(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(to_half(x[i]));
}

}  // namespace

const Kernels kKernels{round_to_f16, reference_quantize_q8, reference_quantize_q8_k, matmul};

}  // namespace bankml::portable
