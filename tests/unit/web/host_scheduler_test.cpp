// Turns, limits, retries, redirects and memory of HostScheduler; its pauses are in host_pauses_test.cpp.

#include <gtest/gtest.h>

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

class Hosts : public ScheduledHosts {};

TEST_F(Hosts, the_oldest_row_goes_first_over_all_hosts) {
  for (const uint64_t row : {5, 2, 9, 1, 7}) {
    add(row, row % 2 == 0 ? "a" : "b");
  }
  EXPECT_EQ(taken_rows(), (Rows{1, 2, 5, 7, 9}));
  EXPECT_EQ(scheduler_.num_waiting(), 0u);
  EXPECT_EQ(scheduler_.num_on_wire(), 5u);
}

TEST_F(Hosts, of_rows_of_one_order_the_one_added_first_goes_first) {
  for (uint64_t row = 10; row < 15; ++row) {
    scheduler_.add(make_row(row, "a", 3), now_);
  }
  EXPECT_EQ(taken_rows(), (Rows{10, 11, 12, 13, 14}));
}

TEST_F(Hosts, a_host_has_sixteen_places_and_others_are_not_held_up) {
  add_rows(1, 20, "a");
  add_rows(21, 22, "b");
  Attempts taken = take_all();
  EXPECT_EQ(taken.size(), 18u);
  EXPECT_EQ(taken.back()->row, 22u);
  EXPECT_EQ(report(taken[3], good()), VerdictKind::kFinish);
  EXPECT_EQ(taken_rows(), Rows{17});
}

TEST_F(Hosts, a_row_ends_by_a_good_answer_or_an_error_that_stands) {
  add_rows(1, 5);
  Attempts taken = take_all();
  EXPECT_EQ(report(taken[0], good()), VerdictKind::kFinish);
  EXPECT_FALSE(verdict_.error);
  EXPECT_EQ(report(taken[1], status(404)), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "http_404");
  EXPECT_EQ(report(taken[2], broken(RowErrorCode::kTls)), VerdictKind::kFinish);
  EXPECT_EQ(report(taken[3], broken(RowErrorCode::kDns, false)), VerdictKind::kFinish);
  EXPECT_EQ(judge(taken[4], RowErrorCode::kTimeout), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "timeout");
  EXPECT_TRUE(taken[4]);  // Still the caller's.
  EXPECT_EQ(scheduler_.num_waiting() + scheduler_.num_on_wire(), 0u);
}

TEST_F(Hosts, failures_that_may_pass_are_retried_twice_after_growing_waits) {
  add(1);
  auto attempt = scheduler_.take(now_);
  for (const int longest : {500, 1000}) {
    ASSERT_EQ(report(attempt, status(500)), VerdictKind::kRetry);
    EXPECT_FALSE(attempt);
    EXPECT_GE(verdict_.at - now_, milliseconds(longest / 2));
    EXPECT_LE(verdict_.at - now_, milliseconds(longest));
    EXPECT_EQ(scheduler_.next_instant(), verdict_.at);
    EXPECT_FALSE(scheduler_.take(verdict_.at - milliseconds(1)));
    now_ = verdict_.at;
    attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt);
  }
  EXPECT_EQ(attempt->num_retries, 2);
  EXPECT_EQ(report(attempt, status(502)), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "http_502");
}

TEST_F(Hosts, a_wait_that_would_pass_the_deadline_is_not_begun) {
  add(1);
  auto attempt = scheduler_.take(now_);
  now_ += milliseconds(19'900);
  EXPECT_EQ(report(attempt, broken()), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "connect");
}

TEST_F(Hosts, the_deadline_counts_the_wire_and_back_offs_but_neither_turns_nor_our_own_pauses) {
  add(1);
  now_ += seconds(100);  // Waiting for a turn.
  auto attempt = scheduler_.take(now_);
  now_ += seconds(15);
  AttemptOutcome outcome = broken();
  outcome.paused = seconds(12);
  ASSERT_EQ(report(attempt, outcome), VerdictKind::kRetry);
  const auto back_off = verdict_.at - now_;
  now_ = verdict_.at + seconds(50);
  attempt = scheduler_.take(now_);
  EXPECT_EQ(attempt->used, seconds(3) + back_off);
}

TEST_F(Hosts, a_held_host_lets_internal_attempts_pass) {
  add_rows(1, 2);
  scheduler_.hold("a", now_);
  EXPECT_EQ(taken_rows(), Rows{});
  auto robots = make_row(99, "a", 1'000'000);
  robots->is_internal = true;
  scheduler_.add(std::move(robots), now_);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{99});
  now_ += seconds(900);
  EXPECT_EQ(expired_rows(), Rows{});  // Holding is our own doing.
  report(taken[0], good());
  EXPECT_EQ(taken_rows(), Rows{});
  scheduler_.release("a", now_);
  EXPECT_EQ(taken_rows(), (Rows{1, 2}));
}

