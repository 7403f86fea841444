#include "darkroom/serve/painting_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/version.h"
#include "darkroom/web/address_policy.h"
#include "page_files.h"
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
    case StatusCode::kFailedPrecondition:
      return kBadRequest;
    case StatusCode::kNotFound:
      return kNotFoundStatus;
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
  const std::string name = ascii_lower(std::string(host_name(host)));
  return name == "localhost" || IpAddress::parse(name).has_value();
}

/// "Application/JSON ; charset=utf-8" -> "application/json".
std::string media_type(std::string_view type) {
  type = type.substr(0, type.find(';'));
  return ascii_lower(std::string(type.substr(0, type.find_last_not_of(" \t") + 1)));
}

/// What a reply needs of a request that is being painted.
struct Painting {
  ImageRequest request;
  HttpService::Answer answer;
  std::shared_ptr<const void> held;
};

}  // namespace

PaintingService::PaintingService(PaintingServiceOptions options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock)
    : options_(std::move(options)),
      batcher_(batcher),
      metrics_(metrics),
      clock_(clock),
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}

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

HttpReply PaintingService::refusal(const Status& status) const {
  HttpReply reply = problem(http_status(status.code()), status.message());
  if (reply.status == kTooManyRequests || reply.status == kNotNow) {
    reply.headers.emplace_back("Retry-After", fmt::format("{}", batcher_.retry_after().count()));
  }
  return reply;
}

HttpReply PaintingService::health(const HttpQuestion&) { return {.type = "text/plain; charset=utf-8"}; }

HttpReply PaintingService::readiness(const HttpQuestion&) {
  return batcher_.is_draining() ? refusal(Status::unavailable("the server is shutting down"))
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
  double seconds = std::chrono::duration<double>(options_.deadline).count();
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
  const std::string own = ascii_lower(std::string(host));
  const std::string page = ascii_lower(std::string(origin));
  if (!page.empty() && page != fmt::format("http://{}", own) && page != fmt::format("https://{}", own)) {
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

void PaintingService::count(const char* route, Clock::Instant begun, const HttpReply& reply) {
  metrics_
      .counter("darkroom_serve_requests_total", "Requests that were answered, by route and status.",
               {{"route", route}, {"status", fmt::format("{}", reply.status)}})
      .add();
  metrics_.histogram("darkroom_serve_seconds", "Time from a request to its reply, by route.", latency_bounds(), {{"route", route}})
      .observe(std::chrono::duration<double>(clock_.now() - begun).count());
}

HttpService::Answer PaintingService::counted(const char* route, Answer answer) {
  return [this, route, begun = clock_.now(), answer = std::move(answer)](AnyReply reply) {
    if (const auto* const ready = std::get_if<HttpReply>(&reply)) {
      count(route, begun, *ready);
      answer(std::move(reply));
      return;
    }
    answer(ReplyMaker([this, route, begun, make = std::get<ReplyMaker>(std::move(reply))] {
      HttpReply made = make();
      count(route, begun, made);
      return made;
    }));
  };
}

const PaintingService::Route* PaintingService::find_route(const std::string& path) {
  const auto& table = routes();
  const auto route = std::find_if(table.begin(), table.end(), [&](const Route& one) { return path == one.path; });
  return route == table.end() ? nullptr : &*route;
}

std::optional<HttpReply> PaintingService::refuse_head(const HttpQuestion& head, const Route* route) const {
  if (auto refused = refuse_stranger(head, route != nullptr && route->is_open)) {
    return refused;
  }
  if (route == nullptr) {
    return problem(kNotFoundStatus, "there is nothing here; docs/serve.md lists what this server answers");
  }
  if (head.method != route->method) {
    HttpReply refused = problem(kMethodNotAllowed, fmt::format("this path takes {} only", route->method));
    refused.headers.emplace_back("Allow", route->method);
    return refused;
  }
  if (route->read != nullptr && media_type(head.header("content-type")) != "application/json") {
    return problem(kUnsupportedType, "the request's body must be of Content-Type: application/json");
  }
  return std::nullopt;
}

std::optional<HttpReply> PaintingService::refuse(const HttpQuestion& head) {
  const Clock::Instant begun = clock_.now();
  if (std::optional<HttpReply> reply = page_reply(head)) {  // Its files hold no secret: the page itself asks for a key.
    if (auto stranger = refuse_stranger(head, true)) {
      reply = std::move(stranger);
    }
    count("page", begun, *reply);
    return reply;
  }
  const Route* const route = find_route(head.path);
  std::optional<HttpReply> refused = refuse_head(head, route);
  if (refused.has_value()) {
    count(route != nullptr ? route->path : "other", begun, *refused);
  }
  return refused;
}

void PaintingService::handle(HttpQuestion question, std::stop_token gone, Answer answer) {
  const Route* const route = find_route(question.path);  // There is one: refuse() has let the request pass.
  const Answer reply = counted(route->path, std::move(answer));
  if (route->answer != nullptr) {
    reply((this->*route->answer)(question));
  } else {
    paint(question, *route, gone, reply);
  }
}

// Null where there is no room.
std::shared_ptr<const void> PaintingService::hold_bytes(int64_t num_bytes) {
  if (held_bytes_->fetch_add(num_bytes) + num_bytes > options_.max_reply_bytes) {
    held_bytes_->fetch_sub(num_bytes);
    return nullptr;
  }
  return {static_cast<const void*>(this), [all = held_bytes_, num_bytes](const void*) { all->fetch_sub(num_bytes); }};
}

void PaintingService::paint(const HttpQuestion& question, const Route& route, const std::stop_token& gone, const Answer& answer) {
  const auto deadline = deadline_of(question);
  auto request = (this->*route.read)(question);
  if (!deadline.is_ok() || !request.is_ok()) {
    const Status failure = deadline.is_ok() ? request.status() : deadline.status();
    answer(failure.code() == StatusCode::kFailedPrecondition ? problem(kNotAcceptable, failure.message()) : refusal(failure));
    return;
  }
  const int64_t num_bytes = request->bytes_held();
  if (num_bytes > options_.max_reply_bytes) {
    answer(refusal(Status::invalid_argument(
        "the pictures take more memory than this server has for them; ask for fewer at a time (bytes, bound):", num_bytes,
        options_.max_reply_bytes)));
    return;
  }
  std::shared_ptr<const void> held = hold_bytes(num_bytes);
  if (held == nullptr) {
    answer(refusal(Status::resource_exhausted("the server holds as many pictures as it has memory for; try again later")));
    return;
  }
  PaintOrder order{.pictures = std::move(request->pictures), .deadline = *deadline, .given_up = gone};
  request->pictures.clear();
  const auto painting =
      std::make_shared<Painting>(Painting{*std::move(request), answer, std::move(held)});  // Shared with the reply that is made later.
  const Status taken = batcher_.submit(std::move(order), [this, painting](Result<std::vector<Image>> result) {
    if (!result.is_ok()) {
      painting->held.reset();
      painting->answer(refusal(result.status()));
      return;
    }
    const auto images = std::make_shared<const std::vector<Image>>(*std::move(result));  // Shared by copies of the function.
    painting->answer(ReplyMaker([this, painting, images] {
      HttpReply reply = image_reply(painting->request, *images, std::chrono::system_clock::to_time_t(clock_.wall()));
      reply.held = std::move(painting->held);  // Whoever has the reply may ask again: nothing else may hold the room by then.
      return reply;
    }));
  });
  if (!taken.is_ok()) {
    answer(refusal(taken));
  }
}

}  // namespace darkroom
