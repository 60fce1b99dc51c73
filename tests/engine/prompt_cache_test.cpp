#include "bankml/engine/prompt_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

#include "bankml/engine/slot_choice.hpp"

// The worked examples of docs/prompt-cache.md, section 8, under their names there.
namespace bankml {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<TokenId>;
using Cache = PromptCache<std::string>;

Tokens range(TokenId first, TokenId last) {
  Tokens tokens(static_cast<std::size_t>(last - first + 1));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// n ids that occur nowhere else.
Tokens others(std::size_t n) {
  static TokenId next = 1'000'000;
  Tokens tokens(n);
  std::iota(tokens.begin(), tokens.end(), next);
  next += static_cast<TokenId>(n);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool put(Cache& cache, const Tokens& tokens, std::uint64_t bytes, const std::string& name) {
  return cache.save(tokens, bytes, [&] { return name; });
}

std::vector<std::string> names(const Cache& cache) {
  std::vector<std::string> out;
  for (const auto& entry : cache.entries()) out.push_back(entry.state);
  return out;
}

std::string better(Cache& cache, const Tokens& slot, const Tokens& prompt) {
  const auto taken = cache.take_better(slot, prompt);
  return taken ? taken->second : "";
}

std::string out_of_memory() {
  throw std::bad_alloc();
}

TEST(CommonPrefix, CountsEqualLeadingTokensWhateverTheirNumber) {
  const Tokens a = range(1, 300);
  for (std::size_t n : {0u, 1u, 63u, 64u, 65u, 128u, 200u, 299u}) {
    Tokens b = a;
    b[n] = -7;
    EXPECT_EQ(lcp(a, b), n);
    EXPECT_EQ(lcp(a, std::span(a).first(n)), n);
  }
  EXPECT_EQ(lcp(a, a), 300u);
  EXPECT_EQ(lcp({}, a), 0u);
}

TEST(PromptCacheSave, IgnoresAnEmptySlot) {
  Cache cache(100, 0);
  EXPECT_FALSE(put(cache, {}, 1, "S"));
  EXPECT_TRUE(cache.is_empty());
}

TEST(PromptCacheSave, A1SkipsWhatALongerEntryContains) {
  Cache cache(100, 0);
  put(cache, {1, 2, 3, 4}, 10, "E1");
  EXPECT_FALSE(put(cache, {1, 2, 3}, 10, "S"));
  EXPECT_THAT(names(cache), ElementsAre("E1"));
}

TEST(PromptCacheSave, A2SkipsAnEqualEntryWhichKeepsItsAge) {
  Cache cache(100, 0);
  put(cache, {1, 2, 3}, 10, "E1");
  put(cache, {9}, 10, "E2");
  EXPECT_FALSE(put(cache, {1, 2, 3}, 10, "S"));
  EXPECT_THAT(names(cache), ElementsAre("E1", "E2"));
}

TEST(PromptCacheSave, A3DropsAnEntryThatTheSlotExtends) {
  Cache cache(100, 0);
  put(cache, {1, 2}, 20, "E1");
  put(cache, {9}, 10, "E2");
  EXPECT_TRUE(put(cache, {1, 2, 3}, 30, "S"));
  EXPECT_THAT(names(cache), ElementsAre("E2", "S"));
  EXPECT_EQ(cache.bytes(), 40u);
  EXPECT_EQ(cache.n_tokens(), 4u);
}

TEST(PromptCacheSave, A4EvictsTheOldestUntilTheNewOneFitsExactly) {
  Cache cache(50, 0);
  put(cache, {7}, 20, "E1");
  put(cache, {8}, 20, "E2");
  EXPECT_TRUE(put(cache, {1, 2, 3}, 30, "S"));
  EXPECT_THAT(names(cache), ElementsAre("E2", "S"));
}

TEST(PromptCacheSave, A5KeepsTheEntryWhenTheNewOneIsTooLarge) {
  Cache cache(50, 0);
  put(cache, {1}, 10, "E1");
  bool made = false;
  EXPECT_FALSE(cache.save(Tokens{1, 2}, 51, [&] {
    made = true;
    return std::string("S");
  }));
  EXPECT_FALSE(made);
  EXPECT_THAT(names(cache), ElementsAre("E1"));
  EXPECT_EQ(cache.counters().oversized, 1u);
}

TEST(PromptCacheSave, A6FillsTheWholeLimitAlone) {
  Cache cache(50, 0);
  put(cache, {1}, 10, "E1");
  put(cache, {5}, 10, "E2");
  EXPECT_TRUE(put(cache, {1, 2}, 50, "S"));
  EXPECT_THAT(names(cache), ElementsAre("S"));
  EXPECT_EQ(cache.counters().obsolete, 1u);
  EXPECT_EQ(cache.counters().evicted_bytes, 1u);
}

TEST(PromptCacheSave, A7LowersTheLimitWhenMemoryRunsOut) {
  Cache cache(100, 0);
  put(cache, {1}, 40, "E1");
  EXPECT_FALSE(cache.save(Tokens{2}, 30, out_of_memory));
  EXPECT_EQ(cache.limit_bytes(), 16u);
  EXPECT_THAT(names(cache), IsEmpty());
}

TEST(PromptCacheSave, TakesTheDevicesOutOfMemoryLikeTheHosts) {
  Cache cache(0, 0);
  put(cache, {1}, 40, "E1");
  EXPECT_FALSE(
      cache.save(Tokens{2}, 30, []() -> std::string { throw Error(ErrorKind::out_of_memory, "no pinned memory"); }));
  EXPECT_EQ(cache.limit_bytes(), 16u);
  EXPECT_EQ(cache.counters().allocation_failures, 1u);
}

TEST(PromptCacheSave, PassesOtherFailuresOnAndAddsNothing) {
  Cache cache(0, 0);
  EXPECT_THROW(cache.save(Tokens{2}, 30, []() -> std::string { throw Error(ErrorKind::device, "lost"); }), Error);
  EXPECT_TRUE(cache.is_empty());
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(cache.limit_bytes(), 0u);
}

TEST(PromptCacheSave, RaisesTheLimitAgainAsMemoryReturns) {
  Cache cache(100, 0);
  put(cache, {1}, 40, "E1");
  cache.save(Tokens{2}, 30, out_of_memory);
  EXPECT_TRUE(put(cache, {3}, 30, "A"));  // larger than the lowered limit of 16, but memory is there
  EXPECT_EQ(cache.limit_bytes(), 46u);
  cache.update();
  EXPECT_THAT(names(cache), ElementsAre("A"));
  EXPECT_TRUE(put(cache, {4}, 30, "B"));  // 46 + 30: more than the 70 that failed
  EXPECT_EQ(cache.limit_bytes(), 100u);
}

TEST(PromptCacheSave, RecoversFromAFailureOfAnEmptyCacheWithoutALimit) {
  Cache cache(0, 0);
  cache.save(Tokens{2}, 30, out_of_memory);
  EXPECT_EQ(cache.limit_bytes(), 1u);
  EXPECT_TRUE(put(cache, {2}, 30, "A"));
  EXPECT_EQ(cache.limit_bytes(), 0u);
}

TEST(PromptCacheSave, DropsTheOldestUntilThereIsMemoryForTheNewState) {
  Cache cache(0, 0);
  put(cache, range(1, 3), 10, "first");
  put(cache, range(11, 13), 10, "second");
  put(cache, range(21, 23), 10, "third");
  EXPECT_TRUE(cache.save(
      range(31, 33), 10, [] { return "fourth"; }, [&] { return cache.len() <= 1; }));
  EXPECT_THAT(names(cache), ElementsAre("third", "fourth"));
  EXPECT_EQ(cache.counters().evicted_memory, 2u);
  EXPECT_EQ(cache.bytes(), 20u);
}

TEST(PromptCacheSave, RefusesAStateThatMemoryWouldNotHoldAlone) {
  Cache cache(0, 0);
  put(cache, range(1, 3), 10, "first");
  EXPECT_FALSE(cache.save(
      range(31, 33), 10, [] { return "large"; }, [] { return false; }));
  EXPECT_TRUE(cache.is_empty());
  EXPECT_EQ(cache.counters().no_memory, 1u);
  EXPECT_TRUE(put(cache, range(41, 43), 10, "next"));
}

TEST(PromptCache, DropsStatesThatWereNotStoredWhole) {
  Cache cache(0, 0);
  put(cache, range(1, 3), 10, "whole");
  put(cache, range(11, 13), 10, "broken");
  cache.drop_broken([](const std::string& state) { return state == "broken"; });
  EXPECT_THAT(names(cache), ElementsAre("whole"));
  EXPECT_EQ(cache.counters().broken, 1u);
  EXPECT_EQ(cache.bytes(), 10u);
}

TEST(PromptCacheLoad, L1TakesAnEntryOfWhichExactlyAQuarterIsKept) {
  Cache cache(0, 0);
  put(cache, range(1, 4), 1, "E1");
  EXPECT_EQ(better(cache, {}, Tokens{1} + others(7)), "E1");
  EXPECT_TRUE(cache.is_empty());
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(cache.n_tokens(), 0u);
}

TEST(PromptCacheLoad, L2LeavesAnEntryOfWhichLessThanAQuarterIsKept) {
  Cache cache(0, 0);
  put(cache, range(1, 5), 1, "E1");
  EXPECT_EQ(better(cache, {}, Tokens{1} + others(7)), "");
  EXPECT_EQ(cache.len(), 1u);
  EXPECT_EQ(cache.counters().misses, 1u);
}

TEST(PromptCacheLoad, L3PrefersASlotThatIsFullyKept) {
  Cache cache(0, 0);
  put(cache, range(1, 18) + others(1), 1, "E1");
  EXPECT_EQ(better(cache, {1}, range(1, 20)), "");
}

TEST(PromptCacheLoad, L4ReplacesASlotThatIsHalfKept) {
  Cache cache(0, 0);
  put(cache, range(1, 18) + others(1), 1, "E1");
  EXPECT_EQ(better(cache, Tokens{1} + others(1), range(1, 20)), "E1");
}

// No sequence of saves leaves the two entries of L5 and L6 in a cache (one is a prefix of the other), so the search
// itself.
TEST(PromptCacheLoad, L5LetsAnEarlyShortEntryShutOutALaterLongOne) {
  const Tokens slot = others(2), prompt = range(1, 20);
  BestPrefix search(slot, prompt);
  EXPECT_TRUE(search.offer(range(1, 2)).better);
  const BestPrefix::Fit e2 = search.offer(range(1, 18) + others(2));
  EXPECT_FALSE(e2.better);
  EXPECT_EQ(e2.keep, 0.9f);
}

TEST(PromptCacheLoad, L6TakesTheLongEntryWhenItComesFirst) {
  const Tokens slot = others(2), prompt = range(1, 20);
  BestPrefix search(slot, prompt);
  EXPECT_TRUE(search.offer(range(1, 18) + others(2)).better);
  EXPECT_FALSE(search.offer(range(1, 2)).better);
}

TEST(PromptCacheLoad, L7StaysWithASlotThatIsKeptMore) {
  Cache cache(0, 0);
  put(cache, range(1, 3) + others(4), 1, "E1");
  EXPECT_EQ(better(cache, {1, 2, 60, 61}, range(1, 4)), "");
}

TEST(PromptCacheLoad, L8StaysWithASlotThatIsKeptEqually) {
  Cache cache(0, 0);
  put(cache, range(1, 3) + others(3), 1, "E1");
  EXPECT_EQ(better(cache, {1, 2, 60, 61}, range(1, 5)), "");
}

TEST(PromptCacheLoad, L9TakesAnEntryThatIsKeptMoreAndServesMore) {
  Cache cache(0, 0);
  put(cache, range(1, 3) + others(2), 1, "E1");
  EXPECT_EQ(better(cache, {1, 2, 60, 61}, range(1, 4)), "E1");
}

TEST(PromptCacheLoad, L10RaisesBothBestsAtEachHit) {
  Cache cache(0, 0);
  put(cache, range(1, 2) + others(1), 1, "E1");
  put(cache, range(1, 3) + others(1), 1, "E2");
  put(cache, range(1, 5) + others(3), 1, "E3");
  EXPECT_EQ(better(cache, others(1), range(1, 6)), "E2");
  EXPECT_THAT(names(cache), ElementsAre("E1", "E3"));
}

TEST(PromptCacheLoad, FindsNothingForAnEmptyPrompt) {
  Cache cache(0, 0);
  put(cache, range(1, 4), 1, "E1");
  EXPECT_EQ(better(cache, {}, {}), "");
}

TEST(PromptCacheLoad, KeepsTheEntryWhenItCannotBeRestored) {
  Cache cache(0, 0);
  put(cache, range(1, 4), 10, "E1");
  EXPECT_THROW(
      cache.take_better({}, range(1, 5), [](std::string&) { throw Error(ErrorKind::out_of_memory, "no room"); }),
      Error);
  EXPECT_THAT(names(cache), ElementsAre("E1"));
  EXPECT_EQ(cache.bytes(), 10u);
  EXPECT_EQ(cache.counters().hits, 0u);
}

struct Sized {
  std::uint64_t bytes;
  std::size_t tokens;
};

// A cache that is filled without a byte limit in the way of the saves.
std::vector<std::uint64_t> left_after_update(std::uint64_t limit_bytes, std::uint64_t limit_tokens,
                                             std::initializer_list<Sized> entries) {
  PromptCache<int> cache(limit_bytes, limit_tokens);
  std::vector<std::uint64_t> left;
  for (const Sized& entry : entries) {
    EXPECT_TRUE(cache.save(others(entry.tokens), entry.bytes, [] { return 0; }));
  }
  cache.update();
  for (const auto& entry : cache.entries()) left.push_back(entry.bytes);
  return left;
}

TEST(PromptCacheLimits, U1ExactlyFullIsNotTooFull) {
  EXPECT_THAT(left_after_update(100, 0, {{60, 6}, {40, 4}}), ElementsAre(60, 40));
}

TEST(PromptCacheLimits, U2DropsTheOldestOverTheByteLimit) {
  EXPECT_THAT(left_after_update(99, 0, {{60, 6}, {40, 4}}), ElementsAre(40));
}

TEST(PromptCacheLimits, U3DropsTheOldestOverTheTokenLimit) {
  EXPECT_THAT(left_after_update(0, 10, {{60, 6}, {40, 5}}), ElementsAre(40));
}

TEST(PromptCacheLimits, U4ExactlyTheTokenLimitStays) {
  EXPECT_THAT(left_after_update(0, 11, {{60, 6}, {40, 5}}), ElementsAre(60, 40));
}

TEST(PromptCacheLimits, U5TheEstimatedTokenCapIsSinglePrecision) {
  PromptCache<int> cache(100, 10);
  cache.save(others(20), 50, [] { return 0; });
  cache.save(others(25), 50, [] { return 0; });
  EXPECT_EQ(cache.token_cap(), 44u);
  cache.update();
  ASSERT_EQ(cache.len(), 1u);
  EXPECT_EQ(cache.entries().front().tokens.size(), 25u);
  EXPECT_EQ(cache.counters().evicted_tokens, 1u);
}

TEST(PromptCacheLimits, U6CountsAtLeastAByteForAToken) {
  EXPECT_THAT(left_after_update(100, 10, {{5, 15}, {5, 15}}), ElementsAre(5, 5));
}

TEST(PromptCacheLimits, U7RaisesTheTokenLimitToWhatTheBytesHold) {
  EXPECT_THAT(left_after_update(100, 10, {{60, 12}, {36, 12}}), ElementsAre(60, 36));
}

TEST(PromptCacheEvents, TellEachDecision) {
  std::vector<std::pair<PromptCacheEvent::Kind, std::size_t>> seen;
  Cache cache(50, 0, [&](const PromptCacheEvent& event) { seen.emplace_back(event.kind, event.tokens); });
  using Kind = PromptCacheEvent::Kind;
  put(cache, {1, 2}, 20, "E1");
  put(cache, {1}, 10, "S");
  put(cache, {1, 2, 3}, 30, "S");
  put(cache, {9}, 40, "S");
  better(cache, {}, {9, 8});
  EXPECT_THAT(
      seen, ElementsAre(std::pair{Kind::saved, 2u}, std::pair{Kind::already_cached, 1u}, std::pair{Kind::obsolete, 2u},
                        std::pair{Kind::saved, 3u}, std::pair{Kind::evicted_bytes, 3u}, std::pair{Kind::saved, 1u},
                        std::pair{Kind::candidate, 1u}, std::pair{Kind::hit, 1u}));
}

// One slot whose state is just its tokens, a byte each: what a server does with a request, without a model.
class ToyServer {
 public:
  explicit ToyServer(std::uint64_t limit_bytes) : cache(limit_bytes, 0) {}

  // Serves `prompt` and samples the given tokens; returns how many tokens of the prompt were reused.
  std::size_t turn(const Tokens& prompt, const Tokens& sampled) {
    const SlotView view{slot, false, released};
    const SlotChoice choice = choose_slot({&view, 1}, prompt, -1, 0.1f);
    by = choice.by;
    due = choice.due;
    if (due) {
      cache.save(slot, slot.size(), [&] { return std::string(); });
      if (auto taken = cache.take_better(slot, prompt)) slot = std::move(taken->first);
      cache.update();
    }
    std::size_t reused = lcp(slot, prompt);
    if (reused == prompt.size() && reused > 0) --reused;
    slot = prompt + Tokens(sampled.begin(), sampled.end() - 1);
    released = ++clock_;
    return reused;
  }

  std::vector<std::size_t> lengths() const {
    std::vector<std::size_t> out;
    for (const auto& entry : cache.entries()) out.push_back(entry.tokens.size());
    return out;
  }

  Cache cache;
  Tokens slot;
  std::int64_t released = -1;
  SlotChoice::By by = SlotChoice::By::none;
  bool due = false;

 private:
  std::int64_t clock_ = 0;
};

struct Conversation {
  Tokens prompt = Tokens{1, 2} + others(10);
  Tokens sampled = others(4);
  void go_on() {
    prompt = prompt + sampled + others(5);
    sampled = others(4);
  }
};

TEST(PromptCacheSession, ALargeCacheBringsEachConversationBack) {
  ToyServer server(100000);
  Conversation a, b, c;
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 0u);
  EXPECT_EQ(server.by, SlotChoice::By::least_recent);
  EXPECT_TRUE(server.due);
  EXPECT_THAT(server.lengths(), IsEmpty());
  EXPECT_EQ(server.turn(b.prompt, b.sampled), 2u);
  EXPECT_EQ(server.by, SlotChoice::By::similarity);
  EXPECT_TRUE(server.due);
  EXPECT_THAT(server.lengths(), ElementsAre(15));
  EXPECT_EQ(server.turn(c.prompt, c.sampled), 2u);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 15));
  a.go_on();
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 15u);
  EXPECT_EQ(server.by, SlotChoice::By::least_recent);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 15));
  b.go_on();
  EXPECT_EQ(server.turn(b.prompt, b.sampled), 15u);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 24));
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 20u);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 24));
  a.go_on();
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 24u);
  EXPECT_EQ(server.by, SlotChoice::By::similarity);
  EXPECT_FALSE(server.due);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 24));
}

