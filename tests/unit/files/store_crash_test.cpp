// What a store of files leaves at every instant at which its process dies, its machine loses power, or its disk fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/posix_store.h"
#include "support/crash_everywhere.h"
#include "support/poor_files.h"

namespace darkroom {
namespace {

using std::chrono::system_clock;

const std::string kRows(1000, 'r');
constexpr system_clock::time_point kNow{};

class StoreCrash : public testing::TestWithParam<bool> {
 protected:
  Poverty poverty() const { return {.has_no_replace = GetParam(), .has_locks = true}; }
  /// `work` on a store over `files`.
  std::function<Status(FileSystem&)> on_store(std::function<Status(Store&)> work) const {
    return [work = std::move(work), poverty = poverty()](FileSystem& files) {
      PoorFiles poor(files, poverty);
      const std::unique_ptr<Store> store = make_posix_store(poor, "memory");
      return work(*store);
    };
  }
  Status run(FileSystem& files, const std::function<Status(Store&)>& work) const { return on_store(work)(files); }
};

INSTANTIATE_TEST_SUITE_P(Disks, StoreCrash, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "no_replace" : "commit_record"); });

Status publish_rows(Store& store) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingObject> object, store.begin_object("out", "part"));
  DARKROOM_RETURN_IF_ERROR(object->write_text(kRows));
  DARKROOM_RETURN_IF_ERROR(object->write_text(kRows));
  return object->publish().status();
}

Status publish_step(Store& store) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFolder> folder, store.begin_folder("out", "step-1"));
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingObject> object, store.begin_object(folder->folder().path, "weights"));
  DARKROOM_RETURN_IF_ERROR(object->write_text(kRows));
  DARKROOM_RETURN_IF_ERROR(object->publish().status());
  return folder->publish("state.json", kRows).status();
}

Status create_claim(Store& store) { return store.create_small("out/claim", kRows).status(); }

Status replace_summary(Store& store) { return store.replace_small("out/summary", kRows); }

Status sweep_out(Store& store) { return store.sweep("out", std::chrono::seconds(0), kNow).status(); }

void nothing_before(FileSystem&) {}

TEST_P(StoreCrash, an_object_is_whole_or_absent_and_stays_once_acknowledged) {
  crash_everywhere(nothing_before, on_store(publish_rows), [](FileSystem& files, bool acknowledged) {
    const bool visible = files.exists("out/part").value();
    EXPECT_TRUE(visible || !acknowledged);
    if (visible) {
      EXPECT_EQ(read_file(files, "out/part").value(), kRows + kRows);
    }
  });
}

TEST_P(StoreCrash, a_folder_is_whole_or_absent_and_stays_once_acknowledged) {
  crash_everywhere(nothing_before, on_store(publish_step), [](FileSystem& files, bool acknowledged) {
    const bool visible = files.exists("out/step-1").value();
    EXPECT_TRUE(visible || !acknowledged);
    if (visible) {
      EXPECT_EQ(read_file(files, "out/step-1/weights").value(), kRows);
      EXPECT_EQ(read_file(files, "out/step-1/state.json").value(), kRows);
      EXPECT_EQ(files.list("out/step-1").value().size(), 2u);
    }
  });
}

TEST_P(StoreCrash, a_small_object_is_whole_or_absent_and_stays_once_acknowledged) {
  crash_everywhere(nothing_before, on_store(create_claim), [this](FileSystem& files, bool acknowledged) {
    const bool visible = files.exists("out/claim").value();
    EXPECT_TRUE(visible || !acknowledged);
    if (visible) {
      EXPECT_TRUE(run(files, [](Store& store) {
                    EXPECT_EQ(store.read_small("out/claim").value(), kRows);
                    return Status::ok();
                  }).is_ok());
    }
  });
}

TEST_P(StoreCrash, a_small_object_that_is_replaced_holds_its_old_bytes_or_its_new_ones) {
  const auto old_one = [this](FileSystem& files) {
    ASSERT_TRUE(run(files, [](Store& store) { return store.create_small("out/summary", "old").status(); }).is_ok());
  };
  crash_everywhere(old_one, on_store(replace_summary), [this](FileSystem& files, bool acknowledged) {
    const Status read = run(files, [&](Store& store) {
      const std::string text = store.read_small("out/summary").value();
      EXPECT_TRUE(text == kRows || (text == "old" && !acknowledged)) << text;
      return Status::ok();
    });
    EXPECT_TRUE(read.is_ok());
  });
}

TEST_P(StoreCrash, the_next_run_completes_the_work_and_leaves_nothing_else) {
  crash_everywhere(nothing_before, on_store(publish_rows), [this](FileSystem& files, bool) {
    ASSERT_TRUE(run(files, sweep_out).is_ok());
    const bool was_visible = files.exists("out/part").value();
    const Result<std::vector<FileInfo>> temporaries = files.list("out/_tmp");
    for (const FileInfo& left : temporaries.is_ok() ? *temporaries : std::vector<FileInfo>()) {
      EXPECT_THAT(left.path, testing::HasSubstr(".commit-")) << "a sweep leaves the records of what is not visible, nothing else";
      EXPECT_FALSE(was_visible);
    }
    ASSERT_TRUE(run(files, publish_rows).is_ok());
    EXPECT_EQ(files.list_tree("out").value().size(), 1u);
    EXPECT_EQ(read_file(files, "out/part").value(), kRows + kRows);
  });
}

