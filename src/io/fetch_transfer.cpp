#include "fetch_transfer.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "darkroom/core/check.h"
#include "darkroom/core/version.h"
#include "darkroom/io/opt_out.h"
#include "header_text.h"

namespace darkroom {
namespace {

constexpr size_t kMaxUrlBytes = 16'384;
constexpr size_t kMaxHeaderBytes = 262'144;      // Of all responses of an attempt together.
constexpr size_t kMaxDiscardedBytes = 65'536;    // Of an error page; reading it keeps the connection.
constexpr int64_t kFirstReserveBytes = 1 << 20;  // A false length may not make us reserve more.
constexpr long kReceiveBufferBytes = 65'536;

template <typename Value>
void set_option(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  DARKROOM_CHECK(code == CURLE_OK, "libcurl refused an option (number, reason):", static_cast<int>(option), curl_easy_strerror(code));
}

template <typename Value>
Value get_info(CURL* easy, CURLINFO info) {
  Value value{};
  curl_easy_getinfo(easy, info, &value);
  return value;
}

std::string text_info(CURL* easy, CURLINFO info) {
  const char* text = get_info<const char*>(easy, info);
  return text != nullptr ? text : "";
}

// The value of a header line, when the line is of that header.
std::optional<std::string_view> header_value(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':' || !same_word(line.substr(0, name.size()), name)) {
    return std::nullopt;
  }
  return trim_blanks(line.substr(name.size() + 1));
}

}  // namespace

void FetchShared::hold(int64_t num_bytes) {
  // Only the fetch thread adds, so the peak needs no compare-and-swap.
  const int64_t now_held = held_bytes.fetch_add(num_bytes) + num_bytes;
  if (now_held > peak_held_bytes.load()) {
    peak_held_bytes.store(now_held);
  }
}

FetchTransfer::FetchTransfer(FetchShared& shared) : shared_(shared), easy_(curl_easy_init()) {
  DARKROOM_CHECK(easy_ != nullptr, "libcurl gave no handle");
  set_options();
}

FetchTransfer::~FetchTransfer() {
  drop_body();
  curl_easy_cleanup(easy_);
}

FetchTransfer* FetchTransfer::of(CURL* handle) { return get_info<FetchTransfer*>(handle, CURLINFO_PRIVATE); }

