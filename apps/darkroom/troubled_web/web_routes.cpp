#include "web_routes.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace darkroom {
namespace {

using nlohmann::json;

const std::pair<std::string_view, Trouble> kTroubles[] = {
    {"none", Trouble::kNone},
    {"status", Trouble::kStatus},
    {"retry_after", Trouble::kRetryAfter},
    {"truncated", Trouble::kTruncated},
    {"html", Trouble::kHtml},
    {"redirect", Trouble::kRedirect},
    {"redirect_private", Trouble::kRedirectPrivate},
    {"redirect_loop", Trouble::kRedirectLoop},
    {"slow_drip", Trouble::kSlowDrip},
    {"reset", Trouble::kReset},
    {"hang", Trouble::kHang},
    {"garbage", Trouble::kGarbage},
    {"chunked", Trouble::kChunked},
    {"cut_chunks", Trouble::kCutChunks},
    {"endless", Trouble::kEndless},
    {"huge_headers", Trouble::kHugeHeaders},
    {"noai", Trouble::kNoai},
    {"gzip_label", Trouble::kGzipLabel},
};

bool needs_file(const WebRoute& route) {
  switch (route.trouble) {
    case Trouble::kNone:
    case Trouble::kTruncated:
    case Trouble::kSlowDrip:
    case Trouble::kChunked:
    case Trouble::kCutChunks:
    case Trouble::kNoai:
    case Trouble::kGzipLabel:
      return true;
    default:
      return route.times > 0;  // Then it is served well in the end.
  }
}

std::string content_type_of(const std::filesystem::path& file) {
  static const std::pair<std::string_view, std::string_view> kTypes[] = {
      {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".png", "image/png"},        {".webp", "image/webp"},
      {".gif", "image/gif"},  {".html", "text/html"},  {".json", "application/json"}};
  for (const auto& [extension, type] : kTypes) {
    if (file.extension() == extension) {
      return std::string(type);
    }
  }
  return "application/octet-stream";
}

// Inside the folder: relative and without "..".
bool is_inside(const std::filesystem::path& file) {
  if (file.is_absolute()) {
    return false;
  }
  for (const auto& part : file) {
    if (part == "..") {
      return false;
    }
  }
  return true;
}

Status set_file(const std::string& folder, const std::string& path, const std::string& file, WebRoute& route) {
  if (file.empty()) {
    return needs_file(route) ? Status::corrupt_data("a route of web.json needs a file (route):", path) : Status::ok();
  }
  if (!is_inside(file)) {
    return Status::corrupt_data("a route of web.json names a file outside its folder (route, file):", path, file);
  }
  const std::filesystem::path joined = std::filesystem::path(folder) / file;
  if (!std::filesystem::is_regular_file(joined)) {
    return Status::not_found("a route of web.json names a file that does not exist (route, file):", path, joined.string());
  }
  route.file_path = joined.string();
  if (route.content_type.empty()) {
    route.content_type = content_type_of(joined);
  }
  return Status::ok();
}

Status set_trouble(const std::string& path, const std::string& name, WebRoute& route) {
  for (const auto& [known, trouble] : kTroubles) {
    if (known == name) {
      route.trouble = trouble;
      return Status::ok();
    }
  }
  return Status::corrupt_data("a route of web.json has an unknown trouble (route, trouble):", path, name);
}

Status check_fields(const std::string& path, const WebRoute& route) {
  const bool is_redirect = route.trouble == Trouble::kRedirect && route.location.empty();
  const bool has_status = route.status == 0 || (route.status >= 200 && route.status <= 599);
  if (is_redirect || !has_status || route.times < 0 || route.seconds < 0 || route.bytes_per_second < 1) {
    return Status::corrupt_data("a route of web.json has a field that is missing or out of range (route):", path);
  }
  return route.location.find_first_of("\r\n") == std::string::npos && route.value.find_first_of("\r\n") == std::string::npos
             ? Status::ok()
             : Status::corrupt_data("a route of web.json has a line end in a header's value (route):", path);
}

Status read_route(const std::string& folder, const std::string& path, const json& fields, WebRoute& route) {
  DARKROOM_RETURN_IF_ERROR(set_trouble(path, fields.value("trouble", "none"), route));
  route.content_type = fields.value("content_type", "");
  route.location = fields.value("location", "");
  route.value = fields.value("value", "noai");
  route.status = fields.value("status", 0);
  route.seconds = fields.value("seconds", 1);
  route.as_date = fields.value("as_date", false);
  route.bytes_per_second = fields.value("bytes_per_second", 10);
  route.times = fields.value("times", int64_t{0});
  DARKROOM_RETURN_IF_ERROR(check_fields(path, route));
  return set_file(folder, path, fields.value("file", ""), route);
}

}  // namespace

Status read_web_routes(const std::string& folder, WebRoutes& routes) {
  const std::string json_path = (std::filesystem::path(folder) / "web.json").string();
  std::ifstream file(json_path);
  if (!file) {
    return Status::not_found("cannot read the routes of the web:", json_path);
  }
  try {
    const json web = json::parse(file);
    for (const auto& [path, fields] : web.at("routes").items()) {
      DARKROOM_RETURN_IF_ERROR(read_route(folder, path, fields, routes[path]));
    }
  } catch (const json::exception& error) {
    return Status::corrupt_data("web.json is not as expected (file, reason):", json_path, error.what());
  }
  return Status::ok();
}

}  // namespace darkroom
