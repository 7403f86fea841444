#include "stores/s3_key_issuers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/metrics.h"
#include "support/hook.h"
#include "support/http_answers.h"
#include "support/leap_clock.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

constexpr char kIssuedJson[] = R"({"AccessKeyId":"ID","SecretAccessKey":"SECRET","Token":"TOKEN","Expiration":"2026-01-01T01:00:00Z"})";

Answer issuer_answer(const std::string& body, int status = 200) { return {http_answer(status, body)}; }

std::string sts_body(const std::string& action, const std::string& id = "ID") {
  return fmt::format(
      "<{0}Response><{0}Result><Credentials><AccessKeyId>{1}</AccessKeyId><SecretAccessKey>SECRET</SecretAccessKey>"
      "<SessionToken>TOKEN</SessionToken><Expiration>2026-01-01T01:00:00Z</Expiration></Credentials></{0}Result></{0}Response>",
      action, id);
}

/// A machine whose issuers are a server on loopback that answers what a test says.
struct IssuerWorld {
  IssuerWorld() {
    variables = {{"HOME", "/home/u"},
                 {"AWS_EC2_METADATA_SERVICE_ENDPOINT", url("/")},
                 {"AWS_ENDPOINT_URL_STS", url("")},
                 {"AWS_ENDPOINT_URL_SSO", url("")}};
  }

  std::string url(const std::string& path) const { return server_url(server, path); }
  void put_config(std::string text) { files["/home/u/.aws/config"] = std::move(text); }

  S3KeyIssuers issuers() {
    AwsPlaces places;
    places.environment = [this](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    places.read_file = [this](const std::string& path) -> Result<std::string> {
      const auto found = files.find(path);
      return found == files.end() ? Status::not_found("no such file:", path) : Result<std::string>(found->second);
    };
    return S3KeyIssuers({.places = places,
                         .exchange = [this](const HttpRequest& request) { return http->exchange(request, {}); },
                         .run_process = [this](const std::vector<std::string>& command) -> Result<std::string> {
                           commands.push_back(command);
                           return process_output;
                         },
                         .clock = clock});
  }

  /// "ID:SECRET:TOKEN", "none", or the failure.
  std::string ask(S3KeyIssuer issuer, const std::string& profile = "") {
    const auto keys = issuers().ask(issuer, profile);
    if (!keys.is_ok()) {
      EXPECT_THAT(keys.status().message(), Not(HasSubstr("CANARY")));
      return keys.status().to_string();
    }
    return *keys ? fmt::format("{}:{}:{}", (*keys)->id, (*keys)->secret, (*keys)->token) : "none";
  }
  std::string first_lines() const {
    std::string lines;
    for (const Request& request : server.requests()) {
      lines += request.head.substr(0, request.head.find(" HTTP/")) + "\n";
    }
    return lines;
  }

  Hook<Answer(const Request&)> script = [](const Request&) { return issuer_answer("", 404); };
  ScriptedServer server{[this](const Request& request) { return script(request); }};
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;
  Result<std::string> process_output = std::string();
  std::vector<std::vector<std::string>> commands;
  LeapClock clock;
  MetricsRegistry metrics;
  std::unique_ptr<HttpClient> http = HttpClient::start({}, metrics).value();
};

TEST(S3KeyIssuers, a_container_is_asked_with_its_token) {
  IssuerWorld world;
  world.script = [](const Request& request) {
    const bool is_ours = request.head.find("\r\nAuthorization: Basic CANARY\r\n") != std::string::npos;
    return is_ours ? issuer_answer(kIssuedJson) : issuer_answer("CANARY", 401);
  };
  world.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = world.url("/v2/CANARY?x=CANARY");
  EXPECT_EQ(world.ask(S3KeyIssuer::kContainer),
            "failed_precondition: no keys for S3 from the container's credential service, it refuses (status, code): 401 ");
  world.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Basic CANARY";
  EXPECT_EQ(world.ask(S3KeyIssuer::kContainer), "ID:SECRET:TOKEN");
  world.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "old CANARY";
  world.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/token";
  world.files["/token"] = "Basic CANARY\n";
  EXPECT_EQ(world.ask(S3KeyIssuer::kContainer), "ID:SECRET:TOKEN");  // The file's before the variable's.
  world.files["/token"] = "Basic CANARY\r\nX: y";
  EXPECT_THAT(world.ask(S3KeyIssuer::kContainer), HasSubstr("holds a line break"));
  world.files.erase("/token");
  EXPECT_THAT(world.ask(S3KeyIssuer::kContainer), HasSubstr("no such file: /token"));
}

TEST(S3KeyIssuers, a_containers_keys_come_from_this_machine_or_over_https) {
  IssuerWorld world;
  for (const std::string url : {"http://192.0.2.1/CANARY", "http://example.org/CANARY", "http://127.0.0.1.example.org/", "ftp://127.0.0.1/",
                                "CANARY", "http://u:CANARY@127.0.0.1/", "http://[fd00::1]/", "http://127.0.0.1/\r\nX: CANARY"}) {
    world.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
    EXPECT_THAT(world.ask(S3KeyIssuer::kContainer),
                StartsWith("failed_precondition: no keys for S3 from the container's credential service:"))
        << url;
  }
  EXPECT_THAT(world.server.requests(), IsEmpty());
}

TEST(S3KeyIssuers, trouble_that_may_pass_is_tried_three_times) {
  IssuerWorld world;
  world.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = world.url("/keys");
  const auto count = std::make_shared<std::atomic<int>>(0);
  world.script = [count](const Request&) {
    switch ((*count)++) {
      case 0:
        return issuer_answer("CANARY", 503);
      case 1:
        return Answer{"", Answer::Then::kReset};
      default:
        return issuer_answer(kIssuedJson);
    }
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kContainer), "ID:SECRET:TOKEN");
  world.script = [](const Request&) { return issuer_answer("CANARY", 500); };
  EXPECT_EQ(world.ask(S3KeyIssuer::kContainer),
            "unavailable: no keys for S3 from the container's credential service, it refuses (status, code): 500 ");
  EXPECT_EQ(world.server.requests().size(), 6u);
  world.script = [](const Request&) { return issuer_answer(R"({"AccessKeyId":"CANARY"})"); };
  EXPECT_THAT(world.ask(S3KeyIssuer::kContainer), StartsWith("corrupt_data: "));
}

