#include "s3_credentials.h"

#include <array>
#include <span>
#include <utility>

namespace darkroom {
namespace {

constexpr const char* kKeyIdSetting = "aws_access_key_id";
constexpr const char* kSecretSetting = "aws_secret_access_key";
constexpr const char* kTokenSetting = "aws_session_token";

/// Settings of a profile that lead to an issuer even where keys stand beside them.
constexpr std::array<const char*, 2> kRoleSettings = {"role_arn", "web_identity_token_file"};
constexpr std::array<const char*, 3> kSignOnSettings = {"sso_session", "sso_start_url", "sso_account_id"};

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

  std::string variable(const std::string& name) const { return surroundings_.variable(name); }

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
    return files_.holds(name) ? Status::ok()
                              : Status::failed_precondition("there is no such profile for S3 (looked in, profile):", looked_in_, name);
  }

  /// Where either file gives the profile one of the settings.
  Result<Found> from_issuer_of(const std::string& profile, std::span<const char* const> settings) {
    for (const char* setting : settings) {
      if (!files_.setting(profile, setting).empty()) {
        return required_from(S3KeyIssuer::kProfile, profile);
      }
    }
    return Found();
  }

  Result<Found> from_keys_in(const AwsSharedFile& file, const std::string& profile) const {
    const std::string origin = fmt::format("profile {} of {}", profile, file.path);
    Result<std::optional<S3Keys>> keys = keys_of_profile(file.profile(profile));
    if (!keys.is_ok()) {
      return keys.status().with_context(origin);
    }
    return *keys ? Found(S3Credentials{.keys = *std::move(keys), .origin = origin}) : Found();
  }

  /// All but its role.
  Result<Found> from_profile(const std::string& name) {
    constexpr std::array<const char*, 1> kProcessSettings = {"credential_process"};
    DARKROOM_ASSIGN_OR_RETURN(Found found, from_issuer_of(name, kSignOnSettings));
    if (!found) {
      DARKROOM_ASSIGN_OR_RETURN(found, from_keys_in(files_.credentials, name));
    }
    if (!found) {
      DARKROOM_ASSIGN_OR_RETURN(found, from_issuer_of(name, kProcessSettings));
    }
    return found ? Result<Found>(std::move(found)) : from_keys_in(files_.config, name);
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
    DARKROOM_ASSIGN_OR_RETURN(files_, read_aws_shared_files(surroundings_));
    for (const AwsSharedFile* file : {&files_.credentials, &files_.config}) {
      if (!file->path.empty()) {
        note_place(file->path);
      }
    }
    return Status::ok();
  }

  const S3Surroundings& surroundings_;
  AwsSharedFiles files_;
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
