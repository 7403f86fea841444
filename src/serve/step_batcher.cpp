#include "darkroom/serve/step_batcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr double kPaceMemory = 0.95;                  // Weight of what was known of the pace before a call: some 20 calls count.
constexpr double kDoubt = 2.0;                        // How much faster than measured a machine may turn out that has nothing else to do.
constexpr std::chrono::seconds kUnknownPaceWait{10};  // A first call may take a minute, and the page asks 60 times.

// For which a call that was too large keeps the next ones small: twice as long each time.
constexpr std::chrono::seconds kLeastNarrow{60};
constexpr std::chrono::seconds kMostNarrow{3600};

double shown_seconds(Clock::Instant::duration duration) { return std::chrono::duration<double>(duration).count(); }

Counter& orders_counter(MetricsRegistry& metrics, const char* result) {
  return metrics.counter("darkroom_serve_orders_total", "Orders of pictures that ended, by how they ended.", {{"result", result}});
}

/// Of so many pictures of the model's own size.
double own_pixels(const ServedModel& model, int count) {
  return static_cast<double>(count) * model.facts.native_size * model.facts.native_size;
}

// Of pictures of a request, most do: then what holds of one holds of the other.
bool differ_in_seed_only(const PictureSpec& one, PictureSpec other) {
  other.seed = one.seed;
  return one == other;
}

const char* result_name(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return "done";
    case StatusCode::kCancelled:
      return "given_up";
    case StatusCode::kUnavailable:
      return "late_or_draining";
    case StatusCode::kResourceExhausted:
      return "no_room";
    default:
      return "failed";
  }
}

}  // namespace

/// An order that is taken.
struct StepBatcher::Order {
  struct Picture {
    std::unique_ptr<EnginePicture> work;  // Once it has begun, until it is finished.
    std::optional<Image> image;           // Once it is finished.
    double cost_per_call = 0.0;
    double open_cost = 0.0;
    size_t num_calls = 0;  // Of all its way.
  };
  PaintOrder asked;
  Done done;
  std::vector<Picture> pictures;
  double cost = 0.0;
  uint64_t watched = 0;  // Its number in deadlines_.
  Status failure;        // Of the engine.
  bool is_over = false;  // Told, though a call may still run for it.

  bool is_finished() const {
    return std::all_of(pictures.begin(), pictures.end(), [](const Picture& picture) { return picture.image.has_value(); });
  }
  double open_cost() const {
    double cost = 0.0;
    for (const Picture& picture : pictures) {
      cost += picture.open_cost;
    }
    return cost;
  }
};

Status StepBatcherOptions::validate() const {
  if (max_batch < 1 || max_batch > 1024) {
    return Status::invalid_argument("a batch has from 1 to 1,024 pictures, got:", max_batch);
  }
  if (!(max_pixels >= 0.0 && std::isfinite(max_pixels))) {
    return Status::invalid_argument("the bound on the pixels of a network call must be at least 0, got:", max_pixels);
  }
  if (max_orders < 1) {
    return Status::invalid_argument("the bound on the number of open requests must be at least 1, got:", max_orders);
  }
  if (!(queue_cost > 0.0 && std::isfinite(queue_cost))) {
    return Status::invalid_argument("the bound on the cost of open requests must be above 0, got:", queue_cost);
  }
  return Status::ok();
}

double PaintOrder::cost() const {
  double cost = 0.0;
  for (const PictureSpec& picture : pictures) {
    cost += picture.cost();
  }
  return cost;
}

StepBatcher::StepBatcher(StepEngine& engine, const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock)
    : StepBatcher(&engine, options, metrics, clock) {}

StepBatcher::StepBatcher(const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock)
    : StepBatcher(nullptr, options, metrics, clock) {}

StepBatcher::StepBatcher(StepEngine* engine, const StepBatcherOptions& options, MetricsRegistry& metrics, Clock& clock)
    : engine_(engine),
      options_(options),
      clock_(clock),
      calls_(metrics.counter("darkroom_serve_calls_total", "Network calls, each a step of some pictures.")),
      stepped_pictures_(metrics.counter("darkroom_serve_steps_total", "Steps of pictures: calls times the pictures in each.")),
      finished_pictures_(metrics.counter("darkroom_serve_pictures_total", "Pictures painted to their end.")),
      open_cost_shown_(metrics.gauge("darkroom_serve_open_cost", "Pixels times steps that open requests still need.")),
      metrics_(metrics),
      largest_batch_(static_cast<size_t>(options.max_batch)),
      narrow_for_(kLeastNarrow),
      deadlines_(clock),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

