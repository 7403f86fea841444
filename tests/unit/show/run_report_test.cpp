#include "darkroom/show/run_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/image/png.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

class RunReport : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file_atomic(files_, "runs/first/" + path, text).is_ok()); }
  std::string page() { return read_file(files_, "runs/first/report.html").value(); }

  MemoryFileSystem files_;
};

const std::string kMetrics =
    "{\"step\":1,\"samples\":4,\"loss\":1.5,\"lr\":1e-4,\"grad_norm\":2,\"images_per_second\":8,\"ms\":{\"forward\":30,\"<data>\":10}}\n"
    "{\"step\":2,\"samples\":8,\"loss\":null,\"validation_loss\":1.25,\"ms\":{\"forward\":50,\"<data>\":10}}\n";

TEST_F(RunReport, shows_all_that_the_run_folder_holds_without_a_network) {
  put("metrics.jsonl", kMetrics);
  put("recipe.toml", "prompt = \"<b>a & b</b> \xff\"\n");
  for (int step = 1; step <= 8; ++step) {
    put(fmt::format("samples/step-{:08}/sheet.png", step), encode_png(Image::filled(2, 2, 3, 7)));
  }
  put("samples/step-00000009/prompt-000.png", "no sheet yet");
  ASSERT_TRUE(
      write_file_atomic(files_, "latents/_summary.json", R"({"rows_in":100,"rows_out":90,"rows_by_error":{"<dns>":10},"seconds":2.5})")
          .is_ok());
  ASSERT_TRUE(write_run_report(files_, "runs/first", "latents").is_ok());

  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("<h1>first</h1>"));
  EXPECT_THAT(html, HasSubstr("step 2 &middot; 8 samples &middot; 2 logged lines"));
  EXPECT_THAT(html, HasSubstr("<td>forward</td><td>40.0</td><td>80.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("&lt;data&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;a &amp; b&lt;/b&gt;"));
  EXPECT_THAT(html, HasSubstr("<td>100</td><td>90</td><td>&lt;dns&gt; 10</td><td>2.5</td>"));
  EXPECT_THAT(html, HasSubstr("step-00000008"));
  EXPECT_THAT(html, HasSubstr("step-00000003"));
  EXPECT_THAT(html, Not(HasSubstr("step-00000002"))) << "only the newest six sheets";
  for (const char* reference : {"<script", "http:", "https:", "@import", "url(", "<link"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

TEST_F(RunReport, the_metrics_alone_are_enough) {
  put("metrics.jsonl", kMetrics);
  for (const char* data_uri : {"", "absent", "latents/part-*.parquet"}) {
    EXPECT_TRUE(write_run_report(files_, "runs/first", data_uri).is_ok()) << data_uri;
  }
  put("metrics.jsonl", "");
  ASSERT_TRUE(write_run_report(files_, "runs/first", "").is_ok());
  EXPECT_THAT(page(), HasSubstr("no step was logged yet"));
}

TEST_F(RunReport, a_torn_last_line_is_left_out) {
  put("metrics.jsonl", kMetrics + "{\"step\":3,\"lo");
  ASSERT_TRUE(write_run_report(files_, "runs/first", "").is_ok());
  EXPECT_THAT(page(), HasSubstr("step 2 "));
}

TEST_F(RunReport, says_which_line_of_the_metrics_is_damaged) {
  for (const char* bad : {"{\"step\":3,\"lo\n", "[]\n", "{\"loss\":1}\n", "{\"step\":\"3\"}\n", "\n"}) {
    put("metrics.jsonl", kMetrics + bad);
    const Status status = write_run_report(files_, "runs/first", "");
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << bad;
    EXPECT_THAT(status.message(), HasSubstr("runs/first/metrics.jsonl 3"));
  }
}

TEST_F(RunReport, needs_metrics) { EXPECT_EQ(write_run_report(files_, "runs/first", "").code(), StatusCode::kNotFound); }

TEST_F(RunReport, replaces_an_older_report) {
  put("metrics.jsonl", kMetrics);
  put("report.html", "old");
  ASSERT_TRUE(write_run_report(files_, "runs/first/", "").is_ok());
  EXPECT_THAT(page(), HasSubstr("<h1>first</h1>"));
}

}  // namespace
}  // namespace darkroom