TEST(S3KeyIssuers, an_instance_is_asked_by_version_two_and_then_one) {
  IssuerWorld world;
  world.script = [](const Request& request) {
    if (request.head.starts_with("PUT /latest/api/token ")) {
      return issuer_answer("CANARY-TOKEN");
    }
    const bool has_token = request.head.find("\r\nX-aws-ec2-metadata-token: CANARY-TOKEN\r\n") != std::string::npos;
    const bool is_list = request.head.starts_with("GET /latest/meta-data/iam/security-credentials/ ");
    return has_token ? issuer_answer(is_list ? "my-role\n" : kIssuedJson) : issuer_answer("", 401);
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kInstance), "ID:SECRET:TOKEN");
  EXPECT_EQ(world.first_lines(),
            "PUT /latest/api/token\nGET /latest/meta-data/iam/security-credentials/\n"
            "GET /latest/meta-data/iam/security-credentials/my-role\n");
  world.script = [](const Request& request) {
    if (request.head.starts_with("PUT ")) {
      return issuer_answer("", 405);
    }
    return issuer_answer(request.head.find("my-role") == std::string::npos ? "my-role" : kIssuedJson);
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kInstance), "ID:SECRET:TOKEN");
}

TEST(S3KeyIssuers, a_machine_without_metadata_or_without_a_role_has_no_keys) {
  IssuerWorld world;
  EXPECT_EQ(world.ask(S3KeyIssuer::kInstance), "none");  // No role.
  world.script = [](const Request& request) { return issuer_answer("CANARY", request.head.starts_with("PUT ") ? 200 : 500); };
  EXPECT_THAT(world.ask(S3KeyIssuer::kInstance), StartsWith("unavailable: no keys for S3 from the instance's metadata"));
  {
    const ScriptedServer gone([](const Request&) { return Answer{}; });
    world.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server_url(gone);
  }
  EXPECT_EQ(world.ask(S3KeyIssuer::kInstance), "none");
  world.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "CANARY";
  EXPECT_THAT(world.ask(S3KeyIssuer::kInstance), HasSubstr("AWS_EC2_METADATA_SERVICE_ENDPOINT is no http"));
}

TEST(S3KeyIssuers, a_web_identity_shows_its_token_to_the_token_service) {
  IssuerWorld world;
  world.variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  world.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  EXPECT_EQ(world.ask(S3KeyIssuer::kWebIdentity), "not_found: reading the web identity's token: no such file: /token");
  world.files["/token"] = "CANARY/TOKEN\n";
  world.script = [](const Request& request) {
    EXPECT_EQ(request.body,
              "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=darkroom"
              "&WebIdentityToken=CANARY%2FTOKEN");
    EXPECT_THAT(request.head, Not(HasSubstr("uthorization")));
    return issuer_answer(sts_body("AssumeRoleWithWebIdentity"));
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kWebIdentity), "ID:SECRET:TOKEN");
  world.script = [](const Request&) {
    return issuer_answer("<ErrorResponse><Error><Code>AccessDenied</Code><Message>CANARY</Message></Error></ErrorResponse>", 403);
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kWebIdentity),
            "failed_precondition: no keys for S3 from the security token service, it refuses (status, code): 403 AccessDenied");
  world.variables["AWS_REGION"] = "evil.example.org/";
  EXPECT_THAT(world.ask(S3KeyIssuer::kWebIdentity), HasSubstr("the region is none"));
  world.variables.erase("AWS_REGION");
  world.variables["AWS_ENDPOINT_URL_STS"] = "http://u:CANARY@127.0.0.1/";
  EXPECT_THAT(world.ask(S3KeyIssuer::kWebIdentity), HasSubstr("AWS_ENDPOINT_URL_STS is no address of a server"));
}

