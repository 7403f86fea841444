#include "darkroom/serve/step_batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "stub_engine.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A batcher over a stub, and what became of each order.
class step_batcher : public testing::Test {
 protected:
  using Outcome = Result<std::vector<Image>>;

  void start(StepBatcherOptions options = {}) { batcher_.emplace(engine_, options, metrics_, clock_); }
  PaintOrder order_of(std::vector<PictureSpec> pictures, milliseconds patience = seconds(1000), std::stop_token given_up = {}) {
    return {.pictures = std::move(pictures), .deadline = clock_.now() + patience, .given_up = std::move(given_up)};
  }
  std::future<Outcome> submit(PaintOrder order) {
    const auto promise = std::make_shared<std::promise<Outcome>>();
    auto future = promise->get_future();
    const Status taken = batcher_->submit(std::move(order), [promise](Outcome outcome) { promise->set_value(std::move(outcome)); });
    if (!taken.is_ok()) {
      promise->set_value(taken);
    }
    return future;
  }
  /// Occupies the engine in its first call, so that orders can gather; one step remains after it.
  std::future<Outcome> hold_engine() {
    engine_.hold_at(0);
    auto held = submit(order_of({stub_picture("held", 2)}));
    EXPECT_TRUE(engine_.await_calls(1));
    return held;
  }
  /// Leaves the engine as slow as it was, at a second a call.
  void go_through_a_slow_spell() {
    engine_.set_time_of_call(seconds(1));
    auto slow = submit(order_of({stub_picture("slow", 4)}));
    EXPECT_TRUE(slow.get().is_ok());
    EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  }
  double number(const std::string& name) {
    const std::string text = "\n" + metrics_.to_prometheus();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + name.size() + 2));
  }
  static StatusCode code(std::future<Outcome>& outcome) { return outcome.get().status().code(); }

  FakeClock clock_;
  MetricsRegistry metrics_;
  StubEngine engine_{clock_};
  std::optional<StepBatcher> batcher_;
};

TEST_F(step_batcher, hands_over_a_picture_for_each_that_was_asked_for_in_their_order) {
  start({.max_batch = 2});
  auto outcome = submit(order_of({stub_picture("a", 3, 8, 10), stub_picture("b", 1, 8, 20), stub_picture("c", 2, 8, 30)}));
  const std::vector<Image> images = outcome.get().value();
  ASSERT_EQ(images.size(), 3U);
  EXPECT_EQ(images[0].pixels.front(), 10);
  EXPECT_EQ(images[1].pixels.front(), 20);
  EXPECT_EQ(images[2].pixels.front(), 30);
  EXPECT_EQ(number("darkroom_serve_pictures_total"), 3);
  EXPECT_EQ(number("darkroom_serve_steps_total"), 6);
  EXPECT_EQ(number("darkroom_serve_open_cost"), 0);
}

TEST_F(step_batcher, checks_pictures_that_differ_in_their_seeds_once) {
  start();
  const auto num_checks = [this](std::vector<PictureSpec> pictures) {
    const int before = engine_.num_checks();
    EXPECT_TRUE(batcher_->would_take(order_of(std::move(pictures))).is_ok());
    return engine_.num_checks() - before;
  };
  EXPECT_EQ(num_checks({stub_picture("a", 3, 8, 1), stub_picture("a", 3, 8, 2), stub_picture("a", 3, 8, 3)}), 1);
  EXPECT_EQ(num_checks({stub_picture("a", 3, 8, 1), stub_picture("a", 3, 8, 2), stub_picture("b", 3, 8, 1)}), 2);
  EXPECT_EQ(num_checks({stub_picture("a", 3), stub_picture("a", 4), stub_picture("a", 4, 16)}), 3);
  EXPECT_FALSE(batcher_->would_take(order_of({stub_picture("a", 3), stub_picture("a", 3), stub_picture("refused", 3)})).is_ok());
}

