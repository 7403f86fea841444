#include "stores/s3_key_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace darkroom {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

/// Gives out keys "1", "2", ... that hold for `lifetime`.
struct FakeIssuer {
  FakeClock clock;
  std::optional<seconds> lifetime = seconds(3600);
  Status failure;
  int num_asked = 0;
  S3KeyRing ring{[this]() -> Result<S3Credentials> {
                   ++num_asked;
                   if (!failure.is_ok()) {
                     return failure;
                   }
                   S3Keys keys{.id = std::to_string(num_asked), .secret = "s", .token = "t"};
                   if (lifetime) {
                     keys.expires = std::chrono::floor<seconds>(clock.wall()) + *lifetime;
                   }
                   return S3Credentials{.keys = keys, .origin = "fake"};
                 },
                 clock};

  std::string get(bool anew = false) {
    const auto keys = ring.get(anew);
    return keys.is_ok() ? keys->value().id : keys.status().message();
  }
};

TEST(S3KeyRing, keeps_keys_that_do_not_expire) {
  FakeIssuer issuer;
  issuer.lifetime.reset();
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(std::chrono::hours(1000));
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.num_asked, 1);
}

TEST(S3KeyRing, renews_five_minutes_before_they_expire) {
  FakeIssuer issuer;
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(minutes(55) - seconds(1));
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(seconds(1));
  EXPECT_EQ(issuer.get(), "2");
  EXPECT_EQ(issuer.get(), "2");
}

TEST(S3KeyRing, old_keys_are_used_while_new_ones_are_not_given_out) {
  FakeIssuer issuer;
  EXPECT_EQ(issuer.get(), "1");
  issuer.failure = Status::unavailable("no answer");
  issuer.clock.advance(minutes(56));
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.num_asked, 2);  // Not for each request.
  issuer.clock.advance(seconds(30));
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.num_asked, 3);
  issuer.clock.advance(minutes(4));
  EXPECT_EQ(issuer.get(), "no answer");  // Now they have expired.
  issuer.failure = Status::ok();
  EXPECT_EQ(issuer.get(), "5");
}

TEST(S3KeyRing, warns_when_no_new_keys_are_given_out_but_not_at_a_stop) {
  FakeIssuer issuer;
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(minutes(56));
  issuer.failure = Status::cancelled("stopped");
  testing::internal::CaptureStderr();
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(issuer.num_asked, 2);
  issuer.failure = Status::unavailable("no answer");
  issuer.clock.advance(seconds(30));
  testing::internal::CaptureStderr();
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("expire soon"));
}

TEST(S3KeyRing, asks_anew_when_the_store_says_so_but_not_for_each_request_that_was_under_way) {
  FakeIssuer issuer;
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(minutes(1));
  EXPECT_EQ(issuer.get(true), "2");
  EXPECT_EQ(issuer.get(true), "2");
  issuer.clock.advance(seconds(10));
  EXPECT_EQ(issuer.get(true), "3");
}

TEST(S3KeyRing, keys_that_never_hold_long_are_asked_for_now_and_then) {
  FakeIssuer issuer;
  issuer.lifetime = seconds(120);
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.get(), "1");
  issuer.clock.advance(seconds(30));
  EXPECT_EQ(issuer.get(), "2");
}

TEST(S3KeyRing, keys_that_have_expired_when_they_are_given_out_are_used_and_not_asked_for_at_each_request) {
  FakeIssuer issuer;
  issuer.lifetime = seconds(-60);  // By our clock, which may be the wrong one.
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.get(), "1");
  EXPECT_EQ(issuer.num_asked, 1);
  issuer.clock.advance(seconds(30));
  EXPECT_EQ(issuer.get(), "2");
  EXPECT_EQ(issuer.get(), "2");
}

TEST(S3KeyRing, a_failure_at_first_is_one_and_the_next_call_tries_again) {
  FakeIssuer issuer;
  issuer.failure = Status::failed_precondition("no credentials");
  EXPECT_EQ(issuer.get(), "no credentials");
  issuer.failure = Status::ok();
  EXPECT_EQ(issuer.get(), "2");
}

TEST(S3KeyRing, who_gave_out_keys_before_may_be_out_of_reach) {
  FakeIssuer issuer;
  issuer.failure = Status::failed_precondition("no credentials");
  EXPECT_EQ(issuer.ring.get(true).status().code(), StatusCode::kFailedPrecondition);
  issuer.failure = Status::ok();
  EXPECT_TRUE(issuer.ring.get(false).is_ok());
  issuer.failure = Status::failed_precondition("the helper ended with 1");
  issuer.clock.advance(minutes(1));
  EXPECT_EQ(issuer.ring.get(true).status().code(), StatusCode::kUnavailable);
}

TEST(S3KeyRing, anonymous_is_an_answer) {
  FakeClock clock;
  int num_asked = 0;
  S3KeyRing ring(
      [&]() -> Result<S3Credentials> {
        ++num_asked;
        return S3Credentials{.keys = std::nullopt, .origin = "anonymous"};
      },
      clock);
  EXPECT_EQ(ring.get(false).value().has_value(), false);
  EXPECT_EQ(ring.get(false).value().has_value(), false);
  EXPECT_EQ(num_asked, 1);
}

}  // namespace
}  // namespace darkroom
