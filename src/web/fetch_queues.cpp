#include "fetch_queues.h"

#include <utility>

namespace darkroom {

FetchQueues::Entry FetchQueues::submit(ReadRequest request) {
  std::unique_lock lock(mutex_);
  may_submit_.wait(lock, [&] { return is_cancelled_ || is_closed_ || num_inside_ < max_inside_; });
  if (is_cancelled_ || is_closed_) {
    return Entry::kRefused;
  }
  const bool is_first = requests_.empty();
  requests_.push_back(std::move(request));
  ++num_inside_;
  return is_first ? Entry::kFirst : Entry::kQueued;
}

std::optional<UntakenReply> FetchQueues::take_reply() {
  std::unique_lock lock(mutex_);
  may_take_.wait(lock, [&] { return is_cancelled_ || !replies_.empty() || (is_closed_ && num_inside_ == 0); });
  if (is_cancelled_ || replies_.empty()) {
    return std::nullopt;
  }
  UntakenReply taken = std::move(replies_.front());
  replies_.pop_front();
  --num_inside_;
  tell_of_demand();
  if (is_closed_ && num_inside_ == 0) {
    may_take_.notify_all();
  }
  lock.unlock();
  may_submit_.notify_one();
  return taken;
}

bool FetchQueues::wait_for_demand(InHand limit) {
  std::unique_lock lock(mutex_);
  ++num_awaiting_;
  demand_.wait(lock, [&] {
    const int64_t num_wanting = static_cast<int64_t>(requests_.size() + replies_.size()) + num_just_taken_ + in_hand_.wanting;
    return is_cancelled_ || (num_wanting < limit.wanting && in_hand_.beyond_places < limit.beyond_places);
  });
  --num_awaiting_;
  return !is_cancelled_;
}

// REQUIRES: mutex_ is held.
void FetchQueues::tell_of_demand() {
  if (num_awaiting_ > 0) {
    demand_.notify_all();
  }
}

void FetchQueues::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  may_submit_.notify_all();
  may_take_.notify_all();
}

void FetchQueues::cancel() {
  const std::lock_guard lock(mutex_);
  is_cancelled_ = true;
  may_submit_.notify_all();
  may_take_.notify_all();
  demand_.notify_all();
}

Status FetchQueues::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FetchQueues::take_requests(std::vector<ReadRequest>& requests) {
  requests.clear();
  const std::lock_guard lock(mutex_);
  requests.swap(requests_);
  num_just_taken_ += static_cast<int>(requests.size());
}

void FetchQueues::publish(std::vector<UntakenReply>& replies, InHand in_hand) {
  {
    const std::lock_guard lock(mutex_);
    num_just_taken_ = 0;
    in_hand_ = in_hand;
    tell_of_demand();
    for (UntakenReply& reply : replies) {
      replies_.push_back(std::move(reply));
    }
  }
  if (replies.size() == 1) {
    may_take_.notify_one();
  } else if (!replies.empty()) {
    may_take_.notify_all();
  }
  replies.clear();
}

void FetchQueues::note_failure(Status failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.is_ok()) {
    failure_ = std::move(failure);
  }
}

}  // namespace darkroom
