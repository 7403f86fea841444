#include "darkroom/ingest/body_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

constexpr size_t kPoolLimit = 100;

/// A pool over memory whose oldest piece, 0, holds `busy_bytes`.
struct PoolUnderTest {
  PoolUnderTest(size_t busy_bytes, int64_t scratch_bytes, int64_t segment_bytes = 1000) : oldest(memory, 0) {
    oldest.set_held(busy_bytes);
    if (scratch_bytes > 0) {
      pool.emplace(memory, ScratchFiles::open(folder.path(), scratch_bytes, segment_bytes).value());
    } else {
      pool.emplace(memory);
    }
  }
  BodyPool::Kept keep(std::string& body, BodyLease& lease, SpilledBody& spilled) { return pool->keep(body, lease, spilled); }
  BodyLease admit(uint64_t order, const std::string& body) {
    BodyLease lease(memory, order);
    lease.set_held(body.size());
    return lease;
  }

  TemporaryFolder folder;
  BodyMemory memory{kPoolLimit};
  std::optional<BodyPool> pool;
  BodyLease oldest;
};

// The one nameless file that this process has open in a folder.
std::string nameless_file(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with(folder) && target.ends_with(" (deleted)")) {
      return entry.path().string();
    }
  }
  return "";
}

TEST(BodyPool, keeps_bodies_in_memory_while_there_is_plenty) {
  PoolUnderTest test(70, 1000);
  std::string body = "five!";
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kMemory) << "three quarters are in use, no more";
  EXPECT_EQ(body, "five!");
  EXPECT_FALSE(spilled.is_on_disk());
  EXPECT_EQ(lease.held_bytes(), 5u);
  EXPECT_EQ(test.pool->num_spilled(), 0);
}

TEST(BodyPool, spills_when_memory_runs_short_and_gives_it_back) {
  PoolUnderTest test(71, 1000);
  std::string body = "five!";
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kScratch);
  EXPECT_TRUE(body.empty());
  EXPECT_EQ(lease.held_bytes(), 0u);
  EXPECT_EQ(spilled.num_bytes(), 5);
  EXPECT_EQ(test.pool->scratch_used_bytes(), 5);
  EXPECT_EQ(test.pool->num_spilled(), 1);
  ASSERT_TRUE(test.pool->load(spilled, body).is_ok());
  EXPECT_EQ(body, "five!");
  EXPECT_FALSE(spilled.is_on_disk());
  EXPECT_EQ(test.pool->scratch_used_bytes(), 0);
}

TEST(BodyPool, frees_the_memory_of_what_it_spills) {
  PoolUnderTest test(71, 10'000);
  std::string body(5'000, 'b');
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kScratch);
  EXPECT_EQ(body.capacity(), std::string().capacity());
}

TEST(BodyPool, spills_as_soon_as_somebody_waits_for_memory) {
  PoolUnderTest test(10, 1000);
  std::string body = "five!";
  BodyLease lease = test.admit(1, body);
  const BodyLease waiting(test.memory, 2);
  bool is_granted = false;
  ASSERT_EQ(test.memory.ask(2, 86, [&] { is_granted = true; }), BodyMemory::Answer::kQueued);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kScratch);
  EXPECT_TRUE(is_granted) << "that made the room";
}

TEST(BodyPool, has_nothing_to_spill_of_a_failed_row) {
  PoolUnderTest test(100, 1000);
  std::string body;
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kMemory);
}

TEST(BodyPool, without_a_disk_bodies_stay_in_memory) {
  PoolUnderTest test(100, 0);
  std::string body = "five!";
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  EXPECT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kNoRoom);
  EXPECT_EQ(body, "five!");
  EXPECT_EQ(lease.held_bytes(), 5u);
  EXPECT_EQ(test.pool->scratch_used_bytes(), 0);
}

TEST(BodyPool, on_a_full_disk_bodies_stay_in_memory_until_there_is_room_again) {
  PoolUnderTest test(100, 8);
  std::string first = "five!", second = "six!!!";
  BodyLease first_lease = test.admit(1, first), second_lease = test.admit(2, second);
  SpilledBody first_spilled, second_spilled;
  ASSERT_EQ(test.keep(first, first_lease, first_spilled), BodyPool::Kept::kScratch);
  EXPECT_EQ(test.keep(second, second_lease, second_spilled), BodyPool::Kept::kNoRoom);
  EXPECT_EQ(second, "six!!!");
  EXPECT_EQ(second_lease.held_bytes(), 6u);
  first_spilled.discard();
  EXPECT_EQ(test.keep(second, second_lease, second_spilled), BodyPool::Kept::kScratch);
}

