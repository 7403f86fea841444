// A sweep of another process may take a fresh temporary before its writer has locked it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/publication.h"
#include "support/forwarding_files.h"

namespace darkroom {
namespace {

constexpr int kAttempts = 16;  // What a writer puts up with.

/// Files where the first `num_swept` temporaries are removed just before they are locked.
class SweptFiles final : public ForwardingFiles {
 public:
  SweptFiles(FileSystem& files, int num_swept) : ForwardingFiles(files), num_swept_(num_swept) {}

  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    if (num_swept_-- > 0) {
      EXPECT_TRUE(remove_file(path).is_ok());
    }
    return ForwardingFiles::try_lock(path);
  }

 private:
  int num_swept_;
};

TEST(SweepRace, a_writer_whose_temporaries_are_swept_takes_another_name) {
  for (const int num_swept : {1, 2, kAttempts - 1}) {
    SCOPED_TRACE(num_swept);
    MemoryFileSystem memory;
    SweptFiles files(memory, num_swept);
    auto publication = Publication::begin(files, "out", "part");
    ASSERT_TRUE(publication.is_ok()) << publication.status().to_string();
    ASSERT_TRUE((*publication)->file().write_text("text").is_ok());
    ASSERT_TRUE((*publication)->publish().is_ok());
    EXPECT_EQ(read_file(files, "out/part").value(), "text");
    EXPECT_TRUE(files.list("out/_tmp").value().empty());
  }
}

TEST(SweepRace, a_writer_whose_every_temporary_is_swept_gives_up) {
  MemoryFileSystem memory;
  SweptFiles files(memory, kAttempts);
  const Result<std::unique_ptr<Publication>> publication = Publication::begin(files, "out", "part");
  ASSERT_FALSE(publication.is_ok());
  EXPECT_EQ(publication.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(publication.status().to_string(), testing::HasSubstr("out"));
}

}  // namespace
}  // namespace darkroom
