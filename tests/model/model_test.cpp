#include "bankml/model/model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "support/expect_error.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::expect_error;
using test::GgufBuilder;
using test::tiny_model;
using testing::ElementsAreArray;

class CopiedWeight : public Weight {
 public:
  CopiedWeight(DType type, int experts, std::int64_t rows, std::int64_t cols, const std::byte* data, std::size_t stride)
      : Weight(type, rows, cols, experts) {
    for (int e = 0; e < experts; ++e, data += stride) {
      bytes.insert(bytes.end(), data, data + static_cast<std::size_t>(rows) * row_bytes(type, cols));
    }
  }
  bool uses_source() const noexcept override { return false; }
  std::size_t device_bytes() const noexcept override { return bytes.size(); }
  std::vector<std::byte> bytes;
};

class ImmediateStream : public Stream {
 public:
  void copy_to_device(void* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void record(Event&) override {}
  void wait(const Event&) override {}
  void synchronize() override {}
};

// Keeps what it is given; computes nothing.
class MemoryDevice : public Device {
 public:
  std::string description() const override { return "memory"; }
  bool shares_host_memory() const noexcept override { return true; }
  Buffer allocate(std::size_t bytes) override {
    ++allocations;
    return Buffer(
        ::operator new(bytes), bytes, [](void* data, std::size_t, void*) { ::operator delete(data); }, nullptr);
  }
  Buffer allocate_host(std::size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
  std::unique_ptr<Event> make_event() override { throw std::logic_error("no events"); }
  std::unique_ptr<Weight> load_weight(DType type, std::int64_t rows, std::int64_t cols,
                                      const std::byte* data) override {
    return load_experts(type, 1, rows, cols, data, static_cast<std::size_t>(rows) * row_bytes(type, cols));
  }
  std::unique_ptr<Weight> load_experts(DType type, int experts, std::int64_t rows, std::int64_t cols,
                                       const std::byte* data, std::size_t stride) override {
    ++allocations;
    return std::make_unique<CopiedWeight>(type, experts, rows, cols, data, stride);
  }
  std::unique_ptr<Activation> make_activation(std::int64_t, std::int64_t, ActFormats) override {
    throw std::logic_error("no activations");
  }
  std::unique_ptr<ExpertChoice> make_expert_choice(int, int, int) override { throw std::logic_error("no experts"); }
  Ops& ops() noexcept override { std::abort(); }
  int allocations = 0;
};

std::vector<float> floats_of(const Buffer& buffer) {
  return {buffer.as<float>(), buffer.as<float>() + buffer.bytes() / sizeof(float)};
}
std::vector<float> floats_of(const Weight& weight) {
  const auto& bytes = static_cast<const CopiedWeight&>(weight).bytes;
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
std::vector<float> floats_of(const GgufTensor& tensor) {
  std::vector<float> out(tensor.data.size() / sizeof(float));
  std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
  return out;
}

class ModelLoad : public testing::Test {
 protected:
  std::unique_ptr<Model> load(const GgufBuilder& builder) {
    bytes_ = builder.build();
    return Model::load(GgufFile::parse(bytes_, "test.gguf"), device_);
  }
  void expect_refused(const GgufBuilder& builder, std::string_view part, ErrorKind kind = ErrorKind::invalid_request) {
    expect_error(kind, part, [&] { load(builder); });
    EXPECT_EQ(device_.allocations, 0) << "memory was taken for a file that can't run";
  }
  static std::vector<float> tensor(const Model& model, const char* name) {
    return floats_of(*model.file().find_tensor(name));
  }
  MemoryDevice device_;
  std::vector<std::byte> bytes_;
};

TEST_F(ModelLoad, PutsEachTensorInItsPlace) {
  const auto model = load(tiny_model({.biases = true}));
  ASSERT_EQ(model->layers().size(), 2u);
  const LayerWeights& w = model->layers()[1];
  const auto expect = [&](const auto& loaded, const char* name) {
    EXPECT_EQ(floats_of(loaded), tensor(*model, name)) << name;
  };
  expect(model->token_embedding(), "token_embd.weight");
  expect(model->output(), "output.weight");
  expect(*w.q, "blk.1.attn_q.weight");
  expect(*w.k, "blk.1.attn_k.weight");
  expect(*w.v, "blk.1.attn_v.weight");
  expect(*w.output, "blk.1.attn_output.weight");
  expect(*w.gate, "blk.1.ffn_gate.weight");
  expect(*w.up, "blk.1.ffn_up.weight");
  expect(*w.down, "blk.1.ffn_down.weight");
  expect(w.attn_norm, "blk.1.attn_norm.weight");
  expect(w.ffn_norm, "blk.1.ffn_norm.weight");
  expect(w.q_bias, "blk.1.attn_q.bias");
  expect(w.k_bias, "blk.1.attn_k.bias");
  expect(w.v_bias, "blk.1.attn_v.bias");
  expect(w.output_bias, "blk.1.attn_output.bias");
  expect(w.gate_bias, "blk.1.ffn_gate.bias");
  expect(w.up_bias, "blk.1.ffn_up.bias");
  expect(w.down_bias, "blk.1.ffn_down.bias");
  EXPECT_EQ(model->output_norm()[63], tensor(*model, "output_norm.weight")[63]);
  EXPECT_EQ(w.down->rows(), 64);
  EXPECT_EQ(w.down->cols(), 96);
}

TEST_F(ModelLoad, LeavesOutWhatTheFileDoesNotHave) {
  const auto model = load(tiny_model());
  const LayerWeights& w = model->layers()[0];
  EXPECT_FALSE(w.q_bias);
  EXPECT_FALSE(w.down_bias);
  EXPECT_FALSE(w.q_norm);
  EXPECT_FALSE(w.post_ffw_norm);
  EXPECT_EQ(model->output_bias(), nullptr);
  EXPECT_EQ(model->rope_factors(1), nullptr);
}

TEST_F(ModelLoad, UsesTheEmbeddingAsOutputWhereThereIsNone) {
  const auto model = load(tiny_model({.tied = true}));
  EXPECT_EQ(&model->output(), &model->token_embedding());
}

TEST_F(ModelLoad, SplitsFusedProjectionsIntoRows) {
  const auto model = load(tiny_model({.fused_qkv = true, .biases = true}));
  const LayerWeights& w = model->layers()[0];
  const auto fused = tensor(*model, "blk.0.attn_qkv.weight");  // 64 rows of Q, 32 of K, 32 of V, each of 64
  const auto bias = tensor(*model, "blk.0.attn_qkv.bias");
  EXPECT_THAT(floats_of(*w.q), ElementsAreArray(fused.begin(), fused.begin() + 64 * 64));
  EXPECT_THAT(floats_of(*w.k), ElementsAreArray(fused.begin() + 64 * 64, fused.begin() + 96 * 64));
  EXPECT_THAT(floats_of(*w.v), ElementsAreArray(fused.begin() + 96 * 64, fused.end()));
  EXPECT_THAT(floats_of(w.q_bias), ElementsAreArray(bias.begin(), bias.begin() + 64));
  EXPECT_THAT(floats_of(w.k_bias), ElementsAreArray(bias.begin() + 64, bias.begin() + 96));
  EXPECT_THAT(floats_of(w.v_bias), ElementsAreArray(bias.begin() + 96, bias.end()));
}

TEST_F(ModelLoad, SplitsFusedGateAndUp) {
  GgufBuilder builder = tiny_model({.layers = 1});
  builder.remove_tensor("blk.0.ffn_gate.weight").remove_tensor("blk.0.ffn_up.weight");
  std::vector<float> values(64 * 192);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto model = load(builder.f32_tensor("blk.0.ffn_up.weight", {64, 192}, values));
  EXPECT_THAT(floats_of(*model->layers()[0].gate), ElementsAreArray(values.begin(), values.begin() + 64 * 96));
  EXPECT_THAT(floats_of(*model->layers()[0].up), ElementsAreArray(values.begin() + 64 * 96, values.end()));
}

TEST_F(ModelLoad, WidensNormsInF16) {
  constexpr std::int32_t kF16 = 1;
  GgufBuilder builder = tiny_model();
  test::Bytes halves;
  for (int i = 0; i < 64; ++i) halves.number(static_cast<std::uint16_t>(i % 2 == 0 ? 0x3c00 : 0xc100));  // 1, -2.5
  builder.remove_tensor("output_norm.weight").tensor("output_norm.weight", {64}, kF16, halves.data());
  const auto model = load(builder);
  EXPECT_EQ(model->output_norm()[0], 1.0f);
  EXPECT_EQ(model->output_norm()[63], -2.5f);
}

TEST_F(ModelLoad, RefusesQuantisedNorms) {
  constexpr std::int32_t kQ8 = 8;
  GgufBuilder builder = tiny_model();
  builder.remove_tensor("output_norm.weight").tensor("output_norm.weight", {64}, kQ8, std::vector<std::byte>(68));
  expect_refused(builder, "tensor 'output_norm.weight': expected type F32, found Q8_0", ErrorKind::unsupported);
}

TEST_F(ModelLoad, NamesAMissingTensorAndItsShape) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.1.attn_q.weight",
        "blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight", "blk.1.ffn_norm.weight",
        "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    expect_refused(tiny_model().remove_tensor(name), std::string("tensor '") + name + "' of shape [");
  }
}

TEST_F(ModelLoad, NamesATensorOfAnotherShape) {
  const auto reshaped = [](const char* name, std::vector<std::int64_t> dims, std::size_t n) {
    return tiny_model().remove_tensor(name).f32_tensor(name, std::move(dims), std::vector<float>(n));
  };
  expect_refused(reshaped("blk.0.attn_k.weight", {32, 64}, 2048),
                 "tensor 'blk.0.attn_k.weight': expected shape [64, 32], found [32, 64]");
  expect_refused(reshaped("blk.0.attn_k.weight", {64, 32, 2}, 4096), "expected shape [64, 32], found [64, 32, 2]");
  expect_refused(reshaped("token_embd.weight", {64, 257}, 64 * 257), "expected shape [64, 258], found [64, 257]");
  expect_refused(reshaped("output_norm.weight", {1}, 1), "expected shape [64], found [1]");
}

TEST_F(ModelLoad, TakesTrailingDimensionsOfOne) {
  GgufBuilder builder = tiny_model();
  builder.remove_tensor("output_norm.weight")
      .f32_tensor("output_norm.weight", {64, 1, 1}, std::vector<float>(64, 1.0f));
  EXPECT_NE(load(builder), nullptr);
}

TEST_F(ModelLoad, IgnoresTensorsThatItDoesNotUse) {
  const auto model = load(tiny_model().f32_tensor("blk.0.rope_freqs.weight", {8}, std::vector<float>(8, 1.0f)));
  EXPECT_EQ(model->rope_factors(1), nullptr);
}

TEST_F(ModelLoad, GivesTheRopeFactorsOfTheFile) {
  const std::vector<float> factors{1, 1, 2, 2, 4, 4, 8, 8};
  const auto model = load(tiny_model().f32_tensor("rope_freqs.weight", {8}, factors));
  ASSERT_NE(model->rope_factors(1), nullptr);
  EXPECT_EQ(std::vector(model->rope_factors(1), model->rope_factors(1) + 8), factors);
}

TEST_F(ModelLoad, ChoosesLongRopeFactorsByTheContextOfASequence) {
  GgufBuilder builder = tiny_model();
  builder.string("llama.rope.scaling.type", "longrope").u32("llama.rope.scaling.original_context_length", 100);
  builder.f32_tensor("rope_factors_short.weight", {8}, std::vector<float>(8, 1.5f));
  builder.f32_tensor("rope_factors_long.weight", {8}, std::vector<float>(8, 3.0f));
  const auto model = load(builder);
  EXPECT_EQ(model->rope_factors(100)[0], 1.5f);
  EXPECT_EQ(model->rope_factors(101)[0], 3.0f);
  const auto shared = load(builder.f32_tensor("rope_freqs.weight", {8}, std::vector<float>(8, 2.0f)));
  EXPECT_EQ(shared->rope_factors(100)[0], 2.0f);
  EXPECT_EQ(shared->rope_factors(101)[0], 2.0f);
}

TEST_F(ModelLoad, RefusesRopeFactorsThatAreNotAboveZero) {
  expect_refused(tiny_model().f32_tensor("rope_freqs.weight", {8}, {1, 1, 1, 1, 0, 1, 1, 1}),
                 "tensor 'rope_freqs.weight': expected numbers above 0");
}

TEST_F(ModelLoad, RefusesOnePartOfASplitModel) {
  expect_refused(tiny_model().u32("split.count", 2), "split into 2 files", ErrorKind::unsupported);
}

TEST_F(ModelLoad, ReportsProgressUpToOne) {
  const test::TemporaryFile file(tiny_model().build());
  std::vector<double> fractions;
  Model::load(file.path(), device_, {}, [&](double done) { fractions.push_back(done); });
  ASSERT_FALSE(fractions.empty());
  EXPECT_GT(fractions.front(), 0.0);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.back(), 1.0);
}

// Recorded from llama-server b11192, /v1/models: n_params and size.
TEST_F(ModelLoad, CountsParametersAndBytesLikeThePeer) {
  const auto model = Model::load(std::filesystem::path(BANKML_TEST_DATA) / "tiny" / "tiny-llama-2-Q8_0.gguf", device_);
  EXPECT_EQ(model->parameters(), 270976);
  EXPECT_EQ(model->tensor_bytes(), 289792);
}

TEST_F(ModelLoad, LoadsAllTinyFiles) {
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(BANKML_TEST_DATA) / "tiny")) {
    EXPECT_NO_THROW(Model::load(entry.path(), device_)) << entry.path();
  }
}

TEST_F(ModelLoad, LoadsSmolLM2) {
  const char* const models = std::getenv("BANKML_MODELS");
  if (models == nullptr) GTEST_SKIP() << "BANKML_MODELS names no folder with SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto model = Model::load(std::filesystem::path(models) / "SmolLM2-135M-Instruct.Q4_1.gguf", device_);
  EXPECT_EQ(model->layers().size(), 30u);
  EXPECT_EQ(model->layers()[29].q->type(), DType::q4_1);
  EXPECT_EQ(model->output().type(), DType::q8_0);
  EXPECT_EQ(&model->output(), &model->token_embedding());
  EXPECT_EQ(model->parameters(), 134515008);
}

}  // namespace
}  // namespace bankml
