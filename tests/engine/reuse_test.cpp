// What answers tell about the tokens that were computed again (docs/service.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bankml/engine/engine.hpp"
#include "engine/lost_conversations.hpp"
#include "support/engine_fixture.hpp"

namespace bankml {
namespace {

using test::EngineFixture;
using test::range;
using test::operator+;
using From = PromptReuse::From;

TEST(Reuse, IsOfNothingForTheFirstRequest) {
  EngineFixture fixture;
  const PromptReuse reuse = fixture.ask(range(1, 50)).timings.reuse;
  EXPECT_EQ(reuse.from, From::nothing);
  EXPECT_EQ(reuse.differs_at, -1);
  EXPECT_FALSE(reuse.lost_to_limit);
}

TEST(Reuse, IsOfTheSlotWhereTheConversationIsThere) {
  EngineFixture fixture;
  fixture.ask(range(1, 50));
  const PromptReuse reuse = fixture.ask(range(1, 40) + range(200, 205)).timings.reuse;
  EXPECT_EQ(reuse.from, From::slot);
  EXPECT_EQ(reuse.differs_at, 40);
  EXPECT_EQ(fixture.engine().metrics().reused_from_slot, 40u);
}

TEST(Reuse, IsOfRamWhereTheConversationHadToMakeRoom) {
  EngineFixture fixture;
  fixture.ask(range(1, 50));
  fixture.ask(range(101, 150));
  const PromptReuse reuse = fixture.ask(range(1, 50)).timings.reuse;
  EXPECT_EQ(reuse.from, From::ram);
  EXPECT_EQ(reuse.differs_at, -1);
  EXPECT_EQ(fixture.engine().metrics().reused_from_ram, 49u) << "the last token is computed for its logits";
}

TEST(Reuse, TellsWhenALimitHasCostTokens) {
  EngineFixture fixture;  // its cache holds as many tokens as the context: 256
  for (const TokenId first : {1, 60, 101}) fixture.ask(range(first, first + 140));
  const Done again = fixture.ask(range(1, 141));
  EXPECT_EQ(again.timings.cache_n, 0);
  EXPECT_TRUE(again.timings.reuse.lost_to_limit);
  EXPECT_EQ(fixture.engine().metrics().lost_to_limits, 1u);
}

TEST(CachedConversations, AreListedOldestFirstWithTheirHits) {
  EngineFixture fixture;
  fixture.ask(range(1, 50));
  fixture.ask(range(101, 150));
  fixture.ask(range(1, 50));
  fixture.ask(range(101, 150));
  const std::vector<CachedConversation> cached = fixture.engine().cached_conversations();
  ASSERT_EQ(cached.size(), 1u);
  EXPECT_EQ(cached[0].tokens, 53u);
  EXPECT_EQ(cached[0].hits, 1);
  EXPECT_GT(cached[0].bytes, 0u);
}

TEST(LostConversations, ForgetTheOldestOfMany) {
  LostConversations lost;
  lost.add(range(1, 20));
  for (TokenId i = 30; i < 45; ++i) lost.add(range(i, i + 5));
  EXPECT_EQ(lost.longest_prefix(range(1, 10)), 10u);
  lost.add(range(50, 55));
  EXPECT_EQ(lost.longest_prefix(range(1, 10)), 0u);
}

}  // namespace
}  // namespace bankml