TEST_F(step_batcher, tells_progress_and_shows_previews_of_those_who_ask) {
  start();
  std::vector<double> shares;
  std::vector<std::pair<size_t, int>> previews;
  PaintOrder order = order_of({stub_picture("a", 6), stub_picture("b", 6)});
  order.pictures[1].preview_every = 2;
  order.progress = [&](double share) { shares.push_back(share); };
  order.show = [&](size_t picture, const Image& image) { previews.emplace_back(picture, image.pixels.front()); };
  EXPECT_TRUE(submit(std::move(order)).get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  ASSERT_GE(shares.size(), 7U);
  EXPECT_EQ(shares.front(), 0.0);
  EXPECT_EQ(shares.back(), 1.0);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(previews, (std::vector<std::pair<size_t, int>>{{1, 4}, {1, 2}}));  // Calls left; none is left after the sixth.
}

TEST_F(step_batcher, a_preview_costs_a_step_and_one_that_fails_costs_no_picture) {
  PictureSpec picture = stub_picture("preview throws", 6);
  picture.preview_every = 2;
  EXPECT_EQ(picture.cost(), cost_of_steps(8));
  picture.preview_every = 6;
  EXPECT_EQ(picture.cost(), cost_of_steps(6));
  picture.preview_every = 1;
  start();
  PaintOrder order = order_of({picture});
  int num_shown = 0;
  order.show = [&](size_t, const Image&) { ++num_shown; };
  order.progress = [](double) { throw std::runtime_error("planted"); };
  EXPECT_TRUE(submit(std::move(order)).get().is_ok());
  EXPECT_EQ(num_shown, 0);
}

TEST_F(step_batcher, orders_join_and_leave_between_calls) {
  start();
  auto held = hold_engine();
  auto short_one = submit(order_of({stub_picture("short", 2)}));
  auto long_one = submit(order_of({stub_picture("long", 4)}));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && short_one.get().is_ok() && long_one.get().is_ok());
  const auto calls = engine_.calls();
  ASSERT_EQ(calls.size(), 5U);
  EXPECT_EQ(calls[0].prompts, (std::vector<std::string>{"held"}));
  EXPECT_EQ(calls[1].prompts.size(), 3U);
  EXPECT_EQ(calls[2].prompts.size(), 2U);
  EXPECT_EQ(calls[3].prompts, (std::vector<std::string>{"long"}));
}

TEST_F(step_batcher, pictures_of_another_size_have_calls_of_their_own) {
  start();
  auto held = hold_engine();
  auto small = submit(order_of({stub_picture("small", 3)}));
  auto large = submit(order_of({stub_picture("large", 3, 16)}));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && small.get().is_ok() && large.get().is_ok());
  for (const auto& call : engine_.calls()) {
    EXPECT_EQ(std::count(call.prompts.begin(), call.prompts.end(), "large") % static_cast<long>(call.prompts.size()), 0);
  }
}

TEST_F(step_batcher, a_short_order_does_not_wait_for_long_ones_that_fill_the_batch) {
  start({.max_batch = 2});
  engine_.hold_at(0);
  auto first = submit(order_of({stub_picture("long", 50), stub_picture("long", 50)}));
  EXPECT_TRUE(engine_.await_calls(1));
  auto other_size = submit(order_of({stub_picture("short", 4, 16)}));
  auto same_size = submit(order_of({stub_picture("short", 4)}));
  engine_.release();
  EXPECT_TRUE(other_size.get().is_ok() && same_size.get().is_ok() && first.get().is_ok());
  size_t last = 0;
  const auto calls = engine_.calls();
  for (size_t i = 0; i < calls.size(); ++i) {
    last = calls[i].prompts.front() == "short" ? i : last;
  }
  EXPECT_LE(last, 8U) << "of " << calls.size() << " calls";
}

TEST_F(step_batcher, refuses_what_is_above_its_bound_at_once) {
  start({.max_batch = 8, .queue_cost = cost_of_steps(10)});
  auto held = hold_engine();
  auto too_large = submit(order_of({stub_picture("too large", 11)}));
  EXPECT_EQ(code(too_large), StatusCode::kInvalidArgument);
  auto fits = submit(order_of({stub_picture("fits", 6)}));
  auto no_room = submit(order_of({stub_picture("no room", 1)}));
  EXPECT_EQ(code(no_room), StatusCode::kResourceExhausted);
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && fits.get().is_ok());
  auto later = submit(order_of({stub_picture("later", 10)}));
  EXPECT_TRUE(later.get().is_ok());
}

