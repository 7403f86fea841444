#include "darkroom/show/run_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "darkroom/feed/dataset_index.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/image/png.h"
#include "darkroom/show/inspect.h"
#include "show/run_folder.h"
#include "support/put_shard.h"
#include "support/trained_run.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Reports of folders that training wrote.
class TrainedRunReport : public ::testing::Test {
 protected:
  std::string report(const std::string& run) {
    const Status status = write_run_report(local_files(), trained_.path(run));
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return trained_.read(run + "/report.html");
  }
  /// A sheet as docs/formats/run_folder.md describes it.
  void put_samples(const std::string& run, const std::vector<std::string>& prompts) {
    nlohmann::json about = {{"step", 6},       {"sampler", "ddim"}, {"steps", 50},
                            {"guidance", 7.5}, {"weights", "ema"},  {"pictures", nlohmann::json::array()}};
    for (const std::string& prompt : prompts) {
      about["pictures"].push_back({{"file", "prompt-000.png"}, {"prompt", prompt}, {"seed", 0}});
    }
    trained_.write(run + "/samples/step-00000006/sheet.png", encode_png(Image::filled(2, 2, 3, 7)));
    trained_.write(run + "/samples/step-00000006/samples.json", about.dump(1) + "\n");
  }

  TrainedRun trained_;
};

TEST_F(TrainedRunReport, states_what_was_trained_on_what_and_for_how_long) {
  trained_.train("first", 6);
  const std::string html = report("first");
  EXPECT_THAT(html, HasSubstr("<h1>first</h1>"));
  EXPECT_THAT(html, HasSubstr("<b>6</b><span>of 6</span>"));
  EXPECT_THAT(html, HasSubstr("<b>36</b><span>0.9 epochs of 40</span>"));
  EXPECT_THAT(html, HasSubstr("U-Net &middot; 16 px, v_prediction prediction, batch of 6, AdamW at 0.01, constant schedule, float32"));
  EXPECT_THAT(html, HasSubstr(fmt::format("<span>parameters</span><b>{},{:03}</b><span>U-Net</span>", trained_.parameters() / 1000,
                                          trained_.parameters() % 1000)));
  EXPECT_THAT(html, HasSubstr("<span>in one start</span>"));
  for (const char* part : {"<span>wall time</span>", "pictures/s, the median", "<td>rows trained on</td><td>40</td>",
                           "<td>rows that its job read</td><td>43</td>", "<td>rows that it wrote</td><td>40</td>",
                           "<td>rows by error</td><td>decode_failed 3</td>", "<td>forward</td>", "max_steps = 6"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_THAT(html, Not(HasSubstr("rows/s"))) << "no writer states how long the dataset's job took";
}

TEST_F(TrainedRunReport, needs_no_network_and_shows_values_by_its_own_script) {
  trained_.train("first", 6);
  const std::string html = report("first");
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy\" content=\"default-src 'none'"));
  for (const char* reference : {"http:", "https:", "@import", "url(", "<link", "src=\"/", "<script src"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference))) << reference;
  }
  EXPECT_THAT(html, HasSubstr("pointermove"));
  const size_t begin = html.find("data-chart=\"") + 12;
  const std::string escaped = html.substr(begin, html.find('"', begin) - begin);
  std::string data;
  for (size_t at = 0; at < escaped.size(); ++at) {
    const bool is_quote = escaped.compare(at, 6, "&quot;") == 0;
    data += is_quote ? '"' : escaped[at];
    at += is_quote ? 5 : 0;
  }
  const auto chart = nlohmann::json::parse(data);
  EXPECT_EQ(chart["curves"][0]["x"], nlohmann::json::parse("[1,2,3,4,5,6]"));
  const auto first_line =
      nlohmann::json::parse(trained_.read("first/metrics.jsonl").substr(0, trained_.read("first/metrics.jsonl").find('\n')));
  EXPECT_NEAR(chart["curves"][0]["y"][0].get<double>(), first_line["loss"].get<double>(), 1e-5 * first_line["loss"].get<double>())
      << "six significant digits";
}

