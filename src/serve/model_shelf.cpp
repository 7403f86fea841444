#include "darkroom/serve/model_shelf.h"

#include <algorithm>
#include <utility>

#include "model_shelf_state.h"

namespace darkroom {
namespace {

Status none_of_name(std::string_view name) {
  return name.empty() ? Status::not_found("this server has no model yet") : Status::not_found("this server has no such model:", name);
}

}  // namespace

ModelShelf::Shelf::SlotPointer ModelShelf::Shelf::find(std::string_view name) const {
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const SlotPointer& slot) { return slot->entry.name == name; });
  return found == slots.end() ? nullptr : *found;
}

ModelShelf::Shelf::SlotPointer ModelShelf::Shelf::find_or_first(std::string_view name) const {
  return name.empty() && !slots.empty() ? slots.front() : find(name);
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
  Shelf::Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    shelf_->end_all_waits(told);
    for (const Shelf::SlotPointer& slot : shelf_->slots) {
      shelf_->release(slot, told);
    }
  }
  Shelf::tell(told);
}

void ModelShelf::drain() {
  Shelf::Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    shelf_->is_draining = true;
    shelf_->end_all_waits(told);
    shelf_->changed.notify_all();
  }
  loader_.request_stop();
  Shelf::tell(told);
}

bool ModelShelf::await_idle(std::chrono::milliseconds patience) const {
  std::unique_lock lock(shelf_->mutex);
  return shelf_->changed.wait_for(lock, patience, [this] { return !shelf_->is_loading; });
}

Status ModelShelf::add(ModelEntry model) {
  const std::lock_guard lock(shelf_->mutex);
  if (shelf_->find(model.name) != nullptr) {
    return Status::already_exists("there is a model of this name already:", model.name);
  }
  shelf_->slots.push_back(std::make_shared<Shelf::Slot>(Shelf::Slot{.entry = std::move(model)}));
  return Status::ok();
}

Status ModelShelf::add_loaded(ModelEntry model, int64_t num_bytes, ServedModel loaded) {
  const std::lock_guard lock(shelf_->mutex);
  if (shelf_->find(model.name) != nullptr) {
    return Status::already_exists("there is a model of this name already:", model.name);
  }
  const auto slot = std::make_shared<Shelf::Slot>(Shelf::Slot{.entry = std::move(model), .bytes = num_bytes});
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
  for (const Shelf::SlotPointer& slot : shelf_->slots) {
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
  const Shelf::SlotPointer slot = shelf_->find_or_first(name);
  if (slot == nullptr) {
    return none_of_name(name);
  }
  if (!slot->facts.has_value()) {
    return Status::failed_precondition("the model has not been loaded yet, which the first request for a picture of it does:",
                                       slot->entry.name);
  }
  return *slot->facts;
}

void ModelShelf::use(const std::string& name, Clock::Instant deadline, std::stop_token gone, Use use) {
  Shelf::Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    const Shelf::SlotPointer slot = shelf_->find_or_first(name);
    if (slot == nullptr) {
      told.emplace_back([&] { use(none_of_name(name)); });
    } else if (slot->is_lendable()) {
      told.emplace_back([&use, model = shelf_->lend(slot)]() mutable { use(std::move(model)); });
    } else {
      shelf_->wait_for({.slot = slot, .deadline = deadline, .gone = std::move(gone), .use = std::move(use)}, told);
    }
  }
  Shelf::tell(told);
}

void ModelShelf::load(ModelEntry model, Clock::Instant deadline, Done done) {
  Shelf::Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    if (shelf_->find(model.name) != nullptr) {
      told.emplace_back([&] { done(Status::already_exists("the model is loaded already:", model.name)); });
    } else {
      const auto slot = std::make_shared<Shelf::Slot>(Shelf::Slot{.entry = std::move(model), .goes_on_failure = true});
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
  Shelf::tell(told);
}

void ModelShelf::unload(const std::string& name, Clock::Instant deadline, Done done) {
  Shelf::Told told;
  {
    const std::lock_guard lock(shelf_->mutex);
    const Shelf::SlotPointer slot = shelf_->find(name);
    if (slot == nullptr) {
      told.emplace_back([&] { done(none_of_name(name)); });
    } else {
      std::erase(shelf_->slots, slot);
      shelf_->end_waits(slot, none_of_name(name), told);
      slot->is_leaving = false;
      shelf_->retired.push_back({.slot = slot, .deadline = deadline, .done = std::move(done)});
      shelf_->changed.notify_all();
    }
  }
  Shelf::tell(told);
}

}  // namespace darkroom
