#include "slice_workers.h"

#include <exception>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/used_up_memory.h"
#include "frames.h"
#include "handshake.h"

namespace darkroom {
namespace {

using std::chrono::duration;

constexpr double kMicroseconds = 1e6;

uint64_t microseconds(double seconds) { return static_cast<uint64_t>(seconds * kMicroseconds); }

}  // namespace

SliceWorkers::SliceWorkers(int num_workers, SliceMaker make, Done done, std::function<void()> rested)
    : make_(std::move(make)), done_(std::move(done)), rested_(std::move(rested)) {
  for (int worker = 0; worker < num_workers; ++worker) {
    threads_.emplace_back([this, worker](const std::stop_token& stop) { run(worker, stop); });
  }
}

SliceWorkers::~SliceWorkers() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  threads_.clear();
}

void SliceWorkers::add(SliceJob job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

void SliceWorkers::forget(uint64_t connection) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const SliceJob& job) { return job.connection == connection; });
}

void SliceWorkers::forget_all() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

bool SliceWorkers::is_idle() const {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && num_busy_ == 0;
}

SliceWorkers::Clock::time_point SliceWorkers::last_progress() const {
  const std::lock_guard lock(mutex_);
  return last_progress_;
}

SliceServerCounts SliceWorkers::counts() const {
  const std::lock_guard lock(mutex_);
  SliceServerCounts counts = counts_;
  counts.seconds = duration<double>(Clock::now() - began_).count();
  return counts;
}

// A slice that was made may find no memory for its way out: its asker is told so in few words.
void SliceWorkers::answer_whatever_comes(int worker, const SliceJob& job) {
  try {
    try {
      done_(job.connection, answer(worker, job));
    } catch (const std::exception& failure) {
      done_(job.connection, frame_of(job, Status::resource_exhausted("a slice could not be sent:", failure.what())));
    }
  } catch (const std::exception& failure) {
    // Not even for that: the asker's own time-out is left.
    log_error("a slice, and that it could not be sent, was lost: {}", failure.what());
  }
}

// An exception is the slice's failure: a worker is a boundary.
std::string SliceWorkers::answer(int worker, const SliceJob& job) {
  const auto start = Clock::now();
  const Result<std::string> made = [&]() -> Result<std::string> {
    try {
      return make_(worker, job.rows);
    } catch (const std::exception& failure) {
      return caught_failure("making a slice failed:", failure);
    }
  }();
  {
    const std::lock_guard lock(mutex_);
    counts_.slices += made.is_ok() ? 1 : 0;
    counts_.rows += made.is_ok() ? static_cast<int64_t>(job.rows.size()) : 0;
    counts_.busy_seconds += duration<double>(Clock::now() - start).count();
  }
  return frame_of(job, made);
}

std::string SliceWorkers::frame_of(const SliceJob& job, const Result<std::string>& made) const {
  const SliceServerCounts now = counts();
  std::string body;
  for (const uint64_t number : {job.slice, microseconds(now.seconds), microseconds(now.busy_seconds), static_cast<uint64_t>(now.rows)}) {
    append_number(body, number);
  }
  body += made.is_ok() ? *made : failure_words(made.status());
  return encode_frame(made.is_ok() ? FrameType::kSlice : FrameType::kFailure, body);
}

void SliceWorkers::run(int worker, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); }) && !stop.stop_requested()) {
    const SliceJob job = std::move(jobs_.front());
    jobs_.pop_front();
    ++num_busy_;
    last_progress_ = Clock::now();
    lock.unlock();
    answer_whatever_comes(worker, job);  // Before this worker is idle: a drain sends what was made.
    lock.lock();
    --num_busy_;
    last_progress_ = Clock::now();
    rested_();
  }
}

}  // namespace darkroom
