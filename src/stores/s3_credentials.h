#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "aws_shared_files.h"
#include "darkroom/core/result.h"
#include "s3_signature.h"

namespace darkroom {

/// What the address of a store says about whom to be.
struct S3Identity {
  bool anonymous = false;  ///< Requests are not signed.
  std::string profile;     ///< Empty: the environment decides.
};

/// Who gives out temporary keys that stand in no variable and no file; it takes a network or another program to ask them.
enum class S3KeyIssuer {
  kWebIdentity,  ///< AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN.
  kProfile,      ///< A profile with a role, single sign-on or a process of its own.
  kContainer,    ///< AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI.
  kInstance,     ///< The metadata service of a machine at EC2, asked last.
};

/// "web identity", "profile", "container", "instance metadata".
std::string_view key_issuer_name(S3KeyIssuer issuer);

/// Everything that find_s3_credentials may look at. Thread safety: that of the functions given.
struct S3Surroundings : AwsPlaces {
  /// Keys of an issuer; `profile` is the name of the one that leads there, "" without. No keys: there is no such issuer here (an
  /// instance without a role). Null: none can be asked.
  std::function<Result<std::optional<S3Keys>>(S3KeyIssuer issuer, const std::string& profile)> ask;
};

struct S3Credentials {
  std::optional<S3Keys> keys;  ///< None: anonymous.
  std::string origin;          ///< For people, without secrets: "AWS_ACCESS_KEY_ID", "profile a of /home/u/.aws/credentials".
};

/// The first that there are, in the order of the AWS Command Line Interface ("Configuration settings and precedence"):
///  1. identity.anonymous: no keys, nothing is looked at.
///  2. identity.profile: that profile, in the order of 4, 6, 7, 8, 9, or an error.
///  3. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with AWS_SESSION_TOKEN.
///  4. A role (role_arn, web_identity_token_file) of the profile AWS_PROFILE, which must exist where it is set, else of "default",
///     which need not: kProfile.
///  5. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN: kWebIdentity.
///  6. Single sign-on (sso_session, sso_start_url, sso_account_id) of that profile: kProfile.
///  7. Its keys in the credentials file (~/.aws/credentials, or AWS_SHARED_CREDENTIALS_FILE).
///  8. Its credential_process: kProfile.
///  9. Its keys in the config file (~/.aws/config, or AWS_CONFIG_FILE).
/// 10. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or AWS_CONTAINER_CREDENTIALS_FULL_URI: kContainer.
/// 11. kInstance, unless AWS_EC2_METADATA_DISABLED is "true".
/// An id is never joined with a secret or a token of another place. A variable that is set and empty counts as not set; a file that
/// does not exist is empty.
/// Errors: kFailedPrecondition: half a pair of keys, a profile that does not exist or holds no keys, an issuer that cannot be asked
/// or has none, no credentials anywhere (names what was looked at and what to do); kInvalidArgument: a file that is not understood;
/// what read_file and ask return. No message shows a value of a variable that holds keys or of a file.
Result<S3Credentials> find_s3_credentials(const S3Identity& identity, const S3Surroundings& surroundings);

}  // namespace darkroom
