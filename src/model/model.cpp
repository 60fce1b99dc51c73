#include "bankml/model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/device/shape_limits.hpp"
#include "base/printable.hpp"
#include "model/load_plan.hpp"

namespace bankml {
namespace {

// Declares the tensors of one layer (docs/architectures.md, sections 2 and 5).
class LayerPlan {
 public:
  LayerPlan(LoadPlan& plan, const ModelConfig& config, std::size_t index, LayerWeights& weights)
      : plan_(plan),
        config_(config),
        layer_(config.layer[index]),
        w_(weights),
        prefix_(fmt::format("blk.{}.", index)) {}

  void declare() {
    norms();
    projections();
    projection_biases();
    const std::int64_t attended = std::int64_t{layer_.heads} * config_.head_dim_v;
    plan_.matrix(w_.output, plan_.require(name("attn_output.weight"), {attended, config_.dim}));
    plan_.optional_vector(w_.output_bias, name("attn_output.bias"), config_.dim);
    if (config_.sinks) required_vector(w_.sinks, "attn_sinks.weight", layer_.heads);
    if (config_.experts.count > 0) {
      experts();
      shared_expert();
    } else {
      feed_forward();
    }
  }

 private:
  std::string name(std::string_view tensor) const { return prefix_ + std::string(tensor); }
  std::int64_t q_rows() const noexcept { return std::int64_t{layer_.heads} * config_.head_dim_k; }
  std::int64_t k_rows() const noexcept { return std::int64_t{layer_.kv_heads} * config_.head_dim_k; }
  std::int64_t v_rows() const noexcept { return std::int64_t{layer_.kv_heads} * config_.head_dim_v; }

  void required_vector(Buffer& to, std::string_view tensor, std::int64_t n) {
    plan_.vector(to, plan_.require(name(tensor), {n}));
  }

  void norms() {
    if (config_.pre_norms) {
      required_vector(w_.attn_norm, "attn_norm.weight", config_.dim);
      required_vector(w_.ffn_norm, config_.ffn_norm + ".weight", config_.dim);
    }
    if (config_.post_norms) {
      required_vector(w_.post_attention_norm, "post_attention_norm.weight", config_.dim);
      required_vector(w_.post_ffw_norm, "post_ffw_norm.weight", config_.dim);
    }
    if (config_.qk_norm != ModelConfig::QkNorm::none) {
      const bool whole = config_.qk_norm == ModelConfig::QkNorm::whole;
      required_vector(w_.q_norm, "attn_q_norm.weight", whole ? q_rows() : config_.head_dim_k);
      required_vector(w_.k_norm, "attn_k_norm.weight", whole ? k_rows() : config_.head_dim_k);
    }
  }

  // Q, K and V as three tensors, or as one with the rows of all three.
  void projections() {
    const std::int64_t dim = config_.dim;
    if (const GgufTensor* const fused = plan_.find(name("attn_qkv.weight"), {dim, q_rows() + k_rows() + v_rows()})) {
      plan_.matrix_rows(w_.q, *fused, 0, q_rows());
      plan_.matrix_rows(w_.k, *fused, q_rows(), k_rows());
      plan_.matrix_rows(w_.v, *fused, q_rows() + k_rows(), v_rows());
    } else {
      plan_.matrix(w_.q, plan_.require(name("attn_q.weight"), {dim, q_rows()}));
      plan_.matrix(w_.k, plan_.require(name("attn_k.weight"), {dim, k_rows()}));
      plan_.matrix(w_.v, plan_.require(name("attn_v.weight"), {dim, v_rows()}));
    }
  }

  void projection_biases() {
    if (const GgufTensor* const fused = plan_.find(name("attn_qkv.bias"), {q_rows() + k_rows() + v_rows()})) {
      plan_.vector_part(w_.q_bias, *fused, 0, q_rows());
      plan_.vector_part(w_.k_bias, *fused, q_rows(), k_rows());
      plan_.vector_part(w_.v_bias, *fused, q_rows() + k_rows(), v_rows());
    } else {
      plan_.optional_vector(w_.q_bias, name("attn_q.bias"), q_rows());
      plan_.optional_vector(w_.k_bias, name("attn_k.bias"), k_rows());
      plan_.optional_vector(w_.v_bias, name("attn_v.bias"), v_rows());
    }
  }

