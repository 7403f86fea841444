// Random schedules of HostScheduler against a model that looks at everything each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/web/host_scheduler.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Instant = HostScheduler::Instant;
using VerdictKind = AttemptVerdict::Kind;

constexpr int kNumSchedules = 10'000;
constexpr int kMaxSteps = 20'000;

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed), rules_(draw_rules()), scheduler_(rules_, seed) {}

  /// What went wrong; empty: nothing.
  std::string run() {
    for (int step = 0; step < kMaxSteps && problem_.empty(); ++step) {
      if (num_added_ < num_rows_ && (chance(0.5) || num_inside() == 0)) {
        add_row();
      }
      if (chance(0.03)) {
        set_paused(!paused_at_.has_value());
      }
      while (auto expired = scheduler_.take_expired(now_)) {
        expect(!paused_at_, "a row expired in an outage", *expired->attempt);
        leave_queue(*expired->attempt);
        end(*expired->attempt);
      }
      take_some();
      expect(scheduler_.num_waiting() == queued_.size() && scheduler_.num_on_wire() == wire_.size(), "the counts differ");
      if (num_ended_ == num_rows_) {
        return check_forgetting();
      }
      advance();
    }
    return problem_.empty() ? "rows are left" : problem_;
  }

 private:
  struct Queued {
    Instant from;  // Local time: not before.
    uint64_t turn;
    Attempt* attempt;
  };
  struct OnWire {
    Instant ends;
    AttemptOutcome outcome;
    std::unique_ptr<Attempt> attempt;
  };
  struct Host {
    int num_on_wire = 0;
    int num_probes = 0;  // On the wire, or waiting for their verdict.
    Instant last_start = Instant::min();
    Instant asked_until = Instant::min();  // By Retry-After.
    bool had_trouble = false;
  };

  bool chance(double share) { return std::uniform_real_distribution<double>(0, 1)(random_) < share; }
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  size_t num_inside() const { return queued_.size() + wire_.size() + suspects_.size(); }
  Instant local() const { return paused_at_.value_or(now_) - shift_; }

  void expect(bool is_true, const char* what) {
    if (!is_true && problem_.empty()) {
      problem_ = what;
    }
  }
  void expect(bool is_true, const char* what, const Attempt& attempt) {
    if (!is_true && problem_.empty()) {
      problem_ = what + std::string(": row ") + std::to_string(attempt.row) + " of " + attempt.host;
    }
  }

  HostRules draw_rules() {
    HostRules rules;
    rules.per_host = 1 + below(4);
    rules.per_host_rps = chance(0.4) ? 0.3 + below(5) : 0;
    rules.max_park = seconds(chance(0.2) ? 0 : below(90));
    rules.num_retries = below(4);
    rules.max_redirects = below(3);
    rules.breaker_failures = 1 + below(4);
    rules.breaker_wait = seconds(1 + below(20));
    rules.forget_after = seconds(below(100));
    num_rows_ = 1 + static_cast<uint64_t>(below(50));
    num_hosts_ = 1 + below(6);
    trouble_ = 0.1 * below(9);
    return rules;
  }

  void add_row() {
    auto attempt = std::make_unique<Attempt>();
    attempt->row = num_added_++;
    attempt->order = static_cast<uint64_t>(below(40));
    attempt->host = "h" + std::to_string(below(num_hosts_));
    attempt->timeout = seconds(1 + below(30));
    join_queue(*attempt, local());
    scheduler_.add(std::move(attempt), now_);
  }

  void set_paused(bool is_paused) {
    if (!is_paused) {
      shift_ += now_ - *paused_at_;
    }
    paused_at_ = is_paused ? std::optional(now_) : std::nullopt;
    scheduler_.set_paused(is_paused, now_);
  }

  void join_queue(Attempt& attempt, Instant from) { queued_.push_back({from, turn_++, &attempt}); }

  void leave_queue(const Attempt& attempt) {
    const size_t before = queued_.size();
    std::erase_if(queued_, [&](const Queued& queued) { return queued.attempt == &attempt; });
    expect(queued_.size() + 1 == before, "a row came that did not wait", attempt);
  }

  void end(const Attempt& attempt) {
    expect(ended_.insert({attempt.row, true}).second, "a row ended twice", attempt);
    expect(attempt.parked <= rules_.max_park + seconds(1), "a row was parked for too long", attempt);  // The step of the clock.
    expect(attempt.num_retries <= rules_.num_retries, "a row was retried too often", attempt);
    ++num_ended_;
  }

  void take_some() {
    was_stopped_ = true;
    for (int left = below(8); left > 0; --left) {
      auto attempt = scheduler_.take(now_);
      if (!attempt) {
        was_stopped_ = false;
        return expect_nobody_may_start();
      }
      Host& host = hosts_[attempt->host];
      const Instant last_start = host.last_start;
      check_start(*attempt);
      if (chance(0.05)) {
        host.last_start = last_start;
        join_queue(*attempt, local());
        scheduler_.put_back(std::move(attempt), now_);
        continue;
      }
      ++host.num_on_wire;
      host.num_probes += attempt->is_probe ? 1 : 0;
      wire_.push_back(draw_fate(std::move(attempt)));
    }
  }

  void check_start(const Attempt& attempt) {
    Host& host = hosts_[attempt.host];
    expect(!paused_at_, "a row started in an outage", attempt);
    for (const Queued& other : queued_) {
      const bool is_before = other.attempt->host == attempt.host && other.from <= local() && other.attempt->order < attempt.order;
      expect(!is_before, "an older row of the host waits", attempt);
    }
    leave_queue(attempt);
    expect(host.num_on_wire < rules_.per_host, "the host has no place", attempt);
    expect(now_ >= host.asked_until, "the host asked for a pause", attempt);
    expect(!attempt.is_probe || host.num_probes == 0, "the host is probed already", attempt);
    expect(is_spaced(host, 0), "the host was asked just now", attempt);
    expect(attempt.used < attempt.timeout, "its deadline has passed", attempt);
    host.last_start = now_;
  }

  bool is_spaced(const Host& host, double slack) const {
    return rules_.per_host_rps == 0 || host.last_start == Instant::min() ||
           std::chrono::duration<double>(now_ - host.last_start).count() >= 1 / rules_.per_host_rps + slack;
  }

  void expect_nobody_may_start() {
    for (const Queued& queued : queued_) {
      const Host& host = hosts_[queued.attempt->host];
      // Outages make the host's own clock late: such hosts are left out with those that ever were in trouble.
      const bool may_start = !paused_at_ && shift_.count() == 0 && !host.had_trouble && queued.from <= local() &&
                             host.num_on_wire < rules_.per_host && is_spaced(host, 1e-6);
      expect(!may_start, "a row may start and does not", *queued.attempt);
    }
  }

  OnWire draw_fate(std::unique_ptr<Attempt> attempt) {
    const Attempt& of = *attempt;
    OnWire fate{now_ + milliseconds(1 + below(3000)), {AttemptOutcome::Kind::kAnswered, 200}, std::move(attempt)};
    if (!chance(trouble_)) {
      return fate;
    }
    const auto answer = [](int status, std::optional<seconds> wait) {
      return AttemptOutcome{AttemptOutcome::Kind::kAnswered, status, RowError{RowErrorCode::kHttpStatus, status}, wait};
    };
    const auto fail = [](RowErrorCode code, bool is_network) {
      return AttemptOutcome{AttemptOutcome::Kind::kFailed, 0, RowError{code}, std::nullopt, is_network};
    };
    const AttemptOutcome outcomes[] = {answer(429, std::nullopt),
                                       answer(429, seconds(below(40))),
                                       answer(503, seconds(chance(0.1) ? 1'000'000'000 : below(40))),
                                       answer(500, std::nullopt),
                                       answer(404, std::nullopt),
                                       fail(RowErrorCode::kConnect, chance(0.7)),
                                       fail(RowErrorCode::kTimeout, true),
                                       fail(RowErrorCode::kDns, chance(0.5)),
                                       {AttemptOutcome::Kind::kRedirect, 301}};
    fate.outcome = outcomes[below(9)];
    if (fate.outcome.error && fate.outcome.error->code == RowErrorCode::kTimeout) {
      fate.ends = now_ + std::chrono::ceil<milliseconds>(of.timeout - of.used);
    }
    return fate;
  }

  void report(OnWire fate) {
    Host& host = hosts_[fate.attempt->host];
    --host.num_on_wire;
    host.had_trouble = host.had_trouble || fate.outcome.status != 200;
    Attempt* attempt = fate.attempt.get();
    const AttemptVerdict verdict = scheduler_.report(fate.attempt, fate.outcome, now_);
    expect((verdict.kind == VerdictKind::kSuspect) == fate.outcome.is_network, "a suspect or none", *attempt);
    if (verdict.kind != VerdictKind::kSuspect) {
      host.num_probes -= attempt->is_probe ? 1 : 0;
      return follow(host, verdict, *attempt, fate);
    }
    fate.ends = now_ + milliseconds(chance(0.5) ? below(3000) : 0);
    suspects_.push_back(std::move(fate));
  }

  // The verdict over a suspect, or that it was us.
  void settle(OnWire suspect) {
    Host& host = hosts_[suspect.attempt->host];
    Attempt* attempt = suspect.attempt.get();
    host.num_probes -= attempt->is_probe ? 1 : 0;
    if (num_restarts_ < 50 && chance(0.2)) {
      ++num_restarts_;
      join_queue(*attempt, local());
      return scheduler_.restart(std::move(suspect.attempt), now_);
    }
    follow(host, scheduler_.judge(suspect.attempt, suspect.outcome, now_), *attempt, suspect);
  }

  void follow(Host& host, const AttemptVerdict& verdict, Attempt& attempt, OnWire& fate) {
    const bool is_kept = verdict.kind == VerdictKind::kRetry || verdict.kind == VerdictKind::kPark;
    expect(is_kept == (fate.attempt == nullptr), "an attempt is lost, or doubled", attempt);
    if (asks_to_wait(fate.outcome)) {
      const seconds longest = std::max(rules_.max_park, rules_.breaker_wait);
      host.asked_until = std::max(host.asked_until, now_ + std::min(longest, fate.outcome.retry_after.value_or(seconds(0))));
    }
    if (verdict.kind == VerdictKind::kRetry) {
      join_queue(attempt, verdict.at - shift_);
    } else if (verdict.kind == VerdictKind::kPark) {
      join_queue(attempt, local());
    } else if (verdict.kind == VerdictKind::kRedirect) {
      attempt.host = "h" + std::to_string(below(num_hosts_));
      join_queue(attempt, local());
      scheduler_.add(std::move(fate.attempt), now_);
    } else {
      expect(verdict.kind == VerdictKind::kFinish, "no verdict", attempt);
      end(attempt);
    }
  }

  // To the next thing that happens, or a little further.
  void advance() {
    std::optional<Instant> next = scheduler_.next_instant();
    for (const auto* fates : {&wire_, &suspects_}) {
      for (const OnWire& fate : *fates) {
        next = std::min(next.value_or(Instant::max()), fate.ends);
      }
    }
    if (paused_at_ && (!next || chance(0.3))) {
      now_ += seconds(below(100));
      return set_paused(false);
    }
    const bool may_take_more = was_stopped_ || num_added_ < num_rows_;
    expect(next || may_take_more || num_ended_ == num_rows_, "rows wait for nothing");
    now_ = std::max(now_, next.value_or(now_)) + milliseconds(chance(0.3) ? below(1000) : 0);
    while (auto ended = take_ended(wire_)) {
      report(std::move(*ended));
    }
    while (auto ended = take_ended(suspects_)) {
      settle(std::move(*ended));
    }
  }

  std::optional<OnWire> take_ended(std::vector<OnWire>& fates) const {
    const auto ended = std::find_if(fates.begin(), fates.end(), [this](const OnWire& fate) { return fate.ends <= now_; });
    if (ended == fates.end()) {
      return std::nullopt;
    }
    OnWire fate = std::move(*ended);
    fates.erase(ended);
    return fate;
  }

  std::string check_forgetting() {
    if (paused_at_) {
      set_paused(false);
    }
    expect(scheduler_.num_waiting() == 0 && scheduler_.num_on_wire() == 0 && !scheduler_.take(now_), "something is left at the end");
    now_ += rules_.forget_after + std::max(rules_.max_park, rules_.breaker_wait) + seconds(10);
    expect(!scheduler_.take(now_) && scheduler_.num_hosts() == 0, "a host is remembered for ever");
    return problem_;
  }

  std::mt19937_64 random_;
  uint64_t num_rows_ = 0;
  int num_hosts_ = 0;
  double trouble_ = 0;
  HostRules rules_;
  HostScheduler scheduler_;
  Instant now_{seconds(1'000'000)};
  std::optional<Instant> paused_at_;
  std::chrono::nanoseconds shift_{0};
  std::map<std::string, Host> hosts_;
  std::vector<Queued> queued_;
  std::vector<OnWire> wire_;
  std::vector<OnWire> suspects_;  // Until their verdict.
  std::map<uint64_t, bool> ended_;
  uint64_t num_added_ = 0, num_ended_ = 0, turn_ = 0;
  int num_restarts_ = 0;
  bool was_stopped_ = false;  // Before take() had no more.
  std::string problem_;
};

// In parts, so that one part can be run alone.
class HostSchedules : public testing::TestWithParam<int> {};

TEST_P(HostSchedules, keep_every_row_and_every_rule) {
  for (int i = 0; i < kNumSchedules / 10; ++i) {
    const auto seed = static_cast<uint64_t>(GetParam() * (kNumSchedules / 10) + i);
    ASSERT_EQ(Schedule(seed).run(), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostSchedules, testing::Range(0, 10));

}  // namespace
}  // namespace darkroom
