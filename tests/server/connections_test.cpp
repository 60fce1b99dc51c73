#include "server/connections.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "server/policy.hpp"

namespace bankml::test {
namespace {

Request with_key(std::string key) {
  Request request;
  request.headers = {{"Authorization", "Bearer " + std::move(key)}};
  return request;
}

TEST(ConnectionCounter, LimitsAllConnections) {
  ConnectionCounter counter;
  ServerLimits limits;
  limits.connections = 2;
  auto first = counter.enter("", limits), second = counter.enter("10.0.0.1", limits);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_FALSE(counter.enter("10.0.0.2", limits));
  EXPECT_EQ(counter.refusals(), 1U);
  first = {};
  EXPECT_TRUE(counter.enter("10.0.0.2", limits));
}

TEST(ConnectionCounter, LimitsThoseOfOneAddressButNotOfUnixSockets) {
  ConnectionCounter counter;
  ServerLimits limits;
  limits.connections_per_address = 1;
  const auto held = counter.enter("10.0.0.1", limits);
  EXPECT_FALSE(counter.enter("10.0.0.1", limits));
  EXPECT_TRUE(counter.enter("10.0.0.2", limits));
  const auto local = counter.enter("", limits);
  EXPECT_TRUE(counter.enter("", limits));
}

TEST(ConnectionCounter, HasNoLimitAtZero) {
  ConnectionCounter counter;
  ServerLimits limits;
  limits.connections = limits.connections_per_address = 0;
  std::vector<ConnectionCounter::Ticket> tickets;
  for (int i = 0; i < 10000; ++i) tickets.push_back(counter.enter("10.0.0.1", limits));
  EXPECT_EQ(counter.open(), 10000);
  tickets.clear();
  EXPECT_EQ(counter.open(), 0);
}

TEST(Access, IsOpenToAllWithoutKeys) {
  EXPECT_EQ(access_of({}, {}), Access::admin);
}

TEST(Access, OfAnyKeyIsAnAdminsWhereThereAreNoAdminKeys) {
  ServerPolicy policy;
  policy.api_keys = {"user"};
  EXPECT_EQ(access_of(with_key("user"), policy), Access::admin);
  EXPECT_EQ(access_of(with_key("other"), policy), Access::refused);
}

TEST(Access, OfAnAdminKeyIsMore) {
  ServerPolicy policy;
  policy.api_keys = {"user"};
  policy.admin_keys = {"admin"};
  EXPECT_EQ(access_of(with_key("user"), policy), Access::user);
  EXPECT_EQ(access_of(with_key("admin"), policy), Access::admin);
  EXPECT_EQ(access_of({}, policy), Access::refused);
  policy.api_keys.clear();
  EXPECT_EQ(access_of({}, policy), Access::user);
}

TEST(Access, OfAdminsIsForWhatTouchesOthers) {
  EXPECT_TRUE(needs_admin("POST", "/slots/0"));
  EXPECT_TRUE(needs_admin("POST", "/props"));
  EXPECT_TRUE(needs_admin("GET", "/cache"));
  EXPECT_FALSE(needs_admin("GET", "/slots"));
  EXPECT_FALSE(needs_admin("GET", "/props"));
  EXPECT_FALSE(needs_admin("POST", "/completion"));
}

}  // namespace
}  // namespace bankml::test
