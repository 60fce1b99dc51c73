#include "server/mailbox.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Can be moved so many times; then there is no memory for it.
struct Moved {
  explicit Moved(int times) : left(times) {}
  Moved(Moved&& other) : left(other.left - 1) {
    if (left < 0) throw std::bad_alloc();
  }
  Moved& operator=(Moved&&) = delete;
  int left;
};

class MailboxTest : public testing::Test {
 protected:
  int wakes = 0;
  Mailbox<int> mailbox{[this] { ++wakes; }};
};

TEST_F(MailboxTest, GivesItemsInOrder) {
  mailbox.put(1, 1);
  mailbox.put(2, 1);
  EXPECT_THAT(mailbox.take(), ElementsAre(1, 2));
  EXPECT_THAT(mailbox.take(), IsEmpty());
}

TEST_F(MailboxTest, WakesOnceForWhatWaits) {
  mailbox.put(1, 1);
  mailbox.put(2, 1);
  EXPECT_EQ(wakes, 1);
  mailbox.take();
  mailbox.put(3, 1);
  EXPECT_EQ(wakes, 2);
}

TEST_F(MailboxTest, WakesAgainWhenItHoldsTooManyBytes) {
  mailbox.put(1, 1);
  EXPECT_FALSE(mailbox.overflowing());
  mailbox.put(2, Mailbox<int>::kMaxBytes);
  EXPECT_TRUE(mailbox.overflowing());
  mailbox.put(3, 1);
  EXPECT_EQ(wakes, 2);
  mailbox.take();
  EXPECT_FALSE(mailbox.overflowing());
}

TEST_F(MailboxTest, WakesAgainWhenItHoldsTooManyItems) {
  for (std::size_t i = 0; i < Mailbox<int>::kMaxItems; ++i) mailbox.put(0, 0);
  EXPECT_TRUE(mailbox.overflowing());
  EXPECT_EQ(wakes, 2);
}

TEST(Mailbox, TellsTheTakerThatThereWasNoMemoryForAnItem) {
  int wakes = 0;
  Mailbox<Moved> mailbox([&] { ++wakes; });
  mailbox.put(Moved(0), 1);
  EXPECT_EQ(wakes, 1);
  try {
    mailbox.take();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  }
}

TEST(Mailbox, WakesAgainIfThereWasNoMemoryForIt) {
  int attempts = 0;
  Mailbox<int> mailbox([&] {
    if (++attempts < 3) throw std::bad_alloc();
  });
  mailbox.put(1, 1);
  EXPECT_EQ(attempts, 3);
  EXPECT_THAT(mailbox.take(), ElementsAre(1));
}

TEST_F(MailboxTest, DropsWhatComesAfterItIsClosed) {
  mailbox.put(1, 1);
  mailbox.close();
  mailbox.put(2, 1);
  EXPECT_THAT(mailbox.take(), IsEmpty());
  EXPECT_EQ(wakes, 1);
}

}  // namespace
}  // namespace bankml::test
