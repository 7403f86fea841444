// First-wins by commit records: every order of two writers' steps, drawn orders of more, with sweeps and deaths among them.
#include "darkroom/files/commit_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "support/interleaver.h"
#include "support/poor_files.h"

namespace darkroom {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr std::chrono::system_clock::time_point kSomeTime{};
constexpr const char* kObject = "out/part";

/// What an object has held since it was first seen.
class Watched {
 public:
  explicit Watched(FileSystem& files) : files_(files) {}

  void look() {
    const Result<std::string> text = read_file(files_, kObject);
    if (!text.is_ok()) {
      EXPECT_TRUE(first_.empty()) << "a visible object went away";
      return;
    }
    first_ = first_.empty() ? *text : first_;
    EXPECT_EQ(*text, first_) << "a visible object changed";
  }
  const std::string& text() const { return first_; }

 private:
  FileSystem& files_;
  std::string first_;
};

/// Where others may go on.
enum class Pauses {
  kSteps,  ///< Before each step of the protocol: a look at the object, a record made, read or removed, a rename to the object.
  kCalls,  ///< Before each call.
};

class PausingFiles final : public ForwardingFiles {
 public:
  PausingFiles(FileSystem& files, Interleaver& order, Watched& watched, Pauses pauses = Pauses::kSteps)
      : ForwardingFiles(files), order_(order), watched_(watched), pauses_(pauses) {}

  Result<FileInfo> stat(const std::string& path) override {
    pause_if(path == kObject);
    return ForwardingFiles::stat(path);
  }
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    pause_if(is_record(path));
    return ForwardingFiles::open_input(path);
  }
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    pause_if(file_name(folder) == "_tmp");
    return ForwardingFiles::list(folder);
  }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    pause_if(is_record(to) || is_record(from));
    const Status renamed = ForwardingFiles::rename_no_replace(from, to);
    watched_.look();
    return renamed;
  }
  Status rename_replace(const std::string& from, const std::string& to) override {
    pause_if(to == kObject);
    const Status renamed = ForwardingFiles::rename_replace(from, to);
    watched_.look();
    return renamed;
  }
  Status remove_file(const std::string& path) override {
    pause_if(is_record(path));
    return ForwardingFiles::remove_file(path);
  }
  Status remove_tree(const std::string& path) override {
    pause_if(false);
    return ForwardingFiles::remove_tree(path);
  }
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    pause_if(false);
    return ForwardingFiles::create(path);
  }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    pause_if(false);
    return ForwardingFiles::try_lock(path);
  }

 private:
  static bool is_record(const std::string& path) { return is_commit_record(file_name(path)); }
  void pause_if(bool is_step) {
    if (is_step || pauses_ == Pauses::kCalls) {
      order_.pause();
    }
  }

  Interleaver& order_;
  Watched& watched_;
  Pauses pauses_;
};

/// One world: a disk without atomic publishing, and what happens on it.
struct RecordWorld {
  explicit RecordWorld(Interleaver& order_of_steps, Pauses where = Pauses::kSteps) : order(order_of_steps), pauses(where) {
    EXPECT_TRUE(memory.create_folders("out/_tmp").is_ok());
  }

  /// A writer in a process of its own; `death`: the call at which it dies, or none.
  std::function<void()> writer(std::string text, Result<PublishOutcome>& outcome, int64_t death = -1) {
    return [this, text = std::move(text), &outcome, death] {
      PausingFiles pausing(memory, order, watched, pauses);
      FaultInjectingFileSystem faulty(pausing);
      PoorFiles poor(faulty, {.has_no_replace = false, .has_locks = true});
      const std::unique_ptr<Store> store = make_posix_store(poor, "memory");
      auto object = store->begin_object("out", "part").value();
      EXPECT_TRUE(object->write_text(text).is_ok());
      faulty.fail_call(death, Fault::kDeath);
      outcome = object->publish();
      num_calls = std::max(num_calls, faulty.num_calls());
    };
  }
  std::function<void()> sweeper(SweepReport& report) {
    return [this, &report] {
      PausingFiles pausing(memory, order, watched, pauses);
      PoorFiles poor(pausing, {.has_no_replace = false, .has_locks = true});
      report = make_posix_store(poor, "memory")->sweep("out", std::chrono::seconds(0), kSomeTime).value();
    };
  }
  /// What the next run does.
  void sweep_and_look() {
    SweepReport report;
    sweeper(report)();
    watched.look();
  }
  std::vector<std::string> left() {
    std::vector<std::string> names;
    const std::vector<FileInfo> files = memory.list_tree("out").value();
    for (const FileInfo& file : files) {
      names.push_back(file.path);
    }
    return names;
  }

