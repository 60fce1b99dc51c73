// The engine on a device with memory of its own: what it reuses and answers, whatever the streams do, and what failures
// cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "bankml/base/error.hpp"
#include "kernels/watched_device.hpp"
#include "support/engine_fixture.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

namespace fs = std::filesystem;
using host::Operation;
using test::EngineFixture;
using test::GgufBuilder;
using test::range;
using test::operator+;
using testing::HasSubstr;

// A folder of the test's own, with a model that is quick on the host device.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "bankml-device-XXXXXX").string();
    path_ = mkdtemp(name.data());
    write(model(), test::tiny_model({.layers = 1, .dim = 32, .heads = 2, .kv_heads = 1, .hidden = 32}));
    write(model_of_longer_heads(),
          test::tiny_model({.layers = 1, .dim = 32, .heads = 2, .kv_heads = 1, .head_dim = 32, .hidden = 32}));
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path path() const { return path_; }
  fs::path model() const { return path_ / "tiny.gguf"; }
  fs::path model_of_longer_heads() const { return path_ / "longer.gguf"; }  // of a block of Q8_0

 private:
  static void write(const fs::path& path, const GgufBuilder& builder) {
    const std::vector<std::byte> bytes = builder.build();
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  fs::path path_;
};

const Folder& folder() {
  static const Folder instance;
  return instance;
}

EngineOptions options() {
  EngineOptions options = EngineFixture::default_options();
  options.cache_ram_mib = 2;
  options.slot_save_path = folder().path();
  return options;
}

CompletionParams with_probabilities() {
  CompletionParams params = EngineFixture::default_params();
  params.n_probs = 3;
  params.n_predict = 2;
  return params;
}

// What a conversation of several turns with others in between is answered.
struct Session {
  std::vector<int> cached;
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  friend bool operator==(const Session&, const Session&) = default;

  void add(const Done& done) {
    cached.push_back(done.timings.cache_n);
    tokens.insert(tokens.end(), done.tokens.begin(), done.tokens.end());
    for (const TokenProbability& p : done.probabilities) log_probs.push_back(p.p);
  }
};

// Three conversations in turn; the first one's prompts are longer than a block.
Session interleave(EngineFixture& fixture, int turns = 2) {
  Session session;
  std::vector<std::vector<TokenId>> said = {range(1, 70), range(1, 5) + range(100, 120), range(130, 150)};
  for (int turn = 0; turn < turns; ++turn) {
    for (std::vector<TokenId>& prompt : said) {
      const Done done = fixture.ask(prompt, with_probabilities());
      session.add(done);
      prompt = prompt + done.tokens + range(200 + turn, 203 + turn);
    }
  }
  return session;
}

std::unique_ptr<Device> device(const host::HostOptions& host_options = {}) {
  return std::make_unique<host::HostDevice>(host_options);
}

