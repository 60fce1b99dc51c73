#pragma once
// A random model with llama's tensors, or those of mixtures of experts, small enough to be made anew in each test.
#include <cstdint>
#include <string>

#include "support/gguf_builder.hpp"

namespace bankml::test {

struct TinyModelOptions {
  int layers = 2, dim = 64, heads = 4, kv_heads = 2, head_dim = 16, hidden = 96, context = 256;
  bool tied = false;       // no output tensor
  bool fused_qkv = false;  // one attn_qkv tensor with the rows that q, k and v would have
  bool biases = false;     // q, k, v, attention output and the feed-forward part, router and experts included
  int experts = 0, experts_used = 2;  // 0: a dense feed-forward part; otherwise each expert is `hidden` wide
  int shared_hidden = 0;              // width of the expert of every row
  bool fused_experts = false;         // one ffn_gate_up_exps tensor
  bool qk_norm = false, sinks = false;
  bool q8_0 = false;  // matrices of this type, but for the router's; their rows are multiples of 32 long
  std::string ffn_norm = "ffn_norm";  // name of the tensor
  std::uint32_t seed = 1;  // of the weights: F32 unless said otherwise, uniform, scaled so that activations stay near 1
  std::string architecture = "llama";  // and prefix of the keys
};

// Vocabulary: the 256 byte tokens of byte-level BPE, then <s> (256) and </s> (257).
inline constexpr int kTinyVocab = 258;

// The parts can still be changed; build() gives the file.
GgufBuilder tiny_model(const TinyModelOptions& options = {});

}  // namespace bankml::test
