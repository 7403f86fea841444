#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "darkroom/serve/model_shelf.h"
#include "stub_engine.h"

namespace darkroom {

/// Opens stubs: a model's address says what comes of it, "broken" or the side of its pictures.
class StubOpener final : public ModelOpener {
 public:
  explicit StubOpener(FakeClock& clock) : clock_(clock) {}

  /// Of models that are not set: 1.
  void set_bytes(const std::string& name, int64_t bytes) { bytes_[name] = bytes; }
  /// Holds whatever is being opened until it may go on.
  void hold() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  /// The same of one that does not look at stop requests.
  void hold_until_released() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
    heeds_stops_ = false;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  /// The models in the order in which they were opened. Waits for so many; fewer after a minute.
  std::vector<std::string> await_opened(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return opened_.size() >= count; });
    return opened_;
  }
  /// The same of models that were measured.
  bool await_measured(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return num_measured_ >= count; });
  }
  StubEngine* engine(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return engines_[name];
  }

  Result<int64_t> measure(const ModelEntry& model, const std::stop_token&) override {
    const std::lock_guard lock(mutex_);
    ++num_measured_;
    changed_.notify_all();
    const auto found = bytes_.find(model.name);
    return found == bytes_.end() ? 1 : found->second;
  }
  Result<ServedModel> open(const ModelEntry& model, const std::stop_token& stop) override {
    std::unique_lock lock(mutex_);
    opened_.push_back(model.name);
    changed_.notify_all();
    changed_.wait(lock, heeds_stops_ ? stop : std::stop_token(), [&] { return !is_held_; });
    if (is_held_) {
      return Status::cancelled("stopped while it was opened");
    }
    if (model.address == "broken") {
      return Status::corrupt_data("planted in", model.address);
    }
    auto engine = std::make_unique<StubEngine>(clock_);
    engines_[model.name] = engine.get();
    const int side = model.address.empty() || model.address.front() == '/' ? 8 : std::stoi(model.address);
    return ServedModel{
        .facts = {.name = model.name, .native_size = side, .size_multiple = 8, .samplers = {"ddim"}, .default_sampler = "ddim"},
        .engine = std::move(engine)};
  }

 private:
  FakeClock& clock_;
  std::map<std::string, int64_t> bytes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool is_held_ = false;
  bool heeds_stops_ = true;
  std::vector<std::string> opened_;
  size_t num_measured_ = 0;
  std::map<std::string, StubEngine*> engines_;
};

}  // namespace darkroom
