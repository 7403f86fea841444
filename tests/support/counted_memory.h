#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace darkroom {

/// Counts what this thread takes of torch's allocator of the CPU, to the byte, and what it gives back of it, while this object lives.
class CountedMemory {
 public:
  CountedMemory() : tally_(std::make_shared<Tally>()), guard_(c10::DebugInfoKind::PROFILER_STATE, tally_) {}

  int64_t held() const { return tally_->held; }
  /// The most since restart_peak().
  int64_t peak() const { return tally_->peak; }
  void restart_peak() { tally_->peak = tally_->held; }

 private:
  struct Tally : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*place*/, int64_t num_bytes, size_t /*allocated*/, size_t /*reserved*/, c10::Device device) override {
      if (device.is_cpu()) {
        held += num_bytes;
        peak = std::max(peak, held);
      }
    }
    bool memoryProfilingEnabled() const override { return true; }

    int64_t held = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Tally> tally_;
  c10::DebugInfoGuard guard_;
};

}  // namespace darkroom