EngineMetrics idle_metrics(EngineFixture& fixture) {
  for (int i = 0; i < 1000; ++i) {
    const EngineMetrics metrics = fixture.engine().metrics();
    if (metrics.cache_saves == 0 || metrics.copied_to_host > 0) return metrics;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fixture.engine().metrics();
}

TEST(EngineOnDevice, InterleavedConversationsReuseWhatTheyReuseOnTheCpu) {
  EngineFixture cpu(options(), folder().model()), gpu(options(), folder().model(), device());
  const Session expected = interleave(cpu, 3), actual = interleave(gpu, 3);
  EXPECT_EQ(actual.cached, expected.cached);
  EXPECT_EQ(actual.tokens, expected.tokens) << "the model is of floats";
  ASSERT_EQ(actual.log_probs.size(), expected.log_probs.size());
  for (std::size_t i = 0; i < expected.log_probs.size(); ++i)
    EXPECT_NEAR(actual.log_probs[i], expected.log_probs[i], 0.01f);
  const EngineMetrics metrics = idle_metrics(gpu);
  EXPECT_EQ(metrics.cache_hits, cpu.engine().metrics().cache_hits);
  EXPECT_GT(metrics.cache_hits, 0u);
  EXPECT_EQ(metrics.reused_from_ram, cpu.engine().metrics().reused_from_ram);
  EXPECT_GT(metrics.reused_from_ram, 70u);
  EXPECT_GT(metrics.copied_to_host, 0u);
  EXPECT_GT(metrics.copied_to_device, 0u);
  EXPECT_GT(metrics.save_seconds, 0.0);
  EXPECT_GT(metrics.pinned_bytes, 0u);
  EXPECT_LE(metrics.pinned_bytes, std::uint64_t{2} << 20);
  EXPECT_EQ(metrics.pageable_bytes, 0u);
  EXPECT_EQ(metrics.copy_waits, 0u);
  EXPECT_EQ(metrics.failed_copies, 0u);
}

// Saved, evicted others, loaded: the state is the one that was left, bit for bit.
TEST(EngineOnDevice, AReturningConversationGetsTheBitsItWouldHaveHadWithoutTheOthers) {
  const auto last_turn = [&](bool interleaved) {
    EngineFixture fixture(options(), folder().model(), device());
    const auto opening = range(1, 130);
    const Done first = fixture.ask(opening);
    if (interleaved) {
      fixture.ask(range(1, 30) + range(150, 250));
      fixture.ask(range(100, 180));
    }
    CompletionParams params = with_probabilities();
    params.n_predict = 8;
    return fixture.ask(opening + first.tokens + range(200, 205), params);
  };
  Session alone, interleaved;
  alone.add(last_turn(false));
  interleaved.add(last_turn(true));
  EXPECT_EQ(alone.cached, std::vector<int>{133});
  EXPECT_EQ(alone, interleaved);
}

// A cache of 1 MiB whose blocks hold 64 positions: memory runs out before the counted bytes do, and the oldest state
// goes.
TEST(EngineOnDevice, EvictsTheOldestBeforeItTakesMoreThanTheLimit) {
  EngineOptions small = options();
  small.cache_ram_mib = 1;
  EngineFixture fixture(small, {}, device());  // 16 KiB a block, of which a state of few tokens counts a small part
  CompletionParams one_token = EngineFixture::default_params();
  one_token.n_predict = 1;
  for (TokenId i = 0; i < 70; ++i) fixture.ask(range(i * 3, i * 3 + 1), one_token);
  const EngineMetrics metrics = fixture.engine().metrics();
  EXPECT_EQ(metrics.evicted_for_bytes, 0u);
  EXPECT_GT(metrics.evicted_for_memory, 0u);
  EXPECT_LE(metrics.pinned_bytes, std::uint64_t{1} << 20);
  EXPECT_LE(metrics.cache_entries, 64u);
  EXPECT_GT(metrics.cache_entries, 50u);
}

// Its blocks are others, and the engine waits for logits only.
TEST(EngineOnDevice, AConversationIsAnsweredWhileTheOneBeforeIsStillBeingSaved) {
  auto own = std::make_unique<test::WatchedDevice>();
  const test::WatchedDevice& watched = *own;
  EngineFixture fixture(options(), folder().model(), std::move(own));
  const auto opening = range(1, 70);
  const Done first = fixture.ask(opening);
  Stream& save = watched.stream_of(StreamPriority::low);
  host::hold(save);
  fixture.ask(range(100, 180));
  EngineMetrics metrics = fixture.engine().metrics();
  EXPECT_EQ(metrics.cache_saves, 1u);
  EXPECT_EQ(metrics.copied_to_host, 0u) << "nothing has been copied yet";
  EXPECT_EQ(metrics.copy_waits, 0u);
  host::release(save);
  EXPECT_EQ(fixture.ask(opening + first.tokens + range(200, 203)).timings.cache_n, 73);
  metrics = fixture.engine().metrics();
  EXPECT_EQ(metrics.cache_hits, 1u);
  EXPECT_EQ(metrics.copy_waits, 0u);
}

// A device whose host memory for states can't be pinned; what else needs it can.
class UnpinnableDevice final : public host::HostDevice {
 public:
  explicit UnpinnableDevice(std::size_t slab_bytes) : slab_bytes_(slab_bytes) {}
  Buffer allocate_host(std::size_t bytes) override {
    if (bytes == slab_bytes_) throw Error(ErrorKind::out_of_memory, "no more pages may be locked");
    return HostDevice::allocate_host(bytes);
  }

 private:
  std::size_t slab_bytes_;
};

TEST(EngineOnDevice, GoesOnWithPageableMemoryAndTheSameAnswersWhereNothingCanBePinned) {
  EngineFixture pinned(options(), folder().model(), device());
  EngineFixture pageable(options(), folder().model(), std::make_unique<UnpinnableDevice>(std::size_t{2} << 20));
  EXPECT_EQ(interleave(pageable, 3), interleave(pinned, 3));
  const EngineMetrics metrics = idle_metrics(pageable);
  EXPECT_GT(metrics.cache_hits, 0u);
  EXPECT_EQ(metrics.pinned_bytes, 0u);
  EXPECT_EQ(metrics.pageable_bytes, std::uint64_t{2} << 20);
  EXPECT_GT(metrics.copy_waits, 0u);
}

TEST(EngineOnDevice, RandomDelaysOfStreamsChangeNoAnswer) {
  EngineFixture undisturbed(options(), folder().model(), device());
  const Session expected = interleave(undisturbed);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EngineFixture fixture(options(), folder().model(),
                          device({.order = {}, .max_delay = std::chrono::microseconds(200), .delay_seed = seed * 16}));
    ASSERT_EQ(interleave(fixture), expected) << "seed " << seed;
  }
}