StepBatcher::~StepBatcher() {
  thread_.request_stop();
  thread_.join();
}

StepEngine& StepBatcher::engine_of(const HeldModel& model) const {
  StepEngine* const engine = model != nullptr && model->engine != nullptr ? model->engine.get() : engine_;
  DARKROOM_CHECK(engine != nullptr, "an order without a model that is loaded");
  return *engine;
}

Status StepBatcher::check(const PaintOrder& order) const {
  DARKROOM_CHECK(!order.pictures.empty(), "an order of no pictures");
  const PictureSpec* before = nullptr;
  for (const PictureSpec& picture : order.pictures) {
    if (before == nullptr || !differ_in_seed_only(*before, picture)) {
      DARKROOM_RETURN_IF_ERROR(engine_of(order).check(picture));
    }
    before = &picture;
  }
  return Status::ok();
}

Status StepBatcher::would_take(const PaintOrder& order) {
  DARKROOM_RETURN_IF_ERROR(check(order));
  std::vector<Ended> ended;
  const Status found = [&] {
    const std::lock_guard lock(mutex_);
    end_given_up(ended);  // They make room.
    return find_room(order);
  }();
  tell(ended);
  return found;
}

Status StepBatcher::submit(PaintOrder order, Done done) {
  DARKROOM_RETURN_IF_ERROR(check(order));
  std::vector<Ended> ended;
  const Status taken = take(std::move(order), std::move(done), ended);
  tell(ended);
  return taken;
}

Status StepBatcher::take(PaintOrder order, Done done, std::vector<Ended>& ended) {
  const double cost = order.cost();
  const std::lock_guard lock(mutex_);
  end_given_up(ended);
  DARKROOM_RETURN_IF_ERROR(find_room(order));
  auto taken = std::make_shared<Order>();
  taken->asked = std::move(order);
  taken->done = std::move(done);
  taken->cost = cost;
  taken->pictures.resize(taken->asked.pictures.size());
  for (size_t i = 0; i < taken->pictures.size(); ++i) {
    taken->pictures[i].open_cost = taken->asked.pictures[i].cost();
  }
  const Key key(fair_.join(cost), num_taken_++);
  taken->watched = deadlines_.add(taken->asked.deadline, [this, key] { end_late(key); });
  orders_.emplace(key, std::move(taken));
  open_cost_ += cost;
  open_cost_shown_.set(open_cost_);
  changed_.notify_all();
  return Status::ok();
}

Status StepBatcher::find_room(const PaintOrder& order) {
  const double cost = order.cost();
  const double bound = std::max(options_.queue_cost, order.model != nullptr ? order.model->queue_cost : 0.0);
  if (is_draining_) {
    return Status::unavailable("the server is shutting down and takes no more requests");
  }
  if (cost > bound) {
    return Status::invalid_argument(
        "the request is larger than this server takes: width x height x (steps + 2) x images is above its bound (got, bound):", cost,
        bound);
  }
  double most_open = bound;  // Of a small model beside a large one, the large one's.
  for (const auto& [key, open] : orders_) {
    most_open = std::max(most_open, open->asked.model != nullptr ? open->asked.model->queue_cost : 0.0);
  }
  if (open_cost_ + cost > most_open || orders_.size() >= static_cast<size_t>(options_.max_orders)) {
    orders_counter(metrics_, "no_room").add();
    return Status::resource_exhausted("the server has as much to do as it takes on; try again later");
  }
  const double seconds_left = order.deadline == Clock::Instant::max() ? INFINITY : shown_seconds(order.deadline - clock_.now());
  if (seconds_left <= 0.0) {
    orders_counter(metrics_, "late_or_draining").add();
    return past_deadline();
  }
  const double seconds_needed = seconds_until_done(cost);
  const bool measures_anew = orders_.empty() && is_pace_old();
  return seconds_needed > seconds_left && !measures_anew ? refuse_late(seconds_needed, seconds_left) : Status::ok();
}

Status StepBatcher::refuse_late(double seconds_needed, double seconds_left) {
  orders_counter(metrics_, "no_room").add();
  if (!orders_.empty()) {
    return Status::resource_exhausted("at its present pace the server would not have the request done by its deadline; try again later");
  }
  pace_refuses_until_ = last_measured_ + kPaceKept;
  return Status::resource_exhausted(fmt::format(
      "at its last pace the server needs {:.0f} s or more for this request alone, and its deadline is in {:.0f} s; ask for fewer "
      "steps, fewer or smaller pictures, give it more time, or try again later",
      std::ceil(seconds_needed), seconds_left));
}

