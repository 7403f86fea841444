#include "darkroom/web/network_watch.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr size_t kNumAddresses = 8;

template <typename Suspects>
std::optional<NetworkSuspect> take_front(Suspects& suspects) {
  if (suspects.empty()) {
    return std::nullopt;
  }
  std::optional<NetworkSuspect> front(std::move(suspects.front()));
  suspects.pop_front();
  return front;
}

}  // namespace

NetworkWatch::NetworkWatch(NetworkWatchOptions options) : options_(options), patience_(options.probe_after) {
  DARKROOM_CHECK(options.probe_after.count() >= 0, "probe_after is negative (ms):", options.probe_after.count());
  DARKROOM_CHECK(options.first_interval.count() > 0, "first_interval must be positive (ms):", options.first_interval.count());
  DARKROOM_CHECK(options.first_interval <= options.longest_interval,
                 "longest_interval is shorter than the first (ms):", options.longest_interval.count());
}

void NetworkWatch::remember(const std::string& address) {
  if (!addresses_.empty() && addresses_.back() == address) {
    return;
  }
  std::erase(addresses_, address);
  addresses_.push_back(address);
  if (addresses_.size() > kNumAddresses) {
    addresses_.pop_front();
  }
}

void NetworkWatch::answered(const std::string& address, Instant began, Instant now) {
  remember(address);
  connection_works_ = std::max(connection_works_, began);
  hear(now, options_.probe_after);
  settle(now);
}

void NetworkWatch::resolved(Instant began, Instant now) {
  resolver_works_ = std::max(resolver_works_, began);
  hear(now, options_.probe_after);
  settle(now);
}

void NetworkWatch::hear(Instant now, std::chrono::milliseconds patience) {
  heard_ = std::max(heard_, now);
  patience_ = patience;
}

void NetworkWatch::set_on_wire(size_t num_attempts, Instant now) {
  if (num_on_wire_ == 0 && num_attempts > 0) {
    hear(now, options_.probe_after);
  }
  num_on_wire_ = num_attempts;
}

void NetworkWatch::suspect(NetworkSuspect suspect, Instant began, Instant now) {
  DARKROOM_CHECK(suspect.attempt && suspect.outcome.is_network && suspect.outcome.error, "a suspect without a network failure");
  if (!out_since_ && began < last_out_ended_) {  // Its life was partly during an outage: that it failed says nothing.
    cleared_.push_back(std::move(suspect));
    return;
  }
  const bool is_lookup = suspect.outcome.error->code == RowErrorCode::kDns;
  (is_lookup ? lookups_ : connections_).push_back({now, std::move(suspect)});
  settle(now);
}

std::optional<NetworkSuspect> NetworkWatch::take_confirmed() { return take_front(confirmed_); }
std::optional<NetworkSuspect> NetworkWatch::take_cleared() { return take_front(cleared_); }

void NetworkWatch::confirm(std::deque<Kept>& kept, Instant until) {
  while (!kept.empty() && kept.front().failed_at <= until) {
    confirmed_.push_back(std::move(kept.front().suspect));
    kept.pop_front();
  }
}

void NetworkWatch::clear_all() {
  for (auto* kept : {&connections_, &lookups_}) {
    for (Kept& one : *kept) {
      cleared_.push_back(std::move(one.suspect));
    }
    kept->clear();
  }
}

void NetworkWatch::settle(Instant now) {
  if (!out_since_) {
    confirm(connections_, connection_works_);
    confirm(lookups_, std::min(connection_works_, resolver_works_));
  } else if (connection_works_ >= out_noticed_ && (!needs_resolver_ || resolver_works_ >= out_noticed_)) {
    clear_all();
    out_since_.reset();
    last_out_ended_ = now;
    hear(now, options_.probe_after);
  }
  if (num_suspects() == 0 && !out_since_) {
    interval_ = std::chrono::milliseconds(0);
  }
}

std::optional<NetworkWatch::Instant> NetworkWatch::oldest() const {
  if (num_suspects() == 0) {
    return std::nullopt;
  }
  const Instant connection = connections_.empty() ? Instant::max() : connections_.front().failed_at;
  return lookups_.empty() ? connection : std::min(connection, lookups_.front().failed_at);
}

std::optional<NetworkWatch::Instant> NetworkWatch::next_instant() const {
  if (num_probes_ > 0) {
    return std::nullopt;
  }
  if (out_since_) {
    return next_round_;
  }
  std::optional<Instant> due;
  if (const auto first = oldest()) {
    due = interval_.count() == 0 ? *first + options_.probe_after : std::max(next_round_, *first);
  }
  if (num_on_wire_ > 0) {
    due = std::min(due.value_or(Instant::max()), heard_ + patience_);
  }
  return due;
}

std::vector<NetworkProbe> NetworkWatch::take_probes(Instant now) {
  const auto due = next_instant();
  if (!due || *due > now) {
    return {};
  }
  ++round_;
  round_began_ = now;
  has_address_answered_ = false;
  has_resolver_answered_ = false;
  std::vector<NetworkProbe> probes;
  for (const std::string& address : addresses_) {
    probes.push_back({NetworkProbe::Kind::kAddress, address, round_});
  }
  probes.push_back({NetworkProbe::Kind::kResolver, {}, round_});
  num_probes_ = probes.size();
  return probes;
}

void NetworkWatch::probe_ended(const NetworkProbe& probe, bool is_answered, Instant now) {
  DARKROOM_CHECK(probe.round == round_ && num_probes_ > 0, "a probe ended that was not asked for, of round:", probe.round);
  --num_probes_;
  if (probe.kind == NetworkProbe::Kind::kResolver) {
    has_resolver_answered_ = is_answered;
    resolver_works_ = is_answered ? std::max(resolver_works_, round_began_) : resolver_works_;
  } else if (is_answered) {
    has_address_answered_ = true;
    remember(probe.address);
    connection_works_ = std::max(connection_works_, round_began_);
  }
  settle(now);
  if (num_probes_ == 0) {
    end_round(now);
  }
}

void NetworkWatch::end_round(Instant now) {
  if (!has_address_answered_ && has_resolver_answered_) {
    connection_works_ = std::max(connection_works_, round_began_);
  }
  settle(now);
  const auto first = oldest();
  const bool is_explained = connection_works_ >= round_began_ && (!first || *first > round_began_);
  if (is_explained) {
    hear(now, options_.longest_interval);
  } else if (!out_since_) {
    out_since_ = std::min({round_began_, first.value_or(round_began_), num_on_wire_ > 0 ? heard_ : round_began_});
    out_noticed_ = now;
    needs_resolver_ = !lookups_.empty() || resolver_works_ != Instant::min();
  }
  const bool is_over = is_explained && !first && !out_since_;
  interval_ = is_over ? std::chrono::milliseconds(0) : std::clamp(2 * interval_, options_.first_interval, options_.longest_interval);
  next_round_ = now + interval_;
}

NetworkWatch::State NetworkWatch::state() const {
  if (out_since_) {
    return State::kOut;
  }
  return num_suspects() == 0 ? State::kFine : State::kSuspicious;
}

}  // namespace darkroom
