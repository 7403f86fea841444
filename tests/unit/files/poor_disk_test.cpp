// Stores on the real disk where system calls are refused, and on disks without locks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "support/poor_files.h"
#include "support/refused_calls.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// Whether flock is as on NFS since version 4: an exclusive lock only for what is open for writing.
bool flock_is_as_on_nfs = false;

}  // namespace
}  // namespace darkroom

// In place of the C library's.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (darkroom::flock_is_as_on_nfs && (::fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NfsLocks : public testing::Test {
 protected:
  void SetUp() override { flock_is_as_on_nfs = true; }
  void TearDown() override { flock_is_as_on_nfs = false; }
  TemporaryFolder folder_;
};

TEST_F(NfsLocks, a_file_is_locked_once) {
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("a"), "x").is_ok());
  auto lock = local_files().try_lock(folder_.path("a"));
  ASSERT_TRUE(lock.is_ok()) << lock.status().to_string();
  ASSERT_NE(*lock, nullptr);
  EXPECT_EQ(local_files().try_lock(folder_.path("a")).value(), nullptr);
}

TEST_F(NfsLocks, a_folder_has_no_locks_and_says_so) {
  const auto lock = local_files().try_lock(folder_.path());
  EXPECT_EQ(lock.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(lock.status().message(), HasSubstr(folder_.path()));
}

TEST_F(NfsLocks, objects_and_folders_are_published_and_swept) {
  Store& store = local_store();
  auto object = store.begin_object(folder_.path(), "part").value();
  ASSERT_TRUE(object->write_text("rows").is_ok());
  auto tree = store.begin_folder(folder_.path(), "step").value();
  ASSERT_TRUE(store.replace_small((tree->folder() / "weights").path, "bytes").is_ok());
  const auto now = std::chrono::system_clock::now();
  EXPECT_EQ(store.sweep(folder_.path(), std::chrono::seconds(0), now).value().num_temporaries, 0) << "their writer lives";
  EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(tree->publish("state.json", "{}").value(), PublishOutcome::kPublished);
}

TEST(Locks, a_file_that_may_only_be_read_is_locked_once) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("a"), "x").is_ok());
  ASSERT_EQ(::chmod(folder.path("a").c_str(), 0400), 0);
  const auto lock = local_files().try_lock(folder.path("a")).value();
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(local_files().try_lock(folder.path("a")).value(), nullptr);
}

class NoLocks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, NoLocks, testing::Values(EBADF, ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS));

TEST_P(NoLocks, are_told_from_a_lock_that_is_held_and_publishing_works) {
  const TemporaryFolder folder;
  const int result = result_with_refused_calls({{.call = SYS_flock, .error = GetParam()}}, [&] {
    if (local_files().try_lock(folder.path()).status().code() != StatusCode::kFailedPrecondition) {
      return 1;
    }
    auto object = local_store().begin_object(folder.path(), "part");
    return object.is_ok() && (*object)->write_text("rows").is_ok() && (*object)->publish().is_ok() ? 0 : 2;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(read_file(local_files(), folder.path("part")).value(), "rows");
}

/// No RENAME_NOREPLACE, and no hard links: `error` is what link says.
std::vector<RefusedCall> neither(int error) {
  return {{.call = SYS_renameat2, .error = EINVAL}, {.call = SYS_link, .error = error}, {.call = SYS_linkat, .error = error}};
}

int publish_here(const std::string& folder, const std::string& text, PublishOutcome want) {
  auto object = local_store().begin_object(folder, "part");
  if (!object.is_ok() || !(*object)->write_text(text).is_ok()) {
    return 1;
  }
  const Result<PublishOutcome> outcome = (*object)->publish();
  if (!outcome.is_ok()) {
    return 10 + static_cast<int>(outcome.status().code());
  }
  return *outcome == want ? 0 : 2;
}

std::vector<std::string> all_files(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  const std::vector<FileInfo> files = local_files().list_tree(folder.path()).value();
  for (const FileInfo& file : files) {
    names.push_back(file.path.substr(folder.path().size() + 1));
  }
  return names;
}

class NoLinks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, NoLinks, testing::Values(EPERM, EOPNOTSUPP, EMLINK, ENOSYS));

TEST_P(NoLinks, the_first_object_wins_all_the_same) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      result_with_refused_calls(neither(GetParam()), [&] { return publish_here(folder.path(), "first", PublishOutcome::kPublished); }), 0);
  EXPECT_EQ(
      result_with_refused_calls(neither(GetParam()), [&] { return publish_here(folder.path(), "second", PublishOutcome::kAlreadyThere); }),
      0);
  EXPECT_EQ(read_file(local_files(), folder.path("part")).value(), "first");
  EXPECT_THAT(all_files(folder), ElementsAre("part"));
}