class SlotFiles : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(, SlotFiles, testing::Values(DType::f16, DType::f32, DType::q8_0),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

TEST_P(SlotFiles, OfOneBackendServeTheOther) {
  const auto prompt = range(1, 90);
  EngineOptions typed = options();
  typed.cache_type_k = typed.cache_type_v = GetParam();
  const fs::path model = folder().model_of_longer_heads();
  EngineFixture cpu(typed, model), gpu(typed, model, device());
  const auto other = range(150, 200);
  for (const auto& [from, to, name] : {std::tuple(&cpu, &gpu, "of-cpu"), std::tuple(&gpu, &cpu, "of-gpu")}) {
    const Done first = from->ask(prompt);
    ASSERT_TRUE(std::holds_alternative<SlotActionResult>(from->save(name)));
    const Done stayed = from->ask(prompt + first.tokens + range(100, 104));
    to->ask(other);
    const auto restored = to->restore(name);
    ASSERT_TRUE(std::holds_alternative<SlotActionResult>(restored)) << std::get<Failed>(restored).message;
    EXPECT_EQ(std::get<SlotActionResult>(restored).tokens, 93);
    const Done moved = to->ask(prompt + first.tokens + range(100, 104));
    EXPECT_EQ(moved.timings.cache_n, 93);
    EXPECT_EQ(moved.tokens, stayed.tokens);
    from->erase();
  }
}

TEST(EngineOnDevice, ASlotFileOfAnotherCacheTypeIsRefused) {
  const fs::path model = folder().model_of_longer_heads();
  EngineOptions quantised = options();
  quantised.cache_type_k = quantised.cache_type_v = DType::q8_0;
  EngineFixture cpu(options(), model), gpu(quantised, model, device());
  cpu.ask(range(1, 90));
  ASSERT_TRUE(std::holds_alternative<SlotActionResult>(cpu.save("halves")));
  const auto refused = gpu.restore("halves");
  ASSERT_TRUE(std::holds_alternative<Failed>(refused));
  EXPECT_EQ(std::get<Failed>(refused).kind, ErrorKind::invalid_request);
  EXPECT_THAT(std::get<Failed>(refused).message, HasSubstr("expected K cells of type"));
}

// --- memory of the device ---

EngineOptions with_device_memory(std::uint64_t bytes) {
  EngineOptions planned = options();
  planned.device_free_bytes = [bytes] { return bytes; };
  return planned;
}

// One layer of 16 values of f16 for K and V: 4 KiB a block. A context of 256 tokens takes four, and one for copies.
constexpr std::uint64_t kBlock = 4096;

TEST(EngineOnDevice, SaysInNumbersWhatDoesNotFit) {
  EngineOptions large = with_device_memory(4 * kBlock + 100);
  large.context = 512;
  try {
    EngineFixture fixture(large, folder().model(), device());
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("512 tokens"));
    EXPECT_THAT(error.what(), HasSubstr("not even 256 tokens fit"));
  }
  large.device_free_bytes = [] { return 6 * kBlock; };
  try {
    EngineFixture fixture(large, folder().model(), device());
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a context of 256 tokens would fit (-c 256)"));
  }
}

