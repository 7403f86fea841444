#include "http_session.h"

#include <utility>

#include <boost/asio/write.hpp>

// Replies whose body comes about while it is sent.
namespace darkroom {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

}  // namespace

void HttpServer::State::Session::reply(uint64_t question, StreamNews news) {
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

// The client is watched up to the stream's end, as while it waited.
void HttpServer::State::Session::begin_stream(StreamedReply reply) {
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
  expires_after(state_.options.reply_timeout);
  http::async_write_header(stream_, *head_writer_, [self = shared_from_this()](const ErrorCode& error, size_t) {
    self->is_head_ && !error ? self->end_stream() : self->have_written_piece(error);
  });
}

void HttpServer::State::Session::ask_stream() {
  flow_ = Flow::kAsking;
  is_woken_ = false;
  state_.ask_stream(number_, question_, streamed_->stream, gone_->get_token());
}

void HttpServer::State::Session::go_on_if_waiting() {
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

void HttpServer::State::Session::write_piece(ReplyStream::Piece piece) {
  flow_ = Flow::kWriting;
  piece_ = std::move(piece);
  if (piece_.bytes.empty()) {  // As a chunk that would be the end.
    have_written_piece({});
    return;
  }
  expires_after(state_.options.reply_timeout);
  const auto written = [self = shared_from_this()](const ErrorCode& error, size_t) { self->have_written_piece(error); };
  is_chunked_ ? asio::async_write(stream_, http::make_chunk(asio::buffer(piece_.bytes)), written)
              : asio::async_write(stream_, asio::buffer(piece_.bytes), written);
}

void HttpServer::State::Session::have_written_piece(const ErrorCode& error) {
  expires_never();
  if (error || is_closed_) {
    close();
  } else if (!piece_.is_last) {
    piece_ = {};
    ask_stream();
  } else if (is_chunked_) {
    expires_after(state_.options.reply_timeout);
    asio::async_write(stream_, http::make_chunk_last(),
                      [self = shared_from_this()](const ErrorCode& failure, size_t) { failure ? self->close() : self->end_stream(); });
  } else {
    end_stream();
  }
}

void HttpServer::State::Session::end_stream() {
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

}  // namespace darkroom
