#include "darkroom/io/host_scheduler.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

struct HostScheduler::Host {
  std::string name;

  std::map<Position, std::unique_ptr<Attempt>> rows;
  std::map<Position, Duration> patience;  // Of each row: the reading of clock() at which it has waited for nothing.
  std::set<std::pair<Duration, Position>> by_patience;
  std::map<Position, std::unique_ptr<Attempt>> internal;
  size_t num_backing_off = 0;
  int num_on_wire = 0;
  int num_probes = 0;                   // Of those on the wire.
  Instant next_start = Instant::min();  // By the rate.

  // Trouble: from the first pause until an attempt that began after the last pause is answered.
  std::optional<Instant> trouble_since;
  Instant paused_until = Instant::min();
  uint64_t num_pauses = 0;
  int num_throttles = 0;          // Pauses that the host asked for, in a row.
  int num_openings = 0;           // Of the breaker, in a row.
  int num_failures = 0;           // Of the network, in a row.
  std::optional<RowError> error;  // Why its rows wait.
  bool is_held = false;

  // How long it has been paused in all.
  Duration waited{0};
  std::optional<Instant> waiting_since;

  std::optional<Position> ready_at;  // Its places in the scheduler's sets.
  std::optional<Instant> asleep_until, idle_until;
  bool is_counted = false;

  bool is_paused(Instant t) const { return t < paused_until; }
  Duration clock(Instant t) const { return waiting_since ? waited + std::max(Duration(0), t - *waiting_since) : waited; }
  bool is_empty() const { return rows.empty() && internal.empty() && num_backing_off == 0 && num_on_wire == 0; }

  void keep_clock(Instant t) {
    if (is_paused(t)) {
      waiting_since = waiting_since.value_or(t);
    } else if (waiting_since) {
      waited = clock(std::min(t, std::max(paused_until, *waiting_since)));  // The call may come later than the pause's end.
      waiting_since.reset();
    }
  }
};

HostScheduler::HostScheduler(HostRules rules, uint64_t jitter_seed)
    : rules_(std::move(rules)), jitter_(static_cast<std::minstd_rand::result_type>(jitter_seed % std::minstd_rand::max() + 1)) {
  const Status status = rules_.validate();
  DARKROOM_CHECK(status.is_ok(), "a scheduler of invalid rules:", status.message());
}

HostScheduler::~HostScheduler() = default;

HostScheduler::Instant HostScheduler::local(Instant now) {
  latest_ = std::max(latest_, (paused_at_ ? std::min(now, *paused_at_) : now) - shift_);
  return latest_;
}

HostScheduler::Host& HostScheduler::host_of(const std::string& name) {
  auto& host = hosts_[name];
  if (!host) {
    host = std::make_unique<Host>();
    host->name = name;
  }
  return *host;
}

HostScheduler::Duration HostScheduler::longest_pause() const { return std::max(rules_.max_park, rules_.breaker_wait); }

void HostScheduler::add(std::unique_ptr<Attempt> attempt, Instant now) {
  DARKROOM_CHECK(attempt != nullptr && !attempt->host.empty(), "an attempt without a host");
  const Instant t = local(now);
  wake(t);
  Host& host = host_of(attempt->host);
  enqueue(host, std::move(attempt), t);
}

void HostScheduler::restart(std::unique_ptr<Attempt> attempt, Instant now) {
  attempt->used = Duration(0);
  attempt->last_error.reset();
  add(std::move(attempt), now);
}

void HostScheduler::enqueue(Host& host, std::unique_ptr<Attempt> attempt, Instant t) {
  const Position position{attempt->order, next_sequence_++};
  if (attempt->is_internal) {
    host.internal.emplace(position, std::move(attempt));
  } else {
    host.keep_clock(t);
    const Duration patience = host.clock(t) - attempt->parked;
    host.patience.emplace(position, patience);
    host.by_patience.emplace(patience, position);
    host.rows.emplace(position, std::move(attempt));
  }
  ++num_waiting_;
  refile(host, t);
}

