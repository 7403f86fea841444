#include "darkroom/ingest/download_job.h"

#include <arrow/io/memory.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <thread>

#include "darkroom/tables/part_name.h"
#include "darkroom/tables/verify_shard.h"
#include "download_fixture.h"
#include "support/put_shard.h"
#include "support/rounds.h"

namespace darkroom {
namespace {

class DownloadJob : public DownloadTest {};

TEST_F(DownloadJob, stores_pictures_as_served_in_input_order_with_their_metadata) {
  add_pictures(23);
  web_.start();
  const StageSummary summary = download(web_.options(output()));
  EXPECT_EQ(summary.rows_in, 23);
  EXPECT_EQ(summary.rows_out, 23);
  EXPECT_EQ(summary.num_parts, 3);
  const auto last = read_table(output() + "/part-000002.parquet");
  EXPECT_EQ(texts(*last, "key"), (std::vector<std::string>{"000000000020", "000000000021", "000000000022"}));
  EXPECT_EQ(texts(*last, "caption")[1], "picture number 21");
  EXPECT_EQ(texts(*last, "image")[2], numbered_png(22));
  EXPECT_EQ(texts(*last, "mime")[0], "image/png");
  EXPECT_EQ(texts(*last, "input_WIDTH")[0], "20");
  EXPECT_EQ(texts(*last, "punsafe")[0], "0.25");
  EXPECT_EQ(std::static_pointer_cast<arrow::Int32Array>(last->GetColumnByName("width")->chunk(0))->Value(0), 40);
  EXPECT_TRUE(verify_shard(local_files(), output() + "/part-000000.parquet").is_ok());
}

TEST_F(DownloadJob, counts_every_failed_row_under_its_code) {
  add_pictures(2);
  web_.add_file("small.png", numbered_png(1, 20, 40));
  web_.add_file("page.html", "<html><body>no picture here at all, only text</body></html>");
  web_.add_file("animation.gif", std::string("GIF89a\x20\x00\x20\x00\x00\x00\x00;", 14));
  web_.add_trouble("gone", {{"trouble", "status"}, {"status", 404}});
  web_.add_trouble("cut", {{"trouble", "truncated"}});
  web_.add_trouble("html", {{"trouble", "html"}});
  web_.add_trouble("private", {{"trouble", "redirect_private"}});
  web_.add_trouble("loop", {{"trouble", "redirect_loop"}});
  web_.add_trouble("opted-out", {{"trouble", "noai"}});
  web_.add_trouble("small", {{"file", "small.png"}});
  web_.add_trouble("gif", {{"file", "animation.gif"}});
  web_.add_trouble("uncaptioned", {{"file", "picture0.png"}}, "  ");
  web_.add_url("nonsense", "not a URL");
  web_.add_url("", "no URL");
  web_.start();
  DownloadOptions options = web_.options(output());
  options.fetch.num_retries = 0;
  const StageSummary summary = download(options);
  const RowsByError expected = {{"http_404", 1},           {"truncated", 1}, {"not_an_image", 1}, {"blocked_host", 1},
                                {"too_many_redirects", 1}, {"opted_out", 1}, {"too_small", 1},    {"unsupported_format", 1},
                                {"empty_caption", 1},      {"bad_url", 2}};
  EXPECT_EQ(summary.rows_by_error, expected);
  EXPECT_EQ(summary.rows_in, summary.rows_out + summary.rows_failed());
  EXPECT_EQ(summary.rows_out, 2);
  for (const StageSnapshot& stage : summary.stages) {
    EXPECT_EQ(stage.num_rows, stage.name == "fetch" ? 11 : 13) << stage.name << "; an empty caption and an empty URL are not fetched";
  }
  EXPECT_EQ(web_.web().num_requests("/uncaptioned"), 0);
}

TEST_F(DownloadJob, image_limits_are_flags) {
  add_pictures(1);
  web_.add_file("wide.png", numbered_png(1, 90, 36));
  web_.add_file("many.png", numbered_png(2, 80, 70));
  web_.add_file("long.png", numbered_png(3, 40, 36) + std::string(20'000, 'x'));
  for (const char* name : {"wide", "many", "long"}) {
    web_.add_trouble(std::string(name) + "-route", {{"file", std::string(name) + ".png"}});
  }
  web_.start();
  DownloadOptions options = web_.options(output());
  options.limits.max_aspect = 2;
  options.limits.max_pixels = 4000;
  options.fetch.max_body_bytes = 15'000;
  testing::internal::CaptureStderr();
  EXPECT_EQ(download(options).rows_by_error, (RowsByError{{"bad_aspect", 1}, {"bomb", 1}, {"too_large", 1}}));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("download: a row failed, bomb: more than 4000 pixels: 80x70; the first is of http"),
            std::string::npos);
}

TEST_F(DownloadJob, repairs_and_counts_captions_that_are_no_utf8) {
  add_pictures(1);
  web_.start();
  write_bytes(folder_.path("urls.csv"), "url,caption\n" + web_.web().url() + "/picture0.png,caf\xE9\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("urls.csv")};
  EXPECT_EQ(download(options).num_invalid_captions, 1);
  EXPECT_EQ(texts(*read_table(output() + "/part-000000.parquet"), "caption")[0], "caf\xEF\xBF\xBD");
}

TEST_F(DownloadJob, a_json_line_that_is_no_utf8_keeps_its_row_and_counts_only_where_its_caption_was_repaired) {
  add_pictures(1);
  web_.start();
  const std::string begin = R"({"url": ")" + web_.web().url() + R"(/picture0.png", )";
  write_bytes(folder_.path("urls.jsonl"), begin + "\"caption\": \"caf\xE9\", \"note\": \"a\"}\n" + begin +
                                              R"("caption": "cut \ud83d"})"
                                              "\n" +
                                              begin + "\"caption\": \"fine\", \"note\": \"caf\xE9\"}\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("urls.jsonl")};
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_out, 3);
  EXPECT_EQ(summary.num_invalid_captions, 2);
  const auto part = read_table(output() + "/part-000000.parquet");
  EXPECT_EQ(texts(*part, "caption"), (std::vector<std::string>{"caf\xEF\xBF\xBD", "cut \xEF\xBF\xBD", "fine"}));
  EXPECT_EQ(texts(*part, "note")[2], "caf\xEF\xBF\xBD");
}

TEST_F(DownloadJob, malformed_rows_of_tables_are_told_once) {
  add_pictures(1);
  web_.start();
  const std::string url = web_.web().url() + "/picture0.png";
  std::filesystem::create_directories(folder_.path("tables"));
  write_bytes(folder_.path("tables/a.csv"), "url,caption\n" + url + ",first\n" + url + ",one, two\n" + url + ",last\n");
  write_bytes(folder_.path("tables/b.jsonl"), R"({"url": ")" + url +
                                                  R"(", "caption": "third"})"
                                                  "\n{\"url\": \"" +
                                                  url + "\n" + url + "\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("tables")};
  options.rows_per_file = 2;
  testing::internal::CaptureStderr();
  const StageSummary summary = download(options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(summary.rows_out, 3);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"bad_url", 3}}));
  const size_t told = log.find("3 rows of the tables are malformed");
  EXPECT_NE(told, std::string::npos) << log;
  EXPECT_NE(log.find("a.csv", told), std::string::npos) << log;
  EXPECT_EQ(log.find("malformed", log.find('\n', told)), std::string::npos) << log;
}