TEST_F(TrainedRunReport, the_throughput_axis_begins_at_zero) {
  trained_.train("first", 6);
  const std::string html = report("first");
  const size_t throughput = html.find("<b>Throughput</b>");
  ASSERT_NE(throughput, std::string::npos);
  EXPECT_THAT(html.substr(throughput, html.find("</figure>", throughput) - throughput), HasSubstr("&quot;y&quot;:[0.0,"));
}

TEST_F(TrainedRunReport, says_when_prompts_are_captions_that_were_trained_on) {
  trained_.train("first", 6);
  put_samples("first", {"picture 3", "picture 39"});
  EXPECT_THAT(report("first"), HasSubstr("All 2 prompts are captions of pictures that this run trains on"));
  EXPECT_THAT(report("first"), HasSubstr("step-00000006 &middot; ema weights &middot; ddim &middot; 50 steps &middot; guidance 7.5"));
  put_samples("first", {"picture 3", "a horse on the moon"});
  EXPECT_THAT(report("first"), HasSubstr("1 of the 2 prompts are captions of the 40 rows that this run trains on"));
  put_samples("first", {"picture 40", "a horse on the moon"});
  EXPECT_THAT(report("first"), HasSubstr("None of the 2 prompts is a caption of the 40 rows that this run trains on."));
}

TEST_F(TrainedRunReport, says_nothing_of_captions_where_the_dataset_is_gone) {
  trained_.train("first", 6);
  put_samples("first", {"picture 3"});
  ASSERT_TRUE(local_files().remove_tree(trained_.path("latents")).is_ok());
  EXPECT_THAT(report("first"), Not(HasSubstr("captions of")));
}

TEST_F(TrainedRunReport, a_run_that_went_on_counts_its_starts) {
  trained_.train("first", 3);
  trained_.train("first", 6);
  EXPECT_THAT(report("first"), HasSubstr("<span>in 2 starts</span>"));
}

TEST_F(TrainedRunReport, compares_two_runs_in_one_page_and_in_one_table) {
  trained_.train("first", 6);
  trained_.train("second", 4, /*lr=*/2e-2);
  const auto report = inspect(
      local_files(), {.uri = trained_.path("first"), .html_path = trained_.path("both.html"), .compare = trained_.path("second")}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  const std::string html = trained_.read("both.html");
  EXPECT_THAT(html, HasSubstr("<h1>first beside second</h1>"));
  EXPECT_THAT(html, HasSubstr("first mean of 2 %"));
  EXPECT_THAT(html, HasSubstr("second mean of 2 %"));
  EXPECT_THAT(html, HasSubstr("<tr><td>optimizer.lr</td><td>0.01</td><td>0.02</td></tr>"));
  EXPECT_THAT(report->to_text(), HasSubstr("schedule.max_steps"));
  EXPECT_THAT(report->to_text(), Not(HasSubstr("runtime.seed"))) << "the same in both";
}

TEST_F(TrainedRunReport, runs_of_other_batches_are_compared_by_the_pictures_seen) {
  trained_.train("first", 3);
  trained_.train("second", 3, 1e-2, /*batch=*/12);
  const auto html = render_run_report(local_files(), trained_.path("first"), trained_.path("second"));
  ASSERT_TRUE(html.is_ok()) << html.status().to_string();
  EXPECT_THAT(*html, HasSubstr("&quot;label&quot;:&quot;pictures seen&quot;"));
  EXPECT_THAT(*html, HasSubstr("&quot;x&quot;:[12,24,36]"));
}

TEST_F(TrainedRunReport, a_run_is_compared_with_runs_only) {
  trained_.train("first", 3);
  const auto against = [&](const std::string& uri, const std::string& other) {
    return inspect(local_files(), {.uri = trained_.path(uri), .compare = trained_.path(other)}, {}).status();
  };
  EXPECT_EQ(against("first", "absent").code(), StatusCode::kNotFound);
  EXPECT_THAT(against("first", "absent").message(), HasSubstr("absent"));
  EXPECT_EQ(against("latents", "first").code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(against("latents", "first").message(), HasSubstr("--compare"));
}

TEST_F(TrainedRunReport, a_run_without_its_log_is_not_compared_in_silence) {
  trained_.train("first", 3);
  trained_.train("second", 3);
  std::filesystem::remove(trained_.path("first/metrics.jsonl"));
  const auto refused = inspect(local_files(), {.uri = trained_.path("first"), .compare = trained_.path("second")}, {});
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("metrics.jsonl"));
  EXPECT_TRUE(inspect(local_files(), {.uri = trained_.path("first")}, {}).is_ok()) << "its checkpoints are there";
}

TEST_F(TrainedRunReport, inspect_tells_the_run_as_the_page_does) {
  trained_.train("first", 6);
  const auto report = inspect(local_files(), {.uri = trained_.path("first"), .verify = true}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_damages, 0) << report->damage.front();
  EXPECT_EQ(report->summary["run"]["parameters"], trained_.parameters());
  EXPECT_EQ(report->summary["checkpoints"][0]["step"], 6);
  EXPECT_THAT(report->to_text(), HasSubstr("6 of 6"));
}

/// Reports of folders that are damaged, old or foreign.
class RunReport : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file_atomic(files_, "runs/first/" + path, text).is_ok()); }
  std::string page() { return read_file(files_, "runs/first/report.html").value(); }

  MemoryFileSystem files_;
};

