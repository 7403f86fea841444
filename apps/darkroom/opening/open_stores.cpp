#include "opening/open_stores.h"

#include <fmt/format.h>

#include <utility>

#include "darkroom/core/version.h"

namespace darkroom {

std::unique_ptr<StoreSet> open_stores(MetricsRegistry& metrics, std::stop_token stop) {
  StoreSetOptions options;
  options.web.user_agent = fmt::format("darkroom/{}", kVersion);
  return std::make_unique<StoreSet>(std::move(options), system_clock(), metrics, std::move(stop));
}

}  // namespace darkroom
