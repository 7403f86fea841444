#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/serve/deadline_watch.h"
#include "darkroom/serve/fair_order.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

struct StepBatcherOptions {
  int max_batch = 8;  ///< Pictures in one network call.
  /// In one network call, except that a single picture may have any number; 0: no bound. An order that names its model has its own bound:
  /// the pixels of max_batch pictures of the model's own size.
  double max_pixels = 0.0;
  /// Bound on the cost (PictureSpec::cost) of all orders that are taken and not done: 32 pictures of 512 px and 50 steps.
  double queue_cost = 436'207'616;
  int max_orders = 1024;    ///< That are taken and not done.
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Pictures that are asked for together and handed over together.
struct PaintOrder {
  std::vector<PictureSpec> pictures;  ///< Not empty, of one size.
  HeldModel model = {};               ///< What paints them; null: the batcher's own engine.
  Clock::Instant deadline = Clock::Instant::max();
  std::stop_token given_up = {};  ///< Once a stop is requested, nobody wants the pictures any more.

  // They are called by the batcher's thread before it tells the order's end (another thread may tell that at any time), must be quick and
  // not call the batcher.

  /// Told when the order's first picture begins and after each network call for it: the share of its cost that is done, from 0 to 1.
  std::function<void(double share)> progress = {};
  /// Shown how pictures look whose PictureSpec asks for previews.
  std::function<void(size_t picture, Image preview)> show = {};
  /// Whether somebody would look at a preview now; null: yes.
  std::function<bool()> is_watched = {};
  double cost() const;
};

/// Paints orders on a thread of its own, one network call at a time. Between any two calls orders join and leave: each call takes the next
/// step of up to max_batch pictures of one model and one size, those first that FairOrder puts first, whatever their model. An order that
/// is past its deadline, given up or failed costs no further call, and what fails for one picture fails for its order alone. A deadline is
/// told when it passes, also while a call runs. Thread safety: any thread.
class StepBatcher {
 public:
  /// Called once, with a picture per spec in their order, or: kInvalidArgument (the engine's refusal), kUnavailable (the deadline, or the
  /// batcher ends), kCancelled (given up), kInternal. By a thread of the batcher's, or within somebody's submit(), would_take() or
  /// give_up_all(), without the batcher's lock: it may ask the batcher what it is like (retry_after()), must be quick and not change it.
  using Done = std::function<void(Result<std::vector<Image>>)>;

  /// `engine` paints the orders that name no model. REQUIRES: valid options; engine, clock and metrics outlive the batcher.
  StepBatcher(StepEngine& engine, const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock = system_clock());
  /// Every order names its model. REQUIRES: as above.
  StepBatcher(const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock = system_clock());
  /// Ends every order with kUnavailable, after the network call that runs.
  ~StepBatcher();
  StepBatcher(const StepBatcher&) = delete;
  StepBatcher& operator=(const StepBatcher&) = delete;

  /// How long a pace is believed of a machine that does nothing: then one order is let in, whatever the pace was, and measures it anew.
  static constexpr std::chrono::seconds kPaceKept{30};

  /// Takes an order, or refuses it at once without calling `done`. Errors: kInvalidArgument (the engine's refusal, or it alone costs more
  /// than the whole bound), kResourceExhausted (there is no room, or at the present pace it would miss its deadline), kUnavailable
  /// (draining, or the deadline has passed).
  Status submit(PaintOrder order, Done done);
  /// Whether submit() would take the order now. Errors: as submit().
  Status would_take(const PaintOrder& order);

  /// From now on no order is taken; those that are taken go on.
  void drain();
  bool is_draining() const;
  /// Drains and ends every order with kUnavailable, at once, while a network call may still run.
  void give_up_all();
  /// Waits until no order is left, every `done` has returned and no network call runs. False after `patience`.
  bool await_idle(std::chrono::milliseconds patience) const;

