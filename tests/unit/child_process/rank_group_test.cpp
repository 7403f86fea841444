#include "child_process/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <thread>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

/// Ranks that are lines of shell.
class RankGroupTest : public testing::Test {
 protected:
  RankGroupOptions ranks(const std::string& script, int64_t num_ranks = 3) const {
    return {.command = {"/bin/sh", "-c", "cd '" + folder_.path("") + "'; " + script},
            .num_ranks = num_ranks,
            .first_pause = std::chrono::milliseconds(0)};
  }
  std::string text(const std::string& name) const {
    std::ifstream file(folder_.path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

TEST_F(RankGroupTest, every_rank_knows_its_place) {
  const auto ended =
      run_rank_group(ranks("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT > rank-$RANK; "
                           "test $MASTER_PORT -gt 0 && test -n \"$PATH\" && test $PPID = $DARKROOM_RANK_LAUNCHER"),
                     {});
  EXPECT_EQ(ended.value(), 0) << ended.status().to_string();
  EXPECT_EQ(text("rank-0"), "0 3 0 3 127.0.0.1 0\n");
  EXPECT_EQ(text("rank-2"), "2 3 2 3 127.0.0.1 0\n");
}

TEST_F(RankGroupTest, a_machines_share_of_a_spread_group_meets_where_the_launcher_says) {
  RankGroupOptions options = ranks(
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE "
      "$TORCHELASTIC_RESTART_COUNT $DARKROOM_RANK_MEETING $TORCHELASTIC_RUN_ID >> rank-$RANK; test -e again && exit 0; "
      "test $RANK = 5 && echo > again; exit 75",
      2);
  options.of = SpreadGroup{.first_rank = 4, .size = 8, .host = "node0", .port = 1234, .hosts_store = true, .job = "job 7", .attempt = "0"};
  options.max_restarts = 9;
  EXPECT_EQ(run_rank_group(options, {}).value(), 0);
  EXPECT_THAT(text("rank-4"), HasSubstr("4 8 0 2 node0 1234 False 0 0 job 7\n4 8 0 2 node0 1234 False 1 0 job 7\n"));
  EXPECT_THAT(text("rank-5"), HasSubstr("5 8 1 2 node0 1234 False 0 0 job 7\n5 8 1 2 node0 1234 False 1 0 job 7\n"));
  options.of->hosts_store = false;
  options.of->attempt = "3";
  EXPECT_EQ(run_rank_group(options, {}).value(), 0);
  EXPECT_THAT(text("rank-4"), HasSubstr("4 8 0 2 node0 1234 True 3 3 job 7\n"));
}

TEST_F(RankGroupTest, a_killed_rank_starts_all_again) {
  // In the first start rank 1 dies and the others would wait for ever.
  RankGroupOptions options =
      ranks("if test $TORCHELASTIC_RESTART_COUNT = 0; then test $RANK = 1 && kill -9 $$; exec sleep 600; fi; echo > again-$RANK");
  options.patience = std::chrono::milliseconds(10);
  EXPECT_EQ(run_rank_group(options, {}).value(), 0);
  EXPECT_EQ(text("again-0"), "\n");
  EXPECT_EQ(text("again-2"), "\n");
}

TEST_F(RankGroupTest, a_rank_that_missed_another_starts_all_again) {
  EXPECT_EQ(run_rank_group(ranks("test $TORCHELASTIC_RESTART_COUNT = 2 || exit 75"), {}).value(), 0);
}

TEST_F(RankGroupTest, a_stopped_rank_is_ended_when_the_others_missed_it) {
  RankGroupOptions options = ranks("test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; test $RANK = 0 && kill -STOP $$; exit 75");
  options.patience = std::chrono::milliseconds(10);
  EXPECT_EQ(run_rank_group(options, {}).value(), 0);
}

// Rank 0 as well: the others have ended before it.
TEST_F(RankGroupTest, a_rank_that_is_stopped_after_the_others_have_ended_is_ended) {
  for (const std::string stopped : {"0", "1"}) {
    std::string script = "test $TORCHELASTIC_RESTART_COUNT = 1 && { echo > again-";
    script.append(stopped).append("; exit 0; }; test $RANK = ").append(stopped).append(" && kill -STOP $$; exit 0");
    RankGroupOptions options = ranks(script);
    options.patience = std::chrono::milliseconds(10);
    EXPECT_EQ(run_rank_group(options, {}).value(), 0);
    EXPECT_EQ(text("again-" + stopped), "\n");
  }
}

// Rank 1 lets itself be stopped, is told to go on within the patience, and works for longer than that.
TEST_F(RankGroupTest, a_rank_that_was_stopped_for_a_moment_may_end_when_it_likes) {
  RankGroupOptions options = ranks(
      "test $TORCHELASTIC_RESTART_COUNT = 0 || exit 9; test $RANK = 0 && exit 0; (sleep 1; kill -CONT $$) & kill -STOP $$; sleep 8; echo > "
      "ended",
      2);
  options.patience = std::chrono::seconds(5);
  EXPECT_EQ(run_rank_group(options, {}).value(), 0);
  EXPECT_EQ(text("ended"), "\n");
}

TEST_F(RankGroupTest, ranks_that_are_lost_too_often_are_a_failure) {
  RankGroupOptions options = ranks("echo >> starts-$RANK; test $RANK = 1 && kill -9 $$; exit 75", 2);
  options.max_restarts = 2;
  const Status status = run_rank_group(options, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 0: missed another, rank 1: signal 9"));
  EXPECT_EQ(text("starts-1"), "\n\n\n");
}

TEST_F(RankGroupTest, a_rank_that_fails_by_itself_is_the_groups_failure) {
  EXPECT_EQ(run_rank_group(ranks("echo >> starts-$RANK; test $RANK = 2 && exit 2; exit 75"), {}).value(), 2);
  EXPECT_EQ(text("starts-0"), "\n");
}

TEST_F(RankGroupTest, a_stop_is_handed_to_all_and_they_end_when_they_like) {
  std::stop_source source;
  const std::jthread stopper([&] {
    while (text("ready-0").empty() || text("ready-1").empty() || text("ready-2").empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    source.request_stop();
  });
  const RankGroupOptions options = ranks("trap 'echo told > told-$RANK; exit 143' TERM; echo > ready-$RANK; while :; do sleep 0.05; done");
  const Status status = run_rank_group(options, source.get_token()).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  for (const char* rank : {"told-0", "told-1", "told-2"}) {
    EXPECT_EQ(text(rank), "told\n") << rank;
  }
}

TEST_F(RankGroupTest, after_a_stop_rank_0_may_take_longer_than_the_patience) {
  // Rank 0 ends some time after rank 1 is gone.
  RankGroupOptions options = ranks(
      "trap 'test $RANK = 1 && { echo $$ > gone; exit 143; }; until test -s gone && ! kill -0 $(cat gone); do sleep 0.05; done; sleep 1; "
      "echo > written; exit 143' TERM; echo > ready-$RANK; while :; do sleep 0.05; done",
      2);
  options.patience = std::chrono::milliseconds(10);
  std::stop_source source;
  const std::jthread stopper([&] {
    while (text("ready-0").empty() || text("ready-1").empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    source.request_stop();
  });
  EXPECT_EQ(run_rank_group(options, source.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(text("written"), "\n");
}

TEST_F(RankGroupTest, ranks_that_were_told_to_end_by_somebody_else_are_not_started_again) {
  EXPECT_EQ(run_rank_group(ranks("echo >> starts-$RANK; exit 143", 1), {}).value(), 128 + SIGTERM);
  EXPECT_EQ(text("starts-0"), "\n");
}

TEST_F(RankGroupTest, a_stop_that_ended_one_rank_lets_rank_0_take_longer_than_the_patience) {
  RankGroupOptions options = ranks(
      "test $RANK = 1 && { until test -e ready; do sleep 0.05; done; exit 143; }; trap 'sleep 1; echo > written; exit 143' TERM; "
      "echo > ready; while :; do sleep 0.05; done",
      2);
  options.patience = std::chrono::milliseconds(10);
  EXPECT_EQ(run_rank_group(options, {}).value(), 128 + SIGTERM);
  EXPECT_EQ(text("written"), "\n");
}

TEST_F(RankGroupTest, a_stop_ends_the_pause_before_a_restart) {
  RankGroupOptions options = ranks("echo > began-$RANK; exit 75", 1);
  options.first_pause = options.longest_pause = std::chrono::hours(24);  // Longer than any test may take.
  std::stop_source source;
  const std::jthread stopper([&] {
    while (text("began-0").empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    source.request_stop();
  });
  EXPECT_EQ(run_rank_group(options, source.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(pause_before_restart, grows_up_to_a_minute) {
  RankGroupOptions options;
  std::vector<int64_t> seconds;
  for (const int64_t restart : {1, 2, 3, 4, 5, 1'000'000}) {
    seconds.push_back(std::chrono::duration_cast<std::chrono::seconds>(pause_before_restart(options, restart)).count());
  }
  EXPECT_EQ(seconds, (std::vector<int64_t>{2, 10, 50, 60, 60, 60}));
  options.first_pause = std::chrono::milliseconds(0);
  EXPECT_EQ(pause_before_restart(options, 1'000).count(), 0);
}

TEST_F(RankGroupTest, a_program_that_is_not_there_is_an_error) {
  EXPECT_EQ(run_rank_group({.command = {"/no/such/program"}, .num_ranks = 2}, {}).status().code(), StatusCode::kNotFound);
}

/// This process has no more descriptors than are open now, while it lives.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(RankGroupTest, a_start_for_which_the_machine_has_nothing_left_is_one_that_was_lost) {
  RankGroupOptions options = ranks("true");
  options.first_pause = std::chrono::milliseconds(300);
  options.max_restarts = 2;
  auto poor = std::make_unique<NoMoreDescriptors>();
  EXPECT_EQ(run_rank_group({.command = options.command, .max_restarts = 0}, {}).status().code(), StatusCode::kUnavailable);
  const std::jthread rich([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    poor.reset();
  });
  const auto ended = run_rank_group(options, {});
  EXPECT_EQ(ended.is_ok() ? *ended : -1, 0) << ended.status().to_string();
}

TEST(end_on_uncaught_exceptions, is_an_error_and_no_abort) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        end_on_uncaught_exceptions();
        std::thread([] { throw std::runtime_error("5 bytes instead of 4"); }).join();
      },
      testing::ExitedWithCode(1), "5 bytes instead of 4");
}

}  // namespace
}  // namespace darkroom
