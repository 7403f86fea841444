// What HostScheduler does with hosts in trouble: Retry-After, the breaker, suspects, and rows that wait for them.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "scheduled_hosts.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Rows = std::vector<uint64_t>;
using VerdictKind = AttemptVerdict::Kind;

class PausedHosts : public ScheduledHosts {};

TEST_F(PausedHosts, retry_after_pauses_the_whole_host_outside_the_deadlines) {
  add_rows(1, 3);
  add(4, "b");
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(429, seconds(120))), VerdictKind::kPark);
  EXPECT_EQ(verdict_.at, now_ + seconds(120));
  EXPECT_EQ(taken_rows(), Rows{4});
  EXPECT_EQ(scheduler_.num_parked_hosts(), 1u);
  EXPECT_EQ(seconds_until_next(), 120);
  now_ += milliseconds(119'999);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += milliseconds(1);
  attempt = scheduler_.take(now_);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->row, 1u);
  EXPECT_EQ(attempt->num_retries, 0);
  EXPECT_EQ(attempt->used, seconds(0));
  EXPECT_EQ(attempt->parked, seconds(120));
  EXPECT_EQ(scheduler_.num_parked_hosts(), 0u);
}

TEST_F(PausedHosts, rows_that_no_place_would_help_are_set_aside) {
  add_rows(1, 40);
  add(50, "b");
  EXPECT_EQ(scheduler_.num_set_aside(), 0u) << "they wait for places";
  EXPECT_EQ(scheduler_.num_beyond_places(), 24u) << "of 16 places";
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(429, seconds(120))), VerdictKind::kPark);
  EXPECT_EQ(scheduler_.num_set_aside(), 40u);
  EXPECT_EQ(scheduler_.num_beyond_places(), 0u);
  attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(500)), VerdictKind::kRetry);
  EXPECT_EQ(scheduler_.num_set_aside(), 41u) << "a back-off";
  now_ += seconds(120);
  Attempts taken = take_all();
  ASSERT_EQ(taken.size(), 17u);
  EXPECT_EQ(scheduler_.num_waiting(), 24u);
  EXPECT_EQ(scheduler_.num_set_aside(), 0u);
  EXPECT_EQ(scheduler_.num_beyond_places(), 24u);
}

TEST_F(PausedHosts, rows_behind_the_probe_of_a_breaker_are_set_aside) {
  open_breaker("a", 20);
  add_rows(1, 5);
  EXPECT_EQ(scheduler_.num_set_aside(), 5u);
  now_ += seconds(30);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{1});
  EXPECT_EQ(scheduler_.num_set_aside(), 4u);
  EXPECT_EQ(report(taken[0], good()), VerdictKind::kFinish);
  EXPECT_EQ(scheduler_.num_set_aside(), 0u);
}

// One row that is slow to be answered would hold up all of a host that is well.
TEST_F(PausedHosts, after_a_pause_that_the_host_asked_for_all_its_places_are_free) {
  add_rows(1, 5);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(503, seconds(10)));
  now_ += seconds(10);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), (Rows{1, 2, 3, 4, 5}));
  for (const auto& row : taken) {
    EXPECT_FALSE(row->is_probe);
  }
  EXPECT_EQ(report(taken[0], status(503)), VerdictKind::kRetry);  // Nothing of what it asked for before is left.
}

TEST_F(PausedHosts, after_a_breaker_one_row_probes_and_the_others_follow_its_answer) {
  open_breaker("a", 20);
  add_rows(1, 5);
  now_ += seconds(30);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{1});
  EXPECT_TRUE(taken[0]->is_probe);
  EXPECT_EQ(report(taken[0], status(404)), VerdictKind::kFinish);  // An answer is an answer.
  EXPECT_EQ(taken_rows(), (Rows{2, 3, 4, 5}));
}

TEST_F(PausedHosts, a_503_without_a_time_is_a_failure_like_others) {
  add(1);
  auto attempt = scheduler_.take(now_);
  EXPECT_EQ(report(attempt, status(503)), VerdictKind::kRetry);
  add(2);
  EXPECT_EQ(taken_rows(), Rows{2});
}

struct Asked {
  std::optional<seconds> retry_after;
  std::vector<int> waits;  // Of one 429 after the other, in seconds.
};

