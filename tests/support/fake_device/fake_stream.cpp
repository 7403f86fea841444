#include "fake_stream.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <deque>
#include <map>

#include "fake_fault.h"
#include "fake_memory.h"

namespace darkroom::fake {
namespace {

struct LateCopy {
  int64_t position = 0;
  at::Tensor host, value;  // Both on the CPU; the value as it was when the copy was asked for.
  bool is_out = false;
};

struct Stream {
  std::deque<LateCopy> late;
  int64_t position = 0;  // Of the last copy.
  Recording* recording = nullptr;
  std::map<std::string, int64_t> waits;
  bool is_lost = false;
};

Stream& stream() {
  static auto* instance = new Stream;
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

void land_until(int64_t position) {
  std::deque<LateCopy>& late = stream().late;
  while (!late.empty() && late.front().position <= position) {
    const LateCopy copy = std::move(late.front());
    late.pop_front();
    land(copy);
  }
}

}  // namespace

void copy_out_later(const at::Tensor& host, const at::Tensor& value) {
  const std::lock_guard lock(device_lock());
  stream().late.push_back({++stream().position, host, value, true});
  if (host.is_contiguous()) {
    std::memset(host.data_ptr(), 0xFF, host.nbytes());
  }
}

void copy_in_later(const at::Tensor& host, const at::Tensor& value) {
  const std::lock_guard lock(device_lock());
  stream().late.push_back({++stream().position, host, value, false});
}

void check_alive() {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK(!stream().is_lost, "fake device: an illegal memory access was encountered");
}

void synchronize(const std::string& who) {
  const std::lock_guard lock(device_lock());
  check_alive();
  TORCH_CHECK(stream().recording == nullptr, "fake device: the host waits for the device while a graph is recorded: ", who);
  ++counts().synchronisations;
  ++stream().waits[who];
  land_until(stream().position);
}

const std::vector<std::pair<std::string, int64_t>> waits_by_name() {
  const std::lock_guard lock(device_lock());
  return {stream().waits.begin(), stream().waits.end()};
}

int64_t present_position() {
  const std::lock_guard lock(device_lock());
  return stream().position;
}

bool has_reached(int64_t position) {
  const std::lock_guard lock(device_lock());
  return stream().late.empty() || stream().late.front().position > position;
}

void wait_for(int64_t position) {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK(stream().recording == nullptr, "fake device: the host waits for an event while a graph is recorded");
  ++counts().event_waits;
  counts().late_waits += position == stream().position ? 1 : 0;
  land_until(position);
}

// What is recorded shall not be done, but sizes and branches want results: it is done, and undone.
Recording record(const std::function<void()>& function) {
  const MemorySnapshot before;
  Recording recording;
  {
    const std::lock_guard lock(device_lock());
    stream().recording = &recording;
    ++counts().recordings;
  }
  const auto end = [] {
    const std::lock_guard lock(device_lock());
    stream().recording = nullptr;
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
  if (stream().recording != nullptr) {
    stream().recording->push_back(kernel);
  }
}

bool is_recording() {
  const std::lock_guard lock(device_lock());
  return stream().recording != nullptr;
}

void replay(const Recording& recording) {
  const at::NoGradGuard no_grad;
  {
    const std::lock_guard lock(device_lock());
    ++counts().replays;
    stream().is_lost = stream().is_lost || (replays_before_loss() >= 0 && counts().replays > replays_before_loss());
  }
  check_alive();
  for (const auto& kernel : recording) {
    kernel();
  }
}

}  // namespace darkroom::fake
