#include "ingest/host_tally.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

using std::chrono::milliseconds;

std::string names(const std::vector<HostCounts>& hosts) {
  std::string text;
  for (const HostCounts& host : hosts) {
    text += (text.empty() ? "" : " ") + host.host;
  }
  return text;
}

TEST(HostTally, counts_rows_failures_and_time_of_each_host) {
  HostTally tally;
  for (int i = 0; i < 3; ++i) {
    tally.add("many.test", i == 1, milliseconds(500));
  }
  tally.add("", true, milliseconds(1));
  const std::vector<HostCounts> top = tally.top(2);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top[0].host, "many.test");
  EXPECT_EQ(top[0].num_rows, 3);
  EXPECT_EQ(top[0].num_failed, 1);
  EXPECT_NEAR(top[0].seconds, 1.5, 1e-9);
  EXPECT_TRUE(HostTally().top(5).empty());
}

TEST(HostTally, names_the_hosts_of_most_rows_of_most_failures_and_of_most_time_in_turn) {
  HostTally tally;
  for (int host = 0; host < 20; ++host) {
    for (int row = 0; row < 100; ++row) {
      tally.add("good" + std::to_string(host), false, milliseconds(1));
    }
  }
  for (int row = 0; row < 5; ++row) {
    tally.add("failing", true, milliseconds(1));
  }
  tally.add("slow", false, milliseconds(20'000));
  tally.add("plain", false, milliseconds(1));
  EXPECT_EQ(names(tally.top(3)), "good0 failing slow");
  EXPECT_EQ(names(tally.top(4)), "good0 good1 failing slow");
  EXPECT_EQ(names(tally.top(1)), "good0");
  EXPECT_EQ(tally.top(100).size(), 23u);
}

TEST(HostTally, counts_nothing_that_is_longer_than_a_name_can_be) {
  HostTally tally;
  tally.add(std::string(253, 'a'), false, milliseconds(0));
  tally.add(std::string(254, 'a'), false, milliseconds(0));
  EXPECT_EQ(tally.top(5).size(), 1u);
}

TEST(HostTally, counts_hosts_beyond_its_bound_together) {
  HostTally tally;
  for (int i = 0; i < 70'000; ++i) {
    tally.add("host" + std::to_string(i), false, milliseconds(0));
  }
  tally.add("host5", false, milliseconds(0));
  const std::vector<HostCounts> top = tally.top(2);
  EXPECT_EQ(top[0].host, "(others)");
  EXPECT_EQ(top[0].num_rows, 70'000 - 65'536);
  EXPECT_EQ(top[1].host, "host5");
  EXPECT_EQ(tally.top(100'000).size(), 65'537u);
}

}  // namespace
}  // namespace darkroom
