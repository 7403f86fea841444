#include "fake_stream.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "fake_fault.h"
#include "fake_memory.h"

namespace darkroom::fake {
namespace {

struct LateCopy {
  int64_t stream = 0, number = 0;  // As an access of the stream.
  at::Tensor host, value;          // Both on the CPU; the value as it was when the copy was asked for.
  bool is_out = false;
};

struct Work {
  std::vector<LateCopy> late;
  std::map<int64_t, int64_t> last_copy;                                         // Of each stream: its number.
  Recording* recording = nullptr;                                               // Under way, of what the recorders' stream is asked for.
  std::map<const void*, std::pair<at::Storage, std::string>> before_recording;  // Memory that is changed while it goes on.
  std::map<std::string, int64_t> waits;
  bool is_lost = false;
};

Work& work() {
  static auto* instance = new Work;
  return *instance;
}

// Negative: none ends it.
int64_t replays_before_loss() {
  static const int64_t replays = number_of_fault("lost_device");
  return replays;
}

bool same_bytes(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor first = left.contiguous(), second = right.contiguous();
  return std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()) == 0;
}

void land(const LateCopy& copy) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  if (copy.is_out) {
    copy.host.copy_(copy.value);
  } else {
    TORCH_CHECK(same_bytes(copy.host, copy.value), "fake device: page-locked memory was written before its copy to the device was done");
  }
}

// One for all recorders, as the plugin has it.
int64_t recording_stream() {
  static const int64_t stream = new_stream();
  return stream;
}

class StreamScope {
 public:
  explicit StreamScope(int64_t stream) : callers_(exchange_stream(stream)) {}
  ~StreamScope() { exchange_stream(callers_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int64_t callers_;
};

bool comes_before(const LateCopy& copy, const Clock& clock) { return copy.number <= number_of(clock, copy.stream); }

void land_until(const Clock& clock) {
  for (const LateCopy& copy : std::exchange(work().late, {})) {
    if (comes_before(copy, clock)) {
      land(copy);
    } else {
      work().late.push_back(copy);
    }
  }
}

void copy_later(const at::Tensor& host, const at::Tensor& value, bool is_out) {
  const int64_t stream = current_stream(), number = next_access();
  work().late.push_back({stream, number, host, value, is_out});
  work().last_copy[stream] = number;
}

}  // namespace

void copy_out_later(const at::Tensor& host, const at::Tensor& value) {
  const std::lock_guard lock(device_lock());
  copy_later(host, value, true);
  if (host.is_contiguous()) {
    std::memset(host.data_ptr(), 0xFF, host.nbytes());
  }
}

void copy_in_later(const at::Tensor& host, const at::Tensor& value) {
  const std::lock_guard lock(device_lock());
  copy_later(host, value, false);
}

void count_kernel() {
  static const int64_t most = number_of_fault("lost_at_kernel");
  ++counts().kernels;
  work().is_lost = work().is_lost || (most >= 0 && counts().kernels > most);
}

void check_alive() {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK(!work().is_lost, "fake device: an illegal memory access was encountered");
}

void synchronize(const std::string& who) { synchronize(who, present_place(current_stream()).clock); }

void synchronize(const std::string& who, const Clock& clock) {
  const std::lock_guard lock(device_lock());
  check_alive();
  TORCH_CHECK(!is_recording(), "fake device: the host waits for the device while a graph is recorded: ", who);
  ++counts().synchronisations;
  ++work().waits[who];
  land_until(clock);
  host_waits(clock);
}

const std::vector<std::pair<std::string, int64_t>> waits_by_name() {
  const std::lock_guard lock(device_lock());
  return {work().waits.begin(), work().waits.end()};
}

bool has_reached(const Clock& clock) {
  const std::lock_guard lock(device_lock());
  return std::none_of(work().late.begin(), work().late.end(), [&](const LateCopy& copy) { return comes_before(copy, clock); });
}

void wait_for(const Place& place) {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK(!is_recording(), "fake device: the host waits for an event while a graph is recorded");
  ++counts().event_waits;
  const auto& last = work().last_copy;
  const bool is_late =
      std::all_of(last.begin(), last.end(), [&](const auto& copy) { return copy.second <= number_of(place.clock, copy.first); });
  counts().late_waits += is_late ? 1 : 0;
  land_until(place.clock);
  host_waits(place.clock);
}

void run_on_recording_stream(const std::function<void()>& function) {
  const int64_t callers = current_stream();
  stream_waits(recording_stream(), present_place(callers).clock);
  {
    const StreamScope scope(recording_stream());
    function();
  }
  stream_waits(callers, present_place(recording_stream()).clock);
}

// What is recorded shall not be done, but sizes and branches want results: it is done, and undone.
Recording record(const std::function<void()>& function) {
  host_waits(present_place(current_stream()).clock);
  host_waits(present_place(recording_stream()).clock);
  const StreamScope scope(recording_stream());
  Recording recording;
  {
    const std::lock_guard lock(device_lock());
    work().recording = &recording;
    ++counts().recordings;
  }
  const auto end = [] {
    const std::lock_guard lock(device_lock());
    work().recording = nullptr;
    for (const auto& [memory, before] : std::exchange(work().before_recording, {})) {
      std::memcpy(host_pointer(memory), before.second.data(), before.second.size());
    }
  };
  try {
    function();
  } catch (...) {
    end();
    throw;
  }
  end();
  return recording;
}

void keep_until_recorded(const at::Tensor& tensor) {
  const std::lock_guard lock(device_lock());
  const at::Storage& storage = tensor.storage();
  const auto* bytes = static_cast<const char*>(host_pointer(storage.data()));
  const auto& made = work().recording->made;
  if (std::none_of(made.begin(), made.end(), [&](const at::Storage& each) { return each.data() == bytes; })) {
    work().before_recording.try_emplace(storage.data(), storage, std::string(bytes, storage.nbytes()));
  }
}

bool is_recording() {
  const std::lock_guard lock(device_lock());
  return work().recording != nullptr && current_stream() == recording_stream();
}

void add_to_recording(const std::function<void()>& kernel) {
  const std::lock_guard lock(device_lock());
  if (is_recording()) {
    work().recording->kernels.push_back(kernel);
  }
}

void add_to_recording(const at::Storage& made) {
  const std::lock_guard lock(device_lock());
  if (is_recording()) {
    work().recording->made.push_back(made);
  }
}

void replay(const Recording& recording) {
  const at::NoGradGuard no_grad;
  {
    const std::lock_guard lock(device_lock());
    ++counts().replays;
    work().is_lost = work().is_lost || (replays_before_loss() >= 0 && counts().replays > replays_before_loss());
  }
  check_alive();
  run_on_recording_stream([&] {
    for (const auto& kernel : recording.kernels) {
      kernel();
    }
  });
}

void spoil(const Recording& recording) {
  for (const at::Storage& made : recording.made) {
    std::memset(made.mutable_data(), 0xFF, made.nbytes());
  }
}

}  // namespace darkroom::fake
