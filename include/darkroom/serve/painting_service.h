#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/serve/access_keys.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/serve/image_requests.h"
#include "darkroom/serve/model_shelf.h"
#include "darkroom/serve/rate_limit.h"
#include "darkroom/serve/safety_check.h"
#include "darkroom/serve/served_datasets.h"
#include "darkroom/serve/served_runs.h"
#include "darkroom/serve/step_batcher.h"

namespace darkroom {

/// Which PNGs hold their settings as text, prompts foremost, where whoever gets the file can read them.
enum class PngSettings {
  kOff,    ///< None.
  kWebui,  ///< Those of A1111's routes, whose clients expect it.
  kOn,     ///< All.
};

struct PaintingServiceOptions {
  ModelFacts model = {};         ///< What requests get that name none, as far as it is known; of several, the first.
  ModelShelf* models = nullptr;  ///< Ends before the batcher; null: there is one model, which the batcher's own engine paints.
  std::string model_root =
      {};  ///< Folder below which SageMaker's routes /models load models, with `models`; empty: there are no such routes.
  RequestLimits limits = {};
  AccessKeys keys = {};                        ///< Without any, nobody is asked for one.
  std::chrono::milliseconds deadline{60'000};  ///< Of a request; its header X-Darkroom-Deadline (seconds) may shorten it.
  /// Of pictures that are being painted or painted and of replies with them that are not sent, all together.
  int64_t max_reply_bytes = 512'000'000;
  /// Without keys, of a server on loopback: requests whose Host is another name than localhost are refused, because a web page's own name
  /// may be made to lead here (DNS rebinding).
  bool only_local_hosts = true;
  double rate_per_minute = 0.0;  ///< Of requests for pictures of one key (without keys, of all); 0: no bound.
  PngSettings png_settings = PngSettings::kWebui;
  bool has_watermark = false;     ///< Pictures are marked (image/watermark.h).
  SafetyCheck safety_check = {};  ///< Asked of every picture before it goes out; null: none is. Pictures in the making are not shown then.
  PictureIntake* intake = nullptr;          ///< Reads requests with pictures, and ends before the batcher; null: they are refused.
  std::vector<ServedRun> runs = {};         ///< Training runs to be looked at.
  std::vector<NamedDataset> datasets = {};  ///< Datasets to be looked at.
};

/// The routes of docs/serve.md over one batcher: who may ask, what is there, and how often it was asked. What a route answers is its
/// protocol's matter (src/serve/protocols.h). Thread safety: as HttpService.
class PaintingService final : public HttpService {
 public:
  /// Metrics and clock outlive the service. What the batcher has taken answers through the service, and what is painted asks the batcher:
  /// at the end the server goes first, then stop_finishing() is called, then the batcher goes, then the service.
  PaintingService(PaintingServiceOptions options, StepBatcher& batcher, MetricsRegistry& metrics, Clock& clock = system_clock());
  ~PaintingService() override;
  PaintingService(const PaintingService&) = delete;
  PaintingService& operator=(const PaintingService&) = delete;

  /// From now on painted pictures are no longer checked and marked, and no dataset or run is read: whoever waits for it gets
  /// 503.
  void stop_finishing();
  /// Waits until no dataset or run is read. False after `patience`: destroying the service would wait for it.
  bool await_idle(std::chrono::milliseconds patience) const;

  std::optional<HttpReply> refuse(const HttpQuestion& head) override;
  size_t max_body_bytes(const HttpQuestion& head) const override;
  void handle(HttpQuestion question, std::stop_token gone, Answer answer) override;

 private:
  struct Parts;
  std::optional<HttpReply> refuse_stranger(const HttpQuestion& question, bool is_open) const;
  std::optional<HttpReply> refuse_head(const HttpQuestion& head);
  void count(const std::string& route, Clock::Instant begun, int status);
  Answer counted(const std::string& route, Answer answer);

  const PaintingServiceOptions options_;
  MetricsRegistry& metrics_;
  Clock& clock_;
  RateLimit rate_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace darkroom
