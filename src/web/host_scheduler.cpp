#include "darkroom/web/host_scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "darkroom/core/check.h"
#include "scheduled_host.h"

namespace darkroom {
HostScheduler::HostScheduler(HostRules rules, uint64_t jitter_seed)
    : rules_(std::move(rules)), jitter_(static_cast<std::minstd_rand::result_type>(jitter_seed % std::minstd_rand::max() + 1)) {
  const Status status = rules_.validate();
  DARKROOM_CHECK(status.is_ok(), "a scheduler of invalid rules:", status.message());
  if (rules_.per_host_rps > 0) {
    spacing_ = Duration(static_cast<int64_t>(std::ceil(1e9 / rules_.per_host_rps)));
  }
}

HostScheduler::~HostScheduler() = default;

HostScheduler::Instant HostScheduler::local(Instant now) {
  latest_ = std::max(latest_, now);
  return paused_at_.value_or(latest_) - shift_;
}

HostScheduler::Host& HostScheduler::host_of(const std::string& name) {
  auto& host = hosts_[name];
  if (!host) {
    host = std::make_unique<Host>();
    host->name = name;
  }
  return *host;
}

void HostScheduler::add(std::unique_ptr<Attempt> attempt, Instant now) {
  DARKROOM_CHECK(attempt != nullptr && !attempt->host.empty(), "an attempt without a host");
  const Instant t = local(now);
  wake(t);
  Host& host = host_of(attempt->host);
  enqueue(host, std::move(attempt), t);
}

void HostScheduler::enqueue(Host& host, std::unique_ptr<Attempt> attempt, Instant t) {
  const Position position{attempt->order, next_sequence_++};
  if (attempt->is_internal) {
    host.internal.emplace(position, std::move(attempt));
  } else {
    host.keep_clock(t);
    const Duration patience = host.clock(t) - attempt->parked;
    host.by_patience.emplace(patience, position);
    host.rows.emplace(position, Host::Row{std::move(attempt), patience});
  }
  ++num_waiting_;
  refile(host, t);
}

std::unique_ptr<Attempt> HostScheduler::pop(Host& host, Position position, Instant t) {
  Host::Row row = std::move(host.rows.extract(position).mapped());
  host.by_patience.erase({row.patience, position});
  host.keep_clock(t);
  row.attempt->parked = host.clock(t) - row.patience;
  --num_waiting_;
  return std::move(row.attempt);
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
    attempt = pop(host, host.rows.begin()->first, t);
  }
  attempt->taken_at = t;
  attempt->num_pauses = host.num_pauses;
  attempt->num_answers = host.num_answers;
  attempt->is_probe = host.is_half_open();
  host.num_probes += attempt->is_probe ? 1 : 0;
  ++host.num_on_wire;
  ++num_on_wire_;
  host.next_start = t + spacing_;
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
  if (host.next_start == attempt->taken_at + spacing_) {
    host.next_start = attempt->taken_at;
  }
  enqueue(host, std::move(attempt), t);
}

void HostScheduler::interrupt(std::unique_ptr<Attempt> attempt, Duration paused, Instant now) {
  const Instant t = local(now);
  Host& host = host_of(attempt->host);
  leave_wire(host, *attempt);
  attempt->used += std::max(Duration(0), t - attempt->taken_at - paused);
  enqueue(host, std::move(attempt), t);
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
  Expired expired{pop(host, host.by_patience.begin()->second, t), *host.error};
  refile(host, t);
  return expired;
}

void HostScheduler::set_paused(bool is_paused, Instant now) {
  latest_ = std::max(latest_, now);
  if (is_paused && !paused_at_) {
    paused_at_ = latest_;
  } else if (!is_paused && paused_at_) {
    shift_ += latest_ - *paused_at_;
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

bool HostScheduler::has_more(const std::string& host) const {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) {
    return false;
  }
  const Host& known = *found->second;
  return known.rows.size() + known.num_backing_off + static_cast<size_t>(known.num_on_wire) > static_cast<size_t>(rules_.per_host);
}

int HostScheduler::num_on_wire(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? 0 : found->second->num_on_wire;
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

// When the first of a host's rows has waited too long. REQUIRES: it is paused and has rows.
HostScheduler::Instant HostScheduler::expiry(const Host& host, Instant t) const {
  const Instant by_row = t + (rules_.max_park - (host.clock(t) - host.by_patience.begin()->first));
  return std::min(by_row, *host.trouble_since + rules_.max_park);
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
  if (host.is_paused(t) || host.is_half_open()) {
    host.num_set_aside = host.rows.size();
  } else {
    host.num_beyond = host.rows.size() - std::min(host.rows.size(), host.num_free_places(rules_));
  }
  num_set_aside_ += host.num_set_aside;
  num_beyond_ += host.num_beyond;
  if (!host.rows.empty() && host.is_paused(t)) {
    ++num_parked_hosts_;
    host.is_counted = true;
    const Instant at = expiry(host, t);
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
  if (!host.has_place(rules_) || (host.internal.empty() && !may_start_row)) {
    return;
  }
  const Instant from = std::max(host.paused_until, host.next_start);
  if (from <= t) {
    host.ready_at = host.turn();
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
  num_set_aside_ -= std::exchange(host.num_set_aside, 0);
  num_beyond_ -= std::exchange(host.num_beyond, 0);
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
