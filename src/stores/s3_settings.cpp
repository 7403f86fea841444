#include "s3_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "darkroom/stores/stores.h"
#include "percent_escapes.h"
#include "s3_retry.h"

namespace darkroom {
namespace {

Status bad_setting(std::string_view why, std::string_view setting) {
  return Status::invalid_argument(fmt::format("an s3:// address is followed by ?NAME=VALUE&...; {}:", why), setting);
}

/// A setting that is none, without its value, which may be a secret that somebody put there.
std::string shown_setting(std::string_view setting) {
  const size_t equals = setting.find('=');
  return equals == std::string_view::npos ? "(no =)" : fmt::format("{}=...", setting.substr(0, equals));
}

std::optional<int> read_count(std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count >= 0 ? std::optional(count) : std::nullopt;
}

/// HOST[:PORT], or a URL of a server without a path.
Status set_endpoint(std::string_view text, S3Options& options) {
  for (const std::string_view scheme : {"http", "https"}) {
    if (text.starts_with(fmt::format("{}://", scheme))) {
      text.remove_prefix(scheme.size() + 3);
      options.scheme = scheme;
    }
  }
  if (text.ends_with('/')) {
    text.remove_suffix(1);
  }
  if (text.empty() || text.find_first_of("/?#@") != std::string_view::npos) {
    return Status::invalid_argument("the endpoint of an S3 store is HOST[:PORT], with http:// or https:// before it:",
                                    text.substr(text.rfind('@') + 1));
  }
  options.endpoint = text;
  return Status::ok();
}

/// Such as "20s" or "500ms".
std::optional<std::chrono::milliseconds> read_timeout(std::string_view text) {
  const bool is_ms = text.ends_with("ms");
  if (!text.ends_with('s')) {
    return std::nullopt;
  }
  text.remove_suffix(is_ms ? 2 : 1);
  const std::optional<int> count = read_count(text);
  return count ? std::optional(is_ms ? std::chrono::milliseconds(*count) : std::chrono::seconds(*count)) : std::nullopt;
}

Status set_one(std::string_view name, const std::string& value, S3Options& options) {
  if (name == "endpoint_override") {
    return set_endpoint(value, options);
  }
  if (name == "anonymous" && (value == "true" || value == "false")) {
    options.anonymous = value == "true";
  } else if (name == "force_virtual_addressing" && (value == "true" || value == "false")) {
    options.path_style = value == "false";
  } else if (name == "scheme" && (value == "http" || value == "https")) {
    options.scheme = value;
  } else if (name == "region" && !value.empty()) {
    options.region = value;
  } else if (name == "profile" && !value.empty()) {
    options.profile = value;
  } else if (const auto timeout = read_timeout(value); name == "timeout" && timeout) {
    options.timeout = *timeout;
  } else if (const auto tries = read_count(value); name == "tries" && tries) {
    options.max_tries = *tries;
  } else {
    constexpr std::string_view kShown[] = {"scheme", "anonymous", "force_virtual_addressing", "timeout",
                                           "tries"};  // No secrets of any kind.
    const bool is_shown = std::ranges::find(kShown, name) != std::end(kShown);
    return bad_setting(
        "there are endpoint_override, force_virtual_addressing (true, false), region, scheme (http, https), profile, anonymous (true, "
        "false), timeout (20s, 500ms) and tries (8)",
        is_shown ? fmt::format("{}={}", name, value) : fmt::format("{}=...", name));
  }
  return Status::ok();
}

std::optional<std::string> first_variable(const EnvironmentLookup& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = environment(name); value && !value->empty()) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<S3Options> read_s3_settings(std::string_view settings, const EnvironmentLookup& environment) {
  S3Options options;
  // One that is overridden is not read: its scheme is not that of the other one.
  const bool is_overridden = settings.starts_with("endpoint_override=") || settings.find("&endpoint_override=") != std::string_view::npos;
  const auto url = is_overridden ? std::nullopt : first_variable(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (url) {
    DARKROOM_RETURN_IF_ERROR(set_endpoint(*url, options).with_context("reading AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL"));
  }
  options.region = first_variable(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"}).value_or("");
  if (const auto tries = first_variable(environment, {"AWS_MAX_ATTEMPTS"})) {
    const std::optional<int> count = read_count(*tries);
    if (!count || *count < 1 || *count > kMaxS3Tries) {
      return Status::invalid_argument(fmt::format("AWS_MAX_ATTEMPTS must be 1 to {}:", kMaxS3Tries), *tries);
    }
    options.max_tries = *count;
  }
  while (!settings.empty()) {
    const std::string_view setting = settings.substr(0, settings.find('&'));
    settings.remove_prefix(std::min(setting.size() + 1, settings.size()));
    const size_t equals = setting.find('=');
    const auto value = equals == std::string_view::npos ? std::nullopt : decode_escapes(setting.substr(equals + 1));
    if (!value) {
      return bad_setting("this is none", shown_setting(setting));
    }
    DARKROOM_RETURN_IF_ERROR(set_one(setting.substr(0, equals), *value, options));
  }
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

Result<std::unique_ptr<Store>> open_s3_store(std::string_view settings, const StoreTools& tools) {
  const auto environment = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  DARKROOM_ASSIGN_OR_RETURN(const S3Options options, read_s3_settings(settings, environment));
  return make_s3_store(options, tools);
}

}  // namespace darkroom
