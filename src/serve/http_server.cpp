#include "darkroom/serve/http_server.h"
#include "darkroom/core/ascii_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "darkroom/core/log.h"
#include "darkroom/web/listen_failure.h"

namespace darkroom {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kReadAhead = 65'536;           // Beside the header: what a connection may hold unparsed.
constexpr size_t kMaxUnreadBytes = 16'000'000;  // Taken after a refusal, so that closing does not reset the reply.
constexpr std::chrono::seconds kMaxLinger{2};
constexpr size_t kWatchBytes = 4096;  // Of the next request, which a client may send before it has its answer: read at a time.
constexpr size_t kNumMakers = 2;
constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::chrono::milliseconds kAcceptPause{20};

HttpReply words(int status, std::string_view sentence) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = fmt::format("{}\n", sentence)};
}

/// What the parser lets through and this server does not read; nothing: it is fine.
std::optional<HttpReply> refuse_ambiguous(const http::request<http::string_body>& request) {
  const auto codings = request.equal_range(http::field::transfer_encoding);
  if (codings.first != codings.second &&
      (request.version() != 11 || std::next(codings.first) != codings.second || !beast::iequals(codings.first->value(), "chunked"))) {
    return words(400, "the only transfer coding here is chunked, of HTTP/1.1");
  }
  const auto lengths = request.equal_range(http::field::content_length);
  if (lengths.first != lengths.second &&
      (std::next(lengths.first) != lengths.second || lengths.first->value().find(',') != beast::string_view::npos)) {
    return words(400, "a request names one Content-Length");
  }
  const auto hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() == 11)) {
    return words(400, "a request names one Host");
  }
  if (request.target().empty() || request.target().front() != '/') {
    return words(400, "a request's target is a path, beginning with /");
  }
  return std::nullopt;
}

std::optional<HttpReply> refuse_unreadable(const ErrorCode& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return words(431, "the request's header is too large");
  }
  if (error == http::error::body_limit) {
    return words(413, "the request's body is too large");
  }
  const bool is_parsers = error.category() == make_error_code(http::error::bad_method).category();
  return is_parsers && error != http::error::end_of_stream && error != http::error::partial_message
             ? std::optional(words(400, fmt::format("this is no proper HTTP/1 request: {}", error.message())))
             : std::nullopt;
}

HttpQuestion head_of(const http::request<http::string_body>& request) {
  HttpQuestion question;
  question.method = std::string(request.method_string());
  const std::string target(request.target());
  const size_t end = std::min(target.find('?'), target.size());
  question.path = target.substr(0, end);
  question.query = target.substr(std::min(end + 1, target.size()));
  for (const auto& field : request) {
    question.headers.emplace_back(ascii_lower(std::string(field.name_string())), std::string(field.value()));
  }
  return question;
}

/// Sets what every reply's head has.
void fill_head(http::response_header<>& head, int status, std::string_view type, const HttpHeaders& headers) {
  head.result(static_cast<unsigned>(status));
  head.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  head.set(http::field::cache_control, "no-store");
  head.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : headers) {
    head.set(name, value);
  }
}

HttpReply make_safely(const ReplyMaker& make) {
  try {
    return make();
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: a reply could not be made: {}", failure.what());
    return words(500, "the reply could not be made; the server's log says why");
  }
}

/// What becomes of asking a stream: a piece, none yet, that it may have one by now, or a failure.
struct StreamNews {
  std::optional<ReplyStream::Piece> piece = {};
  bool is_wake = false;
  bool has_failed = false;
};

StreamNews ask_safely(ReplyStream& stream, std::function<void()> wake) {
  try {
    return {.piece = stream.next(std::move(wake))};
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: a reply could not be made to its end: {}", failure.what());
    return {.has_failed = true};
  }
}

}  // namespace