TEST_F(PausedHosts, a_host_that_asks_again_is_left_alone_for_longer) {
  const Asked table[] = {
      {std::nullopt, {2, 4, 8, 16, 32, 64, 128, 256}},
      {seconds(0), {2, 4, 8, 16, 32, 64, 128, 256}},  // Also a date in the past.
      {seconds(1), {1, 2, 4, 8, 16, 32, 64, 128, 256}},
      {seconds(30), {30, 30, 30, 30, 30, 32, 64, 128}},
      {seconds(300), {300, 300}},
      {seconds(1'000'000'000), {600}},
      {seconds(1'000'000'000'000'000'000), {600}},
      {seconds::max(), {600}},
      {seconds::min(), {2, 4, 8, 16, 32, 64, 128, 256}},
  };
  int host = 0;
  for (const Asked& asked : table) {
    const std::string name = "host" + std::to_string(host++);
    add(1, name);
    for (const int wait : asked.waits) {
      auto attempt = scheduler_.take(now_);
      ASSERT_TRUE(attempt) << name << " " << wait;
      ASSERT_EQ(report(attempt, status(429, asked.retry_after)), VerdictKind::kPark) << name << " " << wait;
      EXPECT_EQ(verdict_.at - now_, seconds(wait)) << name;
      now_ = verdict_.at;
    }
    auto attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt);
    EXPECT_EQ(report(attempt, status(429, asked.retry_after)), VerdictKind::kFinish) << name;  // More than max_park in all.
    EXPECT_EQ(verdict_.error->name(), "http_429");
    EXPECT_EQ(attempt->num_retries, 0);
  }
}

TEST_F(PausedHosts, attempts_that_were_under_way_when_a_pause_began_do_not_lengthen_the_next) {
  add_rows(1, 3);
  Attempts taken = take_all();
  EXPECT_EQ(report(taken[0], status(429)), VerdictKind::kPark);
  EXPECT_EQ(verdict_.at - now_, seconds(2));
  EXPECT_EQ(report(taken[1], status(429)), VerdictKind::kPark);
  EXPECT_EQ(verdict_.at - now_, seconds(2));
  EXPECT_EQ(report(taken[2], status(429, seconds(7))), VerdictKind::kPark);  // But a later time is obeyed.
  EXPECT_EQ(verdict_.at - now_, seconds(7));
  now_ += seconds(7);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(429));
  EXPECT_EQ(verdict_.at - now_, seconds(4));
}

TEST_F(PausedHosts, a_good_answer_of_before_a_pause_ends_no_trouble) {
  add_rows(1, 4);
  Attempts taken = take_all();
  report(taken[0], status(429, seconds(10)));
  EXPECT_EQ(report(taken[1], good()), VerdictKind::kFinish);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += seconds(10);
  taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{1});
  report(taken[0], status(429));
  EXPECT_EQ(verdict_.at - now_, seconds(4));  // The second pause in a row.
}

TEST_F(PausedHosts, a_late_wish_for_time_is_a_pause_of_its_own) {
  add_rows(1, 4);
  Attempts taken = take_all();
  report(taken[0], status(429, seconds(10)));
  now_ += seconds(10);
  Attempts again = take_all();
  ASSERT_EQ(rows_of(again), Rows{1});
  report(taken[1], status(429, seconds(60)));
  EXPECT_EQ(verdict_.at - now_, seconds(60));
  report(again[0], good());  // Asked for before that wish.
  add_rows(11, 13);
  now_ += milliseconds(59'999);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += milliseconds(1);
  EXPECT_EQ(taken_rows(), (Rows{2, 11, 12, 13}));
}

TEST_F(PausedHosts, a_row_ends_with_what_keeps_it_not_with_what_it_met_before) {
  add(1);
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(500)), VerdictKind::kRetry);
  now_ = verdict_.at;
  const RowError error{RowErrorCode::kOptedOut, 0, "robots.txt"};
  scheduler_.park("a", seconds(600), error, now_);
  now_ += seconds(599);
  scheduler_.park("a", seconds(30), error, now_);
  now_ += seconds(1);
  std::vector<std::string> errors;
  EXPECT_EQ(expired_rows(&errors), Rows{1});
  EXPECT_EQ(errors, std::vector<std::string>{"opted_out"});
}

TEST_F(PausedHosts, the_time_between_two_pauses_is_no_waiting) {
  add(1);
  scheduler_.hold("a", now_);  // So that nothing happens at the end of the first one.
  for (int i = 0; i < 2; ++i) {
    scheduler_.park("a", seconds(10), RowError{RowErrorCode::kOptedOut}, now_);
    now_ += seconds(i == 0 ? 400 : 10);
  }
  scheduler_.release("a", now_);
  const auto attempt = scheduler_.take(now_);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->parked, seconds(20));
}

