#include "stores/s3_retry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Instant = Clock::Instant;

TEST(s3_retry, knows_which_answers_may_pass) {
  struct Case {
    int status;
    std::string code;
    S3Verdict verdict;
  };
  const std::vector<Case> cases = {
      {200, "", S3Verdict::kFinal},
      {200, "InternalError", S3Verdict::kRetry},  // Of a completion.
      {200, "SlowDown", S3Verdict::kSlowDown},
      {301, "PermanentRedirect", S3Verdict::kWrongRegion},
      {301, "", S3Verdict::kWrongRegion},
      {307, "TemporaryRedirect", S3Verdict::kFinal},
      {400, "", S3Verdict::kFinal},
      {400, "AuthorizationHeaderMalformed", S3Verdict::kWrongRegion},
      {400, "ExpiredToken", S3Verdict::kExpiredKeys},
      {400, "RequestTimeout", S3Verdict::kRetry},
      {403, "AccessDenied", S3Verdict::kFinal},
      {403, "RequestTimeTooSkewed", S3Verdict::kSkewedClock},
      {404, "NoSuchKey", S3Verdict::kFinal},
      {405, "", S3Verdict::kFinal},
      {408, "", S3Verdict::kRetry},
      {409, "BucketAlreadyExists", S3Verdict::kFinal},
      {409, "ConditionalRequestConflict", S3Verdict::kRetry},
      {411, "MissingContentLength", S3Verdict::kFinal},
      {412, "PreconditionFailed", S3Verdict::kFinal},
      {429, "", S3Verdict::kSlowDown},
      {500, "InternalError", S3Verdict::kRetry},
      {500, "", S3Verdict::kRetry},
      {501, "NotImplemented", S3Verdict::kFinal},
      {502, "", S3Verdict::kRetry},
      {503, "SlowDown", S3Verdict::kSlowDown},
      {503, "", S3Verdict::kSlowDown},
      {504, "", S3Verdict::kRetry},
      {505, "", S3Verdict::kFinal},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(judge_s3_answer(c.status, c.code), c.verdict) << c.status << " " << c.code;
  }
}

TEST(s3_retry, knows_which_ends_may_pass) {
  EXPECT_EQ(judge_s3_end(HttpEnd::kConnectionRefused), S3Verdict::kRetry);
  EXPECT_EQ(judge_s3_end(HttpEnd::kUnresolved), S3Verdict::kRetry);
  EXPECT_EQ(judge_s3_end(HttpEnd::kBroken), S3Verdict::kRetry);
  EXPECT_EQ(judge_s3_end(HttpEnd::kTruncated), S3Verdict::kRetry);
  EXPECT_EQ(judge_s3_end(HttpEnd::kIdleTimeout), S3Verdict::kSilent);
  EXPECT_EQ(judge_s3_end(HttpEnd::kConnectTimeout), S3Verdict::kSilent);
  for (const HttpEnd end : {HttpEnd::kTls, HttpEnd::kNotHttp, HttpEnd::kCancelled, HttpEnd::kBadRequest, HttpEnd::kBodyTooLarge}) {
    EXPECT_EQ(judge_s3_end(end), S3Verdict::kFinal) << http_end_name(end);
  }
}

TEST(s3_rate, is_unlimited_until_the_bucket_complains) {
  S3Rate rate;
  const Instant now{seconds(1000)};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(rate.take_turn(now), now);
  }
  EXPECT_EQ(rate.limit(now), std::nullopt);
}

TEST(s3_rate, is_halved_at_most_once_a_second_and_grows_a_tenth_per_second) {
  S3Rate rate;
  Instant now{seconds(1000)};
  for (int i = 0; i < 100; ++i) {
    (void)rate.take_turn(now);
  }
  rate.slow_down(now);
  rate.slow_down(now + milliseconds(999));  // Said by one that was under way already.
  EXPECT_NEAR(rate.limit(now + milliseconds(999)).value(), 50 * std::pow(1.1, 0.999), 1e-6);
  now += seconds(1);
  rate.slow_down(now);
  EXPECT_NEAR(rate.limit(now).value(), 50 * 1.1 / 2, 1e-6);
  EXPECT_NEAR(rate.limit(now + seconds(10)).value(), 27.5 * std::pow(1.1, 10), 1e-6);
  EXPECT_EQ(rate.limit(now + seconds(70)), std::nullopt);  // Above 10,000.
  EXPECT_EQ(rate.take_turn(now + seconds(70)), now + seconds(70));
}

TEST(s3_rate, gives_turns_at_its_distance_and_none_for_idle_time) {
  S3Rate rate;
  const Instant now{seconds(1000)};
  for (int i = 0; i < 20; ++i) {
    (void)rate.take_turn(now);
  }
  rate.slow_down(now);  // To 10 per second.
  EXPECT_EQ(rate.take_turn(now), now);
  EXPECT_EQ(rate.take_turn(now), now + milliseconds(100));
  EXPECT_EQ(rate.take_turn(now), now + milliseconds(200));
  const Instant later = now + milliseconds(500);
  EXPECT_EQ(rate.take_turn(later), later);
  EXPECT_GT(rate.take_turn(later), later + milliseconds(90));
}

TEST(s3_rate, never_falls_below_one_request_per_second) {
  S3Rate rate;
  Instant now{seconds(1000)};
  for (int i = 0; i < 50; ++i, now += seconds(1)) {
    rate.slow_down(now);
  }
  EXPECT_GE(rate.limit(now).value(), 1.0);
}

}  // namespace
}  // namespace darkroom
