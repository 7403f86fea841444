#include "protocols.h"

namespace darkroom {

namespace {

constexpr const char* kPlainText = "text/plain; charset=utf-8";

}  // namespace

void add_health_routes(RouteTable& table, const PictureOrders& orders, MetricsRegistry& metrics) {
  const auto lives = answer_at_once([](const RouteCall&) { return HttpReply{.type = kPlainText}; });
  const auto is_ready = answer_at_once([&orders](const RouteCall&) {
    return orders.is_draining() ? orders.refusal(Status::unavailable("the server is shutting down")) : HttpReply{.type = kPlainText};
  });
  const std::vector<RouteReply> nothing = {{.type = "text/plain", .what = "Yes: an empty body."}};
  table.add({.method = "GET",
             .path = "/ping",
             .summary = "Whether the server takes requests (SageMaker)",
             .answer = is_ready,
             .is_open = true,
             .replies = nothing});
  table.add(
      {.method = "GET", .path = "/health", .summary = "Whether the process answers", .answer = lives, .is_open = true, .replies = nothing});
  table.add({.method = "GET",
             .path = "/v2/health/live",
             .summary = "Whether the process answers (Open Inference Protocol)",
             .answer = lives,
             .is_open = true,
             .replies = nothing});
  table.add({.method = "GET",
             .path = "/v2/health/ready",
             .summary = "Whether the server takes requests (Open Inference Protocol)",
             .answer = is_ready,
             .replies = nothing});
  table.add({.method = "GET",
             .path = "/metrics",
             .summary = "Prometheus' text",
             .answer = answer_at_once([&metrics](const RouteCall&) {
               return HttpReply{.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics.to_prometheus()};
             }),
             .replies = {{.type = "text/plain", .what = "The metrics of docs/metrics.md."}}});
}

}  // namespace darkroom
