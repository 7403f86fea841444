// A sweep of another process may take a fresh temporary before its writer has locked it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/publication.h"

namespace darkroom {
namespace {

constexpr int kAttempts = 16;  // What a writer puts up with.

/// Files in memory where the first `num_swept` temporaries are removed just before they are locked.
class SweptFiles final : public FileSystem {
 public:
  explicit SweptFiles(int num_swept) : num_swept_(num_swept) {}

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override { return files_.open_input(path); }
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override { return files_.create(path); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override { return files_.open_append(path); }
  Result<FileInfo> stat(const std::string& path) override { return files_.stat(path); }
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return files_.list(folder); }
  Status create_folders(const std::string& folder) override { return files_.create_folders(folder); }
  Status rename_no_replace(const std::string& from, const std::string& to) override { return files_.rename_no_replace(from, to); }
  Status rename_replace(const std::string& from, const std::string& to) override { return files_.rename_replace(from, to); }
  Status remove_file(const std::string& path) override { return files_.remove_file(path); }
  Status remove_tree(const std::string& path) override { return files_.remove_tree(path); }
  Status sync_file(const std::string& path) override { return files_.sync_file(path); }
  Status sync_folder(const std::string& folder) override { return files_.sync_folder(folder); }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    if (num_swept_-- > 0) {
      EXPECT_TRUE(files_.remove_file(path).is_ok());
    }
    return files_.try_lock(path);
  }

 private:
  MemoryFileSystem files_;
  int num_swept_;
};

TEST(SweepRace, a_writer_whose_temporaries_are_swept_takes_another_name) {
  for (const int num_swept : {1, 2, kAttempts - 1}) {
    SCOPED_TRACE(num_swept);
    SweptFiles files(num_swept);
    auto publication = Publication::begin(files, "out", "part");
    ASSERT_TRUE(publication.is_ok()) << publication.status().to_string();
    ASSERT_TRUE((*publication)->file().write_text("text").is_ok());
    ASSERT_TRUE((*publication)->publish().is_ok());
    EXPECT_EQ(read_file(files, "out/part").value(), "text");
    EXPECT_TRUE(files.list("out/_tmp").value().empty());
  }
}

TEST(SweepRace, a_writer_whose_every_temporary_is_swept_gives_up) {
  SweptFiles files(kAttempts);
  const Result<std::unique_ptr<Publication>> publication = Publication::begin(files, "out", "part");
  ASSERT_FALSE(publication.is_ok());
  EXPECT_EQ(publication.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(publication.status().to_string(), testing::HasSubstr("out"));
}

}  // namespace
}  // namespace darkroom