TEST_F(PausedHosts, rows_that_waited_too_long_end_with_what_kept_them) {
  add_rows(1, 3);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(429, seconds(400)));
  now_ += seconds(100);
  add(4);
  now_ += seconds(300);
  attempt = scheduler_.take(now_);
  EXPECT_EQ(report(attempt, status(429, seconds(400))), VerdictKind::kFinish);  // 400 + 400 > 600.
  EXPECT_EQ(expired_rows(), Rows{});
  EXPECT_EQ(seconds_until_next(), 200);
  now_ += milliseconds(199'999);
  EXPECT_EQ(expired_rows(), Rows{});
  now_ += milliseconds(1);
  std::vector<std::string> errors;
  // In trouble for 600 s: row 4, which has waited for 500, ends with the others.
  Rows rows = expired_rows(&errors);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (Rows{2, 3, 4}));
  EXPECT_EQ(errors, (std::vector<std::string>{"http_429", "http_429", "http_429"}));
  EXPECT_EQ(scheduler_.num_waiting(), 0u);
}

TEST_F(PausedHosts, a_host_in_trouble_for_long_costs_later_rows_no_time_but_is_asked_again) {
  add(1);
  for (int i = 0; i < 2; ++i) {
    auto attempt = scheduler_.take(now_);
    report(attempt, status(429, seconds(600)));
    now_ += i == 0 ? seconds(600) : seconds(1);
  }
  add_rows(10, 12);
  EXPECT_EQ(expired_rows().size(), 3u);  // At once.
  now_ += seconds(599);
  add_rows(20, 22);
  EXPECT_EQ(expired_rows(), Rows{});
  EXPECT_EQ(taken_rows(), (Rows{20, 21, 22}));
}

class WithoutPark : public ScheduledHosts {
 protected:
  WithoutPark() : ScheduledHosts({.max_park = seconds(0)}) {}
};

TEST_F(WithoutPark, nothing_waits_but_the_host_is_left_alone) {
  add_rows(1, 3);
  auto attempt = scheduler_.take(now_);
  EXPECT_EQ(report(attempt, status(429, seconds(5))), VerdictKind::kFinish);
  EXPECT_EQ(expired_rows().size(), 2u);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += seconds(5);
  add(4);
  EXPECT_EQ(taken_rows(), Rows{4});
}

TEST_F(WithoutPark, a_row_that_cannot_wait_ends_with_what_the_host_said_last) {
  add_rows(1, 3);
  Attempts taken = take_all();
  report(taken[0], status(429, seconds(10)));
  now_ += seconds(10);
  add(4);
  Attempts probe = take_all();
  ASSERT_EQ(rows_of(probe), Rows{4});
  EXPECT_EQ(report(taken[1], status(503, seconds(20))), VerdictKind::kFinish);
  EXPECT_EQ(report(probe[0], good()), VerdictKind::kFinish);
  add(5);
  std::vector<std::string> errors;
  EXPECT_EQ(expired_rows(&errors), Rows{5});
  EXPECT_EQ(errors, std::vector<std::string>{"http_503"});
}

TEST_F(WithoutPark, holding_a_host_ends_no_row) {
  add(1);
  scheduler_.hold("a", now_);
  now_ += seconds(10);
  EXPECT_EQ(expired_rows(), Rows{});
  scheduler_.release("a", now_);
  EXPECT_EQ(taken_rows(), Rows{1});
}

TEST_F(PausedHosts, the_breaker_opens_after_twenty_network_failures_without_an_answer) {
  open_breaker("a", 19);
  add(1);
  auto attempt = scheduler_.take(now_);
  EXPECT_EQ(report(attempt, good()), VerdictKind::kFinish);  // Breaks the row.
  open_breaker("a", 20);
  add_rows(1, 3);
  EXPECT_EQ(taken_rows(), Rows{});
  EXPECT_EQ(seconds_until_next(), 30);
  now_ += seconds(30);
  EXPECT_EQ(taken_rows(), Rows{1});
}

class WidelyAskedHosts : public ScheduledHosts {
 protected:
  WidelyAskedHosts() : ScheduledHosts({.per_host = 100}) {}
};

