#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "darkroom/tensor/rank_place.h"

namespace darkroom {

/// Looks whether the next rank and the store still give signs of life. A connection of its own, because a store call waits for its answer:
/// one thread asks, another sees when no answer came. `on_lost` is called by one of them, at most once each.
class RankWatch {
 public:
  RankWatch(c10::intrusive_ptr<c10d::Store> store, const RankPlace& place, std::chrono::seconds period,
            std::function<void(const std::string&)> on_lost);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  bool was_away(Clock::time_point before, Clock::time_point now) const;
  bool pause();
  void lose(const std::string& what);
  void ask();
  void ask_until_end();
  void wait();

  c10::intrusive_ptr<c10d::Store> store_;
  const RankPlace place_;
  const std::chrono::seconds period_;
  const std::function<void(const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  bool asked_ = false;  // The asking thread is done.
  Clock::time_point last_round_;
  std::thread asking_;
  std::thread waiting_;
};

}  // namespace darkroom
