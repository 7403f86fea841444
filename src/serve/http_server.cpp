#include "darkroom/serve/http_server.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "darkroom/core/log.h"
#include "darkroom/web/listen_failure.h"
#include "http_session.h"
#include "tls_context.h"

namespace darkroom {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{20};

HttpReply make_safely(const ReplyMaker& make) {
  try {
    return make();
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: a reply could not be made: {}", failure.what());
    return words(500, "the reply could not be made; the server's log says why");
  }
}

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
  if (std::min({head_timeout, keep_alive_timeout, body_period, reply_timeout, idle_period}) < std::chrono::milliseconds(1)) {
    return Status::invalid_argument(
        "time-outs of the server must be at least 1 ms, got (head, keep-alive, body, reply, idle, in ms):", head_timeout.count(),
        keep_alive_timeout.count(), body_period.count(), reply_timeout.count(), idle_period.count());
  }
  if (min_body_bytes < 1) {
    return Status::invalid_argument("min_body_bytes of the server must be at least 1:", min_body_bytes);
  }
  if (max_connections < 1 || max_connections > 100'000) {
    return Status::invalid_argument("max_connections of the server must be 1 to 100,000:", max_connections);
  }
  if (max_bodies_bytes < static_cast<int64_t>(max_body_bytes)) {
    return Status::invalid_argument(
        "the bytes of all bodies together must be at least those of the largest one, got (all, one):", max_bodies_bytes, max_body_bytes);
  }
  if (tls.certificate.empty() != tls.key.empty()) {
    return Status::invalid_argument("--tls-cert and --tls-key go together, got (certificate, key):", tls.certificate, tls.key);
  }
  return Status::ok();
}

void HttpServer::State::question_begins() {
  const std::lock_guard lock(mutex);
  ++num_open_questions;
}

void HttpServer::State::question_ends() {
  const std::lock_guard lock(mutex);
  --num_open_questions;
  quiet.notify_all();
}

bool HttpServer::State::has_body_room(uint64_t num_bytes) const {
  return body_bytes->load() + static_cast<int64_t>(num_bytes) <= options.max_bodies_bytes;
}

void HttpServer::State::await_hangup() {
  hangups.async_wait([this](const ErrorCode& error, int) {
    if (error || is_closing) {
      return;
    }
    auto renewed = open_tls(options.tls);
    if (renewed.is_ok()) {
      tls = *std::move(renewed);
      log_info("serve: the certificate was read again");
    } else {
      log_error("serve: the certificate stays as it was: {}", renewed.status().message());
    }
    await_hangup();
  });
}

bool HttpServer::State::end_idle() {
  const auto is_free = [](const auto& entry) { return !entry.second->has_question(); };
  const auto sends_nothing = [&](const auto& entry) { return is_free(entry) && !entry.second->is_reading_body(); };
  auto idle = std::find_if(sessions.begin(), sessions.end(), sends_nothing);
  if (idle == sessions.end()) {
    idle = std::find_if(sessions.begin(), sessions.end(), is_free);
  }
  if (idle == sessions.end()) {  // Who takes no reply must not keep its place as one does that waits for its reply.
    for (auto one = sessions.begin(); one != sessions.end(); ++one) {
      const bool is_slower = idle == sessions.end() || one->second->write_number() < idle->second->write_number();
      idle = one->second->is_writing_reply() && is_slower ? one : idle;
    }
  }
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
  session->start();
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
  hangups.cancel(ignored);
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
    if (!options.tls.is_empty()) {
      state->hangups.add(SIGHUP);  // First: one that comes while the files are read may be of newer ones.
      DARKROOM_ASSIGN_OR_RETURN(state->tls, open_tls(options.tls));
      state->await_hangup();
    }
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
