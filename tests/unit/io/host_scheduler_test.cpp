#include "darkroom/io/host_scheduler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using VerdictKind = AttemptVerdict::Kind;
using Attempts = std::vector<std::unique_ptr<Attempt>>;

AttemptOutcome good() { return {AttemptOutcome::Kind::kAnswered, 200}; }

AttemptOutcome status(int code, std::optional<seconds> retry_after = std::nullopt) {
  return {AttemptOutcome::Kind::kAnswered, code, RowError{RowErrorCode::kHttpStatus, code}, retry_after};
}

AttemptOutcome broken(RowErrorCode code = RowErrorCode::kConnect, bool is_network = false) {
  return {AttemptOutcome::Kind::kFailed, 0, RowError{code}, std::nullopt, is_network};
}

AttemptOutcome redirect() { return {AttemptOutcome::Kind::kRedirect, 301}; }

std::unique_ptr<Attempt> make_row(uint64_t row, const std::string& host = "a", uint64_t order = 0) {
  auto attempt = std::make_unique<Attempt>();
  attempt->row = row;
  attempt->order = order != 0 ? order : row;
  attempt->host = host;
  return attempt;
}

class Hosts : public testing::Test {
 protected:
  explicit Hosts(HostRules rules = {}) : scheduler_(rules, 1) {}

  void add(uint64_t row, const std::string& host = "a") { scheduler_.add(make_row(row, host), now_); }
  void add_rows(uint64_t first, uint64_t last, const std::string& host = "a") {
    for (uint64_t row = first; row <= last; ++row) {
      add(row, host);
    }
  }
  Attempts take_all() {
    Attempts taken;
    while (auto attempt = scheduler_.take(now_)) {
      taken.push_back(std::move(attempt));
    }
    return taken;
  }
  static std::vector<uint64_t> rows_of(const Attempts& attempts) {
    std::vector<uint64_t> rows;
    for (const auto& attempt : attempts) {
      rows.push_back(attempt->row);
    }
    return rows;
  }
  std::vector<uint64_t> taken_rows() { return rows_of(take_all()); }
  VerdictKind report(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome) {
    verdict_ = scheduler_.report(attempt, outcome, now_);
    return verdict_.kind;
  }
  VerdictKind judge(std::unique_ptr<Attempt>& attempt, RowErrorCode code = RowErrorCode::kTimeout) {
    EXPECT_EQ(report(attempt, broken(code, true)), VerdictKind::kSuspect);
    verdict_ = scheduler_.judge(attempt, broken(code, true), now_);
    return verdict_.kind;
  }
  // Takes rows of the host and lets them time out, until its breaker is open; adds them itself.
  void open_breaker(const std::string& host, int failures = 20) {
    for (int i = 0; i < failures; ++i) {
      add(1000 + static_cast<uint64_t>(i), host);
      auto attempt = scheduler_.take(now_);
      ASSERT_TRUE(attempt) << i;
      ASSERT_EQ(judge(attempt), VerdictKind::kFinish);
    }
  }
  std::vector<uint64_t> expired_rows(std::vector<std::string>* errors = nullptr) {
    std::vector<uint64_t> rows;
    while (auto expired = scheduler_.take_expired(now_)) {
      rows.push_back(expired->attempt->row);
      if (errors != nullptr) {
        errors->push_back(expired->error.name());
      }
    }
    return rows;
  }
  double seconds_until_next() const {
    const auto next = scheduler_.next_instant();
    return next ? std::chrono::duration<double>(*next - now_).count() : -1;
  }

  HostScheduler::Instant now_{seconds(1'000'000)};
  HostScheduler scheduler_;
  AttemptVerdict verdict_;
};

using Rows = std::vector<uint64_t>;

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

TEST_F(Hosts, retry_after_pauses_the_whole_host_outside_the_deadlines) {
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

TEST_F(Hosts, after_a_pause_one_row_probes_and_the_others_follow_its_answer) {
  add_rows(1, 5);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(503, seconds(10)));
  now_ += seconds(10);
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{1});
  EXPECT_EQ(report(taken[0], status(404)), VerdictKind::kFinish);  // An answer is an answer.
  EXPECT_EQ(taken_rows(), (Rows{2, 3, 4, 5}));
}

