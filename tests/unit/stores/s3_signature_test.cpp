#include "stores/s3_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "darkroom/core/check.h"
#include "darkroom/core/sha256.h"
#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kEmptySha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return hex;
}

WallTime utc(int year, unsigned month, unsigned day, int hour = 0, int minute = 0, int second = 0) {
  const std::chrono::year_month_day date(std::chrono::year{year}, std::chrono::month{month}, std::chrono::day{day});
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second);
}

/// Of the header that sign_request gave; empty where it is not among them.
std::string value_of(const std::vector<S3Header>& headers, std::string_view name) {
  for (const S3Header& header : headers) {
    if (header.name == name) {
      return header.value;
    }
  }
  return "";
}

// AWS, "Examples of how to derive a signing key".
TEST(SigningKey, equals_the_published_one) {
  EXPECT_EQ(to_hex(signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", {.region = "us-east-1", .service = "iam"}, utc(2015, 8, 30))),
            "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

struct PublishedExample {
  std::string name;
  S3Request request;
  std::string canonical_sha256;
  std::string signed_headers;
  std::string signature;
};

S3Request documented(std::string method, std::string path, std::vector<S3Parameter> query, std::vector<S3Header> headers,
                     std::string_view body = "") {
  return {.method = std::move(method),
          .host = "examplebucket.s3.amazonaws.com",
          .path = std::move(path),
          .query = std::move(query),
          .headers = std::move(headers),
          .payload_hash = sha256_hex(body)};
}

// The four examples of AWS's page "Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk".
std::vector<PublishedExample> documented_examples() {
  return {
      {"GET Object", documented("GET", "/test.txt", {}, {{"range", "bytes=0-9"}}),
       "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972", "host;range;x-amz-content-sha256;x-amz-date",
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {"PUT Object",
       documented("PUT", "/test$file.text", {}, {{"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"date", "Fri, 24 May 2013 00:00:00 GMT"}},
                  "Welcome to Amazon S3."),
       "9e0e90d9c76de8fa5b200d8c849cd5b8dc7a3be3951ddb7f6a76b4158342019d", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {"GET Bucket Lifecycle", documented("GET", "/", {{"lifecycle", std::nullopt}}, {}),
       "9766c798316ff2757b517bc739a67f6213b4ab36dd5da2f94eaebf79c77395ca", "host;x-amz-content-sha256;x-amz-date",
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"GET Bucket (List Objects)", documented("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}),
       "df57d21db20da04d7fa30298dd4488ba3a2b47ca3a489c74750e0f1e7df1b9b7", "host;x-amz-content-sha256;x-amz-date",
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
}

TEST(S3Signature, equals_the_examples_of_the_s3_documentation) {
  const S3Keys keys = {.id = "AKIAIOSFODNN7EXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", .token = ""};
  const SigningScope scope = {.region = "us-east-1"};
  for (const PublishedExample& example : documented_examples()) {
    SCOPED_TRACE(example.name);
    const auto headers = sign_request(example.request, keys, scope, utc(2013, 5, 24));
    ASSERT_TRUE(headers.is_ok()) << headers.status().to_string();
    EXPECT_EQ(value_of(*headers, "x-amz-date"), "20130524T000000Z");
    EXPECT_EQ(value_of(*headers, "x-amz-content-sha256"), example.request.payload_hash);
    EXPECT_EQ(value_of(*headers, "authorization"),
              "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=" +
                  example.signed_headers + ", Signature=" + example.signature);
    S3Request whole = example.request;
    whole.headers.push_back({"x-amz-content-sha256", whole.payload_hash});
    whole.headers.push_back({"x-amz-date", "20130524T000000Z"});
    EXPECT_EQ(string_to_sign(canonical_request(whole), scope, utc(2013, 5, 24)),
              "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n" + example.canonical_sha256);
  }
}

// AWS's Signature Version 4 test suite (aws-sig-v4-test-suite), those cases where S3's rules for paths are everybody's.
TEST(S3Signature, equals_the_test_suite_of_signature_version_4) {
  const std::string unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const std::string token =
      "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/"
      "qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+"
      "xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
  struct SuiteCase {
    std::string name, method, path;
    std::vector<S3Parameter> query;
    std::vector<S3Header> headers;
    std::string signed_headers, signature;
  };
  const std::string plain = "host;x-amz-date";
  const std::vector<SuiteCase> cases = {
      {"get-vanilla", "GET", "/", {}, {}, plain, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"post-vanilla", "POST", "/", {}, {}, plain, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       plain,
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-order-key",
       "GET",
       "/",
       {{"Param1", "value2"}, {"Param1", "Value1"}},
       {},
       plain,
       "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
      {"get-vanilla-query-order-value",
       "GET",
       "/",
       {{"Param1", "value2"}, {"Param1", "value1"}},
       {},
       plain,
       "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
      {"get-vanilla-query-unreserved",
       "GET",
       "/",
       {{unreserved, unreserved}},
       {},
       plain,
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {"get-vanilla-utf8-query",
       "GET",
       "/",
       {{"\u1234", "bar"}},
       {},
       plain,
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"get-unreserved", "GET", "/" + unreserved, {}, {}, plain, "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-utf8", "GET", "/\u1234", {}, {}, plain, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-space", "GET", "/example space/", {}, {}, plain, "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-header-key-duplicate",
       "GET",
       "/",
       {},
       {{"my-header1", "value2"}, {"my-header1", "value2"}, {"my-header1", "value1"}},
       "host;my-header1;x-amz-date",
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {"get-header-value-trim",
       "GET",
       "/",
       {},
       {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}},
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"post-header-value-case",
       "POST",
       "/",
       {},
       {{"my-header1", "VALUE1"}},
       "host;my-header1;x-amz-date",
       "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
      {"post-sts-header-before",
       "POST",
       "/",
       {},
       {{"x-amz-security-token", token}},
       "host;x-amz-date;x-amz-security-token",
       "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
  };
  const S3Keys keys = {.id = "AKIDEXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", .token = ""};
  for (const SuiteCase& one : cases) {
    S3Request request = {.method = one.method,
                         .host = "example.amazonaws.com",
                         .path = one.path,
                         .query = one.query,
                         .headers = one.headers,
                         .payload_hash = std::string(kEmptySha256)};
    request.headers.push_back({"x-amz-date", "20150830T123600Z"});
    EXPECT_EQ(authorization_value(request, keys, {.region = "us-east-1", .service = "service"}, utc(2015, 8, 30, 12, 36)),
              "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" + one.signed_headers +
                  ", Signature=" + one.signature)
        << one.name;
  }
}

S3Request request_of_json(const nlohmann::json& recorded) {
  S3Request request = {.method = recorded.at("method"),
                       .host = recorded.at("host"),
                       .path = recorded.at("path"),
                       .query = {},
                       .headers = {},
                       .payload_hash = recorded.at("payload_hash")};
  for (const auto& pair : recorded.at("query")) {
    request.query.push_back({.name = pair.at(0), .value = std::nullopt});
    if (!pair.at(1).is_null()) {
      request.query.back().value = pair.at(1).get<std::string>();
    }
  }
  for (const auto& pair : recorded.at("headers")) {
    request.headers.push_back({.name = pair.at(0), .value = pair.at(1)});
  }
  return request;
}

TEST(S3Signature, equals_recorded_requests_with_hostile_keys) {
  std::ifstream file(source_path("tests/golden/stores/s3_signatures.json"));
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.at("cases").size(), 60);
  for (const auto& recorded : golden.at("cases")) {
    SCOPED_TRACE(recorded.dump());
    const S3Request request = request_of_json(recorded);
    const auto& keys = recorded.at("keys");
    const auto headers = sign_request(request, {.id = keys.at("id"), .secret = keys.at("secret"), .token = keys.at("token")},
                                      {.region = recorded.at("region")}, utc(2024, 2, 29, 23, 59, 59));
    ASSERT_TRUE(headers.is_ok()) << headers.status().to_string();
    EXPECT_EQ(request_target(request), recorded.at("target").get<std::string>());
    EXPECT_EQ(value_of(*headers, "authorization"), recorded.at("authorization").get<std::string>());
    EXPECT_EQ(value_of(*headers, "x-amz-date"), recorded.at("date").get<std::string>());
  }
}

S3Request get_request(std::string path = "/bucket/key") {
  return {.method = "GET", .host = "s3.example", .path = std::move(path), .query = {}, .headers = {}};
}
const S3Keys kSomeKeys = {.id = "ID-1", .secret = "SECRET-2", .token = "TOKEN-3"};

TEST(RequestTarget, a_key_is_sent_literally) {
  EXPECT_EQ(request_target(get_request("/b/a+b=c%20d~e ä?#")), "/b/a%2Bb%3Dc%2520d~e%20%C3%A4%3F%23");
  EXPECT_EQ(request_target(get_request("/b//x///./../")), "/b//x///./../");
  EXPECT_EQ(request_target(get_request("/")), "/");
  EXPECT_EQ(request_target(get_request(std::string("/b/\0\xff\x80", 6))), "/b/%00%FF%80");
  EXPECT_EQ(encode_s3_value("a/b c"), "a%2Fb%20c");
  EXPECT_EQ(encode_s3_path("bucket/b c"), "bucket/b%20c");
}

TEST(RequestTarget, parameters_are_sorted_by_encoded_name_then_value) {
  S3Request request = get_request("/b");
  request.query = {{"z", "1"}, {"ä", "2"}, {"a-b", "3"}, {"a", "5"}, {"a", "4"}, {"uploads", std::nullopt}, {"empty", ""}};
  EXPECT_EQ(request_target(request), "/b?%C3%A4=2&a=4&a=5&a-b=3&empty=&uploads&z=1");
  EXPECT_THAT(canonical_request(request), HasSubstr("\n%C3%A4=2&a=4&a=5&a-b=3&empty=&uploads=&z=1\n"));
}

std::string decode_percent_of(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    decoded += text[i] == '%' ? static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)) : text[i];
    i += text[i] == '%' ? 2 : 0;
  }
  return decoded;
}

TEST(RequestTarget, random_bytes_of_a_path_come_back) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string path = "/";
    for (size_t left = random() % 40; left > 0; --left) {
      path += static_cast<char>(random() % 256);
    }
    const std::string target = request_target(get_request(path));
    EXPECT_EQ(decode_percent_of(target), path);
    EXPECT_EQ(target.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%"), std::string::npos)
        << target;
  }
}

TEST(SignRequest, adds_what_authenticates_and_signs_it) {
  const auto with_token = sign_request(get_request(), kSomeKeys, {.region = "r"}, utc(2026, 1, 2, 3, 4, 5));
  ASSERT_TRUE(with_token.is_ok());
  EXPECT_EQ(value_of(*with_token, "x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
  EXPECT_EQ(value_of(*with_token, "x-amz-security-token"), "TOKEN-3");
  EXPECT_THAT(value_of(*with_token, "authorization"),
              HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
  EXPECT_THAT(value_of(*with_token, "authorization"), Not(HasSubstr("SECRET-2")));
  const auto without = sign_request(get_request(), {.id = "ID-1", .secret = "SECRET-2", .token = ""}, {.region = "r"}, utc(2026, 1, 2));
  ASSERT_TRUE(without.is_ok());
  EXPECT_EQ(without->size(), 3);
  EXPECT_THAT(value_of(*without, "authorization"), HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date,"));
}

TEST(SignRequest, each_part_of_a_request_changes_the_signature) {
  const auto sign = [](const S3Request& request, const S3Keys& keys = kSomeKeys, const std::string& region = "r",
                       WallTime now = utc(2026, 1, 2)) {
    return value_of(sign_request(request, keys, {.region = region}, now).value(), "authorization").substr(90);
  };
  const std::string signature = sign(get_request());
  std::vector<S3Request> others(7, get_request());
  others[0].method = "PUT";
  others[1].host = "s3.example:1";
  others[2].path += "/";
  others[3].query = {{"a", std::nullopt}};
  others[4].headers = {{"range", "bytes=0-"}};
  others[5].payload_hash = kEmptySha256;
  others[6].path = "/bucket//key";
  for (const S3Request& other : others) {
    EXPECT_NE(sign(other), signature) << other.method << " " << request_target(other);
  }
  EXPECT_NE(sign(get_request(), {.id = "ID-1", .secret = "SECRET-3", .token = "TOKEN-3"}), signature);
  EXPECT_NE(sign(get_request(), {.id = "ID-1", .secret = "SECRET-2", .token = "TOKEN-4"}), signature);
  EXPECT_NE(sign(get_request(), kSomeKeys, "q"), signature);
  EXPECT_NE(sign(get_request(), kSomeKeys, "r", utc(2026, 1, 2, 0, 0, 1)), signature);
  EXPECT_EQ(sign(get_request()), signature);
}

TEST(SignRequest, refuses_keys_without_showing_them) {
  const std::vector<std::pair<S3Keys, std::string>> bad = {
      {{.id = "", .secret = "SECRET-2", .token = ""}, "access key id"},
      {{.id = "ID-1", .secret = "", .token = ""}, "secret access key"},
      {{.id = "ID-1\n", .secret = "SECRET-2", .token = "TOKEN-3"}, "access key id"},
      {{.id = "ID-1", .secret = "SECRET-2\r\n", .token = "TOKEN-3"}, "secret access key"},
      {{.id = "ID-1", .secret = "SECRET-2", .token = "TOKEN-3\nx-evil: 1"}, "session token"},
      {{.id = "ID-1", .secret = "SECRET-2", .token = " TOKEN-3"}, "session token"},
      {{.id = "ID-1", .secret = "SECRET-2", .token = "TOKEN-3\x80"}, "session token"},
  };
  for (const auto& [keys, named] : bad) {
    const Status status = sign_request(get_request(), keys, {.region = "r"}, utc(2026, 1, 2)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().ends_with(named)) << status.message();
    for (const char* secret : {"ID-1", "SECRET", "TOKEN", "evil"}) {
      EXPECT_THAT(status.message(), Not(HasSubstr(secret)));
    }
  }
}

TEST(SignRequest, refuses_what_would_split_a_header) {
  S3Request request = get_request();
  for (const std::string& value : {std::string("HIDDEN\nx: 1"), std::string("HIDDEN\r"), std::string("HIDDEN\t"),
                                   std::string("HIDDEN\0", 7), std::string("HIDDEN\xc3\xa4")}) {
    request.headers = {{"x-amz-meta-a", value}};
    const Status status = sign_request(request, kSomeKeys, {.region = "r"}, utc(2026, 1, 2)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().ends_with("x-amz-meta-a")) << status.message();
    EXPECT_THAT(status.message(), Not(HasSubstr("HIDDEN")));
  }
}

TEST(SignRequest, refuses_a_host_or_a_region_that_is_none) {
  const auto fail = [](const std::string& host, const std::string& region, WallTime now) {
    S3Request request = get_request();
    request.host = host;
    return sign_request(request, kSomeKeys, {.region = region}, now).status().to_string();
  };
  const WallTime now = utc(2026, 1, 2);
  EXPECT_EQ(fail("[::1]:9000", "us-gov_1.x", now), "ok");
  EXPECT_THAT(fail("", "r", now), HasSubstr("invalid_argument: cannot sign a request: the endpoint must be HOST or HOST:PORT:"));
  EXPECT_TRUE(fail("http://a", "r", now).ends_with("the endpoint must be HOST or HOST:PORT: http://a"));
  EXPECT_THAT(fail("a\r\nb", "r", now), HasSubstr("the endpoint must be"));
  EXPECT_THAT(fail("user:PASSWORD@a", "r", now), HasSubstr("without a user's name"));
  EXPECT_THAT(fail("user:PASSWORD@a", "r", now), Not(HasSubstr("PASSWORD")));
  EXPECT_TRUE(fail("a", "", now).ends_with("such as us-east-1: ")) << fail("a", "", now);
  EXPECT_TRUE(fail("a", "eu/west", now).ends_with("such as us-east-1: eu/west"));
}

TEST(SignRequest, a_request_that_is_none_is_our_bug) {
  const auto broken = [](auto&& change) {
    S3Request request = get_request();
    change(request);
    return sign_request(request, kSomeKeys, {.region = "r"}, utc(2026, 1, 2));
  };
  EXPECT_THROW((void)broken([](S3Request& request) { request.method = "get"; }), CheckFailure);
  EXPECT_THROW((void)broken([](S3Request& request) { request.path = "bucket/key"; }), CheckFailure);
  EXPECT_THROW((void)broken([](S3Request& request) { request.payload_hash = "STREAMING"; }), CheckFailure);
  EXPECT_THROW((void)broken([](S3Request& request) { request.payload_hash = std::string(64, 'A'); }), CheckFailure);
  for (const char* name : {"", "Range", "x y", "host", "authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}) {
    EXPECT_THROW((void)broken([&](S3Request& request) { request.headers = {{name, "1"}}; }), CheckFailure) << name;
  }
}

TEST(AmzDate, is_utc_and_drops_fractions) {
  EXPECT_EQ(amz_date(utc(1970, 1, 1)), "19700101T000000Z");
  EXPECT_EQ(amz_date(utc(1969, 12, 31, 23, 59, 59) + std::chrono::milliseconds(999)), "19691231T235959Z");
  EXPECT_EQ(amz_date(utc(2024, 2, 29, 23, 59, 59) + std::chrono::microseconds(999'999)), "20240229T235959Z");
  EXPECT_EQ(amz_date(utc(2100, 3, 1, 1, 2, 3)), "21000301T010203Z");
}

}  // namespace
}  // namespace darkroom