const std::string kMetrics =
    "{\"step\":1,\"samples\":4,\"loss\":1.5,\"lr\":1e-4,\"grad_norm\":2,\"images_per_second\":8,\"ms\":{\"forward\":30,\"<data>\":10}}\n"
    "{\"step\":2,\"samples\":8,\"loss\":null,\"validation_loss\":1.25,\"ms\":{\"forward\":50,\"<data>\":10}}\n";

TEST_F(RunReport, escapes_what_the_folder_holds) {
  put("metrics.jsonl", kMetrics);
  put("recipe.toml", "prompt = \"<b>a & b</b> \xff\"\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<td>forward</td><td class=\"n\">40.0</td><td class=\"n\">80.0 %</td>"));
  EXPECT_THAT(page(), HasSubstr("&lt;data&gt;"));
  EXPECT_THAT(page(), HasSubstr("&lt;b&gt;a &amp; b&lt;/b&gt;"));
}

TEST_F(RunReport, tells_what_the_steps_reached_where_the_metrics_do) {
  put("metrics.jsonl", kMetrics);
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), Not(HasSubstr("TFLOP/s")));
  put("metrics.jsonl",
      "{\"step\":1,\"tflops\":300,\"peak_memory_bytes\":2e9}\n{\"step\":2,\"tflops\":310,\"mfu\":0.412,\"peak_memory_bytes\":45e9}\n"
      "{\"step\":3,\"tflops\":320,\"peak_memory_bytes\":-1}\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<b>310 TFLOP/s</b><span>the median; 41.2 % of the peak (MFU)</span>"));
  EXPECT_THAT(page(), HasSubstr("<b>45.0 GB</b><span>of rank 0</span>"));
  put("metrics.jsonl", "{\"step\":1,\"peak_memory_bytes\":1e300}\n");  // No number of bytes.
  EXPECT_TRUE(write_run_report(files_, "runs/first").is_ok());
  put("run.json", R"({"starts": [{"precision": "float32"}, {"precision": "bfloat16"}], "recipe": {"runtime": {"precision": "auto"}}})");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<p class=\"dim\">bfloat16"));
}

