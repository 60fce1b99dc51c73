#include "bankml/engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>

#include "support/engine_fixture.hpp"

namespace bankml {
namespace {

using test::Answer;
using test::EngineFixture;
using test::range;
using test::operator+;
using ::testing::ElementsAre;

CompletionParams params() {
  return EngineFixture::default_params();
}

TEST(Engine, AnswersTheSameTokensEachTime) {
  EngineFixture fixture;
  const Done first = fixture.ask(range(1, 20));
  CompletionParams afresh = params();
  afresh.cache_prompt = false;
  const Done second = fixture.ask(range(1, 20), afresh);
  EXPECT_EQ(first.tokens.size(), 4u);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(second.timings.cache_n, 0);
  EXPECT_EQ(second.timings.prompt_n, 20);
}

TEST(Engine, ReusesAllButTheLastTokenOfTheSamePrompt) {
  EngineFixture fixture;
  fixture.ask(range(1, 8));
  const Done again = fixture.ask(range(1, 8));
  EXPECT_EQ(again.timings.cache_n, 7);
  EXPECT_EQ(again.timings.prompt_n, 1);
}

TEST(Engine, ComputesAOneTokenPromptAnew) {
  EngineFixture fixture;
  fixture.ask(range(1, 4));
  const Done one = fixture.ask({1});
  EXPECT_EQ(one.timings.cache_n, 0);
  EXPECT_EQ(one.timings.prompt_n, 1);
}

// docs/prompt-cache.md, 8.5, without a limit that acts.
TEST(Engine, InterleavedConversationsFindTheirPrefixAgain) {
  EngineFixture fixture;
  const auto opening = [](TokenId own) { return range(1, 2) + range(own, own + 9); };
  const auto next = [](const std::vector<TokenId>& prompt, const Done& answer, TokenId from) {
    return prompt + answer.tokens + range(from, from + 4);
  };
  const auto counts = [](const Done& done) { return std::pair(done.timings.cache_n, done.timings.prompt_n); };
  const auto a1 = opening(20), b1 = opening(40), c1 = opening(60);
  const Done to_a1 = fixture.ask(a1);
  EXPECT_EQ(counts(to_a1), std::pair(0, 12));
  const Done to_b1 = fixture.ask(b1);
  EXPECT_EQ(counts(to_b1), std::pair(2, 10));
  EXPECT_EQ(counts(fixture.ask(c1)), std::pair(2, 10));
  const auto a2 = next(a1, to_a1, 80);
  const Done to_a2 = fixture.ask(a2);
  EXPECT_EQ(counts(to_a2), std::pair(15, 6));
  EXPECT_EQ(counts(fixture.ask(next(b1, to_b1, 90))), std::pair(15, 6));
  EXPECT_EQ(counts(fixture.ask(a2)), std::pair(20, 1));
  EXPECT_EQ(counts(fixture.ask(next(a2, to_a2, 100))), std::pair(24, 6));
  EXPECT_EQ(fixture.engine().metrics().cache_entries, 2u);
}

// The returning conversation's keys and values are those that it left: the same batches give the same answer.
TEST(Engine, AReturningConversationGetsTheAnswerItWouldHaveHadWithoutTheOthers) {
  CompletionParams with_probabilities = params();
  with_probabilities.n_probs = 5;
  with_probabilities.n_predict = 12;
  const auto last_turn = [&](bool interleaved) {
    EngineFixture fixture;
    const auto a1 = range(1, 70);
    const Done first = fixture.ask(a1);
    if (interleaved) {
      fixture.ask(range(1, 30) + range(150, 250));
      fixture.ask(range(100, 180));
    }
    return fixture.ask(a1 + first.tokens + range(200, 205), with_probabilities);
  };
  const Done alone = last_turn(false), interleaved = last_turn(true);
  EXPECT_EQ(alone.timings.cache_n, 73);
  EXPECT_EQ(interleaved.timings.cache_n, 73);
  EXPECT_EQ(alone.tokens, interleaved.tokens);
  ASSERT_EQ(alone.probabilities.size(), interleaved.probabilities.size());
  for (std::size_t i = 0; i < alone.probabilities.size(); ++i) {
    EXPECT_EQ(alone.probabilities[i].p, interleaved.probabilities[i].p) << "token " << i;
  }
}

TEST(Engine, KeepsTheSlotWhenARequestIsRefusedForItsSize) {
  EngineFixture fixture;
  fixture.ask(range(1, 20));
  auto [id, answer] = fixture.submit(std::vector<TokenId>(256, 7));
  const Failed& failed = answer.failure();
  EXPECT_EQ(failed.kind, ErrorKind::context_overflow);
  EXPECT_EQ(failed.prompt_tokens, 256);
  EXPECT_EQ(failed.context, 256);
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.cache_n, 19);
}

TEST(Engine, StopsWhenTheContextIsFull) {
  EngineFixture fixture;
  CompletionParams unlimited = params();
  unlimited.n_predict = 100000;
  const Done done = fixture.ask(range(1, 8), unlimited);
  EXPECT_EQ(done.stop, StopType::limit);
  EXPECT_TRUE(done.truncated);
  EXPECT_EQ(done.timings.predicted_n, 248);
  EXPECT_EQ(done.slot_tokens, 255);
}

TEST(Engine, GivesOneTokenForTheLongestPromptThatFits) {
  EngineFixture fixture;
  const Done done = fixture.ask(std::vector<TokenId>(255, 7));
  EXPECT_EQ(done.timings.predicted_n, 1);
  EXPECT_TRUE(done.truncated);
  EXPECT_EQ(done.slot_tokens, 255);
}

TEST(Engine, ShiftsTheContextWhenAskedTo) {
  EngineOptions options = EngineFixture::default_options();
  options.context_shift = true;
  EngineFixture fixture(options);
  CompletionParams long_answer = params();
  long_answer.n_predict = 96;
  const Done done = fixture.ask(std::vector<TokenId>(226, 7), long_answer);
  EXPECT_EQ(done.stop, StopType::limit);
  EXPECT_TRUE(done.truncated);
  EXPECT_EQ(done.timings.predicted_n, 96);
  // 255 held when the shift falls due, nothing kept: 127 are dropped.
  EXPECT_EQ(done.slot_tokens, 226 + 95 - 127);
}

TEST(Engine, MovesLaterRunsOfEqualTokensWhenAskedTo) {
  EngineFixture fixture;
  CompletionParams short_answer = params();
  short_answer.n_predict = 1;
  fixture.ask({1, 2, 9, 9, 3, 4, 5, 6}, short_answer);
  CompletionParams reuse = short_answer;
  reuse.n_cache_reuse = 3;
  const Done done = fixture.ask({1, 2, 3, 4, 5, 7}, reuse);
  EXPECT_EQ(done.timings.cache_n, 5);
  EXPECT_EQ(done.timings.prompt_n, 1);
}

TEST(Engine, LeavesRunsShorterThanAskedForAlone) {
  EngineFixture fixture;
  CompletionParams short_answer = params();
  short_answer.n_predict = 1;
  fixture.ask({1, 2, 9, 9, 3, 4, 5, 6}, short_answer);
  CompletionParams reuse = short_answer;
  reuse.n_cache_reuse = 4;
  EXPECT_EQ(fixture.ask({1, 2, 3, 4, 5, 7}, reuse).timings.cache_n, 2);
}

TEST(Engine, SamplesOneTokenWhenNoneIsAskedFor) {
  EngineFixture fixture;
  CompletionParams none = params();
  none.n_predict = 0;
  const Done done = fixture.ask(range(1, 8), none);
  EXPECT_EQ(done.timings.predicted_n, 1);
  EXPECT_EQ(done.slot_tokens, 8);
}

TEST(Engine, AnswersAnEmptyPromptWithNothing) {
  EngineFixture fixture;
  fixture.ask(range(1, 8));
  const Done done = fixture.ask({});
  EXPECT_EQ(done.stop, StopType::none);
  EXPECT_EQ(done.text, "");
  EXPECT_EQ(done.slot_tokens, 11);
}

TEST(Engine, RefusesTokensOutsideTheVocabulary) {
  EngineFixture fixture;
  auto [id, answer] = fixture.submit({1, 258});
  EXPECT_EQ(answer.failure().kind, ErrorKind::invalid_request);
  EXPECT_THAT(answer.failure().message, ::testing::HasSubstr("258"));
}

TEST(Engine, RefusesSamplingParametersThatCannotBeUsed) {
  EngineFixture fixture;
  CompletionParams bad = params();
  bad.sampling.repeat_penalty = 0.0f;
  auto [id, answer] = fixture.submit(range(1, 4), bad);
  EXPECT_EQ(answer.failure().kind, ErrorKind::invalid_request);
  EXPECT_EQ(fixture.ask(range(1, 4)).tokens.size(), 4u);
}

TEST(Engine, CancelsAWaitingJobAtOnceAndServesTheOthers) {
  EngineFixture fixture;
  CompletionParams long_answer = params();
  long_answer.n_predict = 200;
  auto [running_id, running] = fixture.submit(range(1, 20), long_answer);
  auto [waiting_id, waiting] = fixture.submit(range(1, 10), long_answer);
  auto [last_id, last] = fixture.submit(range(1, 5));
  fixture.engine().cancel(waiting_id);
  EXPECT_TRUE(waiting.failure().cancelled);
  EXPECT_EQ(running.result().tokens.size(), 200u);
  EXPECT_EQ(last.result().tokens.size(), 4u);
}

TEST(Engine, KeepsTheTokensOfARunningJobThatIsCancelled) {
  EngineFixture fixture;
  CompletionParams long_answer = params();
  long_answer.n_predict = 230;
  auto [id, answer] = fixture.submit(range(1, 20), long_answer);
  answer.wait_for_pieces(3);
  fixture.engine().cancel(id);
  answer.wait();
  EXPECT_EQ(fixture.ask(range(1, 20) + range(50, 52)).timings.cache_n, 20);
}

TEST(Engine, ShowsASlotAsBusyFromTheStartOfItsPrompt) {
  EngineFixture fixture;
  std::promise<bool> busy;
  fixture.engine().submit(range(1, 200), std::make_shared<const CompletionParams>(params()), [&](JobEvent&& event) {
    // The first piece comes out of the first step; nothing has been published since that step began.
    if (const auto* piece = std::get_if<Piece>(&event); piece && piece->timings.predicted_n == 1) {
      busy.set_value(fixture.engine().slots().front().processing);
    }
  });
  EXPECT_TRUE(busy.get_future().get());
}

TEST(Engine, GivesUpAForwardPassThatNobodyWaitsFor) {
  EngineOptions options = EngineFixture::default_options();
  options.ubatch = 200;
  EngineFixture fixture(options);
  Answer answer;
  const JobSink inner = answer.sink();
  std::atomic<JobId> id{0};
  std::promise<void> started;
  id =
      fixture.engine().submit(range(1, 200), std::make_shared<const CompletionParams>(params()), [&](JobEvent&& event) {
        if (std::holds_alternative<Started>(event)) started.set_value();
        inner(std::move(event));
      });
  started.get_future().wait();
  fixture.engine().cancel(id);
  answer.wait();
  // Whether the pass was given up or had just ended: the slot goes on with what it really holds.
  const Done next = fixture.ask(range(1, 200));
  EXPECT_EQ(next.timings.cache_n + next.timings.prompt_n, 200);
  EngineFixture fresh(options);
  EXPECT_EQ(next.tokens, fresh.ask(range(1, 200)).tokens);
}

// A daemon without memory can't even make the event.
TEST(Engine, FailsARequestWhoseStartCannotBeTold) {
  EngineFixture fixture;
  Answer answer;
  fixture.engine().submit(range(1, 20), std::make_shared<const CompletionParams>(params()),
                          [inner = answer.sink()](JobEvent&& event) {
                            if (std::holds_alternative<Started>(event)) throw std::bad_alloc();
                            inner(std::move(event));
                          });
  EXPECT_EQ(answer.failure().kind, ErrorKind::out_of_memory);
  EXPECT_EQ(answer.failure().message, "out of memory");
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.prompt_n, 20) << "of its slot nothing is left";
}

