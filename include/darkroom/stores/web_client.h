#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_client.h"
#include "darkroom/web/http_exchange.h"
#include "darkroom/web/retry_rules.h"
#include "darkroom/web/url_hop.h"

namespace darkroom {

class ServerOutage;

struct WebOptions {
  HttpLimits limits{
      .connect = std::chrono::seconds(10), .idle = std::chrono::seconds(30), .total = std::chrono::minutes(15)};  ///< Per request.
  int max_tries = 8;
  Backoff backoff{.first = std::chrono::milliseconds(200), .longest = std::chrono::seconds(10)};
  std::chrono::seconds patience{90};       ///< No try begins later than so long after the first one.
  std::chrono::seconds first_contact{10};  ///< The same for a server that has never answered, so that a dead one is told soon.
  int max_redirects = 10;
  std::string user_agent = "darkroom";

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

struct WebRequest {
  std::string method = "GET";  ///< Or HEAD.
  std::string url;             ///< http or https; without a user name.
  HttpHeaders headers = {};    ///< Authorization and the like go to the URL's own scheme, host and port only.
  int64_t max_body_bytes = int64_t{64} << 20;
  bool may_leave_origin = true;  ///< Otherwise a redirect to another scheme, host or port is the answer.
};

/// A final answer of whatever status.
struct WebAnswer {
  HttpHead head = {};
  std::string body = {};
  bool is_whole = true;               ///< False: the body was larger than max_body_bytes and is not here.
  std::string url = {};               ///< That answered; may be secret.
  std::vector<HttpHead> passed = {};  ///< The redirects that led there, in order.
};

/// GET and HEAD of places that the user named: a web server, a hub. Follows redirects itself, carries credentials to no other origin, and
/// tries again what may pass (no connection, 408, 429, 500, 502, 503, 504), from the first URL on. Retry-After is obeyed within `patience`.
/// Where a server that answered before cannot be reached, the log says so, and it is waited for.
/// Which addresses a name has is the user's own matter here: listed URLs of strangers go through Fetcher.
/// Thread safety: any thread.
class WebClient {
 public:
  /// `http`, `clock` and `metrics`, which may be null, outlive the client. `outage_patience`: how long a server that answered before is
  /// waited for, after options.patience, while it cannot be reached; zero: not at all. REQUIRES: options.validate() is ok.
  WebClient(HttpClient& http, Clock& clock, WebOptions options, MetricsRegistry* metrics = nullptr,
            std::chrono::seconds outage_patience = {});
  ~WebClient();

  /// Errors: kUnavailable (nothing answered), kInvalidArgument (no URL), kFailedPrecondition (a redirect from https to http, too many
  /// redirects, a redirect to what is no URL), kCorruptData (no HTTP), kResourceExhausted, kCancelled. Messages show no query of a URL.
  Result<WebAnswer> ask(const WebRequest& request, std::stop_token stop);

 private:
  struct Attempt;
  struct Tries;
  Result<Attempt> attempt(const WebRequest& request, const UrlHop& first, const Tries& tries, const std::stop_token& stop);
  HttpRequest request_of(const WebRequest& request, const RedirectChain& chain, const Tries& tries) const;
  std::chrono::milliseconds delay_before_retry(int num_retries, const HttpHead& head);
  ServerOutage* outage_of(const UrlHop& hop);
  void note_answer(const UrlHop& hop);
  bool answers(const UrlHop& hop, const std::stop_token& stop);
  Result<bool> outlast(const Attempt& attempt, Tries& tries, const std::stop_token& stop);

  HttpClient& http_;
  Clock& clock_;
  const WebOptions options_;
  MetricsRegistry* const metrics_;
  const std::chrono::seconds outage_patience_;
  std::mutex mutex_;                                                                 // Guards what follows.
  std::mt19937 random_;                                                              // Spreads retries; decides no byte.
  std::map<std::pair<std::string, uint16_t>, std::unique_ptr<ServerOutage>> known_;  // By host and port: those that have answered.
};

/// Where an answer sends a reader; nothing: it stands. Errors: kFailedPrecondition: to what is no URL, or from https to http. Pure.
Result<std::optional<UrlHop>> next_web_hop(const UrlHop& from, const HttpHead& head);

/// For places that the user named: any address, any port.
const HopPolicy& any_place();

/// What an answer of another status than 2xx means to somebody who reads. `what` names the place, without secrets. kFailedPrecondition:
/// 401, 403 and other refusals. kNotFound: 404, 410. kUnavailable: 408, 429, 5xx and what should not be. REQUIRES: no 2xx.
Status web_failure(const WebAnswer& answer, const std::string& what);

}  // namespace darkroom