TEST(EngineOnDevice, WithoutASpareBlockConversationsWaitForSavesAndAnswerTheSame) {
  EngineFixture roomy(options(), folder().model(), device());
  EngineFixture tight(with_device_memory(5 * kBlock), folder().model(), device());
  EXPECT_EQ(interleave(tight, 3), interleave(roomy, 3));
  EXPECT_EQ(tight.engine().metrics().kv_bytes_reserved, 5 * kBlock);
}

// The longer prompt needs more scratch memory for attention.
TEST(EngineOnDevice, MemoryThatRunsOutFailsTheYoungestRequestAlone) {
  EngineOptions two = options();
  two.slots = 2;
  two.context = 512;
  two.cache_ram_mib = 0;
  EngineFixture fixture(two, folder().model(), device());
  CompletionParams long_answer = EngineFixture::default_params();
  long_answer.n_predict = 100;
  auto [first_id, first] = fixture.submit(range(1, 10), long_answer);
  first.wait_for_pieces(1);
  static_cast<host::HostDevice&>(fixture.device()).runtime().fail_at(Operation::allocation, 1);
  auto [second_id, second] = fixture.submit(range(50, 250));
  EXPECT_EQ(second.failure().kind, ErrorKind::out_of_memory);
  EXPECT_EQ(first.result().tokens.size(), 100u);
  EXPECT_EQ(fixture.ask(range(50, 250)).tokens.size(), 4u);
}

// --- faults ---

// The tokens of the answer, none if the request failed.
std::vector<TokenId> try_to_ask(EngineFixture& fixture, const std::vector<TokenId>& prompt) {
  CompletionParams params = EngineFixture::default_params();
  params.n_predict = 2;
  auto [id, answer] = fixture.submit(prompt, params);
  answer.wait();
  std::vector<TokenId> tokens;
  for (const JobEvent& event : answer.events()) {
    if (const auto* done = std::get_if<Done>(&event)) tokens = done->tokens;
  }
  return tokens;
}

const std::vector<TokenId> kLong = range(1, 66);

// The first conversation is saved for the second, and loaded again.
std::vector<std::vector<TokenId>> small_session(EngineFixture& fixture) {
  std::vector<std::vector<TokenId>> answers;
  for (const auto& prompt : {kLong, range(100, 110), kLong + range(120, 122)})
    answers.push_back(try_to_ask(fixture, prompt));
  return answers;
}

class EachFault : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(, EachFault, testing::Values(Operation::allocation, Operation::copy, Operation::launch));

// The n-th operation of a session fails, for every n: at most one request fails, the others and the next ones are
// answered rightly, and nothing is left behind.
TEST_P(EachFault, CostsOneRequestAtMost) {
  std::vector<std::vector<TokenId>> expected;
  std::int64_t operations = 0;
  std::size_t left = 0;  // scratch of the operations, and of the loader
  {
    auto own = device();
    auto& runtime = static_cast<host::HostDevice&>(*own).runtime();
    EngineFixture fixture(options(), folder().model(), std::move(own));
    const std::int64_t before = runtime.count(GetParam());
    expected = small_session(fixture);
    operations = runtime.count(GetParam()) - before;
    fixture.close();
    left = runtime.buffers();
  }
  ASSERT_GE(operations, GetParam() == Operation::allocation ? 1 : 10);
  int failures = 0;
  for (std::int64_t n = 1; n <= operations; ++n) {
    auto own = device();
    auto& runtime = static_cast<host::HostDevice&>(*own).runtime();
    EngineFixture fixture(options(), folder().model(), std::move(own));
    runtime.fail_at(GetParam(), n);
    const std::vector<std::vector<TokenId>> answers = small_session(fixture);
    int failed = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (answers[i].empty()) {
        ++failed;
      } else {
        EXPECT_EQ(answers[i], expected[i]) << "request " << i << " while operation " << n << " failed";
      }
    }
    EXPECT_EQ(try_to_ask(fixture, kLong), expected[0]) << "after operation " << n << " had failed";
    EXPECT_LE(failed, 1) << "operation " << n;
    failures += failed;
    fixture.close();
    EXPECT_EQ(runtime.buffers(), left) << "after operation " << n << " had failed";
  }
  EXPECT_TRUE(failures > 0 || GetParam() == Operation::allocation);
}

}  // namespace
}  // namespace bankml
