#include "darkroom/web/retry_rules.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using OutcomeKind = AttemptOutcome::Kind;

// 1994-11-06 08:49:37 UTC, the date of the examples of RFC 9110, section 5.6.7.
constexpr std::chrono::system_clock::time_point kSunday{seconds(784111777)};

constexpr seconds kTenYears = std::chrono::hours(24 * 3653);

AttemptOutcome failed(RowErrorCode code, bool is_network) { return {OutcomeKind::kFailed, 0, RowError{code}, std::nullopt, is_network}; }

AttemptOutcome answered(int status, std::optional<seconds> retry_after = std::nullopt) {
  AttemptOutcome outcome{OutcomeKind::kAnswered, status, std::nullopt, retry_after};
  if (status != 200) {
    outcome.error = RowError{RowErrorCode::kHttpStatus, status};
  }
  return outcome;
}

TEST(RetryRules, retries_what_may_pass_and_nothing_else) {
  for (const RowErrorCode code : {RowErrorCode::kConnect, RowErrorCode::kTruncated}) {
    EXPECT_TRUE(may_pass(failed(code, true))) << RowError{code}.name();
    EXPECT_TRUE(may_pass(failed(code, false))) << RowError{code}.name();
  }
  for (const RowErrorCode code : {RowErrorCode::kBadUrl, RowErrorCode::kTls, RowErrorCode::kTimeout, RowErrorCode::kTooManyRedirects,
                                  RowErrorCode::kBlockedHost, RowErrorCode::kTooLarge, RowErrorCode::kOptedOut}) {
    EXPECT_FALSE(may_pass(failed(code, true))) << RowError{code}.name();
    EXPECT_FALSE(may_pass(failed(code, false))) << RowError{code}.name();
  }
  EXPECT_TRUE(may_pass(failed(RowErrorCode::kDns, true)));    // SERVFAIL, no answer.
  EXPECT_FALSE(may_pass(failed(RowErrorCode::kDns, false)));  // NXDOMAIN.
}

TEST(RetryRules, retries_429_and_every_5xx) {
  for (int status = 200; status <= 999; ++status) {
    EXPECT_EQ(may_pass(answered(status)), status == 429 || (status >= 500 && status <= 599)) << status;
  }
}

TEST(RetryRules, a_host_asks_to_wait_by_429_or_by_503_with_a_time) {
  EXPECT_TRUE(asks_to_wait(answered(429)));
  EXPECT_TRUE(asks_to_wait(answered(429, seconds(0))));
  EXPECT_TRUE(asks_to_wait(answered(503, seconds(1))));
  EXPECT_FALSE(asks_to_wait(answered(503)));
  EXPECT_FALSE(asks_to_wait(answered(503, seconds(0))));
  EXPECT_FALSE(asks_to_wait(answered(500, seconds(9))));
  EXPECT_FALSE(asks_to_wait(answered(200, seconds(9))));
  EXPECT_FALSE(asks_to_wait(answered(404, seconds(9))));
  AttemptOutcome redirect{OutcomeKind::kRedirect, 429};
  EXPECT_FALSE(asks_to_wait(redirect));
}

TEST(RetryRules, a_store_is_asked_again_after_these_statuses_only) {
  for (int status = 100; status <= 999; ++status) {
    const bool is_listed = status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
    EXPECT_EQ(store_status_may_pass(status), is_listed) << status;
  }
}

TEST(Backoff, doubles_from_the_first_wait_up_to_the_longest) {
  const Backoff backoff{milliseconds(200), seconds(20)};
  const int64_t whole[] = {200, 400, 800, 1600, 3200, 6400, 12'800, 20'000, 20'000};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(backoff.delay(i, 1.0), milliseconds(whole[i])) << i;
    EXPECT_EQ(backoff.delay(i, 0.0), milliseconds(whole[i] / 2)) << i;
  }
}

TEST(Backoff, stays_between_half_and_all_of_the_wait) {
  const Backoff backoff{milliseconds(500), seconds(60)};
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> chance(0.0, 1.0);
  milliseconds least = seconds(9), most{0};
  for (int i = 0; i < 10'000; ++i) {
    const milliseconds delay = backoff.delay(1, chance(random));
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, milliseconds(500));
  EXPECT_LE(most, milliseconds(1000));
  EXPECT_LT(least, milliseconds(510));  // It uses the whole range, or the hosts are met in step.
  EXPECT_GT(most, milliseconds(990));
}

