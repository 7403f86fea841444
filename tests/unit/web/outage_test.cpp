// HostScheduler and NetworkWatch together, as a fetcher uses them, on a toy network that breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "darkroom/web/host_scheduler.h"
#include "darkroom/web/network_watch.h"
#include "support/rounds.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Instant = HostScheduler::Instant;
using VerdictKind = AttemptVerdict::Kind;

constexpr size_t kPlaces = 64;
constexpr seconds kDeadline(20);

/// What the network does. Hosts are named after what they are: good3, silent1, nowhere2 (NXDOMAIN), broken5 (SERVFAIL), refused4.
struct Weather {
  Instant breaks, mends;             ///< The outage.
  bool has_connections = false;      ///< During it: connections work, only the resolver does not.
  Instant all_die = Instant::max();  ///< From then on every host is silent by itself.

  bool is_out(Instant t) const { return t >= breaks && t < mends; }
};

class World {
 public:
  World(uint64_t seed, Weather weather) : random_(seed), weather_(weather), scheduler_({}, seed) {}

  void add_rows(int num_rows, const std::vector<std::string>& hosts) {
    for (int i = 0; i < num_rows; ++i) {
      auto attempt = std::make_unique<Attempt>();
      attempt->row = num_rows_++;
      attempt->order = attempt->row;
      attempt->host = hosts[static_cast<size_t>(below(static_cast<int>(hosts.size())))];
      attempt->timeout = kDeadline;
      attempt->url = attempt->host;
      scheduler_.add(std::move(attempt), now_);
    }
  }

  /// Until every row has ended; false: they do not within a day.
  bool run() {
    const Instant last = now_ + std::chrono::hours(24);
    while (endings_.size() < num_rows_ && now_ < last) {
      collect();
      start_attempts();
      send_probes();
      advance();
    }
    return endings_.size() == num_rows_ && num_twice_ == 0;
  }

  /// Rows by how they ended ("ok", "timeout", ...), of hosts whose name begins with `kind`.
  std::map<std::string, int> endings(const std::string& kind) const {
    std::map<std::string, int> counts;
    for (const auto& [row, ending] : endings_) {
      counts[ending.second] += ending.first.starts_with(kind) ? 1 : 0;
    }
    std::erase_if(counts, [](const auto& entry) { return entry.second == 0; });
    return counts;
  }
  double seconds_gone() const { return std::chrono::duration<double>(now_ - kStart).count(); }
  int num_outages() const { return num_outages_; }

  static constexpr Instant kStart{seconds(1'000'000)};

