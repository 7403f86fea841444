#include "darkroom/tensor/progress_mark.h"

#include <utility>

namespace darkroom {

void ProgressMark::note(std::string doing) {
  const std::lock_guard lock(mutex_);
  doing_ = std::move(doing);
  got_on_ = true;
}

void ProgressMark::begin_wait() {
  const std::lock_guard lock(mutex_);
  ++waiting_;
}

void ProgressMark::end_wait() {
  const std::lock_guard lock(mutex_);
  --waiting_;
  got_on_ = true;
}

std::optional<ProgressMark::Stall> ProgressMark::look(Clock::time_point now, bool was_away) {
  const std::lock_guard lock(mutex_);
  if (doing_.empty() || waiting_ > 0 || got_on_ || was_away) {
    got_on_ = false;
    since_ = now;
    return std::nullopt;
  }
  if (now - since_ <= limit_) {
    return std::nullopt;
  }
  return Stall{doing_, std::chrono::duration_cast<std::chrono::seconds>(now - since_)};
}

}  // namespace darkroom