std::string_view HttpQuestion::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& field) { return field.first == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

Status HttpServerOptions::validate() const {
  if (max_header_bytes < 256 || max_header_bytes > 1'000'000 || max_body_bytes < 1 || max_body_bytes > 1'000'000'000) {
    return Status::invalid_argument(
        "bounds of a request must be 256 to 1,000,000 and 1 to 1,000,000,000 bytes (header, body):", max_header_bytes, max_body_bytes);
  }
  if (std::min({request_timeout, reply_timeout, idle_period}) < std::chrono::milliseconds(1)) {
    return Status::invalid_argument("time-outs of the server must be at least 1 ms, got (request, reply, idle, in ms):",
                                    request_timeout.count(), reply_timeout.count(), idle_period.count());
  }
  if (max_connections < 1 || max_connections > 100'000) {
    return Status::invalid_argument("max_connections of the server must be 1 to 100,000:", max_connections);
  }
  return Status::ok();
}

/// Everything that the threads share. What is not marked belongs to the I/O thread.
struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  class Session;

  State(HttpService& service_asked, const HttpServerOptions& options_asked) : service(service_asked), options(options_asked) {}

  void accept();
  void close_all();
  void accept_one(Tcp::socket socket);
  /// Ends the connection that has been without an open question for longest. False: there is none.
  bool end_idle();
  /// Of any thread: has a reply made and sent.
  void answer(uint64_t session, uint64_t question, const std::stop_token& gone, AnyReply reply);
  template <typename Reply>
  void send(uint64_t session, uint64_t question, Reply reply);
  /// Of the I/O thread: has a stream's next piece made.
  void ask_stream(uint64_t session, uint64_t question, const std::shared_ptr<ReplyStream>& stream, const std::stop_token& gone);
  void run();
  void question_begins() {
    const std::lock_guard lock(mutex);
    ++num_open_questions;
  }
  void question_ends() {
    const std::lock_guard lock(mutex);
    --num_open_questions;
    quiet.notify_all();
  }

  HttpService& service;
  const HttpServerOptions options;
  asio::io_context io{1};
  asio::thread_pool makers{kNumMakers};
  Tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::map<uint64_t, std::shared_ptr<Session>> sessions;  // In the order of arrival.
  uint64_t next_session = 0;
  bool is_closing = false;
  std::atomic<bool> is_draining = false;
  mutable std::mutex mutex;
  mutable std::condition_variable quiet;
  // Guarded by mutex.
  int num_open_questions = 0;
  bool has_ended = false;
  std::jthread thread;
};

/// One connection. Lives in State::sessions and in the handlers of the I/O thread, and only there.
class HttpServer::State::Session : public std::enable_shared_from_this<HttpServer::State::Session> {
 public:
  Session(State& state, uint64_t number, Tcp::socket socket)
      : state_(state), number_(number), stream_(std::move(socket)), idle_(state.io), buffer_(state.options.max_header_bytes + kReadAhead) {}

  ~Session() { end_question(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool has_question() const { return has_question_; }

  void read() {
    if (is_closed_ || is_watching_) {
      reads_after_watch_ = is_watching_;
      return;
    }
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(state_.options.max_header_bytes));
    parser_->body_limit(state_.options.max_body_bytes);
    stream_.expires_after(state_.options.request_timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_head(error); });
  }

  void reply(uint64_t question, HttpReply reply) {
    if (!is_waiting_for_answer() || question != question_ || streamed_.has_value()) {
      return;
    }
    end_watch();
    write(std::move(reply), keeps_alive_ && !state_.is_draining);
  }

  void reply(uint64_t question, StreamedReply reply) {
    if (is_waiting_for_answer() && question == question_ && !streamed_.has_value()) {
      begin_stream(std::move(reply));
    }
  }

