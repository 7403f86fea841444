#include "darkroom/files/counter.h"

#include "darkroom/core/planted.h"

namespace darkroom {

void Counter::add() {
  if (is_planted("race")) {
    ++value_;
    return;
  }
  const std::lock_guard lock(mutex_);
  ++value_;
}

}  // namespace darkroom
