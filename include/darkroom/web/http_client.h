#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"
#include "darkroom/web/http_loop.h"

namespace darkroom {

struct HttpClientOptions {
  int num_loops = 2;        ///< Threads that carry exchanges out; each decrypts about 1 GB/s.
  HttpLoopOptions loop{};   ///< Of each.
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// What became of one request.
struct HttpResponse {
  HttpEnd end = HttpEnd::kAnswered;
  std::string detail = {};  ///< For people; empty when answered.
  HttpHead head = {};       ///< Of the answer, whatever its status. Status 0 when none was complete.
  std::string body = {};    ///< As served; what a HttpBodyTaker took is not in it.

  int status() const { return head.status; }
  bool is_answered() const { return end == HttpEnd::kAnswered; }
};

/// Takes the body of an answer piece by piece, in the thread that makes the request: it may compute, block and throw. A failure ends the
/// exchange. Not called for an answer without a body.
using HttpBodyTaker = std::function<Status(const HttpHead& head, std::span<const std::byte> piece)>;

/// HTTP requests for callers that wait for the answer: stores and hubs. One call is one request: nothing is retried, no redirect is
/// followed, no status is an error. What is asked, its time limits, its largest body and the addresses allowed stand in the request.
/// Thread safety: any thread, any number of calls at once; two answers never wait for each other's takers.
class HttpClient {
 public:
  /// `metrics` (docs/metrics.md: darkroom_http_*) outlives the client. Errors: as HttpLoop::start.
  static Result<std::unique_ptr<HttpClient>> start(const HttpClientOptions& options, MetricsRegistry& metrics);
  /// REQUIRES: no call is under way.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Returns how the exchange ended, for callers that tell the ends apart: HttpEnd::kUnresolved (the name is not known),
  /// kConnectionRefused, kUnreachable and kConnectTimeout (nobody was reached: the request was not sent), kBroken, kTruncated,
  /// kIdleTimeout and kDeadline (it may have been carried out), kCancelled (`stop`), kBodyTooLarge and the others. The body, of any
  /// status, is kept in memory up to request.limits.max_body_bytes.
  HttpResponse exchange(const HttpRequest& request, std::stop_token stop);
  /// The same; the body of an answer of status 2xx goes to `taker`, of another one about 1 MB is kept. Likewise about 1 MB waits for
  /// `taker`; while it does, no time limit runs. When `taker` fails: kStopped, and `*taker_status` (not null) is its failure. What it
  /// throws passes through, when the exchange has ended.
  HttpResponse exchange(const HttpRequest& request, const HttpBodyTaker& taker, Status* taker_status, std::stop_token stop);

  /// exchange() for callers that need an answer, of whatever status: every other end is a failure (http_failure).
  Result<HttpResponse> perform(const HttpRequest& request, std::stop_token stop);
  /// Likewise. Errors: also what `taker` returns.
  Result<HttpResponse> perform(const HttpRequest& request, const HttpBodyTaker& taker, std::stop_token stop);

 private:
  struct Loop;
  explicit HttpClient(std::vector<std::unique_ptr<Loop>> loops);
  Loop& least_busy();

  std::vector<std::unique_ptr<Loop>> loops_;
};

/// The failure that an end other than kAnswered is, naming the request by its method and URL (without query and user, which may be
/// secret). kUnavailable: not resolved, connected, or answered in time, broken, TLS. kInvalidArgument: kBadRequest. kFailedPrecondition:
/// kRefusedAddress. kCorruptData: no HTTP, too large. kResourceExhausted: no descriptors. kCancelled: stopped, cancelled. kInternal: else.
/// REQUIRES: the response is not answered.
Status http_failure(const HttpRequest& request, const HttpResponse& response);

/// `url` as messages show it: without user, query and fragment.
std::string shown_url(std::string_view url);

}  // namespace darkroom