TEST_F(DownloadJob, each_table_of_a_job_is_read_by_its_own_columns) {
  add_pictures(2);
  web_.start();
  const std::string web = web_.web().url();
  std::filesystem::create_directories(folder_.path("tables"));
  write_bytes(folder_.path("tables/a.csv"), "punsafe,url,caption\n0.5," + web + "/picture0.png,first\n");
  write_bytes(folder_.path("tables/b.jsonl"), R"({"TEXT": "second", "similarity": "x", "URL": ")" + web + "/picture1.png\"}\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("tables")};
  EXPECT_EQ(download(options).rows_out, 2);
  const auto first = read_table(output() + "/part-000000.parquet"), second = read_table(output() + "/part-000001.parquet");
  EXPECT_EQ(texts(*first, "caption"), (std::vector<std::string>{"first"}));
  EXPECT_EQ(texts(*second, "caption"), (std::vector<std::string>{"second"}));
  EXPECT_EQ(texts(*second, "image"), (std::vector<std::string>{numbered_png(1)}));
  EXPECT_NE(first->GetColumnByName("punsafe"), nullptr);
  EXPECT_EQ(first->GetColumnByName("similarity"), nullptr);
  EXPECT_EQ(second->GetColumnByName("punsafe"), nullptr) << "a part has the columns of its own table";
  options.caption_column = "TEXT";
  options.output = output("named");
  EXPECT_NE(failure(options).message().find("a.csv has no caption column 'TEXT'"), std::string::npos) << "a name holds for all tables";
}

