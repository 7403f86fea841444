#include "darkroom/serve/model_shelf.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

struct Slot {
  ModelEntry entry;
  std::optional<int64_t> bytes = {};
  std::shared_ptr<const ServedModel> loaded = {};  // Shared with those who use it.
  std::optional<ModelFacts> facts = {};            // Since it was loaded for the first time.
  int num_uses = 0;
  uint64_t last_use = 0;
  bool is_opening = false;
  bool is_leaving = false;       // Another model waits for its room.
  bool goes_on_failure = false;  // Came by load() and has not been loaded yet.
  bool is_abandoned() const { return goes_on_failure && loaded == nullptr && !is_opening; }
  bool is_lendable() const { return loaded != nullptr && !is_leaving; }
};

using SlotPointer = std::shared_ptr<Slot>;  // Shared by the shelf, waits and uses.
using Told = std::vector<std::function<void()>>;

struct Waiting {
  SlotPointer slot;
  Clock::Instant deadline;
  std::stop_token gone;
  ModelShelf::Use use;
  bool may_evict = true;
};

/// A model that is to go for good.
struct Retired {
  SlotPointer slot;
  Clock::Instant deadline;
  ModelShelf::Done done;  // Null: told.
};

Status no_such_model(std::string_view name) { return Status::not_found("this server has no such model:", name); }

// Clients learn that a model could not be loaded; why, and where it lies, is for the log.
Status cannot_load(const ModelEntry& model, std::string_view reason) {
  log_error("serve: the model {} could not be loaded: {}", model.name, reason);
  return Status::internal("the model could not be loaded; the server's log says why:", model.name);
}

template <typename T>
Result<T> guarded(const ModelEntry& model, const std::function<Result<T>()>& work) {
  try {
    Result<T> done = work();
    return done.is_ok() ? std::move(done) : Result<T>(cannot_load(model, done.status().message()));
  } catch (const std::exception& failure) {  // Memory that is used up, foremost.
    return cannot_load(model, failure.what());
  }
}

void tell(Told& told) {
  for (const auto& one : told) {
    try {
      one();
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a model could not be handed over: {}", failure.what());
    }
  }
  told.clear();
}

}  // namespace

/// Everything that the threads and the uses share. Functions that take Told want the lock held, and what they put there called without it.
struct ModelShelf::Shelf : std::enable_shared_from_this<ModelShelf::Shelf> {
  Shelf(const ModelShelfOptions& options_asked, ModelOpener& opener_asked, MetricsRegistry& metrics, Clock& used_clock)
      : options(options_asked),
        opener(opener_asked),
        clock(used_clock),
        loads(metrics.counter("darkroom_serve_model_loads_total", "Models that were loaded.")),
        evictions(metrics.counter("darkroom_serve_model_evictions_total", "Models that went for another's room.")),
        bytes_shown(metrics.gauge("darkroom_serve_models_bytes", "Memory of the models that are loaded, in bytes.")) {}

