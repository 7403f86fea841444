#include "darkroom/serve/step_batcher.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr double kPaceMemory = 0.8;  // Weight of what was known of the pace before a call.

double shown_seconds(Clock::Instant::duration duration) { return std::chrono::duration<double>(duration).count(); }

Counter& orders_counter(MetricsRegistry& metrics, const char* result) {
  return metrics.counter("darkroom_serve_orders_total", "Orders of pictures that ended, by how they ended.", {{"result", result}});
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
  };
  PaintOrder asked;
  Done done;
  std::vector<Picture> pictures;
  Status failure;  // Of the engine.

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
    : engine_(engine),
      options_(options),
      clock_(clock),
      calls_(metrics.counter("darkroom_serve_calls_total", "Network calls, each a step of some pictures.")),
      stepped_pictures_(metrics.counter("darkroom_serve_steps_total", "Steps of pictures: calls times the pictures in each.")),
      finished_pictures_(metrics.counter("darkroom_serve_pictures_total", "Pictures painted to their end.")),
      open_cost_shown_(metrics.gauge("darkroom_serve_open_cost", "Pixels times steps that open requests still need.")),
      metrics_(metrics),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

StepBatcher::~StepBatcher() {
  thread_.request_stop();
  thread_.join();
}

double StepBatcher::seconds_for(double cost) const { return pace_ > 0.0 ? cost / pace_ : 0.0; }

Status StepBatcher::submit(PaintOrder order, Done done) {
  DARKROOM_CHECK(!order.pictures.empty(), "an order of no pictures");
  const double cost = order.cost();
  const std::lock_guard lock(mutex_);
  if (is_draining_) {
    return Status::unavailable("the server is shutting down and takes no more requests");
  }
  if (cost > options_.queue_cost) {
    return Status::invalid_argument(
        "the request is larger than this server takes: width x height x steps x images is above its bound (got, bound):", cost,
        options_.queue_cost);
  }
  if (open_cost_ + cost > options_.queue_cost) {
    orders_counter(metrics_, "no_room").add();
    return Status::resource_exhausted("the server has as much to do as it takes on; try again later");
  }
  const double seconds_left = order.deadline == Clock::Instant::max() ? INFINITY : shown_seconds(order.deadline - clock_.now());
  if (!orders_.empty() && seconds_for(open_cost_ + cost) > seconds_left) {
    orders_counter(metrics_, "no_room").add();
    return Status::resource_exhausted("the server has so much to do that the request would miss its deadline; try again later");
  }
  auto taken = std::make_unique<Order>();
  taken->asked = std::move(order);
  taken->done = std::move(done);
  taken->pictures.resize(taken->asked.pictures.size());
  for (size_t i = 0; i < taken->pictures.size(); ++i) {
    taken->pictures[i].open_cost = taken->asked.pictures[i].cost();
  }
  orders_.emplace(Key(fair_.join(cost), num_taken_++), std::move(taken));
  open_cost_ += cost;
  open_cost_shown_.set(open_cost_);
  orders_changed_.notify_all();
  return Status::ok();
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
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
  gives_up_ = true;
}

std::chrono::seconds StepBatcher::retry_after() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::seconds(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(std::min(seconds_for(open_cost_), 60.0))), 1, 60));
}

void StepBatcher::run(const std::stop_token& stop) {
  for (;;) {
    std::vector<Ended> ended;
    std::vector<Place> batch;
    bool is_stopping = false;
    {
      std::unique_lock lock(mutex_);
      orders_changed_.wait(lock, stop, [this] { return !orders_.empty(); });
      is_stopping = stop.stop_requested();
      sweep(is_stopping, ended);
      batch = choose_batch();
    }
    tell(ended);
    if (is_stopping) {
      return;
    }
    if (!batch.empty()) {
      const Clock::Instant begun = clock_.now();
      begin_new(batch);
      step(batch);
      const std::lock_guard lock(mutex_);
      account(batch, begun, ended);
    }
    tell(ended);
  }
}

