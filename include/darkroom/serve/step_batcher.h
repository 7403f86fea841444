#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/serve/fair_order.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

struct StepBatcherOptions {
  int max_batch = 8;  ///< Pictures in one network call.
  double queue_cost =
      419'430'400;          ///< Bound on the cost (PictureSpec::cost) of all orders that are taken and not done: 32 at 512 px, 50 steps.
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Pictures that are asked for together and handed over together.
struct PaintOrder {
  std::vector<PictureSpec> pictures;  ///< Not empty, of one size.
  Clock::Instant deadline = Clock::Instant::max();
  std::stop_token given_up = {};  ///< Once a stop is requested, nobody wants the pictures any more.
  double cost() const;
};

/// Paints orders with one engine, on a thread of its own. Between any two network calls orders join and leave: each call takes the next
/// step of up to max_batch pictures of one size, those first that FairOrder puts first. An order that is past its deadline, given up or
/// failed costs no further call. Thread safety: any thread.
class StepBatcher {
 public:
  /// Called once, by the batcher's thread, with a picture per spec in their order, or: kInvalidArgument (the engine's refusal),
  /// kUnavailable (the deadline, or the batcher ends), kCancelled (given up), kInternal. Must be quick and not throw.
  using Done = std::function<void(Result<std::vector<Image>>)>;

  /// REQUIRES: valid options; engine, clock and metrics outlive the batcher.
  StepBatcher(StepEngine& engine, const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock = system_clock());
  /// Ends every order with kUnavailable, after the network call that runs.
  ~StepBatcher();
  StepBatcher(const StepBatcher&) = delete;
  StepBatcher& operator=(const StepBatcher&) = delete;

  /// Takes an order, or refuses it at once without calling `done`. Errors: kInvalidArgument (it alone costs more than the whole bound),
  /// kResourceExhausted (there is no room, or at the present pace it would miss its deadline), kUnavailable (draining).
  Status submit(PaintOrder order, Done done);

  /// From now on no order is taken; those that are taken go on.
  void drain();
  bool is_draining() const;
  /// Gives up every order: each ends with kUnavailable.
  void give_up_all();

  /// Painted to their end.
  int64_t num_pictures() const { return finished_pictures_.value(); }

  /// When it makes sense to ask again: the time for what is taken, at the present pace, from 1 to 60 s.
  std::chrono::seconds retry_after() const;

 private:
  struct Order;
  struct Place {  // Of a picture in an order.
    Order* order;
    size_t index;
  };
  /// An order that is over, and what is said of it.
  struct Ended {
    std::unique_ptr<Order> order;
    Result<std::vector<Image>> result;
  };
  using Key = std::pair<double, uint64_t>;  // Tag, then arrival.

  void run(const std::stop_token& stop);
  void sweep(bool is_stopping, std::vector<Ended>& ended);
  void end(std::map<Key, std::unique_ptr<Order>>::iterator order, Result<std::vector<Image>> result, std::vector<Ended>& ended);
  std::vector<Place> choose_batch() const;
  void begin_new(std::vector<Place>& batch);
  void step(const std::vector<Place>& batch);
  void account(const std::vector<Place>& batch, Clock::Instant begun, std::vector<Ended>& ended);
  void tell(std::vector<Ended>& ended);
  double seconds_for(double cost) const;

  StepEngine& engine_;
  const StepBatcherOptions options_;
  Clock& clock_;
  Counter& calls_;
  Counter& stepped_pictures_;
  Counter& finished_pictures_;
  Gauge& open_cost_shown_;
  MetricsRegistry& metrics_;

  mutable std::mutex mutex_;
  std::condition_variable_any orders_changed_;
  // Guarded by mutex_. What an order has of the engine is touched by the thread alone, and only the thread removes orders.
  std::map<Key, std::unique_ptr<Order>> orders_;
  FairOrder fair_;
  double open_cost_ = 0.0;  // Of the calls that orders_ still need.
  double pace_ = 0.0;       // Cost per second, an average that forgets; 0: not known yet.
  uint64_t num_taken_ = 0;
  bool is_draining_ = false;
  bool gives_up_ = false;
  std::jthread thread_;  // Last: it uses everything else.
};

}  // namespace darkroom
