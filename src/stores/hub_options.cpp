#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/hub.h"
#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

bool is_switched_on(const std::optional<std::string>& value) {
  return value && (*value == "1" || same_word(*value, "on") || same_word(*value, "yes") || same_word(*value, "true"));
}

/// A variable that is set and empty counts as not set.
std::optional<std::string> non_empty(std::optional<std::string> value) {
  return value && !value->empty() ? std::move(value) : std::nullopt;
}

std::optional<std::string> clean_token(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  return non_empty(std::string(trim_blanks(text)));
}

std::string in_home(const HubSurroundings& around, std::string path) {
  if (path == "~" || path.starts_with("~/")) {
    path = around.environment("HOME").value_or("") + path.substr(1);
  }
  return path;
}

std::string token_path(const HubSurroundings& around) {
  if (auto path = non_empty(around.environment("HF_TOKEN_PATH"))) {
    return in_home(around, *std::move(path));
  }
  if (auto home = non_empty(around.environment("HF_HOME"))) {
    return join_path(in_home(around, *std::move(home)), "token");
  }
  const std::string cache = non_empty(around.environment("XDG_CACHE_HOME")).value_or("~/.cache");
  return join_path(in_home(around, cache), "huggingface/token");
}

Result<std::optional<std::string>> find_token(const HubSurroundings& around) {
  if (is_switched_on(around.environment("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    return std::optional<std::string>();
  }
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (auto token = clean_token(around.environment(name).value_or(""))) {
      return token;
    }
  }
  const Result<std::string> text = around.read_file(token_path(around));
  if (!text.is_ok() && text.status().code() != StatusCode::kNotFound) {
    return text.status().with_context("reading the hub's token");
  }
  return text.is_ok() ? clean_token(*text) : std::nullopt;
}

}  // namespace

Status HubOptions::validate() const {
  if (!UrlHop::parse(endpoint, any_place()).is_ok() || endpoint.find_first_of("?#") != std::string::npos) {
    return Status::invalid_argument("the hub's endpoint (HF_ENDPOINT) must be an address like https://huggingface.co:",
                                    shown_url(endpoint));
  }
  const auto is_plain = [](unsigned char c) { return c > ' ' && c < 0x7F; };
  if (token && (token->empty() || token->size() > kMaxTokenBytes || !std::all_of(token->begin(), token->end(), is_plain))) {
    return Status::invalid_argument(
        "the hub's token (HF_TOKEN, or the file of HF_TOKEN_PATH) is empty, too long or holds characters that no token has");
  }
  return Status::ok();
}

Result<HubOptions> find_hub_options(const HubSurroundings& around) {
  HubOptions options;
  if (auto endpoint = non_empty(around.environment("HF_ENDPOINT"))) {
    options.endpoint = without_trailing_slashes(*endpoint);
  }
  DARKROOM_ASSIGN_OR_RETURN(options.token, find_token(around));
  options.is_offline = is_switched_on(around.environment("HF_HUB_OFFLINE"));
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

Result<HubOptions> hub_from_environment() {
  const auto variable = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return find_hub_options({.environment = variable, .read_file = [](const std::string& path) { return read_file(local_files(), path); }});
}

}  // namespace darkroom
