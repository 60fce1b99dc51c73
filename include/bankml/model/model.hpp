#pragma once
// A loaded model: file, configuration and weights on a device; and the forward pass over rows of any sequences.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bankml/device/device.hpp"
#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/model/kv_pool.hpp"

namespace bankml {

// Weights of one layer; those that a model doesn't have are empty.
struct LayerWeights {
  Buffer attn_norm, ffn_norm, post_attention_norm, post_ffw_norm, q_norm, k_norm;  // f32
  std::unique_ptr<Weight> q, k, v, output;
  // With experts: those of all experts, and what decides about them; shared_* is the expert of every row.
  std::unique_ptr<Weight> gate, up, down, router, shared_gate, shared_up, shared_down;
  Buffer q_bias, k_bias, v_bias, output_bias, gate_bias, up_bias, down_bias, router_bias, sinks;  // f32
};

class Model {
 public:
  // `progress(done)` is called with a fraction in [0, 1] while weights are loaded, on the calling thread.
  // Throws what GgufFile::open and read_config throw, and Error(invalid_request) for a missing tensor or one of another
  // shape, naming it, Error(unsupported) for what the device can't compute.
  static std::unique_ptr<Model> load(const std::filesystem::path& path, Device& device,
                                     const RopeOverrides& overrides = {},
                                     const std::function<void(double)>& progress = {});
  // The same from an open file. All of the file is checked before memory of the device is taken; a weight that the
  // device keeps in another form no longer counts as resident in the mapping.
  static std::unique_ptr<Model> load(GgufFile file, Device& device, const RopeOverrides& overrides = {},
                                     const std::function<void(double)>& progress = {});

  const ModelConfig& config() const noexcept { return config_; }
  const GgufFile& file() const noexcept { return file_; }
  Device& device() const noexcept { return device_; }
  const std::vector<LayerWeights>& layers() const noexcept { return layers_; }
  const Weight& token_embedding() const noexcept { return *token_embedding_; }
  const Weight& output() const noexcept { return output_ ? *output_ : *token_embedding_; }
  const float* output_norm() const noexcept { return output_norm_.as<float>(); }
  const float* output_bias() const noexcept { return output_bias_.as<float>(); }
  // Host memory, (n_rot / 2) or nullptr; long factors if the context of a sequence exceeds the original one.
  const float* rope_factors(std::int64_t sequence_context) const noexcept;
  std::int64_t parameters() const noexcept { return parameters_; }      // elements of all tensors of the file
  std::int64_t tensor_bytes() const noexcept { return tensor_bytes_; }  // and their size in it
  // Tells models apart whose states must not be mixed: the architecture and a hash over names, shapes and the first
  // bytes of all tensors.
  const std::string& fingerprint() const noexcept { return fingerprint_; }

 private:
  Model(GgufFile file, Device& device) : file_(std::move(file)), device_(device) {}
  GgufFile file_;
  Device& device_;
  ModelConfig config_;
  std::vector<LayerWeights> layers_;
  std::unique_ptr<Weight> token_embedding_, output_;
  Buffer output_norm_, output_bias_;
  std::vector<float> rope_freqs_, rope_short_, rope_long_;
  std::int64_t parameters_ = 0, tensor_bytes_ = 0;
  std::string fingerprint_;
};

// One row of a forward pass: `token` at `position` of sequences[sequence].
struct BatchRow {
  TokenId token = 0;
  std::int32_t position = 0;
  std::int32_t sequence = 0;
  bool wants_logits = false;
};

struct TransformerLimits {
  int max_rows = 512;  // rows of one forward pass (the peer's n_ubatch)
  int max_logit_rows = 1;
  int max_sequences = 1;
  std::int64_t context = 0;  // cells of a sequence at most: size of the block table and the peer's cache size
};

// The forward pass: one for prefill and decode, one sequence and many. Used by one thread.
class Transformer {
 public:
  Transformer(const Model& model, KvPool& pool, const TransformerLimits& limits);
  ~Transformer();

  // Runs rows (at most max_rows) of the sequences; each sequence is extended to hold its rows first.
  // Waits for nothing but the logits, which are then readable through logits(). `abort` is looked at between layers:
  // once it is set, the pass ends, the sequences are cut to what they were, and false is returned. Throws
  // Error(out_of_memory) before anything is changed, Error(device) if the device failed.
  bool forward(std::span<const BatchRow> rows, std::span<KvSequence* const> sequences,
               const std::atomic<bool>* abort = nullptr);

  // KvSequence::keep(), and turns the keys of the runs that move to their new positions. Waits until it is done.
  void keep(KvSequence& sequence, std::span<const KvSequence::Run> runs);

  // Logits (vocab) of the i-th row that wanted them in the last forward(); valid until the next.
  std::span<const float> logits(int i) const noexcept;

  Stream& stream() noexcept;  // compute

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
