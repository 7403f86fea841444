#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "darkroom/serve/model_shelf.h"

namespace darkroom {

/// Everything that the threads and the uses share. Functions that take Told want the lock held, and what they put there called without it.
struct ModelShelf::Shelf : std::enable_shared_from_this<ModelShelf::Shelf> {
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

  Shelf(const ModelShelfOptions& options_asked, ModelOpener& opener_asked, MetricsRegistry& metrics, Clock& used_clock)
      : options(options_asked),
        opener(opener_asked),
        clock(used_clock),
        loads(metrics.counter("darkroom_serve_model_loads_total", "Models that were loaded.")),
        evictions(metrics.counter("darkroom_serve_model_evictions_total", "Models that went for another's room.")),
        bytes_shown(metrics.gauge("darkroom_serve_models_bytes", "Memory of the models that are loaded, in bytes.")) {}

  /// Calls what is to be told, without the lock.
  static void tell(Told& told);

  SlotPointer find(std::string_view name) const;
  SlotPointer find_or_first(std::string_view name) const;
  HeldModel lend(const SlotPointer& slot);
  void wait_for(Waiting waiting, Told& told);
  bool is_wanted(const SlotPointer& slot) const;
  SlotPointer next_to_load() const;
  void end_waits(const SlotPointer& slot, const Status& failure, Told& told);
  /// The same of all, because the server shuts down.
  void end_all_waits(Told& told);
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
  mutable std::condition_variable_any changed;
  // Guarded by mutex.
  std::vector<SlotPointer> slots;
  std::list<Waiting> waiting;  // By arrival.
  std::list<Retired> retired;
  int64_t used_bytes = 0;     // By what is loaded, being opened or being destroyed.
  int64_t leaving_bytes = 0;  // Of these, by what is being destroyed.
  bool is_loading = false;
  bool is_draining = false;
  uint64_t num_uses = 0;
};

}  // namespace darkroom
