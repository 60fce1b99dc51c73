#pragma once
// The operations of a transformer over kernels, for a GPU and for the host device that stands for one in tests.
//
// The integers of activations, and every value rounded to a narrower type, are those of the CPU backend; sums of floats
// are added in another order, so answers are near the CPU backend's and not its bits. The peer's CUDA backend rounds
// elsewhere (docs/arithmetic.md, 5.2): following its activation quantiser moves the log-probabilities of tiny models up
// to seven times as far from the CPU's. Answers don't depend on the device: no atomics on floats, and the work of a row
// is divided in the same way everywhere.
#include "bankml/device/ops.hpp"
#include "device/cuda/pass_graphs.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

// Lengths of heads that attention takes.
inline constexpr int kHeadDimMultiple = 8, kMaxHeadDim = 1024;

class GpuOps final : public Ops {
 public:
  // Weights and activations given to it must be GpuWeight and GpuActivation. Scratch is kept for the largest call so
  // far, so one stream at a time may attend. Kernels of a pass of few rows may be held back until the stream's next
  // copy, event or wait (pass_graphs.hpp).
  explicit GpuOps(Device& device) noexcept : device_(device) {}

  void embed(Stream& stream, float* x, const Weight& table, const std::int32_t* tokens, int rows, float scale) override;
  void quantize(Stream& stream, Activation& out, const float* x, int rows) override;
  void gather_rows(Stream& stream, float* dst, const float* src, const std::int32_t* rows, int n, int dim) override;
  void matmul(Stream& stream, std::span<const MatmulOutput> outputs, const Activation& a, int rows) override;
  void rms_norm(Stream& stream, Activation& out, const float* x, const float* weight, int rows, float eps) override;
  void rms_norm(Stream& stream, float* out, const float* x, const float* weight, int rows, int dim, float eps) override;
  void rms_norm_add(Stream& stream, float* x, const float* branch, const float* weight, int rows, int dim,
                    float eps) override;
  void glu(Stream& stream, Activation& out, const float* gate, const float* up, int rows, GluKind kind) override;
  void route(Stream& stream, ExpertChoice& out, const float* scores, const RouterParams& params, int rows) override;
  void matmul_experts(Stream& stream, std::span<const ExpertOutput> outputs, const Activation& a, ExpertInput input,
                      ExpertChoice& choice, int rows) override;
  void sum_experts(Stream& stream, const ExpertSum& args, const ExpertChoice& choice, int rows) override;
  // Throws Error(unsupported) for more than 2 * kMaxPairs rotated elements.
  void rope_table(Stream& stream, float* table, const RopeParams& params, const BatchView& batch) override;
  void rope_store(Stream& stream, const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch) override;
  void rotate_keys(Stream& stream, const KvLayout& kv, std::byte* const* blocks, const std::int32_t* cells, int n,
                   const float* table, RopeStyle style, int n_rot) override;
  // Throws Error(unsupported) for heads of another length than kHeadDimMultiple and kMaxHeadDim allow,
  // Error(out_of_memory).
  void attention(Stream& stream, Activation& out, const AttentionArgs& args, const KvLayout& kv,
                 const BatchView& batch) override;
  void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap) override;

 private:
  Device& device_;
  Buffer partials_;
  PassGraphs passes_;
};

}  // namespace KERNEL_NAMESPACE