  // Gate and up as two tensors, or as one with the rows of gate before those of up.
  void feed_forward() {
    const std::int64_t dim = config_.dim, hidden = layer_.hidden;
    const GgufTensor* const gate = plan_.find(name("ffn_gate.weight"), {dim, hidden});
    if (gate == nullptr && plan_.has_rows(name("ffn_up.weight"), 2 * hidden)) {
      const GgufTensor& fused = plan_.require(name("ffn_up.weight"), {dim, 2 * hidden});
      plan_.matrix_rows(w_.gate, fused, 0, hidden);
      plan_.matrix_rows(w_.up, fused, hidden, hidden);
    } else {
      plan_.matrix(w_.gate, plan_.require(name("ffn_gate.weight"), {dim, hidden}));
      plan_.matrix(w_.up, plan_.require(name("ffn_up.weight"), {dim, hidden}));
      plan_.optional_vector(w_.gate_bias, name("ffn_gate.bias"), hidden);
      plan_.optional_vector(w_.up_bias, name("ffn_up.bias"), hidden);
    }
    plan_.matrix(w_.down, plan_.require(name("ffn_down.weight"), {hidden, dim}));
    plan_.optional_vector(w_.down_bias, name("ffn_down.bias"), dim);
  }

  // Gate and up of each expert as two tensors, or as one with the rows of gate before those of up.
  void experts() {
    const ExpertConfig& e = config_.experts;
    const std::int64_t dim = config_.dim, hidden = e.hidden, count = e.count;
    refuse_experts_apart();
    plan_.matrix(w_.router, plan_.require(name("ffn_gate_inp.weight"), {dim, count}));
    if (const GgufTensor* const fused = plan_.find(name("ffn_gate_up_exps.weight"), {dim, 2 * hidden, count})) {
      plan_.expert_rows(w_.gate, *fused, 0, hidden);
      plan_.expert_rows(w_.up, *fused, hidden, hidden);
    } else {
      plan_.expert_rows(w_.gate, plan_.require(name("ffn_gate_exps.weight"), {dim, hidden, count}), 0, hidden);
      plan_.expert_rows(w_.up, plan_.require(name("ffn_up_exps.weight"), {dim, hidden, count}), 0, hidden);
    }
    plan_.expert_rows(w_.down, plan_.require(name("ffn_down_exps.weight"), {hidden, dim, count}), 0, dim);
    if (!e.router_bias) return;
    plan_.optional_vector(w_.router_bias, name("ffn_gate_inp.bias"), count);
    plan_.optional_vectors(w_.gate_bias, name("ffn_gate_exps.bias"), {hidden, count});
    plan_.optional_vectors(w_.up_bias, name("ffn_up_exps.bias"), {hidden, count});
    plan_.optional_vectors(w_.down_bias, name("ffn_down_exps.bias"), {dim, count});
  }

  void shared_expert() {
    const std::int64_t dim = config_.dim, hidden = config_.experts.shared_hidden;
    if (hidden == 0) return;
    plan_.matrix(w_.shared_gate, plan_.require(name("ffn_gate_shexp.weight"), {dim, hidden}));
    plan_.matrix(w_.shared_up, plan_.require(name("ffn_up_shexp.weight"), {dim, hidden}));
    plan_.matrix(w_.shared_down, plan_.require(name("ffn_down_shexp.weight"), {hidden, dim}));
  }

  // Files of before 2024-04 have a tensor for each expert.
  void refuse_experts_apart() const {
    if (!plan_.has(name("ffn_gate.0.weight"))) return;
    throw Error(
        ErrorKind::unsupported,
        fmt::format("{}: tensor '{}': a tensor for each expert is not supported, expected one for all of a layer: "
                    "convert the model again",
                    plan_.file().name(), name("ffn_gate.0.weight")));
  }

  LoadPlan& plan_;
  const ModelConfig& config_;
  const LayerConfig& layer_;
  LayerWeights& w_;
  std::string prefix_;
};

void refuse_split_files(const GgufFile& file) {
  const auto parts = file.unsigned_value("split.count").value_or(1);
  if (parts > 1) {
    throw Error(
        ErrorKind::unsupported,
        fmt::format("{}: part of a model split into {} files, which is not supported: merge them", file.name(), parts));
  }
}

void refuse_shapes(const GgufFile& file, const ModelConfig& config, const Device& device) {
  const auto* const limited = dynamic_cast<const LimitsShapes*>(&device);
  if (limited == nullptr) return;
  const ShapeLimits most = limited->shape_limits();
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: {}: this device can't compute it, the CPU can", file.name(), what));
  };
  const int length = config.head_dim_k;
  if (length > most.head_dim || length % most.head_dim_multiple != 0) {
    refuse(fmt::format("heads of length {}, expected a multiple of {} up to {}", length, most.head_dim_multiple,
                       most.head_dim));
  }
  for (const LayerConfig& layer : config.layer) {
    if (layer.rope.style == RopeStyle::none || layer.rope.n_rot <= most.rotated) continue;
    refuse(fmt::format("{} rotated elements of a head, expected at most {}", layer.rope.n_rot, most.rotated));
  }
  if (config.experts.used > most.experts_used) {
    refuse(fmt::format("{} experts for each row, expected at most {}", config.experts.used, most.experts_used));
  }
}

std::vector<float> rope_tensor(LoadPlan& plan, const GgufFile& file, const std::string& name, std::int64_t n) {
  const GgufTensor* const tensor = plan.find(name, {n});
  if (tensor == nullptr) return {};
  std::vector<float> factors = plan.host_vector(*tensor);
  if (!std::all_of(factors.begin(), factors.end(), [](float f) { return std::isfinite(f) && f > 0.0f; })) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("{}: tensor '{}': expected numbers above 0", file.name(), name));
  }
  return factors;
}

