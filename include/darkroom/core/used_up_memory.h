#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// A GPU's memory is used up, for whoever catches it and knows no GPU.
class GpuMemoryUsedUp : public std::bad_alloc {
 public:
  explicit GpuMemoryUsedUp(const std::string& reason);
  /// A sentence that says what to do.
  const char* what() const noexcept override { return sentence_->c_str(); }

 private:
  std::shared_ptr<const std::string> sentence_;  // Shared by copies, whose copying must not throw.
};

/// kResourceExhausted, saying what to do.
Status used_up_memory(const std::bad_alloc& failure);

/// What a boundary (a worker, a thread) makes of an exception: used_up_memory of a std::bad_alloc, kResourceExhausted where a thread could
/// not start; anything else is kInternal, with `what` before its own words.
Status caught_failure(std::string_view what, const std::exception& failure);

}  // namespace darkroom
