// Image datasets in containers of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "darkroom/files/posix_store.h"
#include "darkroom/image/png.h"
#include "darkroom/show/inspect.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/tar_shard_writer.h"
#include "support/fake_s3_stores.h"
#include "support/image_containers.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class InspectContainers : public testing::Test {
 protected:
  InspectContainers() {
    std::vector<ContainedRow> rows;
    for (int i = 0; i < 5; ++i) {
      rows.push_back(
          {fmt::format("{:012}", i), fmt::format("caption {}", i), encode_png(Image::filled(40, 33, 3, static_cast<uint8_t>(i)))});
    }
    write_tars(local_files(), folder_.path("tar"), rows, 3);
    write_image_folder(local_files(), folder_.path("imagefolder"), rows);
    write_plain_folder(local_files(), folder_.path("plain"), rows);
    write_mds(local_files(), folder_.path("mds"), rows);
  }
  Result<InspectReport> look(const std::string& name, bool verify = true) {
    return inspect(
        local_files(),
        {.uri = folder_.path(name), .sheet_path = folder_.path("sheet.png"), .html_path = folder_.path("page.html"), .verify = verify}, {});
  }

  /// Tars as `download --output-dialect img2dataset` writes them: of three items, the first one's rows failed.
  std::string write_job_of_tars() {
    const std::string output = folder_.path("job");
    nlohmann::json listed = nlohmann::json::array();
    for (int64_t item = 0; item < 3; ++item) {
      const std::string name = PartName{.item = item, .container = PartContainer::kTar}.text();
      TarShardWriter writer(*local_store().begin_object(output, name));
      const int64_t rows_out = 2 * std::min<int64_t>(item, 1);
      for (int64_t row = 0; row < rows_out; ++row) {
        const std::string key = fmt::format("{:012}", item * 2 + row);
        EXPECT_TRUE(writer.add(key + ".json", R"({"caption": "a house", "error": null})").is_ok());
        EXPECT_TRUE(writer.add(key + ".png", encode_png(Image::filled(40, 33, 3, static_cast<uint8_t>(row)))).is_ok());
      }
      const nlohmann::json record = {{"item", item},         {"job", "fingerprint"},
                                     {"rows_in", 2},         {"rows_by_error", {{"http_status", 2 - rows_out}}},
                                     {"rows_out", rows_out}, {"identity", nlohmann::json::object()}};
      auto shard = *writer.finish({{kShardKey, record.dump()}}, rows_out);
      EXPECT_TRUE(shard.object->publish().is_ok());
      listed.push_back({{"name", name}, {"size_bytes", shard.num_bytes}, {"content_hash", shard.content_hash}});
    }
    put_container_file(local_files(), output, "_summary.json", nlohmann::json{{"parts", listed}}.dump());
    return output;
  }
  /// The damage found with one byte of a file changed. The file is as it was afterwards.
  int64_t damage_of_flip(const std::string& folder, const std::string& name, int64_t offset) {
    const std::string path = join_path(folder, name);
    const std::string honest = *read_file(local_files(), path);
    std::string changed = honest;
    changed[offset < 0 ? changed.size() - static_cast<size_t>(-offset) : static_cast<size_t>(offset)] ^= 1;
    EXPECT_TRUE(std::filesystem::remove(path));
    put_container_file(local_files(), folder, name, changed);
    const auto report = inspect(local_files(), {.uri = folder, .verify = true}, {});
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_TRUE(std::filesystem::remove(path));
    put_container_file(local_files(), folder, name, honest);
    return report.is_ok() ? report->num_damages : -1;
  }

  TemporaryFolder folder_;
};

