// Slot listings with texts (LLAMA_SERVER_SLOTS_DEBUG, docs/http-api.md 6).
#include <gtest/gtest.h>

#include "bankml/engine/engine.hpp"
#include "support/engine_fixture.hpp"

namespace bankml {
namespace {

using test::EngineFixture;
using test::range;

TEST(SlotTexts, AreOfTheLastTask) {
  EngineOptions options = EngineFixture::default_options();
  options.slot_texts = true;
  EngineFixture fixture(options);
  fixture.ask(range(1, 20));
  const Done last = fixture.ask(range(31, 40));
  const std::shared_ptr<const SlotTexts> texts = fixture.engine().slots().at(0).texts;
  ASSERT_TRUE(texts);
  EXPECT_EQ(texts->prompt, range(31, 40));
  EXPECT_EQ(texts->generated, last.text);
}

TEST(SlotTexts, AreNotKeptUnlessAskedFor) {
  EngineFixture fixture;
  fixture.ask(range(1, 20));
  EXPECT_FALSE(fixture.engine().slots().at(0).texts);
}

}  // namespace
}  // namespace bankml