  // What became of asking a stream.
  void reply(uint64_t question, StreamNews news) {
    if (question != question_ || !streamed_.has_value()) {
      return;
    }
    if (news.has_failed) {
      close();  // In the midst of a chunked body, so that the client can tell.
    } else if (news.is_wake) {
      is_woken_ = true;
      go_on_if_waiting();
    } else if (news.piece.has_value()) {
      write_piece(*std::move(news.piece));
    } else {
      flow_ = Flow::kWaiting;
      go_on_if_waiting();
    }
  }

  void close() {
    if (is_closed_) {
      return;
    }
    is_closed_ = true;
    if (gone_.has_value()) {
      std::stop_source gone = *gone_;
      gone_.reset();
      gone.request_stop();
    }
    idle_.cancel();
    streamed_.reset();
    held_.reset();
    end_question();
    stream_.close();
    state_.sessions.erase(number_);
  }

 private:
  enum class Flow { kAsking, kWaiting, kWriting };  // Of a streamed reply; one of them at any time.

  bool is_waiting_for_answer() const { return gone_.has_value(); }

  void end_watch() {
    gone_.reset();
    stream_.socket().cancel();  // The watch for a client that leaves.
  }

  void begin_question() {
    if (!std::exchange(has_question_, true)) {
      state_.question_begins();
    }
  }
  void end_question() {
    if (std::exchange(has_question_, false)) {
      state_.question_ends();
    }
  }

  // Whether there is nothing to go on with: the connection is over, or a refusal is on its way.
  bool ends_with(const ErrorCode& error) {
    if (is_closed_) {
      return true;
    }
    if (error) {
      const auto refusal = refuse_unreadable(error);
      refusal.has_value() ? write(*refusal, false) : close();
      return true;
    }
    return false;
  }

  void have_head(const ErrorCode& error) {
    if (ends_with(error)) {
      return;
    }
    const http::request<http::string_body>& request = parser_->get();
    if (auto refusal = refuse_ambiguous(request)) {
      write(*std::move(refusal), false);
      return;
    }
    keeps_alive_ = request.keep_alive();
    version_ = request.version();
    is_head_ = request.method() == http::verb::head;
    asked_ = head_of(request);
    if (auto refusal = refusal_of_service()) {
      write(*std::move(refusal), keeps_alive_ && parser_->is_done() && !state_.is_draining);
    } else if (!bound_body()) {
      write(words(413, "the request's body is too large"), false);
    } else if (parser_->is_done()) {
      ask();
    } else if (request.version() == 11 && beast::iequals(request[http::field::expect], "100-continue")) {
      asio::async_write(stream_, asio::buffer(kGoOn),
                        [self = shared_from_this()](const ErrorCode& failure, size_t) { failure ? self->close() : self->read_body(); });
    } else {
      read_body();
    }
  }

  std::optional<HttpReply> refusal_of_service() {
    try {
      return state_.service.refuse(asked_);
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a request's head could not be handled: {}", failure.what());
      return words(500, "the request could not be handled; the server's log says why");
    }
  }

  // Sets the bound of this request's body, which the whole server's has let pass. False: its length is above it.
  bool bound_body() {
    const size_t bound = std::min(state_.options.max_body_bytes, state_.service.max_body_bytes(asked_));
    const auto length = parser_->content_length();
    parser_->body_limit(bound);
    return !length.has_value() || *length <= bound;
  }

