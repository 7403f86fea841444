#include "http_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kMaxUnreadBytes = 16'000'000;  // Taken after a refusal, so that closing does not reset the reply.
constexpr std::chrono::seconds kMaxLinger{2};
constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";

HttpReply no_body_room() {
  HttpReply reply = words(503, "the server reads as many bytes of requests as it takes on; try again later");
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace

void fill_head(http::response_header<>& head, int status, std::string_view type, const HttpHeaders& headers) {
  head.result(static_cast<unsigned>(status));
  head.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  head.set(http::field::cache_control, "no-store");
  head.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : headers) {
    head.set(name, value);
  }
}

HttpServer::State::Session::Session(State& state, uint64_t number, Tcp::socket socket)
    : state_(state),
      number_(number),
      stream_(std::move(socket), state.tls),
      limit_(state.io),
      idle_(state.io),
      buffer_(state.options.max_header_bytes + kReadAhead) {}

// Beast's own limits are for streams with one read and one write at a time; here the watch for the client reads beside them.
void HttpServer::State::Session::limit(std::chrono::milliseconds patience, std::function<void(Session&)> end) {
  limit_.expires_after(patience);
  limit_.async_wait([self = shared_from_this(), round = ++limit_round_, end = std::move(end)](const ErrorCode& error) {
    if (!error && round == self->limit_round_) {
      end(*self);
    }
  });
}

void HttpServer::State::Session::expires_after(std::chrono::milliseconds patience) {
  limit(patience, [](Session& self) { self.close(); });
}

void HttpServer::State::Session::refused_after(std::chrono::milliseconds patience) {
  limit(patience, [](Session& self) { self.time_out(); });
}

// What is being read fails, and is answered (ends_with). A read that has got bytes just now goes on and cannot be told; it gets no answer.
void HttpServer::State::Session::time_out() {
  has_timed_out_ = true;
  expires_after(kMaxLinger);
  stream_.socket().cancel();
}

void HttpServer::State::Session::expires_never() {
  ++limit_round_;
  limit_.cancel();
}

void HttpServer::State::Session::start() {
  if (!stream_.has_tls()) {
    read();
    return;
  }
  expires_after(state_.options.head_timeout);
  stream_.async_handshake(
      [self = shared_from_this()](const ErrorCode& error) { error || self->is_closed_ ? self->close() : self->read(); });
}

void HttpServer::State::Session::reply(uint64_t question, HttpReply reply) {
  if (!is_waiting_for_answer() || question != question_ || streamed_.has_value()) {
    return;
  }
  end_watch();
  write(std::move(reply), keeps_alive_ && !state_.is_draining);
}

void HttpServer::State::Session::reply(uint64_t question, StreamedReply reply) {
  if (is_waiting_for_answer() && question == question_ && !streamed_.has_value()) {
    begin_stream(std::move(reply));
  }
}

void HttpServer::State::Session::close() {
  if (is_closed_) {
    return;
  }
  is_closed_ = true;
  if (gone_.has_value()) {
    std::stop_source gone = *gone_;
    gone_.reset();
    gone.request_stop();
  }
  expires_never();
  idle_.cancel();
  streamed_.reset();
  held_.reset();
  end_question();
  ErrorCode ignored;
  stream_.socket().close(ignored);
  state_.sessions.erase(number_);
}

void HttpServer::State::Session::end_watch() {
  gone_.reset();
  stream_.socket().cancel();  // The watch for a client that leaves.
}

void HttpServer::State::Session::begin_question() {
  if (!std::exchange(has_question_, true)) {
    state_.question_begins();
  }
}

void HttpServer::State::Session::end_question() {
  if (std::exchange(has_question_, false)) {
    state_.question_ends();
  }
}

// Whether there is nothing to go on with: the connection is over, or a refusal is on its way.
bool HttpServer::State::Session::ends_with(const ErrorCode& error) {
  if (is_closed_) {
    return true;
  }
  if (error) {
    const auto refusal = has_timed_out_ ? words(408, "the request did not arrive in time") : refuse_unreadable(error);
    refusal.has_value() ? write(*refusal, false) : close();
    return true;
  }
  return false;
}

void HttpServer::State::Session::read() {
  if (is_closed_) {
    return;
  }
  if (is_watching_) {
    reads_after_watch_ = true;
    return;
  }
  if (buffer_.size() > 0) {
    read_head();
    return;
  }
  expires_after(goes_on_ ? state_.options.keep_alive_timeout : state_.options.head_timeout);
  stream_.async_read_some(buffer_.prepare(kWatchBytes), [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
    self->buffer_.commit(num_bytes);
    error || self->is_closed_ ? self->close() : self->read_head();
  });
}

void HttpServer::State::Session::read_head() {
  refused_after(state_.options.head_timeout);
  has_timed_out_ = false;
  parser_.emplace();
  set_bounds(*parser_, state_.options);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_head(error); });
}

void HttpServer::State::Session::have_head(const ErrorCode& error) {
  if (ends_with(error)) {
    return;
  }
  const StringRequest& request = parser_->get();
  if (auto refusal = refuse_ambiguous(request)) {
    write(*std::move(refusal), false);
    return;
  }
  keeps_alive_ = request.keep_alive();
  version_ = request.version();
  is_head_ = request.method() == http::verb::head;
  asked_ = head_of(request);
  answer_head();
}

