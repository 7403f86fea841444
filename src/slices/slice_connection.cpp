#include "slice_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "darkroom/core/hmac_sha256.h"
#include "darkroom/core/log.h"
#include "handshake.h"

namespace darkroom {

void RefusalLog::note(const Status& reason) {
  constexpr int kTold = 10;
  const Clock::time_point now = Clock::now();
  if (num_told_ >= kTold && now < next_) {
    ++num_untold_;
    return;
  }
  const std::string more = num_told_ + 1 == kTold ? "; from now on such connections are told of once a minute"
                           : num_untold_ > 0      ? fmt::format("; {} more since the last one that was told of", num_untold_)
                                                  : "";
  log_warning("a connection is refused: {}{}", reason.message(), more);
  num_told_ = std::min(num_told_ + 1, kTold);
  num_untold_ = 0;
  next_ = now + std::chrono::minutes(1);
}

SliceConnection::SliceConnection(uint64_t number, int descriptor, const SliceServerOptions& options, SliceWorkers& workers,
                                 RefusalLog& refusals, std::function<bool()> has_room)
    : number_(number),
      descriptor_(descriptor),
      options_(options),
      workers_(workers),
      refusals_(refusals),
      has_room_(std::move(has_room)),
      nonce_(draw_nonce()),
      deadline_(Clock::now() + options.handshake_timeout) {
  writer_.add(encode_frame(FrameType::kChallenge, nlohmann::json({{"protocol", kSliceProtocol}, {"nonce", nonce_}}).dump()));
}

SliceConnection::~SliceConnection() {
  workers_.forget(number_);
  ::close(descriptor_);
}

SliceConnection::Clock::time_point SliceConnection::deadline() const {
  return phase_ == Phase::kServing && writer_.is_empty() ? Clock::time_point::max() : deadline_;
}

SliceConnection::Clock::time_point SliceConnection::next_look() const {
  return in_flight_ > 0 && phase_ == Phase::kServing ? std::min(deadline(), next_word_) : deadline();
}

void SliceConnection::say_working() {
  const Clock::time_point now = Clock::now();
  if (phase_ != Phase::kServing || in_flight_ == 0 || now < next_word_) {
    return;
  }
  next_word_ = now + options_.word_interval;
  if (writer_.is_empty() && now - workers_.last_progress() < options_.work_timeout) {
    deadline_ = now + options_.send_timeout;
    writer_.add(encode_frame(FrameType::kWorking, ""));
  }
}

// Closed at once, the connection would be reset by what came meanwhile, and the refusal be lost.
bool SliceConnection::drop_unread() {
  char buffer[kMaxWordsBytes];
  const ssize_t num_bytes = recv(descriptor_, buffer, sizeof buffer, 0);
  if (num_bytes <= 0) {
    return num_bytes < 0 && (errno == EAGAIN || errno == EINTR);
  }
  num_dropped_ += static_cast<size_t>(num_bytes);
  return num_dropped_ < kMaxWordsBytes;
}

bool SliceConnection::read() {
  if (phase_ == Phase::kEnding) {
    return drop_unread();
  }
  for (;;) {
    if (!wants_to_read()) {
      return true;
    }
    const auto took = reader_.read(descriptor_);
    if (took.status().code() == StatusCode::kUnavailable) {
      return false;  // A trainer that went away.
    }
    const Status taken = took.is_ok() && *took == FrameReader::Took::kFrame ? take(reader_.take()) : took.status();
    if (!taken.is_ok()) {
      if (taken.code() != StatusCode::kUnavailable) {  // One too many asks again and again.
        refusals_.note(taken);
      }
      refuse(taken);
      return write();
    }
    if (*took != FrameReader::Took::kFrame) {
      return *took == FrameReader::Took::kNothingYet;
    }
  }
}

bool SliceConnection::write() {
  const Result<bool> wrote = writer_.write(descriptor_);
  if (!wrote.is_ok()) {
    return false;
  }
  if (*wrote && phase_ == Phase::kServing) {
    deadline_ = Clock::now() + options_.send_timeout;
  }
  if (phase_ == Phase::kEnding && writer_.is_empty()) {
    shutdown(descriptor_, SHUT_WR);  // The other side closes once it has read why.
  }
  return true;
}

void SliceConnection::send_answer(std::string frame) {
  --in_flight_;
  next_word_ = Clock::now() + options_.word_interval;
  if (writer_.is_empty()) {
    deadline_ = Clock::now() + options_.send_timeout;
  }
  writer_.add(std::move(frame));
}

void SliceConnection::refuse(const Status& reason) {
  phase_ = Phase::kEnding;
  deadline_ = Clock::now() + options_.handshake_timeout;
  workers_.forget(number_);
  writer_.add(encode_frame(FrameType::kRefusal, failure_words(reason)));
}

void SliceConnection::end() {
  shutdown(descriptor_, SHUT_WR);
  static_cast<void>(drop_unread());
}

Status SliceConnection::take(const Frame& frame) {
  if (phase_ == Phase::kGreeting && frame.type == FrameType::kHello) {
    return take_hello(frame);
  }
  if (phase_ == Phase::kServing && frame.type == FrameType::kRequest) {
    return take_request(frame);
  }
  return Status::corrupt_data(fmt::format("{} sent what is not its turn to send (type of the frame):", options_.names.an_asker()),
                              static_cast<int>(frame.type));
}

// The token comes first: strangers learn nothing of the dataset.
Status SliceConnection::check_hello(const nlohmann::json& hello) const {
  for (const char* name : {"nonce", "proof"}) {
    if (!hello.contains(name) || !hello[name].is_string()) {
      return Status::corrupt_data(fmt::format("the hello of {} lacks a text:", options_.names.an_asker()), name);
    }
  }
  if (!equal_in_constant_time(hello["proof"].get_ref<const std::string&>(), proof_of(options_.token, "trainer", nonce_))) {
    return Status::failed_precondition(
        fmt::format("{} and {} do not have the same token; set the same DARKROOM_ENCODER_TOKEN for both ({} on loopback without one takes "
                    "{}s without one)",
                    options_.names.peer, options_.names.asker, options_.names.a_peer(), options_.names.asker));
  }
  return compare_facts(options_.facts, hello.value("facts", nlohmann::json()), options_.names);
}

Status SliceConnection::take_hello(const Frame& frame) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json hello, parse_words(frame));
  DARKROOM_RETURN_IF_ERROR(check_hello(hello));
  if (!has_room_()) {
    return Status::unavailable(fmt::format("the {} serves as many {}s as it may, connections:", options_.names.peer, options_.names.asker),
                               options_.max_connections);
  }
  const nlohmann::json welcome = {{"proof", proof_of(options_.token, "encoder", hello["nonce"].get_ref<const std::string&>())},
                                  {"place", options_.place},
                                  {"processor", options_.processor},
                                  {"workers", options_.num_workers},
                                  {"in_flight", options_.max_in_flight},
                                  {"max_rows", options_.max_rows},
                                  {"rows_together", options_.rows_together}};
  writer_.add(encode_frame(FrameType::kWelcome, welcome.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  phase_ = Phase::kServing;
  deadline_ = Clock::now() + options_.send_timeout;
  reader_.set_max_body_bytes(static_cast<int64_t>(kNumberBytes) * (options_.max_rows + 1));
  return {};
}

Status SliceConnection::take_request(const Frame& frame) {
  const size_t num_numbers = frame.body.size() / kNumberBytes;
  if (num_numbers < 2 || frame.body.size() % kNumberBytes != 0) {
    return Status::corrupt_data("a request is no slice and its rows (bytes):", frame.body.size());
  }
  SliceJob job{.connection = number_, .slice = number_at(frame.body, 0)};
  for (size_t i = 1; i < num_numbers; ++i) {
    const uint64_t row = number_at(frame.body, i * kNumberBytes);
    if (row >= static_cast<uint64_t>(options_.num_rows)) {
      return Status::corrupt_data("a request names a row that the dataset does not have (row, rows):", row, options_.num_rows);
    }
    job.rows.push_back(static_cast<int64_t>(row));
  }
  next_word_ = in_flight_++ == 0 ? Clock::now() + options_.word_interval : next_word_;
  workers_.add(std::move(job));
  return {};
}

}  // namespace darkroom
