#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace darkroom {

template <typename Signature>
class Hook;

/// A function that a test may replace while other threads call it; a call that has begun ends with the function that it began with.
template <typename Result, typename... Arguments>
class Hook<Result(Arguments...)> {
 public:
  template <typename Function>
  Hook(Function function) : function_(std::make_shared<const std::function<Result(Arguments...)>>(std::move(function))) {}  // NOLINT
  template <typename Function>
  Hook& operator=(Function function) {
    auto next = std::make_shared<const std::function<Result(Arguments...)>>(std::move(function));
    const std::lock_guard hold(mutex_);
    function_.swap(next);
    return *this;
  }
  Result operator()(Arguments... arguments) const {
    const auto function = current();
    return (*function)(std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<const std::function<Result(Arguments...)>> current() const {
    const std::lock_guard hold(mutex_);
    return function_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const std::function<Result(Arguments...)>> function_;  // Guarded by mutex_.
};

}  // namespace darkroom
