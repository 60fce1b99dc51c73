// Slots saved to files, restored and erased through the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "support/engine_fixture.hpp"

namespace bankml {
namespace {

namespace fs = std::filesystem;
using test::EngineFixture;
using test::range;
using test::operator+;

class SlotActionsTest : public ::testing::Test {
 protected:
  SlotActionsTest() {
    std::string name = (fs::temp_directory_path() / "bankml-slots-XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~SlotActionsTest() override { fs::remove_all(folder); }

  EngineOptions options() const {
    EngineOptions options = EngineFixture::default_options();
    options.slot_save_path = folder;
    options.cache_ram_mib = 0;
    return options;
  }
  static const SlotActionResult& done(const EngineFixture::ActionResult& result) {
    static const SlotActionResult none;
    const auto* failed = std::get_if<Failed>(&result);
    EXPECT_EQ(failed, nullptr) << (failed ? failed->message : "");
    return failed ? none : std::get<SlotActionResult>(result);
  }
  static ErrorKind failure(const EngineFixture::ActionResult& result) {
    EXPECT_TRUE(std::holds_alternative<Failed>(result));
    return std::holds_alternative<Failed>(result) ? std::get<Failed>(result).kind : ErrorKind::internal;
  }

  fs::path folder;
};

TEST_F(SlotActionsTest, ARestoredConversationGoesOnAsIfItHadStayed) {
  EngineFixture fixture(options());
  const Done first = fixture.ask(range(1, 90));
  const auto second = range(1, 90) + first.tokens + range(100, 104);
  EXPECT_EQ(done(fixture.save("a.bin")).tokens, 93);
  const Done stayed = fixture.ask(second);
  fixture.ask(range(150, 200));
  const SlotActionResult restored = done(fixture.restore("a.bin"));
  EXPECT_EQ(restored.tokens, 93);
  EXPECT_EQ(restored.bytes, fs::file_size(folder / "a.bin"));
  const Done again = fixture.ask(second);
  EXPECT_EQ(again.timings.cache_n, 93);
  EXPECT_EQ(again.tokens, stayed.tokens);
}

TEST_F(SlotActionsTest, AFileSurvivesTheEngine) {
  {
    EngineFixture fixture(options());
    fixture.ask(range(1, 20));
    fixture.save("a.bin");
  }
  EngineFixture fixture(options());
  EXPECT_EQ(done(fixture.restore("a.bin")).tokens, 23);
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.cache_n, 19);
}

TEST_F(SlotActionsTest, EraseForgetsTheTokens) {
  EngineFixture fixture(options());
  fixture.ask(range(1, 20));
  EXPECT_EQ(done(fixture.erase()).tokens, 23);
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.cache_n, 0);
}

TEST_F(SlotActionsTest, AFailedRestoreLeavesTheSlotAsItWas) {
  EngineFixture fixture(options());
  fixture.ask(range(1, 20));
  fixture.save("a.bin");
  fs::resize_file(folder / "a.bin", fs::file_size(folder / "a.bin") - 1);
  EXPECT_EQ(failure(fixture.restore("a.bin")), ErrorKind::invalid_request);
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.cache_n, 19);
}

TEST_F(SlotActionsTest, SavesAndRestoresAnEmptySlot) {
  EngineFixture fixture(options());
  EXPECT_EQ(done(fixture.save("empty.bin")).tokens, 0);
  fixture.ask(range(1, 20));
  EXPECT_EQ(done(fixture.restore("empty.bin")).tokens, 0);
  EXPECT_EQ(fixture.ask(range(1, 20)).timings.cache_n, 0);
}

TEST_F(SlotActionsTest, RefusesNamesThatLeaveTheFolder) {
  EngineFixture fixture(options());
  EXPECT_EQ(failure(fixture.save("../a.bin")), ErrorKind::invalid_request);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(SlotActionsTest, IsUnsupportedWithoutAFolder) {
  EngineFixture fixture;
  EXPECT_EQ(failure(fixture.save("a.bin")), ErrorKind::unsupported);
}

TEST_F(SlotActionsTest, WaitsForABusySlot) {
  EngineFixture fixture(options());
  CompletionParams long_answer = EngineFixture::default_params();
  long_answer.n_predict = 60;
  auto [id, answer] = fixture.submit(range(1, 20), long_answer);
  answer.wait_for_pieces(1);
  EXPECT_EQ(done(fixture.erase()).tokens, 79);
  EXPECT_TRUE(answer.done());
}

}  // namespace
}  // namespace bankml
