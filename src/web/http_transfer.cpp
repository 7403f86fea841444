#include "http_transfer.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "darkroom/core/check.h"
#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr long kHttpBufferBytes = 65'536;
constexpr CURLcode kTooLargeCode = static_cast<CURLcode>(100);  // CURLE_TOO_LARGE of libcurl 8.6 and later.

template <typename Value>
void set(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  DARKROOM_CHECK(code == CURLE_OK, "libcurl refused an option (number, reason):", static_cast<int>(option), curl_easy_strerror(code));
}

bool has_line_end(std::string_view text) { return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos; }

bool is_http_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7F && std::string_view("\"(),/:;<=>?@[\\]{}").find(static_cast<char>(c)) == std::string_view::npos;
  });
}

// libcurl has one code for a handshake that the server refuses and for a connection that breaks in it; its words tell them apart.
bool breaks_off(std::string_view message) {
  constexpr std::string_view kBreaks[] = {"SSL_ERROR_SYSCALL", "unexpected eof", "Connection reset", "Recv failure"};
  return std::ranges::any_of(kBreaks, [&](std::string_view words) { return message.find(words) != std::string_view::npos; });
}

}  // namespace

HttpTransfer::HttpTransfer(const std::string& certificate_authorities) : easy_(curl_easy_init()) {
  DARKROOM_CHECK(easy_ != nullptr, "libcurl gave no handle");
  set_constants(certificate_authorities);
}

HttpTransfer::~HttpTransfer() { curl_easy_cleanup(easy_); }

HttpTransfer* HttpTransfer::of(CURL* handle) {
  HttpTransfer* self = nullptr;
  curl_easy_getinfo(handle, CURLINFO_PRIVATE, &self);
  return self;
}

