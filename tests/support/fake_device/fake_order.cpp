#include "fake_order.h"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "fake_memory.h"
#include "fake_stream.h"

namespace darkroom::fake {
namespace {

struct Access {
  uintptr_t first = 0, end = 0;  // Its bytes.
  bool is_write = false;

  auto operator<=>(const Access&) const = default;
  bool meets(const Access& other) const { return (is_write || other.is_write) && first < other.end && other.first < end; }
};

struct LastTime {
  int64_t number = 0;
  std::string who;
};

struct Stream {
  Clock known;                             // What it comes behind; of itself: its own accesses.
  std::map<Access, LastTime> accesses;     // That another stream may not come behind yet.
  std::map<int64_t, LastTime> given_back;  // Other streams' last accesses to memory that was given back to it.
};

struct Order {
  std::vector<Stream> streams = std::vector<Stream>(1);
  Clock host;
};

Order& order() {
  static auto* instance = new Order;
  return *instance;
}

thread_local int64_t stream_of_thread = 0;

void join(Clock& clock, const Clock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

Stream& at(int64_t stream) { return order().streams[static_cast<size_t>(stream)]; }

// What every stream comes behind is forgotten.
void forget_ordered() {
  const auto num_streams = static_cast<int64_t>(order().streams.size());
  for (int64_t stream = 0; stream < num_streams; ++stream) {
    int64_t done = number_of(at(stream).known, stream);
    for (int64_t other = 0; other < num_streams; ++other) {
      done = std::min(done, other == stream ? done : std::max(number_of(at(other).known, stream), number_of(order().host, stream)));
    }
    std::erase_if(at(stream).accesses, [done](const auto& access) { return access.second.number <= done; });
  }
}

// To the bytes between the first and the last element.
Access access_to(const at::Tensor& tensor, bool is_write) {
  const auto first = reinterpret_cast<uintptr_t>(host_pointer(tensor.const_data_ptr()));
  size_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += static_cast<size_t>((tensor.size(dim) - 1) * tensor.stride(dim));
  }
  return {first, first + (last + 1) * tensor.element_size(), is_write};
}

template <typename Function>
void for_each_unordered(const Access& access, int64_t stream, const Function& function) {
  for (int64_t other = 0; other < static_cast<int64_t>(order().streams.size()); ++other) {
    for (const auto& [theirs, last] : at(other).accesses) {
      if (other != stream && last.number > number_of(at(stream).known, other) && access.meets(theirs)) {
        function(other, theirs, last);
      }
    }
  }
}

void note(const at::Tensor& tensor, bool is_write, const std::string& who) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType || tensor.numel() == 0) {
    return;
  }
  if (is_recording()) {
    if (is_write) {
      keep_until_recorded(tensor);
    }
    return;
  }
  const std::lock_guard lock(device_lock());
  const int64_t stream = current_stream(), number = next_access();
  const Access access = access_to(tensor, is_write);
  for_each_unordered(access, stream, [&](int64_t other, const Access& theirs, const LastTime& last) {
    TORCH_CHECK(false, "fake device: ", who, " of stream ", stream, is_write ? " changes" : " reads", " what ", last.who, " of stream ",
                other, theirs.is_write ? " changes" : " reads", ", and has not waited for it");
  });
  at(stream).accesses[access] = {number, who};
}

}  // namespace

int64_t number_of(const Clock& clock, int64_t stream) {
  return static_cast<size_t>(stream) < clock.size() ? clock[static_cast<size_t>(stream)] : 0;
}

int64_t current_stream() { return stream_of_thread; }

int64_t exchange_stream(int64_t stream) { return std::exchange(stream_of_thread, stream); }

int64_t new_stream() {
  const std::lock_guard lock(device_lock());
  order().streams.emplace_back();
  return static_cast<int64_t>(order().streams.size()) - 1;
}

Place present_place(int64_t stream) {
  const std::lock_guard lock(device_lock());
  return {stream, at(stream).known};
}

Clock whole_clock() {
  const std::lock_guard lock(device_lock());
  Clock whole;
  for (const Stream& stream : order().streams) {
    join(whole, stream.known);
  }
  return whole;
}

void stream_waits(int64_t stream, const Clock& clock) {
  const std::lock_guard lock(device_lock());
  join(at(stream).known, clock);
  forget_ordered();
}

void host_waits(const Clock& clock) {
  const std::lock_guard lock(device_lock());
  join(order().host, clock);
  forget_ordered();
}

int64_t next_access() {
  const std::lock_guard lock(device_lock());
  const int64_t stream = current_stream();
  Clock& known = at(stream).known;
  join(known, order().host);
  known.resize(std::max(known.size(), static_cast<size_t>(stream) + 1));
  return ++known[static_cast<size_t>(stream)];
}

void note_read(const at::Tensor& tensor, const std::string& who) { note(tensor, false, who); }

void note_write(const at::Tensor& tensor, const std::string& who) { note(tensor, true, who); }

void note_release(const void* memory, size_t num_bytes, int64_t stream) {
  const std::lock_guard lock(device_lock());
  const auto first = reinterpret_cast<uintptr_t>(memory);
  join(at(stream).known, order().host);
  for_each_unordered({first, first + num_bytes, true}, stream, [&](int64_t other, const Access& /*theirs*/, const LastTime& last) {
    LastTime& pending = at(stream).given_back[other];
    pending = last.number > pending.number ? last : pending;
  });
  for (Stream& each : order().streams) {
    each.accesses.erase(each.accesses.lower_bound({first, 0, false}), each.accesses.lower_bound({first + num_bytes, 0, false}));
  }
}

void note_allocation() {
  const std::lock_guard lock(device_lock());
  const int64_t stream = current_stream();
  join(at(stream).known, order().host);
  for (const auto& [other, last] : std::exchange(at(stream).given_back, {})) {
    TORCH_CHECK(last.number <= number_of(at(stream).known, other), "fake device: stream ", stream,
                " takes memory that was given back while ", last.who, " of stream ", other, " may not be done with it");
  }
}

}  // namespace darkroom::fake