  SlotPointer find(std::string_view name) const;
  HeldModel lend(const SlotPointer& slot);
  void wait_for(Waiting waiting, Told& told);
  bool is_wanted(const SlotPointer& slot) const;
  SlotPointer next_to_load() const;
  void end_waits(const SlotPointer& slot, const Status& failure, Told& told);
  void serve_waiting(Told& told);
  void serve_retired(Told& told);
  bool has_news() const;
  Clock::Instant next_deadline() const;
  void release(const SlotPointer& slot, Told& told);
  void run_desk(const std::stop_token& stop);
  void run_loader(const std::stop_token& stop);
  Status load(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
  Status open(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
  Status make_room(const SlotPointer& slot, const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
  void mark_leaving(const SlotPointer& wanted, int64_t num_bytes, Told& told);

  const ModelShelfOptions options;
  ModelOpener& opener;
  Clock& clock;
  Counter& loads;
  Counter& evictions;
  Gauge& bytes_shown;

  mutable std::mutex mutex;
  std::condition_variable_any changed;
  // Guarded by mutex.
  std::vector<SlotPointer> slots;
  std::list<Waiting> waiting;  // By arrival.
  std::list<Retired> retired;
  int64_t used_bytes = 0;  // By what is loaded or being opened.
  uint64_t num_uses = 0;
};

SlotPointer ModelShelf::Shelf::find(std::string_view name) const {
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const SlotPointer& slot) { return slot->entry.name == name; });
  return found == slots.end() ? nullptr : *found;
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

SlotPointer ModelShelf::Shelf::next_to_load() const {
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
    } else if (here->deadline <= now && here->done != nullptr) {
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
           return (one.slot->num_uses == 0 && !one.slot->is_opening) || (one.deadline <= now && one.done != nullptr);
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

// Its networks are destroyed without the lock.
void ModelShelf::Shelf::release(const SlotPointer& slot, Told& told) {
  if (slot->loaded == nullptr) {
    return;
  }
  used_bytes -= *slot->bytes;
  bytes_shown.set(static_cast<double>(used_bytes));
  told.emplace_back([model = std::exchange(slot->loaded, nullptr)]() mutable { model.reset(); });
  changed.notify_all();
}

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

void ModelShelf::Shelf::run_loader(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (clock.wait_until(lock, changed, stop, Clock::Instant::max(), [&] { return next_to_load() != nullptr; }) &&
         !stop.stop_requested()) {
    const SlotPointer slot = next_to_load();
    slot->is_opening = true;
    const Status loaded = load(slot, stop, lock);
    slot->is_opening = false;
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
    if (!may_evict) {
      return Status::failed_precondition("there is no memory for the model beside those that are loaded (name, bytes, bytes free):",
                                         slot->entry.name, *slot->bytes, options.memory_bytes - used_bytes);
    }
    Told told;
    mark_leaving(slot, used_bytes - most, told);
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

Status ModelShelfOptions::validate() const {
  if (memory_bytes < 1) {
    return Status::invalid_argument("the memory for models must be at least 1 byte, got:", memory_bytes);
  }
  if (max_waiting < 1) {
    return Status::invalid_argument("the number of requests that may wait for models must be at least 1, got:", max_waiting);
  }
  return Status::ok();
}

ModelShelf::ModelShelf(const ModelShelfOptions& options, ModelOpener& opener, MetricsRegistry& metrics, Clock& clock)
    : shelf_(std::make_shared<Shelf>(options, opener, metrics, clock)),
      desk_([shelf = shelf_.get()](const std::stop_token& stop) { shelf->run_desk(stop); }),
      loader_([shelf = shelf_.get()](const std::stop_token& stop) { shelf->run_loader(stop); }) {}

ModelShelf::~ModelShelf() {
  loader_.request_stop();
  desk_.request_stop();
  loader_.join();
  desk_.join();
  Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    shelf_->end_waits(nullptr, Status::unavailable("the server is shutting down"), told);
    for (const SlotPointer& slot : shelf_->slots) {
      shelf_->release(slot, told);
    }
  }
  tell(told);
}

Status ModelShelf::add(ModelEntry model) {
  const std::lock_guard lock(shelf_->mutex);
  if (shelf_->find(model.name) != nullptr) {
    return Status::already_exists("there is a model of this name already:", model.name);
  }
  shelf_->slots.push_back(std::make_shared<Slot>(Slot{.entry = std::move(model)}));
  return Status::ok();
}

Status ModelShelf::add_loaded(ModelEntry model, int64_t num_bytes, ServedModel loaded) {
  const std::lock_guard lock(shelf_->mutex);
  if (shelf_->find(model.name) != nullptr) {
    return Status::already_exists("there is a model of this name already:", model.name);
  }
  const auto slot = std::make_shared<Slot>(Slot{.entry = std::move(model), .bytes = num_bytes});
  slot->facts = loaded.facts;
  slot->loaded = std::make_shared<const ServedModel>(std::move(loaded));
  shelf_->slots.push_back(slot);
  shelf_->used_bytes += num_bytes;
  shelf_->bytes_shown.set(static_cast<double>(shelf_->used_bytes));
  return Status::ok();
}

std::vector<ModelEntry> ModelShelf::models() const {
  const std::lock_guard lock(shelf_->mutex);
  std::vector<ModelEntry> models;
  for (const SlotPointer& slot : shelf_->slots) {
    models.push_back(slot->entry);
  }
  return models;
}

bool ModelShelf::has(std::string_view name) const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->find(name) != nullptr;
}

Result<ModelFacts> ModelShelf::facts(std::string_view name) const {
  const std::lock_guard lock(shelf_->mutex);
  const SlotPointer slot = shelf_->find(name);
  if (slot == nullptr || !slot->facts.has_value()) {
    return slot == nullptr ? no_such_model(name) : Status::not_found("the model has not been loaded yet:", name);
  }
  return *slot->facts;
}

void ModelShelf::use(const std::string& name, Clock::Instant deadline, std::stop_token gone, Use use) {
  Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    const bool is_first = name.empty() && !shelf_->slots.empty();
    const SlotPointer slot = is_first ? shelf_->slots.front() : shelf_->find(name);
    if (slot == nullptr) {
      told.emplace_back([&] { use(name.empty() ? Status::not_found("this server has no model yet") : no_such_model(name)); });
    } else if (slot->is_lendable()) {
      told.emplace_back([&use, model = shelf_->lend(slot)]() mutable { use(std::move(model)); });
    } else {
      shelf_->wait_for({.slot = slot, .deadline = deadline, .gone = std::move(gone), .use = std::move(use)}, told);
    }
  }
  tell(told);
}

void ModelShelf::load(ModelEntry model, Clock::Instant deadline, Done done) {
  Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    if (shelf_->find(model.name) != nullptr) {
      told.emplace_back([&] { done(Status::already_exists("the model is loaded already:", model.name)); });
    } else {
      const auto slot = std::make_shared<Slot>(Slot{.entry = std::move(model), .goes_on_failure = true});
      shelf_->slots.push_back(slot);
      shelf_->wait_for({.slot = slot,
                        .deadline = deadline,
                        .gone = {},
                        .use = [done = std::move(done)](const Result<HeldModel>& use) { done(use.status()); },
                        .may_evict = false},
                       told);
      if (!shelf_->is_wanted(slot)) {  // There was no room to wait.
        std::erase(shelf_->slots, slot);
      }
    }
  }
  tell(told);
}

void ModelShelf::unload(const std::string& name, Clock::Instant deadline, Done done) {
  Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    const SlotPointer slot = shelf_->find(name);
    if (slot == nullptr) {
      told.emplace_back([&] { done(no_such_model(name)); });
    } else {
      std::erase(shelf_->slots, slot);
      shelf_->end_waits(slot, no_such_model(name), told);
      slot->is_leaving = false;
      shelf_->retired.push_back({.slot = slot, .deadline = deadline, .done = std::move(done)});
      shelf_->changed.notify_all();
    }
  }
  tell(told);
}

}  // namespace darkroom
