#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "s3_server.h"
#include "stores/s3_object_store.h"

namespace darkroom {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Conditions = FakeS3::Conditions;
using S3Fault = FakeS3::Fault;

std::string at(const std::string& key) { return std::string(FakeS3::kBucket) + "/" + key; }

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::string body_of(const std::string& source, const std::vector<std::string>& files) {
  std::string names;
  for (const std::string& file : files) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", hex(file));
  }
  return fmt::format(R"({{"folder":"{}","files":[{}],"record":"{}"}})", hex(source), names, hex("{}"));
}

/// A server that keeps to conditions, and writers of folders.
class S3FolderTest : public testing::Test {
 protected:
  FakeS3& fake() { return server_.fake; }
  void put(const std::string& key, const std::string& bytes) { ASSERT_TRUE(store_->replace_small(at(key), bytes).is_ok()); }
  std::unique_ptr<PendingFolder> begin(const std::string& name, const std::string& bytes) {
    auto folder = store_->begin_folder(at("run"), name).value();
    for (const char* file : {"weights", "unet/config"}) {
      EXPECT_TRUE(store_->replace_small((folder->folder() / file).path, bytes + file).is_ok());
    }
    return folder;
  }
  void die_after_the_record(const std::string& name, const std::string& bytes) {
    fake().fault = [](const FakeS3::Call& call) { return call.operation == "copy" ? S3Fault::kInternal : S3Fault::kNone; };
    EXPECT_EQ(begin(name, bytes)->publish("state", "{}").status().code(), StatusCode::kUnavailable);
    fake().fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
  }
  Result<SweepReport> sweep() { return store_->sweep(at("run"), hours(24), fake().state.now + hours(25)); }
  Result<Completion> complete(const std::string& object, const std::string& contender, const std::string& body) {
    return complete_s3_contender(*store_, {.store = store_.get(), .path = at(object)}, {.contender = contender, .body = body});
  }

  S3Server server_;
  std::unique_ptr<S3Store> store_ = std::make_unique<S3Store>(server_.make_client());
};

