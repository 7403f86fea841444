#include "darkroom/web/retry_rules.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace darkroom {
namespace {

using std::chrono::seconds;

constexpr seconds kLongestRetryAfter = std::chrono::hours(24 * 3653);
constexpr int kMostDoublings = 30;

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

seconds read_seconds(std::string_view digits) {
  int64_t count = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  return failure == std::errc() ? std::min(seconds(count), kLongestRetryAfter) : kLongestRetryAfter;  // Too many digits.
}

}  // namespace

bool may_pass(const AttemptOutcome& outcome) {
  if (!outcome.error) {
    return false;
  }
  switch (outcome.error->code) {
    case RowErrorCode::kConnect:
    case RowErrorCode::kTruncated:
      return true;
    case RowErrorCode::kDns:
      return outcome.is_network;
    case RowErrorCode::kHttpStatus:
      return outcome.error->http_status == 429 || (outcome.error->http_status >= 500 && outcome.error->http_status <= 599);
    default:
      return false;
  }
}

bool asks_to_wait(const AttemptOutcome& outcome) {
  return outcome.kind == AttemptOutcome::Kind::kAnswered &&
         (outcome.status == 429 || (outcome.status == 503 && outcome.retry_after.value_or(seconds(0)) > seconds(0)));
}

bool store_status_may_pass(int status) { return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504); }

std::chrono::milliseconds Backoff::delay(int num_retries, double chance) const {
  const int64_t factor = int64_t{1} << std::clamp(num_retries, 0, kMostDoublings);
  const int64_t from = std::max<int64_t>(first.count(), 0);
  const int64_t most = std::max<int64_t>(longest.count(), 0);
  const int64_t whole = from > most / factor ? most : from * factor;  // Compared so that nothing overflows.
  const int64_t half = whole / 2;
  const double share = chance > 0 ? std::min(chance, 1.0) : 0.0;  // Also of no number.
  return std::chrono::milliseconds(share < 1 ? half + static_cast<int64_t>(static_cast<double>(whole - half) * share) : whole);
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view value, std::chrono::system_clock::time_point now) {
  value = without_blanks(value);
  if (value.empty()) {
    return std::nullopt;
  }
  if (std::ranges::all_of(value, is_decimal)) {
    return read_seconds(value);
  }
  if (!is_letter(value.front())) {  // All forms of a date begin with the day's name.
    return std::nullopt;
  }
  const time_t date = curl_getdate(std::string(value).c_str(), nullptr);
  if (date == -1) {
    return std::nullopt;
  }
  const auto wait = seconds(date) - std::chrono::floor<seconds>(now.time_since_epoch());  // Never ends before the date.
  return std::clamp(wait, seconds(0), kLongestRetryAfter);
}

}  // namespace darkroom
