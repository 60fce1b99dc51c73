// What slots have in common: the prompt of several answers, the context of a unified cache, the queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "bankml/engine/engine.hpp"
#include "support/engine_fixture.hpp"

namespace bankml {
namespace {

using test::Answer;
using test::EngineFixture;
using test::range;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

EngineOptions three_slots() {
  EngineOptions options = EngineFixture::default_options();
  options.slots = 3;
  options.context = 768;
  return options;
}

// Says the same ASCII letter again and again, so that every token is a piece of its own.
CompletionParams letters() {
  CompletionParams params = EngineFixture::default_params();
  params.sampling.logit_bias.emplace_back('a', 1000.0f);
  return params;
}

TEST(Copies, ComputeTheirPromptOnce) {
  EngineFixture fixture(three_slots());
  auto [ids, answers] = fixture.submit_copies(range(1, 50), 3);
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.result().timings.prompt_n, 50);
    EXPECT_EQ(answer.result().tokens, answers[0].result().tokens) << "greedy, so all are the same";
  }
  EXPECT_EQ(fixture.engine().metrics().prompt_tokens, 50u);
}

TEST(Copies, AnswerAsARequestAlone) {
  EngineFixture fixture(three_slots()), alone;
  auto [ids, answers] = fixture.submit_copies(range(1, 50), 2);
  EXPECT_EQ(answers[1].result().tokens, alone.ask(range(1, 50)).tokens);
}

// docs/prompt-cache.md, 7: the first takes the slot that a request alone would take, the others the lowest free ids.
TEST(Copies, TakeTheLowestFreeSlotsAndGiveThemBackEmpty) {
  EngineFixture fixture(three_slots());
  auto [ids, answers] = fixture.submit_copies(range(1, 50), 3);
  EXPECT_EQ(answers[0].result().id_slot, 2);
  EXPECT_EQ(answers[1].result().id_slot, 0);
  EXPECT_EQ(answers[2].result().id_slot, 1);
  const std::vector<SlotSnapshot> slots = fixture.engine().slots();
  EXPECT_EQ(slots[2].tokens, 53);
  EXPECT_EQ(slots[0].tokens, 0);
  EXPECT_EQ(slots[1].tokens, 0);
}

TEST(Copies, WaitUntilEnoughSlotsAreIdle) {
  CompletionParams longer = EngineFixture::default_params();
  longer.n_predict = 60;
  EngineFixture fixture(three_slots());
  auto [busy, running] = fixture.submit(range(100, 110), longer);
  running.wait_for_pieces(1);
  auto [ids, answers] = fixture.submit_copies(range(1, 50), 3);
  for (Answer& answer : answers) answer.wait();
  EXPECT_TRUE(running.done()) << "the three need the slot that was busy";
}

TEST(Copies, AreAllRefusedWithTheFirst) {
  EngineFixture fixture(three_slots());
  auto [ids, answers] = fixture.submit_copies(std::vector<TokenId>(300, 5), 2);
  for (Answer& answer : answers) EXPECT_EQ(answer.failure().kind, ErrorKind::context_overflow);
}

TEST(Copies, CancellingTheLastLeavesTheOthers) {
  CompletionParams longer = EngineFixture::default_params();
  longer.n_predict = 60;
  EngineFixture fixture(three_slots());
  auto [ids, answers] = fixture.submit_copies(range(1, 50), 2, longer);
  fixture.engine().cancel(ids[1]);
  answers[1].wait();
  EXPECT_EQ(answers[0].result().tokens.size(), 60u);
}

// A daemon without memory can't even make the event.
TEST(Copies, OneWhoseStartCannotBeToldLeavesTheOthers) {
  EngineFixture fixture(three_slots());
  std::vector<Answer> answers(3);
  Submission submission{range(1, 50), {}, {}};
  submission.params.assign(3, std::make_shared<const CompletionParams>(EngineFixture::default_params()));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    submission.sinks.push_back([i, inner = answers[i].sink()](JobEvent&& event) {
      if (i == 1 && std::holds_alternative<Started>(event)) throw std::bad_alloc();
      inner(std::move(event));
    });
  }
  std::vector<Submission> submissions;
  submissions.push_back(std::move(submission));
  fixture.engine().submit(std::move(submissions));
  EXPECT_EQ(answers[1].failure().kind, ErrorKind::out_of_memory);
  EXPECT_EQ(answers[0].result().tokens.size(), 4u);
  EXPECT_EQ(answers[2].result().tokens, answers[0].result().tokens);
}

