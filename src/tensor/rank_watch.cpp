#include "rank_watch.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <utility>

#include "darkroom/core/machine.h"

namespace darkroom {
namespace {

constexpr const char* kHang = "hang";  // Key of what a rank's watch says of it.
constexpr int kRoundsToTell = 2;       // Half a period: the others look once a quarter.

std::string key_of(const char* what, int64_t rank) { return fmt::format("{}/{}", what, rank); }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string own_host() {
  const std::string name = host_name();
  return name.empty() ? "an unknown host" : name;
}

// By the clock on the wall, as people compare logs of machines.
std::string time_before_now(std::chrono::seconds length) {
  const std::time_t then = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - length);
  std::tm utc{};
  gmtime_r(&then, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

}  // namespace

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, const RankPlace& place, std::chrono::seconds period,
                     std::shared_ptr<ProgressMark> progress, std::function<void(const std::string&)> on_lost)
    : store_(std::move(store)),
      place_(place),
      period_(period),
      progress_(std::move(progress)),
      on_lost_(std::move(on_lost)),
      last_round_(Clock::now()) {
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
    if (ended_ || is_lost_) {
      return;
    }
    is_lost_ = true;
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

std::string RankWatch::host_of(int64_t rank) {
  const std::string key = key_of("host", rank);
  return store_->check({key}) ? text_of(store_->get(key)) : "an unknown host";
}

std::string RankWatch::hear_of_hang(Clock::time_point now, bool was_away) {
  if (rounds_to_tell_ == 0 && !store_->check({kHang})) {
    const auto stall = progress_->look(now, was_away);
    if (!stall) {
      return "";
    }
    const std::string what = fmt::format("rank {} on {} has not got on since {}, for {} s (it says: {})", place_.rank, own_host(),
                                         time_before_now(stall->length), stall->length.count(), stall->doing);
    store_->set(kHang, bytes_of(what));
    rounds_to_tell_ = kRoundsToTell;
    return "";
  }
  return rounds_to_tell_ > 0 && --rounds_to_tell_ > 0 ? "" : text_of(store_->get(kHang));
}

void RankWatch::ask_until_end() {
  const int64_t next = (place_.rank + 1) % place_.size;
  int64_t seen = -1;
  Clock::time_point since = Clock::now(), looked = since;
  while (pause()) {
    try {
      if (seen < 0) {
        store_->set(key_of("host", place_.rank), bytes_of(own_host()));
      }
      store_->add(key_of("alive", place_.rank), 1);
      const int64_t count = store_->add(key_of("alive", next), 0);
      const auto now = Clock::now();
      const bool away = was_away(looked, now);
      if (const std::string hang = hear_of_hang(now, away); !hang.empty()) {
        lose(hang);
        return;
      }
      if (count != seen || away) {
        seen = count;
        since = now;
      }
      looked = now;
      {
        const std::lock_guard lock(mutex_);
        last_round_ = now;
      }
      if (now - since > period_) {
        const auto silence = std::chrono::duration_cast<std::chrono::seconds>(now - since);
        lose(fmt::format("rank {} on {} gives no sign of life since {}, for {} s", next, host_of(next), time_before_now(silence),
                         silence.count()));
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
    if (is_lost_) {
      return;  // Said already.
    }
    if (now - last_round_ > period_) {
      is_lost_ = true;
      lock.unlock();
      on_lost_("the store at " + place_.host + " gives no answer");
      return;
    }
  }
}

}  // namespace darkroom