TEST_F(Hosts, a_503_without_a_time_is_a_failure_like_others) {
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

TEST_F(Hosts, a_host_that_asks_again_is_left_alone_for_longer) {
  const Asked table[] = {
      {std::nullopt, {2, 4, 8, 16, 32, 64, 128, 256}},
      {seconds(0), {2, 4, 8, 16, 32, 64, 128, 256}},  // Also a date in the past.
      {seconds(1), {1, 2, 4, 8, 16, 32, 64, 128, 256}},
      {seconds(30), {30, 30, 30, 30, 30, 32, 64, 128}},
      {seconds(300), {300, 300}},
      {seconds(1'000'000'000), {600}},
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

TEST_F(Hosts, attempts_that_were_under_way_when_a_pause_began_do_not_lengthen_the_next) {
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

TEST_F(Hosts, a_good_answer_of_before_a_pause_ends_no_trouble) {
  add_rows(1, 4);
  Attempts taken = take_all();
  report(taken[0], status(429, seconds(10)));
  EXPECT_EQ(report(taken[1], good()), VerdictKind::kFinish);
  EXPECT_EQ(taken_rows(), Rows{});
  now_ += seconds(10);
  EXPECT_EQ(taken_rows(), Rows{1});  // One probe.
}

TEST_F(Hosts, rows_that_waited_too_long_end_with_what_kept_them) {
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

TEST_F(Hosts, a_host_in_trouble_for_long_costs_later_rows_no_time_but_is_probed) {
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
  Attempts taken = take_all();
  ASSERT_EQ(rows_of(taken), Rows{20});
  report(taken[0], good());
  EXPECT_EQ(taken_rows(), (Rows{21, 22}));
}

class WithoutPark : public Hosts {
 protected:
  WithoutPark() : Hosts({.max_park = seconds(0)}) {}
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

TEST_F(WithoutPark, holding_a_host_ends_no_row) {
  add(1);
  scheduler_.hold("a", now_);
  now_ += seconds(10);
  EXPECT_EQ(expired_rows(), Rows{});
  scheduler_.release("a", now_);
  EXPECT_EQ(taken_rows(), Rows{1});
}

TEST_F(Hosts, the_breaker_opens_after_twenty_network_failures_in_a_row) {
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

TEST_F(Hosts, a_probe_that_fails_opens_the_breaker_for_twice_as_long) {
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

TEST_F(Hosts, a_probe_that_succeeds_closes_the_breaker_for_good) {
  open_breaker("a");
  add_rows(1, 9);
  now_ += seconds(30);
  Attempts taken = take_all();
  report(taken[0], good());
  EXPECT_EQ(taken_rows().size(), 8u);
  open_breaker("b", 19);
  EXPECT_EQ(seconds_until_next(), -1);
}

TEST_F(Hosts, failures_that_are_answers_do_not_open_the_breaker) {
  for (uint64_t row = 1; row <= 100; ++row) {
    add(row);
    auto attempt = scheduler_.take(now_);
    ASSERT_TRUE(attempt);
    const AttemptOutcome outcomes[] = {status(404), broken(RowErrorCode::kDns), broken(RowErrorCode::kTls), status(410)};
    ASSERT_EQ(report(attempt, outcomes[row % 4]), VerdictKind::kFinish);
  }
}

TEST_F(Hosts, a_suspect_counts_only_once_it_is_judged) {
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
    EXPECT_FALSE(attempt->last_error);
    report(attempt, good());
  }
}

TEST_F(Hosts, rows_of_a_dead_host_end_and_none_is_lost) {
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
  EXPECT_EQ(taken_rows(), Rows{99});
}

TEST_F(Hosts, a_parked_host_ends_its_rows_with_the_given_error) {
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

class FewHosts : public Hosts {
 protected:
  FewHosts() : Hosts({.max_idle_hosts = 100}) {}
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

class Spaced : public Hosts {
 protected:
  Spaced() : Hosts({.per_host_rps = 3}) {}
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

TEST_F(Hosts, a_clock_that_goes_back_does_no_harm) {
  add_rows(1, 2);
  auto attempt = scheduler_.take(now_);
  report(attempt, status(429, seconds(10)));
  EXPECT_FALSE(scheduler_.take(now_ - seconds(100)));
  EXPECT_TRUE(scheduler_.take(now_ + seconds(10)));
}

TEST_F(Hosts, misuse_is_noticed) {
  EXPECT_THROW(scheduler_.add(std::make_unique<Attempt>(), now_), CheckFailure);
  auto stranger = make_row(1);
  EXPECT_THROW(scheduler_.report(stranger, good(), now_), CheckFailure);
  EXPECT_THROW(HostScheduler({.per_host = 0}, 1), CheckFailure);
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

}  // namespace
}  // namespace darkroom
