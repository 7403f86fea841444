#include "opening/open_stores.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "darkroom/core/version.h"

namespace darkroom {

namespace {

constexpr std::chrono::hours kOutagePatience{12};  // A night.

std::unique_ptr<StoreSet> open_with_patience(std::chrono::seconds patience, MetricsRegistry& metrics, std::stop_token stop) {
  StoreSetOptions options;
  options.web.user_agent = fmt::format("darkroom/{}", kVersion);
  options.outage_patience = patience;
  return std::make_unique<StoreSet>(std::move(options), system_clock(), metrics, std::move(stop));
}

}  // namespace

std::unique_ptr<StoreSet> open_stores(MetricsRegistry& metrics, std::stop_token stop) {
  return open_with_patience({}, metrics, std::move(stop));
}

std::unique_ptr<StoreSet> open_job_stores(MetricsRegistry& metrics, std::stop_token stop) {
  return open_with_patience(kOutagePatience, metrics, std::move(stop));
}

}  // namespace darkroom
