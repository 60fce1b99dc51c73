#include "support/tiny_model.hpp"

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bankml/base/numeric.hpp"

namespace bankml::test {
namespace {

constexpr std::int32_t kQ8Type = 8;  // Q8_0 in a file

class RandomTensors {
 public:
  RandomTensors(GgufBuilder& out, std::uint32_t seed, bool q8_0) : out_(out), engine_(seed), q8_0_(q8_0) {}

  void matrix(const std::string& name, int cols, int rows) { weights(name, {cols, rows}, cols * rows); }
  void matrices(const std::string& name, int cols, int rows, int experts) {
    weights(name, {cols, rows, experts}, cols * rows * experts);
  }
  void router(const std::string& name, int cols, int experts) {
    out_.f32_tensor(name, {cols, experts}, values(cols * experts, 0.0f, limit_of(cols)));
  }
  void biases(const std::string& name, int n, int experts) {
    out_.f32_tensor(name, {n, experts}, values(n * experts, 0.0f, 0.25f));
  }
  void norm(const std::string& name, int n) { out_.f32_tensor(name, {n}, values(n, 1.0f, 0.25f)); }
  void bias(const std::string& name, int n) { out_.f32_tensor(name, {n}, values(n, 0.0f, 0.25f)); }

 private:
  static float limit_of(std::int64_t cols) { return std::sqrt(3.0f / static_cast<float>(cols)); }

  void weights(const std::string& name, std::vector<std::int64_t> dims, int n) {
    const float limit = limit_of(dims[0]);
    if (!q8_0_) return void(out_.f32_tensor(name, std::move(dims), values(n, 0.0f, limit)));
    constexpr int kLargest = 127;
    Bytes blocks;
    for (int i = 0; i < n; ++i) {
      if (i % 32 == 0) blocks.number(to_half(limit / kLargest).bits);
      blocks.number(static_cast<std::int8_t>(static_cast<int>((engine_() >> 8) % (2 * kLargest + 1)) - kLargest));
    }
    out_.tensor(name, std::move(dims), kQ8Type, blocks.data());
  }

  // Written out so that every standard library gives the same numbers.
  std::vector<float> values(int n, float middle, float limit) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& v : out) v = middle + limit * (static_cast<float>(engine_() >> 8) * 0x1p-23f - 1.0f);
    return out;
  }

  GgufBuilder& out_;
  std::mt19937 engine_;
  bool q8_0_;
};

// Code point of a byte in the byte alphabet (docs/tokenizers.md, 3.1), as UTF-8.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int code = itself ? byte : next++;
    if (code < 0x80) {
      tokens.emplace_back(1, static_cast<char>(code));
    } else {
      tokens.push_back({static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))});
    }
  }
  return tokens;
}

void add_vocabulary(GgufBuilder& out) {
  constexpr std::int32_t kNormal = 1, kControl = 3;
  std::vector<std::string> tokens = byte_tokens();
  tokens.insert(tokens.end(), {"<s>", "</s>"});
  std::vector<std::int32_t> types(256, kNormal);
  types.insert(types.end(), {kControl, kControl});
  out.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  out.strings("tokenizer.ggml.tokens", tokens).i32s("tokenizer.ggml.token_type", types);
  out.strings("tokenizer.ggml.merges", {});
  out.u32("tokenizer.ggml.bos_token_id", 256).u32("tokenizer.ggml.eos_token_id", 257);
}

void add_experts(RandomTensors& tensors, const TinyModelOptions& o, const std::string& prefix) {
  tensors.router(prefix + "ffn_gate_inp.weight", o.dim, o.experts);
  if (o.fused_experts) {
    tensors.matrices(prefix + "ffn_gate_up_exps.weight", o.dim, 2 * o.hidden, o.experts);
  } else {
    tensors.matrices(prefix + "ffn_gate_exps.weight", o.dim, o.hidden, o.experts);
    tensors.matrices(prefix + "ffn_up_exps.weight", o.dim, o.hidden, o.experts);
  }
  tensors.matrices(prefix + "ffn_down_exps.weight", o.hidden, o.dim, o.experts);
  if (o.shared_hidden > 0) {
    tensors.matrix(prefix + "ffn_gate_shexp.weight", o.dim, o.shared_hidden);
    tensors.matrix(prefix + "ffn_up_shexp.weight", o.dim, o.shared_hidden);
    tensors.matrix(prefix + "ffn_down_shexp.weight", o.shared_hidden, o.dim);
  }
  if (o.biases) {
    tensors.bias(prefix + "ffn_gate_inp.bias", o.experts);
    tensors.biases(prefix + "ffn_gate_exps.bias", o.hidden, o.experts);
    tensors.biases(prefix + "ffn_up_exps.bias", o.hidden, o.experts);
    tensors.biases(prefix + "ffn_down_exps.bias", o.dim, o.experts);
  }
}

