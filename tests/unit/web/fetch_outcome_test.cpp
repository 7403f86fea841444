#include "web/fetch_outcome.h"

#include <gtest/gtest.h>

#include <string>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using OutcomeKind = AttemptOutcome::Kind;

const auto kNoon = std::chrono::sys_days(std::chrono::year(2026) / 3 / 1) + std::chrono::hours(12);

HttpResult answered(int status, const std::string& header = "") {
  HttpResult result;
  result.head.status = status;
  if (!header.empty()) {
    result.head.add_line(header);
  }
  return result;
}

TEST(FetchOutcome, of_an_answer_is_its_status) {
  for (const int status : {200, 203}) {
    const AttemptOutcome outcome = outcome_of(answered(status), {}, kNoon);
    EXPECT_EQ(outcome.kind, OutcomeKind::kAnswered);
    EXPECT_FALSE(outcome.error);
  }
  for (const int status : {201, 204, 206, 300, 304, 401, 404, 500}) {
    const AttemptOutcome outcome = outcome_of(answered(status, "Location: /elsewhere"), {}, kNoon);
    EXPECT_EQ(outcome.kind, OutcomeKind::kAnswered) << status;
    ASSERT_TRUE(outcome.error) << status;
    EXPECT_EQ(outcome.error->http_status, status);
  }
}

TEST(FetchOutcome, of_a_redirect_needs_a_place) {
  for (const int status : {301, 302, 303, 307, 308}) {
    EXPECT_EQ(outcome_of(answered(status, "Location: /elsewhere"), {}, kNoon).kind, OutcomeKind::kRedirect) << status;
    const AttemptOutcome lost = outcome_of(answered(status), {}, kNoon);
    EXPECT_EQ(lost.kind, OutcomeKind::kAnswered) << status;
    EXPECT_EQ(lost.error->name(), "http_" + std::to_string(status));
  }
}

TEST(FetchOutcome, tells_what_retry_after_asks_for) {
  EXPECT_EQ(outcome_of(answered(429, "Retry-After: 7"), {}, kNoon).retry_after, std::chrono::seconds(7));
  EXPECT_EQ(outcome_of(answered(503, "retry-after: Sun, 01 Mar 2026 12:00:30 GMT"), {}, kNoon).retry_after, std::chrono::seconds(30));
  EXPECT_EQ(outcome_of(answered(503, "Retry-After: soon"), {}, kNoon).retry_after, std::nullopt);
  EXPECT_EQ(outcome_of(answered(429), {}, kNoon).retry_after, std::nullopt);
}

TEST(FetchOutcome, of_what_we_stopped_is_our_reason) {
  HttpResult result = answered(200);
  result.end = HttpEnd::kStopped;
  const AttemptOutcome outcome = outcome_of(result, RowError{RowErrorCode::kOptedOut}, kNoon);
  EXPECT_EQ(outcome.kind, OutcomeKind::kAnswered);
  EXPECT_EQ(outcome.error->name(), "opted_out");
  EXPECT_FALSE(may_pass(outcome));
}

TEST(FetchOutcome, of_every_other_end_has_a_code_and_says_whose_it_may_be) {
  struct Meaning {
    HttpEnd end;
    const char* code;
    bool is_network;
    bool is_retried;
  };
  for (const auto& [end, code, is_network, is_retried] : {Meaning{HttpEnd::kBadRequest, "bad_url", false, false},
                                                          {HttpEnd::kUnresolved, "dns", true, true},
                                                          {HttpEnd::kRefusedAddress, "blocked_host", false, false},
                                                          {HttpEnd::kConnectionRefused, "connect", false, true},
                                                          {HttpEnd::kUnreachable, "connect", true, true},
                                                          {HttpEnd::kConnectTimeout, "timeout", true, false},
                                                          {HttpEnd::kTls, "tls", false, false},
                                                          {HttpEnd::kBroken, "connect", true, true},
                                                          {HttpEnd::kTruncated, "truncated", true, true},
                                                          {HttpEnd::kIdleTimeout, "timeout", true, false},
                                                          {HttpEnd::kDeadline, "timeout", true, false},
                                                          {HttpEnd::kNotHttp, "connect", false, true},
                                                          {HttpEnd::kHeadersTooLarge, "too_large", false, false},
                                                          {HttpEnd::kBodyTooLarge, "too_large", false, false},
                                                          {HttpEnd::kInternal, "connect", false, true}}) {
    HttpResult result;
    result.end = end;
    const AttemptOutcome outcome = outcome_of(result, {}, kNoon);
    EXPECT_EQ(outcome.kind, OutcomeKind::kFailed) << code;
    EXPECT_EQ(outcome.error->name(), code) << http_end_name(end);
    EXPECT_EQ(outcome.is_network, is_network) << http_end_name(end);
    EXPECT_EQ(may_pass(outcome), is_retried) << http_end_name(end);
  }
  for (const HttpEnd end : {HttpEnd::kSinkFailed, HttpEnd::kCancelled, HttpEnd::kNoDescriptors}) {
    HttpResult result;
    result.end = end;
    EXPECT_THROW(outcome_of(result, {}, kNoon), CheckFailure) << http_end_name(end);
  }
}

TEST(FetchOutcome, of_a_look_up_tells_a_name_that_is_none_from_a_resolver_in_trouble) {
  const AttemptOutcome none = outcome_of(DnsAnswer{DnsAnswer::Kind::kNoName});
  EXPECT_EQ(none.error->name(), "dns");
  EXPECT_FALSE(none.is_network);
  EXPECT_FALSE(may_pass(none));
  for (const auto kind : {DnsAnswer::Kind::kServerFailed, DnsAnswer::Kind::kTimeout}) {
    const AttemptOutcome trouble = outcome_of(DnsAnswer{kind});
    EXPECT_EQ(trouble.error->name(), "dns");
    EXPECT_TRUE(trouble.is_network);
    EXPECT_TRUE(may_pass(trouble));
  }
}

TEST(FetchOutcome, somebody_has_answered_where_bytes_came_or_a_refusal) {
  HttpResult result;
  result.end = HttpEnd::kDeadline;
  result.connected_after = std::chrono::microseconds(1);  // Also said of a kept connection that is dead.
  EXPECT_FALSE(was_answered(result));
  result.first_byte_after = std::chrono::microseconds(2);
  EXPECT_TRUE(was_answered(result));
  for (const HttpEnd end : {HttpEnd::kConnectionRefused, HttpEnd::kTls, HttpEnd::kNotHttp}) {
    result = {};
    result.end = end;
    EXPECT_TRUE(was_answered(result)) << http_end_name(end);
  }
}

}  // namespace
}  // namespace darkroom
