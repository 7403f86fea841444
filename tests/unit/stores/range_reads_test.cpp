#include "stores/range_reads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

#include "support/no_new_threads.h"

namespace darkroom {
namespace {

constexpr int64_t kMb = int64_t{1} << 20;

TEST(range_reads, join_what_is_near_and_cut_what_is_long) {
  const std::vector<ByteRange> ranges = {{.offset = 100, .num_bytes = 10},
                                         {.offset = 0, .num_bytes = 50},
                                         {.offset = 5, .num_bytes = 0},
                                         {.offset = 110 + kMostGapBytes, .num_bytes = 7},
                                         {.offset = 100 * kMb, .num_bytes = 17 * kMb},
                                         {.offset = 117 * kMb + 5, .num_bytes = 1}};
  const std::vector<RangeRequest> want = {{.bytes = {.offset = 0, .num_bytes = 110}, .ranges = {1, 0}},
                                          {.bytes = {.offset = 110 + kMostGapBytes, .num_bytes = 7}, .ranges = {3}},
                                          {.bytes = {.offset = 100 * kMb, .num_bytes = 8 * kMb}, .ranges = {4}},
                                          {.bytes = {.offset = 108 * kMb, .num_bytes = 8 * kMb}, .ranges = {4}},
                                          {.bytes = {.offset = 116 * kMb, .num_bytes = kMb}, .ranges = {4}},
                                          {.bytes = {.offset = 117 * kMb + 5, .num_bytes = 1}, .ranges = {5}}};
  EXPECT_EQ(plan_range_requests(ranges), want);
  const std::vector<ByteRange> near = {{.offset = 0, .num_bytes = 1}, {.offset = kMostGapBytes, .num_bytes = 1}};
  EXPECT_EQ(plan_range_requests(near).size(), 1u);  // A gap of one byte less than the limit.
  const std::vector<ByteRange> full = {{.offset = 0, .num_bytes = 8 * kMb}, {.offset = 8 * kMb, .num_bytes = 1}};
  EXPECT_EQ(plan_range_requests(full).size(), 2u);  // Together more than one request's bytes.
}

TEST(range_reads, fill_every_range_whatever_their_order_and_overlap) {
  std::mt19937 random(7);
  std::string object(9'000'011, '\0');
  for (size_t i = 0; i < object.size(); ++i) {
    object[i] = static_cast<char>(i * 31 + i / 256);
  }
  const auto read = [&](ByteRange range, std::span<std::byte> out) {
    EXPECT_EQ(static_cast<size_t>(range.num_bytes), out.size());
    std::memcpy(out.data(), object.data() + range.offset, out.size());
    return Status::ok();
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<ByteRange> ranges;
    std::vector<std::string> got;
    for (int i = 0; i < 30; ++i) {
      const int64_t longest = i % 7 == 0 ? 9'000'011 : 200'000;
      const int64_t offset = static_cast<int64_t>(random() % object.size());
      ranges.push_back({.offset = offset, .num_bytes = std::min<int64_t>(random() % longest, 9'000'011 - offset)});
      got.emplace_back(static_cast<size_t>(ranges.back().num_bytes), '\0');
    }
    std::vector<std::span<std::byte>> out;
    for (std::string& text : got) {
      out.push_back(std::as_writable_bytes(std::span(text)));
    }
    ASSERT_TRUE(read_ranges_at_once(ranges, out, read).is_ok());
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_TRUE(got[i] == object.substr(static_cast<size_t>(ranges[i].offset), got[i].size())) << round << " " << i;
    }
  }
}

TEST(run_at_once, calls_each_once_and_returns_the_first_failure) {
  std::vector<std::atomic<int>> calls(100);
  ASSERT_TRUE(run_at_once(100, 8, [&](size_t i) {
                ++calls[i];
                return Status::ok();
              }).is_ok());
  for (const auto& count : calls) {
    EXPECT_EQ(count, 1);
  }
  std::atomic<int> num_calls = 0;
  const Status failed = run_at_once(1000, 1, [&](size_t i) {
    ++num_calls;
    return i == 3 ? Status::unavailable("the third") : Status::ok();
  });
  EXPECT_EQ(failed.message(), "the third");
  EXPECT_EQ(num_calls, 4);
  std::barrier all_begun(4);  // The failure comes while the others are under way; they end, and no more are begun.
  num_calls = 0;
  const Status first = run_at_once(1000, 4, [&](size_t i) {
    ++num_calls;
    if (i >= 4) {
      return Status::internal("begun after the failure");
    }
    all_begun.arrive_and_wait();
    return Status::unavailable("one of the first four");
  });
  EXPECT_EQ(first.message(), "one of the first four");
  EXPECT_EQ(num_calls, 4);
  EXPECT_THROW((void)run_at_once(5, 3, [](size_t) -> Status { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_TRUE(run_at_once(0, 8, [](size_t) { return Status::internal("never"); }).is_ok());
}

TEST(run_at_once, goes_on_where_no_thread_can_start) {
  const NoNewThreads none;
  std::vector<int> calls(20);
  ASSERT_TRUE(run_at_once(calls.size(), 8, [&](size_t i) {
                ++calls[i];
                return Status::ok();
              }).is_ok());
  EXPECT_EQ(calls, std::vector<int>(20, 1));
}

}  // namespace
}  // namespace darkroom
