// The n-th allocation, copy or launch of a forward pass fails, for every n: that pass fails, the next one is right,
// nothing leaks.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/model/model.hpp"
#include "kernels/host_device.hpp"

namespace bankml {
namespace {

using host::Operation;

class Session {
 public:
  explicit Session(Device& device)
      : model_(Model::load(std::filesystem::path(BANKML_TEST_DATA) / "tiny/tiny-llama-F16.gguf", device)),
        pool_(device, model_->config(), DType::f16, DType::f16, 0),
        transformer_(*model_, pool_, {.max_rows = 8, .max_logit_rows = 1, .max_sequences = 1, .context = 128}) {}

  std::vector<float> run() {
    const std::vector<BatchRow> rows{{5, 0, 0, false}, {9, 1, 0, false}, {3, 2, 0, true}};
    KvSequence sequence;
    KvSequence* const one[] = {&sequence};
    try {
      transformer_.forward(rows, one);
    } catch (const Error&) {
      EXPECT_EQ(sequence.length(), 0) << "rows that were not computed";
      throw;
    }
    const auto logits = transformer_.logits(0);
    return {logits.begin(), logits.end()};
  }

 private:
  std::unique_ptr<Model> model_;
  KvPool pool_;
  Transformer transformer_;
};

// Fails each operation of a whole session once, load included; how many sessions failed.
int fail_each(Operation operation) {
  std::vector<float> expected;
  std::int64_t operations = 0;
  {
    host::HostDevice device;
    expected = Session(device).run();
    operations = device.runtime().count(operation);
  }
  int failed = 0;
  for (std::int64_t n = 1; n <= operations; ++n) {
    host::HostDevice device;
    device.runtime().fail_at(operation, n);
    try {
      EXPECT_EQ(Session(device).run(), expected) << "operation " << n << " failed";
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.kind(), operation == Operation::allocation ? ErrorKind::out_of_memory : ErrorKind::device)
          << error.what();
    }
    EXPECT_EQ(Session(device).run(), expected) << "after operation " << n << " had failed";
  }
  return failed;
}

TEST(Faults, AFailedLaunchFailsOnePass) {
  EXPECT_GT(fail_each(Operation::launch), 10);
}

TEST(Faults, AFailedCopyFailsOnePass) {
  EXPECT_GT(fail_each(Operation::copy), 3);
}

TEST(Faults, AFailedAllocationFailsOnePass) {
  EXPECT_GT(fail_each(Operation::allocation), 10);
}

TEST(Faults, TheSameTransformerGoesOnAfterAFailure) {
  host::HostDevice device;
  Session session(device);
  const std::vector<float> expected = session.run();
  const std::size_t buffers = device.runtime().buffers(), bytes = device.runtime().bytes();
  for (const Operation operation : {Operation::launch, Operation::copy}) {
    for (int n = 1;; ++n) {
      device.runtime().fail_at(operation, n);
      bool failed = false;
      try {
        session.run();
      } catch (const Error&) {
        failed = true;
      }
      if (!failed) break;
      EXPECT_EQ(session.run(), expected) << "operation " << n;
      EXPECT_EQ(device.runtime().buffers(), buffers);
      EXPECT_EQ(device.runtime().bytes(), bytes);
    }
    device.runtime().fail_at(operation, -1);
  }
}

}  // namespace
}  // namespace bankml