// A trainer whose counter adds every rank's step shows ranks x steps.
TEST_F(RunReport, says_what_several_ranks_do_in_a_second) {
  const auto rows_with = [&](const std::string& facts) {
    put("metrics.jsonl", kMetrics);
    put("run.json", facts);
    EXPECT_TRUE(write_run_report(files_, "runs/first").is_ok());
    return run_facts_rows(*read_run_folder(files_, "runs/first"));
  };
  const auto named = [](const char* name) { return testing::Contains(testing::Key(std::string(name))); };
  const auto rows = rows_with(R"({"recipe": {"batch": {"global": 16}}, "starts": [{"ranks": 4}, {"ranks": 4}]})");
  EXPECT_THAT(rows, testing::IsSupersetOf({std::pair<std::string, std::string>{"ranks", "4"},
                                           {"pictures/s, median", "8"},
                                           {"optimizer steps/s, median", "0.5"},
                                           {"it/s, world-scaled: steps/s x ranks", "2"}}));
  EXPECT_THAT(page(), HasSubstr("<b>8</b><span>pictures/s of all 4 ranks, the median; 0.5 steps/s, 2 it/s world-scaled</span>"));
  const auto alone = rows_with(R"({"recipe": {"batch": {"global": 16}}, "starts": [{"ranks": 1}]})");
  EXPECT_THAT(alone, testing::Contains(testing::Pair("optimizer steps/s, median", "0.5")));
  EXPECT_THAT(alone, Not(named("it/s, world-scaled: steps/s x ranks")));
  EXPECT_THAT(page(), HasSubstr("<span>pictures/s, the median</span>"));
  // The lines do not say which start wrote them.
  EXPECT_THAT(rows_with(R"({"recipe": {"batch": {"global": 16}}, "starts": [{"ranks": 2}, {"ranks": 4}]})"), Not(named("ranks")));
  for (const char* facts :
       {R"({"recipe": {"batch": {"global": 0}}, "starts": [{"ranks": -4}]})", R"({"recipe": {"batch": 5}, "starts": [{"ranks": "4"}]})",
        R"({"starts": [5]})", R"({"recipe": {"batch": {"global": 16}}, "starts": []})"}) {
    EXPECT_THAT(rows_with(facts), Not(named("it/s, world-scaled: steps/s x ranks"))) << facts;
  }
}

TEST_F(RunReport, a_loss_below_zero_is_drawn_too) {
  put("metrics.jsonl", "{\"step\":1,\"loss\":-0.5}\n{\"step\":2,\"loss\":0.25}\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("&quot;x&quot;:[1,2],&quot;y&quot;:[-0.5,0.25]"));
}

TEST_F(RunReport, shows_the_newest_six_sheets) {
  put("metrics.jsonl", kMetrics);
  for (int step = 1; step <= 8; ++step) {
    put(fmt::format("samples/step-{:08}/sheet.png", step), encode_png(Image::filled(2, 2, 3, 7)));
  }
  put("samples/step-00000009/prompt-000.png", "no sheet yet");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("step-00000008"));
  EXPECT_THAT(page(), HasSubstr("step-00000003"));
  EXPECT_THAT(page(), Not(HasSubstr("step-00000002")));
}

TEST_F(RunReport, the_metrics_alone_are_enough) {
  put("metrics.jsonl", kMetrics);
  EXPECT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<b>2</b><span>done</span>"));
  put("metrics.jsonl", "");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("No step was logged yet"));
}

TEST_F(RunReport, says_what_the_wall_time_went_into) {
  put("metrics.jsonl", kMetrics);
  put("goodput.jsonl", "{\"step\":1}\n{\"step\":2,\"training\":90,\"lost\":4,\"starting\":6,\"saving\":0,\"away\":100}\n{\"torn\":");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("Where the wall time went"));
  EXPECT_THAT(page(), HasSubstr("<td>training</td><td class=\"n\">1 min 30 s</td><td class=\"n\">45.0 %</td>"));
  EXPECT_THAT(page(), Not(HasSubstr("<td>saving</td>")));
  put("goodput.jsonl", "{\"step\":2,\"training\":0,\"lost\":80,\"starting\":20}\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(run_facts_rows(*read_run_folder(files_, "runs/first")),
              testing::Contains(testing::Pair("goodput", "training 0.0 %, lost 80.0 %, starting 20.0 %")));
  put("goodput.jsonl", "nonsense\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), Not(HasSubstr("Where the wall time went")));
}

TEST_F(RunReport, a_torn_last_line_is_left_out) {
  put("metrics.jsonl", kMetrics + "{\"step\":3,\"lo");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<span>steps</span><b>2</b>"));
}

TEST_F(RunReport, says_which_line_of_the_metrics_is_damaged) {
  for (const char* bad : {"{\"step\":3,\"lo\n", "[]\n", "{\"loss\":1}\n", "{\"step\":\"3\"}\n", "\n"}) {
    put("metrics.jsonl", kMetrics + bad);
    const Status status = write_run_report(files_, "runs/first");
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << bad;
    EXPECT_THAT(status.message(), HasSubstr("runs/first/metrics.jsonl 3"));
  }
}

