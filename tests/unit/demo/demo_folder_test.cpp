#include "demo/demo_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

void put(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file_atomic(local_files(), path, text).is_ok()); }

bool exists(const std::string& path) { return *local_files().exists(path); }

TEST(DemoFolder, makes_a_new_folder) {
  const TemporaryFolder folder;
  const auto demo = prepare_demo_folder(local_files(), folder.path("a/b"));
  ASSERT_TRUE(demo.is_ok()) << demo.status().to_string();
  EXPECT_EQ(demo->sheet(), folder.path("a/b/sheet.png"));
  EXPECT_TRUE(exists(folder.path("a/b")));
}

TEST(DemoFolder, takes_an_empty_folder) {
  const TemporaryFolder folder;
  EXPECT_TRUE(prepare_demo_folder(local_files(), folder.path()).is_ok());
}

TEST(DemoFolder, removes_what_an_older_demo_wrote_and_nothing_else) {
  const TemporaryFolder folder;
  for (const char* name :
       {".darkroom-demo", "corpus/web.json", "images/part-000000.parquet", "run/metrics.jsonl", "sheet.png", "notes.txt"}) {
    put(folder.path(name), "x");
  }
  ASSERT_TRUE(prepare_demo_folder(local_files(), folder.path()).is_ok());
  EXPECT_FALSE(exists(folder.path("corpus")));
  EXPECT_FALSE(exists(folder.path("images")));
  EXPECT_FALSE(exists(folder.path("run")));
  EXPECT_FALSE(exists(folder.path("sheet.png")));
  EXPECT_TRUE(exists(folder.path("notes.txt")));
}

TEST(DemoFolder, takes_again_what_it_prepared_itself) {
  const TemporaryFolder folder;
  ASSERT_TRUE(local_files().create_folders(folder.path("empty")).is_ok());
  for (const char* name : {"new", "empty"}) {
    const std::string path = folder.path(name);
    ASSERT_TRUE(prepare_demo_folder(local_files(), path).is_ok());
    put(path + "/images/part-000000.parquet", "x");
    const auto again = prepare_demo_folder(local_files(), path);
    EXPECT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_FALSE(exists(path + "/images"));
  }
}

TEST(DemoFolder, leaves_another_folder_alone) {
  const std::vector<std::string> ours = {"corpus/mine.parquet", "images/holiday.jpg", "run/metrics.jsonl", "summary.json"};
  const TemporaryFolder folder;
  for (const std::string& name : ours) {
    put(folder.path(name), "x");
  }
  const auto demo = prepare_demo_folder(local_files(), folder.path());
  EXPECT_EQ(demo.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(demo.status().message(), HasSubstr(folder.path(".darkroom-demo") + " corpus"));
  for (const std::string& name : ours) {
    EXPECT_TRUE(exists(folder.path(name))) << name;
  }
}

TEST(DemoFolder, refuses_a_file) {
  const TemporaryFolder folder;
  put(folder.path("file"), "x");
  EXPECT_EQ(prepare_demo_folder(local_files(), folder.path("file")).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace darkroom
