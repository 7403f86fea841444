#include "darkroom/files/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "darkroom/core/check.h"
#include "darkroom/files/memory_files.h"
#include "support/remote_files.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

class ReadingAhead : public testing::Test {
 protected:
  void make_file(int64_t num_bytes) {
    bytes_ = numbered_bytes(num_bytes);
    ASSERT_TRUE(write_file_atomic(memory_, "file", bytes_).is_ok());
    file_ = remote_.open_input("file").value();
  }
  static Result<std::string> read(const InputFile& file, int64_t offset, int64_t size) {
    std::string out(static_cast<size_t>(size), '?');
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, std::as_writable_bytes(std::span(out))));
    out.resize(num_read);
    return out;
  }
  std::string want(int64_t offset, int64_t size) const { return bytes_.substr(static_cast<size_t>(offset), static_cast<size_t>(size)); }
  RemoteRequests& requests() { return remote_.requests; }

  MemoryFileSystem memory_;
  RemoteFiles remote_{memory_};
  std::string bytes_;
  std::shared_ptr<const InputFile> file_;
};

TEST_F(ReadingAhead, asks_for_eight_pieces_at_once_and_gives_the_same_bytes) {
  for (const int64_t step : {int64_t{4'099}, kMiB, 3 * kMiB + 1, 40 * kMiB}) {
    make_file(17 * kMiB + 5);
    requests().clear();
    requests().hold_back(8);
    const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = file_->size_bytes()});
    std::string got;
    while (got.size() < bytes_.size()) {
      const Result<std::string> more = read(*ahead, static_cast<int64_t>(got.size()), step);
      ASSERT_TRUE(more.is_ok()) << more.status().to_string();
      ASSERT_FALSE(more->empty());
      got += *more;
    }
    EXPECT_TRUE(got == bytes_);
    EXPECT_EQ(read(*ahead, file_->size_bytes(), 10).value(), "");
    EXPECT_EQ(requests().size(), 18u) << step;
    EXPECT_EQ(requests().num_bytes(), file_->size_bytes());
    EXPECT_EQ(requests().most_at_once(), 8);
  }
}

TEST_F(ReadingAhead, holds_no_more_than_its_bytes) {
  make_file(20 * kMiB);
  ReadAhead ahead(file_, 3 * kMiB);
  const ByteRange all{.offset = 0, .num_bytes = 20 * kMiB};
  ahead.expect(std::span(&all, 1));
  for (int64_t piece = 0; piece < 20; ++piece) {
    requests().wait_for_arrivals(static_cast<size_t>(std::min<int64_t>(20, piece + 3)));
    EXPECT_LE(requests().size(), static_cast<size_t>(piece + 3));
    EXPECT_EQ(read(ahead, piece * kMiB, kMiB).value(), want(piece * kMiB, kMiB));
  }
  EXPECT_EQ(requests().size(), 20u);
}

