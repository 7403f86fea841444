// What an outcome means for its row and its host: verdicts, back-offs and pauses. The queues are in host_scheduler.cpp.
#include <algorithm>
#include <random>

#include "darkroom/core/check.h"
#include "scheduled_host.h"

namespace darkroom {

std::chrono::seconds HostScheduler::longest_pause() const { return std::max(rules_.max_park, rules_.breaker_wait); }

AttemptVerdict HostScheduler::report(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_wire(host, *attempt);
  attempt->used += std::max(Duration(0), t - attempt->taken_at - outcome.paused);
  AttemptVerdict verdict{AttemptVerdict::Kind::kSuspect, {}, outcome.error};
  if (outcome.kind == AttemptOutcome::Kind::kFailed && outcome.is_network) {
    attempt->is_suspect = true;
    ++host.num_suspects;
    host.num_telling_suspects += host.is_told_by(*attempt) ? 1 : 0;
    host.num_probes += attempt->is_probe ? 1 : 0;  // It is one until it is judged.
  } else {
    verdict = decide(host, attempt, outcome, t);
  }
  refile(host, t);
  return verdict;
}

void HostScheduler::leave_suspects(Host& host, Attempt& attempt) {
  DARKROOM_CHECK(attempt.is_suspect, "an attempt that is no suspect:", attempt.row);
  attempt.is_suspect = false;
  --host.num_suspects;
  host.num_telling_suspects -= host.is_told_by(attempt) ? 1 : 0;
  host.num_probes -= attempt.is_probe ? 1 : 0;
}

void HostScheduler::restart(std::unique_ptr<Attempt> attempt, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_suspects(host, *attempt);
  attempt->used = Duration(0);
  enqueue(host, std::move(attempt), t);
}

AttemptVerdict HostScheduler::judge(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_suspects(host, *attempt);
  const AttemptVerdict verdict = decide(host, attempt, outcome, t);
  refile(host, t);
  return verdict;
}

AttemptVerdict HostScheduler::decide(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t) {
  const bool is_failure = outcome.kind == AttemptOutcome::Kind::kFailed || asks_to_wait(outcome);
  DARKROOM_CHECK(outcome.error || !is_failure, "a failure without an error:", attempt->row);
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
  return asks_to_wait(outcome) ? throttle(host, attempt, outcome, t) : retry(host, attempt, outcome, t);
}

AttemptVerdict HostScheduler::throttle(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t) {
  using std::chrono::seconds;
  const Duration asked = std::clamp(outcome.retry_after.value_or(seconds(0)), seconds(0), longest_pause());
  if (attempt->num_pauses == host.num_pauses) {
    // What the host asks for is enough the first time; a host that asks again is left alone for longer.
    const int doublings = host.num_throttles++ - (asked > Duration(0) ? 1 : 0);
    const Backoff grown{rules_.first_throttle, longest_pause()};
    pause_host(host, std::max(asked, doublings < 0 ? Duration(0) : Duration(grown.delay(doublings, 1.0))), *outcome.error, t);
  } else if (host.is_paused(t)) {  // It began before the pause: no news but, perhaps, a later time.
    host.paused_until = std::max(host.paused_until, t + asked);
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
  host.num_failures = host.num_telling_suspects = 0;
  ++host.num_answers;
  if (attempt.num_pauses == host.num_pauses) {
    host.trouble_since.reset();
    host.error.reset();
    host.num_throttles = host.num_openings = 0;
  }
}

void HostScheduler::note_network_failure(Host& host, const Attempt& attempt, const RowError& error, Instant t) {
  if (attempt.num_pauses != host.num_pauses || !(host.is_told_by(attempt) || host.is_half_open())) {
    return;
  }
  if (++host.num_failures < rules_.breaker_failures && !host.is_half_open()) {
    return;
  }
  const Backoff waits{rules_.breaker_wait, longest_pause()};
  const Duration wait = waits.delay(host.num_openings++, 1.0);
  host.num_failures = 0;
  pause_host(host, wait, error, t);
}

void HostScheduler::pause_host(Host& host, Duration wait, RowError error, Instant t) {
  host.keep_clock(t);
  host.paused_until = std::max(host.paused_until, t + std::clamp<Duration>(wait, Duration(0), longest_pause()));
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

}  // namespace darkroom