TEST_F(step_batcher, an_order_past_its_deadline_costs_no_call) {
  start({.max_batch = 1});
  auto held = hold_engine();
  auto late = submit(order_of({stub_picture("late", 2)}, milliseconds(5)));
  clock_.advance(milliseconds(5));
  engine_.release();
  EXPECT_EQ(code(late), StatusCode::kUnavailable);
  EXPECT_TRUE(held.get().is_ok());
  for (const auto& call : engine_.calls()) {
    EXPECT_EQ(call.prompts, (std::vector<std::string>{"held"}));
  }
}

TEST_F(step_batcher, a_deadline_is_told_while_a_call_runs) {
  start({.max_batch = 2, .queue_cost = 1e9, .max_orders = 2});
  engine_.hold_at(0);
  auto running = submit(order_of({stub_picture("running", 2)}, milliseconds(30)));  // Its first call takes 10 ms.
  EXPECT_TRUE(engine_.await_calls(1));
  auto waiting = submit(order_of({stub_picture("waiting", 2)}, milliseconds(5)));
  clock_.advance(milliseconds(5));
  EXPECT_EQ(code(waiting), StatusCode::kUnavailable);
  auto next = submit(order_of({stub_picture("next", 2)}));  // There is room again.
  clock_.advance(milliseconds(15));
  EXPECT_EQ(code(running), StatusCode::kUnavailable);
  EXPECT_FALSE(batcher_->await_idle(milliseconds(0)));
  engine_.release();
  EXPECT_TRUE(next.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  EXPECT_EQ(engine_.calls().size(), 3U);
  EXPECT_EQ(number("darkroom_serve_open_cost"), 0);
}

TEST_F(step_batcher, is_idle_only_when_a_deadline_has_been_told) {
  start();
  auto held = hold_engine();
  std::promise<bool> was_idle;
  const auto done = [&](const Outcome&) {
    engine_.release();
    was_idle.set_value(batcher_->await_idle(milliseconds(200)));
  };
  ASSERT_TRUE(batcher_->submit(order_of({stub_picture("late", 1)}, milliseconds(5)), done).is_ok());
  clock_.advance(milliseconds(5));
  EXPECT_FALSE(was_idle.get_future().get());
  EXPECT_TRUE(held.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
}

TEST_F(step_batcher, says_of_a_deadline_that_has_passed_no_more_than_that) {
  start();
  auto first = submit(order_of({stub_picture("first", 4)}));  // The pace is known now.
  EXPECT_TRUE(first.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  for (const milliseconds patience : {milliseconds(0), milliseconds(-3000)}) {
    auto late = submit(order_of({stub_picture("late", 2)}, patience));
    const Status refused = late.get().status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(std::string(refused.message()), "the request was not done by its deadline");
  }
  EXPECT_EQ(engine_.calls().size(), 4U);
}

TEST_F(step_batcher, refuses_what_would_miss_its_deadline_at_the_present_pace) {
  start({.max_batch = 1});
  auto first = submit(order_of({stub_picture("first", 4)}));  // A step takes 10 ms: the pace is known now.
  EXPECT_TRUE(first.get().is_ok());
  engine_.hold_at(4);
  auto second = submit(order_of({stub_picture("second", 10)}));
  EXPECT_TRUE(engine_.await_calls(5));
  auto hopeless = submit(order_of({stub_picture("hopeless", 10)}, milliseconds(50)));
  auto hopeful = submit(order_of({stub_picture("hopeful", 2)}, milliseconds(500)));
  EXPECT_EQ(code(hopeless), StatusCode::kResourceExhausted);
  engine_.release();
  EXPECT_TRUE(second.get().is_ok() && hopeful.get().is_ok());
}

TEST_F(step_batcher, work_for_a_client_that_is_gone_stops_within_a_step) {
  start();
  engine_.hold_at(0);
  std::stop_source gone;
  auto outcome = submit(order_of({stub_picture("gone", 50)}, seconds(1000), gone.get_token()));
  EXPECT_TRUE(engine_.await_calls(1));
  gone.request_stop();
  engine_.release();
  EXPECT_EQ(code(outcome), StatusCode::kCancelled);
  EXPECT_EQ(engine_.calls().size(), 1U);
}

TEST_F(step_batcher, an_order_that_fails_costs_only_itself) {
  start();
  auto held = hold_engine();
  auto refused = submit(order_of({stub_picture("refused", 3)}));
  auto throwing = submit(order_of({stub_picture("fine", 3), stub_picture("begin throws", 3)}));
  auto good = submit(order_of({stub_picture("good", 3)}));
  engine_.release();
  EXPECT_EQ(code(refused), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(throwing), StatusCode::kInternal);
  EXPECT_TRUE(held.get().is_ok() && good.get().is_ok());
  auto broken = submit(order_of({stub_picture("step throws", 3)}));
  EXPECT_EQ(code(broken), StatusCode::kInternal);
  auto after = submit(order_of({stub_picture("after", 3)}));
  EXPECT_TRUE(after.get().is_ok());
  EXPECT_EQ(number("darkroom_serve_open_cost"), 0);
}

TEST_F(step_batcher, draining_takes_nothing_new_and_finishes_the_rest) {
  start();
  auto held = hold_engine();
  batcher_->drain();
  auto refused = submit(order_of({stub_picture("new", 1)}));
  EXPECT_EQ(code(refused), StatusCode::kUnavailable);
  engine_.release();
  EXPECT_TRUE(held.get().is_ok());
}

TEST_F(step_batcher, its_end_and_giving_up_end_every_order) {
  start();
  auto held = hold_engine();
  auto waiting = submit(order_of({stub_picture("waiting", 50)}));
  batcher_->give_up_all();
  engine_.release();
  EXPECT_EQ(code(held), StatusCode::kUnavailable);
  EXPECT_EQ(code(waiting), StatusCode::kUnavailable);
  start();
  held = submit(order_of({stub_picture("held", 100'000)}));
  EXPECT_TRUE(engine_.await_calls(2));
  batcher_.reset();
  EXPECT_EQ(code(held), StatusCode::kUnavailable);
}

TEST_F(step_batcher, says_when_to_ask_again) {
  start({.max_batch = 1});
  EXPECT_EQ(batcher_->retry_after(), seconds(1));
  engine_.hold_at(0);
  auto first = submit(order_of({stub_picture("first", 4)}));
  EXPECT_TRUE(engine_.await_calls(1));
  EXPECT_EQ(batcher_->retry_after(), seconds(10));  // No pace is known yet.
  engine_.hold_at(4);
  EXPECT_TRUE(first.get().is_ok());
  auto second = submit(order_of({stub_picture("second", 500)}));  // 5 s of steps.
  EXPECT_TRUE(engine_.await_calls(5));
  EXPECT_GE(batcher_->retry_after(), seconds(4));
  EXPECT_LE(batcher_->retry_after(), seconds(6));
  batcher_->give_up_all();
  engine_.release();
  EXPECT_EQ(code(second), StatusCode::kUnavailable);
}

TEST_F(step_batcher, many_threads_may_submit) {
  start({.max_batch = 4, .queue_cost = cost_of_steps(100)});
  std::atomic<int> num_done = 0;
  std::atomic<int> num_refused = 0;
  {
    std::vector<std::jthread> clients;
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back([&, client] {
        for (int i = 0; i < 50; ++i) {
          auto outcome = submit(order_of({stub_picture("x", 1 + (client + i) % 5, 8, static_cast<uint64_t>(i))}));
          outcome.get().is_ok() ? ++num_done : ++num_refused;
        }
      });
    }
  }
  EXPECT_EQ(num_done, 200);
  EXPECT_EQ(num_refused, 0);
}

TEST_F(step_batcher, an_order_that_is_done_early_has_had_its_share) {
  start({.max_batch = 1});
  auto held = hold_engine();
  auto long_one = submit(order_of({stub_picture("long", 100)}));
  std::vector<std::future<Outcome>> short_ones;
  for (int i = 0; i < 20; ++i) {
    short_ones.push_back(submit(order_of({stub_picture("short", 5)})));
  }
  engine_.hold_at(102);  // The first call of the long one, after all of the others.
  EXPECT_TRUE(engine_.await_calls(103));
  // Under equal sharing the long one would have had as much as each short one by now: less than seven of its 102.
  auto later = submit(order_of({stub_picture("later", 88)}));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && long_one.get().is_ok() && later.get().is_ok());
  const auto calls = engine_.calls();
  EXPECT_EQ(calls.back().prompts, (std::vector<std::string>{"long"}));
}

TEST_F(step_batcher, small_pictures_do_not_spoil_the_pace) {
  start({.max_batch = 1});
  auto usual = submit(order_of({stub_picture("usual", 50, 64)}));
  EXPECT_TRUE(usual.get().is_ok());
  for (int i = 0; i < 30; ++i) {
    auto small = submit(order_of({stub_picture("small", 1)}));
    EXPECT_TRUE(small.get().is_ok());
  }
  engine_.hold_at(80);
  auto held = submit(order_of({stub_picture("held", 50, 64)}));
  EXPECT_TRUE(engine_.await_calls(81));
  auto next = submit(order_of({stub_picture("usual", 50, 64)}, seconds(3)));  // It takes 1 s at most.
  engine_.release();
  EXPECT_TRUE(held.get().is_ok());
  EXPECT_TRUE(next.get().is_ok());
}

TEST_F(step_batcher, a_short_order_is_taken_beside_long_ones_that_it_will_pass) {
  start({.max_batch = 1});
  auto first = submit(order_of({stub_picture("first", 50)}));
  EXPECT_TRUE(first.get().is_ok());
  engine_.hold_at(50);
  auto long_one = submit(order_of({stub_picture("long", 5000)}));
  EXPECT_TRUE(engine_.await_calls(51));
  auto short_one = submit(order_of({stub_picture("short", 4)}, milliseconds(300)));
  engine_.release();
  EXPECT_TRUE(short_one.get().is_ok());
  EXPECT_TRUE(long_one.get().is_ok());
}

TEST_F(step_batcher, what_cannot_be_done_in_time_is_refused_though_nothing_else_waits) {
  start();
  auto first = submit(order_of({stub_picture("first", 50)}));
  EXPECT_TRUE(first.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  auto hopeless = submit(order_of({stub_picture("hopeless", 500)}, seconds(1)));  // 5 s.
  EXPECT_EQ(code(hopeless), StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_.calls().size(), 50U);
}

// Nothing runs, so nothing would ever measure the pace anew: an order is let in for that.
TEST_F(step_batcher, a_slow_spell_locks_nobody_out_for_good) {
  start();
  const auto ask = [this] { return submit(order_of({stub_picture("usual", 50)}, seconds(10))); };
  go_through_a_slow_spell();
  engine_.set_time_of_call(milliseconds(10));
  auto locked_out = ask();
  const Status refused = locked_out.get().status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("ask for fewer steps, fewer or smaller pictures"));
  EXPECT_EQ(batcher_->retry_after(), StepBatcher::kPaceKept);
  clock_.advance(StepBatcher::kPaceKept - milliseconds(1));
  EXPECT_EQ(batcher_->retry_after(), seconds(1));
  auto early = ask();
  EXPECT_EQ(code(early), StatusCode::kResourceExhausted);
  clock_.advance(milliseconds(1));
  auto probe = ask();
  EXPECT_TRUE(probe.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  auto next = ask();
  EXPECT_TRUE(next.get().is_ok());
}

TEST_F(step_batcher, what_one_pace_has_refused_need_not_wait_for_it_once_there_is_another) {
  start();
  go_through_a_slow_spell();
  auto refused = submit(order_of({stub_picture("usual", 50)}, seconds(10)));
  EXPECT_EQ(code(refused), StatusCode::kResourceExhausted);
  EXPECT_EQ(batcher_->retry_after(), StepBatcher::kPaceKept);
  engine_.set_time_of_call(milliseconds(10));
  auto patient = submit(order_of({stub_picture("patient", 4)}));
  EXPECT_TRUE(patient.get().is_ok());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  EXPECT_EQ(batcher_->retry_after(), seconds(1));
}

TEST_F(step_batcher, a_machine_that_stays_slow_is_tried_once_in_a_while) {
  start();
  const auto ask = [this] { return submit(order_of({stub_picture("usual", 50)}, seconds(10))); };
  go_through_a_slow_spell();
  for (int i = 0; i < 2; ++i) {
    clock_.advance(StepBatcher::kPaceKept);
    const size_t num_calls = engine_.calls().size();
    engine_.hold_at(num_calls);
    auto probe = ask();
    EXPECT_TRUE(engine_.await_calls(num_calls + 1));
    auto beside = ask();
    EXPECT_EQ(code(beside), StatusCode::kResourceExhausted);  // One at a time.
    engine_.release();
    EXPECT_EQ(code(probe), StatusCode::kUnavailable);  // Its deadline.
    EXPECT_TRUE(batcher_->await_idle(seconds(60)));
    auto next = ask();
    EXPECT_EQ(code(next), StatusCode::kResourceExhausted);
  }
}

TEST_F(step_batcher, a_picture_that_fails_fails_its_own_order_alone) {
  start();
  auto held = hold_engine();
  auto bad_step = submit(order_of({stub_picture("step throws", 3)}));
  auto bad_finish = submit(order_of({stub_picture("finish throws", 2)}));
  auto no_picture = submit(order_of({stub_picture("finish fails", 2)}));
  auto bad_begin = submit(order_of({stub_picture("begin throws", 2)}));
  auto good = submit(order_of({stub_picture("good", 2, 8, 5), stub_picture("good", 3, 8, 6)}));
  engine_.release();
  EXPECT_EQ(code(bad_step), StatusCode::kInternal);
  EXPECT_EQ(code(bad_finish), StatusCode::kInternal);
  EXPECT_EQ(no_picture.get().status().message(), "no numbers");
  EXPECT_EQ(code(bad_begin), StatusCode::kInternal);
  EXPECT_TRUE(held.get().is_ok());
  const auto images = good.get().value();
  EXPECT_EQ(images[0].pixels.front(), 5);
  EXPECT_EQ(images[1].pixels.front(), 6);
}

TEST_F(step_batcher, a_call_that_is_too_large_for_the_machine_is_taken_in_parts_from_then_on) {
  engine_.set_most_at_once(2);
  start({.max_batch = 4});
  auto held = hold_engine();
  std::vector<std::future<Outcome>> orders;
  for (int i = 0; i < 4; ++i) {
    orders.push_back(submit(order_of({stub_picture("x", 5)})));
  }
  engine_.release();
  for (auto& order : orders) {
    EXPECT_TRUE(order.get().is_ok());
  }
  const auto calls = engine_.calls();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call.prompts.size() == 1; }), 1 + 4 + 1)
      << "the one that is held, each of the call that failed, the last step of the one that came late";
}

// As texts of several lengths, of which each has a call of its own.
TEST_F(step_batcher, after_a_call_that_failed_on_its_way_those_without_their_step_are_tried_alone) {
  start();
  auto held = hold_engine();
  auto long_one = submit(order_of({stub_picture("last throws in company", 3, 8, 5)}));
  auto short_one = submit(order_of({stub_picture("short", 3, 8, 6)}));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok());
  EXPECT_EQ(long_one.get().value().front().pixels.front(), 5);
  EXPECT_EQ(short_one.get().value().front().pixels.front(), 6);
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  EXPECT_EQ(number("darkroom_serve_steps_total"), 2 + 3 + 3);
}

TEST_F(step_batcher, what_fails_alone_behind_the_others_step_fails_its_own_order_alone) {
  start();
  auto held = hold_engine();
  auto bad = submit(order_of({stub_picture("last throws", 3)}));
  auto good = submit(order_of({stub_picture("good", 3)}));
  auto alone = submit(order_of({stub_picture("last throws", 3, 16)}));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && good.get().is_ok());
  EXPECT_EQ(code(bad), StatusCode::kInternal);
  EXPECT_EQ(code(alone), StatusCode::kInternal);
}

TEST_F(step_batcher, more_pictures_are_tried_again_a_while_after_a_call_was_too_large) {
  start({.max_batch = 4});
  const auto most_of_four = [this] {
    const size_t before = engine_.calls().size();
    auto held = submit(order_of({stub_picture("held", 2)}));
    EXPECT_TRUE(engine_.await_calls(before + 1));
    std::vector<std::future<Outcome>> orders;
    for (int i = 0; i < 4; ++i) {
      orders.push_back(submit(order_of({stub_picture("x", 4)})));
    }
    engine_.release();
    EXPECT_TRUE(held.get().is_ok());
    for (auto& order : orders) {
      EXPECT_TRUE(order.get().is_ok());
    }
    EXPECT_TRUE(batcher_->await_idle(seconds(60)));
    const auto calls = engine_.calls();
    size_t most = 0;
    for (size_t i = before; i < calls.size(); ++i) {
      most = std::max(most, calls[i].prompts.size());
    }
    return most;
  };
  engine_.set_most_at_once(2);
  engine_.hold_at(engine_.calls().size());
  EXPECT_EQ(most_of_four(), 2U);
  engine_.set_most_at_once(100);
  engine_.hold_at(engine_.calls().size());
  EXPECT_EQ(most_of_four(), 2U) << "at once";
  clock_.advance(seconds(61));
  engine_.hold_at(engine_.calls().size());
  EXPECT_EQ(most_of_four(), 4U) << "after a minute";
}

TEST_F(step_batcher, a_call_has_no_more_pixels_than_its_bound) {
  start({.max_batch = 8, .max_pixels = 2 * 16 * 16});
  auto held = hold_engine();
  auto small = submit(order_of(std::vector<PictureSpec>(6, stub_picture("small", 1))));
  auto large = submit(order_of(std::vector<PictureSpec>(5, stub_picture("large", 1, 16))));
  auto huge = submit(order_of(std::vector<PictureSpec>(2, stub_picture("huge", 1, 32))));
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && small.get().is_ok() && large.get().is_ok() && huge.get().is_ok());
  std::map<std::string, size_t> most;
  for (const auto& call : engine_.calls()) {
    most[call.prompts.back()] = std::max(most[call.prompts.back()], call.prompts.size());
  }
  EXPECT_EQ(most["small"], 7U);  // With the one that was held.
  EXPECT_EQ(most["large"], 2U);
  EXPECT_EQ(most["huge"], 1U);
}

