#include "darkroom/files/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Both implementations keep the same contract.
class AnyFileSystem : public testing::TestWithParam<bool> {
 protected:
  FileSystem& files() { return GetParam() ? static_cast<FileSystem&>(memory_) : local_files(); }
  std::string at(const std::string& name) { return join_path(root_, name); }
  void put(const std::string& name, std::string_view text) {
    auto file = files().create(at(name));
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    ASSERT_TRUE((*file)->write_text(text).is_ok());
    ASSERT_TRUE((*file)->close().is_ok());
  }
  std::vector<std::string> names(const Result<std::vector<FileInfo>>& infos) {
    std::vector<std::string> found;
    for (const FileInfo& info : infos.value()) {
      const std::string name = info.path.substr(root_.size() + 1);
      found.push_back(info.is_folder ? fmt::format("{}/", name) : fmt::format("{}:{}", name, info.size_bytes));
    }
    return found;
  }

  void SetUp() override {
    if (GetParam()) {
      ASSERT_TRUE(memory_.create_folders(root_).is_ok());
    }
  }

  TemporaryFolder folder_;
  MemoryFileSystem memory_;
  std::string root_ = folder_.path();
};

INSTANTIATE_TEST_SUITE_P(Files, AnyFileSystem, testing::Bool(), [](const auto& info) { return info.param ? "memory" : "local"; });

TEST_P(AnyFileSystem, reads_back_what_was_written_at_any_offset) {
  put("a", "hello world");
  auto file = files().open_input(at("a"));
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ((*file)->size_bytes(), 11);
  std::string out(5, '?');
  EXPECT_EQ((*file)->read_at(6, std::as_writable_bytes(std::span(out))).value(), 5u);
  EXPECT_EQ(out, "world");
  EXPECT_EQ((*file)->read_at(9, std::as_writable_bytes(std::span(out))).value(), 2u);
  EXPECT_EQ((*file)->read_at(11, std::as_writable_bytes(std::span(out))).value(), 0u);
  EXPECT_EQ((*file)->read_at(99, std::as_writable_bytes(std::span(out))).value(), 0u);
}

TEST_P(AnyFileSystem, reads_whole_files_of_hostile_sizes) {
  for (const size_t size : {0u, 1u, 65535u, 65536u, 65537u, 200003u}) {
    const std::string name = "size-" + std::to_string(size);
    put(name, std::string(size, 'x'));
    EXPECT_EQ(read_file(files(), at(name)).value(), std::string(size, 'x'));
  }
}

TEST_P(AnyFileSystem, create_never_takes_a_name_that_is_taken) {
  put("a", "first");
  EXPECT_EQ(files().create(at("a")).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_file(files(), at("a")).value(), "first");
}

TEST_P(AnyFileSystem, append_goes_on_after_the_last_byte) {
  for (const char* text : {"one ", "two"}) {
    auto file = files().open_append(at("log"));
    ASSERT_TRUE(file.is_ok());
    ASSERT_TRUE((*file)->write_text(text).is_ok());
    ASSERT_TRUE((*file)->close().is_ok());
    ASSERT_TRUE((*file)->close().is_ok());
  }
  EXPECT_EQ(read_file(files(), at("log")).value(), "one two");
}

TEST_P(AnyFileSystem, names_what_is_missing) {
  for (const Status& status :
       {files().open_input(at("none")).status(), files().stat(at("none")).status(), files().list(at("none")).status(),
        files().create(at("none/a")).status(), files().remove_file(at("none")), files().rename_no_replace(at("none"), at("b")),
        files().rename_replace(at("none"), at("b")), files().try_lock(at("none")).status(), files().sync_folder(at("none"))}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(root_));
  }
  EXPECT_FALSE(files().exists(at("none")).value());
  EXPECT_TRUE(files().exists(root_).value());
  EXPECT_TRUE(files().remove_tree(at("none")).is_ok());
}

TEST_P(AnyFileSystem, refuses_a_file_where_a_folder_is_needed_and_the_reverse) {
  put("a", "");
  ASSERT_TRUE(files().create_folders(at("d")).is_ok());
  EXPECT_EQ(files().create_folders(at("a")).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files().create_folders(at("a/b")).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files().list(at("a")).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files().open_input(at("d")).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files().remove_file(at("d")).code(), StatusCode::kFailedPrecondition);
}

// In a process of its own, as its working directory goes.
TEST(LocalFolders, below_a_removed_working_directory_cannot_be_made) {
  const auto make_below_nothing = [] {
    const std::string gone = testing::TempDir() + fmt::format("gone-{}", ::getpid());
    if (::mkdir(gone.c_str(), 0777) != 0 || ::chdir(gone.c_str()) != 0 || ::rmdir(gone.c_str()) != 0) {
      _exit(2);
    }
    _exit(local_files().create_folders("out/deep").code() == StatusCode::kNotFound ? 0 : 1);
  };
  EXPECT_EXIT(make_below_nothing(), testing::ExitedWithCode(0), "");
}

