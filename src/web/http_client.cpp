#include "darkroom/web/http_client.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/shown_uri.h"

namespace darkroom {
namespace {

constexpr size_t kMaxWaitingBytes = 1 << 20;
constexpr int64_t kMaxReservedBytes = 16 << 20;  // A length may be announced in vain.

/// What the thread of a loop hands to the thread that waits for one exchange.
class WaitingSink final : public HttpSink {
 public:
  explicit WaitingSink(bool has_taker) : has_taker_(has_taker) {}

  Want headers(const HttpHead& head) override {
    const std::lock_guard hold(mutex_);
    is_taken_ = has_taker_ && head.status / 100 == 2;
    if (is_taken_) {
      head_ = head;
    } else {
      body_.reserve(static_cast<size_t>(std::clamp<int64_t>(head.content_length.value_or(0), 0, kMaxReservedBytes)));
    }
    return Want::kBody;
  }
  Take bytes(std::span<const std::byte> piece) override {
    const std::lock_guard hold(mutex_);
    if (is_taken_ && body_.size() >= kMaxWaitingBytes) {
      is_paused_ = true;
      changed_.notify_all();
      return Take::kPause;
    }
    if (is_taken_ || !has_taker_ || body_.size() < kMaxWaitingBytes) {
      body_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    changed_.notify_all();
    return Take::kTaken;
  }
  void end(HttpResult result) {
    const std::lock_guard hold(mutex_);
    result_ = std::move(result);
    changed_.notify_all();  // Under the lock: the waiter may go, and this object with it, as soon as it is released.
  }

  struct Waiting {
    std::string piece = {};  ///< For the taker.
    bool was_paused = false;
    bool has_ended = false;
  };
  /// Waits for bytes that the taker takes, or for the end.
  Waiting wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_ || (is_taken_ && !body_.empty()); });
    Waiting waiting{.was_paused = std::exchange(is_paused_, false), .has_ended = result_.has_value()};
    if (is_taken_) {
      waiting.piece = std::exchange(body_, {});
    }
    return waiting;
  }
  void wait_for_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value(); });
  }
  /// Of an answer whose body is taken; set before the first byte and not changed again.
  const HttpHead& head() const { return head_; }
  /// REQUIRES: it has ended.
  HttpResponse take_response() {
    const std::lock_guard hold(mutex_);
    return {.end = result_->end,
            .detail = std::move(result_->detail),
            .head = std::move(result_->head),
            .body = is_taken_ ? std::string() : std::move(body_)};
  }

 private:
  const bool has_taker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_taken_ = false;
  bool is_paused_ = false;
  HttpHead head_;
  std::string body_;  // Of a taken body what has come and is not taken yet.
  std::optional<HttpResult> result_;
};

std::string_view words_of_end(HttpEnd end) {
  switch (end) {
    case HttpEnd::kUnresolved:
      return "the name of the host is not known";
    case HttpEnd::kConnectionRefused:
      return "the host refuses the connection";
    case HttpEnd::kUnreachable:
      return "the host cannot be reached";
    case HttpEnd::kConnectTimeout:
      return "the host did not take the connection in time";
    case HttpEnd::kBroken:
      return "the connection broke before the answer";
    case HttpEnd::kTruncated:
      return "the connection broke within the answer";
    case HttpEnd::kIdleTimeout:
    case HttpEnd::kDeadline:
      return "no whole answer came in time";
    case HttpEnd::kTls:
      return "no secure connection can be made";
    case HttpEnd::kRefusedAddress:
      return "the address may not be connected to";
    case HttpEnd::kBadRequest:
      return "the request cannot be sent";
    case HttpEnd::kNotHttp:
      return "the answer is no HTTP";
    case HttpEnd::kHeadersTooLarge:
    case HttpEnd::kBodyTooLarge:
      return "the answer is too large";
    case HttpEnd::kStopped:
    case HttpEnd::kCancelled:
      return "the request was stopped";
    case HttpEnd::kNoDescriptors:
      return "no more files can be opened";
    default:
      return "the request failed";
  }
}

StatusCode code_of_end(HttpEnd end) {
  switch (end) {
    case HttpEnd::kBadRequest:
      return StatusCode::kInvalidArgument;
    case HttpEnd::kRefusedAddress:
      return StatusCode::kFailedPrecondition;
    case HttpEnd::kNotHttp:
    case HttpEnd::kHeadersTooLarge:
    case HttpEnd::kBodyTooLarge:
      return StatusCode::kCorruptData;
    case HttpEnd::kNoDescriptors:
      return StatusCode::kResourceExhausted;
    case HttpEnd::kStopped:
    case HttpEnd::kCancelled:
      return StatusCode::kCancelled;
    case HttpEnd::kAnswered:
    case HttpEnd::kSinkFailed:
    case HttpEnd::kInternal:
      return StatusCode::kInternal;
    default:
      return StatusCode::kUnavailable;
  }
}

