#include "http_multi.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

void check_multi(CURLMcode code) { DARKROOM_CHECK(code == CURLM_OK, "libcurl's multi handle failed:", curl_multi_strerror(code)); }

}  // namespace

Result<std::unique_ptr<HttpMulti>> HttpMulti::create(int num_kept_connections) {
  std::unique_ptr<HttpMulti> multi(new HttpMulti);
  DARKROOM_RETURN_IF_ERROR(multi->open(num_kept_connections));
  return multi;
}

Status HttpMulti::open(int num_kept_connections) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_event_}};
  if (epoll_ < 0 || wake_event_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_event_, &event) != 0) {
    return Status::unavailable("cannot open the HTTP event queue:", std::strerror(errno));
  }
  multi_ = curl_multi_init();
  if (multi_ == nullptr) {
    return Status::unavailable("cannot open libcurl's multi handle");
  }
  check_multi(curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &on_socket));
  check_multi(curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this));
  check_multi(curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &on_timer));
  check_multi(curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this));
  check_multi(curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING)));
  check_multi(curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(num_kept_connections)));
  return Status::ok();
}

HttpMulti::~HttpMulti() {
  if (multi_ != nullptr) {
    curl_multi_cleanup(multi_);
  }
  for (const int descriptor : {epoll_, wake_event_}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

void HttpMulti::add(CURL* easy) { check_multi(curl_multi_add_handle(multi_, easy)); }

void HttpMulti::remove(CURL* easy) { check_multi(curl_multi_remove_handle(multi_, easy)); }

void HttpMulti::wake() {
  if (!is_woken_.exchange(true)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_event_, &one, sizeof one);
  }
}

int HttpMulti::on_socket(CURL*, curl_socket_t socket, int what, HttpMulti* self, void* known) noexcept {
  if (what == CURL_POLL_REMOVE) {
    // libcurl closes the socket of a connection that is not made yet before it says so. By now another thread may have opened the number;
    // the set of this one does not hold it, so that the kernel refuses. Past ThreadSanitizer, which keeps a book of descriptors by number:
    // it would call that a race (and clang 14's dies of telling it).
    syscall(SYS_epoll_ctl, self->epoll_, EPOLL_CTL_DEL, socket, nullptr);
    return 0;
  }
  epoll_event event{.events = 0, .data = {.fd = socket}};
  event.events |= (what & CURL_POLL_IN) != 0 ? uint32_t{EPOLLIN} : 0;
  event.events |= (what & CURL_POLL_OUT) != 0 ? uint32_t{EPOLLOUT} : 0;
  if (known == nullptr) {
    curl_multi_assign(self->multi_, socket, self);  // Marks the socket as added.
    return epoll_ctl(self->epoll_, EPOLL_CTL_ADD, socket, &event);
  }
  return epoll_ctl(self->epoll_, EPOLL_CTL_MOD, socket, &event);
}

int HttpMulti::on_timer(CURLM*, long timeout_ms, HttpMulti* self) noexcept {
  self->curl_timer_.reset();
  if (timeout_ms >= 0) {
    self->curl_timer_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  return 0;
}

int HttpMulti::wait_ms(std::optional<Clock::time_point> until) const {
  if (curl_timer_ && (!until || *curl_timer_ < *until)) {
    until = curl_timer_;
  }
  if (!until) {
    return -1;
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 3'600'000));
}

void HttpMulti::act(curl_socket_t socket, int events) {
  int num_running = 0;
  check_multi(curl_multi_socket_action(multi_, socket, events, &num_running));
}

void HttpMulti::drive(std::optional<Clock::time_point> until) {
  std::array<epoll_event, 256> events;
  const int num_events = epoll_wait(epoll_, events.data(), events.size(), wait_ms(until));
  DARKROOM_CHECK(num_events >= 0 || errno == EINTR, "waiting for the HTTP events failed:", std::strerror(errno));
  for (int i = 0; i < num_events; ++i) {
    if (events[i].data.fd == wake_event_) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t num_read = read(wake_event_, &count, sizeof count);
      is_woken_.store(false);  // Before the caller looks at what the wake was for.
      continue;
    }
    int what = 0;
    what |= (events[i].events & (EPOLLIN | EPOLLHUP)) != 0 ? CURL_CSELECT_IN : 0;
    what |= (events[i].events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0;
    what |= (events[i].events & EPOLLERR) != 0 ? CURL_CSELECT_ERR : 0;
    act(events[i].data.fd, what);
  }
  if (curl_timer_ && *curl_timer_ <= Clock::now()) {
    curl_timer_.reset();
    act(CURL_SOCKET_TIMEOUT, 0);
  }
}

std::optional<std::pair<CURL*, CURLcode>> HttpMulti::take_finished() {
  int num_left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &num_left)) {
    if (message->msg == CURLMSG_DONE) {
      const std::pair<CURL*, CURLcode> finished(message->easy_handle, message->data.result);
      remove(finished.first);
      return finished;
    }
  }
  return std::nullopt;
}

}  // namespace darkroom
