#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace darkroom {

/// Which attempts count against the concurrency: those that make progress. One that makes none for patience() is slow and leaves its place
/// to another, until it makes some again. Pure: `now` is an argument. Thread safety: one thread at a time.
class FetchPlaces {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  static constexpr Duration kLongestPatience = std::chrono::seconds(10);
  static constexpr Duration kShortestPatience = std::chrono::milliseconds(250);
  static constexpr Duration kLookEvery = std::chrono::milliseconds(250);

  /// At most `num_concurrent` that are not slow are started, and `num_places` in all.
  FetchPlaces(int num_concurrent, int num_places) : num_concurrent_(num_concurrent), num_places_(num_places) {}

  bool has_place() const { return num_active() - num_slow_ < num_concurrent_ && num_active() < num_places_; }
  void start(uint64_t attempt, Instant now);
  void end(uint64_t attempt);
  /// Asks of each attempt whose look is due whether it has made progress since the last look. Those that have become slow.
  std::vector<uint64_t> look(Instant now, const std::function<bool(uint64_t attempt)>& has_progressed);
  std::optional<Instant> next_look() const;

  /// How long a first byte took. The patience is four times the usual, that is the median time, and a second before anything is known: were
  /// it shorter, a web or a machine that is busy would get the more to do the slower it is.
  void note_first_byte(Duration after);
  Duration patience() const;

  /// Fewer places from now on: this process may open no more files. At least one stays.
  void lower_to(int num_places);

  int num_active() const { return static_cast<int>(attempts_.size()); }
  int num_slow() const { return num_slow_; }

 private:
  struct State {
    Instant progress_at;
    bool is_slow = false;
  };

  const int num_concurrent_;
  int num_places_;
  int num_slow_ = 0;
  std::unordered_map<uint64_t, State> attempts_;
  std::deque<std::pair<Instant, uint64_t>> looks_;  // One each, ascending; those of ended attempts are skipped.
  double usual_seconds_ = 0.25;                     // To the first byte, a running median.
};

}  // namespace darkroom
