#include "darkroom/show/measured_rates.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/feed/stored_run.h"
#include "support/fake_s3_stores.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

/// A run of `num_steps` steps of batch 8 at 64 px, made up so that every share of its time is known: 3 s until the first step, which takes
/// 0.9 s; each other one 0.5 s, a fifth of it the update; 0.01 s of logging a step; 2 s a checkpoint, every 4 steps and at the end.
class MeasuredRun : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(name), text).is_ok());
  }
  static nlohmann::json facts(double seconds) {
    return {{"format_version", 1},
            {"component", "unet"},
            {"step", 10},
            {"seconds", seconds},
            {"starts", {{{"step", 0}, {"device", "cpu"}, {"cores", 2}, {"threads", 1}, {"ranks", 1}}}},
            {"recipe",
             {{"data", {{"resolution", 64}}},
              {"batch", {{"global", 8}, {"micro", 2}}},
              {"checkpoint", {{"every_steps", 4}}},
              {"runtime", {{"workers", 0}}}}}};
  }
  static std::string line(int step, double total, double seconds) {
    const nlohmann::json ms = {{"data", 100 * total}, {"forward", 300 * total}, {"backward", 400 * total}, {"optimizer", 200 * total}};
    return nlohmann::json({{"step", step}, {"samples", 8 * step}, {"images_per_second", 8 / total}, {"seconds", seconds}, {"ms", ms}})
               .dump() +
           "\n";
  }
  void write_run(const std::string& name, int log_every = 1, double logging = 0.01) {
    double seconds = 3;
    std::string lines;
    for (int step = 1; step <= 10; ++step) {
      const double total = step == 1 ? 0.9 : 0.5;
      seconds += total + (step == 1 ? 0 : logging);
      lines += step == 1 || step % log_every == 0 ? line(step, total, seconds) : "";
      seconds += step % 4 == 0 ? 2 : 0;
    }
    write(name + "/metrics.jsonl", lines);
    write(name + "/run.json", facts(seconds + 2).dump());
  }
  Result<MeasuredRates> of_run(const std::string& name) { return measured_rates_of_run(local_files(), folder_.path(name)); }
  Result<MeasuredRates> of(const std::string& uri) { return measured_rates(s3_.set, uri); }

  TemporaryFolder folder_;
  FakeS3Stores s3_;
};

TEST_F(MeasuredRun, knows_where_its_time_went) {
  write_run("run");
  const auto rates = of_run("run");
  ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
  ASSERT_TRUE(rates->train && rates->steps);
  EXPECT_EQ(rates->train->resolution, 64);
  EXPECT_NEAR(rates->train->per_second, 16, 1e-9);
  const MeasuredSteps& steps = *rates->steps;
  EXPECT_EQ(steps.batch, 8);
  EXPECT_EQ(steps.micro, 2);
  EXPECT_EQ(steps.workers, 2);
  EXPECT_EQ(steps.save_every, 4);
  EXPECT_NEAR(steps.start_seconds, 3.4, 1e-9);  // With what the first step took longer.
  EXPECT_NEAR(steps.update_seconds, 0.1, 1e-9);
  EXPECT_NEAR(steps.pass_seconds, 0.4, 1e-9);
  EXPECT_NEAR(steps.between_seconds, 0.01, 1e-9);
  EXPECT_NEAR(steps.save_seconds, 2, 1e-9);
}

// With no time between the steps: where every two lines have a checkpoint between them, nothing tells the two apart.
TEST_F(MeasuredRun, has_the_same_checkpoints_however_often_it_was_logged) {
  for (const int log_every : {1, 2, 3, 4, 7, 10}) {
    write_run("run", log_every, 0);
    const auto rates = of_run("run");
    ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
    EXPECT_NEAR(rates->steps->between_seconds, 0, 1e-9) << log_every;
    EXPECT_NEAR(rates->steps->save_seconds, 2, 1e-9) << log_every;
  }
}

// Killed behind step 10, the last checkpoint that of step 8.
TEST_F(MeasuredRun, that_was_killed_has_no_checkpoint_at_its_end) {
  write_run("run");
  nlohmann::json killed = facts(11.47);
  killed["step"] = 8;
  write("run/run.json", killed.dump());
  const auto rates = of_run("run");
  ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
  EXPECT_NEAR(rates->steps->save_seconds, 2, 1e-9);
  killed["step"] = 0;  // Before the first one.
  killed["seconds"] = 3;
  write("run/run.json", killed.dump());
  write("run/metrics.jsonl", line(1, 0.9, 3.9) + line(2, 0.5, 4.41));
  EXPECT_EQ(of_run("run")->steps->save_seconds, 0);
}

