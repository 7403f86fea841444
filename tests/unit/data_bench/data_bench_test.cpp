#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "data_bench/data_benches.h"
#include "data_bench/peer_process.h"

namespace darkroom {
namespace {

using Command = std::vector<std::string>;

// A peer whose every run takes `seconds` and gives `digest`.
Command peer_that_answers(const std::string& seconds, const std::string& digest) {
  return {
      "sh", "-c",
      R"(echo '{"peers": [{"name": "shell", "version": "1"}], "missing": {"wasp": "no module named wasp"}}'; while read -r _; do echo '{"seconds": )" +
          seconds + R"(, "digest": ")" + digest + R"("}'; done)"};
}

DataTask counting_task(int& num_runs) {
  return {.name = "count", .unit = "runs", .units = 2, .run = [&num_runs] { ++num_runs; }, .digest = [] { return "same"; }};
}

TEST(data_bench, ours_and_the_peer_take_turns_and_the_first_round_does_not_count) {
  int num_runs = 0;
  const auto figures = measure_beside_peers(counting_task(num_runs), peer_that_answers("0.5", "same"), {.repeats = 3});
  ASSERT_TRUE(figures.is_ok()) << figures.status().message();
  EXPECT_EQ(num_runs, 4);
  const auto& peer = (*figures)["peers"]["shell"];
  EXPECT_EQ(peer["version"], "1");
  EXPECT_EQ(peer["per_second"], 4.0) << "two units in half a second";
  EXPECT_GT(peer["ratio"]["median"].get<double>(), 1.0);
  EXPECT_EQ((*figures)["missing"]["wasp"], "no module named wasp");
  EXPECT_NE(bench_text(*figures).find("times the speed of shell 1"), std::string::npos);
  EXPECT_NE(bench_text(*figures).find("wasp: no module named wasp"), std::string::npos);
}

TEST(data_bench, a_peer_with_another_result_is_an_error_and_not_a_ratio) {
  int num_runs = 0;
  const auto figures = measure_beside_peers(counting_task(num_runs), peer_that_answers("0.5", "other"), {.repeats = 3});
  ASSERT_EQ(figures.status().code(), StatusCode::kInternal);
  EXPECT_NE(figures.status().message().find("shell"), std::string::npos);
  EXPECT_NE(figures.status().message().find("other"), std::string::npos);
}

TEST(data_bench, without_a_peer_ours_is_measured_alone_and_the_reason_is_given) {
  int num_runs = 0;
  for (const Result<Command>& command :
       {Result<Command>(Status::not_found("no such script")), Result<Command>(Command{"/nonexistent/python"}),
        Result<Command>(Command{"true"}), Result<Command>(Command{"echo", "hello"})}) {
    const auto figures = measure_beside_peers(counting_task(num_runs), command, {.repeats = 1});
    ASSERT_TRUE(figures.is_ok()) << figures.status().message();
    EXPECT_TRUE((*figures)["peers"].empty());
    EXPECT_FALSE((*figures)["missing"]["peers"].get<std::string>().empty());
  }
}

TEST(data_bench, a_peer_that_breaks_off_is_an_error) {
  int num_runs = 0;
  const Command dies = {"sh", "-c", R"(echo '{"peers": [{"name": "shell", "version": "1"}]}'; read -r _; exit 3)"};
  EXPECT_EQ(measure_beside_peers(counting_task(num_runs), dies, {.repeats = 1}).status().code(), StatusCode::kUnavailable);
}

TEST(data_bench, ctrl_c_does_not_reach_the_peers) {
  const auto peers = PeerProcess::start(
      {"sh", "-c", R"(read -r _ _ _ _ group _ < /proc/$$/stat; echo "{\"peers\": [{\"name\": \"shell\", \"version\": \"$group\"}]}")"});
  ASSERT_TRUE(peers.is_ok()) << peers.status().message();
  ASSERT_EQ((*peers)->peers().size(), 1U);
  EXPECT_NE((*peers)->peers()[0].version, std::to_string(getpgrp()));
}

TEST(data_bench, a_stop_before_the_first_round_measures_nothing) {
  int num_runs = 0;
  std::stop_source stop;
  stop.request_stop();
  const auto figures = measure_beside_peers(counting_task(num_runs), peer_that_answers("0.5", "same"), {.stop = stop.get_token()});
  EXPECT_EQ(figures.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(num_runs, 0);
}

TEST(data_bench, a_stop_keeps_the_rounds_that_are_done_even_when_it_ends_the_peers) {
  const std::string answer = R"(read -r _; echo '{"seconds": 0.5, "digest": "same"}'; )";
  const Command ends_in_the_third_round = {
      "sh", "-c", R"(echo '{"peers": [{"name": "shell", "version": "1"}]}'; )" + answer + answer + "read -r _; exit 130"};
  for (const Command& command : {peer_that_answers("0.5", "same"), ends_in_the_third_round}) {
    int num_runs = 0;
    std::stop_source stop;
    DataTask task = counting_task(num_runs);
    task.run = [&] {
      if (++num_runs == 3) {
        stop.request_stop();
      }
    };
    const auto figures = measure_beside_peers(task, command, {.repeats = 1000, .stop = stop.get_token()});
    ASSERT_TRUE(figures.is_ok()) << figures.status().message();
    EXPECT_EQ(num_runs, 3);
    EXPECT_EQ((*figures)["peers"]["shell"]["per_second"], 4.0);
  }
}

// The peer of fetch is Python's own urllib; Pillow's and transformers' are compared where they are installed, and bench says so if not.
TEST(data_bench, every_benchmark_runs_and_gives_its_figures) {
  for (const Bench& bench : data_benches()) {
    const auto figures = bench.run({.resolution = 64, .repeats = 1});
    ASSERT_TRUE(figures.is_ok()) << bench.name << ": " << figures.status().message();
    EXPECT_GT((*figures)["per_second"].get<double>(), 0.0) << bench.name;
    EXPECT_EQ((*figures)["peers"].size() + (*figures)["missing"].size(), 1U) << bench.name << ": " << figures->dump();
  }
}

TEST(data_bench, captions_hold_more_words_than_the_tokenizer_keeps) {
  std::set<std::string> words;
  for (const std::string& caption : draw_captions(0)) {
    std::istringstream pieces(caption);
    for (std::string word; pieces >> word;) {
      words.insert(word);
    }
  }
  EXPECT_GT(words.size(), 4096U) << "or every timed word has been split before";
  EXPECT_EQ(draw_captions(7), draw_captions(7));
  EXPECT_NE(draw_captions(7), draw_captions(8));
}

TEST(data_bench, options_of_networks_are_refused) {
  for (const Bench& bench : data_benches()) {
    EXPECT_EQ(bench.run({.device = "cuda"}).status().code(), StatusCode::kInvalidArgument) << bench.name;
    EXPECT_EQ(bench.run({.dtype = "bfloat16"}).status().code(), StatusCode::kInvalidArgument) << bench.name;
    EXPECT_EQ(bench.run({.threads = 2}).status().code(), StatusCode::kInvalidArgument) << bench.name;
    EXPECT_EQ(bench.run({.repeats = 0}).status().code(), StatusCode::kInvalidArgument) << bench.name;
  }
}

}  // namespace
}  // namespace darkroom
