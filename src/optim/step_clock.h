#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "darkroom/optim/train_step.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

/// What a part of a step on a GPU is spent on.
enum class StepPart { kForward, kBackward, kPasses, kUpdate };  ///< kPasses: forward and backward, of recorded passes.

/// When a GPU does what the steps of a training ask of it: places between the parts, whose times are read once the host has waited for the
/// GPU for another reason. Asking for a place waits for nothing. Thread safety: none.
class StepClock {
 public:
  explicit StepClock(const torch::Device& device) : device_(device) {}

  /// The step at hand begins here. A step that has begun already and has no part yet goes on.
  void begin();
  /// Its passes begin here: until now it was waiting, for its batch and the batch's way to the GPU.
  void begin_passes();
  /// What was asked for since the last place was this part.
  void end_part(StepPart part);
  /// The last part was the end of step `number`.
  void end_step(int64_t number);

  /// Times of the steps that have ended, in order. `forward_share`: of recorded passes. REQUIRES: the GPU has come to the last one's end.
  std::vector<PhaseTimes> read(double forward_share);

 private:
  using Place = std::unique_ptr<TimeMark>;
  struct Step {
    int64_t number = 0;
    Place begin, passes;
    std::vector<std::pair<StepPart, Place>> parts;
  };

  Place here();
  void keep(Step& step);

  const torch::Device device_;
  Step open_;
  std::vector<Step> ended_;
  std::vector<Place> spare_;  // Events are dear to make.
};

}  // namespace darkroom