TEST_F(DownloadJob, retries_what_may_pass) {
  web_.add_file("picture0.png", numbered_png(0));
  web_.add_trouble("busy", {{"trouble", "status"}, {"status", 503}, {"times", 2}});
  web_.start();
  MetricsRegistry metrics;
  DownloadOptions options = web_.options(output());
  options.metrics = &metrics;
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_out, 1);
  EXPECT_EQ(summary.retries, 2);
  EXPECT_NE(metrics.to_prometheus().find("darkroom_retries_total{reason=\"http_503\"} 2\n"), std::string::npos);
}

TEST_F(DownloadJob, keeps_failed_rows_when_asked_to) {
  add_pictures(1);
  web_.add_trouble("gone", {{"trouble", "status"}, {"status", 410}});
  web_.start();
  DownloadOptions options = web_.options(output());
  options.keep_failed = true;
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_out, 1);
  const auto table = read_table(output() + "/part-000000.parquet");
  EXPECT_EQ(texts(*table, "error"), (std::vector<std::string>{"(null)", "http_410"}));
  EXPECT_EQ(texts(*table, "image")[1], "(null)");
  EXPECT_EQ(texts(*table, "caption")[1], "trouble");
}

TEST_F(DownloadJob, full_validation_finds_damage_behind_a_good_header) {
  std::string damaged = numbered_png(3);
  for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 40; ++i) {
    damaged[i] = static_cast<char>(~damaged[i]);
  }
  web_.add_file("damaged.png", damaged);
  web_.add_trouble("damaged", {{"file", "damaged.png"}});
  web_.start();
  EXPECT_EQ(download(web_.options(output("header"))).rows_out, 1);
  DownloadOptions options = web_.options(output("full"));
  options.validation = Validation::kFull;
  EXPECT_EQ(download(options).rows_by_error, (RowsByError{{"decode_failed", 1}}));
}

TEST_F(DownloadJob, bytes_do_not_depend_on_workers_memory_or_order_of_arrival) {
  add_pictures(47);
  for (int i = 0; i < 3; ++i) {
    web_.add_trouble("slow" + std::to_string(i), {{"trouble", "status"}, {"status", 503}, {"times", 1}});
  }
  add_pictures(47);
  web_.start();
  DownloadOptions options = web_.options(output("one"));
  options.num_validators = 1;
  options.fetch.num_concurrent = 1;
  download(options);
  for (const int num_workers : {2, 4}) {
    options.output = output(std::to_string(num_workers));
    options.num_validators = num_workers;
    options.fetch.num_concurrent = 16 * num_workers;
    options.memory_bytes = 1'000'000 * num_workers;
    download(options);
    EXPECT_EQ(part_bytes(output("one")), part_bytes(options.output));
  }
}