TEST_F(step_batcher, what_nobody_wants_any_more_makes_room_at_once) {
  start({.max_batch = 1, .queue_cost = 1e9, .max_orders = 2});
  auto held = hold_engine();
  std::stop_source gone;
  auto waiting = submit(order_of({stub_picture("unwanted", 5)}, seconds(1000), gone.get_token()));
  auto no_room = submit(order_of({stub_picture("no room", 1)}));
  EXPECT_EQ(code(no_room), StatusCode::kResourceExhausted);
  gone.request_stop();
  auto next = submit(order_of({stub_picture("next", 1)}));
  EXPECT_EQ(code(waiting), StatusCode::kCancelled);  // While the engine is held.
  engine_.release();
  EXPECT_TRUE(held.get().is_ok() && next.get().is_ok());
}

TEST_F(step_batcher, giving_up_tells_everybody_while_a_call_still_runs) {
  start();
  auto held = hold_engine();
  auto waiting = submit(order_of({stub_picture("waiting", 50)}));
  EXPECT_FALSE(batcher_->await_idle(milliseconds(0)));
  batcher_->give_up_all();
  EXPECT_EQ(code(held), StatusCode::kUnavailable);
  EXPECT_EQ(code(waiting), StatusCode::kUnavailable);
  EXPECT_FALSE(batcher_->await_idle(milliseconds(0)));
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
  EXPECT_EQ(engine_.calls().size(), 1U);
}