TEST_F(WidelyAskedHosts, failures_of_attempts_that_began_before_an_answer_do_not_open_the_breaker) {
  add_rows(1, 41);
  Attempts taken = take_all();
  ASSERT_EQ(taken.size(), 41u);
  ASSERT_EQ(report(taken[0], broken(RowErrorCode::kTimeout, true)), VerdictKind::kSuspect);
  EXPECT_EQ(report(taken[40], good()), VerdictKind::kFinish);
  for (size_t i = 1; i < 40; ++i) {
    ASSERT_EQ(report(taken[i], broken(RowErrorCode::kTimeout, true)), VerdictKind::kSuspect);
  }
  add(50);
  auto later = scheduler_.take(now_);
  ASSERT_TRUE(later) << "suspects that began before the answer hold the host up";
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(scheduler_.judge(taken[i], broken(RowErrorCode::kTimeout, true), now_).kind, VerdictKind::kFinish);
  }
  add(51);
  EXPECT_EQ(taken_rows(), Rows{51});
  open_breaker("a", 20);
  add(52);
  EXPECT_EQ(taken_rows(), Rows{});
  EXPECT_EQ(seconds_until_next(), 30);
}

TEST_F(PausedHosts, a_probe_that_fails_opens_the_breaker_for_twice_as_long) {
  open_breaker("a");
  add_rows(1, 9);
  for (const int wait : {30, 60, 120, 240}) {
    EXPECT_EQ(seconds_until_next(), wait);
    now_ += seconds(wait);
    Attempts taken = take_all();
    ASSERT_EQ(taken.size(), 1u) << wait;
    judge(taken[0]);
  }
  EXPECT_EQ(seconds_until_next(), 150);  // In trouble for 450 s of 600; 480 more are to be waited.
}

// A host that asked for time is alive: one connection that breaks afterwards is the row's trouble.
TEST_F(PausedHosts, a_row_that_fails_after_retry_after_opens_no_breaker) {
  add_rows(1, 3);
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(429, seconds(1))), VerdictKind::kPark);
  now_ += seconds(1);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), (Rows{1, 2, 3}));
  EXPECT_EQ(judge(taken[0]), VerdictKind::kFinish);
  add(4);
  EXPECT_EQ(taken_rows(), Rows{4});
}

TEST_F(PausedHosts, a_probe_that_succeeds_closes_the_breaker_for_good) {
  open_breaker("a");
  add_rows(1, 9);
  now_ += seconds(30);
  Attempts taken = take_all();
  report(taken[0], good());
  EXPECT_EQ(taken_rows().size(), 8u);
  open_breaker("b", 19);
  EXPECT_EQ(seconds_until_next(), -1);
}

TEST_F(PausedHosts, failures_that_are_answers_do_not_open_the_breaker) {
  for (uint64_t row = 1; row <= 100; ++row) {
    add(row);
    auto attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt);
    const AttemptOutcome outcomes[] = {status(404), broken(RowErrorCode::kDns), broken(RowErrorCode::kTls), status(410)};
    ASSERT_EQ(report(attempt, outcomes[row % 4]), VerdictKind::kFinish);
  }
}

TEST_F(PausedHosts, a_suspect_counts_only_once_it_is_judged) {
  for (int i = 0; i < 40; ++i) {
    add(1);
    auto attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt) << i;
    now_ += seconds(1);
    ASSERT_EQ(report(attempt, broken(RowErrorCode::kConnect, true)), VerdictKind::kSuspect);
    ASSERT_TRUE(attempt);
    EXPECT_EQ(scheduler_.num_on_wire(), 0u);
    EXPECT_EQ(attempt->used, seconds(1));
    scheduler_.restart(std::move(attempt), now_);
    attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt) << i;
    EXPECT_EQ(attempt->used, seconds(0));
    EXPECT_EQ(attempt->num_retries, 0);
    report(attempt, good());
  }
}

TEST_F(PausedHosts, a_probe_that_failed_stays_the_only_one_until_it_is_judged) {
  open_breaker("a");
  add_rows(1, 3);
  now_ += seconds(30);
  auto probe = scheduler_.take(now_);
  ASSERT_TRUE(probe);
  ASSERT_EQ(report(probe, broken(RowErrorCode::kTimeout, true)), VerdictKind::kSuspect);
  EXPECT_EQ(taken_rows(), Rows{});
  scheduler_.judge(probe, broken(RowErrorCode::kTimeout, true), now_);
  EXPECT_EQ(seconds_until_next(), 60);
  now_ += seconds(60);
  probe = scheduler_.take(now_);
  ASSERT_TRUE(probe);
  ASSERT_EQ(report(probe, broken(RowErrorCode::kTimeout, true)), VerdictKind::kSuspect);
  EXPECT_EQ(taken_rows(), Rows{});
  scheduler_.restart(std::move(probe), now_);  // It was us.
  EXPECT_EQ(taken_rows(), Rows{2});
}

