// The forward pass over the recorded tiny model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bankml/base/error.hpp"
#include "bankml/model/model.hpp"

namespace bankml {
namespace {

constexpr int kContext = 256;

class TransformerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device(2);
  std::unique_ptr<Model> model = Model::load(BANKML_TEST_DATA "/tiny/tiny-llama-Q4_1.gguf", *device);
  KvPool pool{*device, model->config(), DType::f16, DType::f16, 0};
  Transformer transformer{*model, pool, {.max_rows = 64, .max_logit_rows = 4, .max_sequences = 2, .context = kContext}};

  // Rows of one sequence from `from` on; the last one wants logits.
  static std::vector<BatchRow> rows(std::initializer_list<TokenId> tokens, std::int32_t from, std::int32_t sequence) {
    std::vector<BatchRow> out;
    for (const TokenId token : tokens) {
      out.push_back({token, from + static_cast<std::int32_t>(out.size()), sequence, out.size() + 1 == tokens.size()});
    }
    return out;
  }
  std::vector<float> run(const std::vector<BatchRow>& batch, KvSequence& sequence) {
    KvSequence* const one[] = {&sequence};
    transformer.forward(batch, one);
    const auto logits = transformer.logits(0);
    return {logits.begin(), logits.end()};
  }
};

TEST_F(TransformerTest, RowsOfTwoSequencesInOneBatchDoNotSeeEachOther) {
  KvSequence alone_a, alone_b, a, b;
  const auto rows_a = rows({5, 9, 13, 2}, 0, 0), rows_b = rows({7, 30, 41}, 0, 0);
  const std::vector<float> logits_a = run(rows_a, alone_a), logits_b = run(rows_b, alone_b);
  auto both = rows_a;
  for (BatchRow row : rows_b) {
    row.sequence = 1;
    both.push_back(row);
  }
  KvSequence* const sequences[] = {&a, &b};
  transformer.forward(both, sequences);
  const auto together_a = transformer.logits(0), together_b = transformer.logits(1);
  EXPECT_TRUE(std::equal(logits_a.begin(), logits_a.end(), together_a.begin()));
  EXPECT_TRUE(std::equal(logits_b.begin(), logits_b.end(), together_b.begin()));
}

TEST_F(TransformerTest, ASharedPrefixGivesTheLogitsOfAnOwnOne) {
  KvSequence own;
  run(rows({5, 9, 13, 2, 8}, 0, 0), own);
  KvSequence shared = own;
  const std::vector<float> from_shared = run(rows({17, 18}, 5, 0), shared);
  const std::vector<float> from_own = run(rows({17, 18}, 5, 0), own);
  EXPECT_EQ(from_shared, from_own);
}

TEST_F(TransformerTest, RecomputesWhatWasCutOff) {
  KvSequence sequence;
  const std::vector<float> first = run(rows({5, 9, 13, 2}, 0, 0), sequence);
  run(rows({99, 98}, 4, 0), sequence);
  sequence.truncate(0);
  EXPECT_EQ(run(rows({5, 9, 13, 2}, 0, 0), sequence), first);
}

TEST_F(TransformerTest, DroppedPositionsAreNoLongerSeen) {
  KvSequence sequence;
  run(rows({5, 9, 13, 2, 8, 3, 4, 6}, 0, 0), sequence);
  const KvSequence::Run runs[] = {{0, 2, 0}, {6, 2, 2}};
  transformer.keep(sequence, runs);
  KvSequence poisoned = sequence;
  const std::vector<float> clean = run(rows({17}, 4, 0), sequence);
  // Cells 2 to 5 were dropped; the next token takes 2. What stands in the others must not matter.
  const std::vector<float> again = [&] {
    poisoned.extend(5, pool, transformer.stream());
    const KvLayout& kv = pool.layout(0);
    half* v = reinterpret_cast<half*>(poisoned.part(KvPart::full).blocks()[0].data() + kv.v_offset);
    for (int cell = 3; cell <= 5; ++cell) v[cell * kv.head_dim_v] = to_half(1000.0f);
    poisoned.truncate(4);
    return run(rows({17}, 4, 0), poisoned);
  }();
  EXPECT_EQ(clean, again);
}

// In the first layer a key depends on its token and position only. One rounding to half more than a fresh one.
TEST_F(TransformerTest, AMovedKeyIsTheKeyOfItsNewPosition) {
  constexpr float kTwoRoundings = 2e-3f;
  KvSequence moved, fresh;
  run(rows({5, 9, 13, 2, 8, 3, 4, 6}, 0, 0), moved);
  const KvSequence::Run runs[] = {{0, 2, 0}, {6, 2, 2}};
  transformer.keep(moved, runs);
  run(rows({5, 9, 4, 6}, 0, 0), fresh);
  const KvLayout& kv = pool.layout(0);
  for (std::int64_t position = 0; position < 4; ++position) {
    const auto key = [&](const KvSequence& sequence) {
      return reinterpret_cast<const half*>(sequence.part(KvPart::full).blocks()[0].data() + kv.k_offset) +
             sequence.part(KvPart::full).cell_of(position) * kv.head_dim_k;
    };
    for (int d = 0; d < kv.head_dim_k; ++d) {
      const float expected = to_float(key(fresh)[d]);
      EXPECT_NEAR(to_float(key(moved)[d]), expected, kTwoRoundings * std::max(1.0f, std::abs(expected)))
          << "position " << position << ", element " << d;
    }
  }
}

TEST_F(TransformerTest, LeavesTheSequencesAsTheyWereWhenMemoryIsShort) {
  KvPool small(*device, model->config(), DType::f16, DType::f16, 1);
  Transformer limited(*model, small, {.max_rows = 64, .max_logit_rows = 1, .max_sequences = 1, .context = kContext});
  KvSequence sequence;
  KvSequence* const one[] = {&sequence};
  std::vector<BatchRow> many;
  for (int i = 0; i < 64; ++i) many.push_back({1 + i, i, 0, i == 63});
  limited.forward(many, one);
  const BatchRow next{3, 64, 0, true};
  EXPECT_THROW(limited.forward({&next, 1}, one), Error);
  EXPECT_EQ(sequence.length(), 64);
}

}  // namespace
}  // namespace bankml
