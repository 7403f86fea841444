#include "read_many.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace darkroom {
namespace {

/// The reads and what came of them. Thread safety: any thread.
class ReadsUnderWay {
 public:
  ReadsUnderWay(size_t count, const std::stop_token& stop, const std::function<Status(size_t)>& read)
      : count_(count), stop_(stop), read_(read) {}

  void work() {
    while (!has_failed_ && !stop_.stop_requested()) {
      const size_t index = next_++;
      if (index >= count_) {
        return;
      }
      try {
        if (Status status = read_(index); !status.is_ok()) {
          fail(std::move(status), nullptr);
        }
      } catch (...) {
        fail({}, std::current_exception());
      }
    }
  }

  Status outcome() const {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
    if (!failure_.is_ok()) {
      return failure_;
    }
    return stop_.stop_requested() && next_ < count_ ? Status::cancelled("stopped while files were looked at; files seen:", next_.load())
                                                    : Status::ok();
  }

 private:
  void fail(Status status, std::exception_ptr exception) {
    const std::lock_guard hold(mutex_);
    if (!has_failed_.exchange(true)) {
      failure_ = std::move(status);
      exception_ = std::move(exception);
    }
  }

  const size_t count_;
  const std::stop_token& stop_;
  const std::function<Status(size_t)>& read_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;  // Guards both below; read when no thread works any more.
  Status failure_;
  std::exception_ptr exception_;
};

}  // namespace

Status read_many(size_t count, const std::stop_token& stop, const std::function<Status(size_t)>& read, size_t max_threads,
                 size_t min_reads) {
  ReadsUnderWay reads(count, stop, read);
  {
    std::vector<std::jthread> threads;
    const size_t num_threads = std::min(max_threads, count / min_reads);
    try {
      while (threads.size() + 1 < num_threads) {  // This one is one of them.
        threads.emplace_back([&] { reads.work(); });
      }
    } catch (const std::system_error&) {
      // No more threads here: those there are, and this one, do the work.
    }
    reads.work();
  }
  return reads.outcome();
}

}  // namespace darkroom
