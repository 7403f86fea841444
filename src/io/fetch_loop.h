#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/io/fetch.h"
#include "fetch_multi.h"
#include "fetch_transfer.h"

namespace darkroom {

/// The fetch thread and the two ends that callers see: requests in, replies out.
///
/// Every transfer that is not idle has one timer: its deadline, or the end of its back-off.
class Fetcher::Loop {
 public:
  explicit Loop(FetchOptions options);
  ~Loop();
  Status start();

  bool submit(FetchRequest request);
  std::optional<FetchReply> next();
  void close();
  void cancel();
  int num_outstanding() const { return 4 * shared_.options.num_concurrent; }
  FetchStats stats() const;

 private:
  using TimePoint = FetchClock::time_point;

  void run();
  void step();
  void drop_all();

  bool has_place() const;
  void start_transfers();
  void take_requests(int at_most);
  void begin(FetchRequest request, TimePoint now);
  void begin_attempt(FetchTransfer* transfer);
  FetchTransfer* idle_transfer();

  void finish_attempt(FetchTransfer* transfer, CURLcode code);
  bool plan_retry(FetchTransfer* transfer, const FetchAttempt& attempt);
  void finish(FetchTransfer* transfer, std::optional<RowError> error);
  std::chrono::milliseconds backoff(int num_retries);

  void set_timer(FetchTransfer* transfer, TimePoint at);
  void fire_timers();
  void fire(FetchTransfer* transfer, TimePoint now);

  bool is_held_up() const;
  bool has_room() const;
  bool can_resume() const;
  void resume_paused();
  void publish();

  FetchShared shared_;
  std::unique_ptr<FetchMulti> multi_;

  // Of the fetch thread.
  std::vector<std::unique_ptr<FetchTransfer>> transfers_;
  std::vector<FetchTransfer*> idle_;
  std::deque<FetchTransfer*> due_;  // Their back-off is over; they go before new requests.
  std::set<std::pair<TimePoint, FetchTransfer*>> timers_;
  std::vector<FetchRequest> taken_;
  std::vector<FetchReply> finished_;                 // Not yet visible to callers.
  std::minstd_rand jitter_{std::random_device{}()};  // Spreads retries; decides no byte.

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable may_submit_;
  std::condition_variable may_take_;
  std::deque<FetchRequest> queue_;
  std::deque<FetchReply> replies_;
  int num_inside_ = 0;  // Queued, in a transfer, or an untaken reply.
  bool is_closed_ = false;
  std::exception_ptr broken_;  // A bug that ended the thread; thrown to the callers.
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> wants_bytes_{false};   // The thread waits until replies are taken.
  std::atomic<int64_t> untaken_bytes_{0};  // The part of held_bytes that is in replies.
  std::atomic<int> num_active_{0};

  std::jthread thread_;  // Last: ends before what it uses.
};

}  // namespace darkroom
