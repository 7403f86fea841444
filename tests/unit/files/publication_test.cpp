#include "darkroom/files/publication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "support/forwarding_files.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> tree(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  const std::vector<FileInfo> infos = files.list_tree(folder).value();
  for (const FileInfo& info : infos) {
    names.push_back(info.path.substr(folder.size() + 1));
  }
  return names;
}

std::unique_ptr<Publication> begin(FileSystem& files, const std::string& folder, const std::string& name, std::string_view text) {
  std::unique_ptr<Publication> publication = Publication::begin(files, folder, name).value();
  EXPECT_TRUE(publication->file().write_text(text).is_ok());
  return publication;
}

TEST(Publication, shows_nothing_before_publish_and_all_after) {
  const TemporaryFolder folder;
  const std::string out = folder.path("out");
  auto publication = begin(local_files(), out, "part-000000.parquet", "rows");
  EXPECT_FALSE(local_files().exists(publication->path()).value());
  EXPECT_EQ(publication->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(read_file(local_files(), out + "/part-000000.parquet").value(), "rows");
  publication.reset();
  EXPECT_THAT(tree(local_files(), out), ElementsAre("part-000000.parquet"));
}

TEST(Publication, the_first_of_two_writers_wins) {
  const TemporaryFolder folder;
  auto first = begin(local_files(), folder.path(), "a", "first");
  auto second = begin(local_files(), folder.path(), "a", "second");
  EXPECT_EQ(second->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(first->publish().value(), PublishOutcome::kAlreadyThere);
  first.reset();
  second.reset();
  EXPECT_EQ(read_file(local_files(), folder.path("a")).value(), "second");
  EXPECT_THAT(tree(local_files(), folder.path()), ElementsAre("a"));
}

TEST(Publication, replaces_what_gives_way_and_nothing_else) {
  const TemporaryFolder folder;
  const auto publish = [&](std::string_view text, const Result<bool>& may_replace) {
    return begin(local_files(), folder.path(), "a", text)->publish([&] { return may_replace; });
  };
  EXPECT_EQ(publish("first", Status::unavailable("never asked")).value(), PublishOutcome::kPublished);
  EXPECT_EQ(publish("second", false).value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(publish("third", Status::corrupt_data("unreadable")).status().code(), StatusCode::kCorruptData);
  {
    const auto held = local_files().try_lock(folder.path("a")).value();
    EXPECT_EQ(publish("fourth", true).status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(read_file(local_files(), folder.path("a")).value(), "first");
  EXPECT_EQ(publish("fifth", true).value(), PublishOutcome::kPublished);
  EXPECT_EQ(read_file(local_files(), folder.path("a")).value(), "fifth");
  EXPECT_THAT(tree(local_files(), folder.path()), ElementsAre("a"));
}

TEST(Publication, replaces_nothing_that_it_cannot_lock) {
  const TemporaryFolder folder;
  class Lockless final : public ForwardingFiles {
   public:
    using ForwardingFiles::ForwardingFiles;
    Result<std::unique_ptr<FileLock>> try_lock(const std::string& /*path*/) override {
      return Status::failed_precondition("no locks here");
    }
  };
  Lockless files(local_files());
  EXPECT_EQ(begin(files, folder.path(), "a", "first")->publish([] { return true; }).value(), PublishOutcome::kPublished);
  EXPECT_EQ(begin(files, folder.path(), "a", "second")->publish([] { return true; }).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(begin(files, folder.path(), "a", "third")->publish([] { return false; }).value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(read_file(local_files(), folder.path("a")).value(), "first");
}

TEST(Publication, takes_names_as_long_as_the_file_system_does) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  EXPECT_EQ(begin(local_files(), folder.path(), name, "rows")->publish().value(), PublishOutcome::kPublished);
  EXPECT_TRUE(write_file_atomic(local_files(), folder.path(name), "other rows").is_ok());
  EXPECT_TRUE(FolderPublication::begin_beside(local_files(), folder.path(), name).is_ok());
}

TEST(Publication, removes_its_temporary_when_it_is_given_up) {
  const TemporaryFolder folder;
  begin(local_files(), folder.path(), "a", "rows").reset();
  EXPECT_THAT(tree(local_files(), folder.path()), IsEmpty());
}

TEST(Publication, has_one_winner_among_many_threads) {
  const TemporaryFolder folder;
  constexpr int kNumThreads = 8;
  constexpr int kNumNames = 25;
  std::atomic<int> num_published{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kNumThreads; ++thread) {
      threads.emplace_back([&] {
        for (int name = 0; name < kNumNames; ++name) {
          auto publication = begin(local_files(), folder.path(), "part-" + std::to_string(name), "rows");
          ASSERT_TRUE(sweep_unpublished(local_files(), folder.path()).is_ok());
          const auto outcome = publication->publish();
          ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
          num_published += *outcome == PublishOutcome::kPublished ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(num_published, kNumNames);
  EXPECT_EQ(tree(local_files(), folder.path()).size(), static_cast<size_t>(kNumNames));
}

TEST(PublishFolder, publishes_a_tree_once) {
  const TemporaryFolder folder;
  for (const PublishOutcome want : {PublishOutcome::kPublished, PublishOutcome::kAlreadyThere}) {
    auto publication = FolderPublication::begin(local_files(), folder.path(), "step-1").value();
    ASSERT_TRUE(write_file_atomic(local_files(), publication->folder() + "/unet/weights", "bytes").is_ok());
    ASSERT_TRUE(write_file_atomic(local_files(), publication->folder() + "/state.json", "{}").is_ok());
    EXPECT_EQ(publication->publish().value(), want);
  }
  EXPECT_THAT(tree(local_files(), folder.path()), ElementsAre("step-1/state.json", "step-1/unet/weights"));
}

TEST(PublishFolder, leaves_no_folder_of_temporaries_beside_what_is_published) {
  const TemporaryFolder folder;
  auto publication = FolderPublication::begin_beside(local_files(), folder.path(), "model").value();
  EXPECT_EQ(parent_folder(publication->folder()), folder.path());
  ASSERT_TRUE(write_file_atomic(local_files(), publication->folder() + "/config.json", "{}").is_ok());
  ASSERT_TRUE(sweep_unpublished(local_files(), folder.path()).is_ok());  // A live writer's stays.
  EXPECT_EQ(publication->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(local_files().list(folder.path()).value().size(), 1U);
  const std::string given_up = FolderPublication::begin_beside(local_files(), folder.path(), "other").value()->folder();
  EXPECT_FALSE(local_files().exists(given_up).value());
}

TEST(PublishFolder, never_replaces_a_file_of_that_name) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("step-1"), "a file").is_ok());
  auto publication = FolderPublication::begin(local_files(), folder.path(), "step-1").value();
  ASSERT_TRUE(write_file_atomic(local_files(), publication->folder() + "/state.json", "{}").is_ok());
  EXPECT_EQ(publication->publish().value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(read_file(local_files(), folder.path("step-1")).value(), "a file");
}

TEST(PublishFolder, removes_what_dead_writers_of_its_name_left_beside_it) {
  const TemporaryFolder folder;
  const auto live = FolderPublication::begin_beside(local_files(), folder.path(), "model").value();
  for (const char* name :
       {"_tmp.model.12ab-7-0/weights", "_tmp.model.backup/weights", "_tmp.model.12ab-7/weights", "_tmp.other.12ab-7-0/weights"}) {
    ASSERT_TRUE(local_files().create_folders(parent_folder(folder.path(name))).is_ok());
    ASSERT_TRUE(write_file_atomic(local_files(), folder.path(name), "x").is_ok());
  }
  FolderPublication::begin_beside(local_files(), folder.path(), "model").value().reset();
  EXPECT_THAT(tree(local_files(), folder.path()),
              UnorderedElementsAre("_tmp.model.backup/weights", "_tmp.model.12ab-7/weights", "_tmp.other.12ab-7-0/weights"));
  EXPECT_TRUE(local_files().exists(live->folder()).value());
}

TEST(RemovePublishedFolder, takes_one_away_whatever_an_earlier_call_left) {
  const TemporaryFolder folder;
  for (const char* name : {"step-1/unet/weights", "step-2/state.json", "_tmp/step-1/unet/weights"}) {
    ASSERT_TRUE(local_files().create_folders(parent_folder(folder.path(name))).is_ok());
    ASSERT_TRUE(write_file_atomic(local_files(), folder.path(name), "x").is_ok());
  }
  EXPECT_TRUE(remove_published_folder(local_files(), folder.path(), "step-1").is_ok());
  EXPECT_THAT(tree(local_files(), folder.path()), ElementsAre("step-2/state.json"));
  EXPECT_EQ(remove_published_folder(local_files(), folder.path(), "step-1").code(), StatusCode::kNotFound);
}

TEST(Sweep, is_fine_without_a_folder) {
  const TemporaryFolder folder;
  EXPECT_TRUE(sweep_unpublished(local_files(), folder.path("none")).is_ok());
}

TEST(Sweep, leaves_what_a_live_writer_holds) {
  const TemporaryFolder folder;
  auto file = begin(local_files(), folder.path(), "a", "rows");
  auto tree_publication = FolderPublication::begin(local_files(), folder.path(), "step-1").value();
  ASSERT_TRUE(write_file_atomic(local_files(), tree_publication->folder() + "/state.json", "{}").is_ok());
  ASSERT_TRUE(sweep_unpublished(local_files(), folder.path()).is_ok());
  EXPECT_TRUE(file->publish().is_ok());
  EXPECT_TRUE(tree_publication->publish().is_ok());
  EXPECT_THAT(tree(local_files(), folder.path()), UnorderedElementsAre("a", "step-1/state.json"));
}

/// Leaves temporaries behind as a process killed in the middle does.
void die_while_writing(const std::string& folder) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto file = begin(local_files(), folder, "a", "rows");
    auto tree_publication = FolderPublication::begin(local_files(), folder, "step-1").value();
    auto inner = local_files().create(tree_publication->folder() + "/state.json");
    _exit(inner.is_ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST(Sweep, removes_what_a_dead_process_left_and_nothing_else) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("kept"), "x").is_ok());
  die_while_writing(folder.path());
  EXPECT_EQ(tree(local_files(), folder.path()).size(), 3u);
  ASSERT_TRUE(sweep_unpublished(local_files(), folder.path()).is_ok());
  EXPECT_THAT(tree(local_files(), folder.path()), ElementsAre("kept"));
}

}  // namespace
}  // namespace darkroom