TEST_F(PausedHosts, rows_that_fail_at_once_do_not_all_fail_before_the_first_is_judged) {
  add_rows(1, 100);
  Attempts suspects;
  while (auto attempt = scheduler_.take(now_)) {
    ASSERT_EQ(report(attempt, broken(RowErrorCode::kConnect, true)), VerdictKind::kSuspect);
    suspects.push_back(std::move(attempt));
  }
  EXPECT_EQ(suspects.size(), 20u);  // They would open the breaker.
  EXPECT_FALSE(scheduler_.next_instant());
  scheduler_.restart(std::move(suspects.back()), now_);
  suspects.pop_back();
  suspects.push_back(scheduler_.take(now_));
  ASSERT_TRUE(suspects.back());
  ASSERT_EQ(report(suspects.back(), broken(RowErrorCode::kConnect, true)), VerdictKind::kSuspect);
  for (auto& suspect : suspects) {
    EXPECT_EQ(taken_rows(), Rows{});
    EXPECT_EQ(scheduler_.judge(suspect, broken(RowErrorCode::kConnect, true), now_).kind, VerdictKind::kRetry);
  }
  EXPECT_EQ(taken_rows(), Rows{});
  EXPECT_EQ(scheduler_.num_parked_hosts(), 1u);
}

TEST_F(PausedHosts, a_host_is_remembered_while_a_failure_waits_for_its_verdict) {
  for (int i = 0; i < 20; ++i) {
    add(1);
    auto attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt) << i;
    ASSERT_EQ(report(attempt, broken(RowErrorCode::kTimeout, true)), VerdictKind::kSuspect);
    now_ += std::chrono::hours(1);
    add(2, "b");
    auto other = scheduler_.take(now_);
    ASSERT_TRUE(other);
    report(other, good());
    scheduler_.judge(attempt, broken(RowErrorCode::kTimeout, true), now_);
  }
  add(3);
  EXPECT_EQ(taken_rows(), Rows{});
}

TEST_F(PausedHosts, only_suspects_are_judged_or_restarted) {
  add_rows(1, 2);
  Attempts taken = take_all();
  report(taken[0], good());
  EXPECT_THROW(scheduler_.judge(taken[0], broken(RowErrorCode::kConnect, true), now_), CheckFailure);
  EXPECT_THROW(scheduler_.restart(std::move(taken[1]), now_), CheckFailure);
}

TEST_F(PausedHosts, rows_of_a_dead_host_end_and_none_is_lost) {
  add_rows(1, 500, "dead");
  size_t num_tried = 0, num_expired = 0;
  const auto begin = now_;
  while (scheduler_.num_waiting() > 0) {
    num_expired += expired_rows().size();
    Attempts taken = take_all();
    now_ += seconds(1);
    for (auto& attempt : taken) {
      num_tried += judge(attempt, RowErrorCode::kTimeout) == VerdictKind::kFinish ? 1 : 0;
    }
    if (taken.empty() && scheduler_.next_instant()) {
      now_ = std::max(now_, *scheduler_.next_instant());
    }
    ASSERT_LT(now_ - begin, seconds(1000));
  }
  EXPECT_EQ(num_tried + num_expired, 500u);
  EXPECT_LT(num_tried, 60u);
  EXPECT_LE(now_ - begin, seconds(610));  // max_park for the host, not for each row.
}

TEST_F(PausedHosts, a_parked_host_ends_its_rows_with_the_given_error) {
  add_rows(1, 2);
  scheduler_.park("a", seconds(600), RowError{RowErrorCode::kOptedOut, 0, "robots.txt"}, now_);
  now_ += seconds(599);
  EXPECT_EQ(expired_rows(), Rows{});
  scheduler_.park("a", seconds(30), RowError{RowErrorCode::kOptedOut, 0, "robots.txt"}, now_);
  now_ += seconds(1);
  std::vector<std::string> errors;
  EXPECT_EQ(expired_rows(&errors).size(), 2u);
  EXPECT_EQ(errors, (std::vector<std::string>{"opted_out", "opted_out"}));
}

}  // namespace
}  // namespace darkroom