// Which slots the next request finds least recently used depends on it.
TEST(Copies, GetTheirTokensInTheOrderOfTheSlots) {
  EngineFixture fixture(three_slots());
  std::vector<int> order;
  Submission submission{range(1, 50), {}, {}};
  std::promise<void> ended;
  for (int i = 0; i < 3; ++i) {
    submission.params.push_back(std::make_shared<const CompletionParams>(letters()));
    submission.sinks.push_back([&, i](JobEvent&& event) {
      if (std::holds_alternative<Piece>(event)) order.push_back(i);
      if (i == 0 && std::holds_alternative<Done>(event)) ended.set_value();
    });
  }
  std::vector<Submission> submissions;
  submissions.push_back(std::move(submission));
  fixture.engine().submit(std::move(submissions));
  ended.get_future().wait();
  // Slot 2 has the prompt, slots 0 and 1 the copies.
  EXPECT_THAT(order, ElementsAre(1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
}

// Whose token it was, in the order in which the pieces of one request's prompts came.
std::vector<int> order_of_pieces(EngineFixture& fixture, const std::vector<std::vector<TokenId>>& prompts) {
  std::vector<int> order;
  std::promise<void> ended;
  std::size_t running = prompts.size();
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Submission one{prompts[i], {}, {}};
    one.params.push_back(std::make_shared<const CompletionParams>(letters()));
    one.sinks.push_back([&, i](JobEvent&& event) {
      if (std::holds_alternative<Piece>(event)) order.push_back(static_cast<int>(i));
      if (std::holds_alternative<Done>(event) && --running == 0) ended.set_value();
    });
    submissions.push_back(std::move(one));
  }
  fixture.engine().submit(std::move(submissions));
  ended.get_future().wait();
  return order;
}

// The first takes slot 2, the second slot 1.
TEST(Submissions, OfOneRequestShareTheirSteps) {
  EngineFixture fixture(three_slots());
  EXPECT_THAT(order_of_pieces(fixture, {range(1, 20), range(101, 120)}), ElementsAre(1, 0, 1, 0, 1, 0, 1, 0));
}

// llama-server b11192 hands out tokens once a step: the short prompt's was known after the first forward pass.
TEST(Submissions, GetTheirTokensWhenAllPassesOfTheStepAreDone) {
  EngineOptions options = three_slots();
  options.ubatch = 16;
  EngineFixture fixture(options);
  EXPECT_THAT(order_of_pieces(fixture, {range(1, 5), range(101, 160)}), ElementsAre(1, 0, 1, 0, 1, 0, 1, 0));
}

// The logits of an earlier pass are those of its row, not of a later one.
TEST(Submissions, AnswerAsRequestsAlone) {
  EngineOptions options = three_slots();
  options.ubatch = 16;
  EngineFixture fixture(options), alone;
  std::vector<Submission> submissions;
  const std::vector<std::vector<TokenId>> prompts = {range(1, 5), range(101, 160), range(60, 90)};
  std::vector<Answer> answers(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto params = std::make_shared<const CompletionParams>(EngineFixture::default_params());
    submissions.push_back({prompts[i], {params}, {answers[i].sink()}});
  }
  fixture.engine().submit(std::move(submissions));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(answers[i].result().tokens, alone.ask(prompts[i]).tokens) << i;
  }
}

// docs/prompt-cache.md, 4.
TEST(Slots, WaitWithPromptsWhileOthersGenerateWithoutContinuousBatching) {
  EngineOptions options = three_slots();
  options.continuous_batching = false;
  CompletionParams longer = EngineFixture::default_params();
  longer.n_predict = 60;
  EngineFixture fixture(options);
  auto [first, running] = fixture.submit(range(100, 110), longer);
  running.wait_for_pieces(1);
  fixture.ask(range(1, 50));
  EXPECT_TRUE(running.done());
}

// --- which slot is used ---

// llama-server b11192 gives a slot to a request before it looks at the prompt's length.
TEST(Slots, AreUsedByPromptsThatAreTooLong) {
  EngineOptions options = three_slots();
  options.slots = 2;
  options.context = 512;
  EngineFixture fixture(options);
  EXPECT_EQ(fixture.ask(range(1, 20)).id_slot, 1);
  EXPECT_EQ(fixture.submit(std::vector<TokenId>(256, 130)).second.failure().kind, ErrorKind::context_overflow);
  EXPECT_EQ(fixture.ask(range(100, 120)).id_slot, 1) << "slot 0 was used last";
}

