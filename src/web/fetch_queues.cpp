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
  if (is_closed_ && num_inside_ == 0) {
    may_take_.notify_all();
  }
  lock.unlock();
  may_submit_.notify_one();
  return taken;
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
}

Status FetchQueues::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FetchQueues::take_requests(std::vector<ReadRequest>& requests) {
  requests.clear();
  const std::lock_guard lock(mutex_);
  requests.swap(requests_);
}

void FetchQueues::publish(std::vector<UntakenReply>& replies) {
  if (replies.empty()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    for (UntakenReply& reply : replies) {
      replies_.push_back(std::move(reply));
    }
  }
  if (replies.size() == 1) {
    may_take_.notify_one();
  } else {
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
