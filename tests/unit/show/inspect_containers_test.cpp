// Image datasets in containers of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/image/png.h"
#include "darkroom/show/inspect.h"
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

  TemporaryFolder folder_;
};

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