TEST_F(Hosts, internal_attempts_go_first_but_wait_for_a_paused_host) {
  add_rows(1, 2);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(429, seconds(60)));
  auto robots = make_row(99, "a", 1'000'000);
  robots->is_internal = true;
  scheduler_.add(std::move(robots), now_);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += seconds(60);
  EXPECT_EQ(taken_rows(), (Rows{99, 1, 2}));
}

TEST_F(Hosts, an_internal_attempt_has_the_turn_of_the_oldest_row_that_waits_for_it) {
  add(1, "a");
  scheduler_.hold("a", now_);
  add_rows(2, 3, "b");
  auto robots = make_row(99, "a", 1'000'000);
  robots->is_internal = true;
  scheduler_.add(std::move(robots), now_);
  EXPECT_EQ(taken_rows(), (Rows{99, 2, 3}));
}

TEST_F(Hosts, what_was_taken_in_vain_goes_back_to_its_turn) {
  add_rows(1, 3);
  auto attempt = scheduler_.take(now_);
  scheduler_.put_back(std::move(attempt), now_);
  EXPECT_EQ(scheduler_.num_on_wire(), 0u);
  EXPECT_EQ(taken_rows(), (Rows{1, 2, 3}));
}

TEST_F(Hosts, a_redirect_is_another_hop_of_the_same_row) {
  add(1);
  auto attempt = scheduler_.take(now_);
  now_ += seconds(2);
  ASSERT_EQ(report(attempt, redirect()), VerdictKind::kRedirect);
  attempt->host = "b";
  scheduler_.add(std::move(attempt), now_);
  attempt = scheduler_.take(now_);
  EXPECT_EQ(attempt->num_redirects, 1);
  EXPECT_EQ(attempt->used, seconds(2));
  for (int hop = 2; hop <= 10; ++hop) {
    ASSERT_EQ(report(attempt, redirect()), VerdictKind::kRedirect) << hop;
    scheduler_.add(std::move(attempt), now_);
    attempt = scheduler_.take(now_);
  }
  EXPECT_EQ(report(attempt, redirect()), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "too_many_redirects");
}

TEST_F(Hosts, a_redirect_that_comes_at_the_deadline_is_too_late) {
  add(1);
  auto attempt = scheduler_.take(now_);
  now_ += seconds(20);
  EXPECT_EQ(report(attempt, redirect()), VerdictKind::kFinish);
  EXPECT_EQ(verdict_.error->name(), "timeout");
}