void FetchTransfer::set_options() {
  const FetchOptions& options = shared_.options;
  set_option(easy_, CURLOPT_PRIVATE, this);
  set_option(easy_, CURLOPT_ERRORBUFFER, curl_message_);
  set_option(easy_, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set_option(easy_, CURLOPT_OPENSOCKETDATA, this);
  set_option(easy_, CURLOPT_HEADERFUNCTION, &on_header);
  set_option(easy_, CURLOPT_HEADERDATA, this);
  set_option(easy_, CURLOPT_WRITEFUNCTION, &on_body);
  set_option(easy_, CURLOPT_WRITEDATA, this);
  set_option(easy_, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);

  set_option(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  set_option(easy_, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set_option(easy_, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  set_option(easy_, CURLOPT_PROXY, "");  // Not even those of the environment: the address policy must see the real host.
  set_option(easy_, CURLOPT_NOPROXY, "*");
  set_option(easy_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set_option(easy_, CURLOPT_FOLLOWLOCATION, 1L);
  set_option(easy_, CURLOPT_MAXREDIRS, static_cast<long>(options.max_redirects));
  set_option(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set_option(easy_, CURLOPT_HTTPHEADER, shared_.request_headers.get());
  set_option(easy_, CURLOPT_USERAGENT, options.user_agent.c_str());

  // The parsed roots are cached in the multi handle only when a file alone names them.
  set_option(easy_, CURLOPT_CAINFO, options.certificate_authorities.c_str());
  set_option(easy_, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  set_option(easy_, CURLOPT_SSL_VERIFYPEER, 1L);
  set_option(easy_, CURLOPT_SSL_VERIFYHOST, 2L);

  set_option(easy_, CURLOPT_NOSIGNAL, 1L);
  set_option(easy_, CURLOPT_QUICK_EXIT, 1L);  // Ending a transfer must not wait for its name look-up.
  set_option(easy_, CURLOPT_DNS_CACHE_TIMEOUT, 300L);
  // The loop's deadline ends a transfer; this one only splits the time among a host's addresses.
  set_option(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.timeout.count()));
}

std::optional<RowError> FetchTransfer::assign(FetchRequest request, FetchClock::time_point now) {
  request_ = std::move(request);
  deadline_ = now + shared_.options.timeout;
  paused_time_ = {};
  num_attempts_ = 0;
  num_bytes_ = 0;
  status_ = 0;
  last_error.reset();

  const std::string url(trim_blanks(request_.url));
  if (url.size() > kMaxUrlBytes || url.size() != std::strlen(url.c_str())) {
    return RowError{RowErrorCode::kBadUrl, 0, "too long, or a NUL character in it"};
  }
  // A fresh parser each time: a used one takes "a.jpg" as relative to the URL before it.
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parser(curl_url(), curl_url_cleanup);
  const auto bad_url = [](CURLUcode code) { return RowError{RowErrorCode::kBadUrl, 0, curl_url_strerror(code)}; };
  constexpr unsigned kFlags = CURLU_URLENCODE | CURLU_ALLOW_SPACE | CURLU_DISALLOW_USER;  // Spaces and non-ASCII as browsers do.
  if (const CURLUcode code = curl_url_set(parser.get(), CURLUPART_URL, url.c_str(), kFlags); code != CURLUE_OK) {
    return bad_url(code);
  }
  char* normalised = nullptr;
  if (const CURLUcode code = curl_url_get(parser.get(), CURLUPART_URL, &normalised, 0); code != CURLUE_OK) {
    return bad_url(code);
  }
  const std::unique_ptr<char, decltype(&curl_free)> owned(normalised, curl_free);
  if (!std::string_view(normalised).starts_with("http://") && !std::string_view(normalised).starts_with("https://")) {
    return RowError{RowErrorCode::kBadUrl, 0, "neither http nor https"};
  }
  set_option(easy_, CURLOPT_URL, normalised);
  return std::nullopt;
}

void FetchTransfer::begin_attempt() {
  ++num_attempts_;
  stopped_.reset();
  refused_address_.clear();
  status_ = 0;
  has_headers_ = false;
  opted_out_ = false;
  header_bytes_ = 0;
  discarded_bytes_ = 0;
  curl_message_[0] = 0;
  shared_.num_attempts.fetch_add(1, std::memory_order_relaxed);
}

curl_socket_t FetchTransfer::open_socket(FetchTransfer* self, curlsocktype purpose, curl_sockaddr* address) noexcept {
  if (purpose != CURLSOCKTYPE_IPCXN || !self->shared_.policy.allows(address->addr)) {
    const auto ip = IpAddress::from_sockaddr(address->addr);
    self->refused_address_ = ip ? ip->to_string() : "no internet address";
    self->shared_.num_refused.fetch_add(1, std::memory_order_relaxed);
    return CURL_SOCKET_BAD;
  }
  self->refused_address_.clear();
  self->shared_.num_connections.fetch_add(1, std::memory_order_relaxed);
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t FetchTransfer::on_header(const char* line, size_t size, size_t count, FetchTransfer* self) noexcept {
  const size_t num_bytes = size * count;
  return self->take_header({line, num_bytes}) ? num_bytes : num_bytes + 1;  // Any other count ends the transfer.
}

size_t FetchTransfer::on_body(const char* bytes, size_t size, size_t count, FetchTransfer* self) noexcept {
  const size_t num_bytes = size * count;
  if (!self->is_success_status()) {
    return self->discard_body({bytes, num_bytes}) ? num_bytes : num_bytes + 1;
  }
  const int64_t limit = self->shared_.options.max_bytes_in_flight;
  if (self->shared_.over_limit != self && self->shared_.held_bytes.load() + static_cast<int64_t>(num_bytes) > limit) {
    self->paused_since_ = FetchClock::now();
    self->shared_.paused.push_back(self);
    return CURL_WRITEFUNC_PAUSE;
  }
  return self->keep_body({bytes, num_bytes}) ? num_bytes : num_bytes + 1;
}

bool FetchTransfer::stop(RowErrorCode code, std::string detail) {
  stopped_ = RowError{code, 0, std::move(detail)};
  return false;
}

bool FetchTransfer::take_header(std::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) {
    return stop(RowErrorCode::kTooLarge, fmt::format("response headers are longer than {} bytes", kMaxHeaderBytes));
  }
  if (line.starts_with("HTTP/")) {
    status_ = static_cast<int>(get_info<long>(easy_, CURLINFO_RESPONSE_CODE));
    opted_out_ = false;
    content_length_ = -1;
    has_headers_ = false;
    return true;
  }
  if (trim_blanks(line).empty()) {
    return end_of_headers();
  }
  if (const auto value = header_value(line, "content-length")) {
    std::from_chars(value->data(), value->data() + value->size(), content_length_);
  }
  if ((line.front() == 'x' || line.front() == 'X') && shared_.options.respect_noai) {
    if (const auto value = header_value(line, "x-robots-tag")) {
      const std::string_view agent = shared_.options.user_agent;
      opted_out_ = opted_out_ || header_opt_out("X-Robots-Tag", *value, {.noai = true}, agent.substr(0, agent.find('/')));
    }
  }
  return true;
}

bool FetchTransfer::end_of_headers() {
  has_headers_ = true;
  if (is_success_status() && opted_out_) {
    return stop(RowErrorCode::kOptedOut, "X-Robots-Tag");
  }
  if (is_success_status() && content_length_ > shared_.options.max_body_bytes) {
    return stop(RowErrorCode::kTooLarge, fmt::format("Content-Length is {}", content_length_));
  }
  return true;
}

bool FetchTransfer::keep_body(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t new_size = body_bytes() + size;
  num_bytes_ += size;
  shared_.num_bytes.fetch_add(size, std::memory_order_relaxed);
  if (new_size > shared_.options.max_body_bytes) {
    return stop(RowErrorCode::kTooLarge, fmt::format("the body is longer than {} bytes", shared_.options.max_body_bytes));
  }
  if (static_cast<size_t>(new_size) > body_.capacity() && content_length_ >= new_size) {
    body_.reserve(new_size > kFirstReserveBytes ? content_length_ : std::min(content_length_, kFirstReserveBytes));
  }
  body_.append(bytes);
  shared_.hold(size);
  return true;
}

bool FetchTransfer::discard_body(std::string_view bytes) {
  discarded_bytes_ += bytes.size();
  num_bytes_ += static_cast<int64_t>(bytes.size());
  return discarded_bytes_ <= kMaxDiscardedBytes;
}

void FetchTransfer::drop_body() {
  shared_.held_bytes.fetch_sub(body_bytes());
  body_ = std::string();
}

RowError FetchTransfer::error_of(CURLcode code) const {
  const std::string detail = curl_message_[0] != 0 ? curl_message_ : curl_easy_strerror(code);
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_LOGIN_DENIED:  // A user name in a redirect's URL.
      return {RowErrorCode::kBadUrl, 0, detail};
    case CURLE_UNSUPPORTED_PROTOCOL:
      // The same code stands for an answer that is not HTTP and for a redirect to another scheme.
      return {status_ >= 300 ? RowErrorCode::kBadUrl : RowErrorCode::kConnect, 0, detail};
    case CURLE_COULDNT_RESOLVE_HOST:
      return {RowErrorCode::kDns, 0, detail};
    case CURLE_COULDNT_CONNECT:
      if (!refused_address_.empty()) {
        return {RowErrorCode::kBlockedHost, 0, fmt::format("not a public address: {}", refused_address_)};
      }
      return {RowErrorCode::kConnect, 0, detail};
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_SHUTDOWN_FAILED:
      return {RowErrorCode::kTls, 0, detail};
    case CURLE_OPERATION_TIMEDOUT:
      return {RowErrorCode::kTimeout, 0, detail};
    case CURLE_TOO_MANY_REDIRECTS:
      return {RowErrorCode::kTooManyRedirects, 0, detail};
    default:  // The connection broke: before an answer, or within it.
      return {has_headers_ && is_success_status() ? RowErrorCode::kTruncated : RowErrorCode::kConnect, 0, detail};
  }
}

FetchAttempt FetchTransfer::end_attempt(CURLcode code) {
  leave_pause();
  FetchAttempt attempt;
  if (stopped_) {
    attempt.error = stopped_;
  } else if (status_ >= 400 || (code == CURLE_OK && !is_success_status())) {
    attempt.error = RowError{RowErrorCode::kHttpStatus, status_, {}};
    attempt.may_retry = status_ == 429 || (status_ >= 500 && status_ <= 599);
    attempt.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(get_info<curl_off_t>(easy_, CURLINFO_RETRY_AFTER), 0, 1 << 20));
  } else if (code != CURLE_OK) {
    attempt.error = error_of(code);
    attempt.may_retry = attempt.error->code == RowErrorCode::kConnect || attempt.error->code == RowErrorCode::kTruncated;
  }
  if (attempt.error) {
    drop_body();
  }
  return attempt;
}

RowError FetchTransfer::timed_out() {
  leave_pause();
  RowError error = status_ >= 400 ? RowError{RowErrorCode::kHttpStatus, status_, {}}
                                  : RowError{RowErrorCode::kTimeout, 0, fmt::format("after {} body bytes", body_bytes())};
  drop_body();
  return error;
}

FetchReply FetchTransfer::make_reply(std::optional<RowError> error) {
  const bool was_sent = num_attempts_ > 0;
  FetchReply reply{request_.id, error ? RowResult<std::string>(*std::move(error)) : RowResult<std::string>(std::move(body_))};
  body_ = std::string();
  if (was_sent) {
    reply.final_url = text_info(easy_, CURLINFO_EFFECTIVE_URL);
    reply.content_type = text_info(easy_, CURLINFO_CONTENT_TYPE);
    reply.http_status = status_;
    reply.num_retries = num_retries();
  }
  reply.num_bytes = num_bytes_;
  return reply;
}

void FetchTransfer::resume(FetchClock::time_point now) {
  paused_time_ += now - *paused_since_;
  paused_since_.reset();
  std::erase(shared_.paused, this);
  curl_easy_pause(easy_, CURLPAUSE_CONT);  // May deliver bytes, and pause again.
}

void FetchTransfer::leave_pause() {
  if (paused_since_) {
    std::erase(shared_.paused, this);
    paused_since_.reset();
  }
  if (shared_.over_limit == this) {
    shared_.over_limit = nullptr;
  }
}

FetchClock::time_point FetchTransfer::deadline(FetchClock::time_point now) const {
  return deadline_ + paused_time_ + (paused_since_ ? now - *paused_since_ : FetchClock::duration{});
}

}  // namespace darkroom
