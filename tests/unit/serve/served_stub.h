#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/image/picture_decoder.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/web/metrics_server.h"
#include "serve_client.h"
#include "stub_engine.h"

namespace darkroom {

inline constexpr std::string_view kKey = "a-key-of-at-least-16";

/// A server over a stub that paints at once.
class ServedStub : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    engine_.release();
    server_.reset();
    intake_.reset();
    if (service_.has_value()) {
      service_->stop_finishing();
      EXPECT_TRUE(service_->await_idle(std::chrono::minutes(1)));  // What a dataset's reader answers with asks the batcher.
    }
    batcher_.reset();  // It answers through the service.
    service_.reset();
  }
  void start(AccessKeys keys, double queue_cost = 1e9, HttpServerOptions options = {}) {
    TearDown();
    batcher_.emplace(engine_, StepBatcherOptions{.max_batch = 4, .queue_cost = queue_cost}, metrics_, clock_);
    if (has_intake_) {
      intake_.emplace(
          PictureIntakeOptions{}, [](const std::stop_token&) { return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process()); },
          clock_);
    }
    service_.emplace(
        PaintingServiceOptions{
            .model = {.name = "stub", .native_size = 8, .size_multiple = 8, .samplers = {"ddim"}, .default_sampler = "ddim"},
            .limits = {},
            .keys = std::move(keys),
            .max_reply_bytes = max_reply_bytes_,
            .intake = intake_.has_value() ? &*intake_ : nullptr,
            .runs = runs_,
            .datasets = datasets_},
        *batcher_, metrics_, clock_);
    options.address = parse_metrics_address("0").value();
    server_ = HttpServer::start(*service_, options).value();
  }
  /// A connection that has sent a request.
  std::unique_ptr<ServeClient> asking(const std::string& request) const {
    auto client = std::make_unique<ServeClient>(server_->address());
    client->send_text(request);
    return client;
  }
  std::string ask(const std::string& request) const {
    const ServeClient client(server_->address());
    client.send_text(request);
    return client.receive_all();
  }

  /// Asks for /ping until something is so; false after a minute.
  bool await(const std::function<bool()>& is_so) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > limit) {
        return false;
      }
      ask(get("/ping"));
    }
    return true;
  }
  /// What /metrics says of the orders that are taken, in orders of nine steps.
  int open_requests() {
    const std::string text = metrics_.to_prometheus();
    const size_t at = text.find("\ndarkroom_serve_open_cost ");
    return at == std::string::npos ? 0 : static_cast<int>(std::ceil(std::stod(text.substr(at + 26)) / cost_of_steps(9)));
  }

  int64_t max_reply_bytes_ = 512'000'000;
  std::vector<ServedRun> runs_;
  std::vector<NamedDataset> datasets_;
  FakeClock clock_;
  MetricsRegistry metrics_;
  StubEngine engine_{clock_};
  bool has_intake_ = false;  // Whether requests may have pictures.
  std::optional<PictureIntake> intake_;
  std::optional<StepBatcher> batcher_;
  std::optional<PaintingService> service_;
  std::unique_ptr<HttpServer> server_;
};

/// The body of a reply that is not chunked.
inline std::string body_of(const std::string& reply) { return reply.substr(std::min(reply.size(), reply.find("\r\n\r\n") + 4)); }

}  // namespace darkroom
