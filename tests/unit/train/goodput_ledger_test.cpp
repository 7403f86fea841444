#include "train/goodput_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using namespace std::chrono_literals;

/// Starts of a run on a clock that the test moves.
class GoodputLedgerTest : public testing::Test {
 protected:
  static constexpr const char* kPath = "goodput.jsonl";

  /// A start that takes `set_up` until its first step.
  std::unique_ptr<GoodputLedger> start(int64_t steps_done, std::chrono::milliseconds set_up) {
    const Clock::Instant began = clock_.now();
    clock_.advance(set_up);
    auto ledger = GoodputLedger::open(files_, kPath, clock_, began, steps_done);
    EXPECT_TRUE(ledger.is_ok()) << ledger.status().to_string();
    return *std::move(ledger);
  }
  void spend(GoodputLedger& ledger, Spending what, std::chrono::milliseconds time) {
    clock_.advance(time);
    ledger.spend(what);
  }
  /// Ten steps of a second's training and 100 ms of waiting for data.
  void train(GoodputLedger& ledger, int64_t steps_done) {
    for (int64_t step = steps_done + 1; step <= steps_done + 10; ++step) {
      spend(ledger, Spending::kDataWait, 100ms);
      spend(ledger, Spending::kTraining, 1000ms);
      ASSERT_TRUE(ledger.record(step).is_ok());
    }
  }
  std::vector<nlohmann::json> lines() {
    std::istringstream text(*read_file(files_, kPath));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  /// Every line's parts make up the time since the run began.
  void expect_sums() {
    for (const auto& line : lines()) {
      double sum = 0;
      for (size_t i = 0; i < kNumSpendings; ++i) {
        sum += line[spending_name(static_cast<Spending>(i))].get<double>();
      }
      EXPECT_NEAR(sum, line["time"].get<double>() - line["began"].get<double>(), 1e-5) << line;  // Of 1.8e9 s in doubles.
    }
  }
  static double of(const GoodputLedger& ledger, Spending what) { return ledger.spent()[static_cast<size_t>(what)]; }

  MemoryFileSystem files_;
  FakeClock clock_;
};

TEST_F(GoodputLedgerTest, the_parts_of_an_undisturbed_run_add_up_to_its_wall_time) {
  const auto ledger = start(0, 5s);
  train(*ledger, 0);
  spend(*ledger, Spending::kLooking, 2s);
  spend(*ledger, Spending::kSaving, 2s);
  ASSERT_TRUE(ledger->record_end(10).is_ok());
  EXPECT_NEAR(of(*ledger, Spending::kStarting), 5, 1e-6);
  EXPECT_NEAR(of(*ledger, Spending::kTraining), 10, 1e-6);
  EXPECT_NEAR(of(*ledger, Spending::kDataWait), 1, 1e-6);
  EXPECT_NEAR(ledger->goodput(), 10.0 / 20, 1e-9);
  EXPECT_EQ(lines().front()["event"], "begin");
  EXPECT_EQ(lines().back()["event"], "end");
  EXPECT_NEAR(lines().back()["goodput"].get<double>(), 0.5, 1e-9);
  expect_sums();
}

TEST_F(GoodputLedgerTest, what_a_kill_cost_is_lost_and_the_pause_after_it_is_starting) {
  auto ledger = start(0, 5s);
  train(*ledger, 0);
  spend(*ledger, Spending::kSaving, 1s);
  ASSERT_TRUE(ledger->record_saved(10).is_ok());
  train(*ledger, 10);
  ledger.reset();  // Killed at step 20, seven seconds before the next start.
  clock_.advance(7s);
  ledger = start(10, 3s);
  EXPECT_NEAR(of(*ledger, Spending::kLost), 11, 1e-5);
  EXPECT_NEAR(of(*ledger, Spending::kTraining), 10, 1e-5);
  EXPECT_NEAR(of(*ledger, Spending::kSaving), 1, 1e-5);
  EXPECT_NEAR(of(*ledger, Spending::kStarting), 5 + 7 + 3, 1e-5);
  train(*ledger, 10);
  ledger.reset();  // Once more, before anything was saved.
  ledger = start(10, 0s);
  EXPECT_NEAR(of(*ledger, Spending::kLost), 22, 1e-5);
  EXPECT_NEAR(of(*ledger, Spending::kTraining), 10, 1e-5);
  expect_sums();
}

TEST_F(GoodputLedgerTest, a_run_that_begins_again_has_lost_all_its_work) {
  auto ledger = start(0, 2s);
  train(*ledger, 0);
  ledger = start(0, 2s);
  EXPECT_EQ(of(*ledger, Spending::kTraining), 0);
  EXPECT_NEAR(of(*ledger, Spending::kLost), 11, 1e-5);
  expect_sums();
}

TEST_F(GoodputLedgerTest, time_after_a_stop_on_request_is_nobodys_fault) {
  auto ledger = start(0, 1s);
  train(*ledger, 0);
  ASSERT_TRUE(ledger->record_end(10).is_ok());
  const double before = ledger->goodput();
  clock_.advance(std::chrono::hours(24));
  ledger = start(10, 0s);
  EXPECT_NEAR(of(*ledger, Spending::kAway), 86'400, 1e-4);
  EXPECT_NEAR(ledger->goodput(), before, 1e-6);
  expect_sums();
}

TEST_F(GoodputLedgerTest, a_torn_line_is_cut_away_and_a_damaged_one_is_passed_over) {
  auto ledger = start(0, 1s);
  train(*ledger, 0);
  ASSERT_TRUE(ledger->record_saved(10).is_ok());
  ledger.reset();
  const std::string whole = *read_file(files_, kPath);
  ASSERT_TRUE(write_file_atomic(files_, kPath, whole + "nonsense\n{\"step\":10}\n{\"step\":11,\"tr").is_ok());
  ledger = start(10, 0s);
  EXPECT_NEAR(of(*ledger, Spending::kTraining), 10, 1e-5);
  EXPECT_EQ(read_file(files_, kPath)->find("{\"step\":11,\"tr"), std::string::npos);
  EXPECT_EQ(read_file(files_, kPath)->back(), '\n');
}

TEST_F(GoodputLedgerTest, a_date_that_goes_back_makes_nothing_negative) {
  auto ledger = start(0, 1s);
  train(*ledger, 0);
  ledger.reset();
  clock_.set_wall(clock_.wall() - std::chrono::hours(1));
  ledger = start(10, 1s);
  for (const double seconds : ledger->spent()) {
    EXPECT_GE(seconds, 0);
  }
}

TEST_F(GoodputLedgerTest, a_long_start_writes_few_lines) {
  const auto ledger = start(0, 1s);
  constexpr int64_t kSteps = 100'000;  // Of 100 ms each: ten thousand seconds.
  for (int64_t step = 1; step <= kSteps; ++step) {
    spend(*ledger, Spending::kTraining, 100ms);
    ASSERT_TRUE(ledger->record(step).is_ok());
  }
  const size_t num_lines = lines().size();
  EXPECT_GT(num_lines, 1'000U);
  EXPECT_LT(num_lines, 4'000U);
}

TEST_F(GoodputLedgerTest, goes_on_in_another_file_where_its_own_is_gone) {
  const auto ledger = start(0, 1s);
  train(*ledger, 0);
  ASSERT_TRUE(files_.remove_file(kPath).is_ok());
  ASSERT_TRUE(ledger->move_to(files_, kPath).is_ok());
  ASSERT_TRUE(ledger->record_saved(10).is_ok());
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_NEAR(lines()[0]["training"].get<double>(), 10, 1e-6);
  expect_sums();
}

}  // namespace
}  // namespace darkroom