TEST_F(DownloadJob, goes_on_after_the_parts_that_are_there_and_rebuilds_its_records) {
  add_pictures(31);
  web_.start();
  const DownloadOptions options = web_.options(output());
  download(options);
  const auto complete = part_bytes(output());
  std::filesystem::remove(output() + "/part-000001.parquet");
  std::filesystem::remove(output() + "/_job.json");
  std::filesystem::remove(output() + "/_summary.json");
  const int64_t requests_before = web_.web().num_requests();
  const StageSummary summary = download(options);
  EXPECT_EQ(web_.web().num_requests() - requests_before, 10);
  EXPECT_EQ(summary.rows_in, 31);
  EXPECT_EQ(summary.rows_this_run, 10);
  EXPECT_EQ(part_bytes(output()), complete);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_job.json"))["identity"]["verb"], "download");
  EXPECT_EQ(read_table(output() + "/_inputs.parquet")->num_rows(), 1);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_out"], 31);
}

TEST_F(DownloadJob, a_death_at_any_moment_loses_and_doubles_nothing) {
  add_pictures(11);  // Two parts.
  web_.start();
  download(web_.options(output("clean")));
  const auto clean = part_bytes(output("clean"));
  bool finished_at_once = false;
  int64_t num_deaths = 0;
  for (int64_t call = 0; !finished_at_once; call += kCaseStride) {
    const std::string folder = output(std::to_string(call));
    DownloadOptions options = web_.options(faulty(folder));
    options.metadata = {faulty(web_.table())};
    files_.fail_call(call, Fault::kDeath);
    finished_at_once = run_download(stores_, options, {}).is_ok();
    files_.heal();
    num_deaths += finished_at_once ? 0 : 1;
    const auto resumed = run_download(stores_, options, {});
    ASSERT_TRUE(resumed.is_ok()) << call << ": " << resumed.status().to_string();
    EXPECT_EQ(resumed->rows_in, 11);
    EXPECT_EQ(part_bytes(folder), clean) << "died at call " << call;
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(num_deaths, 10 / kCaseStride);
}

TEST_F(DownloadJob, a_full_disk_is_named_and_what_is_there_stays) {
  add_pictures(25);
  web_.start();
  const DownloadOptions options = web_.options(faulty(output()));
  files_.fail_call(12, Fault::kNoSpace);
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  EXPECT_NE(status.message().find("run the same command again"), std::string::npos) << status.message();
  files_.heal();
  EXPECT_EQ(download(options).rows_out, 25);
}

TEST_F(DownloadJob, a_limit_takes_the_first_rows_and_a_larger_one_goes_on) {
  add_pictures(25);
  web_.start();
  download(web_.options(output("clean")));
  DownloadOptions options = web_.options(output());
  options.selection.limit = 13;
  EXPECT_EQ(download(options).rows_in, 13);
  EXPECT_EQ(read_table(output() + "/part-000001-r00003.parquet")->num_rows(), 3);
  options.selection.limit = -1;
  EXPECT_EQ(download(options).rows_in, 25);
  EXPECT_EQ(part_bytes(output()), part_bytes(output("clean")));
  options.selection.limit = 0;
  EXPECT_EQ(download(options).rows_this_run, 0);
}

TEST_F(DownloadJob, which_rows_failed_stands_in_the_part) {
  add_pictures(11);
  web_.add_url("nonsense", "not a URL");
  add_pictures(2);
  web_.add_trouble("gone", {{"trouble", "status"}, {"status", 404}});
  web_.start();
  download(web_.options(output()));
  const auto record = read_part_record(Location{.store = &local_store(), .path = output()} / "part-000001.parquet");
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  EXPECT_EQ(record->tally.failed_rows, (std::map<std::string, std::vector<int64_t>>{{"bad_url", {1}}, {"http_404", {4}}}));
  EXPECT_EQ(record->first_row, 10);
  EXPECT_EQ(record->considered, 5);
}

TEST_F(DownloadJob, two_runs_at_once_end_with_the_same_totals_and_the_bytes_of_one) {
  add_pictures(47);
  web_.start();
  download(web_.options(output("alone")));
  const DownloadOptions options = web_.options(output());
  std::vector<StageSummary> summaries(2);
  {
    std::vector<std::jthread> runs;
    for (StageSummary& summary : summaries) {
      runs.emplace_back([&] { summary = download(options); });
    }
  }
  EXPECT_EQ(part_bytes(output()), part_bytes(output("alone")));
  for (const StageSummary& summary : summaries) {
    EXPECT_EQ(summary.rows_in, 47);
    EXPECT_EQ(summary.rows_out, 47);
    EXPECT_EQ(summary.num_parts, 5);
  }
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_out"], 47);
}

TEST_F(DownloadJob, shards_of_a_job_make_the_dataset_together) {
  add_pictures(47);
  web_.start();
  download(web_.options(output("alone")));
  DownloadOptions options = web_.options(output());
  options.selection.num_shards = 3;
  for (options.selection.shard = 0; options.selection.shard < 3; ++options.selection.shard) {
    download(options);
  }
  EXPECT_EQ(part_bytes(output()), part_bytes(output("alone")));
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_out"], 47);
}

TEST_F(DownloadJob, another_jobs_folder_is_refused_with_the_difference_named) {
  add_pictures(3);
  web_.start();
  DownloadOptions options = web_.options(output());
  download(options);
  const auto before = part_bytes(output());
  options.limits.min_size = 35;
  Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("min_size (had 32, asked for 35)"), std::string::npos) << status.message();
  std::filesystem::remove(output() + "/_job.json");
  status = failure(options);
  EXPECT_NE(status.message().find("min_size (had 32, asked for 35)"), std::string::npos) << status.message();
  EXPECT_EQ(part_bytes(output()), before);
}

