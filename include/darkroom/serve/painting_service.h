#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/serve/access_keys.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/serve/image_requests.h"
#include "darkroom/serve/step_batcher.h"

namespace darkroom {

struct PaintingServiceOptions {
  ModelFacts model;
  RequestLimits limits;
  AccessKeys keys;                             ///< Without any, nobody is asked for one.
  std::chrono::milliseconds deadline{60'000};  ///< Of a request; its header X-Darkroom-Deadline (seconds) may shorten it.
  /// Of pictures that are being painted or painted and of replies with them that are not sent, all together.
  int64_t max_reply_bytes = 512'000'000;
  /// Without keys, of a server on loopback: requests whose Host is another name than localhost are refused, because a web page's own name
  /// may be made to lead here (DNS rebinding).
  bool only_local_hosts = true;
};

/// The routes of docs/serve.md over one batcher. Thread safety: as HttpService.
class PaintingService final : public HttpService {
 public:
  /// Metrics and clock outlive the service. What the batcher has taken answers through the service: at the end the server goes first, then
  /// the batcher, then the service.
  PaintingService(PaintingServiceOptions options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock = system_clock());

  std::optional<HttpReply> refuse(const HttpQuestion& head) override;
  void handle(HttpQuestion question, std::stop_token gone, Answer answer) override;

 private:
  struct Route;
  static const std::vector<Route>& routes();
  static const Route* find_route(const std::string& path);
  HttpReply refusal(const Status& status) const;
  HttpReply health(const HttpQuestion& question);
  HttpReply readiness(const HttpQuestion& question);
  HttpReply models(const HttpQuestion& question);
  HttpReply metrics(const HttpQuestion& question);
  Result<ImageRequest> read_invocation_of(const HttpQuestion& question) const;
  Result<ImageRequest> read_generation_of(const HttpQuestion& question) const;
  Result<Clock::Instant> deadline_of(const HttpQuestion& question) const;
  std::optional<HttpReply> refuse_stranger(const HttpQuestion& question, bool is_open) const;
  std::optional<HttpReply> refuse_head(const HttpQuestion& head, const Route* route) const;
  std::shared_ptr<const void> hold_bytes(int64_t num_bytes);
  void paint(const HttpQuestion& question, const Route& route, const std::stop_token& gone, const Answer& answer);
  void count(const char* route, Clock::Instant begun, const HttpReply& reply);
  Answer counted(const char* route, Answer answer);

  const PaintingServiceOptions options_;
  StepBatcher& batcher_;
  MetricsRegistry& metrics_;
  Clock& clock_;
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_;  // Shared with replies, which may end after the service.
};

}  // namespace darkroom
