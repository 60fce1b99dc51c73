// Steps that repeat become graphs, and nothing else does: what runs is what was asked for, whatever came before.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "device/cuda/pass_graphs.hpp"
#include "kernels/host_device.hpp"

namespace bankml {
namespace {

using host::Operation;
using test::Bench;

constexpr int kDim = 32, kMaxRows = 64;

// A device whose operations scale rows of ones in place: the results tell how often which of them ran.
class Steps : public testing::Test {
 protected:
  Steps() : x_(bench_.upload(std::vector<float>(kMaxRows * kDim, 1.0f))) {}

  void scale(float factor, int rows = 1) {
    bench_.ops().scale_softcap(bench_.stream(), x_.as<float>(), std::int64_t{rows} * kDim, factor, 0);
  }
  // Gives up on graphs from `rows` on.
  void copy_rows(int rows) {
    bench_.ops().gather_rows(bench_.stream(), copies_.as<float>(), x_.as<float>(), index_.as<std::int32_t>(), rows,
                             kDim);
  }
  void finish() { bench_.stream().synchronize(); }
  void step(std::vector<float> factors) {
    for (const float factor : factors) scale(factor);
    finish();
  }
  float value(std::size_t i) { return bench_.download(x_.as<float>(), kMaxRows * kDim)[i]; }
  float first() { return value(0); }
  // Launches since the last call; a graph is one.
  std::int64_t launches() {
    const std::int64_t now = device_.runtime().count(Operation::launch), before = std::exchange(launches_, now);
    return now - before;
  }
  Bench& bench() { return bench_; }
  host::HostDevice& device() { return device_; }

