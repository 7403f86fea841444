#include "darkroom/core/used_up_memory.h"

#include <system_error>

namespace darkroom {

GpuMemoryUsedUp::GpuMemoryUsedUp(const std::string& reason)
    : sentence_(std::make_shared<const std::string>(
          "the GPU's memory is used up; what was committed is safe: lower the batch size or --micro-batch and run again: " + reason)) {}

Status used_up_memory(const std::bad_alloc& failure) {
  if (dynamic_cast<const GpuMemoryUsedUp*>(&failure) != nullptr) {
    return Status::resource_exhausted(failure.what());
  }
  return Status::resource_exhausted("out of memory; what was committed is safe: lower --memory, batch size or workers and run again");
}

Status caught_failure(std::string_view what, const std::exception& failure) {
  if (const auto* memory = dynamic_cast<const std::bad_alloc*>(&failure); memory != nullptr) {
    return used_up_memory(*memory);
  }
  const auto* error = dynamic_cast<const std::system_error*>(&failure);
  if (error != nullptr && error->code() == std::errc::resource_unavailable_try_again) {
    return Status::resource_exhausted(
        "cannot start a thread; what was committed is safe: let there be more processes (ulimit -u) and run again");
  }
  return Status::internal(what, failure.what());
}

}  // namespace darkroom