 private:
  struct OnWire {
    Instant began, ends;
    AttemptOutcome outcome;
    std::unique_ptr<Attempt> attempt;
    bool is_resolved = true, is_connected = false;  // Who answered.
  };
  struct OnProbe {
    Instant ends;
    bool is_answered;
    NetworkProbe probe;
  };

  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }

  void end(const Attempt& attempt, const std::optional<RowError>& error) {
    num_twice_ += endings_.insert({attempt.row, {attempt.host, error ? error->name() : "ok"}}).second ? 0 : 1;
  }

  void start_attempts() {
    while (wire_.size() < kPlaces) {
      auto attempt = scheduler_.take(now_);
      if (!attempt) {
        break;
      }
      wire_.push_back(begin(std::move(attempt)));
    }
    watch_.set_on_wire(wire_.size(), now_);
  }

  OnWire begin(std::unique_ptr<Attempt> attempt) {
    const std::string host = attempt->host;
    const Instant deadline = now_ + (attempt->timeout - attempt->used);
    OnWire soon{now_, now_ + milliseconds(20 + below(400)), fail(RowErrorCode::kTimeout, true), std::move(attempt)};
    if (weather_.is_out(now_)) {
      return begin_in_outage(std::move(soon), deadline);
    }
    if (host.starts_with("nowhere")) {
      soon.outcome = fail(RowErrorCode::kDns, false);
    } else if (host.starts_with("broken")) {
      soon.outcome = fail(RowErrorCode::kDns, true);
      soon.is_resolved = false;
    } else if (host.starts_with("silent") || now_ >= weather_.all_die) {
      soon.ends = deadline;
    } else if (host.starts_with("refused")) {
      soon.outcome = fail(RowErrorCode::kConnect, false);
      soon.is_connected = true;
    } else {
      soon.outcome = {AttemptOutcome::Kind::kAnswered, 200};
      soon.is_connected = true;
    }
    if (weather_.is_out(soon.ends) &&
        !weather_.has_connections) {  // What was on its way hangs: it may still come when the network is back.
      return hang(std::move(soon), deadline);
    }
    return soon;
  }

  OnWire hang(OnWire on_wire, Instant deadline) {
    if (weather_.mends + milliseconds(500) < deadline) {
      on_wire.ends = weather_.mends + milliseconds(500);
    } else {
      on_wire.ends = deadline;
      on_wire.outcome = fail(RowErrorCode::kTimeout, true);
      on_wire.is_connected = on_wire.is_resolved = false;
    }
    return on_wire;
  }

  OnWire begin_in_outage(OnWire on_wire, Instant deadline) {
    on_wire.is_resolved = false;
    switch (weather_.has_connections ? 0 : below(4)) {
      case 0:
        on_wire.outcome = fail(RowErrorCode::kDns, true);
        on_wire.ends = std::min(deadline, now_ + seconds(below(6)) + milliseconds(1));
        break;
      case 1:
        on_wire.outcome = fail(RowErrorCode::kConnect, true);  // No route: at once.
        on_wire.ends = now_ + milliseconds(1);
        break;
      default:
        on_wire.outcome = fail(RowErrorCode::kTimeout, true);
        on_wire.ends = deadline;
    }
    return on_wire;
  }

  static AttemptOutcome fail(RowErrorCode code, bool is_network) {
    return {AttemptOutcome::Kind::kFailed, 0, RowError{code}, std::nullopt, is_network};
  }

  void send_probes() {
    for (NetworkProbe& probe : watch_.take_probes(now_)) {
      const bool is_resolver = probe.kind == NetworkProbe::Kind::kResolver;
      const bool is_dead = !is_resolver && (now_ >= weather_.all_die);
      const bool is_answered = !is_dead && (!weather_.is_out(now_) || (weather_.has_connections && !is_resolver));
      probes_.push_back({now_ + (is_answered ? milliseconds(50) : milliseconds(3000)), is_answered, std::move(probe)});
    }
  }

  // Verdicts that have become clear, and rows that waited too long.
  void collect() {
    scheduler_.set_paused(watch_.state() == NetworkWatch::State::kOut, now_);
    const bool is_out = watch_.state() == NetworkWatch::State::kOut;
    num_outages_ += is_out && !was_out_ ? 1 : 0;
    was_out_ = is_out;
    while (auto suspect = watch_.take_confirmed()) {
      follow(scheduler_.judge(suspect->attempt, suspect->outcome, now_), suspect->attempt);
    }
    while (auto suspect = watch_.take_cleared()) {
      scheduler_.restart(std::move(suspect->attempt), now_);
    }
    while (auto expired = scheduler_.take_expired(now_)) {
      end(*expired->attempt, expired->error);
    }
  }

  void follow(const AttemptVerdict& verdict, const std::unique_ptr<Attempt>& attempt) {
    if (verdict.kind == VerdictKind::kFinish) {
      end(*attempt, verdict.error);
    }
  }

  void finish(OnWire done) {
    if (done.is_resolved) {
      watch_.resolved(done.began, now_);
    }
    if (done.is_connected) {
      watch_.answered(done.attempt->host, done.began, now_);
    }
    const AttemptVerdict verdict = scheduler_.report(done.attempt, done.outcome, now_);
    if (verdict.kind == VerdictKind::kSuspect) {
      watch_.suspect({std::move(done.attempt), done.outcome}, done.began, now_);
    } else {
      follow(verdict, done.attempt);
    }
  }

  void advance() {
    Instant next = std::min(scheduler_.next_instant().value_or(Instant::max()), watch_.next_instant().value_or(Instant::max()));
    for (const OnWire& one : wire_) {
      next = std::min(next, one.ends);
    }
    for (const OnProbe& one : probes_) {
      next = std::min(next, one.ends);
    }
    // Nothing to come: only what is clear already, or the end.
    now_ = std::max(now_, next != Instant::max() ? next : (was_idle_ ? now_ + std::chrono::hours(25) : now_));
    was_idle_ = next == Instant::max();
    for (size_t i = 0; i < wire_.size();) {
      if (wire_[i].ends <= now_) {
        OnWire done = std::move(wire_[i]);
        wire_.erase(wire_.begin() + static_cast<std::ptrdiff_t>(i));
        finish(std::move(done));
      } else {
        ++i;
      }
    }
    watch_.set_on_wire(wire_.size(), now_);
    for (size_t i = 0; i < probes_.size();) {
      if (probes_[i].ends <= now_) {
        const OnProbe done = std::move(probes_[i]);
        probes_.erase(probes_.begin() + static_cast<std::ptrdiff_t>(i));
        watch_.probe_ended(done.probe, done.is_answered, now_);
      } else {
        ++i;
      }
    }
  }

  std::mt19937_64 random_;
  Weather weather_;
  HostScheduler scheduler_;
  NetworkWatch watch_;
  Instant now_ = kStart;
  std::vector<OnWire> wire_;
  std::vector<OnProbe> probes_;
  std::map<uint64_t, std::pair<std::string, std::string>> endings_;
  uint64_t num_rows_ = 0;
  int num_twice_ = 0, num_outages_ = 0;
  bool was_out_ = false, was_idle_ = false;
};