TEST_F(DownloadJob, a_changed_input_is_another_job_but_a_late_file_is_left_out) {
  add_pictures(6);
  web_.start();
  std::filesystem::create_directory(folder_.path("tables"));
  web_.write_table(folder_.path("tables/a.jsonl"), 0, 3);
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("tables")};
  download(options);
  web_.write_table(folder_.path("tables/b.jsonl"), 3, 6);
  EXPECT_EQ(download(options).rows_in, 3);
  web_.write_table(folder_.path("tables/a.jsonl"), 0, 2);
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("input a.jsonl (changed)"), std::string::npos) << status.message();
}

TEST_F(DownloadJob, a_part_with_a_damaged_footer_is_named) {
  add_pictures(3);
  web_.start();
  const DownloadOptions options = web_.options(output());
  download(options);
  const std::string part = output() + "/part-000000.parquet";
  std::filesystem::resize_file(part, std::filesystem::file_size(part) / 2);
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("part-000000.parquet"), std::string::npos) << status.message();
}

TEST_F(DownloadJob, a_wrong_column_names_those_that_exist_and_writes_nothing) {
  add_pictures(1);
  web_.start();
  DownloadOptions options = web_.options(output());
  options.caption_column = "title";
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("title"), std::string::npos);
  EXPECT_NE(status.message().find("TEXT"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(output()));
}

/// A Parquet table of pictures' URLs, texts and a number, each caption once more as a category.
void write_categories(const std::string& folder, const std::vector<std::string>& urls) {
  arrow::StringBuilder url_column, captions;
  arrow::StringDictionaryBuilder categories;
  arrow::Int64Builder numbers;
  for (size_t i = 0; i < urls.size(); ++i) {
    ASSERT_TRUE((url_column.Append(urls[i]) & captions.Append("caption") & categories.Append("category " + std::to_string(i % 3)) &
                 numbers.Append(static_cast<int64_t>(i)))
                    .ok());
  }
  const arrow::ArrayVector columns = {*url_column.Finish(), *captions.Finish(), *categories.Finish(), *numbers.Finish()};
  const auto schema = arrow::schema({arrow::field("url", columns[0]->type()), arrow::field("caption", columns[1]->type()),
                                     arrow::field("category", columns[2]->type()), arrow::field("number", columns[3]->type())});
  const auto rows = arrow::RecordBatch::Make(schema, static_cast<int64_t>(urls.size()), columns);
  ASSERT_TRUE(put_shard(local_files(), folder, "urls.parquet", *rows).is_ok());
}

