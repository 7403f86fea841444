// Downloads that write webdataset tars.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "darkroom/core/sha256.h"
#include "darkroom/tables/tar_samples.h"
#include "darkroom/tables/verify_shard.h"
#include "support/download_web.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct TarRow {
  std::string key;
  std::map<std::string, std::string> parts;  // By extension.
};

std::vector<TarRow> rows_of_tar(const std::string& path) {
  const std::shared_ptr<const InputFile> file = *local_files().open_input(path);
  TarReader tar(*file);
  TarSampleReader samples(tar);
  std::vector<TarRow> rows;
  while (true) {
    const auto sample = samples.next();
    EXPECT_TRUE(sample.is_ok()) << sample.status().to_string();
    if (!sample.is_ok() || !*sample) {
      return rows;
    }
    TarRow& row = rows.emplace_back(TarRow{.key = (*sample)->key, .parts = {}});
    for (const TarPart& part : (*sample)->parts) {
      std::string& data = row.parts[part.extension];
      data.resize(static_cast<size_t>(part.member.size_bytes));
      EXPECT_TRUE(file->read_at(part.member.data_offset, std::as_writable_bytes(std::span(data))).is_ok());
    }
  }
}

class DownloadDialect : public ::testing::Test {
 protected:
  DownloadOptions options(const std::string& output = "tars") const {
    DownloadOptions options = web_.options(folder_.path(output));
    options.dialect = ImagesDialect::kImg2dataset;
    return options;
  }
  StageSummary download(const DownloadOptions& options) {
    auto summary = run_download(stores_, options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  Status failure(const DownloadOptions& options) { return run_download(stores_, options, {}).status(); }

  TemporaryFolder folder_;
  DownloadWeb web_;
  MetricsRegistry metrics_;
  StoreSet stores_{{}, system_clock(), metrics_};
};

TEST_F(DownloadDialect, tars_hold_picture_caption_and_fields_of_every_good_row) {
  for (int i = 0; i < 12; ++i) {
    web_.add_picture(i);
  }
  web_.add_trouble("gone", {{"trouble", "status"}, {"status", 404}});
  web_.add_trouble("hostile", {{"file", "picture0.png"}}, "../\"\n\xE2\x82\xAC {} \x01");
  web_.start();
  const StageSummary summary = download(options());
  EXPECT_EQ(summary.rows_out, 13);
  EXPECT_EQ(summary.num_parts, 2);
  const auto rows = rows_of_tar(folder_.path("tars/part-000001.tar"));
  ASSERT_EQ(rows.size(), 3u);  // Of rows 10, 11, 12 (gone) and 13.
  EXPECT_EQ(rows[2].key, "000000000013");
  EXPECT_EQ(rows[1].parts.at("png"), numbered_png(11));
  EXPECT_EQ(rows[1].parts.at("txt"), "picture number 11");
  EXPECT_EQ(rows[2].parts.at("txt"), "../\"\n\xE2\x82\xAC {} \x01");
  const auto json = nlohmann::ordered_json::parse(rows[1].parts.at("json"));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("input_WIDTH", "punsafe", "caption", "url", "key", "status", "error_message", "width", "height",
                                 "original_width", "original_height", "sha256"));
  EXPECT_EQ(json["url"], web_.web().url() + "/picture11.png");
  EXPECT_EQ(json["key"], "000000000011");
  EXPECT_EQ(json["width"], 40);
  EXPECT_EQ(json["original_height"], 36);
  EXPECT_EQ(json["error_message"], nullptr);
  EXPECT_EQ(json["sha256"], sha256_hex(numbered_png(11)));
  EXPECT_EQ(nlohmann::json::parse(rows[2].parts.at("json"))["caption"], rows[2].parts.at("txt"));
  EXPECT_THAT(rows[1].parts.at("json"), HasSubstr("{\n    \"input_WIDTH\": "));
}

TEST_F(DownloadDialect, a_job_goes_on_after_its_tars) {
  for (int i = 0; i < 25; ++i) {
    web_.add_picture(i);
  }
  web_.start();
  download(options("whole"));
  DownloadOptions job = options();
  job.selection.limit = 14;
  EXPECT_EQ(download(job).num_parts, 2);
  EXPECT_TRUE(std::filesystem::exists(folder_.path("tars/part-000001-r00004.tar")));
  job.selection.limit = -1;
  EXPECT_EQ(download(job).rows_this_run, 15);
  EXPECT_EQ(part_bytes(folder_.path("tars")), part_bytes(folder_.path("whole")));
  for (const char* name : {"_job.json", "_inputs.parquet", "_summary.json"}) {
    ASSERT_TRUE(std::filesystem::remove(folder_.path("tars/") + name));
  }
  EXPECT_EQ(download(job).rows_this_run, 0);
  for (int item = 0; item < 3; ++item) {
    const std::string part = PartName{.item = item, .container = PartContainer::kTar}.text();
    EXPECT_TRUE(verify_shard(local_files(), folder_.path("tars/" + part)).is_ok());
  }
}

TEST_F(DownloadDialect, an_item_without_a_good_row_is_an_empty_tar) {
  web_.add_file("picture0.png", numbered_png(0));
  web_.add_trouble("gone", {{"trouble", "status"}, {"status", 404}});
  web_.start();
  EXPECT_EQ(download(options()).rows_out, 0);
  EXPECT_TRUE(rows_of_tar(folder_.path("tars/part-000000.tar")).empty());
  EXPECT_EQ(download(options()).rows_this_run, 0);
}

TEST_F(DownloadDialect, is_part_of_the_job_and_leaves_no_failed_rows) {
  web_.add_picture(0);
  web_.start();
  download(options());
  DownloadOptions job = options();
  job.dialect = ImagesDialect::kDarkroom;
  EXPECT_THAT(failure(job).message(), HasSubstr("output_dialect (had \"img2dataset\", asked for null)"));
  job = options();
  job.keep_failed = true;
  EXPECT_EQ(job.validate().code(), StatusCode::kInvalidArgument);
}

TEST_F(DownloadDialect, metadata_keeps_its_types_and_stands_apart_from_the_fields_of_img2dataset) {
  web_.add_picture(0);
  web_.start();
  const auto schema =
      arrow::schema({arrow::field("url", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("Status", arrow::utf8()),
                     arrow::field("score", arrow::float64()), arrow::field("nan", arrow::float32()), arrow::field("n", arrow::uint64()),
                     arrow::field("flag", arrow::boolean()), arrow::field("none", arrow::int16()), arrow::field("hash", arrow::binary()),
                     arrow::field("hash_hex", arrow::utf8()), arrow::field("a", arrow::binary()), arrow::field("a_hex", arrow::binary())});
  arrow::StringBuilder urls, captions, states;
  arrow::DoubleBuilder scores;
  arrow::FloatBuilder nans;
  arrow::UInt64Builder numbers;
  arrow::BooleanBuilder flags;
  arrow::Int16Builder nones;
  arrow::BinaryBuilder hashes, ones, others;
  arrow::StringBuilder texts;
  ASSERT_TRUE((urls.Append(web_.web().url() + "/picture0.png") & captions.Append("c") & states.Append("x") & scores.Append(0.125) &
               nans.Append(NAN) & numbers.Append(UINT64_MAX) & flags.Append(true) & nones.AppendNull() & hashes.Append("\xff\x01z") &
               texts.Append("plain") & ones.Append("\xfe") & others.Append("\xfd"))
                  .ok());
  const auto row =
      arrow::RecordBatch::Make(schema, 1,
                               {*urls.Finish(), *captions.Finish(), *states.Finish(), *scores.Finish(), *nans.Finish(), *numbers.Finish(),
                                *flags.Finish(), *nones.Finish(), *hashes.Finish(), *texts.Finish(), *ones.Finish(), *others.Finish()});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("tables"), "urls.parquet", *row).is_ok());
  DownloadOptions job = options();
  job.metadata = {folder_.path("tables/urls.parquet")};
  EXPECT_EQ(download(job).rows_out, 1);
  const auto json = nlohmann::json::parse(rows_of_tar(folder_.path("tars/part-000000.tar"))[0].parts.at("json"));
  EXPECT_EQ(json["input_Status"], "x");
  EXPECT_EQ(json["status"], "success");
  EXPECT_EQ(json["score"], 0.125);
  EXPECT_EQ(json["nan"], nullptr);
  EXPECT_EQ(json["n"], UINT64_MAX);
  EXPECT_EQ(json["flag"], true);
  EXPECT_EQ(json["none"], nullptr);
  // What is no UTF-8 is shown and kept.
  EXPECT_EQ(json["hash"], "\xEF\xBF\xBD\x01z");
  EXPECT_EQ(json["hash_hex_hex"], "ff017a");
  EXPECT_EQ(json["hash_hex"], "plain");
  EXPECT_EQ(json["a_hex_hex"], "fe") << "another column has the name before";
  EXPECT_EQ(json["a_hex_hex_hex"], "fd") << "of the other column";
  EXPECT_FALSE(json.contains("input_Status_hex"));
}

}  // namespace
}  // namespace darkroom