  void read_body() {
    if (is_closed_) {
      return;
    }
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](const ErrorCode& error, size_t) {
      if (!self->ends_with(error)) {
        self->ask();
      }
    });
  }

  void ask() {
    begin_question();
    asked_.body = std::move(parser_->get().body());
    stream_.expires_never();
    gone_.emplace();
    const std::stop_token gone = gone_->get_token();
    watch_client();
    const HttpService::Answer answer = [state = state_.shared_from_this(), number = number_, question = ++question_, gone](AnyReply reply) {
      state->answer(number, question, gone, std::move(reply));
    };
    try {
      state_.service.handle(std::exchange(asked_, {}), gone, answer);
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a request could not be handled: {}", failure.what());
      answer(words(500, "the request could not be handled; the server's log says why"));
    }
  }

  // A client that closes while it waits is gone. What it sends meanwhile is its next request's, up to what a head may have.
  void watch_client() {
    const size_t room = buffer_.max_size() - buffer_.size();
    if (room == 0) {
      return;
    }
    is_watching_ = true;
    stream_.socket().async_read_some(buffer_.prepare(std::min(room, kWatchBytes)),
                                     [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
                                       self->is_watching_ = false;
                                       self->buffer_.commit(num_bytes);
                                       if (self->is_waiting_for_answer()) {
                                         error ? self->close() : self->watch_client();
                                       } else if (std::exchange(self->reads_after_watch_, false)) {
                                         self->read();
                                       }
                                     });
  }

  void write(HttpReply reply, bool keeps_alive) {
    begin_question();
    response_ = {};
    response_.version(11);
    fill_head(response_, reply.status, reply.type, reply.headers);
    goes_on_ = keeps_alive && !is_head_;
    response_.keep_alive(goes_on_);
    const size_t num_bytes = reply.body.size();
    response_.body() = is_head_ ? std::string() : std::move(reply.body);
    response_.prepare_payload();
    if (response_.result() == http::status::not_modified || response_.result() == http::status::no_content) {
      response_.erase(http::field::content_length);
    } else if (is_head_) {
      response_.content_length(num_bytes);  // What GET would have.
    }
    held_ = std::move(reply.held);
    stream_.expires_after(state_.options.reply_timeout);
    http::async_write(stream_, response_, [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_written(error); });
  }

  // The client is watched up to the stream's end, as while it waited.
  void begin_stream(StreamedReply reply) {
    streamed_ = std::move(reply);
    is_chunked_ = version_ == 11;
    goes_on_ = keeps_alive_ && is_chunked_ && !is_head_ && !state_.is_draining;
    stream_head_.emplace();
    stream_head_->version(11);
    fill_head(*stream_head_, streamed_->status, streamed_->type, streamed_->headers);
    stream_head_->chunked(is_chunked_);
    stream_head_->keep_alive(goes_on_);
    head_writer_.emplace(*stream_head_);
    flow_ = Flow::kWriting;
    stream_.expires_after(state_.options.reply_timeout);
    http::async_write_header(stream_, *head_writer_, [self = shared_from_this()](const ErrorCode& error, size_t) {
      self->is_head_ && !error ? self->end_stream() : self->have_written_piece(error);
    });
  }

  void ask_stream() {
    flow_ = Flow::kAsking;
    is_woken_ = false;
    state_.ask_stream(number_, question_, streamed_->stream, gone_->get_token());
  }

  void go_on_if_waiting() {
    if (flow_ != Flow::kWaiting) {
      return;
    }
    idle_.cancel();
    if (is_woken_) {
      ask_stream();
    } else if (!streamed_->idle_bytes.empty()) {
      idle_.expires_after(state_.options.idle_period);
      idle_.async_wait([self = shared_from_this(), question = question_](const ErrorCode& error) {
        if (!error && question == self->question_ && self->streamed_.has_value() && self->flow_ == Flow::kWaiting) {
          self->write_piece({.bytes = self->streamed_->idle_bytes});
        }
      });
    }
  }

  void write_piece(ReplyStream::Piece piece) {
    flow_ = Flow::kWriting;
    piece_ = std::move(piece);
    if (piece_.bytes.empty()) {  // As a chunk that would be the end.
      have_written_piece({});
      return;
    }
    stream_.expires_after(state_.options.reply_timeout);
    const auto written = [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_written_piece(error); };
    is_chunked_ ? asio::async_write(stream_, http::make_chunk(asio::buffer(piece_.bytes)), written)
                : asio::async_write(stream_, asio::buffer(piece_.bytes), written);
  }

  void have_written_piece(const ErrorCode& error) {
    if (error || is_closed_) {
      close();
    } else if (!piece_.is_last) {
      piece_ = {};
      ask_stream();
    } else if (is_chunked_) {
      stream_.expires_after(state_.options.reply_timeout);
      asio::async_write(stream_, http::make_chunk_last(),
                        [self = shared_from_this()](const ErrorCode& failure, size_t) { failure ? self->close() : self->end_stream(); });
    } else {
      end_stream();
    }
  }

  void end_stream() {
    if (is_closed_) {
      return;
    }
    end_watch();
    piece_ = {};
    held_ = std::move(streamed_->held);
    streamed_.reset();
    goes_on_ = goes_on_ && !state_.is_draining;
    have_written({});
  }

  void have_written(const ErrorCode& error) {
    response_.body() = std::string();
    held_.reset();
    end_question();
    if (error || is_closed_) {
      close();
    } else if (goes_on_) {
      read();
    } else {
      ErrorCode ignored;
      stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
      stream_.expires_after(kMaxLinger);
      linger();
    }
  }

  void linger() {
    stream_.async_read_some(asio::buffer(unread_), [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
      self->num_unread_ += num_bytes;
      error || self->num_unread_ > kMaxUnreadBytes ? self->close() : self->linger();
    });
  }

  State& state_;
  const uint64_t number_;
  beast::tcp_stream stream_;
  asio::steady_timer idle_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::shared_ptr<const void> held_;       // Of the reply.
  HttpQuestion asked_;                     // Until it is asked.
  std::optional<std::stop_source> gone_;   // While the client waits for its answer, or a streamed one's end.
  std::optional<StreamedReply> streamed_;  // While it is sent.
  std::optional<http::response<http::empty_body>> stream_head_;
  std::optional<http::response_serializer<http::empty_body>> head_writer_;
  ReplyStream::Piece piece_;  // That is written.
  Flow flow_ = Flow::kAsking;
  bool is_woken_ = false;  // Since the stream was asked last.
  bool is_chunked_ = false;
  bool goes_on_ = false;  // With the next request, after this reply.
  unsigned version_ = 11;
  std::array<char, kWatchBytes> unread_;
  bool has_question_ = false;  // That State counts: from a request that is there to its reply's end.
  bool is_watching_ = false;   // Reads into buffer_.
  bool reads_after_watch_ = false;
  bool keeps_alive_ = false;
  bool is_head_ = false;
  bool is_closed_ = false;
  size_t num_unread_ = 0;
  uint64_t question_ = 0;  // How many there were.
};

