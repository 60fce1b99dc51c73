// States on their way between device and host memory: what waits for what, what is held, and what failures leave.
#include "bankml/model/kv_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

#include "bankml/base/error.hpp"
#include "kernels/watched_device.hpp"

namespace bankml {
namespace {

using host::Operation;
using test::let_others_run;

constexpr int kWindow = 100;

// A layer that sees all and two with a window.
ModelConfig three_layers() {
  ModelConfig config;
  config.layers = 3;
  config.head_dim_k = config.head_dim_v = 32;
  LayerConfig all, windowed;
  all.kv_heads = windowed.kv_heads = 1;
  windowed.window = kWindow;
  config.layer = {all, windowed, windowed};
  return config;
}

class Transport : public testing::Test {
 protected:
  explicit Transport(std::uint64_t limit_blocks = 16)
      : transport(std::make_unique<KvTransport>(
            device, pool,
            KvTransportOptions{.limit_bytes = limit_blocks * pool.block_bytes(KvPart::window),
                               .ahead_of_need = false})) {}

  KvBlock block(char content, KvPart part = KvPart::window) {
    KvBlock made = pool.allocate(part);
    write(made, content);
    compute->synchronize();
    return made;
  }
  // On the compute stream. So many bytes as blocks of both parts have are enough to tell them apart.
  void write(const KvBlock& to, char content) {
    const std::size_t bytes = pool.block_bytes(KvPart::full);
    Buffer pinned = device.allocate_host(bytes);
    std::memset(pinned.data(), content, bytes);
    compute->copy_to_device(to.data(), pinned.data(), bytes);
    kept.push_back(std::move(pinned));
  }
  // What the block holds once the compute stream's work is done.
  char read(const KvBlock& from) {
    const Buffer pinned = device.allocate_host(1);
    compute->copy_to_host(pinned.data(), from.data() + pool.block_bytes(KvPart::full) - 1, 1);
    compute->synchronize();
    return static_cast<char>(*pinned.data());
  }
  void save(KvBlock& b) {
    KvBlock* const one[] = {&b};
    transport->save(one, *compute);
  }
  void load(KvBlock& b) {
    KvBlock* const one[] = {&b};
    transport->load(one, *compute);
  }

