#pragma once
// Instructions that CUDA C++ has no function for, for g++: the twin of kernels/cuda/ptx.cuh, whose contracts hold here
// too.
#include "warp.cuh"

namespace bankml::host {

// The target is filled with 0xFF at once and gets its bytes at the wait: the hardware may write at any time in between,
// so nobody may read it or still be reading it.
inline void cp_async_16(void* shared, const void* source, int bytes = 16, Site at = Site::current()) {
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0)
    report_mistake("cp_async_16 to an address not aligned to 16", at);
  if (reinterpret_cast<std::uintptr_t>(source) % 16 != 0)
    report_mistake("cp_async_16 from an address not aligned to 16", at);
  if (bytes < 0 || bytes > 16 || bytes % 4 != 0)
    report_mistake("cp_async_16 of other than 0, 4, 8, 12 or 16 bytes", at);
  auto* const words = static_cast<std::uint32_t*>(shared);
  for (int i = 0; i < 4; ++i) words[i] = 0xffffffffu;
  remember_copy(shared, source, bytes, at);
}
inline void cp_async_commit() {
  close_copy_group();
}
template <int kPending>
void cp_async_wait(Site at = Site::current()) {
  AsyncCopy copy;
  while (next_due_copy(kPending, copy, at)) {
    auto* const to = static_cast<std::uint32_t*>(copy.to);
    const auto* const from = static_cast<const std::uint32_t*>(copy.from);
    for (int i = 0; i < 4; ++i) to[i] = 4 * i < copy.bytes ? from[i] : 0;
  }
}

// Element (row, k) of a fragment A of 16 rows, and (k, column) of B, whose registers hold kPerWord elements each.
struct MmaOperands {
  MmaA a;
  MmaB b;
};
template <class C>
struct MmaIn {
  MmaOperands ab;
  C c;
};
template <int kPerWord, class C>
std::uint32_t mma_a(const LanesIn<MmaIn<C>>& in, int row, int k) {
  const int half_k = 4 * kPerWord;
  const int lane = (row % 8) * 4 + k % half_k / kPerWord;
  const std::uint32_t word = in[lane].ab.a.x[row / 8 + 2 * (k / half_k)];
  return word >> (32 / kPerWord * (k % kPerWord));
}
template <int kPerWord, class C>
std::uint32_t mma_b(const LanesIn<MmaIn<C>>& in, int k, int column) {
  const int half_k = 4 * kPerWord;
  const int lane = column * 4 + k % half_k / kPerWord;
  return in[lane].ab.b.x[k / half_k] >> (32 / kPerWord * (k % kPerWord));
}

inline MmaInt mma_m16n8k32_s8(const MmaA& a, const MmaB& b, const MmaInt& c, Site at = Site::current()) {
  using In = MmaIn<MmaInt>;
  return meet<MmaInt>("mma_m16n8k32_s8", kAllLanes, In{{a, b}, c}, at,
                      [](const LanesIn<In>& in, const LanesOut<MmaInt>& out) {
                        std::int8_t rows[16][32], columns[8][32];
                        for (int k = 0; k < 32; ++k) {
                          for (int r = 0; r < 16; ++r) rows[r][k] = static_cast<std::int8_t>(mma_a<4>(in, r, k));
                          for (int n = 0; n < 8; ++n) columns[n][k] = static_cast<std::int8_t>(mma_b<4>(in, k, n));
                        }
                        for (int lane = 0; lane < kWarp; ++lane) {
                          for (int i = 0; i < 4; ++i) {
                            const int r = lane / 4 + 8 * (i / 2), n = 2 * (lane % 4) + i % 2;
                            std::int32_t sum = 0;
                            for (int k = 0; k < 32; ++k) sum += rows[r][k] * columns[n][k];
                            out[lane].x[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(in[lane].c.x[i]) +
                                                                       static_cast<std::uint32_t>(sum));
                          }
                        }
                      });
}