TEST(PromptCacheSession, ACacheOneConversationTooSmallNeverHits) {
  ToyServer server(30);
  Conversation a, b, c;
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 0u);
  EXPECT_EQ(server.turn(b.prompt, b.sampled), 2u);
  EXPECT_EQ(server.turn(c.prompt, c.sampled), 2u);
  a.go_on();
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 2u);
  EXPECT_THAT(server.lengths(), ElementsAre(15, 15));
  b.go_on();
  EXPECT_EQ(server.turn(b.prompt, b.sampled), 2u);
  EXPECT_THAT(server.lengths(), ElementsAre(24));
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 2u);
  EXPECT_THAT(server.lengths(), ElementsAre(24));
  a.go_on();
  EXPECT_EQ(server.turn(a.prompt, a.sampled), 24u);
  EXPECT_THAT(server.lengths(), ElementsAre(24));
}

TEST(PromptCacheSession, InterleavedConversationsFindTheirPrefixAgain) {
  constexpr int kConversations = 6, kTurns = 8;
  ToyServer server(0);
  std::vector<Conversation> conversations(kConversations);
  std::map<int, std::size_t> held;  // tokens of each conversation that were in the slot at the end of its last turn
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int i = 0; i < kConversations; ++i) {
      Conversation& conversation = conversations[static_cast<std::size_t>(i)];
      if (turn > 0) conversation.go_on();
      const std::size_t reused = server.turn(conversation.prompt, conversation.sampled);
      EXPECT_EQ(reused, turn > 0 ? held[i] : std::min(i, 1) * 2u) << "turn " << turn << " of conversation " << i;
      held[i] = conversation.prompt.size() + conversation.sampled.size() - 1;
    }
  }
  EXPECT_EQ(server.cache.len(), kConversations - 1u);
  EXPECT_EQ(server.cache.counters().hits, static_cast<std::uint64_t>(kConversations * (kTurns - 1)));
}

}  // namespace
}  // namespace bankml