std::unique_ptr<Attempt> HostScheduler::pop(Host& host, std::map<Position, std::unique_ptr<Attempt>>::iterator row, Instant t) {
  std::unique_ptr<Attempt> attempt = std::move(row->second);
  const auto patience = host.patience.find(row->first);
  attempt->parked = host.clock(t) - patience->second;
  host.by_patience.erase({patience->second, row->first});
  host.patience.erase(patience);
  host.rows.erase(row);
  --num_waiting_;
  return attempt;
}

std::unique_ptr<Attempt> HostScheduler::take(Instant now) {
  const Instant t = local(now);
  wake(t);
  if (paused_at_ || ready_.empty()) {
    return nullptr;
  }
  Host& host = *ready_.begin()->second;
  std::unique_ptr<Attempt> attempt;
  if (!host.internal.empty()) {
    attempt = std::move(host.internal.begin()->second);
    host.internal.erase(host.internal.begin());
    --num_waiting_;
  } else {
    attempt = pop(host, host.rows.begin(), t);
  }
  attempt->taken_at = t;
  attempt->num_pauses = host.num_pauses;
  attempt->is_probe = host.trouble_since.has_value();
  host.num_probes += attempt->is_probe ? 1 : 0;
  ++host.num_on_wire;
  ++num_on_wire_;
  if (rules_.per_host_rps > 0) {
    host.next_start = t + Duration(static_cast<int64_t>(std::ceil(1e9 / rules_.per_host_rps)));
  }
  refile(host, t);
  return attempt;
}

void HostScheduler::leave_wire(Host& host, const Attempt& attempt) {
  DARKROOM_CHECK(host.num_on_wire > 0, "an attempt ended that was not taken:", attempt.row);
  --host.num_on_wire;
  --num_on_wire_;
  host.num_probes -= attempt.is_probe ? 1 : 0;
}

void HostScheduler::put_back(std::unique_ptr<Attempt> attempt, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_wire(host, *attempt);
  enqueue(host, std::move(attempt), t);
}

AttemptVerdict HostScheduler::report(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_wire(host, *attempt);
  attempt->used += std::max(Duration(0), t - attempt->taken_at - outcome.paused);
  AttemptVerdict verdict{AttemptVerdict::Kind::kSuspect, {}, outcome.error};
  if (outcome.kind != AttemptOutcome::Kind::kFailed || !outcome.is_network) {
    verdict = decide(host, attempt, outcome, t);
  }
  refile(host, t);
  return verdict;
}

AttemptVerdict HostScheduler::judge(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);  // May have been forgotten since.
  const AttemptVerdict verdict = decide(host, attempt, outcome, t);
  refile(host, t);
  return verdict;
}

AttemptVerdict HostScheduler::decide(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t) {
  DARKROOM_CHECK(outcome.error || outcome.kind != AttemptOutcome::Kind::kFailed, "a failure without an error:", attempt->row);
  if (outcome.kind == AttemptOutcome::Kind::kFailed && outcome.is_network) {
    note_network_failure(host, *attempt, *outcome.error, t);
  } else if (!asks_to_wait(outcome)) {
    note_answer(host, *attempt);
  }
  if (outcome.kind == AttemptOutcome::Kind::kRedirect) {
    if (++attempt->num_redirects > rules_.max_redirects) {
      return {AttemptVerdict::Kind::kFinish, {}, RowError{RowErrorCode::kTooManyRedirects}};
    }
    if (attempt->used >= attempt->timeout) {
      return {AttemptVerdict::Kind::kFinish, {}, RowError{RowErrorCode::kTimeout}};
    }
    return {AttemptVerdict::Kind::kRedirect, {}, std::nullopt};
  }
  if (!outcome.error) {
    return {};
  }
  attempt->last_error = outcome.error;
  return asks_to_wait(outcome) ? throttle(host, attempt, outcome, t) : retry(host, attempt, outcome, t);
}