// The products are exact; their sum is rounded once, where the hardware cuts off bits far below the largest term: the
// last bits of a result may differ from a GPU's.
template <class Widen>
MmaFloat mma_m16n8k16(const char* operation, const MmaA& a, const MmaB& b, const MmaFloat& c, Site at, Widen) {
  using In = MmaIn<MmaFloat>;
  return meet<MmaFloat>(operation, kAllLanes, In{{a, b}, c}, at,
                        [](const LanesIn<In>& in, const LanesOut<MmaFloat>& out) {
                          float rows[16][16], columns[8][16];
                          for (int k = 0; k < 16; ++k) {
                            for (int r = 0; r < 16; ++r)
                              rows[r][k] = Widen{}(static_cast<std::uint16_t>(mma_a<2>(in, r, k)));
                            for (int n = 0; n < 8; ++n)
                              columns[n][k] = Widen{}(static_cast<std::uint16_t>(mma_b<2>(in, k, n)));
                          }
                          for (int lane = 0; lane < kWarp; ++lane) {
                            for (int i = 0; i < 4; ++i) {
                              const int r = lane / 4 + 8 * (i / 2), n = 2 * (lane % 4) + i % 2;
                              double sum = static_cast<double>(in[lane].c.x[i]);
                              for (int k = 0; k < 16; ++k)
                                sum += static_cast<double>(rows[r][k]) * static_cast<double>(columns[n][k]);
                              out[lane].x[i] = static_cast<float>(sum);
                            }
                          }
                        });
}
inline MmaFloat mma_m16n8k16_f16(const MmaA& a, const MmaB& b, const MmaFloat& c, Site at = Site::current()) {
  return mma_m16n8k16("mma_m16n8k16_f16", a, b, c, at, [](std::uint16_t bits) { return to_float(half{bits}); });
}
inline MmaFloat mma_m16n8k16_bf16(const MmaA& a, const MmaB& b, const MmaFloat& c, Site at = Site::current()) {
  return mma_m16n8k16("mma_m16n8k16_bf16", a, b, c, at, [](std::uint16_t bits) { return to_float(bfloat16{bits}); });
}

// A lane reads the row it names itself: the meeting only hands the elements around.
struct MatrixRow {
  std::uint32_t words[4];
};
inline MatrixRow read_matrix_row(const void* shared_row, Site at) {
  if (reinterpret_cast<std::uintptr_t>(shared_row) % 16 != 0)
    report_mistake("ldmatrix from an address not aligned to 16", at);
  const auto* const words = static_cast<const std::uint32_t*>(shared_row);
  return {{words[0], words[1], words[2], words[3]}};
}
template <class Matrices, int kMatrices, bool kTransposed>
void hand_out_matrices(const LanesIn<MatrixRow>& in, const LanesOut<Matrices>& out) {
  const auto element = [&](int matrix, int row, int column) {
    return in[matrix * 8 + row].words[column / 2] >> (16 * (column % 2)) & 0xffff;
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int m = 0; m < kMatrices; ++m) {
      const int outer = lane / 4, inner = 2 * (lane % 4);
      out[lane].x[m] = kTransposed ? element(m, inner, outer) | element(m, inner + 1, outer) << 16
                                   : element(m, outer, inner) | element(m, outer, inner + 1) << 16;
    }
  }
}
inline Matrices4 ldmatrix_x4(const void* shared_row, Site at = Site::current()) {
  return meet<Matrices4>("ldmatrix_x4", kAllLanes, read_matrix_row(shared_row, at), at,
                         [](const auto& in, const auto& out) { hand_out_matrices<Matrices4, 4, false>(in, out); });
}
inline Matrices4 ldmatrix_x4_trans(const void* shared_row, Site at = Site::current()) {
  return meet<Matrices4>("ldmatrix_x4_trans", kAllLanes, read_matrix_row(shared_row, at), at,
                         [](const auto& in, const auto& out) { hand_out_matrices<Matrices4, 4, true>(in, out); });
}
inline Matrices2 ldmatrix_x2(const void* shared_row, Site at = Site::current()) {
  const MatrixRow row = lane_of_warp() < 16 ? read_matrix_row(shared_row, at) : MatrixRow{};
  return meet<Matrices2>("ldmatrix_x2", kAllLanes, row, at,
                         [](const auto& in, const auto& out) { hand_out_matrices<Matrices2, 2, false>(in, out); });
}

inline uint4 load_streaming(const uint4* p) {
  return *p;
}

// Kernels of a stream never overlap here.
inline void grid_dependency_wait() {}

}  // namespace bankml::host