TEST_F(RunReport, reads_metrics_of_any_length) {
  std::string lines;
  for (int step = 1; step <= 60'000; ++step) {
    lines += fmt::format("{{\"step\":{},\"loss\":{},\"images_per_second\":{}}}\n", step, step <= 59'950 ? 2 : 3, step % 2 == 0 ? 12 : 8);
  }
  ASSERT_GT(lines.size(), size_t{1} << 21);
  put("metrics.jsonl", lines);
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<span>steps</span><b>60,000</b>"));
  EXPECT_THAT(page(), HasSubstr("<b>3</b><span>first lines: 2</span>"));
  EXPECT_THAT(page(), HasSubstr("<b>10</b><span>pictures/s, the median</span>"));
  put("metrics.jsonl", lines + "[]\n");
  EXPECT_THAT(write_run_report(files_, "runs/first").message(), HasSubstr("metrics.jsonl 60001"));
}

TEST_F(RunReport, a_line_of_the_metrics_may_have_1_MiB) {
  const std::string line = "{\"step\":3}";
  const std::string padding((size_t{1} << 20) - line.size(), ' ');
  put("metrics.jsonl", kMetrics + line + padding + "\n{\"step\":4}\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<span>steps</span><b>4</b>"));
  for (const size_t excess : {size_t{1}, size_t{1} << 18, size_t{1} << 21}) {
    put("metrics.jsonl", kMetrics + line + padding + std::string(excess, ' ') + "\n" + line + "\n");
    EXPECT_THAT(write_run_report(files_, "runs/first").message(), HasSubstr("1 MiB (path, line): runs/first/metrics.jsonl 3")) << excess;
  }
}

TEST_F(RunReport, a_torn_last_line_of_any_length_is_left_out) {
  for (const size_t length : {(size_t{1} << 20) - 1, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{1} << 22}) {
    put("metrics.jsonl", kMetrics + std::string(length, ' '));
    ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok()) << length;
    EXPECT_THAT(page(), HasSubstr("<span>steps</span><b>2</b>")) << length;
  }
}

TEST_F(RunReport, keeps_the_first_16_phases) {
  std::string phases = "\"forward\":40";  // Data, forward, backward and optimizer are there in any run.
  for (int phase = 0; phase < 100; ++phase) {
    phases += fmt::format(",\"phase-{:02}\":10", phase);
  }
  put("metrics.jsonl", "{\"step\":1,\"ms\":{" + phases + "}}\n{\"step\":2,\"ms\":{\"another\":10,\"phase-11\":30}}\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<td>forward</td><td class=\"n\">20.0</td>"));
  EXPECT_THAT(page(), HasSubstr("<td>phase-11</td><td class=\"n\">20.0</td>"));
  EXPECT_THAT(page(), Not(HasSubstr("<td>phase-12</td>")));
  EXPECT_THAT(page(), Not(HasSubstr("<td>another</td>")));
}

TEST_F(RunReport, a_gpus_step_is_the_phases_of_its_own_clock) {
  const std::string gpu = R"({"step":1,"ms":{"data":7,"forward":20,"backward":40,"optimizer":30,"device_wait":900,"device_idle":10}})";
  put("metrics.jsonl", gpu + "\n");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  for (const auto& [phase, percent] :
       {std::pair("device_idle", "10.0"), std::pair("forward", "20.0"), std::pair("backward", "40.0"), std::pair("optimizer", "30.0")}) {
    EXPECT_THAT(page(), HasSubstr(fmt::format("<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{} %</td>", phase, percent, percent)));
  }
  EXPECT_THAT(page(), AllOf(Not(HasSubstr("<td>device_wait</td>")), Not(HasSubstr("<td>data</td>"))));
  put("metrics.jsonl", gpu + "\n" + R"({"step":2,"ms":{"data":100,"forward":0,"backward":0,"optimizer":0}})" + "\n");  // On the CPU.
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("<td>data</td><td class=\"n\">50.0</td><td class=\"n\">50.0 %</td>"));
}

