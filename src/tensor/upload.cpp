#include "darkroom/tensor/upload.h"

#include "darkroom/core/check.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

void Upload::send(const torch::Tensor& source, const torch::Tensor& target) {
  const torch::NoGradGuard no_grad;
  if (device_.is_cpu()) {
    target.copy_(source);
    return;
  }
  DARKROOM_CHECK(source.sizes() == target.sizes() && source.scalar_type() == target.scalar_type() && target.is_contiguous(),
                 "an upload keeps shape and type (source, target):", c10::str(source.sizes()), c10::str(target.sizes()));
  slots_.resize(kSlots);
  Slot& slot = slots_[next_++ % kSlots];
  if (slot.sent.has_value() && !slot.sent->is_reached()) {
    slot.sent->synchronize();
  }
  if (!slot.staging.defined() || slot.staging.sizes() != source.sizes() || slot.staging.scalar_type() != source.scalar_type()) {
    slot.staging = empty_staging(source.sizes(), source.scalar_type(), device_);
  }
  slot.staging.copy_(source);
  target.copy_(slot.staging, /*non_blocking=*/true);
  if (!slot.sent.has_value()) {
    slot.sent.emplace(device_);
  }
  slot.sent->record();
}

}  // namespace darkroom