  Interleaver& order;
  Pauses pauses;
  MemoryFileSystem memory;
  Watched watched{memory};
  int64_t num_calls = 0;
};

const Result<PublishOutcome> kUnset = Status::internal("not set");

/// Exactly one says that it was first, and the object is what that one wrote.
void expect_one_winner(const RecordWorld& world, const std::map<std::string, Result<PublishOutcome>>& outcomes) {
  int num_published = 0;
  for (const auto& [text, outcome] : outcomes) {
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
    if (*outcome == PublishOutcome::kPublished) {
      ++num_published;
      EXPECT_EQ(world.watched.text(), text);
    }
  }
  EXPECT_EQ(num_published, 1);
}

TEST(CommitRecord, two_writers_leave_one_object_that_never_changes_in_every_order_of_their_steps) {
  Interleaver order;
  int num_orders = 0;
  do {
    RecordWorld world(order);
    std::map<std::string, Result<PublishOutcome>> outcomes = {{"one", kUnset}, {"two", kUnset}};
    order.run({world.writer("one", outcomes.at("one")), world.writer("two", outcomes.at("two"))});
    expect_one_winner(world, outcomes);
    world.sweep_and_look();
    EXPECT_EQ(world.left(), std::vector<std::string>{kObject});
    ++num_orders;
  } while (order.next() && !testing::Test::HasFailure());
  EXPECT_GT(num_orders, 1000);
}

TEST(CommitRecord, a_sweep_beside_a_living_writer_changes_nothing_for_it_in_any_order) {
  Interleaver order;
  int num_orders = 0;
  do {
    RecordWorld world(order);
    Result<PublishOutcome> outcome = kUnset;
    SweepReport report;
    order.run({world.writer("one", outcome), world.sweeper(report)});
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, PublishOutcome::kPublished);
    EXPECT_EQ(world.watched.text(), "one");
    ++num_orders;
  } while (order.next() && !testing::Test::HasFailure());
  EXPECT_GT(num_orders, 20);
}

TEST(CommitRecord, three_writers_and_a_sweep_leave_one_object_in_drawn_orders) {
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Interleaver order(seed);
    RecordWorld world(order, Pauses::kCalls);
    std::map<std::string, Result<PublishOutcome>> outcomes = {{"one", kUnset}, {"two", kUnset}, {"three", kUnset}};
    SweepReport report;
    order.run({world.writer("one", outcomes.at("one")), world.writer("two", outcomes.at("two")),
               world.writer("three", outcomes.at("three")), world.sweeper(report)});
    expect_one_winner(world, outcomes);
  }
}

TEST(CommitRecord, a_writer_that_dies_anywhere_stops_nobody_in_drawn_orders) {
  Interleaver alone;
  RecordWorld counted(alone);
  Result<PublishOutcome> counted_outcome = kUnset;
  alone.run({counted.writer("one", counted_outcome)});
  ASSERT_GT(counted.num_calls, 8);
  for (int64_t death = 0; death < counted.num_calls; ++death) {
    for (uint64_t seed = 0; seed < 10 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(fmt::format("dies at call {}, seed {}", death, seed));
      Interleaver order(seed);
      RecordWorld world(order, Pauses::kCalls);
      Result<PublishOutcome> dead = kUnset;
      Result<PublishOutcome> living = kUnset;
      SweepReport report;
      order.run({world.writer("dead", dead, death), world.writer("living", living), world.sweeper(report)});
      ASSERT_TRUE(living.is_ok()) << living.status().to_string();
      EXPECT_EQ(*living == PublishOutcome::kPublished, world.watched.text() == "living");
      EXPECT_THAT(world.watched.text(), AnyOf("living", "dead"));
      world.sweep_and_look();
      EXPECT_EQ(world.left(), std::vector<std::string>{kObject});
    }
  }
}

/// Uploads of an object store that completes whatever it is told to, over what is there.
class Uploads {
 public:
  Uploads(FileSystem& files, Interleaver& order, Watched& watched) : files_(files), order_(order), watched_(watched) {}

  void add(const std::string& id, const std::string& text) { uploads_[id] = text; }
  void abort(const std::string& id) { uploads_.erase(id); }

