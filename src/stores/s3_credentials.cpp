#include "s3_credentials.h"

#include <array>
#include <span>
#include <utility>

#include "aws_profiles.h"

namespace darkroom {
namespace {

constexpr std::string_view kKeyIdSetting = "aws_access_key_id";
constexpr std::string_view kSecretSetting = "aws_secret_access_key";
constexpr std::string_view kTokenSetting = "aws_session_token";

/// Settings of a profile that lead to an issuer even where keys stand beside them.
constexpr std::array<std::string_view, 2> kRoleSettings = {"role_arn", "web_identity_token_file"};
constexpr std::array<std::string_view, 3> kSignOnSettings = {"sso_session", "sso_start_url", "sso_account_id"};

std::string setting_of(const AwsProfile& profile, std::string_view name) {
  const auto found = profile.find(std::string(name));
  return found == profile.end() ? "" : found->second;
}

/// Both keys, or nothing where both lack. The names say what to mend.
Result<std::optional<S3Keys>> pair_of_keys(S3Keys keys, std::string_view id_name, std::string_view secret_name) {
  if (keys.id.empty() && keys.secret.empty()) {
    return std::optional<S3Keys>();
  }
  if (keys.id.empty() || keys.secret.empty()) {
    return Status::failed_precondition("half a pair of keys for S3 (set, also wanted):", keys.id.empty() ? secret_name : id_name,
                                       keys.id.empty() ? id_name : secret_name);
  }
  return std::optional(std::move(keys));
}

Result<std::optional<S3Keys>> keys_of_profile(const AwsProfile& profile) {
  return pair_of_keys({.id = setting_of(profile, kKeyIdSetting),
                       .secret = setting_of(profile, kSecretSetting),
                       .token = setting_of(profile, kTokenSetting)},
                      kKeyIdSetting, kSecretSetting);
}

/// One of the two shared files, read.
struct SharedFile {
  std::string path;  ///< Empty: there is no home folder in which it could be.
  AwsProfiles profiles;

  bool holds(const std::string& profile) const { return profiles.contains(profile); }

  /// Without settings where the file lacks it.
  AwsProfile profile(const std::string& name) const {
    const auto found = profiles.find(name);
    return found == profiles.end() ? AwsProfile() : found->second;
  }
};

class CredentialSearch {
 public:
  explicit CredentialSearch(const S3Surroundings& surroundings) : surroundings_(surroundings) {}

  Result<S3Credentials> run(const std::string& wanted_profile) {
    if (!wanted_profile.empty()) {
      return only_profile(wanted_profile);
    }
    using Step = Result<std::optional<S3Credentials>> (CredentialSearch::*)();
    for (const Step step : {&CredentialSearch::from_variables, &CredentialSearch::from_usual_role, &CredentialSearch::from_web_identity,
                            &CredentialSearch::from_usual_profile, &CredentialSearch::from_container, &CredentialSearch::from_instance}) {
      DARKROOM_ASSIGN_OR_RETURN(std::optional<S3Credentials> found, (this->*step)());
      if (found) {
        return *std::move(found);
      }
    }
    return Status::failed_precondition(
        "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile (AWS_PROFILE, ?profile=NAME), or "
        "ask for none (?anonymous=true); looked in:",
        looked_in_);
  }

 private:
  using Found = std::optional<S3Credentials>;

  std::string variable(const std::string& name) const { return surroundings_.environment(name).value_or(""); }

  void note_place(std::string_view place) { looked_in_ += (looked_in_.empty() ? "" : ", ") + std::string(place); }

  Result<Found> from_variables() {
    note_place("the environment");
    DARKROOM_ASSIGN_OR_RETURN(std::optional<S3Keys> keys, pair_of_keys({.id = variable("AWS_ACCESS_KEY_ID"),
                                                                        .secret = variable("AWS_SECRET_ACCESS_KEY"),
                                                                        .token = variable("AWS_SESSION_TOKEN")},
                                                                       "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"));
    return keys ? Found(S3Credentials{.keys = std::move(keys), .origin = "AWS_ACCESS_KEY_ID"}) : Found();
  }

  Result<Found> from_web_identity() {
    if (variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty() || variable("AWS_ROLE_ARN").empty()) {
      return Found();
    }
    return required_from(S3KeyIssuer::kWebIdentity, "");
  }

  Result<Found> from_container() {
    if (variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() && variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty()) {
      return Found();
    }
    return required_from(S3KeyIssuer::kContainer, "");
  }

  Result<Found> from_instance() {
    if (variable("AWS_EC2_METADATA_DISABLED") == "true" || !surroundings_.ask) {
      return Found();
    }
    note_place(key_issuer_name(S3KeyIssuer::kInstance));
    DARKROOM_ASSIGN_OR_RETURN(std::optional<S3Keys> keys, surroundings_.ask(S3KeyIssuer::kInstance, ""));
    return keys ? Found(S3Credentials{.keys = std::move(keys), .origin = std::string(key_issuer_name(S3KeyIssuer::kInstance))}) : Found();
  }

  std::string usual_profile() const {
    const std::string named = variable("AWS_PROFILE");
    return named.empty() ? "default" : named;
  }

  Result<Found> from_usual_role() {
    DARKROOM_RETURN_IF_ERROR(read_files());
    if (!variable("AWS_PROFILE").empty()) {
      DARKROOM_RETURN_IF_ERROR(require_profile(usual_profile()));
    }
    return from_issuer_of(usual_profile(), kRoleSettings);
  }

