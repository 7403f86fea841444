#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/web/fetch.h"
#include "darkroom/web/url_hop.h"

namespace darkroom {

/// A request whose URL was read.
struct ReadRequest {
  uint64_t id;
  RowResult<UrlHop> hop;
  uint64_t order;
};

struct UntakenReply {
  FetchReply reply;
  uint64_t row;  ///< The fetch thread's number for it.
};

/// What callers and the fetch thread share: requests that the thread has not taken yet, and replies that no caller has taken yet. From
/// submit() until its reply is taken a request is inside, and at most `max_inside` are. Thread safety: any thread; the two sides say who
/// calls what.
class FetchQueues {
 public:
  explicit FetchQueues(int max_inside) : max_inside_(max_inside) {}

  enum class Entry {
    kRefused,  ///< After close() or cancel().
    kQueued,
    kFirst,  ///< Queued where none was: the fetch thread may wait for it.
  };
  /// Callers: waits while max_inside requests are inside.
  Entry submit(ReadRequest request);
  /// Callers: waits for a reply. Nothing: cancelled, or closed with none inside.
  std::optional<UntakenReply> take_reply();
  /// What the fetch thread has taken and not answered, but for what no place would help.
  struct InHand {
    int64_t wanting = 0;        ///< Has or wants a place.
    int64_t beyond_places = 0;  ///< Is beyond the places of its host.
  };
  /// Callers: waits until less is in hand than `limit`; requests that the fetch thread has not taken and untaken replies count as wanting.
  /// False: cancelled.
  bool wait_for_demand(InHand limit);
  /// No more requests; those inside are finished.
  void close();
  /// Whoever waits here returns at once, and nothing is given out any more. Waking the fetch thread is the caller's.
  void cancel();
  bool is_cancelled() const { return is_cancelled_; }
  /// The first that was noted.
  Status failure() const;

  /// The fetch thread: exchanges `requests` for those that have come.
  void take_requests(std::vector<ReadRequest>& requests);
  /// The fetch thread: gives callers the replies, and takes them out of `replies`.
  void publish(std::vector<UntakenReply>& replies, InHand in_hand);
  /// The fetch thread: why it ends. It has yet to cancel().
  void note_failure(Status failure);

 private:
  void tell_of_demand();

  const int max_inside_;
  mutable std::mutex mutex_;
  std::condition_variable may_submit_;
  std::condition_variable may_take_;
  std::condition_variable demand_;
  std::vector<ReadRequest> requests_;
  std::deque<UntakenReply> replies_;
  int num_inside_ = 0;
  int num_just_taken_ = 0;  // By the fetch thread since its last publish().
  InHand in_hand_;          // As of its last publish().
  int num_awaiting_ = 0;    // Callers that wait for demand.
  bool is_closed_ = false;
  Status failure_;
  std::atomic<bool> is_cancelled_{false};  // Written under the mutex.
};

}  // namespace darkroom