bool StepBatcher::is_pace_old() const { return clock_.now() - last_measured_ >= kPaceKept; }

// At the present pace; 0 while that is not known.
double StepBatcher::seconds_for(double cost) const { return recent_cost_ > 0.0 ? cost * recent_seconds_ / recent_cost_ : 0.0; }

// An order is done at the latest when equal sharing would have it done, and by then every other has had at most as much as it.
double StepBatcher::seconds_until_done(double cost) const {
  double before = cost;
  for (const auto& [key, order] : orders_) {
    before += std::min(cost, order->open_cost());
  }
  return seconds_for(before) / (orders_.empty() ? kDoubt : 1.0);
}

void StepBatcher::drain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
}

bool StepBatcher::is_draining() const {
  const std::lock_guard lock(mutex_);
  return is_draining_;
}

void StepBatcher::give_up_all() {
  std::vector<Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    sweep(true, ended);
    changed_.notify_all();
  }
  tell(ended);
}

bool StepBatcher::await_idle(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return orders_.empty() && !is_calling_ && num_untold_ == 0; });
}

std::chrono::seconds StepBatcher::retry_after() const {
  const std::lock_guard lock(mutex_);
  const Clock::Instant now = clock_.now();
  if (orders_.empty() && now < pace_refuses_until_) {
    return std::chrono::ceil<std::chrono::seconds>(pace_refuses_until_ - now);
  }
  if (!orders_.empty() && recent_cost_ == 0.0) {
    return kUnknownPaceWait;
  }
  return std::chrono::seconds(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(std::min(seconds_for(open_cost_), 60.0))), 1, 60));
}

void StepBatcher::run(const std::stop_token& stop) {
  for (;;) {
    std::vector<Ended> ended;
    std::vector<Place> batch;
    std::vector<std::shared_ptr<Order>> left;
    bool is_stopping = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !orders_.empty() || !left_.empty(); });
      is_stopping = stop.stop_requested();
      sweep(is_stopping, ended);
      left.swap(left_);
      widen();
      batch = choose_batch();
      is_calling_ = !batch.empty();
    }
    left.clear();
    tell(ended);
    if (is_stopping) {
      return;
    }
    if (!batch.empty()) {
      const Clock::Instant begun = clock_.now();
      begin_new(batch);
      const bool has_stepped = !batch.empty() && step(batch);
      show_previews(batch);
      finish(batch);
      {
        const std::lock_guard lock(mutex_);
        account(batch, begun, has_stepped, ended);
      }
      report(batch);
      {
        const std::lock_guard lock(mutex_);
        is_calling_ = false;
        changed_.notify_all();
      }
    }
    tell(ended);
  }
}

void StepBatcher::end_given_up(std::vector<Ended>& ended) {
  for (auto it = orders_.begin(); it != orders_.end();) {
    const auto here = it++;
    if (here->second->asked.given_up.stop_requested()) {
      end(here, Status::cancelled("the request was given up"), ended);
    }
  }
}

// A call may run for it: neither its failure nor its pictures are looked at, as they are the other thread's.
void StepBatcher::end_late(const Key& key) {
  std::vector<Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    if (const auto order = orders_.find(key); order != orders_.end()) {
      end(order, past_deadline(), ended);
    }
  }
  tell(ended);
}

// Ends what is not worth another call.
void StepBatcher::sweep(bool is_stopping, std::vector<Ended>& ended) {
  end_given_up(ended);
  const Clock::Instant now = clock_.now();
  for (auto it = orders_.begin(); it != orders_.end();) {
    const auto here = it++;
    const Order& order = *here->second;
    if (is_stopping) {
      end(here, Status::unavailable("the server is shutting down and could not finish the request"), ended);
    } else if (!order.failure.is_ok()) {
      end(here, order.failure, ended);
    } else if (order.asked.deadline <= now) {
      end(here, past_deadline(), ended);
    }
  }
}

void StepBatcher::end(Orders::iterator order, Result<std::vector<Image>> result, std::vector<Ended>& ended) {
  if (!result.is_ok()) {
    fair_.leave(order->first.first);  // One that is done keeps its share, as equal sharing would still be at it.
  }
  deadlines_.remove(order->second->watched);
  open_cost_ -= order->second->open_cost();
  order->second->is_over = true;
  orders_counter(metrics_, result_name(result.status())).add();  // Before it is seen to be gone.
  ended.push_back({std::move(order->second->done), std::move(result)});
  ++num_untold_;
  left_.push_back(std::move(order->second));
  orders_.erase(order);
  if (orders_.empty()) {
    fair_ = FairOrder();
    open_cost_ = 0.0;
  }
  open_cost_shown_.set(open_cost_);
  changed_.notify_all();  // Who waits for the last one to end.
}

