#include "stores/s3_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A machine with variables, files and issuers of keys; notes which issuers were asked and which files were read.
struct FakeMachine {
  std::map<std::string, std::string> variables = {{"HOME", "/home/u"}};
  std::map<std::string, Result<std::string>> files;
  std::map<S3KeyIssuer, Result<std::optional<S3Keys>>> issuers;
  bool can_ask = true;
  std::vector<std::string> asked;
  std::vector<std::string> read;

  void put_file(const std::string& path, std::string text) { files.insert_or_assign(path, Result<std::string>(std::move(text))); }
  void put_issuer(S3KeyIssuer issuer, std::string id) {
    issuers.insert_or_assign(issuer, std::optional(S3Keys{.id = std::move(id), .secret = "S", .token = "T"}));
  }

  Result<S3Credentials> find(const S3Identity& identity = {}) {
    asked.clear();
    read.clear();
    S3Surroundings surroundings;
    surroundings.environment = [this](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    surroundings.read_file = [this](const std::string& path) -> Result<std::string> {
      read.push_back(path);
      const auto found = files.find(path);
      return found == files.end() ? Status::not_found("no such file:", path) : found->second;
    };
    if (can_ask) {
      surroundings.ask = [this](S3KeyIssuer issuer, const std::string& profile) -> Result<std::optional<S3Keys>> {
        asked.push_back(fmt::format("{}/{}", key_issuer_name(issuer), profile));
        const auto found = issuers.find(issuer);
        return found == issuers.end() ? std::optional<S3Keys>() : found->second;
      };
    }
    return find_s3_credentials(identity, surroundings);
  }

  /// "ID:SECRET:TOKEN origin", "anonymous", or the failure.
  std::string answer(const S3Identity& identity = {}) {
    const auto found = find(identity);
    if (!found.is_ok()) {
      return found.status().to_string();
    }
    return found->keys ? fmt::format("{}:{}:{} {}", found->keys->id, found->keys->secret, found->keys->token, found->origin)
                       : found->origin;
  }
};

constexpr char kCredentialsPath[] = "/home/u/.aws/credentials";
constexpr char kConfigPath[] = "/home/u/.aws/config";

std::string keys_text(const std::string& section, const std::string& id, const std::string& token = "") {
  return fmt::format("[{}]\naws_access_key_id = {}\naws_secret_access_key = {}-secret\n", section, id, id) +
         (token.empty() ? "" : "aws_session_token = " + token + "\n");
}

/// Every source at once; what comes first wins, and is taken away for the next.
FakeMachine machine_with_everything() {
  FakeMachine machine;
  machine.variables["AWS_ACCESS_KEY_ID"] = "env";
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "env-secret";
  machine.variables["AWS_SESSION_TOKEN"] = "env-token";
  machine.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  machine.variables["AWS_ROLE_ARN"] = "arn:role";
  machine.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://container";
  machine.put_file(kCredentialsPath, keys_text("default", "credentials", "credentials-token"));
  machine.put_file(kConfigPath, keys_text("default", "config") + "credential_process = run\nsso_session = s\nrole_arn = arn:role\n");
  machine.put_issuer(S3KeyIssuer::kWebIdentity, "web");
  machine.put_issuer(S3KeyIssuer::kProfile, "issued");
  machine.put_issuer(S3KeyIssuer::kContainer, "container");
  machine.put_issuer(S3KeyIssuer::kInstance, "instance");
  return machine;
}

TEST(S3Credentials, are_looked_for_in_the_documented_order) {
  FakeMachine machine = machine_with_everything();
  EXPECT_EQ(machine.answer({.anonymous = true, .profile = ""}), "anonymous");
  EXPECT_THAT(machine.read, IsEmpty());
  EXPECT_EQ(machine.answer(), "env:env-secret:env-token AWS_ACCESS_KEY_ID");
  EXPECT_THAT(machine.read, IsEmpty());
  EXPECT_THAT(machine.asked, IsEmpty());
  machine.variables.erase("AWS_ACCESS_KEY_ID");
  machine.variables.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(machine.answer(), "issued:S:T profile default");  // Its role.
  EXPECT_THAT(machine.asked, ElementsAre("profile/default"));
  machine.put_file(kConfigPath, keys_text("default", "config") + "credential_process = run\nsso_session = s\n");
  EXPECT_EQ(machine.answer(), "web:S:T web identity");
  EXPECT_THAT(machine.asked, ElementsAre("web identity/"));
  machine.variables.erase("AWS_ROLE_ARN");
  EXPECT_EQ(machine.answer(), "issued:S:T profile default");  // Its single sign-on.
  machine.put_file(kConfigPath, keys_text("default", "config") + "credential_process = run\n");
  EXPECT_EQ(machine.answer(), "credentials:credentials-secret:credentials-token profile default of /home/u/.aws/credentials");
  EXPECT_THAT(machine.asked, IsEmpty());
  machine.files.erase(kCredentialsPath);
  EXPECT_EQ(machine.answer(), "issued:S:T profile default");  // Its process.
  machine.put_file(kConfigPath, keys_text("default", "config"));
  EXPECT_EQ(machine.answer(), "config:config-secret: profile default of /home/u/.aws/config");
  machine.files.erase(kConfigPath);
  EXPECT_EQ(machine.answer(), "container:S:T container");
  EXPECT_THAT(machine.asked, ElementsAre("container/"));
  machine.variables.erase("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  EXPECT_EQ(machine.answer(), "instance:S:T instance metadata");
  EXPECT_THAT(machine.asked, ElementsAre("instance metadata/"));
  machine.variables["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_THAT(machine.answer(), HasSubstr("no credentials for S3"));
  EXPECT_THAT(machine.asked, IsEmpty());
}

TEST(S3Credentials, a_profile_of_the_address_beats_the_environment_and_nothing_stands_in_for_it) {
  FakeMachine machine = machine_with_everything();
  machine.variables["AWS_PROFILE"] = "other";
  machine.put_file(kCredentialsPath, keys_text("lab", "lab") + keys_text("other", "other"));
  EXPECT_EQ(machine.answer({.profile = "lab"}), "lab:lab-secret: profile lab of /home/u/.aws/credentials");
  EXPECT_THAT(machine.asked, IsEmpty());
  EXPECT_EQ(machine.answer({.profile = "default"}), "issued:S:T profile default");
  EXPECT_EQ(machine.answer({.profile = "Lab"}),
            "failed_precondition: there is no such profile for S3 (looked in, profile): /home/u/.aws/credentials, /home/u/.aws/config Lab");
  machine.put_file(kConfigPath, "[profile plain]\nregion = r\n");
  EXPECT_EQ(
      machine.answer({.profile = "plain"}),
      "failed_precondition: a profile holds no keys for S3 (looked in, profile): /home/u/.aws/credentials, /home/u/.aws/config plain");
  EXPECT_THAT(machine.asked, IsEmpty());
  machine.variables.erase("HOME");
  EXPECT_EQ(machine.answer({.profile = "lab"}), "failed_precondition: there is no such profile for S3 (looked in, profile):  lab");
}

TEST(S3Credentials, aws_profile_names_a_profile_that_must_exist) {
  FakeMachine machine;
  machine.variables["AWS_PROFILE"] = "lab";
  machine.put_issuer(S3KeyIssuer::kInstance, "instance");
  machine.put_file(kCredentialsPath, keys_text("default", "default"));
  EXPECT_THAT(machine.answer(), HasSubstr("there is no such profile for S3"));
  EXPECT_THAT(machine.asked, IsEmpty());
  machine.put_file(kConfigPath, keys_text("profile lab", "lab"));
  EXPECT_EQ(machine.answer(), "lab:lab-secret: profile lab of /home/u/.aws/config");
  machine.put_file(kConfigPath, "[profile lab]\nregion = r\n");  // As on a machine with a role of its own.
  EXPECT_EQ(machine.answer(), "instance:S:T instance metadata");
  machine.variables["AWS_PROFILE"] = "";
  EXPECT_EQ(machine.answer(), "default:default-secret: profile default of /home/u/.aws/credentials");
}

TEST(S3Credentials, keys_of_two_places_are_never_joined) {
  FakeMachine machine;
  machine.put_file(kCredentialsPath, keys_text("default", "new"));
  machine.put_file(kConfigPath, keys_text("default", "old", "old-token"));
  machine.variables["AWS_SESSION_TOKEN"] = "env-token";  // Alone it means nothing.
  EXPECT_EQ(machine.answer(), "new:new-secret: profile default of /home/u/.aws/credentials");
}

TEST(S3Credentials, half_a_pair_is_an_error_without_the_other_half) {
  FakeMachine machine = machine_with_everything();
  machine.variables.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(machine.answer(),
            "failed_precondition: half a pair of keys for S3 (set, also wanted): AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY");
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "env-secret";
  machine.variables["AWS_ACCESS_KEY_ID"] = "";
  EXPECT_EQ(machine.answer(),
            "failed_precondition: half a pair of keys for S3 (set, also wanted): AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID");
  machine.variables["AWS_SECRET_ACCESS_KEY"] = "";
  machine.put_file(kCredentialsPath, "[default]\naws_access_key_id = HIDDEN\n");
  machine.put_file(kConfigPath, keys_text("default", "whole"));
  machine.variables.erase("AWS_ROLE_ARN");
  const std::string answer = machine.answer();
  EXPECT_EQ(answer,
            "failed_precondition: profile default of /home/u/.aws/credentials: half a pair of keys for S3 (set, also wanted): "
            "aws_access_key_id aws_secret_access_key");
  EXPECT_THAT(answer, Not(HasSubstr("HIDDEN")));
}

TEST(S3Credentials, variables_say_where_the_files_are) {
  FakeMachine machine;
  machine.variables["AWS_SHARED_CREDENTIALS_FILE"] = "~/keys";
  machine.variables["AWS_CONFIG_FILE"] = "/etc/aws";
  machine.put_file("/home/u/keys", keys_text("default", "a"));
  machine.put_file("/etc/aws", keys_text("profile b", "b"));
  EXPECT_EQ(machine.answer(), "a:a-secret: profile default of /home/u/keys");
  EXPECT_THAT(machine.read, ElementsAre("/home/u/keys", "/etc/aws"));
  EXPECT_EQ(machine.answer({.profile = "b"}), "b:b-secret: profile b of /etc/aws");
  machine.variables.erase("HOME");
  machine.variables.erase("AWS_SHARED_CREDENTIALS_FILE");
  EXPECT_THAT(machine.answer(), HasSubstr("no credentials for S3"));
  EXPECT_THAT(machine.read, ElementsAre("/etc/aws"));
}

TEST(S3Credentials, a_file_that_cannot_be_read_or_understood_is_an_error) {
  FakeMachine machine;
  machine.put_issuer(S3KeyIssuer::kInstance, "instance");
  EXPECT_EQ(machine.answer(), "instance:S:T instance metadata");  // A file that does not exist is none.
  machine.files.insert_or_assign(kConfigPath, Result<std::string>(Status::failed_precondition("may not be read:", kConfigPath)));
  EXPECT_EQ(machine.answer(), "failed_precondition: may not be read: /home/u/.aws/config");
  machine.put_file(kConfigPath, "[default]\nHIDDEN");
  EXPECT_EQ(machine.answer(), "invalid_argument: /home/u/.aws/config: a shared AWS file is not understood: a setting has no = (line): 2");
  machine.put_file(kConfigPath, "");
  machine.put_file(kCredentialsPath, "HIDDEN = 1");
  EXPECT_EQ(machine.answer(),
            "invalid_argument: /home/u/.aws/credentials: a shared AWS file is not understood: a setting stands before the first section "
            "(line): 1");
}

TEST(S3Credentials, says_where_it_looked_and_what_to_do) {
  FakeMachine machine;
  EXPECT_EQ(machine.answer(),
            "failed_precondition: no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile (AWS_PROFILE, "
            "?profile=NAME), or ask for none (?anonymous=true); looked in: the environment, /home/u/.aws/credentials, /home/u/.aws/config, "
            "instance metadata");
  machine.can_ask = false;
  EXPECT_THAT(machine.answer(), testing::EndsWith("the environment, /home/u/.aws/credentials, /home/u/.aws/config"));
}

TEST(S3Credentials, an_issuer_that_is_named_must_answer) {
  FakeMachine machine;
  machine.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/HIDDEN";
  machine.put_issuer(S3KeyIssuer::kInstance, "instance");
  EXPECT_EQ(machine.answer(), "failed_precondition: no keys for S3 were given out (from): container");
  machine.issuers.insert_or_assign(S3KeyIssuer::kContainer, Result<std::optional<S3Keys>>(Status::unavailable("no reply")));
  EXPECT_EQ(machine.answer(), "unavailable: no reply");
  machine.can_ask = false;
  EXPECT_EQ(machine.answer(),
            "failed_precondition: keys for S3 would have to be asked for elsewhere, which is not possible here (from): container");
  machine.put_file(kConfigPath, "[profile lab]\nrole_arn = arn:HIDDEN\n");
  EXPECT_EQ(machine.answer({.profile = "lab"}),
            "failed_precondition: keys for S3 would have to be asked for elsewhere, which is not possible here (from): profile lab");
}

TEST(S3Credentials, a_failure_of_the_instance_metadata_is_kept) {
  FakeMachine machine;
  machine.issuers.insert_or_assign(S3KeyIssuer::kInstance, Result<std::optional<S3Keys>>(Status::unavailable("no reply within 10 s")));
  EXPECT_EQ(machine.answer(), "unavailable: no reply within 10 s");
  machine.variables["AWS_EC2_METADATA_DISABLED"] = "false";
  EXPECT_EQ(machine.answer(), "unavailable: no reply within 10 s");
}

TEST(S3Credentials, each_setting_that_leads_to_an_issuer_does) {
  for (const char* setting :
       {"role_arn", "web_identity_token_file", "sso_session", "sso_start_url", "sso_account_id", "credential_process"}) {
    for (const bool in_config : {false, true}) {
      FakeMachine machine;
      machine.put_issuer(S3KeyIssuer::kProfile, "issued");
      machine.put_file(in_config ? kConfigPath : kCredentialsPath,
                       fmt::format("[{}]\n{} = x\n", in_config ? "profile lab" : "lab", setting));
      EXPECT_EQ(machine.answer({.profile = "lab"}), "issued:S:T profile lab") << setting;
      EXPECT_THAT(machine.asked, ElementsAre("profile/lab"));
    }
  }
}

}  // namespace
}  // namespace darkroom
