#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"
#include "model_shelf_state.h"

namespace darkroom {
namespace {

Status no_more_models() { return Status::unavailable("the server is shutting down and loads no model any more"); }

}  // namespace

void ModelShelf::Shelf::tell(Told& told) {
  for (const auto& one : told) {
    try {
      one();
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a model could not be handed over: {}", failure.what());
    }
  }
  told.clear();
}

HeldModel ModelShelf::Shelf::lend(const SlotPointer& slot) {
  ++slot->num_uses;
  slot->last_use = ++num_uses;
  return {slot->loaded.get(), [self = shared_from_this(), slot, model = slot->loaded](const ServedModel*) mutable {
            model.reset();
            const std::lock_guard lock(self->mutex);
            --slot->num_uses;
            self->changed.notify_all();
          }};
}

void ModelShelf::Shelf::wait_for(Waiting asked, Told& told) {
  if (is_draining) {
    told.emplace_back([use = std::move(asked.use)] { use(no_more_models()); });
    return;
  }
  serve_waiting(told);  // Those that are gone make room.
  if (waiting.size() >= options.max_waiting) {
    told.emplace_back([use = std::move(asked.use)] {
      use(Status::resource_exhausted("as many requests wait for models to be loaded as the server takes on; try again later"));
    });
    return;
  }
  waiting.push_back(std::move(asked));
  changed.notify_all();
}

bool ModelShelf::Shelf::is_wanted(const SlotPointer& slot) const {
  return std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.slot == slot && !one.gone.stop_requested(); });
}

ModelShelf::Shelf::SlotPointer ModelShelf::Shelf::next_to_load() const {
  const auto found = std::find_if(waiting.begin(), waiting.end(), [](const Waiting& one) { return one.slot->loaded == nullptr; });
  return found == waiting.end() ? nullptr : found->slot;
}

void ModelShelf::Shelf::end_waits(const SlotPointer& slot, const Status& failure, Told& told) {
  for (auto it = waiting.begin(); it != waiting.end();) {
    const auto here = it++;
    if (slot == nullptr || here->slot == slot) {
      told.emplace_back([use = std::move(here->use), failure] { use(failure); });
      waiting.erase(here);
    }
  }
}

// Ends the waits that are over, for better or worse.
void ModelShelf::Shelf::serve_waiting(Told& told) {
  const Clock::Instant now = clock.now();
  for (auto it = waiting.begin(); it != waiting.end();) {
    const auto here = it++;
    std::optional<Result<HeldModel>> end;
    if (here->gone.stop_requested()) {
      end.emplace(Status::cancelled("the request was given up"));
    } else if (here->slot->is_lendable()) {
      end.emplace(lend(here->slot));
    } else if (here->deadline <= now) {
      end.emplace(Status::unavailable("the model was not loaded by the request's deadline:", here->slot->entry.name));
    }
    if (end.has_value()) {
      told.emplace_back([use = std::move(here->use), end = *std::move(end)]() mutable { use(std::move(end)); });
      const SlotPointer slot = std::move(here->slot);
      waiting.erase(here);
      std::erase_if(slots, [&](const SlotPointer& one) { return one == slot && slot->is_abandoned() && !is_wanted(slot); });
    }
  }
}

void ModelShelf::Shelf::serve_retired(Told& told) {
  const Clock::Instant now = clock.now();
  for (auto it = retired.begin(); it != retired.end();) {
    const auto here = it++;
    if (here->slot->num_uses == 0 && !here->slot->is_opening) {
      release(here->slot, told);
      told.emplace_back([done = std::move(here->done)] { done == nullptr ? void() : done(Status::ok()); });
      retired.erase(here);
    } else if ((here->deadline <= now || is_draining) && here->done != nullptr) {
      told.emplace_back([done = std::exchange(here->done, nullptr), name = here->slot->entry.name] {
        done(Status::unavailable("the model is still in use, and goes once it is not:", name));
      });
    }
  }
}

bool ModelShelf::Shelf::has_news() const {
  const Clock::Instant now = clock.now();
  return std::any_of(waiting.begin(), waiting.end(),
                     [&](const Waiting& one) { return one.slot->is_lendable() || one.deadline <= now || one.gone.stop_requested(); }) ||
         std::any_of(retired.begin(), retired.end(), [&](const Retired& one) {
           return (one.slot->num_uses == 0 && !one.slot->is_opening) || ((one.deadline <= now || is_draining) && one.done != nullptr);
         });
}

Clock::Instant ModelShelf::Shelf::next_deadline() const {
  Clock::Instant next = Clock::Instant::max();
  for (const Waiting& one : waiting) {
    next = std::min(next, one.deadline);
  }
  for (const Retired& one : retired) {
    next = one.done == nullptr ? next : std::min(next, one.deadline);
  }
  return next;
}

void ModelShelf::Shelf::end_all_waits(Told& told) { end_waits(nullptr, no_more_models(), told); }

void ModelShelf::Shelf::run_desk(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    // A wait that comes meanwhile may end before the next one that is known: whoever adds it wakes this thread.
    const Clock::Instant until = next_deadline();
    clock.wait_until(lock, changed, stop, until, [&] { return has_news() || next_deadline() < until; });
    Told told;
    serve_waiting(told);
    serve_retired(told);
    lock.unlock();
    tell(told);
    lock.lock();
  }
}

}  // namespace darkroom
