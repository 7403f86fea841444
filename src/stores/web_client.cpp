#include "darkroom/stores/web_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "darkroom/core/check.h"
#include "server_outage.h"

namespace darkroom {
namespace {

Status bad_redirect(const UrlHop& from, std::string_view why) {
  return Status::failed_precondition("a server sent us on in a way that is not followed (from, why):", shown_url(from.url()), why);
}

}  // namespace

Status WebOptions::validate() const {
  if (max_tries < 1) {
    return Status::invalid_argument("max_tries of a web client must be at least 1:", max_tries);
  }
  if (max_redirects < 0) {
    return Status::invalid_argument("max_redirects of a web client must not be negative:", max_redirects);
  }
  if (user_agent.empty() || user_agent.find_first_of("\r\n") != std::string::npos) {
    return Status::invalid_argument("user_agent of a web client must be one line that is not empty");
  }
  return Status::ok();
}

/// One way along the redirects.
struct WebClient::Attempt {
  WebAnswer answer = {};  ///< When the end is an answer.
  std::optional<Status> failure = std::nullopt;
  bool may_pass = false;  ///< The same may end better soon.
  UrlHop last_hop;        ///< That was asked.
};

/// What was tried of one request.
struct WebClient::Tries {
  Clock::Instant request_began;
  Clock::Instant began = request_began;  ///< These, since the last outage.
  int num = 0;
  bool are_anew = false;              ///< Though the server could be reached when the ones before were over.
  bool need_new_connections = false;  ///< Those from before may be dead and not know it.
};

WebClient::WebClient(HttpClient& http, Clock& clock, WebOptions options, MetricsRegistry* metrics, std::chrono::seconds outage_patience)
    : http_(http),
      clock_(clock),
      options_(std::move(options)),
      metrics_(metrics),
      outage_patience_(outage_patience),
      random_(std::random_device()()) {
  DARKROOM_CHECK(options_.validate().is_ok(), "options of a web client:", options_.validate().to_string());
}

WebClient::~WebClient() = default;

HttpRequest WebClient::request_of(const WebRequest& request, const RedirectChain& chain, const Tries& tries) const {
  HttpRequest sent{.method = request.method, .url = chain.hop().url(), .headers = chain.headers(), .limits = options_.limits};
  sent.headers.emplace_back("User-Agent", options_.user_agent);
  sent.headers.emplace_back("Accept-Encoding", "identity");
  sent.limits.max_body_bytes = request.max_body_bytes;
  sent.needs_new_connection = tries.need_new_connections;
  return sent;
}

Result<WebClient::Attempt> WebClient::attempt(const WebRequest& request, const UrlHop& first, const Tries& tries,
                                              const std::stop_token& stop) {
  RedirectChain chain(first, request.headers, options_.max_redirects);
  WebAnswer answer;
  while (true) {
    const HttpRequest sent = request_of(request, chain, tries);
    HttpResponse response = http_.exchange(sent, stop);
    answer.is_whole = response.is_answered();
    if (!response.is_answered() && (response.end != HttpEnd::kBodyTooLarge || response.status() == 0)) {
      return Attempt{.failure = http_failure(sent, response), .may_pass = is_out_of_reach(response.end), .last_hop = chain.hop()};
    }
    note_answer(chain.hop());
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<UrlHop> next, next_web_hop(chain.hop(), response.head));
    if (!next || (!request.may_leave_origin && !next->has_same_origin(chain.hop()))) {
      answer.url = chain.hop().url();
      answer.head = std::move(response.head);
      answer.body = std::move(response.body);
      const bool may_pass = store_status_may_pass(answer.head.status);
      return Attempt{.answer = std::move(answer), .may_pass = may_pass, .last_hop = chain.hop()};
    }
    if (const auto error = chain.follow(*redirect_location(response.head), any_place())) {
      return bad_redirect(first, error->detail + " redirects");
    }
    answer.passed.push_back(std::move(response.head));
  }
}

std::chrono::milliseconds WebClient::delay_before_retry(int num_retries, const HttpHead& head) {
  const auto asked = head.find("retry-after");
  const auto parsed = asked ? parse_retry_after(*asked, clock_.wall()) : std::nullopt;
  const std::lock_guard hold(mutex_);
  const double chance = std::uniform_real_distribution<double>(0, 1)(random_);
  return std::max<std::chrono::milliseconds>(options_.backoff.delay(num_retries, chance), parsed.value_or(std::chrono::seconds(0)));
}

/// Null: the server has never answered.
ServerOutage* WebClient::outage_of(const UrlHop& hop) {
  const std::lock_guard hold(mutex_);
  const auto found = known_.find({hop.host(), hop.port()});
  return found == known_.end() ? nullptr : found->second.get();
}

