#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

enum class Trouble {
  kNone,
  kStatus,
  kRetryAfter,
  kTruncated,
  kHtml,
  kRedirect,
  kRedirectPrivate,
  kRedirectLoop,
  kSlowDrip,
  kReset,
  kHang,
  kGarbage,
  kChunked,
  kCutChunks,
  kEndless,
  kHugeHeaders,
  kNoai,
  kGzipLabel,
};

/// What one path answers; the fields are those of web.json (see TroubledWeb).
struct WebRoute {
  std::string file_path;  ///< Joined to the folder; empty when the route has no file.
  std::string content_type;
  std::string location;
  std::string value;
  Trouble trouble = Trouble::kNone;
  int status = 0;
  int seconds = 1;
  bool as_date = false;
  int bytes_per_second = 10;
  int64_t times = 0;
  std::atomic<int64_t> num_requests{0};
};

using WebRoutes = std::map<std::string, WebRoute, std::less<>>;

/// Reads FOLDER/web.json and checks it.
Status read_web_routes(const std::string& folder, WebRoutes& routes);

}  // namespace darkroom
