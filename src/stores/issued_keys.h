#pragma once

#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "s3_signature.h"

namespace darkroom {

// What those answer who give out temporary keys: documents from outside, bounded and judged. Errors of all: kCorruptData that says what
// lacks and shows nothing of the document, which holds secrets. Pure functions: any thread.

inline constexpr int64_t kMaxIssuedBytes = 65'536;

/// AccessKeyId, SecretAccessKey, the token under `token_name`, Expiration (may lack): how a container's credential service, an instance's
/// metadata ("Token") and a credential_process ("SessionToken", may lack) write keys. A "Code" other than "Success" is no keys.
Result<S3Keys> read_issued_keys(std::string_view json, const char* token_name);

/// The output of a credential_process, which also says "Version": 1.
Result<S3Keys> read_process_keys(std::string_view json);

/// The answer of AssumeRole or AssumeRoleWithWebIdentity (`action`), with keys that expire.
Result<S3Keys> read_assumed_keys(std::string_view xml, std::string_view action);

/// The answer of single sign-on's GetRoleCredentials.
Result<S3Keys> read_sign_on_keys(std::string_view json);

/// The token that `aws sso login` left.
struct SignOnToken {
  std::string token;
  std::chrono::sys_seconds expires{};
};
Result<SignOnToken> read_sign_on_token(std::string_view json);

/// The error's code in an answer of the security token service; empty where there is none that looks like one.
std::string assume_error_code(std::string_view xml);

}  // namespace darkroom
