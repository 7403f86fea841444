#include "darkroom/web/network_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Rows = std::vector<uint64_t>;
using State = NetworkWatch::State;

class Watch : public testing::Test {
 protected:
  void fail(uint64_t row, double began, RowErrorCode code = RowErrorCode::kConnect) {
    auto attempt = std::make_unique<Attempt>();
    attempt->row = row;
    watch_.suspect({std::move(attempt), {AttemptOutcome::Kind::kFailed, 0, RowError{code}, std::nullopt, true}}, at(began), now_);
  }
  void answer(double began, const std::string& address = "1.2.3.4:80") { watch_.answered(address, at(began), now_); }
  Rows confirmed() {
    Rows rows;
    while (auto suspect = watch_.take_confirmed()) {
      rows.push_back(suspect->attempt->row);
    }
    return rows;
  }
  Rows cleared() {
    Rows rows;
    while (auto suspect = watch_.take_cleared()) {
      rows.push_back(suspect->attempt->row);
    }
    return rows;
  }
  // All probes of the round that is due now end `after` seconds later.
  void round(bool is_address_answered, bool is_resolver_answered, double after = 0.1) {
    const auto probes = watch_.take_probes(now_);
    ASSERT_FALSE(probes.empty());
    now_ += milliseconds(static_cast<int>(1000 * after));
    for (const NetworkProbe& probe : probes) {
      watch_.probe_ended(probe, probe.kind == NetworkProbe::Kind::kResolver ? is_resolver_answered : is_address_answered, now_);
    }
  }
  void set_time(double t) { now_ = at(t); }
  static NetworkWatch::Instant at(double t) { return NetworkWatch::Instant(seconds(1000)) + milliseconds(static_cast<int>(1000 * t)); }
  double next() const {
    const auto next = watch_.next_instant();
    return next ? std::chrono::duration<double>(*next - at(0)).count() : -1;
  }

  NetworkWatch watch_;
  NetworkWatch::Instant now_ = at(0);
};

TEST_F(Watch, a_failure_is_confirmed_by_an_answer_that_was_asked_for_later) {
  set_time(10);
  fail(1, 5);
  EXPECT_EQ(watch_.state(), State::kSuspicious);
  set_time(11);
  answer(9.9);  // Asked for before: it may have been on its way when the network broke.
  EXPECT_EQ(confirmed(), Rows{});
  answer(10.1);
  EXPECT_EQ(confirmed(), Rows{1});
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(next(), -1);
}

TEST_F(Watch, an_answer_confirms_failures_before_it_only) {
  for (int t = 1; t <= 4; ++t) {
    set_time(t);
    fail(static_cast<uint64_t>(t), 0);
  }
  answer(2.5);
  EXPECT_EQ(confirmed(), (Rows{1, 2}));
  EXPECT_EQ(watch_.num_suspects(), 2u);
}

TEST_F(Watch, a_failed_look_up_needs_a_witness_of_the_resolver_and_one_of_the_network) {
  set_time(1);
  answer(0.5);
  set_time(10);
  fail(1, 5, RowErrorCode::kDns);
  set_time(11);
  answer(10.5);  // A host whose name is known answers: that says nothing of the resolver.
  EXPECT_EQ(confirmed(), Rows{});
  watch_.resolved(at(10.5), now_);
  EXPECT_EQ(confirmed(), Rows{1});
  set_time(20);
  fail(2, 15, RowErrorCode::kDns);
  watch_.resolved(at(20), now_);  // A resolver in the house may answer while the world is gone.
  EXPECT_EQ(confirmed(), Rows{});
  answer(20);
  EXPECT_EQ(confirmed(), Rows{2});
}

TEST_F(Watch, without_a_witness_it_probes_after_three_seconds) {
  set_time(1);
  answer(0.5, "a:1");
  answer(0.6, "b:2");
  answer(0.7, "a:1");
  set_time(10);
  fail(1, 5);
  EXPECT_EQ(next(), 13);
  set_time(12.999);
  EXPECT_TRUE(watch_.take_probes(now_).empty());
  set_time(13);
  const auto probes = watch_.take_probes(now_);
  ASSERT_EQ(probes.size(), 3u);
  EXPECT_EQ(probes[0].address, "b:2");
  EXPECT_EQ(probes[1].address, "a:1");
  EXPECT_EQ(probes[2].kind, NetworkProbe::Kind::kResolver);
  EXPECT_TRUE(watch_.take_probes(now_).empty());  // One round at a time.
  watch_.probe_ended(probes[0], true, now_);
  EXPECT_EQ(confirmed(), Rows{1});
  watch_.probe_ended(probes[1], false, now_);
  watch_.probe_ended(probes[2], false, now_);
  EXPECT_EQ(watch_.state(), State::kFine);
}

TEST_F(Watch, knows_the_last_eight_addresses) {
  for (int i = 0; i < 20; ++i) {
    answer(0, "host" + std::to_string(i));
  }
  set_time(1);
  fail(1, 0);
  answer(-1, "host15");
  set_time(5);
  const auto probes = watch_.take_probes(now_);
  ASSERT_EQ(probes.size(), 9u);
  EXPECT_EQ(probes[0].address, "host12");
  EXPECT_EQ(probes[7].address, "host15");
}

TEST_F(Watch, when_the_resolver_answers_and_all_known_addresses_are_silent_these_are_dead_by_themselves) {
  answer(0, "a:1");
  set_time(10);
  fail(1, 5);
  fail(2, 5, RowErrorCode::kDns);
  set_time(13);
  round(false, true);
  EXPECT_EQ(confirmed(), (Rows{1, 2}));
  EXPECT_EQ(watch_.state(), State::kFine);
}