std::vector<std::string> hosts_of(const std::string& kind, int number) {
  std::vector<std::string> hosts;
  for (int i = 0; i < number; ++i) {
    hosts.push_back(kind + std::to_string(i));
  }
  return hosts;
}

Weather fair() { return {World::kStart - seconds(2), World::kStart - seconds(1)}; }
Weather outage(double from, double until) {
  return {World::kStart + milliseconds(static_cast<int>(1000 * from)), World::kStart + milliseconds(static_cast<int>(1000 * until))};
}

using Endings = std::map<std::string, int>;

void add_web(World& world, int num_rows) {
  for (const auto& [kind, number] : {std::pair("good", 40), {"silent", 6}, {"nowhere", 10}, {"broken", 6}, {"refused", 4}}) {
    world.add_rows(num_rows * number / 66, hosts_of(kind, number));
  }
}

TEST(Outage, of_a_minute_fails_no_row) {
  World world(1, outage(4, 64));
  world.add_rows(3000, hosts_of("good", 60));
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("good"), (Endings{{"ok", 3000}}));
  EXPECT_EQ(world.num_outages(), 1);
  EXPECT_GE(world.seconds_gone(), 64);
  EXPECT_LE(world.seconds_gone(), 120);
}

TEST(Outage, of_the_resolver_alone_fails_no_row) {
  Weather weather = outage(4, 64);
  weather.has_connections = true;
  World world(2, weather);
  world.add_rows(3000, hosts_of("good", 60));
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("good"), (Endings{{"ok", 3000}}));
  EXPECT_EQ(world.num_outages(), 1);
}

TEST(Outage, at_the_start_of_a_run_fails_no_row) {
  World world(3, outage(-1, 60));
  world.add_rows(500, hosts_of("good", 60));
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("good"), (Endings{{"ok", 500}}));
}

