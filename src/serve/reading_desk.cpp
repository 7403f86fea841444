#include "reading_desk.h"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <utility>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

void handle(const ReadingDesk::Task& task, const std::stop_token& stop) {
  try {
    task(stop);
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: a request whose reply is read could not be handled: {}", failure.what());
  }
}

}  // namespace

ReadingDesk::ReadingDesk(std::string what) : what_(std::move(what)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

ReadingDesk::~ReadingDesk() { stop(); }

// The thread may hang in a store's read: those who wait behind it are answered here.
void ReadingDesk::stop() {
  std::deque<Waiting> left;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    left.swap(waiting_);
  }
  thread_.request_stop();
  std::stop_source ended;
  ended.request_stop();
  for (const Waiting& one : left) {
    handle(one.task, ended.get_token());
  }
}

bool ReadingDesk::await_idle(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return !is_reading_ && waiting_.empty(); });
}

Status ReadingDesk::post(std::stop_token gone, Task task) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) {
    return Status::unavailable(fmt::format("the server is shutting down and reads no {} any more", what_));
  }
  std::erase_if(waiting_, [](const Waiting& one) { return one.gone.stop_requested(); });
  if (waiting_.size() >= kMostWaiting) {
    return Status::resource_exhausted(
        fmt::format("as many requests wait for {} to be read as the server takes on; try again later", what_));
  }
  waiting_.push_back({std::move(gone), std::move(task)});
  changed_.notify_all();
  return Status::ok();
}

void ReadingDesk::answer_unless_stopped(const std::stop_token& stop, const HttpService::Answer& answer,
                                        const std::function<HttpReply()>& read, const std::function<HttpReply()>& give_up) {
  std::atomic<bool> is_told = false;
  const auto tell = [&](HttpReply reply) {
    if (!is_told.exchange(true)) {
      answer(std::move(reply));
    }
  };
  const std::stop_callback at_stop(stop, [&] { tell(give_up()); });
  if (!is_told) {
    tell(read());
  }
}

void ReadingDesk::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    is_reading_ = true;
    lock.unlock();
    if (!next.gone.stop_requested()) {
      std::stop_source ends;
      const std::stop_callback at_end(stop, [&] { ends.request_stop(); });
      const std::stop_callback when_gone(next.gone, [&] { ends.request_stop(); });
      handle(next.task, ends.get_token());
    }
    next = {};
    lock.lock();
    is_reading_ = false;
    changed_.notify_all();
  }
}

}  // namespace darkroom