AttemptVerdict HostScheduler::throttle(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t) {
  const Duration asked = outcome.retry_after.value_or(std::chrono::seconds(0));
  if (attempt->num_pauses == host.num_pauses) {
    // What the host asks for is enough the first time; a host that asks again is left alone for longer.
    const int doublings = host.num_throttles++ - (asked > Duration(0) ? 1 : 0);
    const Backoff grown{rules_.first_throttle, std::chrono::duration_cast<std::chrono::milliseconds>(longest_pause())};
    pause_host(host, std::max(asked, doublings < 0 ? Duration(0) : Duration(grown.delay(doublings, 1.0))), *outcome.error, t);
  } else if (asked > Duration(0) && host.trouble_since) {  // It began before the pause: no news but, perhaps, a later time.
    host.paused_until = std::max(host.paused_until, t + std::min(asked, longest_pause()));
  } else if (asked > Duration(0)) {
    pause_host(host, asked, *outcome.error, t);
  }
  const Duration wait = std::max(Duration(0), host.paused_until - t);
  if (wait > rules_.max_park - attempt->parked || attempt->used >= attempt->timeout) {
    return {AttemptVerdict::Kind::kFinish, {}, outcome.error};
  }
  const Instant at = t + wait + shift_;
  if (attempt->is_internal) {
    attempt->parked += wait;
  }
  enqueue(host, std::move(attempt), t);
  return {AttemptVerdict::Kind::kPark, at, outcome.error};
}

AttemptVerdict HostScheduler::retry(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t) {
  const AttemptVerdict finish{AttemptVerdict::Kind::kFinish, {}, outcome.error};
  if (!may_pass(outcome) || attempt->num_retries >= rules_.num_retries) {
    return finish;
  }
  const double chance = std::uniform_real_distribution<double>(0.0, 1.0)(jitter_);
  const Duration wait = Backoff{.first = rules_.first_backoff}.delay(attempt->num_retries, chance);
  if (attempt->used + wait >= attempt->timeout) {  // A wait that would pass the deadline is not begun.
    return finish;
  }
  attempt->used += wait;
  ++attempt->num_retries;
  backing_off_.emplace(std::pair(t + wait, next_sequence_++), std::move(attempt));
  ++host.num_backing_off;
  ++num_waiting_;
  return {AttemptVerdict::Kind::kRetry, t + wait + shift_, outcome.error};
}

void HostScheduler::note_answer(Host& host, const Attempt& attempt) {
  host.num_failures = 0;
  if (attempt.num_pauses == host.num_pauses) {
    host.trouble_since.reset();
    host.error.reset();
    host.num_throttles = host.num_openings = 0;
  }
}

void HostScheduler::note_network_failure(Host& host, const Attempt& attempt, const RowError& error, Instant t) {
  if (attempt.num_pauses != host.num_pauses) {
    return;
  }
  if (++host.num_failures < rules_.breaker_failures && !host.trouble_since) {
    return;
  }
  const Backoff waits{rules_.breaker_wait, std::chrono::duration_cast<std::chrono::milliseconds>(longest_pause())};
  const Duration wait = waits.delay(host.num_openings++, 1.0);
  host.num_failures = 0;
  pause_host(host, wait, error, t);
}

void HostScheduler::pause_host(Host& host, Duration wait, RowError error, Instant t) {
  host.paused_until = std::max(host.paused_until, t + std::min(wait, longest_pause()));
  host.trouble_since = host.trouble_since.value_or(t);
  host.error = std::move(error);
  ++host.num_pauses;
}

void HostScheduler::park(const std::string& host, Duration wait, RowError error, Instant now) {
  const Instant t = local(now);
  wake(t);
  Host& parked = host_of(host);
  pause_host(parked, wait, std::move(error), t);
  refile(parked, t);
}

void HostScheduler::hold(const std::string& host, Instant now) {
  const Instant t = local(now);
  wake(t);
  Host& held = host_of(host);
  held.is_held = true;
  refile(held, t);
}

void HostScheduler::release(const std::string& host, Instant now) {
  const Instant t = local(now);
  wake(t);
  Host& held = host_of(host);
  held.is_held = false;
  refile(held, t);
}

std::optional<HostScheduler::Expired> HostScheduler::take_expired(Instant now) {
  const Instant t = local(now);
  wake(t);
  if (paused_at_ || expiring_.empty()) {
    return std::nullopt;
  }
  Host& host = **expiring_.begin();
  std::unique_ptr<Attempt> attempt = pop(host, host.rows.find(host.by_patience.begin()->second), t);
  const auto& reason = attempt->last_error ? attempt->last_error : host.error;
  Expired expired{nullptr, reason.value_or(RowError{RowErrorCode::kTimeout})};
  expired.attempt = std::move(attempt);
  refile(host, t);
  return expired;
}