  Result<Completion> complete(const Location& object, const CommitRecord& record) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, object.exists());
    if (is_there) {
      return uploads_.contains(record.contender) ? Completion::kAnotherThere : Completion::kDone;
    }
    order_.pause();
    const auto upload = uploads_.find(record.contender);
    if (upload == uploads_.end()) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_done, object.exists());
      return is_done ? Completion::kDone : Completion::kGone;
    }
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, object.path, upload->second));
    watched_.look();
    uploads_.erase(upload);
    return Completion::kDone;
  }

 private:
  FileSystem& files_;
  Interleaver& order_;
  Watched& watched_;
  std::map<std::string, std::string> uploads_;
};

TEST(CommitRecord, two_uploads_leave_one_object_in_every_order_of_their_steps) {
  Interleaver order;
  int num_orders = 0;
  do {
    MemoryFileSystem memory;
    Watched watched(memory);
    Uploads uploads(memory, order, watched);
    std::map<std::string, Result<PublishOutcome>> outcomes = {{"one", kUnset}, {"two", kUnset}};
    const auto writer = [&](const std::string& id) {
      return [&, id] {
        PausingFiles pausing(memory, order, watched);
        const std::unique_ptr<Store> store = make_posix_store(pausing, "memory");
        outcomes.at(id) = publish_by_record({store.get(), kObject}, {.contender = id, .body = "{\"parts\":[]}"},
                                            [&](const Location& object, const CommitRecord& record) {
                                              EXPECT_EQ(record.body, "{\"parts\":[]}");
                                              return uploads.complete(object, record);
                                            });
        uploads.abort(id);
      };
    };
    uploads.add("one", "one");
    uploads.add("two", "two");
    order.run({writer("one"), writer("two")});
    for (const auto& [id, outcome] : outcomes) {
      ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
      EXPECT_EQ(*outcome == PublishOutcome::kPublished, watched.text() == id);
    }
    ++num_orders;
  } while (order.next() && !testing::Test::HasFailure());
  EXPECT_GT(num_orders, 1000);
}

/// A disk without atomic publishing, and its store.
struct PoorDisk {
  MemoryFileSystem memory;
  PoorFiles poor{memory, {.has_no_replace = false, .has_locks = true}};
  std::unique_ptr<Store> store = make_posix_store(poor, "memory");

  Result<PublishOutcome> publish(const std::string& text) {
    DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingObject> object, store->begin_object("out", "part"));
    DARKROOM_RETURN_IF_ERROR(object->write_text(text));
    return object->publish();
  }
  SweepReport sweep() { return store->sweep("out", std::chrono::seconds(0), kSomeTime).value(); }
  void put_record(int number, const std::string& text) {
    ASSERT_TRUE(store->create_small(fmt::format("out/_tmp/part.commit-{}", number), text).value());
  }
};

std::string record_of(const std::string& contender) {
  return fmt::format(R"({{"version":1,"object":"part","contender":"{}","body":""}})", contender);
}

TEST(CommitRecord, passes_over_contenders_that_are_gone) {
  PoorDisk disk;
  disk.put_record(1, record_of("part.gone"));
  disk.put_record(2, record_of("part.gone-too"));
  EXPECT_EQ(disk.sweep().num_completed, 0);
  EXPECT_TRUE(disk.memory.exists("out/_tmp/part.commit-1").value()) << "a writer may be about to make the next one";
  EXPECT_EQ(disk.publish("rows").value(), PublishOutcome::kPublished);
  EXPECT_EQ(read_file(disk.memory, kObject).value(), "rows");
  EXPECT_EQ(disk.memory.list_tree("out").value().size(), 1u);
}