void HttpServer::State::Session::answer_head() {
  if (auto refusal = refusal_of_service()) {
    write(*std::move(refusal), keeps_alive_ && parser_->is_done() && !state_.is_draining);
  } else if (auto no_body = refuse_body()) {
    write(*std::move(no_body), false);
  } else if (parser_->is_done()) {
    ask();
  } else {
    begin_body();
  }
}

void HttpServer::State::Session::begin_body() {
  is_reading_body_ = true;
  const StringRequest& request = parser_->get();
  if (request.version() == 11 && beast::iequals(request[http::field::expect], "100-continue")) {
    expires_after(state_.options.reply_timeout);
    asio::async_write(stream_, asio::buffer(kGoOn),
                      [self = shared_from_this()](const ErrorCode& failure, size_t) { failure ? self->close() : self->read_body(); });
  } else {
    read_body();
  }
}

std::optional<HttpReply> HttpServer::State::Session::refusal_of_service() {
  try {
    return state_.service.refuse(asked_);
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: a request's head could not be handled: {}", failure.what());
    return words(500, "the request could not be handled; the server's log says why");
  }
}

// Sets the bound of this request's body, which the whole server's has let pass. Room is taken as it comes: a length that is only declared
// keeps nobody out.
std::optional<HttpReply> HttpServer::State::Session::refuse_body() {
  const size_t bound = std::min(state_.options.max_body_bytes, state_.service.max_body_bytes(asked_));
  const auto length = parser_->content_length();
  parser_->body_limit(bound);
  if (length.has_value() && *length > bound) {
    return words(413, "the request's body is too large");
  }
  if (parser_->is_done()) {
    return std::nullopt;
  }
  if (!state_.has_body_room(length.value_or(1))) {
    return no_body_room();
  }
  body_room_ = std::make_shared<BodyRoom>(state_.body_bytes);
  asked_.held = body_room_;
  return std::nullopt;
}

void HttpServer::State::Session::read_body() {
  if (is_closed_) {
    return;
  }
  has_timed_out_ = false;
  parser_->eager(true);
  await_body();
  read_some_body();
}

void HttpServer::State::Session::read_some_body() {
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_some_body(error); });
}

void HttpServer::State::Session::have_some_body(const ErrorCode& error) {
  const bool has_room = take_body_room();
  const bool goes_on = !error && !is_closed_ && has_room && !parser_->is_done();
  if (goes_on) {
    read_some_body();
    return;
  }
  is_reading_body_ = false;
  if (ends_with(error)) {
    return;
  }
  if (has_room) {
    ask();
  } else {
    parser_.reset();  // With what has come of the body.
    write(no_body_room(), false);
  }
}

// Of what has come.
bool HttpServer::State::Session::take_body_room() {
  const auto more = static_cast<int64_t>(parser_->get().body().size()) - body_room_->num_bytes;
  if (!state_.has_body_room(static_cast<uint64_t>(more))) {
    return false;
  }
  body_room_->all->fetch_add(more);
  body_room_->num_bytes += more;
  return true;
}

// Lets the body go on as long as enough of it comes.
void HttpServer::State::Session::await_body() {
  limit(state_.options.body_period, [num_before = parser_->get().body().size()](Session& self) {
    const size_t num_come = self.parser_->get().body().size() - num_before;
    num_come < self.state_.options.min_body_bytes ? self.time_out() : self.await_body();
  });
}

void HttpServer::State::Session::ask() {
  begin_question();
  body_room_.reset();  // It is the question's.
  asked_.body = std::move(parser_->get().body());
  expires_never();
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
void HttpServer::State::Session::watch_client() {
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) {
    return;
  }
  is_watching_ = true;
  stream_.async_read_some(buffer_.prepare(std::min(room, kWatchBytes)),
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

void HttpServer::State::Session::write(HttpReply reply, bool keeps_alive) {
  begin_question();
  write_number_ = state_.num_writes++;
  asked_ = {};  // Of a request that is refused: the room for its body is free.
  body_room_.reset();
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
  expires_after(state_.options.reply_timeout);
  http::async_write(stream_, response_, [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_written(error); });
}

void HttpServer::State::Session::have_written(const ErrorCode& error) {
  expires_never();
  response_.body() = std::string();
  held_.reset();
  end_question();
  if (error || is_closed_) {
    close();
  } else if (goes_on_) {
    read();
  } else if (stream_.has_tls()) {
    expires_after(kMaxLinger);
    stream_.async_farewell([self = shared_from_this()](const ErrorCode&) { self->end_connection(); });
  } else {
    end_connection();
  }
}

void HttpServer::State::Session::end_connection() {
  if (is_closed_) {
    return;
  }
  ErrorCode ignored;
  stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
  expires_after(kMaxLinger);
  linger();
}

void HttpServer::State::Session::linger() {
  stream_.socket().async_read_some(asio::buffer(unread_), [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
    self->num_unread_ += num_bytes;
    error || self->num_unread_ > kMaxUnreadBytes ? self->close() : self->linger();
  });
}

}  // namespace darkroom
