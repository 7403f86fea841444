#include "darkroom/ingest/item_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "darkroom/ingest/job_run.h"
#include "support/planned_jobs.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;

/// Orders from a list, and what was answered as text: "3 committed".
class ListedOrders final : public ItemOrders {
 public:
  Status ready(const OrderedJob& job) override {
    said.push_back(fmt::format("ready {} items, {} rows, open {}", job.num_items, job.num_rows, job.open_items));
    return Status::ok();
  }
  Result<std::optional<int64_t>> next(const std::stop_token&) override {
    if (numbers.empty()) {
      return std::optional<int64_t>();
    }
    const int64_t number = numbers.front();
    numbers.pop_front();
    return std::optional(number);
  }
  Status answer(const ItemAnswer& answer) override {
    static constexpr const char* kNames[] = {"committed", "there", "busy", "unknown"};
    said.push_back(fmt::format("{} {} {}", answer.item, kNames[static_cast<int>(answer.outcome)], answer.tally.rows_out));
    return answer.item == refused ? Status::unavailable("nobody listens") : Status::ok();
  }

  std::deque<int64_t> numbers;
  std::vector<std::string> said;
  int64_t refused = -2;  // The item whose answer nobody hears.
};

/// A job of five items (four of 5 rows, one of 3) that somebody orders.
class OrderedItems : public ::testing::Test {
 protected:
  void SetUp() override { add_input(files_, "a.parquet", 23); }

  std::unique_ptr<JobRun> start(const std::string& owner, ItemOrders* orders, Selection selection = {.on_demand = true}) {
    auto plan = plan_job(*store_, std::move(selection));
    EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
    EXPECT_TRUE((*plan)->prepare().is_ok());
    return std::make_unique<JobRun>(*std::move(plan), RunTools{.clock = &clock_, .owner = owner, .orders = orders});
  }
  std::optional<WorkItem> take(JobRun& run) {
    auto item = run.take_item({});
    EXPECT_TRUE(item.is_ok()) << item.status().to_string();
    return item.is_ok() ? *item : std::nullopt;
  }
  Status commit(JobRun& run, const WorkItem& item) {
    DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, write_item(run.plan(), item));
    JobItem done(item);
    return run.commit(done, std::make_unique<FinishedPart>(std::move(shard), tally_of(item)));
  }
  /// Takes and commits until there is nothing ordered.
  void work(JobRun& run) {
    while (const auto item = take(run)) {
      ASSERT_TRUE(commit(run, *item).is_ok());
    }
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeClock clock_;
  ListedOrders orders_;
};

TEST_F(OrderedItems, are_done_in_the_order_of_the_orders_and_answered) {
  orders_.numbers = {3, 0, 4};
  const auto run = start("one", &orders_);
  EXPECT_TRUE(run->has_work());
  work(*run);
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 23 rows, open 0-4", "3 committed 5", "0 committed 5", "4 committed 3"));
  EXPECT_EQ(run->plan().num_parts(), 3);
  EXPECT_TRUE(files_.list("out/_claims")->empty());
}

TEST_F(OrderedItems, that_are_there_are_told_with_their_counts) {
  orders_.numbers = {1, 2};
  work(*start("one", &orders_));
  ListedOrders later;
  later.numbers = {2, 4, 4, 1};
  work(*start("two", &later));
  EXPECT_THAT(later.said, ElementsAre("ready 5 items, 23 rows, open 0,3-4", "2 there 5", "4 committed 3", "4 there 3", "1 there 5"));
}

TEST_F(OrderedItems, that_the_job_does_not_have_are_unknown) {
  orders_.numbers = {5, -1, INT64_MAX, 4};
  const auto run = start("one", &orders_, {.limit = 18, .on_demand = true});
  work(*run);
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 18 rows, open 0-3", "5 unknown 0", "-1 unknown 0", "9223372036854775807 unknown 0",
                                        "4 unknown 0"));
}

TEST_F(OrderedItems, that_others_are_at_are_busy_and_nobody_waits) {
  const auto other = start("other", nullptr, {});
  const auto held = take(*other);
  ASSERT_TRUE(held.has_value());
  orders_.numbers = {0, 1};
  const auto run = start("one", &orders_);
  work(*run);
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 23 rows, open 0-4", "0 busy 0", "1 committed 5"));
  ASSERT_TRUE(commit(*other, *held).is_ok());
  orders_.said.clear();
  orders_.numbers = {0};
  work(*run);
  EXPECT_THAT(orders_.said, ElementsAre("0 there 5")) << "what others committed meanwhile is looked for";
}

TEST_F(OrderedItems, that_others_committed_first_are_there) {
  orders_.numbers = {2, 0};
  const auto run = start("one", &orders_);
  const auto item = take(*run);
  ASSERT_TRUE(item.has_value());
  const auto plan_of_other = plan_job(*store_, {});  // Whose claim could not be taken, say.
  ASSERT_TRUE(plan_of_other.is_ok() && (*plan_of_other)->prepare().is_ok());
  ASSERT_TRUE(commit_item(**plan_of_other, *item).is_ok());
  ASSERT_TRUE(commit(*run, *item).is_ok());
  work(*run);
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 23 rows, open 0-4", "2 there 5", "0 committed 5"));
}

TEST_F(OrderedItems, that_are_asked_for_twice_are_done_once) {
  orders_.numbers = {2, 2};
  const auto run = start("one", &orders_);
  const auto item = take(*run);
  ASSERT_TRUE(item.has_value());
  EXPECT_FALSE(take(*run).has_value());
  ASSERT_TRUE(commit(*run, *item).is_ok());
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 23 rows, open 0-4", "2 busy 0", "2 committed 5"));
}

TEST_F(OrderedItems, end_the_run_when_nobody_listens) {
  orders_.numbers = {2};
  orders_.refused = 2;
  const auto run = start("one", &orders_);
  const auto item = take(*run);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(commit(*run, *item).code(), StatusCode::kUnavailable);
  EXPECT_EQ(run->plan().num_parts(), 1) << "what was committed stays";
}

TEST_F(OrderedItems, without_an_order_pin_the_job) {
  const auto run = start("one", &orders_);
  EXPECT_FALSE(take(*run).has_value());
  EXPECT_THAT(orders_.said, ElementsAre("ready 5 items, 23 rows, open 0-4"));
  EXPECT_TRUE(files_.stat("out/_inputs.parquet").is_ok());
}

}  // namespace
}  // namespace darkroom