TEST(CommitRecord, completes_what_a_dead_writer_promised_instead_of_ones_own) {
  PoorDisk disk;
  ASSERT_TRUE(write_file_atomic(disk.memory, "out/_tmp/part.promised", "promised").is_ok());
  disk.put_record(1, record_of("part.promised"));
  EXPECT_EQ(disk.publish("rows").value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(read_file(disk.memory, kObject).value(), "promised");
  EXPECT_EQ(disk.memory.list_tree("out").value().size(), 1u);
}

TEST(CommitRecord, a_sweep_completes_what_a_dead_writer_promised) {
  PoorDisk disk;
  ASSERT_TRUE(write_file_atomic(disk.memory, "out/_tmp/part.promised", "promised").is_ok());
  disk.put_record(1, record_of("part.gone"));
  disk.put_record(2, record_of("part.promised"));
  const SweepReport report = disk.sweep();
  EXPECT_EQ(report.num_completed, 1);
  EXPECT_EQ(report.num_temporaries, 0);
  EXPECT_EQ(read_file(disk.memory, kObject).value(), "promised");
  EXPECT_EQ(disk.memory.list_tree("out").value().size(), 1u);
}

TEST(CommitRecord, a_promise_that_comes_late_replaces_nothing) {
  PoorDisk disk;
  ASSERT_EQ(disk.publish("first").value(), PublishOutcome::kPublished);
  ASSERT_TRUE(write_file_atomic(disk.memory, "out/_tmp/part.promised", "promised").is_ok());
  disk.put_record(1, record_of("part.promised"));
  const SweepReport report = disk.sweep();
  EXPECT_EQ(report.num_completed, 0);
  EXPECT_EQ(report.num_temporaries, 1);
  EXPECT_EQ(read_file(disk.memory, kObject).value(), "first");
  EXPECT_EQ(disk.memory.list_tree("out").value().size(), 1u);
}

TEST(CommitRecord, a_record_that_is_none_stops_the_publishing_and_is_named) {
  for (const char* text :
       {"", "{", "[]", "null", R"({"version":1})", R"({"version":1,"object":"part","contender":7,"body":""})",
        R"({"version":1,"object":"part","contender":"../../etc/x","body":""})",
        R"({"version":1,"object":"part","contender":"..","body":""})", R"({"version":1,"object":"part","contender":"","body":""})",
        R"({"version":1,"object":"part","contender":"%4","body":""})", R"({"version":1,"object":"part","contender":"%zz","body":""})",
        R"({"version":1,"object":"a/b","contender":"x","body":""})", R"({"version":0,"object":"part","contender":"x","body":""})",
        R"({"version":"1","object":"part","contender":"x","body":""})", R"({"version":1,"object":"other","contender":"x","body":""})"}) {
    SCOPED_TRACE(text);
    PoorDisk disk;
    disk.put_record(1, text);
    disk.sweep();
    const Result<PublishOutcome> outcome = disk.publish("rows");
    EXPECT_EQ(outcome.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(outcome.status().message(), HasSubstr("out/_tmp/part.commit-1"));
    EXPECT_FALSE(disk.memory.exists(kObject).value());
  }
}

TEST(CommitRecord, a_record_of_a_newer_version_is_left_alone) {
  PoorDisk disk;
  disk.put_record(1, R"({"version":2,"contender":{"new":"form"}})");
  disk.sweep();
  const Result<PublishOutcome> outcome = disk.publish("rows");
  EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(outcome.status().message(), HasSubstr("out/_tmp/part.commit-1 2 1"));
}

TEST(CommitRecord, keeps_every_byte_of_names_and_bodies) {
  std::string all_bytes;
  for (int byte = 255; byte >= 0; --byte) {
    all_bytes += byte == '/' ? '%' : static_cast<char>(byte);
  }
  MemoryFileSystem memory;
  const auto store = make_posix_store(memory, "memory");
  const CommitRecord mine{.contender = all_bytes, .body = all_bytes + "/"};
  const auto die = [](const Location&, const CommitRecord&) -> Result<Completion> { return Status::unavailable("died"); };
  EXPECT_FALSE(publish_by_record({store.get(), kObject}, mine, die).is_ok());
  CommitRecord seen;
  const auto complete = [&](const Location& object, const CommitRecord& record) -> Result<Completion> {
    EXPECT_EQ(object.path, kObject);
    seen = record;
    return Completion::kDone;
  };
  EXPECT_EQ(sweep_records({store.get(), "out"}, complete).value(), 1);
  EXPECT_EQ(seen, mine);
}

TEST(CommitRecord, says_when_its_own_contender_is_gone) {
  MemoryFileSystem memory;
  const auto store = make_posix_store(memory, "memory");
  const auto gone = [](const Location&, const CommitRecord&) -> Result<Completion> { return Completion::kGone; };
  const Result<PublishOutcome> outcome = publish_by_record({store.get(), kObject}, {.contender = "mine"}, gone);
  EXPECT_EQ(outcome.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome.status().message(), HasSubstr("memory://out/part"));
}

TEST(CommitRecord, knows_the_names_of_records) {
  for (const char* name : {"part.commit-1", "part.commit-10", "a.commit-1.commit-2", "part.commit-01"}) {
    EXPECT_TRUE(is_commit_record(name)) << name;
  }
  for (const char* name : {"part.commit-", "part.commit-1.x", ".commit-1", "part.commit--1", "part.commit-0",
                           "part.commit-99999999999999999999", "commit-1", "part", ""}) {
    EXPECT_FALSE(is_commit_record(name)) << name;
  }
}

}  // namespace
}  // namespace darkroom
