#include "stores/issued_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

/// "ID:SECRET:TOKEN seconds since 2026", or the failure.
std::string shape_of_keys(const Result<S3Keys>& keys) {
  if (!keys.is_ok()) {
    EXPECT_EQ(keys.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(keys.status().message(), Not(HasSubstr("CANARY")));
    return keys.status().message();
  }
  const std::string expires =
      keys->expires ? fmt::format(" {}", (*keys->expires - std::chrono::sys_days(std::chrono::year(2026) / 1 / 1)).count()) : "";
  return fmt::format("{}:{}:{}{}", keys->id, keys->secret, keys->token, expires);
}

std::string not_understood_keys(const std::string& why) { return "an answer with keys for S3 is not understood: " + why; }

TEST(IssuedKeys, of_containers_and_instances) {
  EXPECT_EQ(shape_of_keys(
                read_issued_keys(R"({"AccessKeyId":"A","SecretAccessKey":"S","Token":"T","Expiration":"2026-01-01T00:01:00Z"})", "Token")),
            "A:S:T 60");
  EXPECT_EQ(shape_of_keys(read_issued_keys(R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"S"})", "Token")), "A:S:");
  EXPECT_EQ(shape_of_keys(read_issued_keys(R"({"Code":"AssumeRoleUnauthorizedAccess","Message":"CANARY"})", "Token")),
            not_understood_keys("it says that there are none"));
  EXPECT_EQ(shape_of_keys(read_issued_keys(R"({"AccessKeyId":"CANARY"})", "Token")), not_understood_keys("the secret access key lacks"));
  EXPECT_EQ(shape_of_keys(read_issued_keys(R"({"AccessKeyId":1,"SecretAccessKey":"CANARY"})", "Token")),
            not_understood_keys("the access key's id lacks"));
  for (const std::string text : {"", "CANARY", "[\"CANARY\"]", "\"CANARY\"", "{\"CANARY\":"}) {
    EXPECT_EQ(shape_of_keys(read_issued_keys(text, "Token")), not_understood_keys("it is no JSON object")) << text;
  }
  EXPECT_EQ(shape_of_keys(read_issued_keys(std::string(50'000, '[') + "1" + std::string(50'000, ']'), "Token")),
            not_understood_keys("it is no JSON object"));
}

TEST(IssuedKeys, expire_at_a_time_of_any_offset) {
  const auto expiring = [](const std::string& time) {
    return shape_of_keys(read_issued_keys(fmt::format(R"({{"AccessKeyId":"A","SecretAccessKey":"S","Expiration":"{}"}})", time), "Token"));
  };
  EXPECT_EQ(expiring("2026-01-01T00:00:07.5Z"), "A:S: 7");
  EXPECT_EQ(expiring("2026-01-01T00:00:00+00:00"), "A:S: 0");
  EXPECT_EQ(expiring("2026-01-01T02:30:00+02:00"), "A:S: 1800");
  EXPECT_EQ(expiring("2025-12-31T23:00:00-01:30"), "A:S: 1800");
  for (const std::string time : {"CANARY", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "+00:00"}) {
    EXPECT_EQ(expiring(time), not_understood_keys("a time that is none")) << time;
  }
}

TEST(IssuedKeys, of_processes_say_their_version) {
  EXPECT_EQ(shape_of_keys(read_process_keys(R"({"Version":1,"AccessKeyId":"A","SecretAccessKey":"S","SessionToken":"T"})")), "A:S:T");
  for (const std::string text :
       {R"({"AccessKeyId":"A","SecretAccessKey":"CANARY"})", R"({"Version":2,"AccessKeyId":"CANARY"})", R"({"Version":"1"})", "CANARY"}) {
    EXPECT_EQ(shape_of_keys(read_process_keys(text)), not_understood_keys("it is no JSON object with \"Version\": 1")) << text;
  }
}

TEST(IssuedKeys, of_the_security_token_service) {
  const auto document = [](const std::string& inner) {
    return fmt::format("<AssumeRoleResponse xmlns=\"x\"><AssumeRoleResult>{}</AssumeRoleResult></AssumeRoleResponse>", inner);
  };
  EXPECT_EQ(shape_of_keys(read_assumed_keys(
                document("<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
                         "<Expiration>2026-01-01T00:00:05Z</Expiration></Credentials>"),
                "AssumeRole")),
            "A:S:T 5");
  EXPECT_EQ(shape_of_keys(read_assumed_keys(document("<Credentials><AccessKeyId>CANARY</AccessKeyId></Credentials>"), "AssumeRole")),
            not_understood_keys("the secret access key lacks"));
  EXPECT_EQ(shape_of_keys(read_assumed_keys(document(""), "AssumeRole")), not_understood_keys("the access key's id lacks"));
  EXPECT_EQ(shape_of_keys(read_assumed_keys("CANARY", "AssumeRole")), not_understood_keys("it is no XML"));
}

TEST(IssuedKeys, of_single_sign_on) {
  EXPECT_EQ(shape_of_keys(read_sign_on_keys(
                R"({"roleCredentials":{"accessKeyId":"A","secretAccessKey":"S","sessionToken":"T","expiration":1767225660000}})")),
            "A:S:T 60");
  EXPECT_EQ(shape_of_keys(read_sign_on_keys(R"({"roleCredentials":{"accessKeyId":"CANARY"}})")),
            not_understood_keys("the secret access key lacks"));
  EXPECT_EQ(shape_of_keys(read_sign_on_keys("[]")), not_understood_keys("the access key's id lacks"));
}

TEST(IssuedKeys, a_sign_on_is_a_token_and_its_end) {
  const auto token = read_sign_on_token(R"({"accessToken":"T","expiresAt":"2026-01-01T00:00:00UTC"})");
  EXPECT_EQ(token.value().token, "T");
  EXPECT_EQ(token.value().expires, std::chrono::sys_days(std::chrono::year(2026) / 1 / 1));
  for (const std::string text : {R"({"accessToken":"CANARY"})", R"({"expiresAt":"2026-01-01T00:00:00Z"})", "CANARY"}) {
    EXPECT_THAT(read_sign_on_token(text).status().message(), Not(HasSubstr("CANARY")));
  }
}

TEST(IssuedKeys, of_an_error_only_a_plain_code_is_shown) {
  EXPECT_EQ(assume_error_code("<ErrorResponse><Error><Code>AccessDenied</Code><Message>CANARY</Message></Error></ErrorResponse>"),
            "AccessDenied");
  EXPECT_EQ(assume_error_code("<ErrorResponse><Error><Code>CANARY CANARY</Code></Error></ErrorResponse>"), "");
  EXPECT_EQ(assume_error_code("CANARY"), "");
}

}  // namespace
}  // namespace darkroom