TEST_P(NoLinks, folders_and_small_objects_are_made_once) {
  const TemporaryFolder folder;
  const int result = result_with_refused_calls(neither(GetParam()), [&] {
    Store& store = local_store();
    const Result<bool> first = store.create_small(folder.path("claim"), "first");
    const Result<bool> second = store.create_small(folder.path("claim"), "second");
    if (!first.is_ok() || !*first || !second.is_ok() || *second || store.read_small(folder.path("claim")).value() != "first") {
      return 1;
    }
    for (const PublishOutcome want : {PublishOutcome::kPublished, PublishOutcome::kAlreadyThere}) {
      auto tree = store.begin_folder(folder.path(), "step").value();
      const Result<PublishOutcome> outcome = tree->publish("state.json", "{}");
      if (!outcome.is_ok() || *outcome != want) {
        return 2;
      }
    }
    return store.remove(folder.path("claim")).is_ok() ? 0 : 3;
  });
  EXPECT_EQ(result, 0);
  EXPECT_THAT(all_files(folder), ElementsAre("step/state.json"));
}

TEST(NoNoReplace, links_publish_without_records) {
  const TemporaryFolder folder;
  const int result = result_with_refused_calls({{.call = SYS_renameat2, .error = EINVAL}, {.call = SYS_rename, .error = EIO}}, [&] {
    const int first = publish_here(folder.path(), "first", PublishOutcome::kPublished);
    return first != 0 ? first : publish_here(folder.path(), "second", PublishOutcome::kAlreadyThere);
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(read_file(local_files(), folder.path("part")).value(), "first");
  EXPECT_THAT(all_files(folder), ElementsAre("part"));
}

TEST(NoNoReplace, a_folder_that_may_not_be_written_is_still_said) {
  const TemporaryFolder folder;
  const int result = result_with_refused_calls({{.call = SYS_renameat2, .error = EACCES}, {.call = SYS_rename, .error = EACCES}},
                                               [&] { return publish_here(folder.path(), "rows", PublishOutcome::kPublished); });
  EXPECT_EQ(result, 10 + static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_FALSE(local_files().exists(folder.path("part")).value());
}

/// A disk of several machines without locks.
class LocklessSweep : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::chrono::hours kDay{24};
  SweepReport sweep(std::chrono::seconds age = kDay, std::chrono::seconds later = std::chrono::seconds(0)) {
    return store_->sweep(folder_.path(), age, std::chrono::system_clock::now() + later).value();
  }
  /// Leaves what a process leaves that is killed while it writes; with a promise, one killed after its commit record.
  void die_while_writing(bool has_promised) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto object = store_->begin_object(folder_.path(), "part").value();
      auto tree = store_->begin_folder(folder_.path(), "step").value();
      bool is_done = object->write_text("rows").is_ok() && store_->replace_small((tree->folder() / "weights").path, "x").is_ok();
      if (has_promised) {
        const std::string name = file_name(store_->list(folder_.path("_tmp")).value().at(0).path);
        const std::string record = fmt::format(R"({{"version":1,"object":"part","contender":"{}","body":""}})", name);
        is_done = is_done && store_->create_small(folder_.path("_tmp/part.commit-1"), record).value();
      }
      _exit(is_done ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }

  TemporaryFolder folder_;
  PoorFiles files_{local_files(), {.has_no_replace = GetParam(), .has_locks = false}};
  std::unique_ptr<Store> store_ = make_posix_store(files_, "file");
};

INSTANTIATE_TEST_SUITE_P(Disks, LocklessSweep, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "no_replace" : "commit_record"); });