TEST_F(InspectContainers, tars_of_a_job_are_verified_as_its_other_parts) {
  const std::string job = write_job_of_tars();
  const auto report = look("job");
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_damages, 0) << (report->damage.empty() ? "" : report->damage.front());
  EXPECT_EQ(report->kind, "image dataset");
  EXPECT_EQ(report->summary["rows"], 4);
  EXPECT_EQ(report->summary["rows_in"], 6);
  EXPECT_EQ(report->summary["fingerprint"], "fingerprint");
  EXPECT_THAT(report->to_text(), testing::Not(HasSubstr("other columns")));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(join_path(job, "part-000001.tar")));
  const int64_t in_picture = 1600;  // Behind the json's blocks and the picture's header.
  for (const int64_t offset : {in_picture, size / 2, int64_t{-1}, int64_t{-1030}, int64_t{-1200}}) {
    EXPECT_GE(damage_of_flip(job, "part-000001.tar", offset), 1) << offset;
    std::filesystem::rename(join_path(job, "_summary.json"), join_path(job, "_kept.json"));
    EXPECT_GE(damage_of_flip(job, "part-000001.tar", offset), 1) << "without the summary: " << offset;
    std::filesystem::rename(join_path(job, "_kept.json"), join_path(job, "_summary.json"));
  }
  std::filesystem::remove(join_path(job, "_summary.json"));
  std::filesystem::remove(join_path(job, "part-000001.tar"));
  const auto gap = look("job");
  ASSERT_TRUE(gap.is_ok()) << gap.status().to_string();
  EXPECT_EQ(gap->num_damages, 1);
  EXPECT_THAT(gap->damage.front(), HasSubstr("parts are missing"));
}

TEST_F(InspectContainers, a_tar_of_another_program_may_be_named_as_a_part_of_ours) {
  std::filesystem::rename(folder_.path("tar/00000.tar"), folder_.path("tar/part-000004.tar"));
  const auto report = look("tar");
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_damages, 0);
  EXPECT_THAT(report->to_text(), HasSubstr("another program"));
}

TEST_F(InspectContainers, every_container_is_an_image_dataset_with_its_sheet) {
  for (const auto& [name, format] : {std::pair("tar", "webdataset tar"),
                                     {"imagefolder", "folder of pictures"},
                                     {"plain", "folder of pictures"},
                                     {"mds", "MDS shard"},
                                     {"mds/shard.00000.mds", "MDS shard"},
                                     {"tar/*.tar", "webdataset tar"}}) {
    const auto report = look(name);
    ASSERT_TRUE(report.is_ok()) << name << report.status().to_string();
    EXPECT_EQ(report->kind, "image dataset") << name;
    EXPECT_EQ(report->summary["format"], format) << name;
    EXPECT_EQ(report->summary["rows"], 5) << name;
    EXPECT_EQ(report->num_damages, 0) << name;
    EXPECT_GT(report->sheet.width, 0) << name;
    EXPECT_THAT(report->to_text(), HasSubstr("caption 3")) << name;
    EXPECT_TRUE(std::filesystem::exists(folder_.path("page.html")));
  }
}

TEST_F(InspectContainers, a_dataset_on_a_store_looks_the_same) {
  FakeS3Stores s3;
  for (const char* name : {"tar", "imagefolder", "plain", "mds"}) {
    ASSERT_TRUE(s3.upload(folder_.path(name), name).is_ok());
    InspectOptions options{.uri = FakeS3Stores::uri(name), .verify = true};
    const auto remote = inspect(s3.set, options, {});
    ASSERT_TRUE(remote.is_ok()) << name << remote.status().to_string();
    const auto local = look(name);
    ASSERT_TRUE(local.is_ok()) << name << local.status().to_string();
    for (const char* fact : {"format", "parts", "rows", "bytes", "schema", "statistics"}) {
      EXPECT_EQ(remote->summary[fact], local->summary[fact]) << name << " " << fact;
    }
  }
}

TEST_F(InspectContainers, verify_finds_an_archive_that_was_cut) {
  const std::string tar = folder_.path("tar/00001.tar");
  std::filesystem::resize_file(tar, std::filesystem::file_size(tar) - 1500);
  const auto report = look("tar");
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_GE(report->num_damages, 1);
  EXPECT_THAT(report->damage.front(), HasSubstr("00001.tar"));
}

TEST_F(InspectContainers, tables_are_shown_where_pictures_lie_beside_them) {
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("plain/urls.csv"), "url,caption\nhttp://x,y\n").is_ok());
  const auto report = inspect(local_files(), {.uri = folder_.path("plain")}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->kind, "URL table");
}

}  // namespace
}  // namespace darkroom