void warn_of_other_vocabulary(const GgufFile& file, const ModelConfig& config) {
  const std::string key = config.architecture + ".vocab_size";
  const auto declared = file.unsigned_value(key);
  if (!declared || std::cmp_equal(*declared, config.vocab)) return;
  log_warning("{}: key '{}' is {}, but the vocabulary has {} tokens", file.name(), key, *declared, config.vocab);
}

void warn_of_unused(const LoadPlan& plan, const GgufFile& file) {
  const auto unused = plan.unused();
  if (unused.empty()) return;
  log_warning("{}: tensors that the architecture doesn't use, ignored: {}, the first is {}", file.name(), unused.size(),
              printable(unused.front()));
}

// FNV-1a, 64 bits. The first bytes of each tensor tell apart what was trained or quantised differently.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) value_ = (value_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

std::uint64_t hash_of(const GgufFile& file) {
  constexpr std::size_t kSample = 64;
  Hash hash;
  for (const GgufTensor& tensor : file.tensors()) {
    hash.add(std::as_bytes(std::span(tensor.name)));
    hash.add(std::as_bytes(std::span(&tensor.type, 1)));
    hash.add(std::as_bytes(std::span(tensor.dims)));
    hash.add(tensor.data.first(std::min(kSample, tensor.data.size())));
  }
  return hash.value();
}

}  // namespace

std::unique_ptr<Model> Model::load(const std::filesystem::path& path, Device& device, const RopeOverrides& overrides,
                                   const std::function<void(double)>& progress) {
  return load(GgufFile::open(path), device, overrides, progress);
}

std::unique_ptr<Model> Model::load(GgufFile file, Device& device, const RopeOverrides& overrides,
                                   const std::function<void(double)>& progress) {
  refuse_split_files(file);
  std::unique_ptr<Model> model(new Model(std::move(file), device));
  model->config_ = read_config(model->file_, overrides);
  const ModelConfig& config = model->config_;
  refuse_shapes(model->file_, config, device);

  LoadPlan plan(model->file_);
  plan.matrix(model->token_embedding_, plan.require("token_embd.weight", {config.dim, config.vocab}));
  plan.vector(model->output_norm_, plan.require("output_norm.weight", {config.dim}));
  using OutputTensor = ModelConfig::OutputTensor;
  if (config.output_tensor == OutputTensor::required) {
    plan.matrix(model->output_, plan.require("output.weight", {config.dim, config.vocab}));
  } else if (config.output_tensor == OutputTensor::optional) {
    if (const GgufTensor* const output = plan.find("output.weight", {config.dim, config.vocab})) {
      plan.matrix(model->output_, *output);
    }
  }
  plan.optional_vector(model->output_bias_, "output.bias", config.vocab);
  const std::int64_t pairs = config.layer.front().rope.n_rot / 2;
  if (config.rope_freqs) model->rope_freqs_ = rope_tensor(plan, model->file_, "rope_freqs.weight", pairs);
  if (config.rope_long_factors) {
    model->rope_short_ = rope_tensor(plan, model->file_, "rope_factors_short.weight", pairs);
    model->rope_long_ = rope_tensor(plan, model->file_, "rope_factors_long.weight", pairs);
  }
  model->layers_.resize(config.layer.size());
  for (std::size_t i = 0; i < config.layer.size(); ++i) LayerPlan(plan, config, i, model->layers_[i]).declare();

  warn_of_other_vocabulary(model->file_, config);
  warn_of_unused(plan, model->file_);
  plan.load(device, progress);
  for (const GgufTensor& tensor : model->file_.tensors()) {
    model->parameters_ += tensor.row_length() * tensor.rows();
    model->tensor_bytes_ += static_cast<std::int64_t>(tensor.data.size());
  }
  model->fingerprint_ = fmt::format("{} {:016x}", config.architecture, hash_of(model->file_));
  return model;
}

const float* Model::rope_factors(std::int64_t sequence_context) const noexcept {
  const std::vector<float>& factors = !rope_freqs_.empty()                         ? rope_freqs_
                                      : sequence_context > config_.rope_n_ctx_orig ? rope_long_
                                                                                   : rope_short_;
  return factors.empty() ? nullptr : factors.data();
}

}  // namespace bankml
