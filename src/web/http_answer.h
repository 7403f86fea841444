#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// Why this side ends an exchange, and what people are told of it.
struct HttpStop {
  HttpEnd end;
  std::string detail;
};

/// The answer of one exchange, as libcurl hands it over: gathers the head, asks the sink at its end, gives it the body, and counts both
/// against the request's limits. Serves many exchanges one after the other. What the sink throws passes through. Thread safety: none.
class HttpAnswer {
 public:
  /// Forgets the answer before. `request` and `sink` live until end().
  void begin(const HttpRequest& request, HttpSink& sink);
  /// One header line with its line end, of provisional answers and trailers too. `status`: that of the head it belongs to. Nothing: go on.
  std::optional<HttpStop> take_line(std::string_view line, int status);
  /// The next bytes of the body. Nothing: go on, or, where `is_pause` is set, the sink did not take them and they come again.
  std::optional<HttpStop> take_body(std::string_view bytes, bool& is_pause);
  /// Gives the final head away, an empty one where none was whole. Sink and request are not used any more.
  HttpHead end();

  bool has_head() const { return has_head_; }  ///< The final one, whole.
  /// The status is all that the sink wants.
  bool is_dropped() const { return has_head_ && want_ == HttpSink::Want::kDrop; }
  int64_t body_bytes() const { return body_bytes_; }  ///< Taken or dropped.

 private:
  std::optional<HttpStop> end_of_head();
  std::optional<HttpStop> drop(size_t num_bytes);

  const HttpRequest* request_ = nullptr;
  HttpSink* sink_ = nullptr;
  HttpHead head_;
  HttpSink::Want want_ = HttpSink::Want::kBody;
  bool has_head_ = false;
  bool is_chunked_ = false;
  int64_t header_bytes_ = 0;
  int64_t body_bytes_ = 0;
};

}  // namespace darkroom
