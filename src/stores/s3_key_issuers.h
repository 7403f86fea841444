#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "aws_shared_files.h"
#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_client.h"
#include "s3_credentials.h"

namespace darkroom {

/// With what issuers of keys are asked. Thread safety: that of the functions given.
struct S3IssuerTools {
  AwsPlaces places;
  std::function<HttpResponse(const HttpRequest&)> exchange;
  std::function<Result<std::string>(const std::vector<std::string>& command)> run_process;
  Clock& clock;
};

/// Asks who gives out temporary keys, as the AWS tools do (AWS SDKs and Tools Reference Guide, "Standardized credential providers"):
/// - kContainer: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI at 169.254.170.2, or _FULL_URI over https, or over http of this machine and of the
///   addresses that Amazon's container services use; with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or _TOKEN.
/// - kInstance: the metadata service (version 2, else 1) at 169.254.169.254 or AWS_EC2_METADATA_SERVICE_ENDPOINT. None there: no keys.
/// - kWebIdentity: AssumeRoleWithWebIdentity with the token of a file.
/// - kProfile: role_arn with web_identity_token_file, source_profile or credential_source; single sign-on, with the token that
///   `aws sso login` left; credential_process.
/// AWS_ENDPOINT_URL_STS and AWS_ENDPOINT_URL_SSO move the services. What may pass is tried three times.
/// Errors: kFailedPrecondition, kInvalidArgument, kUnavailable, kCorruptData; no message shows a key, a token, a path that a container was
/// given or a word of an answer but an error's code. Thread safety: any thread.
class S3KeyIssuers {
 public:
  explicit S3KeyIssuers(S3IssuerTools tools) : tools_(std::move(tools)) {}

  Result<std::optional<S3Keys>> ask(S3KeyIssuer issuer, const std::string& profile) const { return ask_in_chain(issuer, profile, {}); }

 private:
  using Profiles = std::vector<std::string>;  // That lead to each other, to see a circle.
  struct Role {
    std::string arn;
    std::string session;
    std::string external_id;
    std::string seconds;  ///< Empty: the service's own default.
    std::string region;
  };

  Result<std::optional<S3Keys>> ask_in_chain(S3KeyIssuer issuer, const std::string& profile, const Profiles& before) const;
  Result<std::optional<S3Keys>> ask_instance() const;
  Result<S3Keys> ask_container() const;
  Result<S3Keys> ask_web_identity(const Role& role, const std::string& token_file) const;
  Result<S3Keys> ask_profile(const std::string& name, const Profiles& before) const;
  Result<S3Keys> ask_role(const AwsSharedFiles& files, const std::string& name, const Profiles& before) const;
  Result<S3Keys> source_keys(const AwsSharedFiles& files, const std::string& name, const Profiles& before) const;
  Result<S3Keys> ask_sign_on(const AwsSharedFiles& files, const std::string& name) const;

  Result<S3Keys> assume(std::string_view action, const Role& role, std::string body, const std::optional<S3Keys>& signer) const;
  /// The body of an answer of status 200. `who` names the issuer in messages.
  Result<std::string> fetch(std::string_view who, const HttpRequest& request) const;
  HttpResponse exchange_patiently(const HttpRequest& request, int num_tries) const;

  S3IssuerTools tools_;
};

}  // namespace darkroom