TEST(BodyPool, a_broken_disk_is_left_alone_and_what_is_on_it_stays_readable) {
  PoolUnderTest test(100, 1000, 5);
  std::string first = "five!", second = "six!!!";
  BodyLease first_lease = test.admit(1, first), second_lease = test.admit(2, second);
  SpilledBody first_spilled, second_spilled;
  ASSERT_EQ(test.keep(first, first_lease, first_spilled), BodyPool::Kept::kScratch);
  std::filesystem::remove_all(test.folder.path());  // The next segment cannot be made.
  EXPECT_EQ(test.keep(second, second_lease, second_spilled), BodyPool::Kept::kNoRoom);
  EXPECT_EQ(second, "six!!!");
  std::filesystem::create_directory(test.folder.path());
  EXPECT_EQ(test.keep(second, second_lease, second_spilled), BodyPool::Kept::kNoRoom) << "it is not tried again";
  ASSERT_TRUE(test.pool->load(first_spilled, first).is_ok());
  EXPECT_EQ(first, "five!");
}

TEST(BodyPool, bytes_that_cannot_be_read_back_are_a_failure_of_the_store) {
  PoolUnderTest test(100, 1000);
  std::string body = "five!";
  BodyLease lease = test.admit(1, body);
  SpilledBody spilled;
  ASSERT_EQ(test.keep(body, lease, spilled), BodyPool::Kept::kScratch);
  const std::string file = nameless_file(test.folder.path());
  ASSERT_NE(file, "");
  ASSERT_EQ(truncate(file.c_str(), 3), 0);
  const Status status = test.pool->load(spilled, body);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find("reading back a picture that waited on disk: "), 0u) << status.message();
  EXPECT_EQ(test.pool->scratch_used_bytes(), 0) << "the place is given back all the same";
}

TEST(BodyPool, what_nobody_wants_any_more_gives_its_place_back) {
  PoolUnderTest test(100, 1000);
  std::string first = "five!", second = "six!!!";
  BodyLease first_lease = test.admit(1, first), second_lease = test.admit(2, second);
  {
    SpilledBody one, other;
    ASSERT_EQ(test.keep(first, first_lease, one), BodyPool::Kept::kScratch);
    ASSERT_EQ(test.keep(second, second_lease, other), BodyPool::Kept::kScratch);
    one = std::move(other);
    EXPECT_EQ(one.num_bytes(), 6);
    EXPECT_FALSE(other.is_on_disk());  // NOLINT(bugprone-use-after-move)
    const SpilledBody third(std::move(one));
    EXPECT_TRUE(third.is_on_disk());
    EXPECT_GT(test.pool->scratch_used_bytes(), 0);
  }
  EXPECT_EQ(test.pool->scratch_used_bytes(), 0);
}

TEST(BodyPool, its_bytes_and_those_of_the_intake_are_read_at_each_scrape) {
  PoolUnderTest test(100, 1000);
  MetricsRegistry metrics;
  BodyMemory intake(50);
  const auto collection = collect_queue_bytes(metrics, intake, &*test.pool);
  std::string first = "five!", second = "six!!!";
  BodyLease first_lease = test.admit(1, first), second_lease = test.admit(2, second);
  SpilledBody spilled;
  ASSERT_EQ(test.keep(first, first_lease, spilled), BodyPool::Kept::kScratch);
  BodyLease admitted(intake, 1);
  admitted.set_held(7);
  const std::string text = metrics.to_prometheus();
  EXPECT_NE(text.find(fmt::format("darkroom_queue_bytes{{queue=\"bodies\"}} {}\n", test.pool->memory().used_bytes())), std::string::npos);
  EXPECT_GE(test.pool->memory().used_bytes(), 6u);
  EXPECT_NE(text.find("darkroom_queue_bytes{queue=\"intake\"} 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("darkroom_queue_bytes{{queue=\"scratch\"}} {}\n", test.pool->scratch_used_bytes())), std::string::npos);
}

}  // namespace
}  // namespace darkroom