void add_feed_forward(RandomTensors& tensors, const TinyModelOptions& o, const std::string& prefix) {
  tensors.matrix(prefix + "ffn_gate.weight", o.dim, o.hidden);
  tensors.matrix(prefix + "ffn_up.weight", o.dim, o.hidden);
  tensors.matrix(prefix + "ffn_down.weight", o.hidden, o.dim);
  if (o.biases) {
    tensors.bias(prefix + "ffn_gate.bias", o.hidden);
    tensors.bias(prefix + "ffn_up.bias", o.hidden);
    tensors.bias(prefix + "ffn_down.bias", o.dim);
  }
}

void add_layer(RandomTensors& tensors, const TinyModelOptions& o, const std::string& prefix) {
  const int q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  tensors.norm(prefix + "attn_norm.weight", o.dim);
  if (o.fused_qkv) {
    tensors.matrix(prefix + "attn_qkv.weight", o.dim, q + 2 * kv);
    if (o.biases) tensors.bias(prefix + "attn_qkv.bias", q + 2 * kv);
  } else {
    tensors.matrix(prefix + "attn_q.weight", o.dim, q);
    tensors.matrix(prefix + "attn_k.weight", o.dim, kv);
    tensors.matrix(prefix + "attn_v.weight", o.dim, kv);
    if (o.biases) {
      tensors.bias(prefix + "attn_q.bias", q);
      tensors.bias(prefix + "attn_k.bias", kv);
      tensors.bias(prefix + "attn_v.bias", kv);
    }
  }
  tensors.matrix(prefix + "attn_output.weight", q, o.dim);
  tensors.norm(prefix + o.ffn_norm + ".weight", o.dim);
  if (o.biases) tensors.bias(prefix + "attn_output.bias", o.dim);
  if (o.qk_norm) {
    tensors.norm(prefix + "attn_q_norm.weight", o.head_dim);
    tensors.norm(prefix + "attn_k_norm.weight", o.head_dim);
  }
  if (o.sinks) tensors.bias(prefix + "attn_sinks.weight", o.heads);
  if (o.experts > 0) {
    add_experts(tensors, o, prefix);
  } else {
    add_feed_forward(tensors, o, prefix);
  }
}

}  // namespace

GgufBuilder tiny_model(const TinyModelOptions& o) {
  const auto u32 = [](int value) { return static_cast<std::uint32_t>(value); };
  const auto key = [&](const char* name) { return o.architecture + "." + name; };
  GgufBuilder out;
  out.string("general.architecture", o.architecture).string("general.name", "tiny").u32("general.file_type", 0);
  out.u32(key("context_length"), u32(o.context)).u32(key("embedding_length"), u32(o.dim));
  out.u32(key("block_count"), u32(o.layers)).u32(key("feed_forward_length"), u32(o.hidden));
  out.u32(key("attention.head_count"), u32(o.heads)).u32(key("attention.head_count_kv"), u32(o.kv_heads));
  out.u32(key("attention.key_length"), u32(o.head_dim)).u32(key("attention.value_length"), u32(o.head_dim));
  out.f32(key("attention.layer_norm_rms_epsilon"), 1e-5f).u32(key("rope.dimension_count"), u32(o.head_dim));
  if (o.experts > 0) out.u32(key("expert_count"), u32(o.experts)).u32(key("expert_used_count"), u32(o.experts_used));
  if (o.shared_hidden > 0) out.u32(key("expert_shared_feed_forward_length"), u32(o.shared_hidden));
  add_vocabulary(out);

  RandomTensors tensors(out, o.seed, o.q8_0);
  tensors.matrix("token_embd.weight", o.dim, kTinyVocab);
  for (int i = 0; i < o.layers; ++i) add_layer(tensors, o, "blk." + std::to_string(i) + ".");
  tensors.norm("output_norm.weight", o.dim);
  if (!o.tied) tensors.matrix("output.weight", o.dim, kTinyVocab);
  return out;
}

}  // namespace bankml::test
