#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/stores/s3_store.h"

namespace darkroom {

/// The value of a variable of the environment; nothing where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// What stands behind "?" in an s3:// address: `endpoint_override` (HOST[:PORT], or http:// or https:// before it), `region`, `scheme`,
/// `profile`, `anonymous` (true or false), as NAME=VALUE with "&" between them and %XX decoded (names as Arrow has them). Where it is
/// silent: AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL; AWS_REGION, else AWS_DEFAULT_REGION.
/// Errors: kInvalidArgument naming the setting. Pure.
Result<S3Options> read_s3_settings(std::string_view settings, const EnvironmentLookup& environment);

}  // namespace darkroom