// As llama-server b11192 lists it.
TEST(Slots, HaveANextTokenUntilARunEndsByItself) {
  const auto refused = std::vector<TokenId>(256, 130);
  EngineFixture fixture;
  EXPECT_EQ(fixture.submit(refused).second.failure().kind, ErrorKind::context_overflow);
  EXPECT_TRUE(fixture.engine().slots()[0].has_next_token);
  fixture.ask(range(1, 20));
  EXPECT_FALSE(fixture.engine().slots()[0].has_next_token);
  EXPECT_EQ(fixture.submit(refused).second.failure().kind, ErrorKind::context_overflow);
  EXPECT_FALSE(fixture.engine().slots()[0].has_next_token);
}

// --- the context that slots of a unified cache share ---

TEST(SharedContext, MayHaveALimitForEachSlot) {
  EngineOptions options = EngineFixture::default_options();
  options.slots = 2;
  options.unified_kv = true;
  options.context_per_slot = 100;
  EngineFixture fixture(options);
  EXPECT_EQ(fixture.engine().slot_context(), 100);
  auto [id, refused] = fixture.submit(range(1, 100));
  EXPECT_EQ(refused.failure().context, 100);
}

TEST(UnifiedContext, FailsAllRunningRequestsWhenItIsFull) {
  EngineOptions shared = three_slots();
  shared.context = 256;
  shared.unified_kv = true;
  CompletionParams endless = EngineFixture::default_params();
  endless.n_predict = 200;
  EngineFixture fixture(shared);
  auto [a, first] = fixture.submit(range(1, 100), endless);
  auto [b, second] = fixture.submit(range(101, 200), endless);
  EXPECT_THAT(first.failure().message, HasSubstr("context size has been exceeded"));
  EXPECT_EQ(second.failure().kind, ErrorKind::internal);
  EXPECT_EQ(fixture.ask(range(1, 100)).tokens.size(), 4u) << "the daemon lives on";
}

TEST(UnifiedContext, DropsIdleSlotsForARunningOne) {
  EngineOptions shared = three_slots();
  shared.context = 256;
  shared.unified_kv = true;
  shared.cache_ram_mib = 0;  // otherwise idle slots are emptied anyway
  EngineFixture fixture(shared);
  fixture.ask(range(1, 120));
  EXPECT_EQ(fixture.ask(std::vector<TokenId>(200, 130)).tokens.size(), 4u);
  int held = 0;
  for (const SlotSnapshot& slot : fixture.engine().slots()) held += slot.tokens;
  EXPECT_EQ(held, 203);
}

// llama-server b11192 can't restore such a state: the slot is emptied, and the entry stays for later.
TEST(UnifiedContext, LeavesACachedStateWhereItIsWhileTheOthersHoldTooMuch) {
  EngineOptions shared = three_slots();
  shared.context = 256;
  shared.unified_kv = true;
  EngineFixture fixture(shared);
  fixture.ask(range(1, 120));                    // slot 2
  fixture.ask(std::vector<TokenId>(150, 130));   // slot 1; the first conversation goes to the cache
  const Done back = fixture.ask(range(1, 121));  // slot 0 has no room for 123 tokens beside 153
  EXPECT_EQ(back.timings.cache_n, 0);
  fixture.ask(std::vector<TokenId>(20, 140));
  EXPECT_GT(fixture.ask(range(1, 122)).timings.cache_n, 100);
}

TEST(SlotActions, AreRemovedFromTheQueueWhenTheyAreCancelled) {
  CompletionParams longer = EngineFixture::default_params();
  longer.n_predict = 100;
  EngineFixture fixture;
  auto [busy, running] = fixture.submit(range(1, 10), longer);
  running.wait_for_pieces(1);
  std::promise<bool> cancelled;
  const JobId id = fixture.engine().erase_slot(0, [&](std::variant<SlotActionResult, Failed>&& result) {
    cancelled.set_value(std::holds_alternative<Failed>(result) && std::get<Failed>(result).cancelled);
  });
  fixture.engine().cancel(id);
  EXPECT_TRUE(cancelled.get_future().get());
  EXPECT_EQ(running.result().tokens.size(), 100u);
}

}  // namespace
}  // namespace bankml