TEST_F(Hosts, in_an_outage_nothing_starts_or_ends_and_all_times_stand_still) {
  add(1);
  add(2, "b");
  add(3, "c");
  add(4, "c");
  Attempts taken = take_all();
  ASSERT_EQ(taken.size(), 4u);
  report(taken[0], status(500));
  const auto back_off = verdict_.at - now_;
  report(taken[1], status(429, seconds(500)));
  now_ += milliseconds(100);
  scheduler_.set_paused(true, now_);
  scheduler_.set_paused(true, now_ + seconds(5));
  EXPECT_FALSE(scheduler_.next_instant());
  now_ += seconds(3600);
  add(5, "d");
  EXPECT_EQ(taken_rows(), Rows{});
  EXPECT_EQ(expired_rows(), Rows{});
  ASSERT_EQ(report(taken[2], broken(RowErrorCode::kConnect, true)), VerdictKind::kSuspect);
  EXPECT_EQ(taken[2]->used, milliseconds(100));  // Of the hour nothing.
  scheduler_.set_paused(false, now_);
  EXPECT_EQ(scheduler_.next_instant(), now_ + back_off - milliseconds(100));
  EXPECT_EQ(taken_rows(), Rows{5});
  now_ += back_off - milliseconds(100);
  EXPECT_EQ(taken_rows(), Rows{1});
  now_ += milliseconds(499'999) - back_off;
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += milliseconds(1);
  EXPECT_EQ(taken_rows(), Rows{2});
  EXPECT_EQ(expired_rows(), Rows{});
}

TEST_F(Hosts, hosts_are_forgotten_when_there_is_nothing_to_remember) {
  for (uint64_t row = 1; row <= 20'000; ++row) {
    add(row, "host" + std::to_string(row));
    auto attempt = scheduler_.take(now_);
    now_ += milliseconds(1);
    report(attempt, good());
    ASSERT_LE(scheduler_.num_hosts(), 2u);
  }
}

TEST_F(Hosts, hosts_in_trouble_are_remembered_for_ten_minutes) {
  open_breaker("a");
  now_ += seconds(599);
  add(1, "b");
  EXPECT_EQ(scheduler_.num_hosts(), 2u);
  now_ += seconds(1);
  add(2, "b");
  EXPECT_EQ(scheduler_.num_hosts(), 1u);
}

class FewHosts : public ScheduledHosts {
 protected:
  FewHosts() : ScheduledHosts({.max_idle_hosts = 100}) {}
};

TEST_F(FewHosts, no_more_hosts_in_trouble_are_remembered_than_allowed) {
  for (uint64_t row = 1; row <= 1000; ++row) {
    add(row, "host" + std::to_string(row));
    auto attempt = scheduler_.take(now_);
    judge(attempt);
    ASSERT_LE(scheduler_.num_hosts(), 102u);
  }
  EXPECT_GE(scheduler_.num_hosts(), 100u);
}

class Spaced : public ScheduledHosts {
 protected:
  Spaced() : ScheduledHosts({.per_host_rps = 3}) {}
};

TEST_F(Spaced, rows_of_a_host_start_evenly_however_long_it_was_quiet) {
  add_rows(1, 7);
  std::vector<HostScheduler::Instant> starts;
  for (int i = 0; i < 7; ++i) {
    Attempts taken = take_all();
    ASSERT_EQ(taken.size(), 1u);
    starts.push_back(now_);
    report(taken[0], good());
    now_ = scheduler_.next_instant().value_or(now_);
  }
  for (int i = 1; i < 7; ++i) {
    EXPECT_GE(starts[i] - starts[i - 1], std::chrono::nanoseconds(333'333'333)) << i;
    EXPECT_LE(starts[i] - starts[i - 1], std::chrono::nanoseconds(333'333'334)) << i;
  }
  now_ += seconds(100);
  add_rows(8, 9);
  EXPECT_EQ(taken_rows().size(), 1u);
}

TEST_F(Spaced, what_was_taken_in_vain_costs_its_host_no_time) {
  add_rows(1, 2);
  scheduler_.put_back(scheduler_.take(now_), now_);
  EXPECT_EQ(taken_rows(), Rows{1});
  now_ += milliseconds(333);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += milliseconds(1);
  EXPECT_EQ(taken_rows(), Rows{2});
}

TEST_F(Hosts, a_clock_that_goes_back_stands_still) {
  add_rows(1, 2);
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(scheduler_.report(attempt, status(429, seconds(10)), now_ - seconds(100)).kind, VerdictKind::kPark);
  EXPECT_FALSE(scheduler_.take(now_ + milliseconds(9'999)));
  attempt = scheduler_.take(now_ + seconds(10));
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->used, seconds(0));
}

TEST_F(Hosts, a_clock_that_goes_back_in_an_outage_stands_still) {
  add(1);
  auto attempt = scheduler_.take(now_);
  ASSERT_EQ(report(attempt, status(500)), VerdictKind::kRetry);
  scheduler_.set_paused(true, now_);
  now_ += seconds(100);
  add(2, "b");
  scheduler_.set_paused(false, now_ - seconds(50));
  EXPECT_EQ(scheduler_.next_instant(), verdict_.at + seconds(100));
}

TEST_F(Hosts, misuse_is_noticed) {
  EXPECT_THROW(scheduler_.add(std::make_unique<Attempt>(), now_), CheckFailure);
  auto stranger = make_row(1);
  EXPECT_THROW(scheduler_.report(stranger, good(), now_), CheckFailure);
  EXPECT_THROW(HostScheduler({.per_host = 0}, 1), CheckFailure);
  add(1);
  auto attempt = scheduler_.take(now_);
  AttemptOutcome no_error = status(429);
  no_error.error.reset();
  EXPECT_THROW(scheduler_.report(attempt, no_error, now_), CheckFailure);
}

TEST_F(Hosts, an_attempt_that_we_break_off_has_used_its_time_but_for_pauses) {
  add(1);
  auto attempt = scheduler_.take(now_);
  now_ += seconds(7);
  scheduler_.interrupt(std::move(attempt), seconds(3), now_);
  EXPECT_EQ(scheduler_.num_on_wire(), 0u);
  attempt = scheduler_.take(now_);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->used, seconds(4));
  EXPECT_EQ(attempt->num_retries, 0);
}

TEST(HostRate, counts_the_start_of_an_attempt_that_we_break_off) {
  HostScheduler scheduler({.per_host_rps = 1}, 1);
  HostScheduler::Instant now{seconds(1'000'000)};
  for (const uint64_t row : {1, 2}) {
    auto attempt = std::make_unique<Attempt>();
    attempt->row = attempt->order = row;
    attempt->host = "a";
    scheduler.add(std::move(attempt), now);
  }
  scheduler.interrupt(scheduler.take(now), seconds(0), now);
  EXPECT_FALSE(scheduler.take(now));
  EXPECT_TRUE(scheduler.take(now + seconds(1)));
}

TEST(HostRules, name_the_first_bad_field) {
  const std::pair<HostRules, std::string> bad[] = {{{.per_host = 0}, "per_host must be at least 1: 0"},
                                                   {{.per_host_rps = -1}, "per_host_rps"},
                                                   {{.per_host_rps = 1e-9}, "per_host_rps"},
                                                   {{.per_host_rps = 1e9}, "per_host_rps"},
                                                   {{.max_park = seconds(-1)}, "max_park"},
                                                   {{.num_retries = 101}, "num_retries"},
                                                   {{.first_backoff = milliseconds(-1)}, "first_backoff"},
                                                   {{.max_redirects = -1}, "max_redirects"},
                                                   {{.first_throttle = milliseconds(0)}, "first_throttle"},
                                                   {{.breaker_failures = 0}, "breaker_failures"},
                                                   {{.breaker_wait = seconds(0)}, "breaker_wait"},
                                                   {{.forget_after = seconds(-1)}, "forget_after"}};
  for (const auto& [rules, part] : bad) {
    EXPECT_EQ(rules.validate().code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(rules.validate().message().find(part), std::string::npos) << rules.validate().message();
  }
  EXPECT_TRUE(HostRules{}.validate().is_ok());
}

TEST_F(Hosts, a_host_has_more_while_rows_must_wait_for_its_places) {
  EXPECT_FALSE(scheduler_.has_more("a"));
  EXPECT_EQ(scheduler_.num_on_wire("a"), 0);
  add_rows(1, 16);
  EXPECT_FALSE(scheduler_.has_more("a"));  // All may start.
  add(17);
  EXPECT_TRUE(scheduler_.has_more("a"));
  Attempts taken = take_all();
  ASSERT_EQ(taken.size(), 16u);
  EXPECT_EQ(scheduler_.num_on_wire("a"), 16);
  EXPECT_TRUE(scheduler_.has_more("a"));
  EXPECT_EQ(report(taken.back(), broken()), AttemptVerdict::Kind::kRetry);
  EXPECT_TRUE(scheduler_.has_more("a"));  // The one of the back-off wants its place back.
  EXPECT_EQ(report(taken.front(), good()), AttemptVerdict::Kind::kFinish);
  EXPECT_FALSE(scheduler_.has_more("a"));
  EXPECT_FALSE(scheduler_.has_more("b"));
}

}  // namespace
}  // namespace darkroom