TEST_F(S3FolderTest, a_record_names_no_files_but_those_of_its_own_folder) {
  put("precious/weights", "p");
  put("run/_tmp.step.m1/weights", "w");
  put("run/_tmp.step.other/weights", "o");
  put("run/sub/_tmp.step.m1/weights", "s");
  const std::vector<std::string> before = fake().keys_below();
  for (const std::string& source : {at("precious"), at("run/_tmp.step.other"), at("run/sub/_tmp.step.m1"), at("run"), at("run/x.m1"),
                                    at("run//_tmp.step.m1"), at("run/_tmp.step.m1/"), std::string("_tmp.step.m1"), std::string()}) {
    EXPECT_EQ(complete("run/step/state", "m1", body_of(source, {"weights"})).status().code(), StatusCode::kCorruptData) << source;
    EXPECT_EQ(complete("run/step/state", "m1", body_of(source, {"gone"})).status().code(), StatusCode::kCorruptData) << source;
  }
  for (const char* file :
       {"../_tmp.step.other/weights", "a/../../../precious/weights", "a//b", "./weights", "/weights", "weights/", ".."}) {
    EXPECT_EQ(complete("run/step/state", "m1", body_of(at("run/_tmp.step.m1"), {file})).status().code(), StatusCode::kCorruptData) << file;
  }
  EXPECT_EQ(complete("run/step/state", "", body_of(at("run/_tmp.step."), {})).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(fake().keys_below(), before);
  EXPECT_EQ(complete("run/step/state", "m1", body_of(at("run/_tmp.step.m1"), {"weights"})).value(), Completion::kDone);
  EXPECT_EQ(fake().bytes_of("run/step/weights"), "w");
}

TEST_F(S3FolderTest, a_sweep_completes_what_a_dead_writer_recorded) {
  die_after_the_record("step", "dead ");
  EXPECT_THAT(fake().keys_below("run/step/"), ElementsAre("run/step/_tmp/state.commit-1"));
  EXPECT_EQ(sweep().value().num_completed, 1);
  EXPECT_THAT(fake().keys_below(), ElementsAre("run/step/state", "run/step/unet/config", "run/step/weights"));
  EXPECT_EQ(fake().bytes_of("run/step/weights"), "dead weights");
}

TEST_F(S3FolderTest, the_next_writer_completes_what_a_dead_one_recorded) {
  die_after_the_record("step", "dead ");
  EXPECT_EQ(begin("step", "other ")->publish("state", "{}").value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(fake().bytes_of("run/step/weights"), "dead weights");
  EXPECT_TRUE(fake().bytes_of("run/step/state").has_value());
}

TEST_F(S3FolderTest, a_sweep_keeps_what_a_record_names_that_it_could_not_complete) {
  die_after_the_record("step", "dead ");
  const std::vector<std::string> before = fake().keys_below();
  fake().fault = [](const FakeS3::Call& call) { return call.operation == "copy" ? S3Fault::kInternal : S3Fault::kNone; };
  EXPECT_EQ(sweep().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(fake().keys_below(), before);
  fake().fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
  EXPECT_EQ(sweep().value().num_completed, 1);
}

TEST_F(S3FolderTest, a_sweep_keeps_what_an_unreadable_record_may_name) {
  put("run/_tmp.step.m1/weights", "w");
  put("run/_tmp.other.m2/weights", "w");
  put("run/step/_tmp/state.commit-1", R"({"version":2})");
  EXPECT_EQ(sweep().value().num_temporaries, 1);
  EXPECT_THAT(fake().keys_below(), ElementsAre("run/_tmp.step.m1/weights", "run/step/_tmp/state.commit-1"));
}

TEST_F(S3FolderTest, one_bad_record_holds_up_no_other_object) {
  die_after_the_record("step", "dead ");
  const auto die = [](const Location&, const CommitRecord&) -> Result<Completion> { return Status::unavailable("died"); };
  const CommitRecord bad{.contender = "m1", .body = body_of(at("precious"), {"weights"})};
  EXPECT_FALSE(publish_by_record({.store = store_.get(), .path = at("run/bad/state")}, bad, die).is_ok());
  EXPECT_FALSE(publish_by_record({.store = store_.get(), .path = at("run/aaa")}, bad, die).is_ok());
  put("precious/weights", "p");
  EXPECT_EQ(sweep().status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(fake().bytes_of("run/step/weights"), "dead weights");
  EXPECT_EQ(fake().bytes_of("precious/weights"), "p");
}

TEST_F(S3FolderTest, a_sweep_removes_a_folder_on_its_way_whole_or_not_at_all) {
  put("run/_tmp.step.m1/old", "o");
  put("run/_tmp.step.m1/part.commit-1", "o");  // No record there.
  fake().with_state([](FakeS3Objects& state) { state.now += hours(10); });
  put("run/_tmp.step.m1/young", "y");
  put("run/_tmp/probe-1", "p");
  EXPECT_EQ(store_->sweep(at("run"), hours(24), fake().state.now + hours(20)).value().num_temporaries, 0);
  EXPECT_EQ(fake().keys_below("run/_tmp.step.m1/").size(), 3u);
  EXPECT_EQ(sweep().value().num_temporaries, 4);
  EXPECT_THAT(fake().keys_below(), IsEmpty());
}

TEST_F(S3FolderTest, a_sweep_of_one_name_takes_nothing_of_others) {
  const std::vector<std::string> of_others = {
      "run/a.b",        "run/ab", "run/other/weights", "run/_tmp.a.b.m1/weights", "run/_tmp.ab.m1/weights", "run/_tmp.a",
      "run/_tmp/probe", "a",      "run/sub/a"};
  const std::vector<std::string> ours = {"run/a", "run/a/weights", "run/a/unet/weights", "run/_tmp.a.m1/weights", "run/_tmp.a.m2/unet/w"};
  for (const auto& keys : {of_others, ours}) {
    for (const std::string& key : keys) {
      ASSERT_TRUE(store_->client().create_upload({.bucket = FakeS3::kBucket, .key = key}, "w").is_ok());
    }
  }
  for (const char* key : {"run/_tmp.a.m1/config", "run/_tmp.a.b.m1/config", "run/a.safetensors", "run/_tmp/probe-1"}) {
    put(key, "x");
  }
  const auto sweep_name = [&](const std::string& name, hours later) {
    return store_->sweep_name(at(name), hours(24), fake().state.now + later).value();
  };
  EXPECT_EQ(sweep_name("run/a", hours(23)).num_uploads, 0);
  const SweepReport report = sweep_name("run/a", hours(25));
  EXPECT_EQ(report.num_uploads, static_cast<int64_t>(ours.size()));
  EXPECT_EQ(report.num_temporaries, 1);
  EXPECT_EQ(fake().num_uploads(), of_others.size());
  EXPECT_THAT(fake().keys_below(), ElementsAre("run/_tmp.a.b.m1/config", "run/_tmp/probe-1", "run/a.safetensors"));
  EXPECT_EQ(sweep_name("a", hours(25)).num_uploads, 1) << "of the bucket itself";
  EXPECT_EQ(sweep_name("nothing/there", hours(25)).num_uploads, 0);
}

TEST_F(S3FolderTest, a_sweep_of_one_name_completes_what_a_dead_writer_recorded) {
  die_after_the_record("step", "dead ");
  EXPECT_EQ(store_->sweep_name(at("run/other"), hours(24), fake().state.now + hours(25)).value().num_completed, 0);
  EXPECT_EQ(store_->sweep_name(at("run/step"), hours(24), fake().state.now + hours(25)).value().num_completed, 1);
  EXPECT_EQ(fake().bytes_of("run/step/weights"), "dead weights");
}

TEST_F(S3FolderTest, copies_a_file_in_parts_that_is_larger_than_one_copy) {
  fake().with_state([](FakeS3Objects& state) { state.max_copy_bytes = 20; });
  S3Options options = server_.options();
  options.max_copy_bytes = 20;
  S3Store store(server_.make_client(options));
  const auto folder = store.begin_folder(at("run"), "step").value();
  const std::string large = "a file of more than twenty bytes";
  ASSERT_TRUE(store.replace_small((folder->folder() / "large").path, large).is_ok());
  ASSERT_TRUE(store.replace_small((folder->folder() / "small").path, "twenty bytes exactly").is_ok());
  EXPECT_EQ(folder->publish("state", "{}").value(), PublishOutcome::kPublished);
  EXPECT_EQ(fake().bytes_of("run/step/large"), large);
  EXPECT_EQ(fake().bytes_of("run/step/small"), "twenty bytes exactly");
  EXPECT_EQ(fake().num_calls("copy"), 1);
  EXPECT_EQ(fake().num_calls("copy_part"), 16);
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_F(S3FolderTest, a_sweep_of_folders_aborts_the_uploads_of_copies_that_died_within_them) {
  const auto begin_upload = [&](const char* key) { fake().with_state([&](FakeS3Objects& state) { state.create_upload(key, "writer"); }); };
  begin_upload("run/checkpoints/step/unet/weights");
  begin_upload("run/checkpoints/step/optimizer");
  fake().with_state([](FakeS3Objects& state) { state.now += hours(2); });
  begin_upload("run/checkpoints/step2/unet/weights");  // Of a living writer, perhaps.
  begin_upload("run/other/weights");
  const auto now = fake().state.now;
  EXPECT_EQ(store_->sweep(at("run/checkpoints"), hours(1), now).value().num_uploads, 0) << "what lies in folders may be a dataset";
  EXPECT_EQ(store_->sweep_folders(at("run/checkpoints"), hours(1), now).value().num_uploads, 2);
  EXPECT_EQ(fake().num_uploads(), 2u);
}

TEST_F(S3FolderTest, publishes_files_whose_names_only_look_like_temporary_ones) {
  auto folder = begin("step", "");
  for (const char* name : {"_tmpdata", "a/_tmpdata", "_tmp", "_tmp/left.commit-1", "a/_tmp/left", "_tmp.x.y/left", "a/_tmp.x.y/left"}) {
    ASSERT_TRUE(store_->replace_small((folder->folder() / name).path, name).is_ok());
  }
  EXPECT_EQ(folder->publish("state", "{}").value(), PublishOutcome::kPublished);
  folder.reset();
  EXPECT_THAT(fake().keys_below(), ElementsAre("run/step/_tmp", "run/step/_tmpdata", "run/step/a/_tmpdata", "run/step/state",
                                               "run/step/unet/config", "run/step/weights"));
}

TEST_F(S3FolderTest, says_that_the_store_takes_no_condition_any_more) {
  const auto folder = begin("step", "");
  ASSERT_TRUE(store_->first_wins(at("run")).is_ok());
  fake().before = [this](const FakeS3::Call& call) {
    if (call.operation == "copy") {
      fake().with_state([](FakeS3Objects& state) {
        state.conditions = Conditions::kNone;
        state.refuses_conditions = true;
      });
    }
  };
  EXPECT_EQ(folder->publish("state", "{}").status().code(), StatusCode::kFailedPrecondition);
}

/// A writer with a store of its own. Before each of its requests it asks for keys: there a test can stop it.
class FolderWriter {
 public:
  FolderWriter(S3Server& server, std::string bytes) : server_(server), bytes_(std::move(bytes)) {
    EXPECT_TRUE(store_.first_wins(at("run")).is_ok());
    num_requests = 0;
  }

  std::function<void()> before_request = [] {};
  int num_requests = 0;
  bool has_won = false;

  void publish() {
    has_won = false;
    const auto folder = store_.begin_folder(at("run"), "step").value();
    for (const char* file : {"weights", "config"}) {
      ASSERT_TRUE(store_.replace_small((folder->folder() / file).path, bytes_).is_ok());
    }
    const Result<PublishOutcome> outcome = folder->publish("state", bytes_);
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
    has_won = *outcome == PublishOutcome::kPublished;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  S3KeySource keys() {
    return [this, keys = server_.keys()](bool anew) {
      const std::lock_guard hold(mutex_);  // Copies go at once.
      ++num_requests;
      before_request();
      return keys(anew);
    };
  }

  S3Server& server_;
  const std::string bytes_;
  std::mutex mutex_;
  std::unique_ptr<HttpClient> http_ = HttpClient::start({.num_loops = 1}, server_.metrics).value();
  S3Store store_{std::make_unique<S3Client>(server_.options(), keys(), StoreTools{*http_, server_.clock})};
};

class S3FolderRace : public testing::TestWithParam<Conditions> {};
INSTANTIATE_TEST_SUITE_P(Servers, S3FolderRace, testing::Values(Conditions::kEverywhere, Conditions::kPutOnly));

TEST_P(S3FolderRace, keeps_one_folder_when_a_writer_pauses_before_any_of_its_requests) {
  S3Server server(GetParam());
  FolderWriter one(server, "one");
  FolderWriter other(server, "other");
  one.publish();
  const int num_steps = one.num_requests;
  ASSERT_GE(num_steps, 8);
  for (int step = 1; step <= num_steps; ++step) {
    server.fake.with_state([](FakeS3Objects& state) {
      state.objects.clear();
      state.past.clear();
    });
    one.before_request = [&, last = one.num_requests + step] {
      if (one.num_requests == last) {
        other.publish();
      }
    };
    one.publish();
    one.before_request = [] {};
    EXPECT_NE(one.has_won, other.has_won) << step;
    EXPECT_THAT(server.fake.keys_below(), ElementsAre("run/step/config", "run/step/state", "run/step/weights")) << step;
    const std::string& won = (one.has_won ? one : other).bytes();
    for (const char* key : {"run/step/config", "run/step/state", "run/step/weights"}) {
      for (const std::string& bytes : server.fake.state.past.at(key)) {
        EXPECT_EQ(bytes, won) << step << " " << key;
      }
    }
  }
}

}  // namespace
}  // namespace darkroom
