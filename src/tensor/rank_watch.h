#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "darkroom/tensor/progress_mark.h"
#include "darkroom/tensor/rank_place.h"

namespace darkroom {

/// Looks whether the next rank and the store still give signs of life, and whether this rank gets on. A connection of its own, because a
/// store call waits for its answer: one thread asks, another sees when no answer came. `on_lost` is called by one of them, at most once
/// each. A rank that hangs tells the others, whose watches then call theirs, and ends after them: the store may be its own.
class RankWatch {
 public:
  RankWatch(c10::intrusive_ptr<c10d::Store> store, const RankPlace& place, std::chrono::seconds period,
            std::shared_ptr<ProgressMark> progress, std::function<void(const std::string&)> on_lost);
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
  // What the watch of a rank that hangs has said, this rank's included; empty: none.
  std::string hear_of_hang(Clock::time_point now, bool was_away);
  std::string host_of(int64_t rank);
  void wait();

  c10::intrusive_ptr<c10d::Store> store_;
  const RankPlace place_;
  const std::chrono::seconds period_;
  const std::shared_ptr<ProgressMark> progress_;  // With the communicator and its twins.
  const std::function<void(const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  bool is_lost_ = false;    // on_lost_ is called, once.
  bool asked_ = false;      // The asking thread is done.
  int rounds_to_tell_ = 0;  // In which the others hear of this rank's hang before it ends.
  Clock::time_point last_round_;
  std::thread asking_;
  std::thread waiting_;
};

}  // namespace darkroom
