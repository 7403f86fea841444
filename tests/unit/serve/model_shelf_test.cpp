#include "darkroom/serve/model_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "stub_opener.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::chrono::minutes kPatience{1};

class model_shelf : public testing::Test {
 protected:
  void start(int64_t memory_bytes, const std::vector<std::string>& names, size_t max_waiting = 64) {
    shelf_.emplace(ModelShelfOptions{.memory_bytes = memory_bytes, .max_waiting = max_waiting}, opener_, metrics_, clock_);
    for (const std::string& name : names) {
      ASSERT_TRUE(shelf_->add({.name = name, .address = name == "broken" ? "broken" : ""}).is_ok());
    }
  }
  void TearDown() override { opener_.release(); }

  /// What becomes of asking for a model.
  std::future<Result<HeldModel>> ask(const std::string& name, std::chrono::seconds patience = std::chrono::seconds(60),
                                     const std::stop_token& gone = {}) {
    const auto end = std::make_shared<std::promise<Result<HeldModel>>>();
    shelf_->use(name, clock_.now() + patience, gone, [end](Result<HeldModel> use) { end->set_value(std::move(use)); });
    return end->get_future();
  }
  /// Asks until another model has been promised the room of this one.
  std::future<Result<HeldModel>> ask_until_it_waits(const std::string& name) {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    auto asked = ask(name);
    while (!is_open(asked) && std::chrono::steady_clock::now() < limit) {
      asked = ask(name);
    }
    return asked;
  }
  static Result<HeldModel> told(std::future<Result<HeldModel>> future) {
    return future.wait_for(kPatience) == std::future_status::ready ? future.get() : Result<HeldModel>(Status::internal("nothing was told"));
  }
  Result<HeldModel> use(const std::string& name) { return told(ask(name)); }
  Status load(const std::string& name) {
    const auto end = std::make_shared<std::promise<Status>>();
    shelf_->load({.name = name, .address = name == "broken" ? "broken" : ""}, clock_.now() + std::chrono::seconds(60),
                 [end](const Status& status) { end->set_value(status); });
    return end->get_future().get();
  }
  std::future<Status> unload(const std::string& name) {
    const auto end = std::make_shared<std::promise<Status>>();
    shelf_->unload(name, clock_.now() + std::chrono::seconds(60), [end](const Status& status) { end->set_value(status); });
    return end->get_future();
  }
  static bool is_open(const std::future<Result<HeldModel>>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }

  FakeClock clock_;
  MetricsRegistry metrics_;
  StubOpener opener_{clock_};
  std::optional<ModelShelf> shelf_;
};

TEST_F(model_shelf, loads_a_model_when_it_is_first_asked_for_and_once) {
  start(10, {"a", "b"});
  EXPECT_FALSE(shelf_->facts("a").is_ok());
  EXPECT_EQ(use("b").value()->facts.name, "b");
  EXPECT_EQ(use("").value()->facts.name, "a");
  EXPECT_EQ(use("b").value()->facts.name, "b");
  EXPECT_THAT(opener_.await_opened(2), ElementsAre("b", "a"));
  EXPECT_EQ(shelf_->facts("a").value().name, "a");
  EXPECT_EQ(use("c").status().code(), StatusCode::kNotFound);
}

TEST_F(model_shelf, lets_the_model_go_that_was_asked_for_least_recently) {
  start(2, {"a", "b", "c"});
  ASSERT_TRUE(use("a").is_ok());
  ASSERT_TRUE(use("b").is_ok());
  ASSERT_TRUE(use("a").is_ok());
  ASSERT_TRUE(use("c").is_ok());  // For which b goes.
  ASSERT_TRUE(use("a").is_ok());
  ASSERT_TRUE(use("b").is_ok());
  EXPECT_THAT(opener_.await_opened(4), ElementsAre("a", "b", "c", "b"));
  EXPECT_THAT(metrics_.to_prometheus(), HasSubstr("darkroom_serve_model_evictions_total 2"));
}

TEST_F(model_shelf, keeps_what_is_in_use_and_gives_the_one_that_waits_its_turn) {
  start(1, {"a", "b"});
  Result<HeldModel> first = use("a");
  ASSERT_TRUE(first.is_ok());
  auto second = ask("b");
  auto third = ask_until_it_waits("a");  // Though a is still there: else b might wait for ever.
  EXPECT_TRUE(is_open(second));
  EXPECT_TRUE(is_open(third));
  EXPECT_THAT(opener_.await_opened(1), ElementsAre("a"));
  first = Status::internal("given back");
  Result<HeldModel> later = told(std::move(second));
  EXPECT_EQ(later.value()->facts.name, "b");
  EXPECT_TRUE(is_open(third));
  later = Status::internal("given back");
  EXPECT_EQ(told(std::move(third)).value()->facts.name, "a");
  EXPECT_THAT(opener_.await_opened(3), ElementsAre("a", "b", "a"));
}