TEST(Backoff, hostile_arguments_give_a_wait_within_the_limits) {
  EXPECT_EQ((Backoff{milliseconds(500), seconds(60)}.delay(2'000'000'000, 1.0)), seconds(60));
  EXPECT_EQ((Backoff{milliseconds(500), seconds(60)}.delay(-1, 1.0)), milliseconds(500));
  EXPECT_EQ((Backoff{milliseconds(500), seconds(60)}.delay(0, 7.0)), milliseconds(500));
  EXPECT_EQ((Backoff{milliseconds(500), seconds(60)}.delay(0, -7.0)), milliseconds(250));
  EXPECT_EQ((Backoff{milliseconds(0), seconds(60)}.delay(9, 1.0)), milliseconds(0));
  for (const int num_retries : {0, 1, 60}) {
    EXPECT_EQ((Backoff{milliseconds::max(), milliseconds::max()}.delay(num_retries, 1.0)), milliseconds::max());
    EXPECT_EQ((Backoff{milliseconds::max(), milliseconds::max()}.delay(num_retries, 0.0)), milliseconds::max() / 2);
    EXPECT_EQ((Backoff{milliseconds::min(), seconds(60)}.delay(num_retries, 1.0)), milliseconds(0));
    EXPECT_EQ((Backoff{milliseconds(500), milliseconds::min()}.delay(num_retries, 1.0)), milliseconds(0));
  }
  EXPECT_EQ((Backoff{milliseconds(500), seconds(60)}.delay(0, std::numeric_limits<double>::quiet_NaN())), milliseconds(250));
}

TEST(RetryAfter, reads_seconds) {
  EXPECT_EQ(parse_retry_after("0", kSunday), seconds(0));
  EXPECT_EQ(parse_retry_after("1", kSunday), seconds(1));
  EXPECT_EQ(parse_retry_after("120", kSunday), seconds(120));
  EXPECT_EQ(parse_retry_after(" \t120 ", kSunday), seconds(120));
  EXPECT_EQ(parse_retry_after("0007", kSunday), seconds(7));
}

TEST(RetryAfter, reads_the_three_forms_of_a_date) {
  for (const char* date : {"Sun, 06 Nov 1994 08:50:37 GMT", "Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994"}) {
    EXPECT_EQ(parse_retry_after(date, kSunday), seconds(60)) << date;
  }
}

TEST(RetryAfter, a_wait_for_a_date_does_not_end_before_it) {
  for (const int late : {0, 1, 500, 999}) {
    const auto now = kSunday + milliseconds(late);
    EXPECT_GE(now + parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now).value(), kSunday + seconds(60)) << late;
  }
}

TEST(RetryAfter, a_date_that_has_passed_asks_for_nothing) {
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", kSunday), seconds(0));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:36 GMT", kSunday), seconds(0));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:00:01 GMT", kSunday), seconds(0));
}

TEST(RetryAfter, is_ten_years_at_most) {
  EXPECT_EQ(parse_retry_after("1000000000", kSunday), kTenYears);
  EXPECT_EQ(parse_retry_after("9223372036854775807", kSunday), kTenYears);
  EXPECT_EQ(parse_retry_after("9223372036854775808", kSunday), kTenYears);
  EXPECT_EQ(parse_retry_after(std::string(10'000, '9'), kSunday), kTenYears);
  EXPECT_EQ(parse_retry_after("Fri, 31 Dec 2100 23:59:59 GMT", kSunday), kTenYears);
}

TEST(RetryAfter, what_is_neither_seconds_nor_a_date_is_nothing) {
  for (const char* value :
       {"", " ", "-1", "+5", "1.5", "120s", "1e9", "soon", "Sun", "0x10", "12 34", ",", "Retry", "\xff\xfe", "1994-11-06"}) {
    EXPECT_EQ(parse_retry_after(value, kSunday), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace darkroom
