#include "darkroom/serve/fair_order.h"

#include "darkroom/core/check.h"

namespace darkroom {

double FairOrder::join(double cost) {
  DARKROOM_CHECK(cost > 0.0, "an order must cost something, got:", cost);
  const double tag = share_ + cost;
  tags_.insert(tag);
  return tag;
}

void FairOrder::work_done(double cost) {
  while (cost > 0.0 && !tags_.empty()) {
    const auto num_sharing = static_cast<double>(tags_.size());
    const double until_next = (*tags_.begin() - share_) * num_sharing;
    if (cost < until_next) {
      share_ += cost / num_sharing;
      return;
    }
    share_ = *tags_.begin();
    cost -= until_next;
    tags_.erase(tags_.begin());
  }
}

void FairOrder::leave(double tag) {
  if (const auto found = tags_.find(tag); found != tags_.end()) {
    tags_.erase(found);
  }
}

}  // namespace darkroom
