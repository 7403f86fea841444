#include "stores/server_outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "support/leap_clock.h"

namespace darkroom {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using End = ServerOutage::End;

constexpr seconds kPatience{60};

/// What it counts about itself.
double num_out(MetricsRegistry& metrics) {
  return metrics.gauge("darkroom_stores_out_of_reach", "Stores that had answered before and cannot be reached now.", {{"scheme", "s3"}})
      .value();
}
int64_t num_outages(MetricsRegistry& metrics) {
  return metrics
      .counter("darkroom_store_outages_total", "How often a store that had answered before could not be reached.", {{"scheme", "s3"}})
      .value();
}

class server_outage : public testing::Test {
 protected:
  /// Answers the probe of this number and those that follow; remembers when each was.
  std::function<bool()> answered_from(size_t number) {
    return [this, number] {
      probed_at_.push_back(std::chrono::duration_cast<seconds>(clock_.now().time_since_epoch()).count());
      return probed_at_.size() > number;
    };
  }

  LeapClock clock_;
  MetricsRegistry metrics_;
  ServerOutage outage_{"s3://pictures", clock_, &metrics_, kPatience};
  std::vector<int64_t> probed_at_;
};

TEST_F(server_outage, is_none_where_a_probe_is_answered_at_once) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(outage_.outlast(answered_from(0), "why", {}), End::kNone);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_EQ(num_outages(metrics_), 0);
}

TEST_F(server_outage, is_asked_about_again_and_again_and_said_once) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(outage_.outlast(answered_from(6), "nobody knows the name", {}), End::kOver);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(probed_at_, ElementsAre(0, 1, 3, 7, 15, 25, 35));
  EXPECT_THAT(said, AllOf(HasSubstr("s3://pictures: the store cannot be reached; waiting"), HasSubstr("nobody knows the name"),
                          HasSubstr("s3://pictures: the store answers again after 35 s")));
  EXPECT_EQ(std::ranges::count(said, '\n'), 2);
  EXPECT_EQ(num_outages(metrics_), 1);
  EXPECT_EQ(num_out(metrics_), 0);
}

TEST_F(server_outage, lasts_no_longer_than_the_patience_for_all_together) {
  const auto never = answered_from(1000);
  EXPECT_EQ(outage_.outlast(never, "why", {}), End::kTooLong);
  EXPECT_THAT(probed_at_, ElementsAre(0, 1, 3, 7, 15, 25, 35, 45, 55, 60));
  EXPECT_EQ(outage_.outlast(never, "why", {}), End::kTooLong);
  EXPECT_EQ(probed_at_.size(), 11u) << "the one that comes late asks once";
  EXPECT_EQ(num_out(metrics_), 1);
  outage_.note_answer();
  EXPECT_EQ(num_out(metrics_), 0);
  EXPECT_EQ(num_outages(metrics_), 1);
}

/// Waits until the outage is known, and the waiter waits.
void await_outage(FakeClock& clock, MetricsRegistry& metrics) {
  ASSERT_TRUE(clock.await_waiting(1));
  ASSERT_EQ(num_out(metrics), 1);
}

TEST(server_outages, end_for_all_with_the_first_answer_to_anybody) {
  FakeClock clock;
  MetricsRegistry metrics;
  ServerOutage outage("s3://pictures", clock, &metrics, kPatience);
  std::jthread waiter([&] { EXPECT_EQ(outage.outlast([] { return false; }, "why", {}), End::kOver); });
  await_outage(clock, metrics);
  clock.advance(std::chrono::milliseconds(1));
  outage.note_answer();
  waiter.join();
  EXPECT_EQ(num_out(metrics), 0);
}

TEST(server_outages, end_at_once_for_whoever_is_stopped) {
  FakeClock clock;
  MetricsRegistry metrics;
  ServerOutage outage("s3://pictures", clock, &metrics, kPatience);
  std::stop_source stop;
  std::jthread waiter([&] { EXPECT_EQ(outage.outlast([] { return false; }, "why", stop.get_token()), End::kStopped); });
  await_outage(clock, metrics);
  stop.request_stop();  // No time passes.
  waiter.join();
  EXPECT_EQ(num_out(metrics), 0) << "nobody looks any more";
  clock.advance(2 * kPatience);
  bool is_back = false;  // The next one is an outage of its own, with patience.
  std::jthread later([&] { EXPECT_EQ(outage.outlast([&] { return is_back; }, "why", {}), End::kOver); });
  await_outage(clock, metrics);
  outage.note_answer();
}

TEST(server_outages, are_none_where_somebody_else_was_answered_after_the_probe_began) {
  LeapClock clock;
  MetricsRegistry metrics;
  ServerOutage outage("s3://pictures", clock, &metrics, kPatience);
  const auto meanwhile = [&] {
    outage.note_answer();
    return false;
  };
  EXPECT_EQ(outage.outlast(meanwhile, "why", {}), End::kNone);
  EXPECT_EQ(num_outages(metrics), 0);
}

TEST(server_outages, that_are_not_over_with_their_store_are_counted_no_longer) {
  LeapClock clock;
  MetricsRegistry metrics;
  {
    ServerOutage outage("s3://pictures", clock, &metrics, kPatience);
    EXPECT_EQ(outage.outlast([] { return false; }, "why", {}), End::kTooLong);
    EXPECT_EQ(num_out(metrics), 1);
  }
  EXPECT_EQ(num_out(metrics), 0);
}

TEST(server_outages, are_suspected_behind_every_end_that_a_broken_network_may_be) {
  for (const HttpEnd end : {HttpEnd::kUnresolved, HttpEnd::kUnreachable, HttpEnd::kConnectTimeout, HttpEnd::kBroken, HttpEnd::kTruncated,
                            HttpEnd::kIdleTimeout, HttpEnd::kDeadline, HttpEnd::kConnectionRefused}) {
    EXPECT_TRUE(is_out_of_reach(end)) << http_end_name(end);
  }
  for (const HttpEnd end : {HttpEnd::kAnswered, HttpEnd::kTls, HttpEnd::kNotHttp, HttpEnd::kBadRequest, HttpEnd::kNoDescriptors,
                            HttpEnd::kRefusedAddress, HttpEnd::kInternal}) {
    EXPECT_FALSE(is_out_of_reach(end)) << http_end_name(end);
  }
}

}  // namespace
}  // namespace darkroom
