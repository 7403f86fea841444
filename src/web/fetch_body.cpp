#include "fetch_body.h"

#include <algorithm>

#include "fetch_outcome.h"

namespace darkroom {
namespace {

constexpr int64_t kFirstReservedBytes = 1 << 20;  // A false length may not make us reserve more.
constexpr int64_t kSignOfLife = 1024;

}  // namespace

void FetchBody::expect(int64_t num_bytes) { ask_for(std::min(num_bytes, rules_.max_body_bytes)); }

void FetchBody::ask_for(int64_t num_bytes) {
  const int64_t more = num_bytes - granted_;
  granted_ = num_bytes;
  is_pending_ = true;
  const auto granted = [this] {
    is_pending_ = false;
    rules_.inbox->post({attempt_, BytesGranted()});
  };
  if (rules_.memory.ask(order_, static_cast<size_t>(more), granted) == BodyMemory::Answer::kGranted) {
    is_pending_ = false;
  }
}

HttpSink::Want FetchBody::headers(const HttpHead& head) {
  num_states_.fetch_add(1, std::memory_order_relaxed);
  if (!has_wanted_body(head.status)) {
    return Want::kDrop;
  }
  head.for_each([&](std::string_view name, std::string_view value) {
    if (!stopped_) {
      stopped_ = header_opt_out(name, value, rules_.respect, rules_.agent);
    }
  });
  if (stopped_) {
    return Want::kStop;
  }
  content_length_ = std::min(head.content_length.value_or(-1), rules_.max_body_bytes);  // More is refused, or cut.
  return Want::kBody;
}

// To ask for when so many are needed: a length that is announced may never come.
int64_t FetchBody::next_size(int64_t num_bytes) const {
  const int64_t wanted = content_length_ > 0 ? std::min(content_length_, std::max(kFirstReservedBytes, 4 * num_bytes)) : 2 * granted_;
  return std::clamp(wanted, num_bytes, std::max(num_bytes, rules_.max_body_bytes));
}

void FetchBody::return_unused() {
  const std::lock_guard lock(mutex_);
  if (is_paused_ || granted_ <= static_cast<int64_t>(body_.size())) {
    return;
  }
  rules_.memory.withdraw(order_);  // Before the first bytes it may wait without being paused.
  rules_.memory.set_held(order_, body_.size());
  granted_ = static_cast<int64_t>(body_.size());
  is_pending_ = false;
}

bool FetchBody::has_room_for(int64_t num_bytes) {
  if (is_pending_.load()) {
    return false;
  }
  if (num_bytes > granted_) {
    ask_for(next_size(num_bytes));
  }
  return !is_pending_.load();
}

HttpSink::Take FetchBody::bytes(std::span<const std::byte> piece) {
  const std::lock_guard lock(mutex_);
  if (paused_since_) {
    paused_ += std::chrono::steady_clock::now() - *paused_since_;
    paused_since_.reset();
  }
  is_cut_ = rules_.may_be_short && static_cast<int64_t>(body_.size() + piece.size()) > rules_.max_body_bytes;
  if (is_cut_) {
    piece = piece.first(static_cast<size_t>(rules_.max_body_bytes) - body_.size());
  }
  const auto new_size = static_cast<int64_t>(body_.size() + piece.size());
  if (!has_room_for(new_size)) {
    paused_since_ = std::chrono::steady_clock::now();
    is_paused_ = true;
    return Take::kPause;
  }
  is_paused_ = false;
  append(piece);
  return is_cut_ ? Take::kStop : Take::kTaken;
}

void FetchBody::append(std::span<const std::byte> piece) {
  const auto new_size = static_cast<int64_t>(body_.size() + piece.size());
  if (static_cast<size_t>(new_size) > body_.capacity() && content_length_ >= new_size) {
    body_.reserve(static_cast<size_t>(std::min(content_length_, granted_)));
  }
  body_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  num_bytes_.store(new_size, std::memory_order_relaxed);
}

bool FetchBody::take_progress() {
  const int64_t num_bytes = num_bytes_.load(std::memory_order_relaxed);
  const int num_states = num_states_.load(std::memory_order_relaxed);
  if (num_bytes - bytes_seen_ < kSignOfLife && num_states == states_seen_) {
    return false;
  }
  bytes_seen_ = num_bytes;
  states_seen_ = num_states;
  return true;
}

std::chrono::nanoseconds FetchBody::paused() const {
  return paused_since_ ? paused_ + (std::chrono::steady_clock::now() - *paused_since_) : paused_;
}

}  // namespace darkroom