  /// StepEngine::unread() of the model (null: the batcher's own engine).
  UnreadTexts unread(const HeldModel& model, const PictureSpec& picture) const { return engine_of(model).unread(picture); }

  /// Painted to their end.
  int64_t num_pictures() const { return finished_pictures_.value(); }

  /// When it makes sense to ask again: the time for what is taken, at the present pace, from 1 to 60 s, or 10 s before any is known; where
  /// nothing is, and an order was refused for the pace alone, when that is no longer believed.
  std::chrono::seconds retry_after() const;

 private:
  struct Order;
  struct Place {  // Of a picture in an order.
    std::shared_ptr<Order> order;
    size_t index;
  };
  /// An order that is over, and what is said of it.
  struct Ended {
    Done done;
    Result<std::vector<Image>> result;
  };
  using Key = std::pair<double, uint64_t>;               // Tag, then arrival.
  using Orders = std::map<Key, std::shared_ptr<Order>>;  // Shared with the batch of the call that runs.

  StepBatcher(StepEngine* engine, const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock);
  StepEngine& engine_of(const HeldModel& model) const;
  StepEngine& engine_of(const PaintOrder& order) const { return engine_of(order.model); }
  void run(const std::stop_token& stop);
  Status check(const PaintOrder& order) const;
  Status take(PaintOrder order, Done done, std::vector<Ended>& ended);
  Status find_room(const PaintOrder& order);
  Status refuse_late(double seconds_needed, double seconds_left);
  bool is_pace_old() const;
  double seconds_for(double cost) const;
  double seconds_until_done(double cost) const;
  void sweep(bool is_stopping, std::vector<Ended>& ended);
  void end_given_up(std::vector<Ended>& ended);
  void end_late(const Key& key);
  void end(Orders::iterator order, Result<std::vector<Image>> result, std::vector<Ended>& ended);
  void widen();
  std::vector<Place> choose_batch() const;
  void begin_new(std::vector<Place>& batch);
  bool step(std::span<const Place> batch);
  void halve_batches(size_t num_pictures);
  void report(std::span<const Place> batch);
  void show_previews(std::span<const Place> batch);
  void finish(std::span<const Place> batch);
  void account(const std::vector<Place>& batch, Clock::Instant begun, bool has_stepped, std::vector<Ended>& ended);
  void measure(double cost, Clock::Instant begun);
  void tell(std::vector<Ended>& ended);

  StepEngine* const engine_;  // Of orders that name no model; null: there are none.
  const StepBatcherOptions options_;
  Clock& clock_;
  Counter& calls_;
  Counter& stepped_pictures_;
  Counter& finished_pictures_;
  Gauge& open_cost_shown_;
  MetricsRegistry& metrics_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  // Guarded by mutex_. What an order has of the engine is touched by the thread alone, which destroys it too.
  Orders orders_;
  std::vector<std::shared_ptr<Order>> left_;  // Orders that are over, for the thread to destroy.
  FairOrder fair_;
  double open_cost_ = 0.0;    // Of the calls that orders_ still need.
  double recent_cost_ = 0.0;  // That calls did, in sums that forget, and how long they took: their ratio is the pace.
  double recent_seconds_ = 0.0;
  Clock::Instant last_measured_ = {};       // The end of the last call that went into them.
  Clock::Instant pace_refuses_until_ = {};  // That pace; past: it has refused nothing.
  uint64_t num_taken_ = 0;
  bool is_draining_ = false;
  bool is_calling_ = false;
  size_t num_untold_ = 0;  // Orders that have ended and whose Done has not returned.
  // The thread's own: max_batch, or less since the machine has shown that it cannot, until more is tried again.
  size_t largest_batch_;
  Clock::Instant widen_at_ = {};
  std::chrono::seconds narrow_for_;
  DeadlineWatch deadlines_;  // Of orders_: its thread ends those that the other one, which may be in a call, would end too late.
  std::jthread thread_;      // Last: it uses everything else.
};

}  // namespace darkroom
