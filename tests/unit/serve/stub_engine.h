#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// An engine without a network: a call takes a fixed time of a clock that it moves itself, and a picture shows its seed.
class StubEngine final : public StepEngine {
 public:
  struct Call {
    std::vector<std::string> prompts;
  };

  explicit StubEngine(FakeClock& clock, std::chrono::milliseconds time_of_call = std::chrono::milliseconds(10))
      : clock_(clock), time_of_call_(time_of_call) {}
  ~StubEngine() override {
    if (on_end_ != nullptr) {
      on_end_();
    }
  }

  Status check(const PictureSpec& spec) const override {
    num_checks_.fetch_add(1);
    return spec.prompt == "refused" ? Status::invalid_argument("the stub refuses this prompt") : Status::ok();
  }

  /// What follows a bar.
  UnreadTexts unread(const PictureSpec& spec) const override {
    const auto behind = [](const std::string& text) {
      return text.substr(std::min(text.size(), text.find('|')) + (text.find('|') != text.npos));
    };
    return {.prompt = behind(spec.prompt), .negative = behind(spec.negative)};
  }

  Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) override {
    if (spec.prompt == "refused late") {
      return Status::failed_precondition("the stub refuses this prompt late");
    }
    if (spec.prompt == "begin throws") {
      throw std::runtime_error("planted");
    }
    const std::lock_guard lock(mutex_);
    weighted_.push_back(spec.has_weight_syntax);
    return std::unique_ptr<EnginePicture>(std::make_unique<Picture>(spec));
  }

  void step(std::span<EnginePicture* const> pictures) override {
    if (pictures.size() > most_at_once_) {
      throw std::runtime_error("planted: out of memory");
    }
    for (const EnginePicture* picture : pictures) {
      if (static_cast<const Picture&>(*picture).spec.prompt == "step throws") {
        throw std::runtime_error("planted");
      }
    }
    Call call;
    bool has_failed = false;
    for (EnginePicture* picture : pictures) {
      auto& work = static_cast<Picture&>(*picture);
      if (work.spec.prompt == "last throws" || (work.spec.prompt == "last throws in company" && pictures.size() > 1)) {
        has_failed = true;
        continue;
      }
      --work.calls_left;
      call.prompts.push_back(work.spec.prompt);
    }
    clock_.advance(time_of_call_);
    if (has_failed) {
      throw std::runtime_error("planted, behind the others' step");
    }
    std::unique_lock lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
    changed_.wait(lock, [&] { return calls_.size() <= calls_allowed_; });
  }

  /// A pixel that shows how many calls are left.
  Image preview(const EnginePicture& picture) override {
    const auto& work = static_cast<const Picture&>(picture);
    if (work.spec.prompt == "preview throws") {
      throw std::runtime_error("planted");
    }
    return Image::filled(1, 1, 3, static_cast<uint8_t>(work.calls_left));
  }

  Result<Image> finish(const EnginePicture& picture) override {
    const PictureSpec& spec = static_cast<const Picture&>(picture).spec;
    if (spec.prompt == "finish throws") {
      throw std::runtime_error("planted");
    }
    if (spec.prompt == "finish fails") {
      return Status::internal("no numbers");
    }
    return spec.init_image != nullptr ? *spec.init_image : Image::filled(spec.width, spec.height, 3, static_cast<uint8_t>(spec.seed));
  }

  /// To be set while nobody paints, as is the next.
  void set_time_of_call(std::chrono::milliseconds time) { time_of_call_ = time; }
  /// Called while the engine is destroyed.
  void tell_end(std::function<void()> on_end) { on_end_ = std::move(on_end); }
  /// A call of more pictures throws. To be set while nobody paints.
  void set_most_at_once(size_t count) { most_at_once_ = count; }

  /// Holds the engine at the end of call number `count` (0: in the very first) until release() or a later number.
  void hold_at(size_t count) {
    const std::lock_guard lock(mutex_);
    calls_allowed_ = count;
    changed_.notify_all();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    calls_allowed_ = SIZE_MAX;
    changed_.notify_all();
  }
  /// Waits until so many calls have begun. False after a minute.
  bool await_calls(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return calls_.size() >= count; });
  }
  std::vector<Call> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int num_checks() const { return num_checks_.load(); }
  /// Of each picture that has begun, whether brackets in its texts are weights.
  std::vector<bool> weighted() {
    const std::lock_guard lock(mutex_);
    return weighted_;
  }

 private:
  struct Picture final : EnginePicture {
    explicit Picture(PictureSpec asked) : spec(std::move(asked)), calls_left(static_cast<size_t>(spec.num_steps_taken())) {}
    size_t num_calls_left() const override { return calls_left; }
    PictureSpec spec;
    size_t calls_left;
  };

  FakeClock& clock_;
  std::chrono::milliseconds time_of_call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<bool> weighted_;
  size_t calls_allowed_ = SIZE_MAX;
  size_t most_at_once_ = SIZE_MAX;
  std::function<void()> on_end_;
  mutable std::atomic<int> num_checks_ = 0;
};

/// Cost of a picture of few pixels and so many steps.
inline double cost_of_steps(int num_steps) { return PictureSpec{.num_steps = num_steps, .width = 8, .height = 8}.cost(); }

inline PictureSpec stub_picture(const std::string& prompt, int num_steps, int side = 8, uint64_t seed = 1) {
  PictureSpec spec;
  spec.prompt = prompt;
  spec.num_steps = num_steps;
  spec.width = side;
  spec.height = side;
  spec.seed = seed;
  return spec;
}

}  // namespace darkroom