// The program's waits lie beside the phases of a GPU, of all steps that ran ahead.
TEST_F(MeasuredRun, on_a_gpu_has_the_share_of_the_update_by_the_gpus_clock) {
  const nlohmann::json ms = {{"data", 30},       {"forward", 100},     {"backward", 200},
                             {"optimizer", 100}, {"device_idle", 100}, {"device_wait", 5000}};
  std::string lines;
  for (int step = 1; step <= 2; ++step) {
    lines += nlohmann::json({{"step", step}, {"images_per_second", 16}, {"seconds", step}, {"ms", ms}}).dump() + "\n";
  }
  write("run/metrics.jsonl", lines);
  write("run/run.json", facts(3).dump());
  const auto rates = of_run("run");
  ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
  EXPECT_NEAR(rates->steps->update_seconds, 0.1, 1e-9);
  EXPECT_NEAR(rates->steps->pass_seconds, 0.4, 1e-9);
}

TEST_F(MeasuredRun, computes_as_many_passes_side_by_side_as_training_does) {
  const auto of_start = [&](const nlohmann::json& start, int workers) {
    write_run("run");
    nlohmann::json other = facts(30);
    other["starts"] = {{{"device", "cuda"}, {"cores", 64}, {"threads", 1}, {"ranks", 1}}, start};  // The last one counts.
    other["recipe"]["runtime"]["workers"] = workers;
    write("run/run.json", other.dump());
    return of_run("run").value();
  };
  const auto start = [](const char* device, int ranks) {
    return nlohmann::json{{"device", device}, {"cores", 8}, {"threads", 2}, {"ranks", ranks}};
  };
  EXPECT_EQ(of_start(start("cuda", 1), 0).steps->workers, 1);
  EXPECT_EQ(of_start(start("cuda:0", 1), 3).steps->workers, 1);  // A GPU computes one pass at a time, whatever the recipe says.
  EXPECT_EQ(of_start(start("cpu", 1), 0).steps->workers, 4);
  EXPECT_EQ(of_start(start("cpu", 1), 3).steps->workers, 3);
  EXPECT_EQ(of_start(start("cpu", 2), 0).steps->workers, 4);  // Two each.
  EXPECT_EQ(of_start(start("cuda", 4), 0).steps->workers, 4);
}

TEST_F(MeasuredRun, of_several_ranks_counts_as_as_many_gpus_or_says_what_it_assumes) {
  for (const char* device : {"cuda", "cpu"}) {
    write_run("run");
    nlohmann::json other = facts(30);
    other["starts"] = {{{"device", device}, {"cores", 8}, {"threads", 1}, {"ranks", 4}}};
    write("run/run.json", other.dump());
    const auto rates = of_run("run");
    ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
    const bool is_gpu = std::string(device) == "cuda";
    EXPECT_NEAR(rates->train->per_second, is_gpu ? 4 : 16, 1e-9);
    ASSERT_EQ(rates->notes.size(), is_gpu ? 0U : 1U);
    EXPECT_TRUE(is_gpu || rates->notes[0].find("4 ranks") != std::string::npos) << rates->notes[0];
  }
}

TEST_F(MeasuredRun, is_the_same_on_another_store) {
  write_run("run");
  ASSERT_TRUE(s3_.upload(folder_.path("run"), "runs/one").is_ok());
  const auto local = of(folder_.path("run")), remote = of(FakeS3Stores::uri("runs/one"));
  ASSERT_TRUE(local.is_ok()) << local.status().to_string();
  ASSERT_TRUE(remote.is_ok()) << remote.status().to_string();
  EXPECT_EQ(remote->from, "s3://pictures/runs/one");
  EXPECT_EQ(remote->train->per_second, local->train->per_second);
  EXPECT_EQ(remote->steps->save_seconds, local->steps->save_seconds);
}

TEST_F(MeasuredRun, on_a_store_that_cannot_append_has_its_metrics_in_parts) {
  write_run("run");
  const std::string lines = read_file(local_files(), folder_.path("run/metrics.jsonl")).value();
  ASSERT_TRUE(local_files().remove_file(folder_.path("run/metrics.jsonl")).is_ok());
  const size_t middle = lines.find('\n', lines.size() / 2) + 1;
  write("run/" + metrics_part_name(5), lines.substr(0, middle));
  write("run/" + metrics_part_name(10), lines.substr(middle));
  ASSERT_TRUE(s3_.upload(folder_.path("run"), "runs/one").is_ok());
  const auto rates = of(FakeS3Stores::uri("runs/one"));
  ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
  EXPECT_NEAR(rates->train->per_second, 16, 1e-9);
}