TEST(S3KeyIssuers, a_role_is_asked_for_with_the_keys_of_its_source) {
  IssuerWorld world;
  world.put_config(
      "[profile lab]\nrole_arn = arn:lab\nsource_profile = base\nexternal_id = e x\nduration_seconds = 900\nregion = eu-west-1\n"
      "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = CANARY\n");
  world.script = [&](const Request& request) {
    EXPECT_EQ(request.body,
              "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Alab&RoleSessionName=darkroom&ExternalId=e%20x&DurationSeconds=900");
    EXPECT_THAT(request.head, AllOf(HasSubstr("Credential=BASE/20260101/eu-west-1/sts/aws4_request"), Not(HasSubstr("CANARY"))));
    return issuer_answer(sts_body("AssumeRole"));
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "lab"), "ID:SECRET:TOKEN");
  EXPECT_EQ(world.server.requests().size(), 1u);
}

TEST(S3KeyIssuers, roles_are_chained_and_circles_are_refused) {
  IssuerWorld world;
  world.put_config(
      "[profile c]\nrole_arn = arn:c\nsource_profile = b\n[profile b]\nrole_arn = arn:b\nsource_profile = a\n"
      "[profile a]\nrole_arn = arn:a\nsource_profile = a\naws_access_key_id = A\naws_secret_access_key = CANARY\n");
  world.script = [](const Request& request) {
    const size_t at = request.body.find("RoleArn=arn%3A") + 14;
    return issuer_answer(sts_body("AssumeRole", "KEY-" + request.body.substr(at, 1)));
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "c"), "KEY-c:SECRET:TOKEN");
  const std::vector<Request> requests = world.server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_THAT(requests[0].head, HasSubstr("Credential=A/"));
  EXPECT_THAT(requests[1].head, AllOf(HasSubstr("Credential=KEY-a/"), HasSubstr("x-amz-security-token: TOKEN")));
  EXPECT_THAT(requests[2].head, HasSubstr("Credential=KEY-b/"));
  world.put_config("[profile a]\nrole_arn = arn:a\nsource_profile = b\n[profile b]\nrole_arn = arn:b\nsource_profile = a\n");
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "a"), "failed_precondition: no keys for S3 from profile b: source_profile leads in a circle");
  world.put_config("[profile a]\nrole_arn = arn:a\nsource_profile = a\n");
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "a"), HasSubstr("there are no keys to ask for its role with"));
}

TEST(S3KeyIssuers, a_role_may_be_asked_for_with_what_the_machine_has) {
  IssuerWorld world;
  world.script = [](const Request& request) {
    return request.head.starts_with("POST ") ? issuer_answer(sts_body("AssumeRole")) : issuer_answer(kIssuedJson);
  };
  const auto from = [&](const std::string& source) {
    world.put_config("[profile lab]\nrole_arn = arn:lab\ncredential_source = " + source + "\n");
    return world.ask(S3KeyIssuer::kProfile, "lab");
  };
  EXPECT_THAT(from("Environment"), HasSubstr("there are no keys to ask for its role with"));
  world.variables["AWS_ACCESS_KEY_ID"] = "ENV";
  world.variables["AWS_SECRET_ACCESS_KEY"] = "CANARY";
  EXPECT_EQ(from("Environment"), "ID:SECRET:TOKEN");
  EXPECT_THAT(world.server.requests().back().head, HasSubstr("Credential=ENV/"));
  world.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = world.url("/");
  EXPECT_EQ(from("EcsContainer"), "ID:SECRET:TOKEN");
  EXPECT_THAT(world.server.requests().back().head, HasSubstr("Credential=ID/"));
  EXPECT_THAT(from("CANARY"), HasSubstr("credential_source must be"));
  world.script = [](const Request&) { return issuer_answer("", 404); };
  EXPECT_THAT(from("Ec2InstanceMetadata"), HasSubstr("this machine has no such role"));
}