TEST(Outage, of_hours_fails_no_row_whatever_max_park_says) {
  World world(4, outage(4, 20'000));
  world.add_rows(1000, hosts_of("good", 10));
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("good"), (Endings{{"ok", 1000}}));
}

TEST(Outage, leaves_dead_hosts_dead) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    World world(seed, outage(3, 63));
    add_web(world, 1320);
    ASSERT_TRUE(world.run()) << seed;
    EXPECT_EQ(world.endings("good"), (Endings{{"ok", 800}})) << seed;
    EXPECT_EQ(world.endings("nowhere"), (Endings{{"dns", 200}})) << seed;
    EXPECT_EQ(world.endings("broken"), (Endings{{"dns", 120}})) << seed;
    EXPECT_EQ(world.endings("silent"), (Endings{{"timeout", 120}})) << seed;
    EXPECT_EQ(world.endings("refused"), (Endings{{"connect", 80}})) << seed;
  }
}

TEST(Outage, at_any_time_and_of_any_length_above_ten_seconds_fails_no_row) {
  std::mt19937_64 random(99);
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(few_rounds(150)); ++seed) {
    const double from = 0.01 * static_cast<double>(random() % 3000);
    const double length = 10 + 0.1 * static_cast<double>(random() % 1500);
    Weather weather = outage(from, from + length);
    weather.has_connections = random() % 4 == 0;
    World world(seed, weather);
    add_web(world, 660);
    ASSERT_TRUE(world.run()) << "seed " << seed << ": " << from << " s, " << length << " s";
    ASSERT_EQ(world.endings("good"), (Endings{{"ok", 400}})) << "seed " << seed << ": " << from << " s, " << length << " s";
  }
}

TEST(NoOutage, a_web_with_dead_hosts_is_no_outage) {
  World world(5, fair());
  add_web(world, 1320);
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("good"), (Endings{{"ok", 800}}));
  EXPECT_EQ(world.num_outages(), 0);
}

TEST(NoOutage, lists_of_hosts_that_are_dead_by_themselves_end) {
  for (const char* kind : {"silent", "nowhere", "broken", "refused"}) {
    World world(6, fair());
    world.add_rows(300, hosts_of(kind, 50));
    ASSERT_TRUE(world.run()) << kind;
    EXPECT_EQ(world.endings(kind).size(), 1u) << kind;
    EXPECT_EQ(world.endings(kind).count("ok"), 0u) << kind;
    EXPECT_EQ(world.num_outages(), 0) << kind;
    // Where the look-ups of a host fail more often than its breaker bears, it is probed by one row a pause: max_park, once.
    const bool has_breakers = kind == std::string("broken");
    EXPECT_LE(world.seconds_gone(), has_breakers ? (HostRules{}.max_park + kDeadline).count() : 400) << kind;
  }
}

TEST(NoOutage, one_dead_host_ends) {
  World world(7, fair());
  world.add_rows(1, {"silent"});
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.endings("silent"), (Endings{{"timeout", 1}}));
  EXPECT_LE(world.seconds_gone(), 30);
}

TEST(NoOutage, hosts_that_all_die_in_the_middle_of_a_run_end) {
  for (const int num_hosts : {1, 8, 60}) {
    Weather weather = fair();
    weather.all_die = World::kStart + seconds(3);
    World world(8, weather);
    world.add_rows(3000, hosts_of("good", num_hosts));
    ASSERT_TRUE(world.run()) << num_hosts;
    const Endings endings = world.endings("good");
    EXPECT_GT(endings.at("ok"), 10) << num_hosts;
    EXPECT_EQ(endings.at("ok") + endings.at("timeout"), 3000) << num_hosts;
    EXPECT_EQ(world.num_outages(), 0) << num_hosts;
    EXPECT_LE(world.seconds_gone(), 1400) << num_hosts;  // Twice max_park, for the attempts that begin before the breaker opens.
  }
}

}  // namespace
}  // namespace darkroom