TEST_F(Watch, hosts_that_never_answered_are_confirmed_as_soon_as_the_resolver_answers_a_probe) {
  set_time(10);
  fail(1, 5);
  set_time(13);
  round(false, true);
  EXPECT_EQ(confirmed(), Rows{1});
}

TEST_F(Watch, a_round_without_any_answer_is_an_outage) {
  answer(0);
  set_time(10);
  fail(1, 5);
  fail(2, 6, RowErrorCode::kTimeout);
  set_time(13);
  round(false, false, 3);
  EXPECT_EQ(watch_.state(), State::kOut);
  EXPECT_EQ(watch_.out_since(), at(10));
  EXPECT_EQ(confirmed(), Rows{});
  EXPECT_EQ(cleared(), Rows{});
  set_time(17);
  round(true, true);
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(confirmed(), Rows{});
  EXPECT_EQ(cleared(), (Rows{1, 2}));
}

TEST_F(Watch, it_probes_every_one_to_ten_seconds_during_an_outage) {
  answer(0);
  set_time(10);
  fail(1, 5);
  set_time(13);
  round(false, false, 0);
  double waited = 13;
  for (const int wait : {1, 2, 4, 8, 10, 10}) {
    waited += wait;
    EXPECT_EQ(next(), waited);
    set_time(waited);
    round(false, false, 0);
  }
  set_time(waited + 10);
  round(true, false, 0);
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(cleared(), Rows{1});
  set_time(waited + 20);
  fail(2, waited + 15);
  EXPECT_EQ(next(), waited + 23);  // The next one starts afresh.
}

TEST_F(Watch, what_was_asked_for_before_an_outage_was_noticed_does_not_end_it) {
  answer(0);
  set_time(10);
  fail(1, 5);
  set_time(13);
  round(false, false, 1);
  set_time(15);
  answer(13.5);
  EXPECT_EQ(watch_.state(), State::kOut);
  answer(14.5);
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(cleared(), Rows{1});
}

TEST_F(Watch, an_outage_of_the_resolver_alone_ends_when_it_answers) {
  answer(0);
  set_time(10);
  fail(1, 5, RowErrorCode::kDns);
  fail(2, 5);
  set_time(13);
  round(true, false);
  EXPECT_EQ(watch_.state(), State::kOut);
  EXPECT_EQ(confirmed(), Rows{2});  // Its host's own.
  set_time(15);
  round(true, false);
  EXPECT_EQ(watch_.state(), State::kOut);
  EXPECT_GT(next(), 15.5);  // Not without a break.
  set_time(18);
  round(true, true);
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(cleared(), Rows{1});
}

TEST_F(Watch, a_network_that_had_a_resolver_works_again_only_with_it) {
  answer(0);
  watch_.resolved(at(0), now_);
  set_time(10);
  fail(1, 5);
  set_time(13);
  round(false, false);
  set_time(15);
  answer(14.5);
  EXPECT_EQ(watch_.state(), State::kOut);
  watch_.resolved(at(14.5), now_);
  EXPECT_EQ(watch_.state(), State::kFine);
}

TEST_F(Watch, attempts_that_began_before_an_outage_ended_are_cleared_however_late_they_fail) {
  answer(0);
  set_time(10);
  fail(1, 5);
  set_time(13);
  round(false, false, 0);
  set_time(14);
  round(true, true, 0);
  EXPECT_EQ(cleared(), Rows{1});
  set_time(25);
  fail(2, 9, RowErrorCode::kTimeout);
  fail(3, 13.9, RowErrorCode::kDns);
  fail(4, 14.1);
  EXPECT_EQ(cleared(), (Rows{2, 3}));
  answer(25);
  EXPECT_EQ(confirmed(), Rows{4});
}

TEST_F(Watch, silence_while_attempts_are_on_the_wire_is_looked_into) {
  answer(0);
  watch_.set_on_wire(5, now_);
  EXPECT_EQ(next(), 3);
  set_time(2);
  answer(1);
  EXPECT_EQ(next(), 5);
  set_time(5);
  round(true, true, 0);
  EXPECT_EQ(watch_.state(), State::kFine);
  EXPECT_EQ(next(), 15);  // Hosts that are merely slow are not probed around all the time.
  set_time(15);
  round(false, false, 0);
  EXPECT_EQ(watch_.state(), State::kOut);
  EXPECT_EQ(watch_.out_since(), at(5));
  set_time(16);
  round(true, false, 0);
  EXPECT_EQ(watch_.state(), State::kOut);  // The resolver had answered.
  set_time(18);
  round(true, true, 0);
  EXPECT_EQ(watch_.state(), State::kFine);
  fail(1, 4);
  EXPECT_EQ(cleared(), Rows{1});
  watch_.set_on_wire(0, now_);
  EXPECT_EQ(next(), -1);
}

TEST_F(Watch, misuse_is_noticed) {
  EXPECT_THROW(watch_.probe_ended({}, true, now_), CheckFailure);
  EXPECT_THROW(watch_.suspect({nullptr, {}}, now_, now_), CheckFailure);
  EXPECT_THROW(NetworkWatch({.probe_after = milliseconds(-1)}), CheckFailure);
  EXPECT_THROW(NetworkWatch({.first_interval = milliseconds(0)}), CheckFailure);
  EXPECT_THROW(NetworkWatch({.first_interval = milliseconds(2), .longest_interval = milliseconds(1)}), CheckFailure);
}

}  // namespace
}  // namespace darkroom
