#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "darkroom/web/host_scheduler.h"

namespace darkroom {

/// A host as the scheduler remembers it: what waits for it, and what its answers were.
struct HostScheduler::Host {
  struct Row {
    std::unique_ptr<Attempt> attempt;
    Duration patience;  ///< The reading of clock() at which it has waited for nothing.
  };

  std::string name;

  std::map<Position, Row> rows;
  std::set<std::pair<Duration, Position>> by_patience;  ///< Of the rows.
  std::map<Position, std::unique_ptr<Attempt>> internal;
  size_t num_backing_off = 0;
  int num_on_wire = 0;
  int num_suspects = 0;                 ///< Failed, and not yet judged or restarted.
  int num_telling_suspects = 0;         ///< Of these, those that began after the last answer.
  int num_probes = 0;                   ///< Of those on the wire and the suspects.
  Instant next_start = Instant::min();  ///< By the rate.

  // Trouble: from the first pause until an attempt that began after the last pause is answered. A paused host is in trouble.
  std::optional<Instant> trouble_since;
  Instant paused_until = Instant::min();
  uint64_t num_pauses = 0;
  int num_throttles = 0;  ///< Pauses that the host asked for, in a row.
  int num_openings = 0;   ///< Of the breaker, in a row.
  int num_failures = 0;   ///< Of the network, of attempts that began after the last answer.
  uint64_t num_answers = 0;
  std::optional<RowError> error;  ///< Why its rows wait. In trouble.
  bool is_held = false;

  // How long it has been paused in all.
  Duration waited{0};
  std::optional<Instant> waiting_since;

  std::optional<Position> ready_at;  ///< Its places in the scheduler's sets.
  std::optional<Instant> asleep_until, idle_until;
  bool is_counted = false;
  size_t num_set_aside = 0;  ///< Of its rows, as HostScheduler::num_set_aside() counts them.
  size_t num_beyond = 0;     ///< As num_beyond_places() does.

  /// Whether a failure of the attempt says something of the host: nothing was answered since it began.
  bool is_told_by(const Attempt& attempt) const { return attempt.num_answers == num_answers; }
  bool is_paused(Instant t) const { return t < paused_until; }
  /// Its breaker opened and nothing has been answered since. A host that only asked for time is alive.
  bool is_half_open() const { return num_openings > 0; }
  Duration clock(Instant t) const { return waiting_since ? waited + std::max(Duration(0), t - *waiting_since) : waited; }
  bool is_empty() const { return rows.empty() && internal.empty() && num_backing_off == 0 && num_on_wire == 0 && num_suspects == 0; }

  /// Half open one attempt at a time; else no more telling suspects than would open the breaker.
  bool has_place(const HostRules& rules) const {
    const bool is_awaited = is_half_open() ? num_probes > 0 : num_failures + num_telling_suspects >= rules.breaker_failures;
    return num_on_wire < rules.per_host && !is_awaited;
  }

  size_t num_free_places(const HostRules& rules) const { return static_cast<size_t>(std::max(0, rules.per_host - num_on_wire)); }

  /// Whose turn it has among the hosts: that of its oldest row, also while this one waits for an internal attempt. REQUIRES: something
  /// waits.
  Position turn() const {
    if (rows.empty() || internal.empty()) {
      return rows.empty() ? internal.begin()->first : rows.begin()->first;
    }
    return std::min(rows.begin()->first, internal.begin()->first);
  }

  /// To be called before `paused_until` changes and before clock() is read: the call may come later than the pause's end.
  void keep_clock(Instant t) {
    if (is_paused(t)) {
      waiting_since = waiting_since.value_or(t);
    } else if (waiting_since) {
      waited = clock(std::min(t, std::max(paused_until, *waiting_since)));
      waiting_since.reset();
    }
  }
};

}  // namespace darkroom