TEST_F(model_shelf, goes_on_with_a_model_whose_room_nobody_wants_any_more) {
  start(1, {"a", "b"});
  const Result<HeldModel> first = use("a");
  std::stop_source gone;
  auto second = ask("b", std::chrono::seconds(60), gone.get_token());
  auto third = ask_until_it_waits("a");
  gone.request_stop();
  auto fourth = ask("a");  // Whoever comes finds out that b's client is gone.
  EXPECT_EQ(told(std::move(second)).status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(told(std::move(third)).is_ok());
  EXPECT_TRUE(told(std::move(fourth)).is_ok());
  EXPECT_THAT(opener_.await_opened(1), ElementsAre("a"));
}

TEST_F(model_shelf, ends_waits_at_their_deadlines_also_while_it_loads) {
  start(10, {"a", "b"});
  opener_.hold();
  auto loading = ask("a", std::chrono::seconds(5));
  opener_.await_opened(1);
  auto waiting = ask("b", std::chrono::seconds(3));
  clock_.advance(std::chrono::seconds(4));
  EXPECT_EQ(told(std::move(waiting)).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(is_open(loading));
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(told(std::move(loading)).status().code(), StatusCode::kUnavailable);
  opener_.release();
  EXPECT_TRUE(use("a").is_ok());
  EXPECT_THAT(opener_.await_opened(1), ElementsAre("a"));  // What was loaded late is there for the next.
}

TEST_F(model_shelf, lets_so_many_wait_and_no_more) {
  start(10, {"a"}, 2);
  opener_.hold();
  std::stop_source gone;
  auto first = ask("a");
  auto second = ask("a", std::chrono::seconds(60), gone.get_token());
  EXPECT_EQ(use("a").status().code(), StatusCode::kResourceExhausted);
  gone.request_stop();
  auto third = ask("a");  // Who is gone takes no room.
  opener_.release();
  EXPECT_TRUE(told(std::move(first)).is_ok());
  EXPECT_TRUE(told(std::move(third)).is_ok());
}

TEST_F(model_shelf, refuses_what_is_larger_than_the_whole_memory_and_tries_again_what_failed) {
  opener_.set_bytes("large", 11);
  start(10, {"broken", "large"});
  const Status large = use("large").status();
  EXPECT_EQ(large.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(large.message(), HasSubstr("large 11 10"));
  const Status broken = use("broken").status();
  EXPECT_EQ(broken.code(), StatusCode::kInternal);
  EXPECT_THAT(broken.message(), testing::Not(HasSubstr("planted")));
  EXPECT_FALSE(use("broken").is_ok());
  EXPECT_THAT(opener_.await_opened(2), ElementsAre("broken", "broken"));
}

TEST_F(model_shelf, loads_beside_others_only_and_says_what_is_there) {
  opener_.set_bytes("c", 2);
  start(3, {"a"});
  ASSERT_TRUE(use("a").is_ok());
  EXPECT_TRUE(load("b").is_ok());
  EXPECT_EQ(load("b").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(load("c").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(load("broken").code(), StatusCode::kInternal);
  std::vector<std::string> names;
  for (const ModelEntry& model : shelf_->models()) {
    names.push_back(model.name);
  }
  EXPECT_THAT(names, ElementsAre("a", "b"));
  EXPECT_TRUE(unload("b").get().is_ok());
  EXPECT_TRUE(load("c").is_ok());
}

TEST_F(model_shelf, unloads_a_model_once_nobody_uses_it) {
  start(1, {"a"});
  Result<HeldModel> in_use = use("a");
  auto unloaded = unload("a");
  EXPECT_EQ(use("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(unload("a").get().code(), StatusCode::kNotFound);
  EXPECT_EQ(unloaded.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  in_use = Status::internal("given back");
  EXPECT_TRUE(unloaded.get().is_ok());
  EXPECT_TRUE(load("a").is_ok());
}

TEST_F(model_shelf, says_at_the_deadline_that_a_model_to_unload_is_still_in_use) {
  start(1, {"a"});
  Result<HeldModel> in_use = use("a");
  auto unloaded = unload("a");
  clock_.advance(std::chrono::seconds(61));
  EXPECT_EQ(unloaded.get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(load("b").code(), StatusCode::kFailedPrecondition);  // It still takes the room.
  in_use = Status::internal("given back");
  EXPECT_EQ(use("").status().code(), StatusCode::kNotFound);
}

TEST_F(model_shelf, counts_memory_as_free_once_the_model_is_destroyed) {
  start(10, {"a"});
  ASSERT_TRUE(use("a").is_ok());
  std::promise<std::string> said;
  opener_.engine("a")->tell_end([&] { said.set_value(metrics_.to_prometheus()); });
  EXPECT_TRUE(unload("a").get().is_ok());
  EXPECT_THAT(said.get_future().get(), HasSubstr("\ndarkroom_serve_models_bytes 1\n"));
  EXPECT_THAT(metrics_.to_prometheus(), HasSubstr("\ndarkroom_serve_models_bytes 0\n"));
}

TEST_F(model_shelf, lets_no_other_model_go_for_room_that_one_is_about_to_leave) {
  opener_.set_bytes("c", 2);
  start(3, {"a", "b", "c"});
  ASSERT_TRUE(use("a").is_ok());
  ASSERT_TRUE(use("b").is_ok());
  std::promise<void> begun;
  std::promise<void> may_end;
  opener_.engine("a")->tell_end([&] {
    begun.set_value();
    may_end.get_future().wait();
  });
  auto unloaded = unload("a");
  begun.get_future().wait();
  auto asked = ask("c");  // 1 of 3 is free, and 1 more soon.
  EXPECT_TRUE(opener_.await_measured(3));
  EXPECT_TRUE(clock_.await_waiting(1));  // What loads: the other thread destroys a.
  may_end.set_value();
  EXPECT_TRUE(told(std::move(asked)).is_ok());
  EXPECT_TRUE(unloaded.get().is_ok());
  EXPECT_THAT(metrics_.to_prometheus(), HasSubstr("darkroom_serve_model_evictions_total 0"));
}

TEST_F(model_shelf, loads_beside_others_once_one_that_is_about_to_leave_is_gone) {
  opener_.set_bytes("c", 2);
  start(3, {"a", "b"});
  ASSERT_TRUE(use("a").is_ok());
  ASSERT_TRUE(use("b").is_ok());
  std::promise<void> begun;
  std::promise<void> may_end;
  opener_.engine("a")->tell_end([&] {
    begun.set_value();
    may_end.get_future().wait();
  });
  auto unloaded = unload("a");
  begun.get_future().wait();
  auto loaded = std::async(std::launch::async, [this] { return load("c"); });  // 1 of 3 is free, and 1 more soon.
  EXPECT_TRUE(opener_.await_measured(3));
  EXPECT_TRUE(clock_.await_waiting(1));
  may_end.set_value();
  EXPECT_TRUE(loaded.get().is_ok());
  EXPECT_TRUE(unloaded.get().is_ok());
  EXPECT_TRUE(use("b").is_ok());
  EXPECT_THAT(opener_.await_opened(3), ElementsAre("a", "b", "c"));
}

TEST_F(model_shelf, ends_what_waits_at_a_drain_and_lends_only_what_is_there) {
  start(10, {"a", "b", "c"});
  ASSERT_TRUE(use("a").is_ok());
  opener_.hold();
  auto loading = ask("b");
  opener_.await_opened(2);
  auto waiting = ask("c");
  shelf_->drain();
  for (auto* one : {&loading, &waiting}) {
    const Status status = told(std::move(*one)).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("shutting down"));
  }
  EXPECT_EQ(use("b").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(load("d").code(), StatusCode::kUnavailable);
  EXPECT_TRUE(use("a").is_ok());
  EXPECT_TRUE(shelf_->await_idle(kPatience));
  EXPECT_THAT(opener_.await_opened(2), ElementsAre("a", "b"));
}

TEST_F(model_shelf, says_at_a_drain_that_a_model_is_still_in_use) {
  start(1, {"a", "b"});
  const Result<HeldModel> in_use = use("a");
  auto unloaded = unload("a");
  auto waiting = ask("b");  // For its room.
  shelf_->drain();
  EXPECT_EQ(unloaded.get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(told(std::move(waiting)).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(shelf_->await_idle(kPatience));
  EXPECT_TRUE(unload("b").get().is_ok());
}

TEST_F(model_shelf, knows_whether_a_model_is_loaded_still) {
  start(1, {"a"});
  EXPECT_TRUE(shelf_->await_idle(std::chrono::milliseconds(0)));
  opener_.hold_until_released();
  auto loading = ask("a");
  opener_.await_opened(1);
  shelf_->drain();
  EXPECT_FALSE(shelf_->await_idle(std::chrono::milliseconds(0)));
  opener_.release();
  EXPECT_TRUE(shelf_->await_idle(kPatience));
  EXPECT_EQ(told(std::move(loading)).status().code(), StatusCode::kUnavailable);
}

TEST_F(model_shelf, ends_what_waits_when_it_ends_and_uses_may_outlive_it) {
  start(1, {"a", "b"});
  const Result<HeldModel> in_use = use("a");
  auto waiting = ask("b");
  shelf_.reset();
  EXPECT_EQ(told(std::move(waiting)).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(in_use.value()->facts.name, "a");
}

TEST_F(model_shelf, names_the_field_that_is_wrong) {
  EXPECT_THAT((ModelShelfOptions{.memory_bytes = 0}).validate().message(), HasSubstr("memory"));
  EXPECT_THAT((ModelShelfOptions{.max_waiting = 0}).validate().message(), HasSubstr("wait"));
  start(1, {"a"});
  EXPECT_EQ(shelf_->add({.name = "a", .address = ""}).code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace darkroom
