#include "darkroom/ingest/retry_codes.h"

#include <algorithm>
#include <cctype>

#include "darkroom/core/row_error.h"
#include "darkroom/core/typing_mistakes.h"

namespace darkroom {
namespace {

constexpr std::string_view kHttp = "http_";
constexpr std::string_view kWholeClass = "xx";
// A longer word is none of ours, and comparing it would take time.
constexpr size_t kMostLettersOfCode = 64;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// "http_404" or "http_5xx".
bool is_http_code(std::string_view code) {
  if (!code.starts_with(kHttp) || code.size() != kHttp.size() + 3) {
    return false;
  }
  code.remove_prefix(kHttp.size());
  return is_digit(code[0]) && (code.substr(1) == kWholeClass || std::ranges::all_of(code, is_digit));
}

/// Every code but those of HTTP.
std::vector<std::string> plain_codes() {
  std::vector<std::string> codes;
  for (int code = 0; code <= static_cast<int>(RowErrorCode::kNanLatents); ++code) {
    if (static_cast<RowErrorCode>(code) != RowErrorCode::kHttpStatus) {
      codes.push_back(RowError{.code = static_cast<RowErrorCode>(code)}.name());
    }
  }
  return codes;
}

std::string nearest_code(std::string_view wanted, std::vector<std::string> known) {
  known.insert(known.end(), {"http_404", "http_5xx"});
  wanted = wanted.substr(0, kMostLettersOfCode);
  return *std::ranges::min_element(known, {}, [&](const std::string& code) { return typing_mistakes(wanted, code); });
}

}  // namespace

Result<RetryCodes> RetryCodes::parse(std::string_view text) {
  const std::vector<std::string> known = plain_codes();
  RetryCodes codes;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view code = rest.substr(0, comma);
    if (code.empty()) {
      return Status::invalid_argument("must be codes of failed rows, such as timeout,http_429,http_5xx, got:", text.substr(0, 100));
    }
    if (!is_http_code(code) && std::ranges::find(known, code) == known.end()) {
      return Status::invalid_argument(
          fmt::format("must be codes of failed rows; there is no such code, the nearest is {}, got:", nearest_code(code, known)),
          code.substr(0, 100));
    }
    codes.codes_.emplace_back(code);
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(codes.codes_);
  codes.codes_.erase(std::unique(codes.codes_.begin(), codes.codes_.end()), codes.codes_.end());  // That of ranges is beyond clang 14.
  return codes;
}

bool RetryCodes::contain(std::string_view code) const {
  return std::ranges::any_of(codes_, [&](std::string_view wanted) {
    const bool is_class = wanted.starts_with(kHttp) && wanted.ends_with(kWholeClass);
    return wanted == code || (is_class && is_http_code(code) && code[kHttp.size()] == wanted[kHttp.size()]);
  });
}

std::string RetryCodes::text() const {
  std::string text;
  for (const std::string& code : codes_) {
    text += (text.empty() ? "" : ",") + code;
  }
  return text;
}

}  // namespace darkroom