void HttpTransfer::set_constants(const std::string& certificate_authorities) {
  set(easy_, CURLOPT_PRIVATE, this);
  set(easy_, CURLOPT_ERRORBUFFER, curl_message_);
  set(easy_, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set(easy_, CURLOPT_OPENSOCKETDATA, this);
  set(easy_, CURLOPT_PREREQFUNCTION, &on_connected);
  set(easy_, CURLOPT_PREREQDATA, this);
  set(easy_, CURLOPT_HEADERFUNCTION, &on_header);
  set(easy_, CURLOPT_HEADERDATA, this);
  set(easy_, CURLOPT_WRITEFUNCTION, &on_body);
  set(easy_, CURLOPT_WRITEDATA, this);
  set(easy_, CURLOPT_READFUNCTION, &read_body);
  set(easy_, CURLOPT_READDATA, this);
  set(easy_, CURLOPT_SEEKFUNCTION, &seek_body);
  set(easy_, CURLOPT_SEEKDATA, this);
  set(easy_, CURLOPT_BUFFERSIZE, kHttpBufferBytes);

  set(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  set(easy_, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  set(easy_, CURLOPT_PATH_AS_IS, 1L);
  set(easy_, CURLOPT_FOLLOWLOCATION, 0L);
  set(easy_, CURLOPT_PROXY, "");  // Not even those of the environment: the address policy must see the real host.
  set(easy_, CURLOPT_NOPROXY, "*");
  set(easy_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));

  // The parsed roots are cached in the multi handle only when a file alone names them.
  set(easy_, CURLOPT_CAINFO, certificate_authorities.c_str());
  set(easy_, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  set(easy_, CURLOPT_CA_CACHE_TIMEOUT, -1L);
  set(easy_, CURLOPT_SSL_VERIFYPEER, 1L);
  set(easy_, CURLOPT_SSL_VERIFYHOST, 2L);

  set(easy_, CURLOPT_NOSIGNAL, 1L);
  set(easy_, CURLOPT_QUICK_EXIT, 1L);         // Ending a transfer must not wait for its name look-up.
  set(easy_, CURLOPT_DNS_CACHE_TIMEOUT, 0L);  // The cache is walked after every transfer; ours is before libcurl.
}

bool HttpTransfer::begin(ExchangeId id, HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done, Instant now) {
  forget();
  id_ = id;
  request_ = std::move(request);
  answer_.begin(request_, sink);
  done_ = std::move(done);
  began_ = last_byte_ = now;
  return set_request();
}

void HttpTransfer::forget() {
  paused_time_ = {};
  paused_since_.reset();
  socket_error_ = 0;
  refused_address_.clear();
  is_connected_ = false;
  stopped_.reset();
  connected_after_.reset();
  first_byte_after_.reset();
  peer_.reset();
  piece_ = piece_offset_ = 0;
  curl_message_[0] = 0;
}

bool HttpTransfer::set_request() {
  if (has_line_end(request_.url) || !is_http_token(request_.method)) {
    return stop(HttpEnd::kBadRequest, "the URL or the method holds a character that it must not");
  }
  set(easy_, CURLOPT_URL, request_.url.c_str());
  connect_to_.reset();
  if (request_.connect_to) {
    // Of any host and port of the URL: it has only one.
    connect_to_.reset(curl_slist_append(nullptr, fmt::format("::{}", request_.connect_to->to_string()).c_str()));
  }
  set(easy_, CURLOPT_CONNECT_TO, connect_to_.get());
  set(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::max<int64_t>(1, request_.limits.connect.count())));
  set(easy_, CURLOPT_FRESH_CONNECT, request_.needs_new_connection ? 1L : 0L);
  set(easy_, CURLOPT_FORBID_REUSE, request_.may_keep_connection ? 0L : 1L);
  set_method();
  return set_headers();
}

void HttpTransfer::set_method() {
  set(easy_, CURLOPT_HTTPGET, 1L);  // Also takes back what an exchange before has set.
  set(easy_, CURLOPT_CUSTOMREQUEST, static_cast<const char*>(nullptr));
  if (request_.method == "HEAD") {
    set(easy_, CURLOPT_NOBODY, 1L);
    return;
  }
  if (!request_.body.empty() || request_.method == "PUT" || request_.method == "POST") {
    curl_off_t num_bytes = 0;
    for (const auto& piece : request_.body) {
      num_bytes += static_cast<curl_off_t>(piece.size());
    }
    set(easy_, CURLOPT_UPLOAD, 1L);
    set(easy_, CURLOPT_INFILESIZE_LARGE, num_bytes);
  }
  set(easy_, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
}

bool HttpTransfer::set_headers() {
  headers_.reset();
  curl_slist* list = nullptr;
  for (const auto& [name, value] : request_.headers) {
    if (!is_http_token(name) || has_line_end(value)) {
      headers_.reset(list);
      return stop(HttpEnd::kBadRequest, fmt::format("a header holds a character that it must not: {}", name));
    }
    // libcurl wants "Name;" for an empty value: "Name:" takes a header away.
    list = curl_slist_append(list, (trim_blanks(value).empty() ? name + ";" : name + ": " + value).c_str());
  }
  list = curl_slist_append(list, "Expect:");  // No second round trip before a body.
  headers_.reset(list);
  set(easy_, CURLOPT_HTTPHEADER, list);
  return true;
}

curl_socket_t HttpTransfer::open_socket(HttpTransfer* self, curlsocktype purpose, curl_sockaddr* address) noexcept {
  const auto peer = SocketAddress::from_sockaddr(address->addr);
  const HttpRequest& request = self->request_;
  const bool is_allowed = purpose == CURLSOCKTYPE_IPCXN && peer && (!request.connect_to || *peer == *request.connect_to) &&
                          (request.policy == nullptr || request.policy->allows(address->addr));
  if (!is_allowed) {
    self->refused_address_ = peer ? peer->to_string() : "no internet address";
    return CURL_SOCKET_BAD;
  }
  self->refused_address_.clear();
  const int descriptor = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  self->socket_error_ = descriptor < 0 ? errno : 0;
  self->num_connections_ += descriptor >= 0 ? 1 : 0;
  return descriptor < 0 ? CURL_SOCKET_BAD : descriptor;
}

int HttpTransfer::on_connected(HttpTransfer* self, char* peer, char*, int peer_port, int) noexcept {
  const Instant now = std::chrono::steady_clock::now();
  self->is_connected_ = true;
  self->last_byte_ = now;
  self->connected_after_ = self->wire_time(now);
  if (const auto ip = IpAddress::parse(peer)) {
    self->peer_ = SocketAddress{*ip, static_cast<uint16_t>(peer_port)};
  }
  // The lock behind the lock: whatever connection libcurl has found, it leads to where the request may go.
  if (self->request_.connect_to && self->peer_ != self->request_.connect_to) {
    self->stop(HttpEnd::kRefusedAddress, fmt::format("the connection leads to another address: {}", peer));
    return CURL_PREREQFUNC_ABORT;
  }
  return CURL_PREREQFUNC_OK;
}

size_t HttpTransfer::on_header(const char* line, size_t size, size_t count, HttpTransfer* self) noexcept {
  const size_t num_bytes = size * count;
  const bool goes_on = self->guarded([&] { return self->take_line({line, num_bytes}); });
  return goes_on ? num_bytes : num_bytes + 1;  // Any other count ends the transfer.
}

size_t HttpTransfer::on_body(const char* bytes, size_t size, size_t count, HttpTransfer* self) noexcept {
  const size_t num_bytes = size * count;
  bool is_pause = false;
  if (!self->guarded([&] { return self->take_body({bytes, num_bytes}, is_pause); })) {
    return num_bytes + 1;
  }
  return is_pause ? CURL_WRITEFUNC_PAUSE : num_bytes;
}

size_t HttpTransfer::read_body(char* buffer, size_t size, size_t count, HttpTransfer* self) noexcept {
  const auto& pieces = self->request_.body;
  const size_t room = size * count;
  size_t num_copied = 0;
  while (num_copied < room && self->piece_ < pieces.size()) {
    const auto rest = pieces[self->piece_].subspan(self->piece_offset_);
    const size_t num_bytes = std::min(rest.size(), room - num_copied);
    if (num_bytes > 0) {
      std::memcpy(buffer + num_copied, rest.data(), num_bytes);
    }
    num_copied += num_bytes;
    self->piece_offset_ += num_bytes;
    if (num_bytes == rest.size()) {
      ++self->piece_;
      self->piece_offset_ = 0;
    }
  }
  self->last_byte_ = std::chrono::steady_clock::now();
  return num_copied;
}

int HttpTransfer::seek_body(HttpTransfer* self, curl_off_t offset, int origin) noexcept {
  if (offset != 0 || origin != SEEK_SET) {
    return CURL_SEEKFUNC_FAIL;
  }
  self->piece_ = self->piece_offset_ = 0;
  return CURL_SEEKFUNC_OK;
}

// What the sink throws must not pass through libcurl.
template <typename Call>
bool HttpTransfer::guarded(const Call& call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return stop(HttpEnd::kSinkFailed, failure.what());
  } catch (...) {
    return stop(HttpEnd::kSinkFailed, "an exception of no known kind");
  }
}

bool HttpTransfer::stop(HttpEnd end, std::string detail) {
  stopped_ = HttpStop{end, std::move(detail)};
  return false;
}

bool HttpTransfer::goes_on(std::optional<HttpStop> why) { return !why || stop(why->end, std::move(why->detail)); }

bool HttpTransfer::take_line(std::string_view line) {
  last_byte_ = std::chrono::steady_clock::now();
  if (!first_byte_after_) {
    first_byte_after_ = wire_time(last_byte_);
  }
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  return goes_on(answer_.take_line(line, static_cast<int>(status)));
}

bool HttpTransfer::take_body(std::string_view bytes, bool& is_pause) {
  last_byte_ = std::chrono::steady_clock::now();
  std::optional<HttpStop> why = answer_.take_body(bytes, is_pause);
  if (is_pause) {
    paused_since_ = last_byte_;
  }
  return goes_on(std::move(why));
}

CURLcode HttpTransfer::resume(Instant now) {
  if (!paused_since_) {
    return CURLE_OK;
  }
  paused_time_ += now - *paused_since_;
  last_byte_ = now;
  paused_since_.reset();
  return curl_easy_pause(easy_, CURLPAUSE_CONT);  // May deliver bytes, and pause again.
}

std::optional<HttpTransfer::Instant> HttpTransfer::next_check(Instant now) const {
  if (paused_since_) {
    return std::nullopt;
  }
  // The idle limit begins with the connection, which is not made before now.
  return std::min(began_ + paused_time_ + request_.limits.total, (is_connected_ ? last_byte_ : now) + request_.limits.idle);
}

std::optional<HttpEnd> HttpTransfer::expired(Instant now) const {
  if (paused_since_) {
    return std::nullopt;
  }
  if (now >= began_ + paused_time_ + request_.limits.total) {
    return HttpEnd::kDeadline;
  }
  return is_connected_ && now >= last_byte_ + request_.limits.idle ? std::optional(HttpEnd::kIdleTimeout) : std::nullopt;
}

HttpEnd HttpTransfer::end_of_connecting() const {
  if (!refused_address_.empty()) {
    return HttpEnd::kRefusedAddress;
  }
  if (socket_error_ == EMFILE || socket_error_ == ENFILE || socket_error_ == ENOBUFS || socket_error_ == ENOMEM) {
    return HttpEnd::kNoDescriptors;
  }
  long system_error = 0;
  curl_easy_getinfo(easy_, CURLINFO_OS_ERRNO, &system_error);
  return system_error == ECONNREFUSED ? HttpEnd::kConnectionRefused : HttpEnd::kUnreachable;
}

HttpEnd HttpTransfer::end_of(CURLcode code) const {
  if (code == kTooLargeCode) {
    return HttpEnd::kHeadersTooLarge;
  }
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_LOGIN_DENIED:  // A user name in the URL.
      return HttpEnd::kBadRequest;
    case CURLE_UNSUPPORTED_PROTOCOL:  // Also an answer that is no HTTP.
      return is_connected_ ? HttpEnd::kNotHttp : HttpEnd::kBadRequest;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
      return HttpEnd::kNotHttp;
    case CURLE_COULDNT_RESOLVE_HOST:
      return HttpEnd::kUnresolved;
    case CURLE_COULDNT_CONNECT:
      return end_of_connecting();
    case CURLE_OPERATION_TIMEDOUT:  // Only of connecting: the other limits are ours.
      return HttpEnd::kConnectTimeout;
    case CURLE_SSL_CONNECT_ERROR:
      return breaks_off(curl_message_) ? HttpEnd::kBroken : HttpEnd::kTls;
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_SHUTDOWN_FAILED:
      return HttpEnd::kTls;
    case CURLE_OUT_OF_MEMORY:  // So says libcurl before 8.6 of a header line above 100 KiB.
      return is_connected_ && !answer_.has_head() ? HttpEnd::kHeadersTooLarge : HttpEnd::kInternal;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
      return answer_.has_head() ? HttpEnd::kTruncated : HttpEnd::kBroken;
    default:
      return HttpEnd::kInternal;
  }
}

HttpResult HttpTransfer::finish(CURLcode code, Instant now) {
  if (stopped_) {
    return finish(stopped_->end, std::move(stopped_->detail), now);
  }
  if (code == CURLE_OK) {
    return answer_.has_head() ? finish(HttpEnd::kAnswered, {}, now) : finish(HttpEnd::kNotHttp, "no final status", now);
  }
  std::string detail = curl_message_[0] != 0 ? curl_message_ : curl_easy_strerror(code);
  if (!refused_address_.empty()) {
    detail = fmt::format("the address is not allowed: {}", refused_address_);
  }
  return finish(end_of(code), std::move(detail), now);
}

HttpResult HttpTransfer::finish(HttpEnd end, std::string detail, Instant now) {
  if (answer_.is_dropped() && end != HttpEnd::kCancelled) {
    end = HttpEnd::kAnswered;  // The status is known; what breaks behind it is of no interest.
    detail.clear();
  }
  HttpResult result{.id = id_, .end = end, .detail = std::move(detail)};
  result.head = answer_.end();
  result.num_bytes = answer_.body_bytes();
  result.peer = peer_;
  result.connected_after = connected_after_;
  result.first_byte_after = first_byte_after_;
  result.ended_after = wire_time(now);
  request_ = {};
  return result;
}

std::function<void(HttpResult)> HttpTransfer::take_done() { return std::exchange(done_, nullptr); }

}  // namespace darkroom
