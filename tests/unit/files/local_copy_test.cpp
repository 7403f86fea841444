#include "darkroom/files/local_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A store that is not this machine's, and a folder that is.
class LocalCopyTest : public testing::Test {
 protected:
  Location place(const std::string& path) { return {.store = store_.get(), .path = path}; }
  void put(const std::string& path, const std::string& bytes) { ASSERT_TRUE(store_->replace_small(path, bytes).is_ok()); }
  static std::string read(const std::string& path) {
    const auto text = read_file(local_files(), path);
    return text.is_ok() ? *text : text.status().to_string();
  }
  static std::vector<std::string> names_below(const std::string& folder) {
    std::vector<std::string> names;
    const auto listed = local_files().list_tree(folder);
    for (const FileInfo& file : listed.is_ok() ? *listed : std::vector<FileInfo>()) {
      names.push_back(file.path.substr(folder.size() + 1));
    }
    return names;
  }

  MemoryFileSystem memory_;
  std::unique_ptr<Store> store_ = make_posix_store(memory_, "memory");
  TemporaryFolder folder_;
};

TEST_F(LocalCopyTest, a_scratch_folder_goes_with_its_owner) {
  std::string path;
  {
    const auto scratch = ScratchFolder::make(folder_.path("scratch"));
    ASSERT_TRUE(scratch.is_ok()) << scratch.status().to_string();
    path = scratch->path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all) << "nobody else's";
    ASSERT_TRUE(write_file_atomic(local_files(), path + "/a/b", "x").is_ok());
    const auto other = ScratchFolder::make(folder_.path("scratch"));
    EXPECT_TRUE(std::filesystem::exists(path + "/a/b")) << "a living owner's stays";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(LocalCopyTest, what_a_dead_owner_left_goes_with_the_next_one) {
  const std::string left = folder_.path("scratch/_tmp.darkroom-scratch.1-2-3");
  ASSERT_TRUE(write_file_atomic(local_files(), left + "/file", "x").is_ok());
  ASSERT_TRUE(ScratchFolder::make(folder_.path("scratch")).is_ok());
  EXPECT_FALSE(std::filesystem::exists(left));
}

// Anybody may leave one in /tmp. Root may write to it all the same, so it is somebody else who comes here.
TEST_F(LocalCopyTest, a_pipe_among_what_others_left_keeps_nobody_waiting) {
  ASSERT_EQ(mkfifo(folder_.path("_tmp.darkroom-scratch.1-2-3").c_str(), 0444), 0);
  const auto make_one = [&] {
    alarm(60);
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
    const bool is_other = geteuid() != 0 || seteuid(65534) == 0;
    _exit(is_other && ScratchFolder::make(folder_.path()).is_ok() ? 0 : 1);
  };
  EXPECT_EXIT(make_one(), testing::ExitedWithCode(0), "");
}

TEST_F(LocalCopyTest, copies_a_tree_and_back) {
  put("run/a.txt", "first");
  put("run/deep/b.bin", std::string(100'000, 'b'));
  put("run/deep/empty", "");
  ASSERT_TRUE(copy_tree_here(place("run"), folder_.path("copy")).is_ok());
  EXPECT_THAT(names_below(folder_.path("copy")), ElementsAre("a.txt", "deep/b.bin", "deep/empty"));
  EXPECT_EQ(read(folder_.path("copy/deep/b.bin")), std::string(100'000, 'b'));
  ASSERT_TRUE(copy_tree_there(folder_.path("copy"), place("other")).is_ok());
  EXPECT_EQ(*store_->read_small("other/deep/b.bin"), std::string(100'000, 'b'));
  EXPECT_EQ(*store_->read_small("other/deep/empty"), "");
  EXPECT_EQ(copy_tree_there(folder_.path("copy"), place("other")).code(), StatusCode::kAlreadyExists);
}

TEST_F(LocalCopyTest, large_files_come_in_pieces) {
  std::string bytes((int64_t{70} << 20) + 3, '\0');
  for (size_t i = 0; i < bytes.size(); i += 4099) {
    bytes[i] = static_cast<char>(i >> 12);
  }
  put("large", bytes);
  ASSERT_TRUE(copy_file_here(place("large"), folder_.path("large")).is_ok());
  EXPECT_TRUE(read(folder_.path("large")) == bytes);
}

TEST_F(LocalCopyTest, takes_what_is_wanted_and_leaves_holes) {
  put("m/x.safetensors", "header and data");
  put("m/x.txt", "text");
  put("m/other", "no");
  const CopyOptions options{.takes = [](const std::string& name) { return name != "other"; },
                            .wanted_bytes = [](const std::string& name, const InputFile& file) -> Result<int64_t> {
                              return name.ends_with(".safetensors") ? 6 : file.size_bytes();
                            }};
  ASSERT_TRUE(copy_tree_here(place("m"), folder_.path("m"), options).is_ok());
  EXPECT_THAT(names_below(folder_.path("m")), ElementsAre("x.safetensors", "x.txt"));
  EXPECT_EQ(read(folder_.path("m/x.safetensors")), "header" + std::string(9, '\0'));
  EXPECT_EQ(read(folder_.path("m/x.txt")), "text");
}

TEST_F(LocalCopyTest, names_of_a_store_that_lead_out_of_a_folder_are_refused) {
  for (const std::string name : {"", ".", "..", "../x", "a/../x", "/x", "a//b", "./a"}) {
    const Status refused = check_name_within(name, place("run/object"));
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(refused.message(), HasSubstr("run/object"));
  }
  EXPECT_TRUE(check_name_within("a/b.c", place("run")).is_ok());
}

TEST_F(LocalCopyTest, a_tree_is_published_with_its_record_last) {
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("c/unet/weights"), "w").is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("c/state.json"), "{}").is_ok());
  const auto published = publish_tree_there(folder_.path("c"), "state.json", place("checkpoints/step-1"));
  ASSERT_TRUE(published.is_ok()) << published.status().to_string();
  EXPECT_EQ(*published, PublishOutcome::kPublished);
  EXPECT_EQ(*store_->read_small("checkpoints/step-1/unet/weights"), "w");
  EXPECT_EQ(*store_->read_small("checkpoints/step-1/state.json"), "{}");
  EXPECT_EQ(*publish_tree_there(folder_.path("c"), "state.json", place("checkpoints/step-1")), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(publish_tree_there(folder_.path("c"), "none.json", place("checkpoints/step-2")).status().code(), StatusCode::kNotFound);
}

TEST_F(LocalCopyTest, a_local_place_is_its_own_copy) {
  const std::string path = folder_.path("here");
  const auto copy = LocalCopy::fetch({.store = &local_store(), .path = path});
  ASSERT_TRUE(copy.is_ok());
  EXPECT_EQ(copy->path(), path);
  EXPECT_FALSE(copy->is_copy());
}

TEST_F(LocalCopyTest, a_remote_place_is_copied_and_the_copy_goes) {
  put("model/unet/config.json", "{}");
  std::string path;
  {
    const auto copy = LocalCopy::fetch(place("model"));
    ASSERT_TRUE(copy.is_ok()) << copy.status().to_string();
    path = copy->path();
    EXPECT_EQ(read(path + "/unet/config.json"), "{}");
    const auto file = LocalCopy::fetch(place("model/unet/config.json"));
    EXPECT_EQ(read(file->path()), "{}");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(LocalCopy::fetch(place("nowhere")).status().code(), StatusCode::kNotFound);
}

TEST_F(LocalCopyTest, a_stop_ends_a_copy) {
  put("m/a", "a");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(copy_tree_here(place("m"), folder_.path("m"), {.takes = {}, .wanted_bytes = {}, .stop = stop.get_token()}).code(),
            StatusCode::kCancelled);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("f"), "f").is_ok());
  EXPECT_EQ(copy_file_there(folder_.path("f"), place("f"), stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(*place("f").exists());
}

}  // namespace
}  // namespace darkroom