bool HttpServer::State::end_idle() {
  const auto idle = std::find_if(sessions.begin(), sessions.end(), [](const auto& entry) { return !entry.second->has_question(); });
  if (idle == sessions.end()) {
    return false;
  }
  const std::shared_ptr<Session> session = idle->second;
  session->close();
  return true;
}

void HttpServer::State::accept_one(Tcp::socket socket) {
  if (sessions.size() >= static_cast<size_t>(options.max_connections) && !end_idle()) {
    return;  // Everybody waits for a reply; this one may come again.
  }
  const uint64_t number = next_session++;
  const auto session = std::make_shared<Session>(*this, number, std::move(socket));
  sessions.emplace(number, session);
  session->read();
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](const ErrorCode& error, Tcp::socket socket) {
    if (is_closing) {
      return;
    }
    if (!error) {
      accept();  // First: whatever becomes of this one, others may come.
      ErrorCode ignored;
      socket.set_option(Tcp::no_delay(true), ignored);  // Small pieces of streams are to arrive when they are sent.
      accept_one(std::move(socket));
    } else {  // No descriptor is left, or the client has left already.
      if (error == asio::error::no_descriptors) {
        end_idle();
      }
      pause.expires_after(kAcceptPause);
      pause.async_wait([this](const ErrorCode&) {
        if (!is_closing) {
          accept();
        }
      });
    }
  });
}

