#include "rank_watch.h"

namespace darkroom {

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, const RankPlace& place, std::chrono::seconds period,
                     std::function<void(const std::string&)> on_lost)
    : store_(std::move(store)), place_(place), period_(period), on_lost_(std::move(on_lost)), last_round_(Clock::now()) {
  asking_ = std::thread([this] { ask(); });
  waiting_ = std::thread([this] { wait(); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  asking_.join();  // A store that hangs is still watched.
  waiting_.join();
}

// Whether this process itself stood still between two looks (SIGSTOP of all, a suspended machine): nobody else's silence.
bool RankWatch::was_away(Clock::time_point before, Clock::time_point now) const {
  return now - before > std::chrono::milliseconds(period_) / 2;
}

// Four looks a period. False: the watch has ended.
bool RankWatch::pause() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::milliseconds(period_) / 4, [this] { return ended_; });
}

void RankWatch::lose(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
  }
  on_lost_(what);
}

void RankWatch::ask() {
  ask_until_end();
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
  }
  changed_.notify_all();
}

void RankWatch::ask_until_end() {
  const int64_t next = (place_.rank + 1) % place_.size;
  int64_t seen = -1;
  Clock::time_point since = Clock::now(), looked = since;
  while (pause()) {
    try {
      store_->add("alive/" + std::to_string(place_.rank), 1);
      const int64_t count = store_->add("alive/" + std::to_string(next), 0);
      const auto now = Clock::now();
      if (count != seen || was_away(looked, now)) {
        seen = count;
        since = now;
      }
      looked = now;
      {
        const std::lock_guard lock(mutex_);
        last_round_ = now;
      }
      if (now - since > period_) {
        lose("rank " + std::to_string(next) + " gives no sign of life");
        return;
      }
    } catch (const std::exception&) {
      return;  // The other thread sees that no round was finished.
    }
  }
}

void RankWatch::wait() {
  std::unique_lock lock(mutex_);
  Clock::time_point looked = Clock::now();
  while (!changed_.wait_for(lock, std::chrono::milliseconds(period_) / 4, [this] { return ended_ && asked_; })) {
    const auto now = Clock::now();
    last_round_ = was_away(looked, now) ? now : last_round_;
    looked = now;
    if (now - last_round_ > period_) {
      lock.unlock();
      on_lost_("the store at " + place_.host + " gives no answer");
      return;
    }
  }
}

}  // namespace darkroom