/// What the taker said or threw.
struct TakerEnd {
  Status status;
  std::exception_ptr thrown;

  bool is_ok() const { return status.is_ok() && !thrown; }
};

TakerEnd give_to_taker(const HttpBodyTaker& taker, const HttpHead& head, const std::string& piece) {
  try {
    return {.status = taker(head, std::as_bytes(std::span(piece))), .thrown = nullptr};
  } catch (...) {
    return {.status = {}, .thrown = std::current_exception()};
  }
}

/// Serves the taker until the exchange has ended; one that fails ends it.
TakerEnd take_body(HttpLoop& loop, ExchangeId id, WaitingSink& sink, const HttpBodyTaker& taker) {
  while (true) {
    const WaitingSink::Waiting waiting = sink.wait();
    TakerEnd end = waiting.piece.empty() ? TakerEnd{} : give_to_taker(taker, sink.head(), waiting.piece);
    if (!end.is_ok()) {
      loop.cancel(id);
      sink.wait_for_end();
    }
    if (!end.is_ok() || waiting.has_ended) {
      return end;
    }
    if (waiting.was_paused) {
      loop.resume(id);
    }
  }
}

}  // namespace

struct HttpClient::Loop {
  std::unique_ptr<HttpLoop> loop;
  std::atomic<int> num_under_way = 0;
};

Status HttpClientOptions::validate() const {
  if (num_loops < 1 || num_loops > 64) {
    return Status::invalid_argument("num_loops of an HTTP client must be 1 to 64:", num_loops);
  }
  return loop.validate();
}

HttpClient::HttpClient(std::vector<std::unique_ptr<Loop>> loops) : loops_(std::move(loops)) {}

HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::start(const HttpClientOptions& options, MetricsRegistry& metrics) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  std::vector<std::unique_ptr<Loop>> loops;
  for (int i = 0; i < options.num_loops; ++i) {
    loops.push_back(std::make_unique<Loop>());
    DARKROOM_ASSIGN_OR_RETURN(loops.back()->loop, HttpLoop::start(options.loop, metrics));
  }
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(loops)));
}

/// The first of them, so that few requests share few connections.
HttpClient::Loop& HttpClient::least_busy() {
  return **std::ranges::min_element(loops_, {}, [](const auto& loop) { return loop->num_under_way.load(); });
}

HttpResponse HttpClient::exchange(const HttpRequest& request, std::stop_token stop) {
  return exchange(request, nullptr, nullptr, std::move(stop));
}

HttpResponse HttpClient::exchange(const HttpRequest& request, const HttpBodyTaker& taker, Status* taker_status, std::stop_token stop) {
  Loop& loop = least_busy();
  ++loop.num_under_way;
  WaitingSink sink(taker != nullptr);
  TakerEnd end;
  const ExchangeId id = loop.loop->begin(request, sink, [&sink](HttpResult result) { sink.end(std::move(result)); });
  {
    const std::stop_callback cancel(stop, [&] { loop.loop->cancel(id); });
    end = take_body(*loop.loop, id, sink, taker);
  }
  --loop.num_under_way;
  if (end.thrown) {
    std::rethrow_exception(end.thrown);
  }
  HttpResponse response = sink.take_response();
  if (!end.status.is_ok()) {
    response.end = HttpEnd::kStopped;
    response.detail = "by who takes the body";
    DARKROOM_CHECK(taker_status != nullptr, "a taker without a place for its failure:", end.status.to_string());
    *taker_status = end.status;
  }
  return response;
}

Result<HttpResponse> HttpClient::perform(const HttpRequest& request, std::stop_token stop) {
  return perform(request, nullptr, std::move(stop));
}

Result<HttpResponse> HttpClient::perform(const HttpRequest& request, const HttpBodyTaker& taker, std::stop_token stop) {
  Status taken;
  HttpResponse response = exchange(request, taker, &taken, std::move(stop));
  DARKROOM_RETURN_IF_ERROR(taken);
  return response.is_answered() ? Result<HttpResponse>(std::move(response)) : http_failure(request, response);
}

Status http_failure(const HttpRequest& request, const HttpResponse& response) {
  DARKROOM_CHECK(!response.is_answered(), "an answer is no failure:", shown_url(request.url));
  const std::string place = fmt::format("{} {}", request.method, shown_url(request.url));
  return Status::make(code_of_end(response.end), fmt::format("{} (request, detail):", words_of_end(response.end)), place, response.detail);
}

std::string shown_url(std::string_view url) {
  constexpr std::string_view kSomeScheme = "x://";
  const bool has_scheme = url.find("://") != std::string_view::npos;
  std::string shown = shown_uri(has_scheme ? std::string(url) : std::string(kSomeScheme).append(url));
  shown.erase(std::min(shown.find_first_of("?#"), shown.size()));
  return has_scheme ? shown : shown.substr(kSomeScheme.size());
}

}  // namespace darkroom
