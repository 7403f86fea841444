#include "s3_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace darkroom {

std::string S3Name::uri() const {
  std::string shown;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f || c == '%' || c == '?' || c == '#' ? fmt::format("%{:02X}", byte) : std::string(1, c);
  }
  return key.empty() ? fmt::format("s3://{}", bucket) : fmt::format("s3://{}/{}", bucket, shown);
}

std::string_view operation_of(const S3Call& call) {
  const auto asks = [&](std::string_view name) { return std::ranges::any_of(call.query, [&](const auto& q) { return q.name == name; }); };
  const auto says = [&](std::string_view name) { return std::ranges::any_of(call.headers, [&](const auto& h) { return h.name == name; }); };
  const bool is_of_upload = asks("uploadId");
  if (call.method == "PUT") {
    const bool is_copy = says("x-amz-copy-source");
    return is_copy ? (is_of_upload ? "copy_part" : "copy") : (is_of_upload ? "upload_part" : "put");
  }
  if (call.method == "POST") {
    return is_of_upload ? "complete" : "create_upload";
  }
  if (call.method == "DELETE") {
    return is_of_upload ? "abort" : "remove";
  }
  if (call.method == "HEAD") {
    return "head";
  }
  return asks("uploads") ? "list_uploads" : is_of_upload ? "list_parts" : asks("list-type") ? "list" : "get";
}

S3Error error_in(const S3Call& call, int status, const std::string& body) {
  if (status / 100 != 2) {
    Result<S3Error> error = read_error(body);
    return error.is_ok() ? *std::move(error) : S3Error{};
  }
  if (call.outcome_root.empty()) {
    return {};
  }
  Result<std::optional<S3Error>> outcome = read_outcome(body, call.outcome_root);
  if (!outcome.is_ok()) {
    return {.code = "InternalError", .message = {}, .request_id = {}, .region = {}};  // Neither done nor failed: asked again.
  }
  return outcome->value_or(S3Error{});
}

std::string_view result_word(const S3Reply& reply, S3Verdict verdict) {
  if (verdict == S3Verdict::kRetry || verdict == S3Verdict::kSlowDown) {
    return verdict == S3Verdict::kRetry ? "failed" : "slow_down";
  }
  return reply.is_ok() ? "ok" : reply.status == 404 ? "missing" : "refused";
}

std::string_view result_word(HttpEnd end) {
  if (end == HttpEnd::kCancelled || end == HttpEnd::kStopped) {
    return "stopped";
  }
  return judge_s3_end(end) == S3Verdict::kSilent ? "silent" : "broken";
}

S3Words words_of(const S3Reply& reply) {
  const std::string& code = reply.error.code;
  if (code == "NoSuchBucket") {
    return {StatusCode::kFailedPrecondition, "there is no such bucket"};
  }
  if (code == "NoSuchUpload") {
    return {StatusCode::kUnavailable, "a sweep took the upload; run the same command again"};
  }
  if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch" || code == "InvalidToken") {
    return {StatusCode::kFailedPrecondition, "the store does not take these credentials; check keys, profile and region"};
  }
  if (code == "QuotaExceeded" || reply.status == 507) {
    return {StatusCode::kResourceExhausted, "the store's quota is used up"};
  }
  switch (reply.status) {
    case 401:
    case 403:
      return {StatusCode::kFailedPrecondition, "the store forbids it; check credentials and the bucket's policy"};
    case 404:
      return {StatusCode::kNotFound, "there is no such object"};
    case 412:
      return {StatusCode::kFailedPrecondition, "the object changed meanwhile"};
    case 501:
      return {StatusCode::kFailedPrecondition, "the store cannot do this"};
    default:
      break;
  }
  return reply.status >= 500 || reply.status == 429 || judge_s3_answer(reply.status, code) != S3Verdict::kFinal
             ? S3Words{StatusCode::kUnavailable, "the store failed"}
             : S3Words{StatusCode::kFailedPrecondition, "the store refuses it"};
}

}  // namespace darkroom
