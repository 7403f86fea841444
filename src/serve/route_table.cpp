#include "route_table.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

/// Takes the first part off a path: "/v1/jobs" -> "v1", "/jobs".
std::string_view take_part(std::string_view& path) {
  path.remove_prefix(1);
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(part.size());
  return part;
}

/// What stands for a pattern's parts in braces; nothing: the path does not fit.
std::optional<std::vector<std::string>> match_path(std::string_view pattern, std::string_view path) {
  std::vector<std::string> parameters;
  while (pattern.starts_with('/') && path.starts_with('/')) {
    const std::string_view wanted = take_part(pattern);
    const std::string_view given = take_part(path);
    if (wanted.starts_with('{') && !given.empty()) {
      parameters.push_back(percent_decoded(given));
    } else if (wanted != given) {
      return std::nullopt;
    }
  }
  return pattern.empty() && path.empty() ? std::optional(std::move(parameters)) : std::nullopt;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  constexpr int kHexadecimal = 16;
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(std::min(i + 1, text.size()), 2);
    uint8_t value = 0;
    const bool is_escape = text[i] == '%' && digits.size() == 2 &&
                           std::from_chars(digits.data(), digits.data() + 2, value, kHexadecimal).ptr == digits.data() + 2;
    decoded += is_escape ? static_cast<char>(value) : text[i];
    i += is_escape ? 2 : 0;
  }
  return decoded;
}

std::function<void(RouteCall)> answer_at_once(std::function<HttpReply(const RouteCall&)> reply) {
  return [reply = std::move(reply)](const RouteCall& call) { call.answer(reply(call)); };
}

void RouteTable::add(Route route) {
  DARKROOM_CHECK(route.path.starts_with('/'), "a route's path begins with /:", route.path);
  const bool is_there =
      std::any_of(routes_.begin(), routes_.end(), [&](const Route& one) { return one.method == route.method && one.path == route.path; });
  DARKROOM_CHECK(!is_there, "two routes for one method and path:", route.method, route.path);
  routes_.push_back(std::move(route));
}

RouteTable::Match RouteTable::find(std::string_view method, std::string_view path) const {
  for (const Route& route : routes_) {
    if (route.method == method) {
      if (auto parameters = match_path(route.path, path)) {
        return {.route = &route, .parameters = *std::move(parameters)};
      }
    }
  }
  return {};
}

std::string RouteTable::methods_of(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    if (match_path(route.path, path).has_value()) {
      methods += methods.empty() ? route.method : ", " + route.method;
    }
  }
  return methods;
}

}  // namespace darkroom
