#include "recorded_calls.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/paint/recorded_memory.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

namespace {

constexpr size_t kMostShapes = 64;  // Whose calls are counted.

// Those of all painters: they share the memory of a GPU.
struct LiveCalls {
  std::mutex mutex;
  std::vector<RecordedCalls*> all;
  bool has_told = false;
};

LiveCalls& live_calls() {
  static LiveCalls live;
  return live;
}

}  // namespace

struct RecordedCalls::Recording {
  torch::Tensor noisy_nchw, timesteps_n, states_ntw, output_nchw;
  std::unique_ptr<DeviceGraph> graph;  // Last: its function uses the others.

  torch::Tensor run(const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
    noisy_nchw.copy_(noisy);
    timesteps_n.copy_(timesteps);
    states_ntw.copy_(states);
    graph->run();
    return output_nchw.clone();  // The next replay, of another recording, too, writes there.
  }
};

RecordedCalls::RecordedCalls(Network network) : network_(std::move(network)) {
  const std::scoped_lock lock(live_calls().mutex);
  live_calls().all.push_back(this);
}

RecordedCalls::~RecordedCalls() {
  const std::scoped_lock lock(live_calls().mutex);
  std::erase(live_calls().all, this);
}

torch::Tensor RecordedCalls::call(const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw) {
  if (!noisy_nchw.is_cpu() && !has_given_up_) {
    Known& known = find({std::this_thread::get_id(), noisy_nchw.sizes().vec(), states_ntw.sizes().vec()});
    if (++known.num_calls > kLeastCalls - DeviceGraph::kWarmUpCalls) {
      try {
        record(known, noisy_nchw, timesteps_n, states_ntw);
        return known.recording->run(noisy_nchw, timesteps_n, states_ntw);
      } catch (const c10::OutOfMemoryError& failure) {
        let_recordings_go(failure.what_without_backtrace());
      } catch (const c10::Error& failure) {
        give_up(failure.what_without_backtrace());
      } catch (const std::exception& failure) {
        give_up(failure.what());
      }
    }
  }
  return with_memory_for([&] { return network_(noisy_nchw, timesteps_n, states_ntw); });
}

RecordedCalls::Known& RecordedCalls::find(Shape shape) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) { return known.shape == shape; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
  } else {
    known_.push_front({.shape = std::move(shape), .num_calls = 0, .recording = nullptr});
    if (known_.size() > kMostShapes) {
      known_.pop_back();
    }
  }
  return known_.front();
}

void RecordedCalls::record(Known& known, const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n,
                           const torch::Tensor& states_ntw) {
  if (known.recording != nullptr) {
    return;
  }
  std::vector<Known*> recorded;
  for (Known& other : known_) {
    if (other.recording != nullptr) {
      recorded.push_back(&other);
    }
  }
  auto made = std::make_unique<Recording>();
  made->noisy_nchw = torch::empty_like(noisy_nchw, at::MemoryFormat::Contiguous);
  made->timesteps_n = torch::empty_like(timesteps_n);
  made->states_ntw = torch::empty_like(states_ntw);
  const auto function = [this, fixed = made.get()] {
    fixed->output_nchw = network_(fixed->noisy_nchw, fixed->timesteps_n, fixed->states_ntw);
  };
  made->graph = recorded.empty() ? std::make_unique<DeviceGraph>(noisy_nchw.device(), function)
                                 : std::make_unique<DeviceGraph>(*recorded.front()->recording->graph, function);
  known.recording = std::move(made);
  if (recorded.size() >= kMostRecordings) {
    recorded.back()->recording = nullptr;
    recorded.back()->num_calls = 0;
  }
}

void RecordedCalls::give_up(const std::string& reason) {
  known_.clear();
  has_given_up_ = true;
  log_warning("paint: network calls are recorded no more, which makes them slower: {}", reason);
}

bool RecordedCalls::let_go() {
  const bool had_any = std::any_of(known_.begin(), known_.end(), [](const Known& known) { return known.recording != nullptr; });
  known_.clear();
  return had_any;
}

bool let_recordings_go(const std::string& reason) {
  LiveCalls& live = live_calls();
  const std::scoped_lock lock(live.mutex);
  bool had_any = false;
  for (RecordedCalls* calls : live.all) {
    had_any = calls->let_go() || had_any;
  }
  if (had_any && !std::exchange(live.has_told, true)) {
    log_warning("paint: memory is used up, and recorded network calls make room, now and where it happens again: {}", reason);
  }
  return had_any;
}

}  // namespace darkroom
