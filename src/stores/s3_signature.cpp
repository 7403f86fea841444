#include "s3_signature.h"

#include <algorithm>
#include <array>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/hmac_sha256.h"
#include "darkroom/core/sha256.h"

namespace darkroom {
namespace {

constexpr std::array<std::string_view, 5> kMethods = {"GET", "PUT", "POST", "HEAD", "DELETE"};
constexpr std::array<std::string_view, 5> kOwnHeaders = {"host", "authorization", "x-amz-content-sha256", "x-amz-date",
                                                         "x-amz-security-token"};
constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_visible(char c) { return c > ' ' && c <= '~'; }
bool is_printable(char c) { return c >= ' ' && c <= '~'; }

std::string encode_bytes(std::string_view text, std::string_view kept) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_letter_or_digit(c) || kept.find(c) != std::string_view::npos) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 0xF];
    }
  }
  return encoded;
}

std::string hex_of_bytes(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return hex;
}

/// Name and value encoded, sorted by the encoded name, then by the encoded value: the order of the pairs, which is not that of
/// the joined texts ("a=" and "a-b=" change places) nor that of what is meant ("%C3" comes before "z").
std::vector<S3Parameter> encoded_query(const std::vector<S3Parameter>& query) {
  std::vector<S3Parameter> encoded;
  for (const S3Parameter& parameter : query) {
    encoded.push_back({.name = encode_s3_value(parameter.name), .value = std::nullopt});
    if (parameter.value) {
      encoded.back().value = encode_s3_value(*parameter.value);
    }
  }
  std::sort(encoded.begin(), encoded.end(), [](const S3Parameter& a, const S3Parameter& b) {
    return std::pair(std::string_view(a.name), std::string_view(a.value ? *a.value : "")) <
           std::pair(std::string_view(b.name), std::string_view(b.value ? *b.value : ""));
  });
  return encoded;
}

/// Without spaces at both ends, and with one space for several.
std::string trimmed_value(std::string_view value) {
  std::string trimmed;
  for (const char c : value) {
    if (c != ' ' || (!trimmed.empty() && trimmed.back() != ' ')) {
      trimmed += c;
    }
  }
  if (trimmed.ends_with(' ')) {
    trimmed.pop_back();
  }
  return trimmed;
}

/// Sorted by name; fields of one name joined by commas in the order in which they are sent.
std::vector<S3Header> canonical_headers(const S3Request& request) {
  std::vector<S3Header> headers = request.headers;
  headers.push_back({.name = "host", .value = request.host});
  std::stable_sort(headers.begin(), headers.end(), [](const S3Header& a, const S3Header& b) { return a.name < b.name; });
  std::vector<S3Header> joined;
  for (const S3Header& header : headers) {
    if (!joined.empty() && joined.back().name == header.name) {
      joined.back().value += "," + trimmed_value(header.value);
    } else {
      joined.push_back({.name = header.name, .value = trimmed_value(header.value)});
    }
  }
  return joined;
}

std::string signed_names(const S3Request& request) {
  std::string names;
  for (const S3Header& header : canonical_headers(request)) {
    names += (names.empty() ? "" : ";") + header.name;
  }
  return names;
}

std::string scope_text(const SigningScope& scope, WallTime now) {
  return fmt::format("{}/{}/{}/aws4_request", amz_date(now).substr(0, 8), scope.region, scope.service);
}

void require_well_formed(const S3Request& request) {
  DARKROOM_CHECK(std::count(kMethods.begin(), kMethods.end(), request.method) == 1, "unknown method:", request.method);
  DARKROOM_CHECK(request.path.starts_with('/'), "a path to be signed begins with a slash:", request.path);
  const std::string& hash = request.payload_hash;
  DARKROOM_CHECK(hash == kUnsignedPayload || (hash.size() == 64 && std::all_of(hash.begin(), hash.end(), is_lower_hex)),
                 "a payload hash is UNSIGNED-PAYLOAD or 64 lower-case hex digits:", hash);
  for (const S3Header& header : request.headers) {
    const auto fits = [](char c) { return (is_letter_or_digit(c) && !(c >= 'A' && c <= 'Z')) || c == '-'; };
    DARKROOM_CHECK(!header.name.empty() && std::all_of(header.name.begin(), header.name.end(), fits),
                   "a signed header's name is in lower case:", header.name);
    DARKROOM_CHECK(std::count(kOwnHeaders.begin(), kOwnHeaders.end(), header.name) == 0,
                   "the signature adds this header itself:", header.name);
  }
}

Status check_key(std::string_view name, std::string_view value) {
  if (std::all_of(value.begin(), value.end(), is_visible)) {
    return Status::ok();
  }
  return Status::invalid_argument(
      "cannot sign a request: a character that no key has (a line break or a space, perhaps at its end; the value is not shown) is in the",
      name);
}

