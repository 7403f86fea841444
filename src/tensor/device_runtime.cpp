#include "darkroom/tensor/device_runtime.h"

#include <sys/resource.h>

#include "darkroom/core/check.h"
#include "darkroom/core/used_up_memory.h"
#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {
namespace {

constexpr int64_t kBytesAKilobyte = 1024;  // ru_maxrss

const CudaPlugin& plugin_for(const torch::Device& device) {
  DARKROOM_CHECK(device.is_cuda(), "tensors live on the CPU or on a CUDA GPU, not on:", device.str());
  const CudaPlugin* plugin = loaded_cuda_plugin();
  DARKROOM_CHECK(plugin != nullptr, "a GPU is used before the CUDA plugin is loaded:", device.str());
  return *plugin;
}

int index_of(const torch::Device& device) { return device.has_index() ? device.index() : 0; }

}  // namespace

void synchronize(const torch::Device& device) {
  if (!device.is_cpu()) {
    plugin_for(device).synchronize(index_of(device));
  }
}

Status try_device(const torch::Device& device) {
  try {
    if (!device.is_cpu()) {
      static_cast<void>(torch::ones({1}, torch::device(device)).item<float>());
    }
    return Status::ok();
  } catch (const c10::OutOfMemoryError&) {
    return Status::ok();  // It does, and says no.
  } catch (const c10::Error& failure) {
    return Status::unavailable("the GPU does nothing any more in this process:", failure.what_without_backtrace());
  }
}

Status caught_on_device(const std::exception& failure) {
  const auto* memory = dynamic_cast<const c10::OutOfMemoryError*>(&failure);
  return memory != nullptr ? used_up_memory(GpuMemoryUsedUp(memory->what_without_backtrace()))
                           : caught_failure("this is a bug of darkroom; what was committed is safe. Please report:", failure);
}

torch::Tensor empty_staging(at::IntArrayRef shape, torch::ScalarType type, const torch::Device& device) {
  return torch::empty(shape, torch::dtype(type).pinned_memory(!device.is_cpu()));
}

int64_t peak_memory_bytes(const torch::Device& device) {
  if (!device.is_cpu()) {
    return plugin_for(device).peak_memory_bytes(index_of(device));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kBytesAKilobyte;
}

void reset_peak_memory(const torch::Device& device) {
  if (!device.is_cpu()) {
    plugin_for(device).reset_peak_memory(index_of(device));
  }
}

TimeMark::TimeMark(const torch::Device& device) {
  if (!device.is_cpu()) {
    mark_ = plugin_for(device).make_mark(index_of(device));
  }
}

TimeMark::~TimeMark() = default;

void TimeMark::record() {
  if (mark_ != nullptr) {
    mark_->record();
  } else {
    time_ = std::chrono::steady_clock::now();
  }
}

double TimeMark::ms_since(const TimeMark& earlier) const {
  return mark_ != nullptr ? mark_->ms_since(*earlier.mark_) : std::chrono::duration<double, std::milli>(time_ - earlier.time_).count();
}

DeviceGraph::DeviceGraph(const torch::Device& device, std::function<void()> function, bool replays) : function_(std::move(function)) {
  if (replays && !device.is_cpu()) {
    recorder_ = plugin_for(device).make_graph_recorder(index_of(device));
  }
}

DeviceGraph::DeviceGraph(const DeviceGraph& beside, std::function<void()> function) : function_(std::move(function)) {
  if (beside.recorder_ != nullptr) {
    recorder_ = beside.recorder_->beside();
  }
}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::run() {
  ++num_calls_;
  if (recorder_ == nullptr) {
    function_();
    return;
  }
  if (num_calls_ <= kWarmUpCalls) {
    recorder_->run(function_);
    return;
  }
  if (!is_recorded_) {
    recorder_->record(function_);
    is_recorded_ = true;
  }
  recorder_->replay();
}

}  // namespace darkroom