TEST_F(step_batcher, is_idle_only_when_everybody_has_been_told) {
  start();
  std::promise<bool> was_idle;
  const Status taken = batcher_->submit(order_of({stub_picture("last", 1)}),
                                        [&](const Outcome&) { was_idle.set_value(batcher_->await_idle(milliseconds(0))); });
  ASSERT_TRUE(taken.is_ok());
  EXPECT_FALSE(was_idle.get_future().get());
  EXPECT_TRUE(batcher_->await_idle(seconds(60)));
}

TEST_F(step_batcher, the_engines_refusal_comes_at_once_and_a_late_one_too) {
  start();
  const Status refused = batcher_->submit(order_of({stub_picture("refused", 1)}), [](const Outcome&) { FAIL(); });
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  auto late = submit(order_of({stub_picture("refused late", 1)}));
  EXPECT_EQ(code(late), StatusCode::kFailedPrecondition);
}

TEST(step_batcher_options, name_the_field_that_is_wrong) {
  EXPECT_NE((StepBatcherOptions{.max_batch = 0}).validate().message().find("batch"), std::string::npos);
  EXPECT_NE((StepBatcherOptions{.max_batch = 1, .queue_cost = 0}).validate().message().find("cost"), std::string::npos);
  EXPECT_TRUE(StepBatcherOptions{}.validate().is_ok());
}

}  // namespace
}  // namespace darkroom
