#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "client_stream.h"
#include "darkroom/serve/http_server.h"
#include "request_head.h"

namespace darkroom {

/// What becomes of asking a stream: a piece, none yet, that it may have one by now, or a failure.
struct StreamNews {
  std::optional<ReplyStream::Piece> piece = {};
  bool is_wake = false;
  bool has_failed = false;
};

/// Room among the bodies of all connections that one of them takes as it comes, let go with it. The I/O thread takes, any thread lets go.
struct BodyRoom {
  explicit BodyRoom(std::shared_ptr<std::atomic<int64_t>> of_all) : all(std::move(of_all)) {}
  ~BodyRoom() { all->fetch_sub(num_bytes); }
  BodyRoom(const BodyRoom&) = delete;
  BodyRoom& operator=(const BodyRoom&) = delete;

  const std::shared_ptr<std::atomic<int64_t>> all;
  int64_t num_bytes = 0;
};

/// Everything that the server's threads share. What is not marked belongs to the I/O thread.
struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  class Session;
  using Tcp = boost::asio::ip::tcp;
  static constexpr size_t kNumMakers = 2;

  State(HttpService& service_asked, const HttpServerOptions& options_asked) : service(service_asked), options(options_asked) {}

  void accept();
  void close_all();
  void accept_one(Tcp::socket socket);
  /// Ends the oldest connection without an open question, one that sends a body only where there is no other, else the one that has been
  /// taking a whole reply for longest. False: there is none.
  bool end_idle();
  /// Of any thread: has a reply made and sent.
  void answer(uint64_t session, uint64_t question, const std::stop_token& gone, AnyReply reply);
  template <typename Reply>
  void send(uint64_t session, uint64_t question, Reply reply);
  /// Has a stream's next piece made.
  void ask_stream(uint64_t session, uint64_t question, const std::shared_ptr<ReplyStream>& stream, const std::stop_token& gone);
  /// Whether there is room for so many more bytes of bodies.
  bool has_body_room(uint64_t num_bytes) const;
  /// Waits for SIGHUP, which has the files of TLS read again.
  void await_hangup();
  void run();
  void question_begins();
  void question_ends();

  HttpService& service;
  const HttpServerOptions options;
  boost::asio::io_context io{1};
  boost::asio::thread_pool makers{kNumMakers};
  Tcp::acceptor acceptor{io};
  boost::asio::steady_timer pause{io};
  boost::asio::signal_set hangups{io};
  std::shared_ptr<boost::asio::ssl::context> tls;         // Of connections that come; null: they are plain.
  std::map<uint64_t, std::shared_ptr<Session>> sessions;  // In the order of arrival.
  uint64_t next_session = 0;
  uint64_t num_writes = 0;  // Whole replies that were begun to be sent.
  bool is_closing = false;
  std::atomic<bool> is_draining = false;
  // Of bodies that are read or wait to be. Shared with these, which any thread may let go, also after the server's end.
  const std::shared_ptr<std::atomic<int64_t>> body_bytes = std::make_shared<std::atomic<int64_t>>(0);
  mutable std::mutex mutex;
  mutable std::condition_variable quiet;
  // Guarded by mutex.
  int num_open_questions = 0;
  bool has_ended = false;
  std::jthread thread;
};

/// One connection: requests, and their replies one after the other. Lives in State::sessions and in the handlers of the I/O thread, and
/// only there.
class HttpServer::State::Session : public std::enable_shared_from_this<HttpServer::State::Session> {
 public:
  using ErrorCode = boost::system::error_code;

  Session(State& state, uint64_t number, Tcp::socket socket);
  ~Session() { end_question(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool has_question() const { return has_question_; }
  bool is_reading_body() const { return is_reading_body_; }
  /// Whether a whole reply is being sent, and which one of all of them.
  bool is_writing_reply() const { return has_question_ && !is_waiting_for_answer() && !streamed_.has_value(); }
  uint64_t write_number() const { return write_number_; }
  /// Begins with the first request, after TLS's handshake.
  void start();
  void reply(uint64_t question, HttpReply reply);
  void reply(uint64_t question, StreamedReply reply);
  /// What became of asking a stream.
  void reply(uint64_t question, StreamNews news);
  void close();

 private:
  static constexpr size_t kWatchBytes = 4096;  // Of the next request, which a client may send before it has its answer: read at a time.
  enum class Flow { kAsking, kWaiting, kWriting };  // Of a streamed reply; one of them at any time.

  void limit(std::chrono::milliseconds patience, std::function<void(Session&)> end);
  void expires_after(std::chrono::milliseconds patience);
  void refused_after(std::chrono::milliseconds patience);
  void expires_never();
  void time_out();
  bool is_waiting_for_answer() const { return gone_.has_value(); }
  void end_watch();
  void begin_question();
  void end_question();
  bool ends_with(const ErrorCode& error);

  void read();
  void read_head();
  void have_head(const ErrorCode& error);
  void answer_head();
  std::optional<HttpReply> refusal_of_service();
  std::optional<HttpReply> refuse_body();
  void begin_body();
  void read_body();
  void read_some_body();
  void have_some_body(const ErrorCode& error);
  bool take_body_room();
  void await_body();
  void ask();
  void watch_client();
  void write(HttpReply reply, bool keeps_alive);
  void have_written(const ErrorCode& error);
  void end_connection();
  void linger();

  // http_session_stream.cpp.
  void begin_stream(StreamedReply reply);
  void ask_stream();
  void go_on_if_waiting();
  void write_piece(ReplyStream::Piece piece);
  void have_written_piece(const ErrorCode& error);
  void end_stream();

  State& state_;
  const uint64_t number_;
  ClientStream stream_;
  boost::asio::steady_timer limit_;  // Of what is under way with the client.
  boost::asio::steady_timer idle_;
  boost::beast::flat_buffer buffer_;
  std::optional<RequestParser> parser_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
  std::shared_ptr<const void> held_;       // Of the reply.
  HttpQuestion asked_;                     // Until it is asked.
  std::shared_ptr<BodyRoom> body_room_;    // Of asked_.
  std::optional<std::stop_source> gone_;   // While the client waits for its answer, or a streamed one's end.
  std::optional<StreamedReply> streamed_;  // While it is sent.
  std::optional<boost::beast::http::response<boost::beast::http::empty_body>> stream_head_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::empty_body>> head_writer_;
  ReplyStream::Piece piece_;  // That is written.
  Flow flow_ = Flow::kAsking;
  bool is_woken_ = false;  // Since the stream was asked last.
  bool is_chunked_ = false;
  bool goes_on_ = false;  // With the next request, after this reply.
  unsigned version_ = 11;
  std::array<char, kWatchBytes> unread_;
  bool is_reading_body_ = false;
  bool has_timed_out_ = false;  // What is being read: the client gets 408.
  bool has_question_ = false;   // That State counts: from a request that is there to its reply's end.
  bool is_watching_ = false;    // Reads into buffer_.
  bool reads_after_watch_ = false;
  bool keeps_alive_ = false;
  bool is_head_ = false;
  bool is_closed_ = false;
  size_t num_unread_ = 0;
  uint64_t write_number_ = 0;
  uint64_t question_ = 0;     // How many there were.
  uint64_t limit_round_ = 0;  // A limit that was set anew does not end anything, though its handler may be on its way.
};

/// Sets what every reply's head has.
void fill_head(boost::beast::http::response_header<>& head, int status, std::string_view type, const HttpHeaders& headers);

}  // namespace darkroom
