#pragma once

#include <curl/curl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/web/http_exchange.h"
#include "http_answer.h"

namespace darkroom {

/// One slot for an exchange on its way, with an easy handle that serves many of them one after the other.
/// Thread safety: belongs to the loop's thread.
class HttpTransfer {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  explicit HttpTransfer(const std::string& certificate_authorities);
  ~HttpTransfer();
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  CURL* handle() const { return easy_; }
  static HttpTransfer* of(CURL* handle);

  /// Takes an exchange; its time starts now. False when it cannot be sent: finish() says why.
  bool begin(ExchangeId id, HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done, Instant now);
  /// Goes on with a paused one. Anything but CURLE_OK: it has to be finished with this code. REQUIRES: the handle is in the multi handle.
  CURLcode resume(Instant now);
  /// Which limit has passed; nothing: none. Asked again at next_check().
  std::optional<HttpEnd> expired(Instant now) const;
  /// Before this no limit passes, whatever happens meanwhile; nothing while paused.
  std::optional<Instant> next_check(Instant now) const;

  /// Ends the exchange with what libcurl says of it, or with `end`. REQUIRES: the handle is not in the multi handle. The result goes to
  /// take_done().
  HttpResult finish(CURLcode code, Instant now);
  HttpResult finish(HttpEnd end, std::string detail, Instant now);
  std::function<void(HttpResult)> take_done();

  ExchangeId id() const { return id_; }
  int take_num_connections() { return std::exchange(num_connections_, 0); }

  std::optional<Instant> timer_at;  ///< Its place in the loop's timers.

 private:
  static curl_socket_t open_socket(HttpTransfer* self, curlsocktype purpose, curl_sockaddr* address) noexcept;
  static int on_connected(HttpTransfer* self, char* peer, char* local, int peer_port, int local_port) noexcept;
  static size_t on_header(const char* line, size_t size, size_t count, HttpTransfer* self) noexcept;
  static size_t on_body(const char* bytes, size_t size, size_t count, HttpTransfer* self) noexcept;
  static size_t read_body(char* buffer, size_t size, size_t count, HttpTransfer* self) noexcept;
  static int seek_body(HttpTransfer* self, curl_off_t offset, int origin) noexcept;

  void set_constants(const std::string& certificate_authorities);
  bool set_request();
  bool set_headers();
  void set_method();
  bool take_line(std::string_view line);
  bool take_body(std::string_view bytes, bool& is_pause);
  bool goes_on(std::optional<HttpStop> why);
  bool stop(HttpEnd end, std::string detail);
  template <typename Call>
  bool guarded(const Call& call);
  HttpEnd end_of(CURLcode code) const;
  HttpEnd end_of_connecting() const;
  std::chrono::microseconds wire_time(Instant now) const { return std::chrono::duration_cast<std::chrono::microseconds>(now - began_); }
  void forget();

  CURL* easy_;
  char curl_message_[CURL_ERROR_SIZE] = {};

  // Of the exchange.
  ExchangeId id_ = 0;
  HttpRequest request_;
  std::function<void(HttpResult)> done_;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_{nullptr, curl_slist_free_all};
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> connect_to_{nullptr, curl_slist_free_all};
  Instant began_{};
  Instant last_byte_{};
  Instant::duration paused_time_{};
  std::optional<Instant> paused_since_;

  // Of the connection.
  int num_connections_ = 0;  // Sockets opened since take_num_connections().
  int socket_error_ = 0;
  std::string refused_address_;
  bool is_connected_ = false;

  // Of the answer.
  HttpAnswer answer_;
  std::optional<HttpStop> stopped_;  // Why a callback ended the exchange.
  std::optional<std::chrono::microseconds> connected_after_, first_byte_after_;
  std::optional<SocketAddress> peer_;

  // Of the body that is sent.
  size_t piece_ = 0;
  size_t piece_offset_ = 0;
};

}  // namespace darkroom