 private:
  static std::vector<std::int32_t> indices(int n) {
    std::vector<std::int32_t> out;
    for (int i = 0; i < n; ++i) out.push_back(i);
    return out;
  }
  host::HostDevice device_;
  Bench bench_{device_};
  Buffer x_, copies_ = device_.allocate(kMaxRows * kDim * sizeof(float)), index_ = bench_.upload(indices(kMaxRows));
  std::int64_t launches_ = 0;
};

TEST_F(Steps, ThatRepeatAreOneLaunch) {
  const std::vector<float> factors = {2, 3, 5};
  step(factors);
  EXPECT_EQ(launches(), 3);
  step(factors);
  EXPECT_EQ(launches(), 3 + 1);  // captured, then run
  for (int i = 0; i < 3; ++i) {
    step(factors);
    EXPECT_EQ(launches(), 1);
  }
  EXPECT_EQ(first(), 30.0f * 30 * 30 * 30 * 30);
}

TEST_F(Steps, ThatDifferInTheMiddleRunAsAskedFor) {
  for (int i = 0; i < 3; ++i) step({2, 3, 2});
  launches();
  step({2, 5, 2});
  EXPECT_EQ(launches(), 3);
  EXPECT_EQ(first(), 12.0f * 12 * 12 * 20);
}

TEST_F(Steps, ThatEndEarlyRunAsFarAsTheyWent) {
  for (int i = 0; i < 2; ++i) step({2, 3, 2});
  step({2, 3});
  EXPECT_EQ(first(), 12.0f * 12 * 6);
  step({2, 3});
  step({2, 3});
  launches();
  step({2, 3});
  EXPECT_EQ(launches(), 1);
  EXPECT_EQ(first(), 12.0f * 12 * 6 * 6 * 6 * 6);
}

TEST_F(Steps, ThatGoOnLongerRunToTheEnd) {
  for (int i = 0; i < 3; ++i) step({2, 3});
  step({2, 3, 5});
  EXPECT_EQ(first(), 6.0f * 6 * 6 * 30);
}

TEST_F(Steps, OfSeveralKindsTakeTurnsAsGraphs) {
  const std::vector<std::vector<float>> kinds = {{2, 3, 2}, {2, 3, 5}, {2, 7, 2}, {3, 2}};
  for (int i = 0; i < 2; ++i) {
    for (const auto& kind : kinds) step(kind);
  }
  launches();
  for (const auto& kind : kinds) step(kind);
  EXPECT_EQ(launches(), 4);
  const float once = 12.0f * 30 * 28 * 6;
  EXPECT_EQ(first(), once * once * once);
}

TEST_F(Steps, OfAnotherNumberOfRowsAreOtherSteps) {
  for (int i = 0; i < 3; ++i) {
    scale(2, 1);
    finish();
  }
  scale(2, 2);
  finish();
  EXPECT_EQ(value(0), 16.0f);
  EXPECT_EQ(value(kDim), 2.0f);
}

TEST_F(Steps, OfManyRowsAreLaunchedAsTheyCome) {
  for (int i = 0; i < 3; ++i) {
    scale(2);
    copy_rows(host::kGraphRows + 1);
    scale(3);
    finish();
    EXPECT_EQ(launches(), 3);
  }
  EXPECT_EQ(first(), 6.0f * 6 * 6);
}

TEST_F(Steps, AreFollowedByCopiesInOrder) {
  for (int i = 0; i < 4; ++i) {
    scale(2);
    EXPECT_EQ(first(), static_cast<float>(2 << i)) << "no wait in between";
  }
}

TEST_F(Steps, AreSeenByStreamsThatWaitForTheirEvent) {
  const auto other = device().make_stream();
  const auto done = device().make_event();
  const Buffer there = device().allocate_host(sizeof(float)), x = bench().upload(std::vector<float>{1});
  for (int i = 0; i < 4; ++i) {
    bench().ops().scale_softcap(bench().stream(), x.as<float>(), 1, 2, 0);
    bench().stream().record(*done);
    other->wait(*done);
    other->copy_to_host(there.data(), x.data(), sizeof(float));
    other->synchronize();
    EXPECT_EQ(*there.as<float>(), static_cast<float>(2 << i));
  }
}

TEST_F(Steps, RunBeforeTheirStreamEnds) {
  const Buffer x = bench().upload(std::vector<float>{1});
  for (int i = 0; i < 3; ++i) {
    const auto stream = device().make_stream();
    bench().ops().scale_softcap(*stream, x.as<float>(), 1, 2, 0);
  }
  EXPECT_EQ(bench().download(x.as<float>(), 1)[0], 8.0f);
}

TEST_F(Steps, OfTwoStreamsStayApart) {
  const Buffer x = bench().upload(std::vector<float>{1}), y = bench().upload(std::vector<float>{1});
  const auto other = device().make_stream();
  for (int i = 0; i < 4; ++i) {
    bench().ops().scale_softcap(bench().stream(), x.as<float>(), 1, 2, 0);
    bench().ops().scale_softcap(*other, y.as<float>(), 1, 3, 0);
    bench().ops().scale_softcap(bench().stream(), x.as<float>(), 1, 2, 0);
    bench().stream().synchronize();
    other->synchronize();
  }
  EXPECT_EQ(bench().download(x.as<float>(), 1)[0], 256.0f);
  EXPECT_EQ(bench().download(y.as<float>(), 1)[0], 81.0f);
}

// Whichever launch fails, captured or not: it is told, and the steps after it are right.
TEST_F(Steps, AreRightAgainAfterAFailure) {
  for (int n = 1; n <= 2 + 3 + 4; ++n) {  // launched one by one, captured, four graphs
    host::HostDevice device;
    Bench bench(device);
    Buffer x = bench.upload(std::vector<float>{1});
    int failures = 0;
    const auto step = [&] {
      bool failed = false;
      const auto attempt = [&](auto&& work) {
        try {
          work();
        } catch (const Error&) {
          failed = true;
        }
      };
      // A launch that failed is told at a later call, at the latest by the wait, which forgets it.
      attempt([&] {
        for (const float factor : {2.0f, 3.0f}) bench.ops().scale_softcap(bench.stream(), x.as<float>(), 1, factor, 0);
      });
      attempt([&] { bench.stream().synchronize(); });
      failures += failed;
    };
    device.runtime().fail_at(Operation::launch, n);
    for (int i = 0; i < 6; ++i) step();
    EXPECT_EQ(failures, 1) << n;
    x = bench.upload(std::vector<float>{1});
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(bench.download(x.as<float>(), 1)[0], 216.0f) << n;
  }
}

}  // namespace
}  // namespace bankml
