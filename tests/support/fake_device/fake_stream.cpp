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
  at::Tensor host, value;  // Both on the CPU; the value as it was when the copy was asked for.
  bool is_out = false;
};

struct Work {
  std::vector<LateCopy> late;
  std::map<int64_t, int64_t> last_copy;  // Of each stream: its number.
  Recording* recording = nullptr;
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

void check_alive() {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK(!work().is_lost, "fake device: an illegal memory access was encountered");
}

void synchronize(const std::string& who) { synchronize(who, present_place(current_stream()).clock); }

void synchronize(const std::string& who, const Clock& clock) {
  const std::lock_guard lock(device_lock());
  check_alive();
  TORCH_CHECK(work().recording == nullptr, "fake device: the host waits for the device while a graph is recorded: ", who);
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
  TORCH_CHECK(work().recording == nullptr, "fake device: the host waits for an event while a graph is recorded");
  ++counts().event_waits;
  counts().late_waits += work().last_copy[place.stream] <= number_of(place.clock, place.stream) ? 1 : 0;
  land_until(place.clock);
  host_waits(place.clock);
}

// What is recorded shall not be done, but sizes and branches want results: it is done, and undone.
Recording record(const std::function<void()>& function) {
  const MemorySnapshot before;
  Recording recording;
  {
    const std::lock_guard lock(device_lock());
    work().recording = &recording;
    ++counts().recordings;
  }
  const auto end = [] {
    const std::lock_guard lock(device_lock());
    work().recording = nullptr;
  };
  try {
    function();
  } catch (...) {
    end();
    before.restore();
    throw;
  }
  end();
  before.restore();
  return recording;
}

void add_to_recording(const std::function<void()>& kernel) {
  const std::lock_guard lock(device_lock());
  if (work().recording != nullptr) {
    work().recording->push_back(kernel);
  }
}

bool is_recording() {
  const std::lock_guard lock(device_lock());
  return work().recording != nullptr;
}

void replay(const Recording& recording) {
  const at::NoGradGuard no_grad;
  {
    const std::lock_guard lock(device_lock());
    ++counts().replays;
    work().is_lost = work().is_lost || (replays_before_loss() >= 0 && counts().replays > replays_before_loss());
  }
  check_alive();
  for (const auto& kernel : recording) {
    kernel();
  }
}

}  // namespace darkroom::fake
