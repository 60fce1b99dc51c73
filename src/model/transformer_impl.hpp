#pragma once
// The inside of the transformer: its scratch memory (transformer_scratch.cpp), the computations of a layer
// (transformer_layers.cpp), and what a batch is on the device (transformer.cpp).
#include <array>
#include <memory>
#include <vector>

#include "bankml/model/model.hpp"
#include "model/batch_arrays.hpp"

namespace bankml {

struct Transformer::Impl {
  Impl(const Model& model, KvPool& pool, const TransformerLimits& limits);

  // The batch as each part of the layers sees it.
  using BatchViews = std::array<BatchView, kKvParts.size()>;

  BatchViews prepare(std::span<const BatchRow> rows, std::span<KvSequence* const> sequences);
  void prepare_part(BatchView& view, KvPart part, std::span<const BatchRow> rows,
                    std::span<KvSequence* const> sequences);
  const std::int32_t* upload_cell_positions(KvPart part, std::span<KvSequence* const> sequences);
  void rotate_run(const KvCells& held, KvPart part, const KvSequence::Run& run, const BatchView& view);

  void layer(std::size_t index, const BatchView& batch, int& n, bool last, int n_logits);
  void read_rows(const float* residual, const Buffer& norm, int n);
  void store_rows(std::size_t index, const BatchView& batch, int n);
  void attend(std::size_t index, const BatchView& batch, int n);
  void feed_forward(std::size_t index, float* residual, int n);
  void mix_experts(const LayerWeights& w, float* residual, int n);
  void project(float* residual, const Weight& weight, const Buffer& bias, const Buffer& post_norm, const Activation& in,
               int n);
  void compute_logits(const float* residual, int n);

  Buffer floats(std::int64_t rows, std::int64_t dim);
  void allocate_scratch();
  void collect_rotations();

  const Model& model;
  const ModelConfig& config;
  Device& device;
  Ops& ops;
  KvPool& pool;
  TransformerLimits limits;
  std::array<std::int64_t, kKvParts.size()> cache_cells;  // of a sequence at most, in each part
  BatchArrays arrays;
  std::unique_ptr<Stream> stream;
  std::vector<RopeParams> rotations;
  std::vector<Buffer> tables;                              // one a rotation: (rows, n_rot / 2, 2)
  std::vector<int> rotation_of;                            // per layer; -1: none
  std::vector<std::int64_t> length_before, length_needed;  // per sequence of a batch; kept, so that no pass allocates
  // What a part of the batch's sequences holds where, once some cell holds another position than its own number.
  struct CellPositions {
    Buffer device, host;
  };
  std::array<CellPositions, kKvParts.size()> cell_positions;
  Buffer moved_cells, moved_cells_host;
  Buffer x, q, k, v, gate, up, branch, x_logits, logits;
  Buffer scores, expert_branch, shared_gate, shared_up;
  std::unique_ptr<ExpertChoice> choice;
  std::unique_ptr<Activation> normed, attention, activated, shared_activated, final;
};

}  // namespace bankml