// The rows of one batch are written by two threads at once; a thread sanitizer says whether they share it well.
TEST_F(DownloadJob, categories_are_carried_along_by_items_that_are_written_side_by_side) {
  add_pictures(60);
  web_.start();
  std::vector<std::string> urls;
  for (int i = 0; i < 60; ++i) {
    urls.push_back(web_.web().url() + "/picture" + std::to_string(i) + ".png");
  }
  write_categories(folder_.path("tables"), urls);
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("tables")};
  options.rows_per_file = 3;
  EXPECT_EQ(download(options).rows_out, 60);
  for (int item = 0; item < 20; ++item) {
    const auto table = read_table(output() + "/" + PartName{.item = item}.text());
    EXPECT_EQ(texts(*table, "category"), (std::vector<std::string>{"category 0", "category 1", "category 2"})) << item;
  }
}

TEST_F(DownloadJob, views_of_text_are_text) {
  add_pictures(1);
  web_.start();
  arrow::StringViewBuilder urls, captions, notes;
  const std::string url = web_.web().url() + "/picture0.png";
  ASSERT_TRUE((urls.Append(url) & captions.Append("a caption that is longer than a view") & notes.Append("caf\xE9")).ok());
  ASSERT_TRUE((urls.Append(url) & captions.Append("short") & notes.AppendNull()).ok());
  const arrow::ArrayVector columns = {*urls.Finish(), *captions.Finish(), *notes.Finish()};
  const auto schema = arrow::schema(
      {arrow::field("url", arrow::utf8_view()), arrow::field("caption", arrow::utf8_view()), arrow::field("note", arrow::utf8_view())});
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ASSERT_TRUE(parquet::arrow::WriteTable(*arrow::Table::Make(schema, columns), arrow::default_memory_pool(), sink, 100,
                                         parquet::default_writer_properties(), properties)
                  .ok());
  write_bytes(folder_.path("urls.parquet"), sink->Finish().ValueOrDie()->ToString());
  for (const ImagesDialect dialect : {ImagesDialect::kDarkroom, ImagesDialect::kImg2dataset}) {
    DownloadOptions options = web_.options(output(dialect == ImagesDialect::kDarkroom ? "ours" : "theirs"));
    options.metadata = {folder_.path("urls.parquet")};
    options.dialect = dialect;
    EXPECT_EQ(download(options).rows_out, 2);
  }
  const auto part = read_table(output("ours") + "/part-000000.parquet");
  EXPECT_EQ(texts(*part, "caption"), (std::vector<std::string>{"a caption that is longer than a view", "short"}));
  const auto note = part->GetColumnByName("note")->chunk(0);
  ASSERT_EQ(note->type_id(), arrow::Type::STRING_VIEW);
  EXPECT_EQ(static_cast<const arrow::StringViewArray&>(*note).GetView(0), "caf\xEF\xBF\xBD");
  EXPECT_TRUE(note->IsNull(1));
}

TEST_F(DownloadJob, a_column_that_holds_no_text_is_refused_before_anything_is_written) {
  web_.start();
  write_categories(folder_.path("tables"), {"http://nobody.test/"});
  for (const bool is_url : {true, false}) {
    DownloadOptions options = web_.options(output());
    options.metadata = {folder_.path("tables")};
    (is_url ? options.url_column : options.caption_column) = "number";
    const Status status = failure(options);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_NE(status.message().find("number int64"), std::string::npos) << status.message();
    EXPECT_FALSE(std::filesystem::exists(output()));
  }
}

