#include "device/cpu/activation.hpp"

#include <cstring>
#include <string>

#include "bankml/base/error.hpp"
#include "base/blocks.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/memory.hpp"

namespace bankml {

ActFormats activation_format(DType weight) noexcept {
  switch (weight) {
    case DType::f32:
      return ActFormats::f32;
    case DType::f16:
      return ActFormats::f16;
    case DType::bf16:
      return ActFormats::bf16;
    default:
      return dtype_info(weight).block_len == kBlock ? ActFormats::q8 : ActFormats::q8_k;
  }
}

CpuActivation::CpuActivation(std::int64_t max_rows, std::int64_t dim, ActFormats formats, const Kernels& kernels)
    : Activation(max_rows, dim, formats), kernels_(kernels) {
  const int block = has(formats, ActFormats::q8_k) ? kSuperBlock : has(formats, ActFormats::q8) ? kBlock : 1;
  if (max_rows < 1 || dim < 1 || dim % block != 0) {
    throw Error(ErrorKind::invalid_request, "activation rows: expected a length that is a multiple of " +
                                                std::to_string(block) + ", got " + std::to_string(max_rows) +
                                                " rows of " + std::to_string(dim));
  }
  // Two passes over the same list: the first adds up the bytes, the second hands out the addresses.
  std::size_t bytes = 0;
  const auto place = [&]<class T>(T*& plane, ActFormats format, std::int64_t per_row) {
    if (!has(formats, format)) return;
    if (memory_) plane = reinterpret_cast<T*>(memory_.data() + bytes);
    constexpr std::size_t kAlignment = 64;
    bytes += (static_cast<std::size_t>(max_rows * per_row) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto place_all = [&] {
    bytes = 0;
    place(f32_, ActFormats::f32, dim);
    place(f16_, ActFormats::f16, dim);
    place(bf16_, ActFormats::bf16, dim);
    place(q8_, ActFormats::q8, dim);
    place(q8_scale_, ActFormats::q8, dim / kBlock);
    place(q8_scaled_sum_, ActFormats::q8, dim / kBlock);
    place(q8_sum_, ActFormats::q8, dim / kBlock);
    place(q8k_, ActFormats::q8_k, dim);
    place(q8k_scale_, ActFormats::q8_k, dim / kSuperBlock);
    place(q8k_sums_, ActFormats::q8_k, dim / 16);
  };
  place_all();
  memory_ = allocate_memory(bytes);
  place_all();
}

void quantize_row(CpuActivation& out, std::int64_t row, const float* x) {
  const std::int64_t n = out.dim();
  const Kernels& kernel = out.kernels();
  if (has(out.formats(), ActFormats::f32) && out.f32_row(row) != x) {
    std::memcpy(out.f32_row(row), x, static_cast<std::size_t>(n) * sizeof(float));
  }
  if (has(out.formats(), ActFormats::f16)) kernel.round_to_f16(x, n, out.f16_row(row));
  if (has(out.formats(), ActFormats::bf16)) {
    for (std::int64_t i = 0; i < n; ++i) out.bf16_row(row)[i] = to_bfloat16(x[i]);
  }
  if (has(out.formats(), ActFormats::q8)) kernel.quantize_q8(x, n, out.q8_row(row));
  if (has(out.formats(), ActFormats::q8_k)) kernel.quantize_q8_k(x, n, out.q8_k_row(row));
}

}  // namespace bankml