TEST(Engine, AnswersJobsInTheOrderOfTheirArrival) {
  EngineFixture fixture;
  std::mutex mutex;
  std::vector<int> order;
  std::vector<Answer> answers;
  for (int i = 0; i < 4; ++i) {
    answers.emplace_back();
    auto inner = answers.back().sink();
    fixture.engine().submit(range(10 * i + 1, 10 * i + 9), std::make_shared<const CompletionParams>(params()),
                            [&, i, inner](JobEvent&& event) {
                              if (std::holds_alternative<Done>(event)) {
                                const std::lock_guard lock(mutex);
                                order.push_back(i);
                              }
                              inner(std::move(event));
                            });
  }
  for (Answer& answer : answers) answer.wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST(Engine, EndsEveryJobWhenItStops) {
  EngineFixture fixture;
  CompletionParams long_answer = params();
  long_answer.n_predict = 240;
  auto [a_id, a] = fixture.submit(range(1, 9), long_answer);
  auto [b_id, b] = fixture.submit(range(1, 9), long_answer);
  fixture.engine().stop();
  EXPECT_TRUE(a.done());
  EXPECT_TRUE(b.done());
  auto [c_id, c] = fixture.submit(range(1, 9));
  EXPECT_TRUE(c.failure().cancelled);
}

TEST(Engine, ReportsTheProgressOfAPromptInBatches) {
  EngineOptions options = EngineFixture::default_options();
  options.batch = options.ubatch = 32;
  EngineFixture fixture(options);
  CompletionParams with_progress = params();
  with_progress.return_progress = true;
  auto [id, answer] = fixture.submit(range(1, 100), with_progress);
  answer.wait();
  std::vector<int> processed;
  for (const JobEvent& event : answer.events()) {
    if (const auto* started = std::get_if<Started>(&event)) processed.push_back(started->progress->processed);
    if (const auto* progress = std::get_if<PromptProgress>(&event)) processed.push_back(progress->progress.processed);
  }
  EXPECT_THAT(processed, ElementsAre(0, 32, 64, 96, 100));
}

TEST(Engine, ServesTwoSlotsAtOnce) {
  EngineOptions options = EngineFixture::default_options();
  options.slots = 2;
  options.context = 512;
  EngineFixture fixture(options);
  EXPECT_EQ(fixture.engine().slot_context(), 256);
  CompletionParams long_answer = params();
  long_answer.n_predict = 40;
  auto [a_id, a] = fixture.submit(range(1, 20), long_answer);
  auto [b_id, b] = fixture.submit(range(100, 130), long_answer);
  EXPECT_EQ(a.result().tokens.size(), 40u);
  EXPECT_EQ(b.result().tokens.size(), 40u);
  EXPECT_NE(a.result().id_slot, b.result().id_slot);
}

// Millions of them would take gigabytes, and the daemon with them.
TEST(Engine, EndsAnAnswerThatCollectsTooManyProbabilities) {
  EngineOptions options = EngineFixture::default_options();
  options.context_shift = true;
  EngineFixture fixture(options);
  CompletionParams all = params();
  all.n_predict = 1 << 20;
  all.n_probs = fixture.tokenizer().size();
  all.keep_probabilities = true;
  auto [id, answer] = fixture.submit(range(1, 8), all);
  const Failed failed = answer.failure();
  EXPECT_EQ(failed.kind, ErrorKind::invalid_request);
  EXPECT_THAT(failed.message, testing::HasSubstr("more than 1048576 probabilities"));
  EXPECT_EQ(fixture.ask(range(1, 8)).tokens.size(), 4u);
}

TEST(Engine, EndsTheTextBeforeAStopWord) {
  EngineFixture fixture;
  CompletionParams only_a = params();
  only_a.n_predict = 20;
  only_a.n_probs = 1;
  only_a.sampling.logit_bias.emplace_back(fixture.tokenizer().encode("a", false, false).front(), 1000.0f);
  only_a.stop = {"aaa"};
  const Done done = fixture.ask(range(1, 8), only_a);
  EXPECT_EQ(done.stop, StopType::word);
  EXPECT_EQ(done.stopping_word, "aaa");
  EXPECT_EQ(done.text, "");
  EXPECT_EQ(done.timings.predicted_n, 3);
  EXPECT_TRUE(done.probabilities.empty());  // the stop word's tokens are not part of the answer
}

}  // namespace
}  // namespace bankml