/// Fails each call of `work` once, with the process alive.
void fail_store_everywhere(const std::function<Status(FileSystem&)>& work, const std::function<Status(FileSystem&)>& sweep,
                           const std::string& path, bool every_fault_is_an_error) {
  const int64_t num_calls = count_calls(nothing_before, work);
  int num_errors = 0;
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(fmt::format("call {} of {}, fault {}", call, num_calls, static_cast<int>(fault)));
      MemoryFileSystem memory;
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, fault);
      const Status status = work(files);
      files.heal();
      EXPECT_TRUE(!status.is_ok() || !every_fault_is_an_error);
      if (!status.is_ok()) {
        ++num_errors;
        EXPECT_EQ(status.code(), fault == Fault::kInputOutput ? StatusCode::kUnavailable : StatusCode::kResourceExhausted);
        EXPECT_THAT(status.message(), testing::HasSubstr("out"));
      } else {
        memory.crash(0);  // What was acknowledged is durable.
        EXPECT_TRUE(files.exists(path).value());
      }
      if (files.exists(path).value() && !files.stat(path).value().is_folder) {
        EXPECT_EQ(read_file(files, path).value().substr(0, kRows.size()), kRows);
      }
      EXPECT_TRUE(work(files).is_ok());
      EXPECT_TRUE(files.exists(path).value());
      ASSERT_TRUE(sweep(files).is_ok());
      const std::vector<FileInfo> all_left = files.list_tree("out").value();
      for (const FileInfo& left : all_left) {
        EXPECT_THAT(left.path, testing::Not(testing::HasSubstr("_tmp")));
      }
    }
  }
  EXPECT_GT(num_errors, num_calls);
}

TEST_P(StoreCrash, no_disk_fault_shows_a_bad_object_or_leaves_a_temporary) {
  fail_store_everywhere(on_store(publish_rows), on_store(sweep_out), "out/part", GetParam());
}

TEST_P(StoreCrash, no_disk_fault_shows_a_bad_folder_or_leaves_a_temporary) {
  fail_store_everywhere(on_store(publish_step), on_store(sweep_out), "out/step-1", GetParam());
}

TEST_P(StoreCrash, no_disk_fault_shows_a_bad_small_object_or_leaves_a_temporary) {
  fail_store_everywhere(on_store(create_claim), on_store(sweep_out), "out/claim", GetParam());
}

/// Whether a record names bytes that are there, while no object is.
bool is_promised(FileSystem& files) {
  const Result<std::vector<FileInfo>> entries = files.list("out/_tmp");
  for (const FileInfo& entry : entries.is_ok() ? *entries : std::vector<FileInfo>()) {
    if (!entry.path.ends_with(".commit-1")) {
      continue;
    }
    const std::string record = read_file(files, entry.is_folder ? entry.path + "/_content" : entry.path).value();
    for (const FileInfo& other : *entries) {
      if (!other.is_folder && record.find("\"" + other.path.substr(other.path.rfind('/') + 1) + "\"") != std::string::npos) {
        return !files.exists("out/part").value();
      }
    }
  }
  return false;
}

// The writer dies at each of its calls, the sweep after it at each of its own.
TEST_P(StoreCrash, a_sweep_that_dies_anywhere_after_a_writer_that_died_anywhere_loses_nothing_that_a_record_names) {
  const int64_t num_calls = count_calls(nothing_before, on_store(publish_rows));
  int num_promised = 0;
  for (int64_t call = 0; call <= num_calls; ++call) {
    for (int64_t sweep_call = 0, num_sweep_calls = 1; sweep_call <= num_sweep_calls; ++sweep_call) {
      SCOPED_TRACE(fmt::format("call {} of {}, call {} of the sweep", call, num_calls, sweep_call));
      MemoryFileSystem memory;
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, Fault::kDeath);
      (void)run(files, publish_rows);
      files.heal();
      const bool promised = is_promised(memory);
      files.fail_call(sweep_call, Fault::kDeath);
      (void)run(files, sweep_out);
      num_sweep_calls = files.num_calls();
      files.heal();
      ASSERT_TRUE(run(files, sweep_out).is_ok());
      num_promised += promised ? 1 : 0;
      EXPECT_TRUE(!promised || memory.exists("out/part").value());
      ASSERT_TRUE(run(files, publish_rows).is_ok());
      ASSERT_TRUE(run(files, sweep_out).is_ok());
      EXPECT_EQ(memory.list_tree("out").value().size(), 1u);
      EXPECT_EQ(read_file(memory, "out/part").value(), kRows + kRows);
    }
  }
  EXPECT_EQ(num_promised > 0, !GetParam()) << "only where records are made";
}

}  // namespace
}  // namespace darkroom