TEST_P(LocklessSweep, takes_what_a_dead_process_of_this_machine_left) {
  die_while_writing(false);
  EXPECT_EQ(all_files(folder_).size(), 2u);
  EXPECT_EQ(sweep().num_temporaries, 2);
  EXPECT_THAT(all_files(folder_), IsEmpty());
}

TEST_P(LocklessSweep, completes_what_a_dead_process_promised) {
  die_while_writing(true);
  const SweepReport report = sweep();
  EXPECT_EQ(report.num_completed, 1);
  EXPECT_EQ(report.num_temporaries, 1);
  EXPECT_THAT(all_files(folder_), ElementsAre("part"));
  EXPECT_EQ(read_file(local_files(), folder_.path("part")).value(), "rows");
}

TEST_P(LocklessSweep, leaves_what_a_living_process_of_this_machine_holds_however_old) {
  auto object = store_->begin_object(folder_.path(), "part").value();
  ASSERT_TRUE(object->write_text("rows").is_ok());
  EXPECT_EQ(sweep(std::chrono::seconds(0), std::chrono::hours(1000)).num_temporaries, 0);
  EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished);
}

TEST_P(LocklessSweep, takes_what_another_machine_left_when_it_is_old_enough) {
  auto object = store_->begin_object(folder_.path(), "part").value();
  const std::string ours = file_name(store_->list(folder_.path("_tmp")).value().at(0).path);
  const std::string theirs = "part.00000000" + ours.substr(std::string("part.00000000").size());
  ASSERT_NE(theirs, ours);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("_tmp/" + theirs), "rows").is_ok());
  EXPECT_EQ(sweep(kDay, kDay - std::chrono::minutes(5)).num_temporaries, 0);
  EXPECT_EQ(sweep(kDay, kDay + std::chrono::minutes(5)).num_temporaries, 1);
  EXPECT_THAT(all_files(folder_), ElementsAre("_tmp/" + ours));
}

TEST_P(LocklessSweep, leaves_what_it_does_not_know) {
  for (const char* name : {"_tmp/part", "_tmp/part.12ab-7-0", "_tmp/part.0000000-1-1-0123456789abcdef-0", "_tmp/.-----",
                           "_tmp/part.00000000-0-1-0123456789abcdef-0", "_tmp/part.00000000-1-x-0123456789abcdef-0",
                           "_tmp/part.00000000-ffffffff-1-0123456789abcdef-0", "_tmp/part.00000000-1-1-0123456789abcdef-0-0"}) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(name), "x").is_ok());
  }
  EXPECT_EQ(sweep(std::chrono::seconds(0), kDay).num_temporaries, 0);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("_tmp/part.00000000-1-1-0123456789abcdef-0"), "x").is_ok());
  EXPECT_EQ(sweep(std::chrono::seconds(0), kDay).num_temporaries, 1);
}

TEST(StoreSweep, is_fine_without_a_folder) {
  const TemporaryFolder folder;
  EXPECT_TRUE(local_store().sweep(folder.path("none"), std::chrono::seconds(0), std::chrono::system_clock::now()).is_ok());
}

TEST(StoreSweep, takes_more_leftovers_than_it_holds_at_a_time) {
  const TemporaryFolder folder;
  ASSERT_TRUE(local_files().create_folders(folder.path("_tmp/tree/inner")).is_ok());
  for (int file = 0; file < 600; ++file) {
    ASSERT_TRUE(local_files().create(folder.path(fmt::format("_tmp/left-{}", file))).is_ok());
  }
  auto object = local_store().begin_object(folder.path(), "part").value();
  EXPECT_EQ(local_store().sweep(folder.path(), std::chrono::seconds(0), std::chrono::system_clock::now()).value().num_temporaries, 601);
  EXPECT_EQ(all_files(folder).size(), 1u) << "a living writer's stays";
}

}  // namespace
}  // namespace darkroom
