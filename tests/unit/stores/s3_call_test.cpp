#include "stores/s3_call.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace darkroom {
namespace {

TEST(s3_call, names_operations_by_what_they_send) {
  struct Case {
    std::string method;
    std::vector<S3Parameter> query;
    std::vector<S3Header> headers;
    std::string operation;
  };
  const S3Parameter upload{"uploadId", "7"};
  const S3Header source{"x-amz-copy-source", "b/k"};
  const std::vector<Case> cases = {
      {"GET", {}, {{"range", "bytes=0-1"}}, "get"},
      {"HEAD", {}, {}, "head"},
      {"GET", {{"list-type", "2"}}, {}, "list"},
      {"GET", {{"uploads", ""}}, {}, "list_uploads"},
      {"GET", {{"max-parts", "1"}, upload}, {}, "list_parts"},
      {"PUT", {}, {}, "put"},
      {"PUT", {}, {source}, "copy"},
      {"PUT", {{"partNumber", "1"}, upload}, {}, "upload_part"},
      {"PUT", {{"partNumber", "1"}, upload}, {source}, "copy_part"},
      {"POST", {{"uploads", ""}}, {}, "create_upload"},
      {"POST", {upload}, {}, "complete"},
      {"DELETE", {}, {}, "remove"},
      {"DELETE", {upload}, {}, "abort"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(operation_of({.doing = "testing", .method = c.method, .name = {}, .query = c.query, .headers = c.headers}), c.operation);
  }
}

TEST(s3_call, says_of_a_failure_what_kind_it_is) {
  struct Case {
    int status;
    std::string code;
    StatusCode kind;
    std::string words;
  };
  const std::vector<Case> cases = {
      {404, "NoSuchKey", StatusCode::kNotFound, "no such object"},
      {404, "NoSuchBucket", StatusCode::kFailedPrecondition, "no such bucket"},
      {404, "NoSuchUpload", StatusCode::kUnavailable, "a sweep took the upload"},
      {403, "SignatureDoesNotMatch", StatusCode::kFailedPrecondition, "does not take these credentials"},
      {400, "InvalidToken", StatusCode::kFailedPrecondition, "does not take these credentials"},
      {403, "AccessDenied", StatusCode::kFailedPrecondition, "forbids it"},
      {401, "", StatusCode::kFailedPrecondition, "forbids it"},
      {403, "QuotaExceeded", StatusCode::kResourceExhausted, "quota is used up"},
      {507, "", StatusCode::kResourceExhausted, "quota is used up"},
      {412, "PreconditionFailed", StatusCode::kFailedPrecondition, "changed meanwhile"},
      {501, "NotImplemented", StatusCode::kFailedPrecondition, "cannot do this"},
      {500, "", StatusCode::kUnavailable, "the store failed"},
      {505, "", StatusCode::kUnavailable, "the store failed"},
      {429, "", StatusCode::kUnavailable, "the store failed"},
      {200, "InternalError", StatusCode::kUnavailable, "the store failed"},  // Of a completion.
      {400, "InvalidRequest", StatusCode::kFailedPrecondition, "refuses it"},
  };
  for (const Case& c : cases) {
    const S3Words words = words_of({.status = c.status, .error = {c.code, "", "", ""}});
    EXPECT_EQ(words.code, c.kind) << c.status << " " << c.code;
    EXPECT_NE(words.what.find(c.words), std::string::npos) << c.status << " " << c.code << ": " << words.what;
  }
}

TEST(s3_call, finds_the_error_behind_any_status_that_may_hold_one) {
  const S3Call plain{.doing = "reading", .method = "GET", .name = {}};
  S3Call completion = plain;
  completion.outcome_root = "CompleteMultipartUploadResult";
  const std::string error = "<Error><Code>SlowDown</Code></Error>";
  EXPECT_EQ(error_in(plain, 503, error).code, "SlowDown");
  EXPECT_EQ(error_in(plain, 503, "<html>busy</html>").code, "");
  EXPECT_EQ(error_in(plain, 200, error).code, "");  // An object may hold such bytes.
  EXPECT_EQ(error_in(completion, 200, error).code, "SlowDown");
  EXPECT_EQ(error_in(completion, 200, "").code, "InternalError");  // Neither done nor failed.
}

TEST(s3_call, words_for_metrics_tell_apart_whom_an_end_is_of) {
  const S3Reply found{.status = 200};
  const S3Reply missing{.status = 404};
  const S3Reply refused{.status = 403};
  EXPECT_EQ(result_word(found, S3Verdict::kFinal), "ok");
  EXPECT_EQ(result_word(missing, S3Verdict::kFinal), "missing");
  EXPECT_EQ(result_word(refused, S3Verdict::kWrongRegion), "refused");
  EXPECT_EQ(result_word(refused, S3Verdict::kRetry), "failed");
  EXPECT_EQ(result_word(refused, S3Verdict::kSlowDown), "slow_down");
  EXPECT_EQ(result_word(HttpEnd::kCancelled), "stopped");
  EXPECT_EQ(result_word(HttpEnd::kIdleTimeout), "silent");
  EXPECT_EQ(result_word(HttpEnd::kConnectionRefused), "broken");
}

}  // namespace
}  // namespace darkroom