TEST_F(MeasuredRun, that_says_too_little_is_refused_with_the_reason) {
  const auto refused = [&](const std::string& word) {
    const auto rates = of_run("run");
    ASSERT_FALSE(rates.is_ok()) << word;
    EXPECT_EQ(rates.status().code(), StatusCode::kFailedPrecondition) << word;
    EXPECT_THAT(rates.status().message(), HasSubstr(word));
    EXPECT_THAT(rates.status().message(), HasSubstr(folder_.path("run")));
  };
  write("run/metrics.jsonl", line(1, 0.5, 4));
  refused("run.json");
  nlohmann::json other = facts(9);
  other["component"] = "vae";
  write("run/run.json", other.dump());
  refused("autoencoder");
  other = facts(9);
  other["recipe"].erase("batch");
  write("run/run.json", other.dump());
  refused("batch.global");
  write("run/run.json", facts(9).dump());
  write("run/metrics.jsonl", "{\"step\": 1}\n");
  refused("no step with its time");
  write("run/metrics.jsonl", "nonsense\n");
  EXPECT_EQ(of_run("run").status().code(), StatusCode::kCorruptData);
}

TEST_F(MeasuredRun, of_one_step_is_a_measurement_too) {
  write("run/metrics.jsonl", line(1, 0.5, 4));
  nlohmann::json one_step = facts(6);
  one_step["step"] = 1;
  write("run/run.json", one_step.dump());
  const auto rates = of_run("run");
  ASSERT_TRUE(rates.is_ok()) << rates.status().to_string();
  EXPECT_NEAR(rates->train->per_second, 16, 1e-9);
  EXPECT_NEAR(rates->steps->start_seconds, 3.5, 1e-9);
  EXPECT_NEAR(rates->steps->save_seconds, 2, 1e-9);
}

TEST_F(MeasuredRun, of_a_job_is_its_record_or_its_summary) {
  write("images/_job.json", R"({"identity": {"verb": "download"}})");
  write("images/_summary.json", R"({"rows_in": 10, "rows_out": 8, "parts": [{"size_bytes": 300}, {"size_bytes": 500}]})");
  const auto job = of(folder_.path("images"));
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ(job->download_success, 0.8);
  EXPECT_EQ(job->picture_bytes, 100);
  EXPECT_FALSE(job->download);
  write("images/_speed.json", R"({"version": 1, "rows": 300, "seconds": 4})");
  EXPECT_EQ(of(folder_.path("images"))->download->per_second, 75);
  write("download.json", R"({"download": {"rows_in": 10, "rows_out": 9, "rows_per_second": 4.5}})");
  const auto download = of(folder_.path("download.json"));
  ASSERT_TRUE(download.is_ok()) << download.status().to_string();
  EXPECT_EQ(download->download->per_second, 4.5);
  EXPECT_EQ(download->download_success, 0.9);
  write("process.json", R"({"process": {"rows_in": 10, "rows_out": 9, "rows_per_second": 4.5, "resolution": 64}})");
  const auto process = of(folder_.path("process.json"));
  ASSERT_TRUE(process.is_ok()) << process.status().to_string();
  EXPECT_EQ(process->encode->resolution, 64);
}

TEST_F(MeasuredRun, of_nothing_usable_is_refused_by_name) {
  write("empty/other.txt", "x");
  write("images/_summary.json", R"({"rows_in": 10, "rows_out": 8, "parts": []})");
  write("images/_job.json", R"({"identity": {"verb": "process"}})");
  write("none/_summary.json", R"({"rows_in": 10, "rows_out": 0})");
  write("none/_job.json", R"({"identity": {"verb": "download"}})");
  write("list.json", "[]");
  write("train.json", R"({"train": {}})");
  write("idle.json", R"({"download": {"rows_in": 0, "rows_out": 0, "rows_per_second": 0}})");
  write("old.json", R"({"process": {"rows_in": 1, "rows_out": 1, "rows_per_second": 1}})");
  const struct {
    const char* name;
    StatusCode code;
    const char* word;
  } cases[] = {
      {"empty", StatusCode::kNotFound, "no training run"},
      {"nowhere", StatusCode::kNotFound, "nowhere"},
      {"nowhere.json", StatusCode::kNotFound, "nowhere.json"},
      {"images", StatusCode::kFailedPrecondition, "--json-summary"},
      {"none", StatusCode::kFailedPrecondition, "no row"},
      {"list.json", StatusCode::kCorruptData, "no JSON object"},
      {"train.json", StatusCode::kNotFound, "no summary of download or process"},
      {"idle.json", StatusCode::kFailedPrecondition, "no speed"},
      {"old.json", StatusCode::kFailedPrecondition, "resolution"},
  };
  for (const auto& one : cases) {
    const auto rates = of(folder_.path(one.name));
    ASSERT_FALSE(rates.is_ok()) << one.name;
    EXPECT_EQ(rates.status().code(), one.code) << one.name << ": " << rates.status().to_string();
    EXPECT_THAT(rates.status().message(), HasSubstr(one.word)) << one.name;
    EXPECT_THAT(rates.status().message(), HasSubstr(folder_.path(one.name)));
  }
}

}  // namespace
}  // namespace darkroom