// What took the memory may have been another model that was being loaded.
void StepBatcher::widen() {
  const auto most = static_cast<size_t>(options_.max_batch);
  if (largest_batch_ < most && clock_.now() >= widen_at_) {
    largest_batch_ = std::min(2 * largest_batch_, most);
    widen_at_ = clock_.now() + narrow_for_;
  }
}

std::vector<StepBatcher::Place> StepBatcher::choose_batch() const {
  std::vector<Place> batch;
  if (orders_.empty()) {
    return batch;
  }
  const PaintOrder& asked = orders_.begin()->second->asked;
  const PictureSpec& first = asked.pictures.front();
  const double pixels = static_cast<double>(first.width) * first.height;
  const double max_pixels =
      asked.model == nullptr || asked.model->engine == nullptr ? options_.max_pixels : own_pixels(*asked.model, options_.max_batch);
  const size_t most = max_pixels == 0.0
                          ? largest_batch_
                          : static_cast<size_t>(std::clamp(std::floor(max_pixels / pixels), 1.0, static_cast<double>(largest_batch_)));
  const StepEngine& engine = engine_of(asked);
  for (const auto& [key, order] : orders_) {
    const PictureSpec& other = order->asked.pictures.front();
    if (&engine_of(order->asked) != &engine || other.width != first.width || other.height != first.height) {
      continue;
    }
    for (size_t i = 0; i < order->pictures.size() && batch.size() < most; ++i) {
      if (!order->pictures[i].image.has_value()) {
        batch.push_back({order, i});
      }
    }
  }
  return batch;
}

// Leaves those in the batch that have begun.
void StepBatcher::begin_new(std::vector<Place>& batch) {
  std::erase_if(batch, [this](const Place& place) {
    Order& order = *place.order;
    Order::Picture& picture = order.pictures[place.index];
    if (picture.work != nullptr || !order.failure.is_ok()) {
      return !order.failure.is_ok();
    }
    try {
      auto begun = engine_of(order.asked).begin(order.asked.pictures[place.index]);
      order.failure = begun.status();
      picture.work = begun.is_ok() ? std::move(*begun) : nullptr;
    } catch (const std::exception& failure) {
      log_error("serve: a picture could not be begun: {}", failure.what());
      order.failure = Status::internal("the picture could not be begun; the server's log says why");
    }
    if (picture.work != nullptr) {
      picture.num_calls = picture.work->num_calls_left();
      picture.cost_per_call = picture.open_cost / static_cast<double>(std::max<size_t>(1, picture.num_calls));
      report(std::span(&place, 1));
    }
    return picture.work == nullptr;
  });
}

// Tells the orders of a batch how far they are.
void StepBatcher::report(std::span<const Place> batch) {
  const Order* told = nullptr;  // The pictures of an order stand together.
  for (const Place& place : batch) {
    const Order& order = *place.order;
    if (&order == std::exchange(told, &order) || order.asked.progress == nullptr) {
      continue;
    }
    try {
      order.asked.progress(std::clamp(1.0 - order.open_cost() / order.cost, 0.0, 1.0));
    } catch (const std::exception& failure) {  // An order is a boundary.
      log_error("serve: progress could not be told: {}", failure.what());
    }
  }
}

// A picture that shows no preview is painted all the same.
void StepBatcher::show_previews(std::span<const Place> batch) {
  for (const Place& place : batch) {
    const Order& order = *place.order;
    const Order::Picture& picture = order.pictures[place.index];
    const int every = order.asked.pictures[place.index].preview_every;
    const size_t num_left = picture.work->num_calls_left();
    const size_t num_done = picture.num_calls - num_left;
    const bool is_wanted = every > 0 && order.asked.show != nullptr && order.failure.is_ok();
    if (!is_wanted || num_left == 0 || num_done == 0 || num_done % static_cast<size_t>(every) != 0) {
      continue;
    }
    try {
      if (order.asked.is_watched != nullptr && !order.asked.is_watched()) {
        continue;
      }
      order.asked.show(place.index, engine_of(order.asked).preview(*picture.work));
    } catch (const std::exception& failure) {
      log_error("serve: a preview could not be shown: {}", failure.what());
    }
  }
}