TEST_F(RunReport, runs_are_compared_where_only_one_has_a_recipe) {
  put("metrics.jsonl", kMetrics);
  put("run.json", R"({"recipe":{"optimizer":{"lr":0.25}}})");
  ASSERT_TRUE(write_file_atomic(files_, "runs/second/metrics.jsonl", kMetrics).is_ok());
  const auto forth = render_run_report(files_, "runs/first", "runs/second"), back = render_run_report(files_, "runs/second", "runs/first");
  ASSERT_TRUE(forth.is_ok() && back.is_ok());
  EXPECT_THAT(*forth, HasSubstr("<tr><td>optimizer.lr</td><td>0.25</td><td class=\"n\">-</td></tr>"));
  EXPECT_THAT(*back, HasSubstr("<tr><td>optimizer.lr</td><td class=\"n\">-</td><td>0.25</td></tr>"));
}

TEST_F(RunReport, captions_are_searched_in_the_first_100000_rows_only) {
  arrow::StringBuilder captions;
  for (int row = 0; row <= 100'000; ++row) {
    ASSERT_TRUE(captions.Append("caption " + std::to_string(row)).ok());
  }
  const auto schema = arrow::schema({arrow::field("caption", arrow::utf8())});
  const auto written = put_shard(files_, "data", "part.parquet", *arrow::RecordBatch::Make(schema, 100'001, {*captions.Finish()}));
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  put("metrics.jsonl", kMetrics);
  put("run.json", R"({"recipe":{"data":{"path":"data"}}})");
  put("index.json", DatasetIndex(std::vector<DatasetPart>{{"part.parquet", "1", 0, 100'001}}).to_json());
  put("samples/step-00000001/sheet.png", encode_png(Image::filled(2, 2, 3, 7)));
  put("samples/step-00000001/samples.json", R"({"pictures":[{"prompt":"caption 99999"},{"prompt":"caption 100000"}]})");
  const Status status = write_run_report(files_, "runs/first");
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_THAT(page(), HasSubstr("1 of the 2 prompts are captions of the first 100,000 rows of the dataset"));
}

TEST_F(RunReport, names_what_else_is_damaged) {
  put("metrics.jsonl", kMetrics);
  put("samples/step-00000001/sheet.png", encode_png(Image::filled(2, 2, 3, 7)));
  for (const char* name : {"run.json", "index.json", "samples/step-00000001/samples.json"}) {
    put(name, "{\"torn");
    const Status status = write_run_report(files_, "runs/first");
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
    ASSERT_TRUE(files_.remove_file(std::string("runs/first/") + name).is_ok());
  }
}

TEST_F(RunReport, a_field_of_another_type_is_not_known) {
  put("metrics.jsonl", kMetrics);
  put("run.json", R"({"parameters":"many","seconds":null,"starts":7,"recipe":{"batch":3,"data":{"path":9}}})");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  put("run.json",
      R"({"starts":[7,{"step":"x","processor":3,"online":5},{"online":{"encoders":1e300,"trainer_seconds":1e300}}],"recipe":[]})");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
}

TEST_F(RunReport, tells_which_side_of_a_start_with_encoders_elsewhere_waited) {
  put("metrics.jsonl", kMetrics);
  put("run.json", R"({"starts":[{"step":0},{"step":4,"online":{"encoders":3,"trainer_seconds":60,"trainer_wait_seconds":12.5,
    "encoder_seconds":180,"encoder_idle_seconds":7,"trainer_rows_per_second":40,"rows_per_second_of_an_encoder":9.5,
    "encoders_to_match":5}}],"recipe":{}})");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), HasSubstr("Encoders on other machines"));
  for (const char* cell : {">12.5 s<", ">7.0 s<", ">9.5<", ">40<", ">5<"}) {
    EXPECT_THAT(page(), HasSubstr(cell));
  }
  put("run.json", R"({"starts":[{"step":0}],"recipe":{}})");
  ASSERT_TRUE(write_run_report(files_, "runs/first").is_ok());
  EXPECT_THAT(page(), Not(HasSubstr("Encoders on other machines")));
}

TEST_F(RunReport, needs_metrics) { EXPECT_EQ(write_run_report(files_, "runs/first").code(), StatusCode::kNotFound); }

TEST_F(RunReport, replaces_an_older_report) {
  put("metrics.jsonl", kMetrics);
  put("report.html", "old");
  ASSERT_TRUE(write_run_report(files_, "runs/first/").is_ok());
  EXPECT_THAT(page(), HasSubstr("<h1>first</h1>"));
}

}  // namespace
}  // namespace darkroom
