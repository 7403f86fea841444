#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "web_routes.h"

namespace darkroom {

/// What the server does for one request: sends `bytes`, then a part of a file, then what `then` says.
struct TroubledAnswer {
  enum class Then { kKeepOpen, kClose, kReset, kHang, kRepeat };

  std::string bytes;
  std::string file_path;     ///< Empty: no file.
  int64_t file_bytes = 0;    ///< How much of it is sent.
  int bytes_per_second = 0;  ///< 0: at once. Applies to the file.
  Then then = Then::kKeepOpen;
  std::string repeated;  ///< With kRepeat: sent again and again.
};

/// The answer of a route to one more request, which it counts. Errors are answers as well (500).
TroubledAnswer answer_request(WebRoute& route, std::string_view path);

/// An answer without a file.
TroubledAnswer plain_answer(int status, std::string_view extra_headers, std::string_view text, std::string_view type = "text/plain");

}  // namespace darkroom