// Takes a step of each. What one picture cannot take costs the others nothing: after a call that failed each is tried alone that it has
// not brought forward.
bool StepBatcher::step(std::span<const Place> batch) {
  std::vector<EnginePicture*> works;
  std::vector<size_t> calls_left;
  for (const Place& place : batch) {
    works.push_back(place.order->pictures[place.index].work.get());
    calls_left.push_back(works.back()->num_calls_left());
  }
  try {
    engine_of(batch.front().order->asked).step(works);
    calls_.add();
    stepped_pictures_.add(static_cast<int64_t>(works.size()));
    return true;
  } catch (const std::exception& failure) {
    log_error("serve: a step failed (pictures, reason): {} {}", works.size(), failure.what());
  }
  std::vector<Place> left;
  for (size_t i = 0; i < works.size(); ++i) {
    if (works[i]->num_calls_left() == calls_left[i]) {
      left.push_back(batch[i]);
    }
  }
  stepped_pictures_.add(static_cast<int64_t>(works.size() - left.size()));
  if (works.size() == 1 && left.size() == 1) {
    left.front().order->failure = Status::internal("painting failed; the server's log says why");
    return false;
  }
  const auto num_stepped = std::count_if(left.begin(), left.end(), [this](const Place& place) { return step(std::span(&place, 1)); });
  if (num_stepped > 0 && num_stepped == static_cast<std::ptrdiff_t>(left.size())) {  // Too many at once is what failed.
    halve_batches(batch.size());
  }
  return left.size() < works.size() || num_stepped > 0;
}

void StepBatcher::halve_batches(size_t num_pictures) {
  largest_batch_ = num_pictures / 2;
  widen_at_ = clock_.now() + narrow_for_;
  log_warning("serve: for now a network call has at most so many pictures; more are tried again in so many seconds: {} {}", largest_batch_,
              narrow_for_.count());
  narrow_for_ = std::min(2 * narrow_for_, kMostNarrow);
}

void StepBatcher::finish(std::span<const Place> batch) {
  for (const Place& place : batch) {
    Order::Picture& picture = place.order->pictures[place.index];
    if (!place.order->failure.is_ok() || picture.work->num_calls_left() > 0) {
      continue;
    }
    try {
      Result<Image> image = engine_of(place.order->asked).finish(*picture.work);
      if (!image.is_ok()) {
        log_error("serve: a picture could not be finished: {}", image.status().message());
        place.order->failure = image.status();
        continue;
      }
      picture.image = *std::move(image);
      picture.work = nullptr;
      finished_pictures_.add();
    } catch (const std::exception& failure) {
      log_error("serve: a picture could not be finished: {}", failure.what());
      place.order->failure = Status::internal("the picture could not be finished; the server's log says why");
    }
  }
}

void StepBatcher::account(const std::vector<Place>& batch, Clock::Instant begun, bool has_stepped, std::vector<Ended>& ended) {
  double cost = 0.0;
  for (const Place& place : batch) {
    Order::Picture& picture = place.order->pictures[place.index];
    const double part = picture.image.has_value() ? picture.open_cost : std::min(picture.cost_per_call, picture.open_cost);
    picture.open_cost -= part;
    cost += part;
    open_cost_ -= place.order->is_over ? 0.0 : part;
  }
  if (has_stepped) {
    fair_.work_done(cost);
    measure(cost, begun);
  }
  for (auto it = orders_.begin(); it != orders_.end();) {
    const auto here = it++;
    if (here->second->failure.is_ok() && here->second->is_finished()) {
      std::vector<Image> images;
      for (Order::Picture& picture : here->second->pictures) {
        images.push_back(*std::move(picture.image));
        picture.image.reset();
      }
      end(here, std::move(images), ended);
    }
  }
  open_cost_shown_.set(open_cost_);
}

// What was measured long before a call says nothing of the machine as it is now.
void StepBatcher::measure(double cost, Clock::Instant begun) {
  const Clock::Instant now = clock_.now();
  const double memory = begun - last_measured_ < kPaceKept ? kPaceMemory : 0.0;
  recent_cost_ = memory * recent_cost_ + cost;
  recent_seconds_ = memory * recent_seconds_ + shown_seconds(now - begun);
  last_measured_ = now;
  pace_refuses_until_ = {};
}

void StepBatcher::tell(std::vector<Ended>& ended) {
  for (Ended& one : ended) {
    try {
      one.done(std::move(one.result));
    } catch (const std::exception& failure) {  // An order is a boundary.
      log_error("serve: pictures could not be handed over: {}", failure.what());
    }
  }
  if (!ended.empty()) {
    const std::lock_guard lock(mutex_);
    num_untold_ -= ended.size();
    changed_.notify_all();
  }
  ended.clear();
}

}  // namespace darkroom
