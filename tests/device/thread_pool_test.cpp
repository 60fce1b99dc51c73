#include "device/cpu/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bankml {
namespace {

TEST(ThreadPool, CallsTheFunctionOnceOnEachThreadWithTheCallerAsTheFirst) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  int seen[3] = {};
  pool.run([&](int thread, int threads) {
    EXPECT_EQ(threads, 3);
    ids[static_cast<std::size_t>(thread)] = std::this_thread::get_id();
    ++seen[thread];
  });
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 3);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[2]);
}

TEST(ThreadPool, MakesTheWorkOfOneRunVisibleToTheNext) {
  ThreadPool pool(2);
  std::vector<int> values(2);
  for (int round = 0; round < 2000; ++round) {
    pool.run([&](int thread, int) { values[static_cast<std::size_t>(thread)] = round; });
    ASSERT_EQ(values[0] + values[1], 2 * round);
  }
}

TEST(ThreadPool, VisitsEveryItemOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const std::int64_t items : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(items));
      pool.for_each(items, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& count : visits) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, LetsCallersOfDifferentThreadsTakeTurns) {
  ThreadPool pool(2);
  int count = 0;  // not atomic: the turns order it
  const auto call = [&] {
    for (int i = 0; i < 500; ++i) {
      pool.run([&](int thread, int) {
        if (thread == 1) ++count;
      });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(count, 1000);
}

TEST(ThreadPool, SharesWorkAmongThreadsThatComeInTimeEachOnceAndNoneAfterIt) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> calls[kThreads] = {};
    pool.share([&](int thread, int threads) {
      EXPECT_EQ(threads, kThreads);
      ++calls[thread];
    });
    const int after = calls[0] + calls[1] + calls[2];
    ASSERT_EQ(calls[0], 1);
    ASSERT_LE(calls[1], 1);
    ASSERT_LE(calls[2], 1);
    std::this_thread::yield();
    ASSERT_EQ(calls[0] + calls[1] + calls[2], after);
  }
}

TEST(ThreadPool, MakesSharedWorkVisibleToTheCaller) {
  ThreadPool pool(2);
  std::vector<int> values(64);
  for (int round = 1; round < 2000; ++round) {
    pool.for_each(64, [&](std::int64_t i) { values[static_cast<std::size_t>(i)] += round; });
    ASSERT_EQ(values[static_cast<std::size_t>(round % 64)], round * (round + 1) / 2);
  }
}

TEST(ThreadPool, WakesThreadsThatHaveGoneToSleep) {
  ThreadPool pool(2);
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run([&](int thread, int) {
      if (thread == 1) ++count;
    });
  }
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace bankml