  Result<Found> from_usual_profile() { return from_profile(usual_profile()); }

  Result<S3Credentials> only_profile(const std::string& name) {
    DARKROOM_RETURN_IF_ERROR(read_files());
    DARKROOM_RETURN_IF_ERROR(require_profile(name));
    DARKROOM_ASSIGN_OR_RETURN(Found found, from_issuer_of(name, kRoleSettings));
    if (!found) {
      DARKROOM_ASSIGN_OR_RETURN(found, from_profile(name));
    }
    if (!found) {
      return Status::failed_precondition("a profile holds no keys for S3 (looked in, profile):", looked_in_, name);
    }
    return *std::move(found);
  }

  Status require_profile(const std::string& name) const {
    return config_.holds(name) || credentials_.holds(name)
               ? Status::ok()
               : Status::failed_precondition("there is no such profile for S3 (looked in, profile):", looked_in_, name);
  }

  /// Where either file gives the profile one of the settings.
  Result<Found> from_issuer_of(const std::string& profile, std::span<const std::string_view> settings) {
    for (const std::string_view setting : settings) {
      if (!setting_of(credentials_.profile(profile), setting).empty() || !setting_of(config_.profile(profile), setting).empty()) {
        return required_from(S3KeyIssuer::kProfile, profile);
      }
    }
    return Found();
  }

  Result<Found> from_keys_in(const SharedFile& file, const std::string& profile) const {
    const std::string origin = fmt::format("profile {} of {}", profile, file.path);
    Result<std::optional<S3Keys>> keys = keys_of_profile(file.profile(profile));
    if (!keys.is_ok()) {
      return keys.status().with_context(origin);
    }
    return *keys ? Found(S3Credentials{.keys = *std::move(keys), .origin = origin}) : Found();
  }

  /// All but its role.
  Result<Found> from_profile(const std::string& name) {
    constexpr std::array<std::string_view, 1> kProcessSettings = {"credential_process"};
    DARKROOM_ASSIGN_OR_RETURN(Found found, from_issuer_of(name, kSignOnSettings));
    if (!found) {
      DARKROOM_ASSIGN_OR_RETURN(found, from_keys_in(credentials_, name));
    }
    if (!found) {
      DARKROOM_ASSIGN_OR_RETURN(found, from_issuer_of(name, kProcessSettings));
    }
    return found ? Result<Found>(std::move(found)) : from_keys_in(config_, name);
  }

  Result<Found> required_from(S3KeyIssuer issuer, const std::string& profile) {
    const std::string origin = std::string(key_issuer_name(issuer)) + (profile.empty() ? "" : " " + profile);
    if (!surroundings_.ask) {
      return Status::failed_precondition("keys for S3 would have to be asked for elsewhere, which is not possible here (from):", origin);
    }
    DARKROOM_ASSIGN_OR_RETURN(std::optional<S3Keys> keys, surroundings_.ask(issuer, profile));
    if (!keys) {
      return Status::failed_precondition("no keys for S3 were given out (from):", origin);
    }
    return Found(S3Credentials{.keys = std::move(keys), .origin = origin});
  }

  Status read_files() {
    DARKROOM_RETURN_IF_ERROR(read_shared(credentials_, AwsFile::kCredentials, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"));
    return read_shared(config_, AwsFile::kConfig, "AWS_CONFIG_FILE", "/.aws/config");
  }

  Status read_shared(SharedFile& shared, AwsFile kind, const std::string& variable_name, std::string_view below_home) {
    const std::string home = variable("HOME");
    shared.path = variable(variable_name);
    if (shared.path.empty() && !home.empty()) {
      shared.path = home + std::string(below_home);
    } else if (shared.path.starts_with("~/") && !home.empty()) {
      shared.path = home + shared.path.substr(1);
    }
    if (shared.path.empty()) {
      return Status::ok();
    }
    note_place(shared.path);
    const Result<std::string> text = surroundings_.read_file(shared.path);
    if (!text.is_ok()) {
      return text.status().code() == StatusCode::kNotFound ? Status::ok() : text.status();
    }
    Result<AwsProfiles> profiles = read_aws_profiles(*text, kind);
    if (!profiles.is_ok()) {
      return profiles.status().with_context(shared.path);
    }
    shared.profiles = *std::move(profiles);
    return Status::ok();
  }

  const S3Surroundings& surroundings_;
  SharedFile credentials_;
  SharedFile config_;
  std::string looked_in_;
};

}  // namespace

std::string_view key_issuer_name(S3KeyIssuer issuer) {
  switch (issuer) {
    case S3KeyIssuer::kWebIdentity:
      return "web identity";
    case S3KeyIssuer::kProfile:
      return "profile";
    case S3KeyIssuer::kContainer:
      return "container";
    case S3KeyIssuer::kInstance:
      return "instance metadata";
  }
  DARKROOM_CHECK(false, "unknown issuer of keys:", static_cast<int>(issuer));
  return "";
}

Result<S3Credentials> find_s3_credentials(const S3Identity& identity, const S3Surroundings& surroundings) {
  if (identity.anonymous) {
    return S3Credentials{.keys = std::nullopt, .origin = "anonymous"};
  }
  return CredentialSearch(surroundings).run(identity.profile);
}

}  // namespace darkroom
