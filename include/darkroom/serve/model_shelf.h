#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// A model by its name, and where it lies.
struct ModelEntry {
  std::string name;
  std::string address;  ///< As the command line takes it.
};

/// What loads models. Asked by one thread of the shelf, a model at a time.
class ModelOpener {
 public:
  virtual ~ModelOpener() = default;
  /// The memory that the model will take once it is loaded, in bytes. Brings it to this machine where it lies elsewhere.
  virtual Result<int64_t> measure(const ModelEntry& model, const std::stop_token& stop) = 0;
  virtual Result<ServedModel> open(const ModelEntry& model, const std::stop_token& stop) = 0;
};

struct ModelShelfOptions {
  int64_t memory_bytes = INT64_MAX;  ///< Of all models that are loaded, as ModelOpener::measure says it.
  size_t max_waiting = 64;           ///< Requests that wait for a model to be loaded.
  Status validate() const;           ///< kInvalidArgument naming the first bad field.
};

/// The models of a server. A model is loaded when it is first asked for; where memory lacks, those go that were asked for least recently,
/// never one that is in use. While a model waits for the room of another, new requests for that one wait, too, so that each gets its turn.
/// Thread safety: any thread.
class ModelShelf {
 public:
  /// Called once, by a thread of the shelf or within use() or drain(), without its lock. Errors: kNotFound (no such model), kUnavailable
  /// (the deadline, or the shelf drains or ends), kCancelled (gone), kFailedPrecondition (no memory for it), kResourceExhausted (too many
  /// wait), kInternal (it could not be loaded: the log says why).
  using Use = std::function<void(Result<HeldModel>)>;
  /// Errors: kAlreadyExists, or as Use.
  using Done = std::function<void(Status)>;

  /// REQUIRES: valid options; opener, clock and metrics outlive the shelf. Uses may outlive it.
  ModelShelf(const ModelShelfOptions& options, ModelOpener& opener, MetricsRegistry& metrics, Clock& clock = system_clock());
  /// Ends whatever waits with kUnavailable, after what is being loaded.
  ~ModelShelf();
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  /// From now on there is such a model; it is not loaded yet. Errors: kAlreadyExists.
  Status add(ModelEntry model);
  /// The same of one that is loaded already and takes so many bytes, for which there is room. Errors: kAlreadyExists.
  Status add_loaded(ModelEntry model, int64_t num_bytes, ServedModel loaded);
  /// In the order in which they came: the first is what requests get that name none.
  std::vector<ModelEntry> models() const;
  bool has(std::string_view name) const;
  /// What is known of a model (empty: the first one) once it has been loaded, though it may have gone since. Loads nothing. Errors:
  /// kNotFound (no such model), kFailedPrecondition (not loaded yet).
  Result<ModelFacts> facts(std::string_view name) const;

  /// Hands a model over, at once where it is loaded. `name` empty: the first model. Not called once `gone` is requested: the answer is
  /// kCancelled then.
  void use(const std::string& name, Clock::Instant deadline, std::stop_token gone, Use use);
  /// Adds a model and loads it where there is room without another's going (SageMaker's platform says itself which is to go).
  void load(ModelEntry model, Clock::Instant deadline, Done done);
  /// Lets a model go, once nobody uses it; from now on nobody gets it.
  void unload(const std::string& name, Clock::Instant deadline, Done done);

  /// From now on nothing is loaded: whoever waits for a model, or for one to go, gets kUnavailable at once, and so does who asks later for
  /// one that is not there. What is being loaded gets a stop request.
  void drain();
  /// Waits until no model is being loaded. False after `patience`: destroying the shelf would wait for it.
  bool await_idle(std::chrono::milliseconds patience) const;

 private:
  struct Shelf;

  const std::shared_ptr<Shelf> shelf_;  // Shared with uses, which may end later.
  std::jthread desk_;                   // Hands models over and ends waits.
  std::jthread loader_;
};

}  // namespace darkroom