TEST_P(AnyFileSystem, lists_in_byte_order) {
  ASSERT_TRUE(files().create_folders(at("b/c")).is_ok());
  for (const char* name : {"b.x", "a", "b/2", "b/c/1", "\xc3\xa9", "Z"}) {
    put(name, name);
  }
  EXPECT_THAT(names(files().list(root_)), ElementsAre("Z:1", "a:1", "b/", "b.x:3", "\xc3\xa9:2"));
  EXPECT_THAT(names(files().list_tree(root_)), ElementsAre("Z:1", "a:1", "b.x:3", "b/2:3", "b/c/1:5", "\xc3\xa9:2"));
}

TEST_P(AnyFileSystem, rename_no_replace_keeps_what_is_there) {
  put("a", "new");
  put("b", "old");
  EXPECT_EQ(files().rename_no_replace(at("a"), at("b")).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_file(files(), at("a")).value(), "new");
  EXPECT_EQ(read_file(files(), at("b")).value(), "old");
  EXPECT_TRUE(files().rename_no_replace(at("a"), at("c")).is_ok());
  EXPECT_FALSE(files().exists(at("a")).value());
  EXPECT_TRUE(files().rename_replace(at("c"), at("b")).is_ok());
  EXPECT_EQ(read_file(files(), at("b")).value(), "new");
}

TEST_P(AnyFileSystem, removes_trees) {
  ASSERT_TRUE(files().create_folders(at("d/e")).is_ok());
  put("d/e/f", "");
  EXPECT_TRUE(files().remove_tree(at("d")).is_ok());
  EXPECT_FALSE(files().exists(at("d")).value());
}

TEST_P(AnyFileSystem, lists_trees_of_64_folders_and_refuses_deeper_ones) {
  std::string folder;
  for (int depth = 0; depth < 64; ++depth) {
    folder += "d/";
  }
  ASSERT_TRUE(files().create_folders(at(folder)).is_ok());
  put(folder + "file", "x");
  EXPECT_THAT(names(files().list_tree(root_)), ElementsAre(folder + "file:1"));
  ASSERT_TRUE(files().create_folders(at(folder + "d")).is_ok());
  EXPECT_EQ(files().list_tree(root_).status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(AnyFileSystem, a_lock_is_held_once_and_follows_a_rename) {
  put("a", "");
  auto lock = files().try_lock(at("a"));
  ASSERT_TRUE(lock.is_ok());
  ASSERT_NE(*lock, nullptr);
  EXPECT_EQ(files().try_lock(at("a")).value(), nullptr);
  ASSERT_TRUE(files().rename_no_replace(at("a"), at("b")).is_ok());
  EXPECT_EQ(files().try_lock(at("b")).value(), nullptr);
  lock->reset();
  EXPECT_NE(files().try_lock(at("b")).value(), nullptr);
}

TEST_P(AnyFileSystem, writes_small_files_atomically_and_leaves_no_temporary) {
  ASSERT_TRUE(write_file_atomic(files(), at("new/folder/a"), "one").is_ok());
  ASSERT_TRUE(write_file_atomic(files(), at("new/folder/a"), "two").is_ok());
  EXPECT_EQ(read_file(files(), at("new/folder/a")).value(), "two");
  EXPECT_THAT(names(files().list_tree(root_)), ElementsAre("new/folder/a:3"));
}

TEST(LocalFiles, a_full_disk_is_resource_exhausted_and_spoils_the_file) {
  auto file = local_files().open_append("/dev/full");
  ASSERT_TRUE(file.is_ok());
  const Status failure = (*file)->write_text("x");
  EXPECT_EQ(failure.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(failure.message(), testing::AllOf(HasSubstr("free some space"), HasSubstr("/dev/full")));
  EXPECT_EQ((*file)->sync().message(), failure.message());
  EXPECT_EQ((*file)->close().message(), failure.message());
}

// As `--prompts-file <(head prompts.txt)` of a shell gives it.
TEST(LocalFiles, a_pipe_is_refused_with_what_to_do) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Status refused = read_file(local_files(), fmt::format("/dev/fd/{}", ends[0])).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("it is a pipe"), HasSubstr("write it to a file first")));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LocalFiles, lists_a_link_to_nothing_so_that_its_use_fails) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("nowhere", folder.path("link"));
  ASSERT_EQ(local_files().list(folder.path()).value().size(), 1u);
  EXPECT_EQ(local_files().open_input(folder.path("link")).status().code(), StatusCode::kNotFound);
}

TEST(LocalFiles, refuses_a_loop_of_links) {
  const TemporaryFolder folder;
  std::filesystem::create_directory_symlink(folder.path(), folder.path("again"));
  EXPECT_EQ(local_files().list_tree(folder.path()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(LocalFiles, reads_files_that_state_no_size) { EXPECT_THAT(read_file(local_files(), "/proc/self/status").value(), HasSubstr("Pid:")); }

}  // namespace
}  // namespace darkroom
