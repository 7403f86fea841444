#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "loopback_hosts.h"

namespace darkroom {

/// A small HTTP/1.1 server on 127.0.0.1 that serves the files of a folder with the troubles of the real web planted at
/// known routes. For the demo and for tests; one thread of its own, any number of connections, keep-alive.
///
/// `FOLDER/web.json` lists the routes; nothing else is served (404):
///   {"routes": {"/a.jpg": {"file": "pictures/a.jpg", "trouble": "status", "status": 503, "times": 1}, ...}}
/// Fields of a route: `file` (relative to the folder; required unless the trouble needs none), `trouble` (default
/// "none"), `times` (only the first n requests of the route are troubled, then it is served well; default 0: all),
/// `content_type` (default: by the file's extension). Troubles, with their own fields:
///   none              the file
///   status            `status` (404, 503, ...) with a short text
///   retry_after       `status` (default 429) with Retry-After: `seconds` (default 1); a date with `as_date`: true
///   truncated         the right Content-Length, half of the body, then the connection closes
///   html              200, text/html: the file, or a page of our own, instead of the picture
///   redirect          `status` (default 302) to `location` (absolute or relative)
///   redirect_private  the same; default location http://10.0.0.1/
///   redirect_loop     the same; default location: itself
///   slow_drip         `bytes_per_second` (default 10) of the body
///   reset             the connection is reset within the headers of the answer
///   hang              no answer
///   garbage           bytes that are no HTTP
///   chunked           the file in chunks, without a length
///   cut_chunks        chunks without the last one, then the connection closes
///   endless           `status` (default 200) with chunks of zeros without end
///   huge_headers      header lines without end
///   noai              the file with `X-Robots-Tag: VALUE` (`value`, default noai)
///   gzip_label        the file's bytes, labelled Content-Encoding: gzip
///
/// Thread safety: every member may be called by any thread.
class TroubledWeb {
 public:
  /// Reads web.json and listens. Port 0: any free one.
  /// Errors: kNotFound (folder, web.json or a route's file), kCorruptData (web.json; names the route and the field),
  /// kUnavailable (the port cannot be opened).
  static Result<std::unique_ptr<TroubledWeb>> start(const std::string& folder, uint16_t port = 0,
                                                    LoopbackHosts hosts = LoopbackHosts::kOne);
  /// Stops.
  ~TroubledWeb();
  TroubledWeb(const TroubledWeb&) = delete;
  TroubledWeb& operator=(const TroubledWeb&) = delete;

  uint16_t port() const;
  /// "http://127.0.0.1:PORT", to be followed by a route.
  std::string url() const;

  /// Requests of a route so far; 0 for an unknown one.
  int64_t num_requests(const std::string& route) const;
  /// Requests of all routes and of none.
  int64_t num_requests() const;
  /// Connections accepted so far.
  int64_t num_connections() const;

  /// Closes every connection and joins the thread; idempotent.
  void stop();

 private:
  class Server;
  explicit TroubledWeb(std::unique_ptr<Server> server);

  std::unique_ptr<Server> server_;
};

}  // namespace darkroom