// Ends what is not worth another call.
void StepBatcher::sweep(bool is_stopping, std::vector<Ended>& ended) {
  const Clock::Instant now = clock_.now();
  for (auto it = orders_.begin(); it != orders_.end();) {
    const auto here = it++;
    const Order& order = *here->second;
    if (is_stopping || gives_up_) {
      end(here, Status::unavailable("the server is shutting down and could not finish the request"), ended);
    } else if (order.asked.given_up.stop_requested()) {
      end(here, Status::cancelled("the request was given up"), ended);
    } else if (!order.failure.is_ok()) {
      end(here, order.failure, ended);
    } else if (order.asked.deadline <= now) {
      end(here, Status::unavailable("the request was not done by its deadline"), ended);
    }
  }
}

void StepBatcher::end(std::map<Key, std::unique_ptr<Order>>::iterator order, Result<std::vector<Image>> result, std::vector<Ended>& ended) {
  fair_.leave(order->first.first);
  open_cost_ -= order->second->open_cost();
  ended.push_back({std::move(order->second), std::move(result)});
  orders_.erase(order);
  open_cost_ = orders_.empty() ? 0.0 : open_cost_;  // Sums of rounded numbers end where they began.
  open_cost_shown_.set(open_cost_);
}

// The leader decides on the size; others of that size fill the call.
std::vector<StepBatcher::Place> StepBatcher::choose_batch() const {
  std::vector<Place> batch;
  const auto size_of = [](const Order& order) {
    return std::pair(order.asked.pictures.front().width, order.asked.pictures.front().height);
  };
  for (const auto& [key, order] : orders_) {
    if (size_of(*order) != size_of(*orders_.begin()->second)) {
      continue;
    }
    for (size_t i = 0; i < order->pictures.size() && batch.size() < static_cast<size_t>(options_.max_batch); ++i) {
      if (!order->pictures[i].image.has_value()) {
        batch.push_back({order.get(), i});
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
      auto begun = engine_.begin(order.asked.pictures[place.index]);
      order.failure = begun.status();
      picture.work = begun.is_ok() ? std::move(*begun) : nullptr;
    } catch (const std::exception& failure) {
      log_error("serve: a picture could not be begun: {}", failure.what());
      order.failure = Status::internal("the picture could not be begun; the server's log says why");
    }
    if (picture.work != nullptr) {
      picture.cost_per_call = picture.open_cost / static_cast<double>(std::max<size_t>(1, picture.work->num_calls_left()));
    }
    return picture.work == nullptr;
  });
}

void StepBatcher::step(const std::vector<Place>& batch) {
  std::vector<EnginePicture*> works;
  for (const Place& place : batch) {
    works.push_back(place.order->pictures[place.index].work.get());
  }
  try {
    if (!works.empty()) {
      engine_.step(works);
      calls_.add();
      stepped_pictures_.add(static_cast<int64_t>(works.size()));
    }
    for (const Place& place : batch) {
      Order::Picture& picture = place.order->pictures[place.index];
      if (picture.work->num_calls_left() == 0) {
        picture.image = engine_.finish(*picture.work);
        picture.work = nullptr;
        finished_pictures_.add();
      }
    }
  } catch (const std::exception& failure) {
    log_error("serve: a step failed: {}", failure.what());
    for (const Place& place : batch) {
      place.order->failure = Status::internal("painting failed; the server's log says why");
    }
  }
}

void StepBatcher::account(const std::vector<Place>& batch, Clock::Instant begun, std::vector<Ended>& ended) {
  double cost = 0.0;
  for (const Place& place : batch) {
    Order::Picture& picture = place.order->pictures[place.index];
    const double part = picture.image.has_value() ? picture.open_cost : std::min(picture.cost_per_call, picture.open_cost);
    picture.open_cost -= part;
    cost += part;
  }
  open_cost_ -= cost;
  fair_.work_done(cost);
  const double seconds = shown_seconds(clock_.now() - begun);
  if (seconds > 0.0 && cost > 0.0) {
    pace_ = pace_ == 0.0 ? cost / seconds : kPaceMemory * pace_ + (1.0 - kPaceMemory) * cost / seconds;
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

void StepBatcher::tell(std::vector<Ended>& ended) {
  for (Ended& one : ended) {
    orders_counter(metrics_, result_name(one.result.status())).add();
    one.order->done(std::move(one.result));
  }
  ended.clear();
}

}  // namespace darkroom