void HostScheduler::set_paused(bool is_paused, Instant now) {
  if (is_paused && !paused_at_) {
    paused_at_ = local(now) + shift_;
  } else if (!is_paused && paused_at_) {
    shift_ += std::max(Duration(0), now - *paused_at_);
    paused_at_.reset();
  }
}

std::optional<HostScheduler::Instant> HostScheduler::next_instant() const {
  if (paused_at_ || (asleep_.empty() && backing_off_.empty())) {
    return std::nullopt;
  }
  const Instant change = asleep_.empty() ? Instant::max() : asleep_.begin()->first;
  const Instant back = backing_off_.empty() ? Instant::max() : backing_off_.begin()->first.first;
  return std::min(change, back) + shift_;
}

void HostScheduler::wake(Instant t) {
  while (!backing_off_.empty() && backing_off_.begin()->first.first <= t) {
    std::unique_ptr<Attempt> attempt = std::move(backing_off_.begin()->second);
    backing_off_.erase(backing_off_.begin());
    --num_waiting_;
    Host& host = host_of(attempt->host);
    --host.num_backing_off;
    enqueue(host, std::move(attempt), t);
  }
  while (!asleep_.empty() && asleep_.begin()->first <= t) {
    refile(*asleep_.begin()->second, t);  // Sleeps again until later than t, if at all.
  }
  drop_idle(t);
}

// When the first of a blocked host's rows has waited too long. REQUIRES: rows.
std::optional<HostScheduler::Instant> HostScheduler::expiry(const Host& host, Instant t) const {
  if (!host.is_paused(t)) {
    return std::nullopt;
  }
  const Instant by_row = t + (rules_.max_park - (host.clock(t) - host.by_patience.begin()->first));
  return host.trouble_since ? std::min(by_row, *host.trouble_since + rules_.max_park) : by_row;
}

void HostScheduler::refile(Host& host, Instant t) {
  unfile(host);
  host.keep_clock(t);
  if (host.is_empty() && !host.is_held) {
    const bool is_worth_it = host.trouble_since || host.num_failures > 0;
    host.idle_until = std::max({is_worth_it ? t + rules_.forget_after : t, host.paused_until, host.next_start});
    idle_.emplace(*host.idle_until, &host);
    return;
  }
  if (!host.rows.empty() && host.is_paused(t)) {
    ++num_parked_hosts_;
    host.is_counted = true;
    const Instant at = *expiry(host, t);
    if (at <= t) {
      expiring_.insert(&host);
    } else {
      host.asleep_until = at;
    }
  }
  file_ready(host, t);
  if (host.asleep_until) {
    asleep_.emplace(*host.asleep_until, &host);
  }
}

void HostScheduler::file_ready(Host& host, Instant t) {
  const bool may_start_row = !host.rows.empty() && !host.is_held;
  const bool has_place = host.num_on_wire < rules_.per_host && (!host.trouble_since || host.num_probes == 0);
  if (!has_place || (host.internal.empty() && !may_start_row)) {
    return;
  }
  const Instant from = std::max(host.paused_until, host.next_start);
  if (from <= t) {
    host.ready_at = host.internal.empty() ? host.rows.begin()->first : host.internal.begin()->first;
    ready_.emplace(*host.ready_at, &host);
  } else {
    host.asleep_until = std::min(host.asleep_until.value_or(from), from);
  }
}

void HostScheduler::unfile(Host& host) {
  if (host.ready_at) {
    ready_.erase({*host.ready_at, &host});
  }
  if (host.asleep_until) {
    asleep_.erase({*host.asleep_until, &host});
  }
  if (host.idle_until) {
    idle_.erase({*host.idle_until, &host});
  }
  expiring_.erase(&host);
  num_parked_hosts_ -= host.is_counted ? 1 : 0;
  host.ready_at.reset();
  host.asleep_until.reset();
  host.idle_until.reset();
  host.is_counted = false;
}

void HostScheduler::drop_idle(Instant t) {
  while (!idle_.empty() && (idle_.begin()->first <= t || idle_.size() > rules_.max_idle_hosts)) {
    const std::string name = idle_.begin()->second->name;
    idle_.erase(idle_.begin());
    hosts_.erase(name);
  }
}

}  // namespace darkroom