void HttpServer::State::close_all() {
  is_closing = true;
  ErrorCode ignored;
  acceptor.close(ignored);
  pause.cancel(ignored);
  while (!sessions.empty()) {
    const std::shared_ptr<Session> session = sessions.begin()->second;
    session->close();
  }
}

template <typename Reply>
void HttpServer::State::send(uint64_t session, uint64_t question, Reply reply) {
  asio::post(io, [self = shared_from_this(), session, question, reply = std::move(reply)]() mutable {
    if (const auto found = self->sessions.find(session); found != self->sessions.end()) {
      const std::shared_ptr<Session> waiting = found->second;
      waiting->reply(question, std::move(reply));
    }
  });
}

void HttpServer::State::answer(uint64_t session, uint64_t question, const std::stop_token& gone, AnyReply reply) {
  const std::lock_guard lock(mutex);
  if (has_ended) {
    return;
  }
  if (auto* const ready = std::get_if<HttpReply>(&reply)) {
    send(session, question, std::move(*ready));
  } else if (auto* const streamed = std::get_if<StreamedReply>(&reply)) {
    send(session, question, std::move(*streamed));
  } else {
    asio::post(makers, [self = shared_from_this(), session, question, gone, make = std::get<ReplyMaker>(std::move(reply))] {
      if (!gone.stop_requested()) {
        self->send(session, question, make_safely(make));
      }
    });
  }
}

void HttpServer::State::ask_stream(uint64_t session, uint64_t question, const std::shared_ptr<ReplyStream>& stream,
                                   const std::stop_token& gone) {
  const auto wake = [self = weak_from_this(), session, question] {
    const std::shared_ptr<State> state = self.lock();  // A stream that outlives the server need not keep it.
    if (state == nullptr) {
      return;
    }
    const std::lock_guard lock(state->mutex);
    if (!state->has_ended) {
      state->send(session, question, StreamNews{.is_wake = true});
    }
  };
  asio::post(makers, [self = shared_from_this(), session, question, stream, gone, wake] {
    if (!gone.stop_requested()) {
      self->send(session, question, ask_safely(*stream, wake));
    }
  });
}

void HttpServer::State::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& failure) {  // One connection's; the others go on.
      log_error("serve: a connection failed: {}", failure.what());
    }
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpService& service, const HttpServerOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  try {
    const auto state = std::make_shared<State>(service, options);
    asio::ip::tcp::endpoint place(asio::ip::make_address(options.address.ip.to_string()), options.address.port);
    ErrorCode error;
    state->acceptor.open(place.protocol(), error);
    if (!error) {
      state->acceptor.set_option(asio::socket_base::reuse_address(true), error);
      state->acceptor.bind(place, error);
    }
    if (!error) {
      state->acceptor.listen(1024, error);
    }
    if (error) {
      return listen_failure(options.address, error.value(), {.task = "serve", .port_flag = "--port", .address_flag = "--host"});
    }
    SocketAddress address = options.address;
    address.port = state->acceptor.local_endpoint().port();
    state->accept();
    state->thread = std::jthread([running = state.get()] { running->run(); });
    return std::unique_ptr<HttpServer>(new HttpServer(address, state));
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start the threads of the server (reason):", failure.what());
  }
}

HttpServer::HttpServer(SocketAddress address, std::shared_ptr<State> state) : address_(address), state_(std::move(state)) {}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->has_ended = true;
  }
  asio::post(state_->io, [state = state_.get()] { state->close_all(); });
  state_->thread.join();
  state_->makers.join();
  state_->io.restart();
  state_->io.poll();  // Answers that came last: their clients are gone.
}

void HttpServer::drain() { state_->is_draining = true; }

bool HttpServer::await_quiet(std::chrono::milliseconds patience) const {
  std::unique_lock lock(state_->mutex);
  return state_->quiet.wait_for(lock, patience, [this] { return state_->num_open_questions == 0; });
}

}  // namespace darkroom
