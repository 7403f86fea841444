#include "darkroom/serve/painting_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/web/address_policy.h"
#include "openapi.h"
#include "protocols.h"

namespace darkroom {
namespace {

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

std::optional<HttpReply> refuse_type(const Route& route, const std::string& type) {
  std::string taken;
  for (const RouteBody& body : route.bodies) {
    if (body.type == type) {
      return std::nullopt;
    }
    taken += taken.empty() ? body.type : " or " + body.type;
  }
  return taken.empty() ? std::nullopt
                       : std::optional(problem_reply(http_status::kUnsupportedType,
                                                     fmt::format("the request's body must be of Content-Type: {}", taken)));
}

}  // namespace

struct PaintingService::Parts {
  Parts(const PaintingServiceOptions& options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock)
      : orders(options, batcher, clock), jobs(clock) {
    add_health_routes(table, orders, metrics);
    add_model_routes(table, orders);
    add_page_routes(table);
    add_image_routes(table, orders);
    add_job_routes(table, orders, jobs);
    add_a1111_routes(table, orders);
    add_edit_routes(table, orders);
    add_run_routes(table, orders, options.runs, run_desk);
    add_dataset_routes(table, orders, options.datasets, dataset_desk);
    add_multi_model_routes(table, orders);
    add_document_route(table, orders.needs_keys());
  }

  PictureOrders orders;
  JobStore jobs;
  RouteTable table;
  ReadingDesk dataset_desk{"datasets"};  // Last, with the next: their threads use what is above.
  ReadingDesk run_desk{"runs"};
};

PaintingService::PaintingService(PaintingServiceOptions options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_(clock),
      rate_(options_.rate_per_minute, clock),
      parts_(std::make_unique<Parts>(options_, batcher, metrics, clock)) {}

PaintingService::~PaintingService() = default;

void PaintingService::stop_finishing() {
  parts_->orders.stop_finishing();
  parts_->dataset_desk.stop();
  parts_->run_desk.stop();
}

bool PaintingService::await_idle(std::chrono::milliseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  const bool is_first_idle = parts_->dataset_desk.await_idle(patience);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return parts_->run_desk.await_idle(std::max(left, std::chrono::milliseconds(0))) && is_first_idle;
}

// A web page can make its reader's browser send requests here; a browser says so in Origin.
std::optional<HttpReply> PaintingService::refuse_stranger(const HttpQuestion& question, bool is_open) const {
  const std::string_view host = question.header("host");
  const std::string_view origin = question.header("origin");
  const std::string own = ascii_lower(std::string(host));
  const std::string page = ascii_lower(std::string(origin));
  if (!page.empty() && page != fmt::format("http://{}", own) && page != fmt::format("https://{}", own)) {
    return refusal_of_other_site();
  }
  if (options_.keys.is_empty() && options_.only_local_hosts && !host.empty() && !is_local_host(host)) {
    return problem_reply(http_status::kForbidden, "this server answers to localhost and to addresses only; another name needs --keys");
  }
  if (!is_open && !options_.keys.is_empty() && !options_.keys.admits(question.header("authorization"))) {
    HttpReply reply = problem_reply(http_status::kUnauthorized, "a key is needed: Authorization: Bearer KEY");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  return std::nullopt;
}

std::optional<HttpReply> PaintingService::refuse_head(const HttpQuestion& head) {
  const Route* const route = parts_->table.find(head.method, head.path).route;
  const std::string methods = route == nullptr ? parts_->table.methods_of(head.path) : std::string();
  if (auto refused = refuse_stranger(head, route != nullptr && route->is_open)) {
    return refused;
  }
  if (route == nullptr && methods.empty()) {
    return problem_reply(http_status::kNotFound, "there is nothing here; docs/serve.md lists what this server answers");
  }
  if (route == nullptr) {
    HttpReply refused = problem_reply(http_status::kMethodNotAllowed, fmt::format("this path takes {} only", methods));
    refused.headers.emplace_back("Allow", methods);
    return refused;
  }
  if (auto refused = refuse_type(*route, media_type(head.header("content-type")))) {
    return refused;
  }
  const auto wait = route->paints ? rate_.take(options_.keys.is_empty() ? std::string() : owner_of(head)) : std::nullopt;
  if (wait.has_value()) {
    HttpReply refused = problem_reply(http_status::kTooManyRequests, "this key has asked for pictures as often as it may (--rate)");
    refused.headers.emplace_back("Retry-After", fmt::format("{}", wait->count()));
    return refused;
  }
  return std::nullopt;
}

std::optional<HttpReply> PaintingService::refuse(const HttpQuestion& head) {
  const Clock::Instant begun = clock_.now();
  std::optional<HttpReply> refused = refuse_head(head);
  if (refused.has_value()) {
    const Route* const route = parts_->table.find(head.method, head.path).route;
    count(route != nullptr ? route->path : "other", begun, refused->status);
  }
  return refused;
}

size_t PaintingService::max_body_bytes(const HttpQuestion& head) const {
  const Route* const route = parts_->table.find(head.method, head.path).route;
  return route == nullptr || route->is_open ? 0 : route->max_body_bytes;  // Who has no key must not fill the room of those who have.
}

void PaintingService::handle(HttpQuestion question, std::stop_token gone, Answer answer) {
  RouteTable::Match match = parts_->table.find(question.method, question.path);  // There is one: refuse() has let the request pass.
  Answer reply = counted(match.route->path, std::move(answer));
  match.route->answer({.question = std::move(question),
                       .parameters = std::move(match.parameters),
                       .gone = std::move(gone),
                       .answer = std::move(reply),
                       .begun = clock_.now()});
}

void PaintingService::count(const std::string& route, Clock::Instant begun, int status) {
  metrics_
      .counter("darkroom_serve_requests_total", "Requests that were answered, by route and status.",
               {{"route", route}, {"status", fmt::format("{}", status)}})
      .add();
  metrics_.histogram("darkroom_serve_seconds", "Time from a request to its reply, by route.", latency_bounds(), {{"route", route}})
      .observe(std::chrono::duration<double>(clock_.now() - begun).count());
}

HttpService::Answer PaintingService::counted(const std::string& route, Answer answer) {
  return [this, route, begun = clock_.now(), answer = std::move(answer)](AnyReply reply) {
    if (auto* const make = std::get_if<ReplyMaker>(&reply)) {
      answer(ReplyMaker([this, route, begun, make = std::move(*make)] {  // It may hold a long body.
        HttpReply made = make();
        count(route, begun, made.status);
        return made;
      }));
      return;
    }
    const auto* const streamed = std::get_if<StreamedReply>(&reply);
    count(route, begun, streamed != nullptr ? streamed->status : std::get<HttpReply>(reply).status);
    answer(std::move(reply));
  };
}

}  // namespace darkroom
