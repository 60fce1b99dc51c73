#pragma once
// The operations on the CPU: work is divided among the threads of a pool and done when the call returns, whatever the
// stream.
#include "bankml/device/ops.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/isa.hpp"
#include "device/cpu/thread_pool.hpp"

namespace bankml {

class CpuOps final : public Ops {
 public:
  CpuOps(ThreadPool& pool, Isa isa) noexcept : CpuOps(pool, isa, float_kernels(isa)) {}
  // With other float kernels than those of `isa`.
  CpuOps(ThreadPool& pool, Isa isa, const FloatKernels& floats) noexcept : pool_(pool), isa_(isa), floats_(floats) {}

  // embed.cpp
  void embed(Stream& stream, float* x, const Weight& table, const std::int32_t* tokens, int rows, float scale) override;
  void quantize(Stream& stream, Activation& out, const float* x, int rows) override;
  void gather_rows(Stream& stream, float* dst, const float* src, const std::int32_t* rows, int n, int dim) override;
  // matmul.cpp
  void matmul(Stream& stream, std::span<const MatmulOutput> outputs, const Activation& a, int rows) override;
  // norm.cpp
  void rms_norm(Stream& stream, Activation& out, const float* x, const float* weight, int rows, float eps) override;
  void rms_norm(Stream& stream, float* out, const float* x, const float* weight, int rows, int dim, float eps) override;
  void rms_norm_add(Stream& stream, float* x, const float* branch, const float* weight, int rows, int dim,
                    float eps) override;
  // glu.cpp
  void glu(Stream& stream, Activation& out, const float* gate, const float* up, int rows, GluKind kind) override;
  // rope.cpp
  void rope_table(Stream& stream, float* table, const RopeParams& params, const BatchView& batch) override;
  void rope_store(Stream& stream, const RopeStoreArgs& args, const KvLayout& kv, const BatchView& batch) override;
  void rotate_keys(Stream& stream, const KvLayout& kv, std::byte* const* blocks, const std::int32_t* cells, int n,
                   const float* table, RopeStyle style, int n_rot) override;
  // attention.cpp
  void attention(Stream& stream, Activation& out, const AttentionArgs& args, const KvLayout& kv,
                 const BatchView& batch) override;
  // experts.cpp
  void route(Stream& stream, ExpertChoice& out, const float* scores, const RouterParams& params, int rows) override;
  void matmul_experts(Stream& stream, std::span<const ExpertOutput> outputs, const Activation& a, ExpertInput input,
                      ExpertChoice& choice, int rows) override;
  void sum_experts(Stream& stream, const ExpertSum& args, const ExpertChoice& choice, int rows) override;
  // softcap.cpp
  void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap) override;

 private:
  ThreadPool& pool_;
  Isa isa_;
  const FloatKernels& floats_;
};

}  // namespace bankml
