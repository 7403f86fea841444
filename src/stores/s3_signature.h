#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

// AWS Signature Version 4 for S3, in its Authorization header form (AWS, "Signature Calculations for the Authorization Header:
// Transferring Payload in a Single Chunk"). Own code, because libcurl 7.88's CURLOPT_AWS_SIGV4 does not sort query parameters,
// signs a parameter without a value wrongly and breaks on "=" in keys. Pure functions: any thread, no clock, no network.

/// What a request is signed with. Never logged, never in a Status, never in an environment that a child sees.
struct S3Keys {
  std::string id;
  std::string secret;
  std::string token;  ///< Of temporary keys; empty: none.
  std::optional<std::chrono::sys_seconds> expires = std::nullopt;
};

/// One query parameter as it is meant, not encoded. No value and an empty value are sent as `?name` and `?name=` and sign alike.
struct S3Parameter {
  std::string name;
  std::optional<std::string> value;
};

/// One header field. `name` is in lower case, `value` is printable ASCII (metadata in other characters must be encoded before).
struct S3Header {
  std::string name;
  std::string value;
};

/// `payload_hash` of a body that is not hashed; S3 takes it over https only.
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

/// A request as it is meant: path and query are not encoded, bytes that are no UTF-8 are allowed in both.
struct S3Request {
  std::string method;  ///< "GET", "PUT", "POST", "HEAD" or "DELETE".
  std::string host;    ///< Exactly as the Host header is sent: with the port unless it is the scheme's own.
  /// Begins with "/". S3 takes it literally: empty segments, "." and ".." are parts of a key, so whoever sends it must not tidy it
  /// up either (libcurl: CURLOPT_PATH_AS_IS).
  std::string path;
  std::vector<S3Parameter> query;                           ///< Any order; a name may stand several times.
  std::vector<S3Header> headers;                            ///< Those to be signed, besides those that sign_request adds.
  std::string payload_hash{std::string(kUnsignedPayload)};  ///< Or SHA-256 of the body as 64 lower-case hex digits.
};

/// Where a signature holds.
struct SigningScope {
  std::string region;
  std::string service = "s3";
};

/// Under which name AWS serves a region: "amazonaws.com", those of China "amazonaws.com.cn".
std::string_view aws_domain_of(std::string_view region);

using WallTime = std::chrono::system_clock::time_point;

/// The headers that authenticate `request`, to be sent besides request.headers: x-amz-content-sha256, x-amz-date,
/// x-amz-security-token (temporary keys only) and authorization.
/// Errors: kInvalidArgument: empty keys, keys or header values with line breaks or other characters that no header may hold (they
/// are named and not shown), a region or host that is none.
/// REQUIRES: a known method, a path from "/", a payload hash of either kind, header names in lower case, none of them "host" or
/// one that is added here.
Result<std::vector<S3Header>> sign_request(const S3Request& request, const S3Keys& keys, const SigningScope& scope, WallTime now);

/// What is sent after the method: the path and the sorted query, both encoded. The server finds the signed canonical request in it.
std::string request_target(const S3Request& request);

/// `text` with every byte but A-Z a-z 0-9 - . _ ~ as %XX in upper case (RFC 3986, section 2; a space is %20).
std::string encode_s3_value(std::string_view text);

/// The same, with "/" left as it is: a path, or the value of x-amz-copy-source.
std::string encode_s3_path(std::string_view path);

// The steps of the calculation, as AWS names them. Each is tested against AWS's published examples.

/// Task 1: the request in canonical form, with `host` and every one of request.headers signed.
std::string canonical_request(const S3Request& request);

/// Task 2.
std::string string_to_sign(std::string_view canonical, const SigningScope& scope, WallTime now);

/// Task 3: the key, 32 raw bytes.
std::string signing_key(std::string_view secret, const SigningScope& scope, WallTime now);

/// The Authorization header's value for `request` with exactly `host` and request.headers signed.
std::string authorization_value(const S3Request& request, const S3Keys& keys, const SigningScope& scope, WallTime now);

/// The time as x-amz-date has it: 20130524T000000Z; fractions of a second are dropped.
std::string amz_date(WallTime time);

}  // namespace darkroom
