#include "server_outage.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/web/retry_rules.h"

namespace darkroom {
namespace {

using std::chrono::seconds;

constexpr Backoff kBetweenProbes{.first = seconds(1), .longest = seconds(10)};

Labels labels_of(const std::string& server) { return {{"scheme", server.substr(0, server.find(':'))}}; }

Counter& outages_of(MetricsRegistry& metrics, const std::string& server) {
  return metrics.counter("darkroom_store_outages_total", "How often a store that had answered before could not be reached.",
                         labels_of(server));
}

Gauge& out_of_reach_of(MetricsRegistry& metrics, const std::string& server) {
  return metrics.gauge("darkroom_stores_out_of_reach", "Stores that had answered before and cannot be reached now.", labels_of(server));
}

}  // namespace

bool is_out_of_reach(HttpEnd end) { return may_be_own_network(end) || end == HttpEnd::kConnectionRefused; }

ServerOutage::ServerOutage(std::string server, Clock& clock, MetricsRegistry* metrics, std::chrono::seconds patience)
    : server_(std::move(server)), clock_(clock), metrics_(metrics), patience_(patience) {}

ServerOutage::~ServerOutage() {
  if (out_since_ && metrics_ != nullptr) {
    out_of_reach_of(*metrics_, server_).add(-1);
  }
}

/// Whether it was out. REQUIRES: mutex_ is held.
bool ServerOutage::end_here(Clock::Instant now) {
  ++num_answers_;
  if (!out_since_) {
    return false;
  }
  log_info("{}: the store answers again after {} s: work goes on", server_, std::chrono::duration_cast<seconds>(now - *out_since_).count());
  out_since_.reset();
  ++num_ended_;
  changed_.notify_all();
  if (metrics_ != nullptr) {
    out_of_reach_of(*metrics_, server_).add(-1);
  }
  return true;
}

/// REQUIRES: mutex_ is held.
void ServerOutage::begin_here(Clock::Instant since, const std::string& why) {
  if (out_since_) {
    return;
  }
  out_since_ = since;
  log_warning("{}: the store cannot be reached; waiting until it answers, for {} minutes at most: {}", server_,
              std::chrono::duration_cast<std::chrono::minutes>(patience_).count(), why);
  if (metrics_ != nullptr) {
    outages_of(*metrics_, server_).add();
    out_of_reach_of(*metrics_, server_).add(1);
  }
}

int64_t ServerOutage::num_answers() {
  const std::lock_guard hold(mutex_);
  return num_answers_;
}

void ServerOutage::note_answer() {
  const std::lock_guard hold(mutex_);
  (void)end_here(clock_.now());
}

ServerOutage::End ServerOutage::outlast(const std::function<bool()>& probe, const std::string& why, const std::stop_token& stop) {
  {
    const std::lock_guard hold(mutex_);
    ++num_waiting_;
  }
  const End end = outlast_here(probe, why, stop);
  const std::lock_guard hold(mutex_);
  if (--num_waiting_ == 0 && end == End::kStopped && out_since_) {  // Nobody looks any more: what comes later is an outage of its own.
    out_since_.reset();
    if (metrics_ != nullptr) {
      out_of_reach_of(*metrics_, server_).add(-1);
    }
  }
  return end;
}

ServerOutage::End ServerOutage::outlast_here(const std::function<bool()>& probe, const std::string& why, const std::stop_token& stop) {
  for (int num_probes = 0;; ++num_probes) {
    const Clock::Instant asked_at = clock_.now();
    const int64_t num_before = num_answers();
    const bool is_answered = probe();
    if (stop.stop_requested()) {
      return End::kStopped;
    }
    std::unique_lock hold(mutex_);
    const Clock::Instant now = clock_.now();
    if (is_answered) {
      const bool was_out = end_here(now);
      return was_out || num_probes > 0 ? End::kOver : End::kNone;
    }
    if (num_answers_ != num_before) {  // Somebody else has been answered since.
      return num_probes > 0 ? End::kOver : End::kNone;
    }
    begin_here(asked_at, why);
    if (now - *out_since_ >= patience_) {
      return End::kTooLong;
    }
    const int64_t seen = num_ended_;
    const Clock::Instant until = std::min(now + kBetweenProbes.delay(num_probes, /*chance=*/1.0), *out_since_ + patience_);
    if (clock_.wait_until(hold, changed_, stop, until, [&] { return num_ended_ != seen; })) {
      return End::kOver;
    }
    if (stop.stop_requested()) {
      return End::kStopped;
    }
  }
}

}  // namespace darkroom
