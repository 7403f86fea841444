#include "darkroom/serve/painting_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "darkroom/core/version.h"
#include "darkroom/web/address_policy.h"
#include "request_fields.h"

namespace darkroom {

/// A path and what answers it. Of the two functions one is set.
struct PaintingService::Route {
  const char* path;
  const char* method;
  bool is_open;  ///< Needs no key: it tells that the server lives.
  HttpReply (PaintingService::*answer)(const HttpQuestion&);
  Result<ImageRequest> (PaintingService::*read)(const HttpQuestion&) const;
};

namespace {

constexpr int kBadRequest = 400;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFoundStatus = 404;
constexpr int kMethodNotAllowed = 405;
constexpr int kNotAcceptable = 406;
constexpr int kUnsupportedType = 415;
constexpr int kTooManyRequests = 429;
constexpr int kServerFault = 500;
constexpr int kNotNow = 503;

// The envelope of OpenAI's errors, which the other protocols leave free.
HttpReply problem(int status, std::string_view sentence) {
  const nlohmann::json body = {
      {"error", {{"message", sentence}, {"type", status < kServerFault ? "invalid_request_error" : "server_error"}, {"code", status}}}};
  return {.status = status, .body = json_text(body) + "\n"};
}

int http_status(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return kBadRequest;
    case StatusCode::kNotFound:
      return kNotFoundStatus;
    case StatusCode::kFailedPrecondition:
      return kNotAcceptable;
    case StatusCode::kResourceExhausted:
      return kTooManyRequests;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return kNotNow;
    default:
      return kServerFault;
  }
}

/// "localhost:8080" -> "localhost", "[::1]:80" -> "::1".
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) {
    return host.substr(1, host.find(']') == std::string_view::npos ? host.npos : host.find(']') - 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_local_host(std::string_view host) {
  const std::string_view name = host_name(host);
  return name == "localhost" || IpAddress::parse(name).has_value();
}

/// What a reply needs of a request that is being painted.
struct Painting {
  ImageRequest request;
  HttpService::Answer answer;
};

}  // namespace

PaintingService::PaintingService(PaintingServiceOptions options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock)
    : options_(std::move(options)), batcher_(batcher), metrics_(metrics), clock_(clock) {}

const std::vector<PaintingService::Route>& PaintingService::routes() {
  using Self = PaintingService;
  static const std::vector<Route> table = {
      {"/ping", "GET", true, &Self::readiness, nullptr},
      {"/health", "GET", true, &Self::health, nullptr},
      {"/v2/health/live", "GET", true, &Self::health, nullptr},
      {"/v2/health/ready", "GET", false, &Self::readiness, nullptr},
      {"/v1/models", "GET", false, &Self::models, nullptr},
      {"/metrics", "GET", false, &Self::metrics, nullptr},
      {"/invocations", "POST", false, nullptr, &Self::read_invocation_of},
      {"/", "POST", false, nullptr, &Self::read_invocation_of},
      {"/v1/images/generations", "POST", false, nullptr, &Self::read_generation_of},
  };
  return table;
}

HttpReply PaintingService::refuse(const Status& status) const {
  HttpReply reply = problem(http_status(status.code()), status.message());
  if (reply.status == kTooManyRequests || reply.status == kNotNow) {
    reply.headers.emplace_back("Retry-After", fmt::format("{}", batcher_.retry_after().count()));
  }
  return reply;
}

HttpReply PaintingService::health(const HttpQuestion&) { return {.type = "text/plain; charset=utf-8"}; }

HttpReply PaintingService::readiness(const HttpQuestion&) {
  return batcher_.is_draining() ? refuse(Status::unavailable("the server is shutting down"))
                                : HttpReply{.type = "text/plain; charset=utf-8"};
}

HttpReply PaintingService::models(const HttpQuestion&) {
  const nlohmann::json model = {{"id", options_.model.name}, {"object", "model"}, {"created", 0}, {"owned_by", "darkroom"}};
  const nlohmann::json list = {{"object", "list"}, {"data", {model}}};
  return {.body = json_text(list) + "\n"};
}

HttpReply PaintingService::metrics(const HttpQuestion&) {
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.to_prometheus()};
}

Result<ImageRequest> PaintingService::read_invocation_of(const HttpQuestion& question) const {
  return read_invocation(question.body, question.header("accept"), options_.model, options_.limits);
}

Result<ImageRequest> PaintingService::read_generation_of(const HttpQuestion& question) const {
  return read_openai_generation(question.body, options_.model, options_.limits);
}

