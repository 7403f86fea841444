#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/web/http_client.h"
#include "top_frame.h"

namespace darkroom {

/// The page's address that a word stands for: a port, HOST:PORT or a URL; "": it is a path.
std::string metrics_url(const std::string& target);

/// Looks at targets: addresses of metrics, run folders and output folders of jobs. Thread safety: one thread.
class TopTargets {
 public:
  /// Errors: HttpClient::start's.
  static Result<std::unique_ptr<TopTargets>> open(std::vector<std::string> targets);

  /// A target that cannot be looked at is a look with its failure.
  TopLook look(const std::stop_token& stop);

 private:
  explicit TopTargets(std::vector<std::string> targets) : targets_(std::move(targets)) {}
  ProcessLook ask(const std::string& where, const std::string& url, const std::stop_token& stop);
  void look_into(const std::string& folder, const std::stop_token& stop, std::vector<ProcessLook>& looks);

  const std::vector<std::string> targets_;
  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> http_;
};

}  // namespace darkroom
