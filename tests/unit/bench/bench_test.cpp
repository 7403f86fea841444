#include "bench/bench.h"

#include <gtest/gtest.h>

#include "bench/measure.h"

namespace darkroom {
namespace {

TEST(bench, every_benchmark_runs_on_the_tiny_preset_and_gives_its_figures) {
  for (const Bench& bench : benches()) {
    const auto figures = bench.run({.batch_size = 2, .repeats = 1});
    ASSERT_TRUE(figures.is_ok()) << bench.name << ": " << figures.status().message();
    for (const char* key : {"unit", "per_second", "ms", "threads", "tflops", "gemm_tflops", "gemm_share", "peak_memory_bytes", "parameters",
                            "device", "dtype", "graph"}) {
      EXPECT_TRUE(figures->contains(key)) << bench.name << " " << key;
    }
    EXPECT_GT((*figures)["per_second"].get<double>(), 0.0) << bench.name;
    EXPECT_NE(bench_text(*figures).find("per_second"), std::string::npos);
  }
}

TEST(bench, a_training_step_in_bfloat16_has_phases) {
  const auto figures = bench_train_step({.batch_size = 1, .repeats = 1, .dtype = "bfloat16"});
  ASSERT_TRUE(figures.is_ok()) << figures.status().message();
  for (const char* phase : {"forward", "backward", "update"}) {
    EXPECT_GT((*figures)["ms"][phase].get<double>(), 0.0) << phase;
  }
  EXPECT_EQ((*figures)["dtype"], "bfloat16");
  EXPECT_EQ((*figures)["graph"], false) << "a CPU replays nothing";
}

TEST(bench, the_unet_is_packed_on_the_cpu_unless_asked_otherwise) {
  const auto packed = bench_forward({.batch_size = 2, .repeats = 1});
  const auto plain = bench_forward({.batch_size = 2, .repeats = 1, .packing = false});
  ASSERT_TRUE(packed.is_ok() && plain.is_ok()) << packed.status().message() << plain.status().message();
  EXPECT_EQ((*packed)["packed"], true);
  EXPECT_EQ((*plain)["packed"], false);
}

TEST(bench, an_unknown_name_is_refused_with_the_names_that_there_are) {
  const auto found = find_bench(benches(), "train");
  ASSERT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(found.status().message().find("train-step"), std::string::npos);
}

TEST(bench, bad_options_are_refused) {
  EXPECT_EQ(bench_forward({.batch_size = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.resolution = 16385}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.resolution = -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.repeats = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.preset = "none"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.device = "tpu"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench_forward({.dtype = "float16"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(bench, figures_follow_from_times_and_counts) {
  const auto figures = figures_of("images", {20, 10, 30}, 4, 0, {});
  EXPECT_EQ(figures["per_second"], 200);
  EXPECT_EQ(figures["ms"]["min"], 10);
  EXPECT_EQ(figures["ms"]["max"], 30);
  EXPECT_FALSE(figures.contains("tflops")) << "nothing was counted";
}

TEST(bench, runs_are_counted_after_the_warm_up) {
  int runs = 0;
  EXPECT_EQ(time_runs(3, torch::kCPU, {}, [&] { ++runs; }).size(), 3U);
  EXPECT_EQ(runs, 5);
}

TEST(Bench, a_stop_request_ends_the_measuring_after_one_run) {
  std::stop_source stop;
  stop.request_stop();
  int runs = 0;
  EXPECT_EQ(time_runs(3, torch::kCPU, stop.get_token(), [&] { ++runs; }).size(), 1U);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace darkroom
