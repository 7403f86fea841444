#include "fetch_outcome.h"

#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/web/url_hop.h"

namespace darkroom {
namespace {

RowErrorCode code_of(HttpEnd end) {
  switch (end) {
    case HttpEnd::kBadRequest:
      return RowErrorCode::kBadUrl;
    case HttpEnd::kUnresolved:
      return RowErrorCode::kDns;
    case HttpEnd::kRefusedAddress:
      return RowErrorCode::kBlockedHost;
    case HttpEnd::kConnectionRefused:
    case HttpEnd::kUnreachable:
    case HttpEnd::kBroken:
    case HttpEnd::kNotHttp:
    case HttpEnd::kInternal:  // libcurl met what it has no word for, and goes on.
      return RowErrorCode::kConnect;
    case HttpEnd::kConnectTimeout:
    case HttpEnd::kIdleTimeout:
    case HttpEnd::kDeadline:
      return RowErrorCode::kTimeout;
    case HttpEnd::kTls:
      return RowErrorCode::kTls;
    case HttpEnd::kTruncated:
      return RowErrorCode::kTruncated;
    case HttpEnd::kHeadersTooLarge:
    case HttpEnd::kBodyTooLarge:
      return RowErrorCode::kTooLarge;
    default:
      DARKROOM_CHECK(false, "an end that is no outcome:", http_end_name(end));
  }
}

AttemptOutcome answer_of(const HttpHead& head, std::chrono::system_clock::time_point wall) {
  AttemptOutcome outcome{.kind = AttemptOutcome::Kind::kAnswered, .status = head.status};
  if (has_wanted_body(head.status)) {
    return outcome;
  }
  if (redirect_location(head)) {
    outcome.kind = AttemptOutcome::Kind::kRedirect;
    return outcome;
  }
  outcome.error = RowError{RowErrorCode::kHttpStatus, head.status, {}};
  if (const auto value = head.find("retry-after")) {
    outcome.retry_after = parse_retry_after(*value, wall);
  }
  return outcome;
}

}  // namespace

AttemptOutcome outcome_of(const HttpResult& result, const std::optional<RowError>& stopped, std::chrono::system_clock::time_point wall) {
  if (stopped) {
    return {.kind = AttemptOutcome::Kind::kAnswered, .status = result.head.status, .error = stopped};
  }
  if (result.end == HttpEnd::kAnswered) {
    return answer_of(result.head, wall);
  }
  return {.kind = AttemptOutcome::Kind::kFailed,
          .status = result.head.status,
          .error = RowError{code_of(result.end), 0, result.detail},
          .is_network = may_be_own_network(result.end)};
}

AttemptOutcome outcome_of(const DnsAnswer& answer) {
  const std::string detail = "the name does not resolve: " + std::string(dns_answer_name(answer.kind));
  return answer.kind == DnsAnswer::Kind::kNoName ? refusal({RowErrorCode::kDns, 0, detail}) : network_failure(RowErrorCode::kDns, detail);
}

AttemptOutcome refusal(RowError error) { return {.kind = AttemptOutcome::Kind::kFailed, .error = std::move(error)}; }

AttemptOutcome network_failure(RowErrorCode code, std::string detail) {
  return {.kind = AttemptOutcome::Kind::kFailed, .error = RowError{code, 0, std::move(detail)}, .is_network = true};
}

bool may_try_next_address(HttpEnd end) {
  return end == HttpEnd::kConnectionRefused || end == HttpEnd::kUnreachable || end == HttpEnd::kConnectTimeout;
}

bool was_answered(const HttpResult& result) {
  return result.first_byte_after.has_value() || result.end == HttpEnd::kConnectionRefused || result.end == HttpEnd::kTls ||
         result.end == HttpEnd::kNotHttp;
}

}  // namespace darkroom