TEST(S3KeyIssuers, roles_that_a_job_cannot_take_are_refused) {
  IssuerWorld world;
  for (const auto& [settings, why] : std::vector<std::pair<std::string, std::string>>{
           {"role_arn = a\n", "wants either source_profile or credential_source"},
           {"role_arn = a\nsource_profile = b\ncredential_source = Environment\n", "wants either source_profile or credential_source"},
           {"role_arn = a\nsource_profile = b\nmfa_serial = CANARY\n", "asks for a code (mfa_serial)"},
           {"web_identity_token_file = /t\n", "has web_identity_token_file and no role_arn"},
           {"role_arn = a\nsource_profile = nobody\n", "there is no such profile"}}) {
    world.put_config("[profile lab]\n" + settings);
    EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"), AllOf(StartsWith("failed_precondition: "), HasSubstr(why)));
  }
  EXPECT_THAT(world.server.requests(), IsEmpty());
}

TEST(S3KeyIssuers, single_sign_on_uses_the_token_that_the_login_left) {
  IssuerWorld world;
  world.put_config(
      "[profile lab]\nsso_session = my\nsso_account_id = 12\nsso_role_name = reader\n"
      "[sso-session my]\nsso_start_url = https://start\nsso_region = eu-west-1\n");
  EXPECT_EQ(
      world.ask(S3KeyIssuer::kProfile, "lab"),
      "failed_precondition: no keys for S3 from single sign-on of profile lab: nobody is signed in; run: aws sso login --profile lab");
  const std::string path = "/home/u/.aws/sso/cache/3ece1471f44f63177cbc35ba0b904e0c096b6783.json";  // SHA-1 of "my".
  world.files[path] = R"({"accessToken":"CANARY","expiresAt":"2026-01-01T00:00:00Z"})";
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"), HasSubstr("the sign-on has expired; run: aws sso login --profile lab"));
  world.files[path] = R"({"accessToken":"CANARY","expiresAt":"2026-01-01T08:00:00Z"})";
  world.script = [](const Request& request) {
    const bool is_signed_on = request.head.find("\r\nx-amz-sso_bearer_token: CANARY\r\n") != std::string::npos;
    return is_signed_on ? issuer_answer(R"({"roleCredentials":{"accessKeyId":"ID","secretAccessKey":"SECRET","sessionToken":"TOKEN",)"
                                        R"("expiration":1767229200000}})")
                        : issuer_answer("CANARY", 401);
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "lab"), "ID:SECRET:TOKEN");
  EXPECT_EQ(world.first_lines(), "GET /federation/credentials?role_name=reader&account_id=12\n");
  world.files[path] = R"({"accessToken":"another CANARY","expiresAt":"2026-01-01T08:00:00Z"})";
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"),
              AllOf(StartsWith("failed_precondition: "), HasSubstr("run: aws sso login --profile lab")));
}

TEST(S3KeyIssuers, single_sign_on_of_a_profile_alone_is_known_by_its_start) {
  IssuerWorld world;
  world.put_config("[profile lab]\nsso_start_url = https://start\nsso_region = eu-west-1\nsso_account_id = 12\nsso_role_name = reader\n");
  world.files["/home/u/.aws/sso/cache/6ad0e7e61d1f47e491ea32c2031add41ef92e07d.json"] =
      R"({"accessToken":"CANARY","expiresAt":"2026-01-01T08:00:00UTC"})";
  world.script = [](const Request&) {
    return issuer_answer(R"({"roleCredentials":{"accessKeyId":"ID","secretAccessKey":"SECRET","sessionToken":"TOKEN"}})");
  };
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "lab"), "ID:SECRET:TOKEN");
  world.put_config("[profile lab]\nsso_session = my\nsso_account_id = 12\nsso_role_name = reader\n");
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"), HasSubstr("it needs sso_start_url, sso_region, sso_account_id and sso_role_name"));
}

TEST(S3KeyIssuers, a_process_writes_keys) {
  IssuerWorld world;
  world.put_config("[profile lab]\ncredential_process = /opt/keys --for \"a b\"\n");
  world.process_output = std::string(R"({"Version":1,"AccessKeyId":"ID","SecretAccessKey":"SECRET","SessionToken":"TOKEN"})");
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "lab"), "ID:SECRET:TOKEN");
  EXPECT_THAT(world.commands, ElementsAre(ElementsAre("/opt/keys", "--for", "a b")));
  world.process_output = std::string("CANARY");
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"), StartsWith("corrupt_data: "));
  world.process_output = Status::unavailable("it does not end in time");
  EXPECT_EQ(world.ask(S3KeyIssuer::kProfile, "lab"), "unavailable: it does not end in time");
  world.put_config("[profile lab]\ncredential_process = \"CANARY\n");
  EXPECT_THAT(world.ask(S3KeyIssuer::kProfile, "lab"), StartsWith("invalid_argument: profile lab: a quote"));
}

}  // namespace
}  // namespace darkroom
