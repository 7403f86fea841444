#include "picture_finish.h"

#include <exception>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/image/png.h"

namespace darkroom {
namespace {

constexpr int kNumThreads = 2;

Status shutting_down() { return Status::unavailable("the server is shutting down and could not finish the request"); }

}  // namespace

nlohmann::json finish_reasons(const std::vector<Image>& images) {
  nlohmann::json reasons = nlohmann::json::array();
  for (const Image& image : images) {
    reasons.push_back(is_withheld(image) ? nlohmann::json(kContentFilter) : nlohmann::json());
  }
  return reasons;
}

PictureFinish::PictureFinish(Mark mark, SafetyCheck check, Clock& clock)
    : mark_(std::move(mark)), check_(std::move(check)), clock_(clock), deadlines_(clock) {
  for (int i = 0; is_needed() && i < kNumThreads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

PictureFinish::~PictureFinish() { stop(); }

void PictureFinish::stop() {
  std::deque<std::shared_ptr<Task>> left;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    left.swap(waiting_);
  }
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  threads_.clear();
  for (const std::shared_ptr<Task>& task : left) {
    if (deadlines_.remove(task->watched)) {
      task->done(shutting_down());
    }
  }
  deadlines_.stop();
}

void PictureFinish::finish(std::vector<Image> images, Clock::Instant deadline, std::stop_token given_up, Done done) {
  const auto task = std::make_shared<Task>(Task{std::move(images), deadline, std::move(given_up), std::move(done)});
  {
    const std::lock_guard lock(mutex_);
    if (!is_stopped_) {
      task->watched = deadlines_.add(deadline, [this, task] { end_late(task); });
      waiting_.push_back(task);
      changed_.notify_one();
      return;
    }
  }
  task->done(shutting_down());
}

void PictureFinish::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    std::shared_ptr<Task> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Result<std::vector<Image>> result = finished_safely(*task, stop);
    try {
      if (deadlines_.remove(task->watched)) {
        task->done(std::move(result));
      }
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: pictures could not be handed over: {}", failure.what());
    }
    task = nullptr;
    lock.lock();
  }
}

// A thread may be at it: its pictures stay with that one.
void PictureFinish::end_late(const std::shared_ptr<Task>& task) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(waiting_, task);
  }
  task->done(past_deadline());
}

Result<std::vector<Image>> PictureFinish::finished_safely(Task& task, const std::stop_token& stop) const {
  try {
    return finished(task, stop);
  } catch (const std::exception& failure) {  // A request is a boundary.
    log_error("serve: pictures could not be made ready to go out: {}", failure.what());
    return Status::internal("the pictures could not be made ready to go out; the server's log says why");
  }
}

Result<std::vector<Image>> PictureFinish::finished(Task& task, const std::stop_token& stop) const {
  for (Image& image : task.images) {
    if (task.given_up.stop_requested()) {
      return Status::cancelled("the request was given up");
    }
    if (task.deadline <= clock_.now()) {
      return past_deadline();
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool goes, may_go(image, stop));
    if (!goes) {
      image = {};
    } else if (mark_ != nullptr) {
      mark_(image);
    }
  }
  return std::move(task.images);
}

Result<bool> PictureFinish::may_go(const Image& image, const std::stop_token& stop) const {
  if (check_ == nullptr) {
    return true;
  }
  if (stop.stop_requested()) {
    return shutting_down();
  }
  const Result<bool> answer = [&]() -> Result<bool> {
    try {
      return check_(encode_png(image), stop);
    } catch (const std::exception& failure) {
      return Status::internal(failure.what());
    }
  }();
  if (!answer.is_ok() && stop.stop_requested()) {
    return shutting_down();
  }
  if (!answer.is_ok()) {
    log_error("serve: the safety checker gave no answer, so the picture is not sent: {}", answer.status().message());
    return Status::unavailable("the safety checker gave no answer, and without one no picture is sent; try again later");
  }
  return answer;
}

}  // namespace darkroom