  test::WatchedDevice device;
  ModelConfig config = three_layers();
  KvPool pool{device, config, DType::f16, DType::f16, 0, 256};
  std::vector<Buffer> kept;
  std::unique_ptr<Stream> compute = device.make_stream();
  std::unique_ptr<KvTransport> transport;
  Stream& save_stream = device.stream(1);
  Stream& load_stream = device.stream(2);
};

TEST_F(Transport, AStateComesBackAsItLeft) {
  const std::size_t buffers = device.runtime().buffers();
  {
    KvSequence sequence;
    for (const std::int64_t n : {100, 200, 300}) sequence.extend(n, pool, *compute);
    std::vector<KvBlock*> blocks;
    sequence.collect_blocks(blocks);
    char content = 1;
    for (const KvBlock* b : blocks) write(*b, content++);
    KvSequence saved = sequence.saved(pool);
    blocks.clear();
    saved.collect_blocks(blocks);
    const std::size_t missing =
        saved.part(KvPart::window).blocks().size() + saved.part(KvPart::full).blocks().size() - blocks.size();
    EXPECT_GT(missing, 0u) << "blocks that the window has left";
    transport->save(blocks, *compute);
    for (const KvBlock* b : blocks) EXPECT_TRUE(b->on_host());
    const KvSequence before = sequence;
    sequence = KvSequence();
    transport->load(blocks, *compute);
    for (const KvPart part : kKvParts) {
      for (std::size_t i = 0; i < before.part(part).blocks().size(); ++i) {
        const KvBlock &was = before.part(part).blocks()[i], &is = saved.part(part).blocks()[i];
        if (!is) continue;
        EXPECT_EQ(read(is), read(was)) << i;
        EXPECT_NE(is.data(), was.data());
      }
    }
    transport->settle();
    const KvTransportStats stats = transport->stats();
    EXPECT_EQ(stats.saved_bytes, stats.loaded_bytes);
    EXPECT_EQ(stats.saved_bytes, 5 * pool.block_bytes(KvPart::full) + 2 * pool.block_bytes(KvPart::window));
    EXPECT_EQ(stats.waits, 0u);
    EXPECT_EQ(stats.host.used_bytes, 0u) << "what was loaded is dropped";
  }
  kept.clear();
  EXPECT_LE(device.runtime().buffers(), buffers + 3) << "a slab for each part, and one of host memory";
}

TEST_F(Transport, CopiesASharedBlockOnce) {
  KvBlock one = block('a'), two = one;
  KvBlock* const both[] = {&one, &two};
  transport->save(both, *compute);
  EXPECT_EQ(one.data(), two.data());
  transport->load(both, *compute);
  EXPECT_EQ(one.data(), two.data());
  transport->settle();
  EXPECT_EQ(transport->stats().saved_bytes, pool.block_bytes(KvPart::window));
  EXPECT_EQ(read(one), 'a');
}

TEST_F(Transport, ASaveWaitsForTheComputation) {
  KvBlock b = block('a');
  host::hold(*compute);
  write(b, 'b');
  save(b);
  let_others_run();
  host::release(*compute);
  load(b);
  EXPECT_EQ(read(b), 'b');
}

TEST_F(Transport, ALoadWaitsForTheSaveOfItsBlocks) {
  KvBlock b = block('a');
  host::hold(save_stream);
  save(b);
  load(b);
  let_others_run();
  host::release(save_stream);
  EXPECT_EQ(read(b), 'a');
}

TEST_F(Transport, TheComputationWaitsForALoad) {
  KvBlock b = block('a');
  save(b);
  transport->settle();
  block('x');  // what the block that is loaded into holds
  host::hold(load_stream);
  load(b);
  const Buffer pinned = device.allocate_host(1);
  compute->copy_to_host(pinned.data(), b.data(), 1);
  let_others_run();
  host::release(load_stream);
  compute->synchronize();
  EXPECT_EQ(static_cast<char>(*pinned.data()), 'a');
}

// A block that was given back may still be read by work that was queued before.
TEST_F(Transport, ALoadWaitsForTheComputationThatUsedItsBlocks) {
  KvBlock state = block('s'), used = block('u');
  save(state);
  transport->settle();
  const Buffer pinned = device.allocate_host(1);
  host::hold(*compute);
  compute->copy_to_host(pinned.data(), used.data(), 1);
  const std::byte* const address = used.data();
  used = KvBlock();
  load(state);
  EXPECT_EQ(state.data(), address) << "the test wants the same block";
  let_others_run();
  host::release(*compute);
  compute->synchronize();
  EXPECT_EQ(static_cast<char>(*pinned.data()), 'u');
}

TEST_F(Transport, ABlockThatIsBeingSavedIsNotHandedOut) {
  KvBlock state = block('s');
  const std::byte* const address = state.data();
  host::hold(save_stream);
  save(state);
  std::vector<KvBlock> taken;
  for (int i = 0; i < 8; ++i) {
    taken.push_back(pool.allocate(KvPart::window));
    EXPECT_NE(taken.back().data(), address);
    write(taken.back(), 'x');
  }
  compute->synchronize();
  host::release(save_stream);
  transport->settle();
  EXPECT_EQ(pool.allocate(KvPart::window).data(), address) << "free again";
  load(state);
  EXPECT_EQ(read(state), 's');
}

TEST_F(Transport, ABlockThatIsBeingLoadedKeepsItsHostMemory) {
  KvBlock state = block('s'), other = block('o');
  save(state);
  transport->settle();
  const std::byte* const address = state.data();
  host::hold(load_stream);
  load(state);
  save(other);
  EXPECT_NE(other.data(), address);
  let_others_run();
  host::release(load_stream);
  EXPECT_EQ(read(state), 's');
}

TEST_F(Transport, WaitsForASaveWhenDeviceMemoryIsShort) {
  pool.reserve(KvPart::window, 1, 1);
  KvBlock state = block('s');
  host::hold(save_stream);
  save(state);
  std::jthread later([&] {
    let_others_run();
    host::release(save_stream);
  });
  const KvBlock next = pool.allocate(KvPart::window);
  EXPECT_TRUE(next);
  EXPECT_EQ(transport->stats().waits, 1u);
  EXPECT_GT(transport->stats().wait_seconds, 0.0);
  EXPECT_THROW(pool.allocate(KvPart::window), Error) << "nothing is being saved any more";
}

TEST_F(Transport, SavesGiveWayToTheComputationAndLoadsGoFirst) {
  EXPECT_EQ(device.priority(0), StreamPriority::normal);
  EXPECT_EQ(device.priority(1), StreamPriority::low);
  EXPECT_EQ(device.priority(2), StreamPriority::high);
}

class SmallTransport : public Transport {
 protected:
  SmallTransport() : Transport(2) {}
};

TEST_F(SmallTransport, HostMemoryStaysWithinTheLimit) {
  KvBlock one = block('1'), two = block('2'), three = block('3');
  save(one);
  save(two);
  KvBlock* const third[] = {&three};
  EXPECT_FALSE(transport->fits(third));
  EXPECT_THROW(save(three), Error);
  EXPECT_FALSE(three.on_host());
  EXPECT_EQ(transport->stats().host.pinned_bytes, 2 * pool.block_bytes(KvPart::window));
  one = KvBlock();
  EXPECT_TRUE(transport->fits(third));
  save(three);
  EXPECT_EQ(transport->stats().host.pinned_bytes, 2 * pool.block_bytes(KvPart::window));
  load(three);
  EXPECT_EQ(read(three), '3');
}

TEST_F(SmallTransport, MemoryOfADroppedStateIsFreeWhenItsCopyIsDone) {
  KvBlock one = block('1'), two = block('2'), three = block('3');
  save(one);
  host::hold(save_stream);
  save(two);
  two = KvBlock();
  KvBlock* const third[] = {&three};
  EXPECT_TRUE(transport->fits(third)) << "once the copy is done";
  std::jthread later([&] {
    let_others_run();
    host::release(save_stream);
  });
  save(three);
  load(three);
  EXPECT_EQ(read(three), '3');
  EXPECT_GE(transport->stats().waits, 1u);
}

// A piece of host memory holds one block of the window layers, or two of the full one.
TEST_F(SmallTransport, PartsShareTheHostMemory) {
  ASSERT_EQ(pool.block_bytes(KvPart::window), 2 * pool.block_bytes(KvPart::full));
  std::vector<KvBlock> full;
  for (int i = 0; i < 4; ++i) full.push_back(block(static_cast<char>('a' + i), KvPart::full));
  for (KvBlock& b : full) save(b);
  KvBlock window = block('w');
  KvBlock* const one[] = {&window};
  EXPECT_FALSE(transport->fits(one));
  full.erase(full.begin(), full.begin() + 2);
  transport->settle();
  EXPECT_TRUE(transport->fits(one)) << "the two shared a piece";
  save(window);
  load(full[0]);
  EXPECT_EQ(read(full[0]), 'c');
}

TEST_F(Transport, AFailedSaveIsKnownAndTheNextOneWorks) {
  KvBlock bad = block('b'), good = block('g');
  host::hold(save_stream);
  device.runtime().fail_at(Operation::copy, 1);
  save(bad);
  host::release(save_stream);
  transport->settle();
  KvBlock* const one[] = {&bad};
  EXPECT_FALSE(transport->intact(one));
  EXPECT_THROW(load(bad), Error);
  EXPECT_TRUE(bad.on_host());
  EXPECT_EQ(transport->stats().failed_saves, 1u);
  save(good);
  load(good);
  EXPECT_EQ(read(good), 'g');
}

// Not known yet when it is loaded: then the computation that waits for it fails.
TEST_F(Transport, ALoadOfAFailingSaveFailsTheComputation) {
  KvBlock bad = block('b'), good = block('g');
  host::hold(save_stream);
  device.runtime().fail_at(Operation::copy, 1);
  save(bad);
  load(bad);
  host::release(save_stream);
  EXPECT_THROW(compute->synchronize(), Error);
  transport->settle();
  save(good);
  load(good);
  EXPECT_EQ(read(good), 'g');
}

TEST_F(Transport, GoesOnWithPageableMemoryWherePinningFails) {
  KvBlock b = block('p');
  device.runtime().fail_at(Operation::allocation, 1);
  save(b);
  EXPECT_GT(transport->stats().host.pageable_bytes, 0u);
  EXPECT_EQ(transport->stats().host.pinned_bytes, 0u);
  load(b);
  EXPECT_EQ(read(b), 'p');
  EXPECT_EQ(transport->stats().waits, 2u) << "copies through a pinned buffer";
}

TEST_F(Transport, CopiesStayRightUnderRandomDelays) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    host::HostDevice slow({.order = {}, .max_delay = std::chrono::microseconds(300), .delay_seed = seed});
    KvPool own(slow, config, DType::f16, DType::f16, 0, 256);
    own.reserve(KvPart::window, 3, 3);
    const auto stream = slow.make_stream();
    const std::size_t bytes = own.block_bytes(KvPart::window);
    const Buffer in = slow.allocate_host(bytes * 8), out = slow.allocate_host(bytes);
    KvTransport carrier(slow, own, {.limit_bytes = 8 * bytes, .ahead_of_need = false});
    std::vector<KvBlock> states(8);
    for (std::size_t i = 0; i < states.size(); ++i) {
      std::memset(in.data() + i * bytes, static_cast<int>(i), bytes);
      states[i] = own.allocate(KvPart::window);
      stream->copy_to_device(states[i].data(), in.data() + i * bytes, bytes);
      KvBlock* const one[] = {&states[i]};
      carrier.save(one, *stream);
    }
    for (std::size_t i = states.size(); i-- > 0;) {
      KvBlock* const one[] = {&states[i]};
      carrier.load(one, *stream);
      stream->copy_to_host(out.data(), states[i].data(), bytes);
      stream->synchronize();
      states[i] = KvBlock();
      ASSERT_EQ(static_cast<std::size_t>(*out.data()), i) << "seed " << seed;
      ASSERT_EQ(std::memcmp(out.data(), in.data() + i * bytes, bytes), 0) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace bankml