Result<Clock::Instant> PaintingService::deadline_of(const HttpQuestion& question) const {
  const std::string_view asked = question.header("x-darkroom-deadline");
  double seconds = static_cast<double>(options_.deadline.count());
  if (!asked.empty()) {
    double given = 0.0;
    const auto [end, failure] = std::from_chars(asked.data(), asked.data() + asked.size(), given);
    if (failure != std::errc() || end != asked.data() + asked.size() || !(given > 0.0 && given <= 86'400.0)) {
      return Status::invalid_argument("the header X-Darkroom-Deadline must be a number of seconds above 0, at most 86,400, got:",
                                      asked.substr(0, 80));
    }
    seconds = std::min(seconds, given);
  }
  return clock_.now() + std::chrono::duration_cast<Clock::Instant::duration>(std::chrono::duration<double>(seconds));
}

// A web page can make its reader's browser send requests here; a browser says so in Origin.
std::optional<HttpReply> PaintingService::refuse_stranger(const HttpQuestion& question, bool is_open) const {
  const std::string_view host = question.header("host");
  const std::string_view origin = question.header("origin");
  if (!origin.empty() && origin != fmt::format("http://{}", host) && origin != fmt::format("https://{}", host)) {
    return problem(kForbidden, "requests of web pages of other origins are refused");
  }
  if (options_.keys.is_empty() && options_.only_local_hosts && !host.empty() && !is_local_host(host)) {
    return problem(kForbidden, "this server answers to localhost and to addresses only; another name needs --keys");
  }
  if (!is_open && !options_.keys.is_empty() && !options_.keys.admits(question.header("authorization"))) {
    HttpReply reply = problem(kUnauthorized, "a key is needed: Authorization: Bearer KEY");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  return std::nullopt;
}

HttpService::Answer PaintingService::counted(const char* route, Answer answer) {
  return [this, route, begun = clock_.now(), answer = std::move(answer)](ReplyMaker make) {
    answer([this, route, begun, make = std::move(make)] {
      HttpReply reply = make();
      metrics_
          .counter("darkroom_serve_requests_total", "Requests that were answered, by route and status.",
                   {{"route", route}, {"status", fmt::format("{}", reply.status)}})
          .add();
      metrics_.histogram("darkroom_serve_seconds", "Time from a request to its reply, by route.", latency_bounds(), {{"route", route}})
          .observe(std::chrono::duration<double>(clock_.now() - begun).count());
      return reply;
    });
  };
}

void PaintingService::handle(HttpQuestion question, std::stop_token gone, Answer answer) {
  const auto& table = routes();
  const auto route = std::find_if(table.begin(), table.end(), [&](const Route& one) { return question.path == one.path; });
  const bool is_known = route != table.end();
  const Answer reply = counted(is_known ? route->path : "other", std::move(answer));
  const auto say = [&](HttpReply said) { reply([said = std::move(said)] { return said; }); };
  if (auto refusal = refuse_stranger(question, is_known && route->is_open)) {
    say(*std::move(refusal));
  } else if (!is_known) {
    say(problem(kNotFoundStatus, "there is nothing here; docs/serve.md lists what this server answers"));
  } else if (question.method != route->method) {
    HttpReply refused = problem(kMethodNotAllowed, fmt::format("this path takes {} only", route->method));
    refused.headers.emplace_back("Allow", route->method);
    say(std::move(refused));
  } else if (route->answer != nullptr) {
    reply([this, route, question = std::move(question)] { return (this->*route->answer)(question); });
  } else {
    paint(question, *route, gone, reply);
  }
}

void PaintingService::paint(const HttpQuestion& question, const Route& route, const std::stop_token& gone, Answer answer) {
  const auto refuse_with = [&](const Status& status) { answer([reply = refuse(status)] { return reply; }); };
  const std::string_view type = question.header("content-type");
  if (type.substr(0, std::min(type.find(';'), type.size())) != "application/json") {
    answer([] { return problem(kUnsupportedType, "the request's body must be of Content-Type: application/json"); });
    return;
  }
  const auto deadline = deadline_of(question);
  auto request = (this->*route.read)(question);
  if (!deadline.is_ok() || !request.is_ok()) {
    refuse_with(deadline.is_ok() ? request.status() : deadline.status());
    return;
  }
  PaintOrder order{.pictures = request->pictures, .deadline = *deadline, .given_up = gone};
  const auto painting = std::make_shared<Painting>(Painting{*std::move(request), answer});  // Shared with the reply that is made later.
  const Status taken = batcher_.submit(std::move(order), [this, painting](Result<std::vector<Image>> result) {
    if (!result.is_ok()) {
      painting->answer([reply = refuse(result.status())] { return reply; });
      return;
    }
    const auto images = std::make_shared<const std::vector<Image>>(*std::move(result));  // Shared by copies of the function.
    painting->answer(
        [this, painting, images] { return image_reply(painting->request, *images, std::chrono::system_clock::to_time_t(clock_.wall())); });
  });
  if (!taken.is_ok()) {
    refuse_with(taken);
  }
}

}  // namespace darkroom
