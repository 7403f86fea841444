#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/serve/http_server.h"

namespace darkroom {

/// Statuses of replies, where a number would not say what it means.
namespace http_status {
inline constexpr int kAccepted = 202;
inline constexpr int kNoContent = 204;
inline constexpr int kNotModified = 304;
inline constexpr int kBadRequest = 400;
inline constexpr int kUnauthorized = 401;
inline constexpr int kForbidden = 403;
inline constexpr int kNotFound = 404;
inline constexpr int kMethodNotAllowed = 405;
inline constexpr int kNotAcceptable = 406;
inline constexpr int kConflict = 409;
inline constexpr int kGone = 410;
inline constexpr int kUnsupportedType = 415;
inline constexpr int kTooManyRequests = 429;
inline constexpr int kServerFault = 500;
inline constexpr int kNotImplemented = 501;
inline constexpr int kNotNow = 503;
inline constexpr int kNoMemory = 507;
}  // namespace http_status

/// A request that a route answers, at once or later.
struct RouteCall {
  HttpQuestion question;
  std::vector<std::string> parameters = {};     ///< What stands for the path's parts in braces, in their order, percent-decoded.
  std::stop_token gone = {};                    ///< As HttpService::handle's.
  HttpService::Answer answer = {};              ///< To be called once, by any thread.
  std::optional<Clock::Instant> deadline = {};  ///< Where it was worked out before the request was read.
  Clock::Instant begun = {};                    ///< When it was there, with its body.
};

/// Bytes of a body that the connections' thread reads itself: a prompt and a negative text, every byte of both escaped (six bytes each),
/// and as much again. Longer ones take their time, and are read by others.
inline constexpr size_t kMostReadAtOnce = 262'144;

/// A kind of body that a route takes.
struct RouteBody {
  std::string type = "application/json";   ///< The Content-Type.
  std::function<nlohmann::json()> schema;  ///< JSON Schema, for the OpenAPI document.
};

/// A kind of reply, for the OpenAPI document. Failures need none: they look alike everywhere.
struct RouteReply {
  int status = 200;
  std::string type = "application/json";
  std::string what = {};                        ///< A sentence.
  std::function<nlohmann::json()> schema = {};  ///< JSON Schema of the body, where it is told.
};

/// A path with a method, and what answers it.
struct Route {
  std::string method;                     ///< "GET".
  std::string path;                       ///< "/v1/jobs/{id}": a part in braces stands for any part that is not empty.
  std::string summary;                    ///< What it does, in a line.
  std::function<void(RouteCall)> answer;  ///< Called by the server's I/O thread: must be quick.
  bool is_open = false;                   ///< Needs no key: it tells that the server lives.
  bool paints = false;                    ///< Counts against its client's rate.
  std::vector<RouteBody> bodies = {};     ///< Any of them; empty: there is no body.
  size_t max_body_bytes = kMostReadAtOnce;
  std::function<nlohmann::json()> query_schema = {};  ///< JSON Schema of an object with the query's fields, where it is read.
  std::vector<RouteReply> replies = {};
};

/// The answer of a route that needs nothing but the request and replies at once.
std::function<void(RouteCall)> answer_at_once(std::function<HttpReply(const RouteCall&)> reply);

/// What a server answers: parts of it add their routes, the service finds them. Thread safety: immutable once it is filled.
class RouteTable {
 public:
  struct Match {
    const Route* route = nullptr;  ///< Null: none.
    std::vector<std::string> parameters = {};
  };

  /// REQUIRES: no route has the same method and path yet.
  void add(Route route);
  /// The first that was added of those that fit.
  Match find(std::string_view method, std::string_view path) const;
  /// "GET, DELETE": the methods that a path takes; empty: there is nothing at it.
  std::string methods_of(std::string_view path) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

/// "a%20b" -> "a b"; what is no escape stays.
std::string percent_decoded(std::string_view text);

}  // namespace darkroom