TEST_F(ReadingAhead, a_budget_below_a_piece_makes_smaller_ones) {
  make_file(10'000);
  const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 10'000}, 3'000);
  EXPECT_EQ(read(*ahead, 0, 10'000).value(), bytes_);
  EXPECT_EQ(requests().size(), 4u);
}

TEST_F(ReadingAhead, columns_come_batch_by_batch) {
  make_file(20 * kMiB);
  const std::array<ByteRange, 2> columns = {{{.offset = 10 * kMiB, .num_bytes = 4 * kMiB}, {.offset = 0, .num_bytes = 8 * kMiB}}};
  ReadAhead ahead(file_, kMiB);  // One at a time: the order is what was planned.
  ahead.expect(columns, 2);
  for (const auto& [offset, size] : {std::pair(10 * kMiB, 2 * kMiB), {0 * kMiB, 4 * kMiB}, {12 * kMiB, 2 * kMiB}, {4 * kMiB, 4 * kMiB}}) {
    EXPECT_EQ(read(ahead, offset, size).value(), want(offset, size));
  }
  std::vector<int64_t> offsets;
  for (const ByteRange& range : requests().ranges()) {
    offsets.push_back(range.offset / kMiB);
  }
  EXPECT_THAT(offsets, ElementsAre(10, 11, 0, 1, 2, 3, 12, 13, 4, 5, 6, 7));
}

TEST_F(ReadingAhead, small_neighbours_are_one_request) {
  make_file(5 * kMiB);
  const std::array<ByteRange, 4> columns = {{{.offset = 100, .num_bytes = 50},
                                             {.offset = 150, .num_bytes = 1'000},
                                             {.offset = 200'000, .num_bytes = 1'000},
                                             {.offset = 2 * kMiB, .num_bytes = 10}}};
  ReadAhead ahead(file_);
  ahead.expect(columns);
  for (const ByteRange& range : columns) {
    EXPECT_EQ(read(ahead, range.offset, range.num_bytes).value(), want(range.offset, range.num_bytes));
  }
  EXPECT_THAT(requests().ranges(), UnorderedElementsAre(ByteRange{100, 200'900}, ByteRange{2 * kMiB, 10}));
}

TEST_F(ReadingAhead, what_nobody_expected_is_read_as_it_is) {
  make_file(4 * kMiB);
  ReadAhead ahead(file_);
  const std::array<ByteRange, 5> odd = {{{.offset = kMiB, .num_bytes = 100},
                                         {.offset = kMiB + 50, .num_bytes = 2 * kMiB},
                                         {.offset = -5, .num_bytes = 10},
                                         {.offset = 9 * kMiB, .num_bytes = 10},
                                         {.offset = 4 * kMiB - 10, .num_bytes = INT64_MAX}}};
  ahead.expect(odd);
  EXPECT_EQ(read(ahead, 0, 4 * kMiB).value(), bytes_);
  EXPECT_EQ(read(ahead, 0, 4 * kMiB).value(), bytes_);
  EXPECT_EQ(read(ahead, 4 * kMiB - 3, 10).value(), want(4 * kMiB - 3, 3));
  EXPECT_EQ(read(ahead, 5 * kMiB, 10).value(), "");
}

TEST_F(ReadingAhead, a_failed_piece_fails_the_read_that_wants_it_alone) {
  make_file(6 * kMiB);
  std::atomic<int> failures = 1;
  requests().trouble = [&](ByteRange range) {
    return range.offset == 2 * kMiB && failures-- > 0 ? Status::unavailable("the store is away") : Status::ok();
  };
  const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 6 * kMiB});
  EXPECT_EQ(read(*ahead, 0, 2 * kMiB).value(), want(0, 2 * kMiB));
  EXPECT_EQ(read(*ahead, 2 * kMiB, kMiB).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(read(*ahead, 2 * kMiB, 4 * kMiB).value(), want(2 * kMiB, 4 * kMiB));
}

TEST_F(ReadingAhead, a_failed_piece_that_nobody_reads_is_not_told) {
  make_file(6 * kMiB);
  requests().trouble = [](ByteRange range) { return range.offset >= kMiB ? Status::unavailable("the store is away") : Status::ok(); };
  const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 6 * kMiB});
  EXPECT_EQ(read(*ahead, 0, kMiB).value(), want(0, kMiB));
}

TEST_F(ReadingAhead, what_a_store_throws_comes_to_who_reads) {
  make_file(2 * kMiB);
  requests().trouble = [](ByteRange) -> Status { throw std::runtime_error("broken"); };
  const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 2 * kMiB});
  EXPECT_THROW((void)read(*ahead, 0, 10), std::runtime_error);
}

TEST_F(ReadingAhead, a_reader_that_skips_gives_back_what_it_passed) {
  make_file(40 * kMiB);
  const auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 40 * kMiB}, 2 * kMiB);
  for (int64_t at = 0; at < 40; at += 9) {
    EXPECT_EQ(read(*ahead, at * kMiB, 100).value(), want(at * kMiB, 100));
  }
  const size_t num_before = requests().size();
  requests().wait_for_arrivals(num_before);
  EXPECT_LE(num_before, 5u * 3);
}

TEST_F(ReadingAhead, its_end_begins_no_request_and_waits_for_those_under_way) {
  make_file(20 * kMiB);
  requests().hold_back(9);  // One more than are asked for.
  auto ahead = with_read_ahead(file_, {.offset = 0, .num_bytes = 20 * kMiB});
  requests().wait_for_arrivals(8);
  std::jthread ends([&] { ahead.reset(); });
  requests().let_go();
  ends.join();
  EXPECT_EQ(requests().num_under_way(), 0);
  EXPECT_EQ(requests().size(), 8u);
}

TEST_F(ReadingAhead, what_is_forgotten_is_not_asked_for) {
  make_file(20 * kMiB);
  ReadAhead ahead(file_, kMiB);
  const ByteRange first{.offset = 0, .num_bytes = 10 * kMiB};
  const ByteRange second{.offset = 10 * kMiB, .num_bytes = 2 * kMiB};
  const int64_t number = ahead.expect(std::span(&first, 1));
  ahead.expect(std::span(&second, 1));
  EXPECT_EQ(read(ahead, 0, kMiB).value(), want(0, kMiB));
  ahead.forget(number);
  EXPECT_EQ(read(ahead, 10 * kMiB, 2 * kMiB).value(), want(10 * kMiB, 2 * kMiB));
  EXPECT_LE(requests().size(), 4u);
  EXPECT_EQ(ahead.num_bytes_planned(), 0);
}

TEST_F(ReadingAhead, a_local_file_is_left_as_it_is) {
  make_file(100);
  const std::shared_ptr<const InputFile> local = memory_.open_input("file").value();
  EXPECT_EQ(with_read_ahead(local, {.offset = 0, .num_bytes = 100}), local);
  EXPECT_EQ(with_read_ahead(file_, {.offset = 0, .num_bytes = 100}, 0), file_);
}

}  // namespace
}  // namespace darkroom