void WebClient::note_answer(const UrlHop& hop) {
  std::unique_lock hold(mutex_);
  std::unique_ptr<ServerOutage>& known = known_[{hop.host(), hop.port()}];  // Of which none is taken out.
  if (!known) {
    const std::string server = fmt::format("{}://{}:{}", hop.is_https() ? "https" : "http", hop.host(), hop.port());
    known = std::make_unique<ServerOutage>(server, clock_, metrics_, outage_patience_);
  }
  ServerOutage& outage = *known;
  hold.unlock();
  outage.note_answer();
}

/// Whether anything comes back from the server. Not by HEAD, at which simple servers hang up.
bool WebClient::answers(const UrlHop& hop, const std::stop_token& stop) {
  HttpRequest request{.method = "GET", .url = hop.follow("/", any_place()).value().url(), .limits = options_.limits};
  request.headers.emplace_back("User-Agent", options_.user_agent);
  request.limits.idle = request.limits.total = request.limits.connect;
  request.limits.max_body_bytes = 0;
  request.needs_new_connection = true;
  return !is_out_of_reach(http_.exchange(request, stop).end);
}

/// Once the tries are over. True: the request has all of them anew.
Result<bool> WebClient::outlast(const Attempt& attempt, Tries& tries, const std::stop_token& stop) {
  ServerOutage* outage = attempt.failure && attempt.may_pass ? outage_of(attempt.last_hop) : nullptr;
  if (outage == nullptr || clock_.now() - tries.request_began >= outage_patience_) {
    return false;
  }
  switch (outage->outlast([&] { return answers(attempt.last_hop, stop); }, attempt.failure->message(), stop)) {
    case ServerOutage::End::kStopped:
      return Status::cancelled("stopped while a server could not be reached:", shown_url(attempt.last_hop.url()));
    case ServerOutage::End::kTooLong:
      return false;
    case ServerOutage::End::kNone:
      if (tries.are_anew) {  // The server is there, and this request gets no answer all the same.
        return false;
      }
      tries.are_anew = true;  // An outage may have ended just now.
      break;
    case ServerOutage::End::kOver:
      tries.are_anew = false;
      break;
  }
  tries.num = 0;
  tries.need_new_connections = true;
  tries.began = clock_.now();
  return true;
}

Result<WebAnswer> WebClient::ask(const WebRequest& request, std::stop_token stop) {
  const RowResult<UrlHop> first = UrlHop::parse(request.url, any_place());
  if (!first.is_ok()) {
    return Status::invalid_argument("this is no address of the web (address, why):", shown_url(request.url), first.error().detail);
  }
  Tries tries{.request_began = clock_.now()};
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(Attempt attempt, this->attempt(request, *first, tries, stop));
    const Clock::Instant again = clock_.now() + delay_before_retry(tries.num, attempt.answer.head);
    const bool is_too_late = again - tries.began > (outage_of(*first) != nullptr ? options_.patience : options_.first_contact);
    if (!attempt.may_pass || ++tries.num >= options_.max_tries || is_too_late) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_tried_anew, outlast(attempt, tries, stop));
      if (!is_tried_anew) {
        return attempt.failure ? Result<WebAnswer>(*attempt.failure) : std::move(attempt.answer);
      }
    }
    if (!clock_.sleep_until(again, stop)) {
      return Status::cancelled("stopped while waiting to ask again:", shown_url(request.url));
    }
  }
}

Result<std::optional<UrlHop>> next_web_hop(const UrlHop& from, const HttpHead& head) {
  const auto location = redirect_location(head);
  if (!location) {
    return std::optional<UrlHop>();
  }
  RowResult<UrlHop> next = from.follow(*location, any_place());
  if (!next.is_ok()) {
    return bad_redirect(from, next.error().detail);
  }
  if (from.is_https() && !next->is_https()) {
    return bad_redirect(from, "from https to http, where anybody could change the bytes");
  }
  return std::optional(*std::move(next));
}

const HopPolicy& any_place() {
  static const HopPolicy policy(
      std::vector<AllowedNetwork>{{.address = {.bytes = {}, .is_ipv4 = true}}, {.address = {.bytes = {}, .is_ipv4 = false}}});
  return policy;
}

Status web_failure(const WebAnswer& answer, const std::string& what) {
  const int status = answer.head.status;
  DARKROOM_CHECK(status / 100 != 2, "an answer with a body is no failure:", status);
  if (status == 401 || status == 403) {
    return Status::failed_precondition("the server does not allow this to be read (address, status):", what, status);
  }
  if (status == 404 || status == 410) {
    return Status::not_found("the server has no such file (address, status):", what, status);
  }
  if (store_status_may_pass(status) || status / 100 != 4) {
    return Status::unavailable("the server did not give the file, try later (address, status):", what, status);
  }
  return Status::failed_precondition("the server refused the request (address, status):", what, status);
}

}  // namespace darkroom
