#include <algorithm>
#include <exception>
#include <utility>

#include "darkroom/core/log.h"
#include "model_shelf_state.h"

namespace darkroom {
namespace {

// Clients learn that a model could not be loaded; why, and where it lies, is for the log.
Status cannot_load(const ModelEntry& model, std::string_view reason) {
  log_error("serve: the model {} could not be loaded: {}", model.name, reason);
  return Status::internal("the model could not be loaded; the server's log says why:", model.name);
}

template <typename T>
Result<T> guarded(const ModelEntry& model, const std::function<Result<T>()>& work) {
  try {
    Result<T> done = work();
    const bool is_told = done.is_ok() || done.status().code() == StatusCode::kCancelled;  // At a stop, which is no failure.
    return is_told ? std::move(done) : Result<T>(cannot_load(model, done.status().message()));
  } catch (const std::exception& failure) {  // Memory that is used up, foremost.
    return cannot_load(model, failure.what());
  }
}

}  // namespace

// Its networks are destroyed without the lock, and their memory is free only then.
void ModelShelf::Shelf::release(const SlotPointer& slot, Told& told) {
  if (slot->loaded == nullptr) {
    return;
  }
  leaving_bytes += *slot->bytes;
  told.emplace_back([self = shared_from_this(), bytes = *slot->bytes, model = std::exchange(slot->loaded, nullptr)]() mutable {
    model.reset();
    const std::lock_guard lock(self->mutex);
    self->leaving_bytes -= bytes;
    self->used_bytes -= bytes;
    self->bytes_shown.set(static_cast<double>(self->used_bytes));
    self->changed.notify_all();
  });
}

void ModelShelf::Shelf::run_loader(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (clock.wait_until(lock, changed, stop, Clock::Instant::max(), [&] { return next_to_load() != nullptr; }) &&
         !stop.stop_requested()) {
    const SlotPointer slot = next_to_load();
    slot->is_opening = is_loading = true;
    const Status loaded = load(slot, stop, lock);
    slot->is_opening = is_loading = false;
    for (const SlotPointer& other : slots) {
      other->is_leaving = false;
    }
    Told told;
    if (loaded.is_ok()) {
      slot->goes_on_failure = false;
      serve_waiting(told);  // Before another model may want its room.
    } else if (!stop.stop_requested()) {
      end_waits(slot, loaded, told);
      std::erase_if(slots, [&](const SlotPointer& one) { return one == slot && slot->goes_on_failure; });
    }
    changed.notify_all();
    lock.unlock();
    tell(told);
    lock.lock();
  }
}

Status ModelShelf::Shelf::load(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock) {
  if (!slot->bytes.has_value()) {
    lock.unlock();
    const Result<int64_t> measured = guarded<int64_t>(slot->entry, [&] { return opener.measure(slot->entry, stop); });
    lock.lock();
    DARKROOM_RETURN_IF_ERROR(measured.status());
    slot->bytes = *measured;
  }
  if (*slot->bytes > options.memory_bytes) {
    return Status::failed_precondition("the model is larger than the memory that the server has for models (name, bytes, bound):",
                                       slot->entry.name, *slot->bytes, options.memory_bytes);
  }
  DARKROOM_RETURN_IF_ERROR(make_room(slot, stop, lock));
  return open(slot, stop, lock);
}

Status ModelShelf::Shelf::open(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock) {
  used_bytes += *slot->bytes;
  lock.unlock();
  Result<ServedModel> opened = guarded<ServedModel>(slot->entry, [&] { return opener.open(slot->entry, stop); });
  lock.lock();
  if (!opened.is_ok()) {
    used_bytes -= *slot->bytes;
    return opened.status();
  }
  slot->facts = opened->facts;
  slot->loaded = std::make_shared<const ServedModel>(*std::move(opened));
  slot->last_use = ++num_uses;
  loads.add();
  bytes_shown.set(static_cast<double>(used_bytes));
  return Status::ok();
}

// Lets models go, the one that was asked for least recently first, until there is room, and waits for those that are in use.
Status ModelShelf::Shelf::make_room(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock) {
  const int64_t most = options.memory_bytes - *slot->bytes;
  while (used_bytes > most) {
    const bool may_evict =
        std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.slot == slot && one.may_evict; });
    if (stop.stop_requested() || !is_wanted(slot)) {
      return Status::cancelled("nobody waits for the model any more:", slot->entry.name);
    }
    if (!may_evict && used_bytes - leaving_bytes > most) {
      return Status::failed_precondition("there is no memory for the model beside those that are loaded (name, bytes, bytes free):",
                                         slot->entry.name, *slot->bytes, options.memory_bytes - used_bytes + leaving_bytes);
    }
    Told told;
    if (may_evict) {
      mark_leaving(slot, used_bytes - most, told);
    }
    lock.unlock();
    tell(told);
    lock.lock();
    clock.wait_until(lock, changed, stop, Clock::Instant::max(), [&] {
      const auto is_free = [](const SlotPointer& other) { return other->is_leaving && other->loaded != nullptr && other->num_uses == 0; };
      return used_bytes <= most || !is_wanted(slot) || std::any_of(slots.begin(), slots.end(), is_free);
    });
  }
  return Status::ok();
}

void ModelShelf::Shelf::mark_leaving(const SlotPointer& wanted, int64_t num_bytes, Told& told) {
  std::vector<SlotPointer> oldest_first = slots;
  std::sort(oldest_first.begin(), oldest_first.end(), [](const auto& a, const auto& b) { return a->last_use < b->last_use; });
  num_bytes -= leaving_bytes;
  for (const Retired& one : retired) {
    num_bytes -= one.slot->loaded == nullptr ? 0 : *one.slot->bytes;
  }
  for (const SlotPointer& slot : oldest_first) {
    slot->is_leaving = num_bytes > 0 && slot != wanted && slot->loaded != nullptr;
    num_bytes -= slot->is_leaving ? *slot->bytes : 0;
    if (slot->is_leaving && slot->num_uses == 0) {
      log_info("serve: the model {} makes room for {}", slot->entry.name, wanted->entry.name);
      evictions.add();
      release(slot, told);
    }
  }
}

}  // namespace darkroom
