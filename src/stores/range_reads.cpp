#include "range_reads.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

int64_t end_of(const ByteRange& range) { return range.offset + range.num_bytes; }

/// The first failure of calls that run at once.
class FirstFailure {
 public:
  bool is_set() const { return is_set_; }
  void run(const std::function<Status(size_t)>& call, size_t i) {
    try {
      if (Status status = call(i); !status.is_ok()) {
        set(std::move(status), nullptr);
      }
    } catch (...) {
      set({}, std::current_exception());
    }
  }
  Status get() const {
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
    return status_;
  }

 private:
  void set(Status status, std::exception_ptr thrown) {
    const std::lock_guard hold(mutex_);
    if (!is_set_.exchange(true)) {
      status_ = std::move(status);
      thrown_ = std::move(thrown);
    }
  }

  std::atomic<bool> is_set_ = false;
  std::mutex mutex_;
  Status status_;
  std::exception_ptr thrown_;
};

}  // namespace

Status run_at_once(size_t count, int num_at_once, const std::function<Status(size_t)>& call) {
  std::atomic<size_t> next = 0;
  FirstFailure failure;
  const auto work = [&] {
    for (size_t i = 0; !failure.is_set() && (i = next++) < count;) {
      failure.run(call, i);
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min(count, static_cast<size_t>(num_at_once)); ++i) {
        threads.emplace_back(work);
      }
    } catch (const std::system_error&) {  // No more threads: those that are there do it.
    }
    work();
  }
  return failure.get();
}

std::vector<RangeRequest> plan_range_requests(std::span<const ByteRange> ranges) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return ranges[i].num_bytes == 0; });
  std::ranges::stable_sort(order, {}, [&](size_t i) { return ranges[i].offset; });
  std::vector<RangeRequest> requests;
  for (const size_t i : order) {
    const ByteRange& range = ranges[i];
    if (range.num_bytes > kMostRequestBytes) {
      for (int64_t at = range.offset; at < end_of(range); at += kMostRequestBytes) {
        requests.push_back({.bytes = {.offset = at, .num_bytes = std::min(kMostRequestBytes, end_of(range) - at)}, .ranges = {i}});
      }
      continue;
    }
    const bool is_joined = !requests.empty() && ranges[requests.back().ranges[0]].num_bytes <= kMostRequestBytes &&
                           range.offset - end_of(requests.back().bytes) < kMostGapBytes &&
                           end_of(range) - requests.back().bytes.offset <= kMostRequestBytes;
    if (!is_joined) {
      requests.push_back({.bytes = range, .ranges = {i}});
      continue;
    }
    RangeRequest& request = requests.back();
    request.bytes.num_bytes = std::max(end_of(request.bytes), end_of(range)) - request.bytes.offset;
    request.ranges.push_back(i);
  }
  return requests;
}

Status read_ranges_at_once(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out, const ReadBytes& read) {
  DARKROOM_CHECK(ranges.size() == out.size(), "as many buffers as ranges (ranges, buffers):", ranges.size(), out.size());
  const std::vector<RangeRequest> requests = plan_range_requests(ranges);
  return run_at_once(requests.size(), kMostRequestsAtOnce, [&](size_t r) {
    const RangeRequest& request = requests[r];
    const auto place = [&](size_t i, int64_t offset, int64_t num_bytes) {
      return out[i].subspan(static_cast<size_t>(offset - ranges[i].offset), static_cast<size_t>(num_bytes));
    };
    if (request.ranges.size() == 1) {
      return read(request.bytes, place(request.ranges[0], request.bytes.offset, request.bytes.num_bytes));
    }
    std::vector<std::byte> bytes(static_cast<size_t>(request.bytes.num_bytes));
    DARKROOM_RETURN_IF_ERROR(read(request.bytes, bytes));
    for (const size_t i : request.ranges) {
      const auto from = bytes.begin() + (ranges[i].offset - request.bytes.offset);
      std::copy_n(from, ranges[i].num_bytes, out[i].begin());
    }
    return Status::ok();
  });
}

}  // namespace darkroom