TEST_F(DownloadJob, two_columns_of_one_name_are_refused_before_anything_is_written) {
  web_.start();
  write_bytes(folder_.path("urls.csv"), "url,caption,size,size\nhttp://nobody.test/,text,1,2\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("urls.csv")};
  const Status status = failure(options);
  EXPECT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("size"), std::string::npos) << status.message();
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(DownloadJob, a_table_that_is_named_twice_counts_once_whatever_lies_between) {
  web_.start();
  const auto inputs = list_job_inputs(stores_, {web_.table(), faulty(web_.table()), web_.table()});
  ASSERT_TRUE(inputs.is_ok()) << inputs.status().to_string();
  EXPECT_EQ(inputs->size(), 2u);
}

TEST_F(DownloadJob, a_dry_run_writes_and_fetches_nothing) {
  add_pictures(1);
  web_.start();
  DownloadOptions options = web_.options(output());
  options.dry_run = true;
  download(options);
  EXPECT_FALSE(std::filesystem::exists(output()));
  EXPECT_EQ(web_.web().num_requests(), 0);
}

TEST_F(DownloadJob, a_dry_run_knows_how_fast_the_last_run_was) {
  add_pictures(120);
  web_.start();
  DownloadOptions options = web_.options(output());
  options.selection.limit = 99;
  download(options);
  EXPECT_FALSE(std::filesystem::exists(output() + "/_speed.json")) << "so few rows say little";
  std::filesystem::remove_all(output());
  options.selection.limit = 110;
  const StageSummary done = download(options);
  options.selection.limit = -1;
  options.dry_run = true;
  const PendingWork work = download(options).pending_work;
  EXPECT_EQ(work.run_rows, 110);
  EXPECT_EQ(work.run_seconds, done.seconds);
  ASSERT_TRUE(write_file_atomic(local_files(), output() + "/_speed.json", R"({"version": 1, "rows": "many", "seconds": 0})").is_ok());
  EXPECT_EQ(download(options).pending_work.run_rows, 0);
}

TEST_F(DownloadJob, a_stop_keeps_what_was_complete) {
  add_pictures(25);
  web_.add_trouble("hang", {{"trouble", "hang"}});
  web_.start();
  DownloadOptions options = web_.options(output());
  options.fetch.timeout = std::chrono::hours(1);
  std::stop_source stop;
  std::jthread watcher([&](const std::stop_token& gives_up) {
    while (!gives_up.stop_requested() && !std::filesystem::exists(output() + "/part-000001.parquet")) {
      std::this_thread::yield();
    }
    stop.request_stop();
  });
  const Status status = run_download(stores_, options, stop.get_token()).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  EXPECT_TRUE(verify_shard(local_files(), output() + "/part-000001.parquet").is_ok());
}

TEST_F(DownloadJob, an_empty_table_makes_an_empty_dataset) {
  web_.start();
  write_bytes(folder_.path("empty.csv"), "url,caption\n");
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("empty.csv")};
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_in, 0);
  EXPECT_EQ(summary.failed_percent(), 0.0);
}

TEST_F(DownloadJob, bad_options_are_refused_before_anything_happens) {
  web_.start();
  for (const auto& spoil : std::vector<std::function<void(DownloadOptions&)>>{
           [](auto& o) { o.rows_per_file = 0; }, [](auto& o) { o.metadata.clear(); }, [](auto& o) { o.output.clear(); },
           [](auto& o) { o.limits.min_size = 0; }, [](auto& o) { o.memory_bytes = -1; }, [](auto& o) { o.fetch.num_concurrent = 0; },
           [](auto& o) { o.fetch.max_body_bytes = 2'000'000'001; }}) {
    DownloadOptions options = web_.options(output());
    spoil(options);
    EXPECT_EQ(failure(options).code(), StatusCode::kInvalidArgument);
  }
  DownloadOptions options = web_.options(output());
  options.metadata = {folder_.path("nowhere")};
  EXPECT_EQ(failure(options).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
