#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/slices/slice_fleet.h"

namespace darkroom {

/// A slice that an encoder is asked for.
struct AskedSlice {
  uint64_t number = 0;
  std::vector<int64_t> rows;
};

/// What an encoder told when it let a trainer in.
struct EncoderWelcome {
  nlohmann::json place = {};
  std::string processor = {};
  int64_t workers = 1;
  int64_t in_flight = 1;
  int64_t max_rows = 1;
  int64_t rows_together = 1;
};

/// What an encoder counted during one connection.
struct EncoderCounts {
  double seconds = 0;
  double busy_seconds = 0;  ///< Of a worker, on average.
  int64_t rows = 0;
};

/// Where a trainer leaves what it wants and encoders' connections take it from. Thread safety: any thread.
class SliceDesk {
 public:
  explicit SliceDesk(const SliceFleetOptions& options);

  // The trainer's side: as SliceFleet's.
  Status await_first();
  uint64_t ask(std::vector<int64_t> rows);
  Result<std::shared_ptr<const SliceContent>> take(uint64_t slice);
  void stop_waiting();
  int64_t slice_rows() const;
  FleetReport report() const;

  // The connections' side.
  /// An event that is written to when there is something to ask for, until `remove_wake`.
  void add_wake(int event);
  void remove_wake(int event);
  size_t num_wakes() const;
  /// Errors: kFailedPrecondition (it encodes otherwise than the others).
  Status join(const std::string& name, const EncoderWelcome& welcome);
  /// What the encoder of a connection that has joined says that it did meanwhile.
  void note_counts(const void* connection, const EncoderCounts& counts);
  /// The end of a connection that had joined; `owed` go to others.
  void leave(const void* connection, const std::vector<AskedSlice>& owed, const Status& why);
  /// An encoder that is there and does not let this trainer in.
  void note_refusal(const Status& refusal);
  /// An encoder that could not be reached.
  void note_failure(const Status& failure);
  /// A slice for a connection: none that failed there while others are to try it.
  std::optional<AskedSlice> next(const void* connection);
  void deliver(uint64_t slice, std::shared_ptr<const SliceContent> content, int64_t num_bytes);
  /// The encoder could not make it; another one may.
  void fail(const void* connection, const AskedSlice& slice, const Status& failure);

 private:
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    std::vector<int64_t> rows;
    std::set<const void*> failed_at = {};  ///< Connections.
    int failures = 0;
    int losses = 0;
    std::shared_ptr<const SliceContent> content = nullptr;
    Status failure = {};
  };

  static void add_counts(const EncoderCounts& counts, FleetReport& report);
  void put_back_locked(const AskedSlice& slice);
  void wake_links_locked() const;
  /// Not ok: there is no encoder, and waiting for one is over. Else it may be waited until `deadline`, if there is one.
  Status check_patience_locked(std::optional<Clock::time_point>& deadline) const;
  void wait_locked(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point> deadline);

  const std::string encoders_;
  const SliceNames names_;
  const std::chrono::milliseconds patience_;
  const std::stop_token stop_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_number_ = 1;  // Guarded by mutex_, like all below.
  std::map<uint64_t, Wanted> wanted_;
  std::deque<uint64_t> pending_;
  std::set<int> wakes_;
  int64_t num_joined_ = 0;
  Clock::time_point alone_since_ = Clock::now();
  std::optional<EncoderWelcome> first_;
  std::string first_name_;
  Status refusal_;
  Status last_failure_;
  bool is_ended_ = false;
  bool told_of_processors_ = false;
  FleetReport report_;                                 // Without what current_ says.
  std::map<const void*, EncoderCounts> current_;       // Of connections that have joined.
  std::stop_callback<std::function<void()>> on_stop_;  // Last: it uses the mutex.
};

}  // namespace darkroom