Status check_keys(const S3Keys& keys) {
  if (keys.id.empty() || keys.secret.empty()) {
    return Status::invalid_argument("cannot sign a request: empty is the", keys.id.empty() ? "access key id" : "secret access key");
  }
  DARKROOM_RETURN_IF_ERROR(check_key("access key id", keys.id));
  DARKROOM_RETURN_IF_ERROR(check_key("secret access key", keys.secret));
  return check_key("session token", keys.token);
}

Status check_place(const S3Request& request, const SigningScope& scope) {
  const auto in_host = [](char c) { return is_letter_or_digit(c) || std::string_view("-._:[]").find(c) != std::string_view::npos; };
  const auto in_region = [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; };
  if (request.host.empty() || !std::all_of(request.host.begin(), request.host.end(), in_host)) {
    // Not shown where a password may stand in it.
    return request.host.find('@') != std::string::npos
               ? Status::invalid_argument("cannot sign a request: the endpoint must be HOST or HOST:PORT, without a user's name")
               : Status::invalid_argument("cannot sign a request: the endpoint must be HOST or HOST:PORT:", request.host);
  }
  if (scope.region.empty() || !std::all_of(scope.region.begin(), scope.region.end(), in_region)) {
    return Status::invalid_argument("cannot sign a request: the region must be a name such as us-east-1:", scope.region);
  }
  return Status::ok();
}

Status check_header_values(const S3Request& request) {
  for (const S3Header& header : request.headers) {
    if (!std::all_of(header.value.begin(), header.value.end(), is_printable)) {
      return Status::invalid_argument(
          "cannot sign a request: a character that is no printable ASCII (the value is not shown) is in the header", header.name);
    }
  }
  return Status::ok();
}

}  // namespace

std::string_view aws_domain_of(std::string_view region) { return region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com"; }

std::string encode_s3_value(std::string_view text) { return encode_bytes(text, "-._~"); }

std::string encode_s3_path(std::string_view path) { return encode_bytes(path, "-._~/"); }

std::string amz_date(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()), clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::string request_target(const S3Request& request) {
  std::string target = encode_s3_path(request.path);
  char separator = '?';
  for (const S3Parameter& parameter : encoded_query(request.query)) {
    target += separator + parameter.name + (parameter.value ? "=" + *parameter.value : "");
    separator = '&';
  }
  return target;
}

std::string canonical_request(const S3Request& request) {
  std::string canonical = request.method + "\n" + encode_s3_path(request.path) + "\n";
  const char* separator = "";
  for (const S3Parameter& parameter : encoded_query(request.query)) {
    canonical += separator + parameter.name + "=" + parameter.value.value_or("");
    separator = "&";
  }
  canonical += "\n";
  for (const S3Header& header : canonical_headers(request)) {
    canonical += header.name + ":" + header.value + "\n";
  }
  return canonical + "\n" + signed_names(request) + "\n" + request.payload_hash;
}

std::string string_to_sign(std::string_view canonical, const SigningScope& scope, WallTime now) {
  return fmt::format("{}\n{}\n{}\n{}", kAlgorithm, amz_date(now), scope_text(scope, now), sha256_hex(canonical));
}

std::string signing_key(std::string_view secret, const SigningScope& scope, WallTime now) {
  const std::string of_day = hmac_sha256("AWS4" + std::string(secret), amz_date(now).substr(0, 8));
  return hmac_sha256(hmac_sha256(hmac_sha256(of_day, scope.region), scope.service), "aws4_request");
}

std::string authorization_value(const S3Request& request, const S3Keys& keys, const SigningScope& scope, WallTime now) {
  const std::string signature = hmac_sha256(signing_key(keys.secret, scope, now), string_to_sign(canonical_request(request), scope, now));
  return fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, keys.id, scope_text(scope, now),
                     signed_names(request), hex_of_bytes(signature));
}

Result<std::vector<S3Header>> sign_request(const S3Request& request, const S3Keys& keys, const SigningScope& scope, WallTime now) {
  require_well_formed(request);
  DARKROOM_RETURN_IF_ERROR(check_keys(keys));
  DARKROOM_RETURN_IF_ERROR(check_place(request, scope));
  DARKROOM_RETURN_IF_ERROR(check_header_values(request));
  std::vector<S3Header> added = {{.name = "x-amz-content-sha256", .value = request.payload_hash},
                                 {.name = "x-amz-date", .value = amz_date(now)}};
  if (!keys.token.empty()) {
    added.push_back({.name = "x-amz-security-token", .value = keys.token});
  }
  S3Request whole = request;
  whole.headers.insert(whole.headers.end(), added.begin(), added.end());
  added.push_back({.name = "authorization", .value = authorization_value(whole, keys, scope, now)});
  return added;
}

}  // namespace darkroom
