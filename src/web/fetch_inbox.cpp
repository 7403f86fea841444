#include "fetch_inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

Result<std::shared_ptr<FetchInbox>> FetchInbox::create() {
  std::shared_ptr<FetchInbox> inbox(new FetchInbox);  // Shared by the thread and by callbacks of the resolver.
  inbox->bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (inbox->bell_ < 0) {
    return Status::unavailable("cannot open the fetcher's event:", std::strerror(errno));
  }
  return inbox;
}

FetchInbox::~FetchInbox() {
  if (bell_ >= 0) {
    ::close(bell_);
  }
}

// REQUIRES: mutex_ is held. The system call is spared while the thread is awake or has been rung for.
void FetchInbox::ring() {
  has_news_ = true;
  if (std::exchange(is_waiting_, false)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
  }
}

void FetchInbox::post(FetchEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  ring();
}

void FetchInbox::wake() {
  const std::lock_guard lock(mutex_);
  ring();
}

void FetchInbox::take(std::vector<FetchEvent>& events) {
  events.clear();
  const std::lock_guard lock(mutex_);
  has_news_ = false;
  events.swap(events_);
}

void FetchInbox::wait(std::vector<pollfd>& sockets, std::optional<Instant> until) {
  timespec patience{};
  if (until) {
    const auto left =
        std::clamp<std::chrono::nanoseconds>(*until - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0), std::chrono::hours(1));
    patience.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    patience.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  }
  {
    const std::lock_guard lock(mutex_);
    if (has_news_) {
      return;
    }
    is_waiting_ = true;
  }
  sockets.push_back({.fd = bell_, .events = POLLIN, .revents = 0});
  const int num_ready = ppoll(sockets.data(), sockets.size(), until ? &patience : nullptr, nullptr);
  DARKROOM_CHECK(num_ready >= 0 || errno == EINTR, "waiting for the fetcher's events failed:", std::strerror(errno));
  sockets.pop_back();
  const std::lock_guard lock(mutex_);
  is_waiting_ = false;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t num_read = read(bell_, &count, sizeof count);
}

}  // namespace darkroom
