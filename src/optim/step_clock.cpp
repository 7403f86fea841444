#include "step_clock.h"

#include "darkroom/core/check.h"

namespace darkroom {

StepClock::Place StepClock::here() {
  Place place;
  if (spare_.empty()) {
    place = std::make_unique<TimeMark>(device_);
  } else {
    place = std::move(spare_.back());
    spare_.pop_back();
  }
  place->record();
  return place;
}

void StepClock::keep(Step& step) {
  spare_.push_back(std::move(step.begin));
  spare_.push_back(std::move(step.passes));
  for (auto& [part, place] : step.parts) {
    spare_.push_back(std::move(place));
  }
}

void StepClock::begin() {
  if (open_.begin != nullptr && open_.passes != nullptr) {  // A step that failed.
    keep(open_);
    open_ = {};
  }
  if (open_.begin == nullptr) {
    open_.begin = here();
  }
}

void StepClock::begin_passes() {
  begin();
  open_.passes = here();
}

void StepClock::end_part(StepPart part) { open_.parts.emplace_back(part, here()); }

void StepClock::end_step(int64_t number) {
  DARKROOM_CHECK(!open_.parts.empty(), "a step that ends has parts:", number);
  open_.number = number;
  ended_.push_back(std::exchange(open_, {}));
}

std::vector<PhaseTimes> StepClock::read(double forward_share) {
  std::vector<PhaseTimes> steps;
  for (Step& step : ended_) {
    PhaseTimes times{.step = step.number, .idle_ms = step.passes->ms_since(*step.begin)};
    const TimeMark* before = step.passes.get();
    for (const auto& [part, place] : step.parts) {
      const double ms = place->ms_since(*std::exchange(before, place.get()));
      switch (part) {
        case StepPart::kForward:
          times.forward_ms += ms;
          break;
        case StepPart::kBackward:
          times.backward_ms += ms;
          break;
        case StepPart::kUpdate:
          times.update_ms += ms;
          break;
        case StepPart::kPasses:
          times.forward_ms += forward_share * ms;
          times.backward_ms += ms - forward_share * ms;
          break;
      }
    }
    times.ended_ago_ms = ended_.back().parts.back().second->ms_since(*before);
    steps.push_back(times);
  }
  for (Step& step : ended_) {
    keep(step);
  }
  ended_.clear();
  return steps;
}

}  // namespace darkroom
