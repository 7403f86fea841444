#include "darkroom/stores/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/stores/input_listing.h"
#include "s3_server.h"
#include "stores/s3_object_store.h"
#include "support/no_new_threads.h"

namespace darkroom {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Conditions = FakeS3::Conditions;
using S3Fault = FakeS3::Fault;

std::string name_of_conditions(Conditions conditions) {
  return conditions == Conditions::kEverywhere ? "everywhere" : conditions == Conditions::kPutOnly ? "put_only" : "none";
}

/// A store on a fake server; its parts are of 100 bytes.
class S3StoreTest : public testing::Test {
 public:
  explicit S3StoreTest(Conditions conditions = Conditions::kEverywhere) : server_(conditions) {}

 protected:
  std::unique_ptr<S3Store> make_store() { return std::make_unique<S3Store>(server_.make_client()); }
  static std::string at(const std::string& key) { return std::string(FakeS3::kBucket) + "/" + key; }
  Result<PublishOutcome> publish(const std::string& folder, const std::string& name, std::string_view text) {
    DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingObject> object, store_->begin_object(at(folder), name));
    DARKROOM_RETURN_IF_ERROR(object->write_text(text));
    return object->publish();
  }
  FakeS3& fake() { return server_.fake; }

  S3Server server_;
  std::unique_ptr<S3Store> store_ = make_store();
};

/// Every kind of server keeps the same contract, for as long as nobody else writes at the same instant.
class AnyS3 : public S3StoreTest, public testing::WithParamInterface<Conditions> {
 public:
  AnyS3() : S3StoreTest(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Servers, AnyS3, testing::Values(Conditions::kEverywhere, Conditions::kPutOnly, Conditions::kNone),
                         [](const auto& info) { return name_of_conditions(info.param); });

TEST_P(AnyS3, finds_out_how_its_server_publishes_with_eight_requests_once) {
  const FirstWins want = GetParam() == Conditions::kEverywhere ? FirstWins::kAtomic
                         : GetParam() == Conditions::kPutOnly  ? FirstWins::kCommitRecord
                                                               : FirstWins::kLookBefore;
  EXPECT_EQ(store_->first_wins(at("out")).value(), want);
  EXPECT_LE(fake().requests().size(), 10u);  // Eight, and one look for each 412.
  const size_t num_requests = fake().requests().size();
  EXPECT_EQ(store_->first_wins(at("out")).value(), want);
  EXPECT_EQ(fake().requests().size(), num_requests);
  EXPECT_THAT(fake().keys_below(), IsEmpty());
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_P(AnyS3, looks_before_where_the_server_refuses_conditions) {
  fake().state.refuses_conditions = true;
  const FirstWins want = GetParam() == Conditions::kEverywhere ? FirstWins::kAtomic
                         : GetParam() == Conditions::kPutOnly  ? FirstWins::kCommitRecord
                                                               : FirstWins::kLookBefore;
  EXPECT_EQ(store_->first_wins(at("out")).value(), want);
  EXPECT_EQ(publish("out", "part", "bytes").value(), PublishOutcome::kPublished);
  EXPECT_EQ(publish("out", "part", "other").value(), PublishOutcome::kAlreadyThere);
}

TEST_P(AnyS3, publishes_objects_of_every_size_around_its_parts) {
  for (const size_t size : {0u, 1u, 99u, 100u, 101u, 199u, 200u, 201u, 1009u}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>(i * 7 + size);
    }
    const std::string name = "part-" + std::to_string(size);
    auto object = store_->begin_object(at("out"), name).value();
    for (size_t i = 0; i < size; i += 33) {
      ASSERT_TRUE(object->write_text(std::string_view(bytes).substr(i, 33)).is_ok());
    }
    EXPECT_EQ(object->num_bytes(), static_cast<int64_t>(size));
    EXPECT_EQ(object->describe(), "s3://pictures/out/" + name);
    EXPECT_EQ(fake().bytes_of("out/" + name), std::nullopt);
    EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished) << size;
    object.reset();
    EXPECT_EQ(fake().bytes_of("out/" + name), bytes) << size;
    EXPECT_EQ(store_->read_small(at("out/" + name), 5000).value(), bytes);
    EXPECT_EQ(publish("out", name, "other").value(), PublishOutcome::kAlreadyThere) << size;
    EXPECT_EQ(publish("out", name, std::string(300, 'o')).value(), PublishOutcome::kAlreadyThere) << size;
    EXPECT_EQ(fake().state.past["out/" + name].size(), 1u) << size;
  }
  EXPECT_EQ(fake().num_uploads(), 0u);
  EXPECT_THAT(fake().keys_below("out/_tmp"), IsEmpty());
}

TEST_P(AnyS3, takes_names_of_any_bytes) {
  for (const std::string& name : {std::string("a b=+%?#&"), std::string("\xc3\xa4"), std::string("%41"), std::string("x.commit-1")}) {
    EXPECT_EQ(publish("o =%", name, name).value(), PublishOutcome::kPublished) << name;
    EXPECT_EQ(publish("o =%", name, std::string(300, 'x')).value(), PublishOutcome::kAlreadyThere) << name;
    EXPECT_EQ(store_->read_small(at("o =%/" + name), 100).value(), name);
  }
}

TEST_P(AnyS3, takes_everything_back_that_was_not_published) {
  {
    const auto small = store_->begin_object(at("out"), "small").value();
    ASSERT_TRUE(small->write_text("rows").is_ok());
    const auto large = store_->begin_object(at("out"), "large").value();
    ASSERT_TRUE(large->write_text(std::string(1000, 'x')).is_ok());
    EXPECT_EQ(fake().num_uploads(), 1u);
    const auto folder = store_->begin_folder(at("out"), "step").value();
    ASSERT_TRUE(store_->replace_small((folder->folder() / "weights").path, "bytes").is_ok());
  }
  EXPECT_THAT(fake().keys_below(), IsEmpty());
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_P(AnyS3, aborts_the_upload_of_an_object_that_is_unwound) {
  try {
    const auto object = store_->begin_object(at("out"), "large").value();
    ASSERT_TRUE(object->write_text(std::string(1000, 'x')).is_ok());
    throw std::runtime_error("stage failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(fake().num_uploads(), 0u);
  EXPECT_THAT(fake().keys_below("out/"), IsEmpty());
}

TEST_P(AnyS3, is_spoiled_by_a_part_that_fails_and_takes_it_back) {
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());
  fake().fault = [](const FakeS3::Call& call) { return call.operation == "upload_part" ? S3Fault::kInternal : S3Fault::kNone; };
  auto object = store_->begin_object(at("out"), "large").value();
  Status written;
  for (int i = 0; i < 10 && written.is_ok(); ++i) {
    written = object->write_text(std::string(100, 'x'));
  }
  EXPECT_EQ(written.code(), StatusCode::kUnavailable);
  EXPECT_EQ(object->write_text("more").to_string(), written.to_string());
  EXPECT_EQ(object->publish().status().to_string(), written.to_string());
  object.reset();
  EXPECT_EQ(fake().num_uploads(), 0u);
  EXPECT_THAT(fake().keys_below(), IsEmpty());
}

TEST_P(AnyS3, settles_a_lost_reply_of_whatever_publishes) {
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());
  for (const size_t size : {5u, 500u}) {
    for (const std::string operation : {"put", "complete"}) {
      const std::string name = fmt::format("{}-{}", operation, size);
      fake().fault = [&, left = std::make_shared<std::atomic<int>>(1)](const FakeS3::Call& call) {
        return call.operation == operation && (*left)-- > 0 ? S3Fault::kLostReply : S3Fault::kNone;
      };
      EXPECT_EQ(publish("out", name, std::string(size, 'a')).value(), PublishOutcome::kPublished) << name;
      fake().fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
      EXPECT_EQ(publish("out", name, std::string(size, 'b')).value(), PublishOutcome::kAlreadyThere) << name;
      for (const std::string& bytes : fake().with_state([&](FakeS3Objects& state) { return state.past["out/" + name]; })) {
        EXPECT_EQ(bytes, std::string(size, 'a')) << name;  // Without conditions a retry stores them once more.
      }
    }
  }
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_P(AnyS3, says_that_a_sweep_took_an_upload) {
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());
  auto object = store_->begin_object(at("out"), "large").value();
  ASSERT_TRUE(object->write_text(std::string(150, 'x')).is_ok());
  auto late = store_->begin_object(at("out"), "late").value();
  ASSERT_TRUE(late->write_text(std::string(350, 'x')).is_ok());
  const SweepReport young = store_->sweep(at("out"), hours(24), fake().state.now + hours(23)).value();
  EXPECT_EQ(young.num_uploads, 0);
  const SweepReport report = store_->sweep(at("out"), hours(24), fake().state.now + hours(25)).value();
  EXPECT_EQ(report.num_uploads, 2);
  EXPECT_EQ(fake().num_uploads(), 0u);
  EXPECT_THAT(object->publish().status().message(), HasSubstr("a sweep took the"));
  object.reset();
  EXPECT_EQ(publish("out", "large", "others").value(), PublishOutcome::kPublished);
  EXPECT_THAT(late->publish().status().message(), HasSubstr("a sweep took the"));
}

TEST_P(AnyS3, sweeps_what_is_old_and_its_own) {
  S3Client& client = store_->client();
  const auto begin = [&](const std::string& key) { ASSERT_TRUE(client.create_upload(in_bucket(key), "w").is_ok()); };
  begin("out/part");
  begin("out/_tmp/probe-1");
  begin("out/_tmp.step.abc/weights");
  begin("out/other/part");  // Of another folder.
  begin("outside");
  ASSERT_TRUE(store_->replace_small(at("out/_tmp/probe-2"), "x").is_ok());
  ASSERT_TRUE(store_->replace_small(at("out/_tmp.step.abc/config"), "x").is_ok());
  ASSERT_TRUE(store_->replace_small(at("out/_tmpdata"), "x").is_ok());  // Somebody's file.
  ASSERT_TRUE(store_->replace_small(at("out/data"), "x").is_ok());
  const SweepReport report = store_->sweep(at("out"), hours(24), fake().state.now + hours(25)).value();
  EXPECT_EQ(report.num_uploads, 3);
  EXPECT_EQ(report.num_temporaries, 2);
  EXPECT_EQ(report.num_completed, 0);
  EXPECT_THAT(fake().keys_below(), ElementsAre("out/_tmpdata", "out/data"));
  EXPECT_EQ(fake().num_uploads(), 2u);
  EXPECT_EQ(store_->sweep(at("nothing"), hours(24), fake().state.now).value().num_uploads, 0);
}

TEST_P(AnyS3, sweeps_nothing_of_which_nobody_knows_when_it_was_begun) {
  const OneUpload old = upload_text(store_->client(), "out/old", "bytes", "w");
  const OneUpload year_one = upload_text(store_->client(), "out/part", "bytes", "w");
  const OneUpload timeless = upload_text(store_->client(), "out/part", "bytes", "w");
  ASSERT_TRUE(store_->replace_small(at("out/_tmp.step.abc/weights"), "x").is_ok());
  ASSERT_TRUE(store_->replace_small(at("out/_tmp.step.def/weights"), "x").is_ok());
  fake().with_state([&](FakeS3Objects& state) {
    state.uploads[year_one.id].told_time = state.objects["out/_tmp.step.abc/weights"].told_time = "0001-01-01T00:00:00Z";
    state.uploads[timeless.id].told_time = state.objects["out/_tmp.step.def/weights"].told_time = "";
  });
  const Result<SweepReport> report = store_->sweep(at("out"), hours(0), fake().state.now + hours(1));
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_uploads, 1);
  EXPECT_EQ(report->num_temporaries, 0);
  EXPECT_EQ(fake().num_uploads(), 2u);
  EXPECT_EQ(fake().keys_below("out/_tmp.step").size(), 2u);
}

TEST_P(AnyS3, sweeps_uploads_where_the_server_lists_those_of_whole_keys_alone) {
  fake().lists_uploads_of_a_key = true;
  for (const char* key : {"out/part", "out/_tmp.part.abc/weights", "out/other/part", "outside", "o"}) {
    ASSERT_TRUE(store_->client().create_upload(in_bucket(key), "w").is_ok());
  }
  ASSERT_TRUE(store_->client().create_upload(in_bucket("out/second"), "w").is_ok());
  const auto now = fake().state.now + hours(25);
  EXPECT_EQ(store_->sweep(at("out"), hours(26), now).value().num_uploads, 0);
  EXPECT_EQ(store_->sweep_name(at("out/part"), hours(24), now).value().num_uploads, 2);
  EXPECT_EQ(store_->sweep(at("out"), hours(24), now).value().num_uploads, 1);
  EXPECT_EQ(store_->sweep_folders(at("out"), hours(24), now).value().num_uploads, 1);
  EXPECT_EQ(fake().num_uploads(), 2u);
}

TEST_P(AnyS3, sweeps_though_it_may_not_list_the_uploads_of_the_bucket) {
  fake().fault = [num_listings = std::make_shared<std::atomic<int>>(0)](const FakeS3::Call& call) {
    return call.operation == "list_uploads" && ++*num_listings > 1 ? S3Fault::kForbid : S3Fault::kNone;
  };
  const Result<SweepReport> report = store_->sweep(at("out"), hours(24), fake().state.now);
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(fake().num_calls("list_uploads"), 2);
}

TEST_P(AnyS3, makes_small_objects_once_and_replaces_them) {
  EXPECT_TRUE(store_->create_small(at("out/_claims/1"), "a").value());
  EXPECT_FALSE(store_->create_small(at("out/_claims/1"), "b").value());
  EXPECT_EQ(store_->read_small(at("out/_claims/1"), 10).value(), "a");
  ASSERT_TRUE(store_->replace_small(at("out/_claims/1"), "c").is_ok());
  EXPECT_EQ(store_->read_small(at("out/_claims/1"), 10).value(), "c");
  EXPECT_EQ(store_->read_small(at("out/_claims/1"), 0).status().code(), StatusCode::kCorruptData);
  EXPECT_TRUE(store_->remove(at("out/_claims/1")).is_ok());
  EXPECT_TRUE(store_->remove(at("out/_claims/1")).is_ok());
  EXPECT_TRUE(store_->create_small(at("out/_claims/1"), "d").value());
}

TEST_P(AnyS3, publishes_a_folder_with_its_record_last) {
  auto folder = store_->begin_folder(at("run"), "step-5").value();
  ASSERT_TRUE(store_->replace_small((folder->folder() / "weights").path, "w").is_ok());
  ASSERT_TRUE(store_->replace_small((folder->folder() / "unet/config =%.json").path, "c").is_ok());
  {
    const auto large = store_->begin_object(folder->folder().path, "ema").value();
    ASSERT_TRUE(large->write_text(std::string(500, 'e')).is_ok());
    EXPECT_EQ(large->publish().value(), PublishOutcome::kPublished);
  }
  EXPECT_THAT(fake().keys_below("run/step-5"), IsEmpty());
  std::atomic<bool> record_was_last = true;
  fake().after = [&](const FakeS3::Call& call) {
    if (call.operation == "copy") {
      record_was_last = record_was_last && !fake().bytes_of("run/step-5/state.json");
    }
  };
  EXPECT_EQ(folder->publish("state.json", "{}").value(), PublishOutcome::kPublished);
  folder.reset();
  EXPECT_TRUE(record_was_last);
  EXPECT_THAT(fake().keys_below(),
              ElementsAre("run/step-5/ema", "run/step-5/state.json", "run/step-5/unet/config =%.json", "run/step-5/weights"));
  auto second = store_->begin_folder(at("run"), "step-5").value();
  ASSERT_TRUE(store_->replace_small((second->folder() / "weights").path, "other").is_ok());
  EXPECT_EQ(second->publish("state.json", "{}").value(), PublishOutcome::kAlreadyThere);
  second.reset();
  EXPECT_EQ(fake().bytes_of("run/step-5/weights"), "w");
  EXPECT_EQ(fake().keys_below().size(), 4u);
  auto nameless = store_->begin_folder(at("run"), "step-6").value();
  EXPECT_EQ(nameless->publish("", "").status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(AnyS3, leaves_an_upload_to_the_sweep_when_nobody_answers_whether_it_is_visible) {
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());
  fake().fault = [](const FakeS3::Call& call) { return call.operation == "complete" ? S3Fault::kReset : S3Fault::kNone; };
  EXPECT_EQ(publish("out", "large", std::string(300, 'x')).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(fake().num_calls("abort"), GetParam() == Conditions::kNone ? 0 : 1);  // That of the probe.
  EXPECT_EQ(fake().num_uploads(), 1u);
  fake().fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
  const SweepReport report = store_->sweep(at("out"), hours(24), fake().state.now + hours(25)).value();
  EXPECT_EQ(report.num_completed, GetParam() == Conditions::kPutOnly ? 1 : 0);
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_F(S3StoreTest, takes_its_probe_back_when_one_of_its_requests_fails) {
  for (const std::string operation : {"create_upload", "upload_part", "complete"}) {
    fake().fault = [&](const FakeS3::Call& call) { return call.operation == operation ? S3Fault::kInternal : S3Fault::kNone; };
    EXPECT_EQ(store_->first_wins(at("out")).status().code(), StatusCode::kUnavailable) << operation;
    EXPECT_THAT(fake().keys_below(), IsEmpty()) << operation;
    EXPECT_EQ(fake().num_uploads(), 0u) << operation;
  }
}

TEST_P(AnyS3, says_once_that_two_writers_may_both_succeed) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());
  ASSERT_TRUE(store_->first_wins(at("other")).is_ok());
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("both may succeed");
  EXPECT_EQ(first != std::string::npos, GetParam() == Conditions::kNone) << said;
  EXPECT_EQ(said.find("both may succeed", first == std::string::npos ? 0 : first + 1), std::string::npos) << said;
}

TEST_F(S3StoreTest, stores_parts_where_no_thread_can_start) {
  ASSERT_TRUE(store_->first_wins(at("out")).is_ok());  // The connection stands, and the server's thread with it.
  const NoNewThreads none;
  EXPECT_EQ(publish("out", "large", std::string(500, 'x')).value(), PublishOutcome::kPublished);
  EXPECT_EQ(fake().bytes_of("out/large"), std::string(500, 'x'));
}

TEST_F(S3StoreTest, keeps_keys_with_empty_names_as_inputs) {
  for (const char* key : {"in//x.csv", "in/a/y.csv", "in/"}) {
    ASSERT_TRUE(store_->replace_small(at(key), "rows").is_ok());
  }
  EXPECT_TRUE(store_->stat(at("in/")).value().is_folder);  // Though a console has made an object of that name.
  const std::vector<InputObject> found = list_inputs_at({.store = store_.get(), .path = at("in")}, {}).value();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].place.path, at("in//x.csv"));
  EXPECT_EQ(found[1].place.path, at("in/a/y.csv"));
  for (const InputObject& object : found) {
    EXPECT_EQ(store_->read_small(object.place.path, 10).value(), "rows");
  }
}

TEST_F(S3StoreTest, lists_folders_and_trees_in_byte_order) {
  for (const std::string key : {"out/b", "out/a b", "out/c/1", "out/c/2", "out/c!", "other"}) {
    ASSERT_TRUE(store_->replace_small(at(key), key).is_ok());
  }
  ASSERT_TRUE(store_->replace_small(at("out/c/"), "").is_ok());  // How consoles show a folder.
  const std::vector<FileInfo> entries = store_->list(at("out")).value();
  EXPECT_THAT(entries,
              ElementsAre(FileInfo{at("out/a b"), 7}, FileInfo{at("out/b"), 5}, FileInfo{at("out/c"), 0, true}, FileInfo{at("out/c!"), 6}));
  EXPECT_EQ(store_->list(at("out/")).value(), entries);
  EXPECT_EQ(store_->list(at("nothing")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->list(FakeS3::kBucket).value().size(), 2u);
  fake().max_page = 2;
  std::vector<std::string> paths;
  size_t longest_page = 0;
  const auto page = [&](std::span<const FileInfo> files) {
    longest_page = std::max(longest_page, files.size());
    for (const FileInfo& file : files) {
      paths.push_back(file.path);
    }
    return Status::ok();
  };
  ASSERT_TRUE(store_->list_tree(at("out"), {}, page).is_ok());
  EXPECT_THAT(paths, ElementsAre(at("out/a b"), at("out/b"), at("out/c!"), at("out/c/1"), at("out/c/2")));
  EXPECT_EQ(longest_page, 2u);
  EXPECT_EQ(store_->list_tree(at("nothing"), {}, page).code(), StatusCode::kNotFound);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(store_->list_tree(at("out"), stop.get_token(), page).code(), StatusCode::kCancelled);
  EXPECT_EQ(store_->list_tree(at("out"), {}, [](auto) { return Status::internal("enough"); }).message(), "enough");
}

TEST_F(S3StoreTest, tells_objects_from_folders_and_a_missing_bucket_from_a_missing_object) {
  ASSERT_TRUE(store_->replace_small(at("out/a"), "12345").is_ok());
  EXPECT_EQ(store_->stat(at("out/a")).value(), (FileInfo{at("out/a"), 5}));
  EXPECT_EQ(store_->stat(at("out")).value(), (FileInfo{at("out"), 0, true}));
  EXPECT_EQ(store_->stat(FakeS3::kBucket).value().is_folder, true);
  EXPECT_EQ(store_->stat(at("ou")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->open_input(at("ou"), {}).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(store_->open_input(at("out"), {}).status().message(), HasSubstr("this is a folder"));
  for (const Status& missing : {store_->stat("nobody/x").status(), store_->open_input("nobody/x", {}).status(),
                                store_->list("nobody/x").status(), store_->create_small("nobody/x", "").status()}) {
    EXPECT_EQ(missing.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(missing.message(), HasSubstr("there is no such bucket"));
  }
}

TEST_F(S3StoreTest, reads_at_any_place_of_one_version) {
  std::string bytes(1'000'003, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 31 + i / 256);
  }
  ASSERT_TRUE(store_->replace_small(at("in"), bytes).is_ok());
  const auto file = store_->open_input(at("in"), {}).value();
  EXPECT_EQ(file->size_bytes(), 1'000'003);
  EXPECT_EQ(file->path(), at("in"));
  std::string out(100, '\0');
  EXPECT_EQ(file->read_at(999'953, std::as_writable_bytes(std::span(out))).value(), 50u);
  EXPECT_EQ(out.substr(0, 50), bytes.substr(999'953));
  EXPECT_EQ(file->read_at(2'000'000, std::as_writable_bytes(std::span(out))).value(), 0u);
  const ByteRange behind{.offset = 999'953, .num_bytes = 100};
  const std::span<std::byte> place = std::as_writable_bytes(std::span(out));
  EXPECT_EQ(file->read_ranges(std::span(&behind, 1), std::span(&place, 1)).code(), StatusCode::kCorruptData);
  const int num_gets = fake().num_calls("get");
  for (const ByteRange& range : {ByteRange{.offset = INT64_MAX - 1, .num_bytes = 100}, ByteRange{.offset = 1, .num_bytes = INT64_MAX},
                                 ByteRange{.offset = -1, .num_bytes = 100}, ByteRange{.offset = 0, .num_bytes = -1}}) {
    EXPECT_EQ(file->read_ranges(std::span(&range, 1), std::span(&place, 1)).code(), StatusCode::kCorruptData) << range.offset;
  }
  EXPECT_EQ(fake().num_calls("get"), num_gets);

  const int before = fake().num_calls("get");
  const std::vector<ByteRange> ranges = {
      {.offset = 900'000, .num_bytes = 10}, {.offset = 0, .num_bytes = 20}, {.offset = 30, .num_bytes = 5}};
  std::vector<std::string> got = {std::string(10, '\0'), std::string(20, '\0'), std::string(5, '\0')};
  std::vector<std::span<std::byte>> places;
  for (std::string& text : got) {
    places.push_back(std::as_writable_bytes(std::span(text)));
  }
  ASSERT_TRUE(file->read_ranges(ranges, places).is_ok());
  EXPECT_EQ(got[0], bytes.substr(900'000, 10));
  EXPECT_EQ(got[1], bytes.substr(0, 20));
  EXPECT_EQ(got[2], bytes.substr(30, 5));
  EXPECT_EQ(fake().num_calls("get") - before, 2);

  const auto known = store_->open_input(at("in"), 1'000'003).value();
  ASSERT_TRUE(known->read_at(0, place).is_ok());
  ASSERT_TRUE(store_->replace_small(at("in"), std::string(1'000'003, 'x')).is_ok());
  EXPECT_EQ(known->read_at(0, place).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->read_at(0, place).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->open_input(at("in"), 5).value()->read_at(0, place.first(5)).status().code(), StatusCode::kCorruptData);
}

TEST_F(S3StoreTest, reads_ends_in_one_request) {
  ASSERT_TRUE(store_->replace_small(at("in"), "0123456789").is_ok());
  ASSERT_TRUE(store_->replace_small(at("empty"), "").is_ok());
  const size_t before = fake().requests().size();
  const ObjectTail tail = store_->read_tail(at("in"), 4).value();
  EXPECT_EQ(fake().requests().size(), before + 1);
  EXPECT_EQ(tail.bytes, "6789");
  EXPECT_EQ(tail.size_bytes, 10);
  EXPECT_THAT(tail.version, Not(IsEmpty()));
  EXPECT_EQ(store_->read_tail(at("in"), 400).value().bytes, "0123456789");
  EXPECT_EQ(store_->read_tail(at("in"), 0).value().size_bytes, 10);
  EXPECT_EQ(store_->read_tail(at("empty"), 4).value().size_bytes, 0);
  EXPECT_EQ(store_->read_tail(at("none"), 4).status().code(), StatusCode::kNotFound);
}

TEST_F(S3StoreTest, moves_objects_and_can_do_it_again) {
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  ASSERT_TRUE(store_->move_object(at("from"), at("to")).is_ok());
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
  EXPECT_TRUE(store_->move_object(at("from"), at("to")).is_ok());
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  EXPECT_TRUE(store_->move_object(at("from"), at("to")).is_ok());  // Interrupted between its two steps.
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
  ASSERT_EQ(publish("up", "same", std::string(500, 's')).value(), PublishOutcome::kPublished);  // Another ETag, the same bytes.
  ASSERT_TRUE(store_->replace_small(at("same"), std::string(500, 's')).is_ok());
  EXPECT_TRUE(store_->move_object(at("same"), at("up/same")).is_ok());
  for (const std::string other : {"other", "bytez"}) {
    ASSERT_TRUE(store_->replace_small(at("from"), other).is_ok());
    EXPECT_EQ(store_->move_object(at("from"), at("to")).code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(fake().bytes_of("to"), "bytes");
    EXPECT_EQ(fake().bytes_of("from"), other);
  }
  EXPECT_EQ(store_->move_object(at("none"), at("none2")).code(), StatusCode::kNotFound);
}

TEST_F(S3StoreTest, moves_over_what_lies_there_and_never_over_what_another_has_just_moved) {
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  ASSERT_TRUE(store_->replace_small(at("to"), "stale").is_ok());
  std::atomic<int> num_copies = 0;
  fake().before = [&](const FakeS3::Call& call) {
    if (call.operation == "copy" && num_copies++ == 0) {
      fake().with_state([](FakeS3Objects& state) {
        state.copy("from", std::nullopt, "to");
        state.objects.erase("from");
      });
    }
  };
  EXPECT_TRUE(store_->move_over(at("from"), at("to")).is_ok());
  EXPECT_EQ(fake().bytes_of("to"), "bytes");
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
  fake().before = [](const FakeS3::Call&) {};
  ASSERT_TRUE(store_->replace_small(at("from"), "newer").is_ok());
  EXPECT_TRUE(store_->move_over(at("from"), at("to")).is_ok());
  EXPECT_EQ(fake().bytes_of("to"), "newer");
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
  EXPECT_TRUE(store_->move_over(at("from"), at("to")).is_ok()) << "done before";
  EXPECT_EQ(store_->move_over(at("none"), at("none2")).code(), StatusCode::kNotFound);
}

/// A store whose server copies no more than twenty bytes at once.
class S3LargeMoves : public S3StoreTest {
 protected:
  S3LargeMoves() {
    fake().with_state([](FakeS3Objects& state) { state.max_copy_bytes = 20; });
    S3Options options = server_.options();
    options.max_copy_bytes = 20;
    small_copies_ = std::make_unique<S3Store>(server_.make_client(options));
  }
  std::unique_ptr<Store> small_copies_;
  const std::string bytes_ = "an object of more than twenty bytes, " + std::string(200, 'x');
};

TEST_F(S3LargeMoves, moves_in_parts_what_is_larger_than_one_copy) {
  ASSERT_TRUE(small_copies_->replace_small(at("from"), bytes_).is_ok());
  const std::string writer = fake().with_state([](FakeS3Objects& state) { return state.objects["from"].writer; });
  const Status moved = small_copies_->move_object(at("from"), at("to/part"));
  ASSERT_TRUE(moved.is_ok()) << moved.to_string();
  EXPECT_THAT(fake().keys_below(), ElementsAre("to/part"));
  EXPECT_EQ(fake().bytes_of("to/part"), bytes_);
  EXPECT_EQ(fake().with_state([](FakeS3Objects& state) { return state.objects["to/part"].writer; }), writer);
  EXPECT_EQ(fake().num_calls("copy"), 0);
  EXPECT_EQ(fake().num_calls("copy_part"), static_cast<int>((bytes_.size() + 1) / 2)) << "a tenth of the limit each";
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_F(S3LargeMoves, ends_a_move_that_died_before_the_removal_without_reading_the_bytes) {
  ASSERT_TRUE(small_copies_->replace_small(at("from"), bytes_).is_ok());
  ASSERT_TRUE(small_copies_->move_object(at("from"), at("to")).is_ok());
  fake().with_state([](FakeS3Objects& state) {
    state.objects["from"] = state.objects["to"];
    state.objects["from"].etag = "\"another\"";  // An upload's.
  });
  EXPECT_TRUE(small_copies_->move_object(at("from"), at("to")).is_ok());
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
  EXPECT_EQ(fake().num_calls("get"), 0);
}

TEST_F(S3LargeMoves, leaves_no_upload_when_a_part_cannot_be_copied) {
  ASSERT_TRUE(small_copies_->replace_small(at("from"), bytes_).is_ok());
  std::atomic<int> num_changes = 0;
  fake().before = [&](const FakeS3::Call& call) {
    if (call.operation == "copy_part") {
      fake().with_state([&](FakeS3Objects& state) { state.objects["from"].etag = fmt::format("\"{}\"", ++num_changes); });
    }
  };
  EXPECT_EQ(small_copies_->move_object(at("from"), at("to")).code(), StatusCode::kFailedPrecondition);
  fake().before = [](const FakeS3::Call&) {};
  EXPECT_THAT(fake().keys_below(), ElementsAre("from"));
  EXPECT_EQ(fake().bytes_of("from"), bytes_);
  EXPECT_EQ(fake().num_uploads(), 0u);
}

TEST_F(S3StoreTest, moves_no_object_whose_version_the_store_does_not_tell) {
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  ASSERT_TRUE(store_->replace_small(at("to"), "other").is_ok());
  fake().with_state([](FakeS3Objects& state) { state.objects["from"].etag = state.objects["to"].etag = ""; });
  EXPECT_EQ(store_->move_object(at("from"), at("to")).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(fake().keys_below(), ElementsAre("from", "to"));
}

TEST_F(S3StoreTest, moves_no_object_onto_another_where_a_head_does_not_say_their_sizes) {
  fake().tells_size_to_head = false;
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  for (const std::string other : {"other", "longer"}) {
    ASSERT_TRUE(store_->replace_small(at("to"), other).is_ok());
    EXPECT_EQ(store_->move_object(at("from"), at("to")).code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(fake().keys_below(), ElementsAre("from", "to"));
  }
}

TEST_F(S3StoreTest, is_content_when_another_moves_the_object_between_its_look_and_its_copy) {
  ASSERT_TRUE(store_->replace_small(at("from"), "bytes").is_ok());
  fake().before = [&](const FakeS3::Call& call) {
    if (call.operation == "copy") {
      fake().with_state([](FakeS3Objects& state) {
        state.copy("from", std::nullopt, "to");
        state.objects.erase("from");
      });
    }
  };
  EXPECT_TRUE(store_->move_object(at("from"), at("to")).is_ok());
  EXPECT_THAT(fake().keys_below(), ElementsAre("to"));
}

TEST_F(S3StoreTest, removes_trees) {
  for (int i = 0; i < 25; ++i) {
    ASSERT_TRUE(store_->replace_small(at(fmt::format("out/{}/x", i)), "x").is_ok());
  }
  ASSERT_TRUE(store_->replace_small(at("outside"), "x").is_ok());
  fake().max_page = 10;
  EXPECT_TRUE(store_->remove_tree(at("out")).is_ok());
  EXPECT_THAT(fake().keys_below(), ElementsAre("outside"));
  EXPECT_TRUE(store_->remove_tree(at("out")).is_ok());
}

TEST_F(S3StoreTest, has_uris_without_secrets) {
  EXPECT_EQ(store_->scheme(), "s3");
  EXPECT_EQ(store_->uri_of(at("a b")), "s3://pictures/a b");
  EXPECT_EQ(store_->local_path(at("a")), std::nullopt);
  EXPECT_EQ((Location{.store = store_.get(), .path = at("a/b")}.parent() / "c").uri(), "s3://pictures/a/c");
}

// What a job does with its store, each by itself, at a moment when the server says nothing any more.
TEST(a_stop_of_an_s3_store, ends_whatever_waits_for_a_silent_server) {
  const std::map<std::string, std::function<Status(Store&)>> calls = {
      {"list", [](Store& store) { return store.list("pictures/out").status(); }},
      {"list_tree", [](Store& store) { return store.list_tree("pictures/out", {}, [](auto) { return Status::ok(); }); }},
      {"stat", [](Store& store) { return store.stat("pictures/out/a").status(); }},
      {"read_tail", [](Store& store) { return store.read_tail("pictures/out/a", 10).status(); }},
      {"read_small", [](Store& store) { return store.read_small("pictures/out/a", 10).status(); }},
      {"open_input", [](Store& store) { return store.open_input("pictures/out/a", std::nullopt).status(); }},
      {"first_wins", [](Store& store) { return store.first_wins("pictures/out").status(); }},
      {"create_small", [](Store& store) { return store.create_small("pictures/out/a", "x").status(); }},
      {"replace_small", [](Store& store) { return store.replace_small("pictures/out/a", "x"); }},
      {"move_object", [](Store& store) { return store.move_object("pictures/out/a", "pictures/out/b"); }},
      {"remove_tree", [](Store& store) { return store.remove_tree("pictures/out"); }},
      {"sweep", [](Store& store) { return store.sweep("pictures/out", std::chrono::hours(1), {}).status(); }},
      {"read_at", [](Store& store) {
         std::vector<std::byte> bytes(4);
         return store.open_input("pictures/out/a", 10).value()->read_at(0, bytes).status();
       }}};
  for (const auto& [name, call] : calls) {
    S3Server server;
    S3Store store(server.make_client());
    server.fake.fault = [stop = server.stop](const FakeS3::Call&) mutable {  // Its thread ends after the server's members.
      stop.request_stop();
      return S3Fault::kHang;
    };
    EXPECT_EQ(call(store).code(), StatusCode::kCancelled) << name;
    EXPECT_EQ(server.fake.requests().size(), 1u) << name;
    EXPECT_THAT(server.metrics.to_prometheus(), HasSubstr("result=\"stopped\"} 1\n")) << name;
  }
}

/// Options for tests of what is taken back from a server that answers, however late on a loaded machine.
S3Options patient(const S3Server& server) {
  S3Options options = server.options();
  options.least_patience = std::chrono::seconds(60);
  return options;
}

/// Parts are sent by threads of their own.
void wait_for_parts(S3Server& server, int num_parts) {
  const std::string want = fmt::format("{{op=\"upload_part\",result=\"ok\"}} {}\n", num_parts);
  while (server.metrics.to_prometheus().find(want) == std::string::npos) {
    std::this_thread::yield();
  }
}

TEST(a_stop_of_an_s3_store, takes_back_what_was_begun_where_the_server_answers) {
  S3Server server;
  S3Store store(server.make_client(patient(server)));
  ASSERT_TRUE(store.replace_small("pictures/out/claim", "ours").is_ok());
  auto object = store.begin_object("pictures/out", "large").value();
  ASSERT_TRUE(object->write_text(std::string(1000, 'x')).is_ok());
  ASSERT_EQ(server.fake.num_uploads(), 1u);
  wait_for_parts(server, 9);
  server.stop.request_stop();
  EXPECT_EQ(store.read_small("pictures/out/claim", 10).value(), "ours");
  server.clock.sleep_until(server.clock.now() + std::chrono::minutes(5), {});  // Another row was finished meanwhile.
  object.reset();
  EXPECT_EQ(server.fake.num_uploads(), 0u);
  EXPECT_TRUE(store.remove("pictures/out/claim").is_ok());
  EXPECT_THAT(server.fake.keys_below(), IsEmpty());
}

TEST(a_stop_of_an_s3_store, gives_many_claims_back_to_a_server_that_takes_long_for_each) {
  S3Server server;
  S3Store store(server.make_client(patient(server)));
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(store.replace_small(fmt::format("pictures/out/_claims/{}", i), "ours").is_ok());
  }
  server.fake.before = [&](const FakeS3::Call&) { server.clock.sleep_until(server.clock.now() + std::chrono::seconds(40), {}); };
  server.stop.request_stop();
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(store.remove(fmt::format("pictures/out/_claims/{}", i)).is_ok()) << i;
  }
  EXPECT_THAT(server.fake.keys_below(), IsEmpty());
}

TEST(a_stop_of_an_s3_store, gives_all_that_is_not_done_the_time_of_one) {
  S3Server server;
  S3Store store(server.make_client(patient(server)));
  ASSERT_TRUE(store.replace_small("pictures/out/claim", "ours").is_ok());
  server.fake.fault = [&](const FakeS3::Call&) {
    server.clock.sleep_until(server.clock.now() + std::chrono::seconds(61), {});
    return S3Fault::kInternal;
  };
  server.stop.request_stop();
  EXPECT_EQ(store.remove("pictures/out/claim").code(), StatusCode::kCancelled);
  const size_t num_requests = server.fake.requests().size();
  EXPECT_EQ(store.remove("pictures/out/claim").code(), StatusCode::kCancelled);
  EXPECT_EQ(server.fake.requests().size(), num_requests);
}

TEST(a_stop_of_an_s3_store, begins_no_part_of_an_upload) {
  S3Server server;
  S3Store store(server.make_client(patient(server)));
  auto object = store.begin_object("pictures/out", "large").value();
  ASSERT_TRUE(object->write_text(std::string(100, 'x')).is_ok());
  server.stop.request_stop();
  EXPECT_EQ(object->write_text("more").code(), StatusCode::kCancelled);
  EXPECT_EQ(object->publish().status().code(), StatusCode::kCancelled);
  object.reset();
  EXPECT_EQ(server.fake.requests().size(), 0u);
}

TEST(an_upload_that_is_given_up, is_aborted_ahead_of_the_queue_of_a_bucket_that_was_slowed_down) {
  S3Server server;
  const auto client = server.make_client(patient(server));
  const std::string id = client->create_upload(in_bucket("large"), "writer").value();
  server.fake.fault = [](const FakeS3::Call& call) { return call.operation == "get" ? S3Fault::kSlowDown : S3Fault::kNone; };
  EXPECT_EQ(client->get(in_bucket("other"), 10).status().code(), StatusCode::kUnavailable);
  const Clock::Instant before = server.clock.now();
  EXPECT_TRUE(client->abort(in_bucket("large"), id, S3Patience::kLeast).is_ok());
  EXPECT_EQ(server.fake.num_uploads(), 0u);
  EXPECT_EQ((server.clock.now() - before).count(), 0) << "it waited for a turn";
}

TEST(an_upload_that_is_given_up, is_not_aborted_because_a_request_from_before_a_silence_is_answered) {
  std::atomic<bool> has_arrived = false;
  std::atomic<bool> may_go_on = false;
  S3Server server;
  const auto client = server.make_client(patient(server));
  const std::string id = client->create_upload(in_bucket("part"), "writer").value();
  server.fake.before = [&](const FakeS3::Call& call) {
    if (call.operation == "upload_part") {
      has_arrived = true;
      has_arrived.notify_all();
      may_go_on.wait(false);
    }
  };
  server.fake.fault = [](const FakeS3::Call& call) { return call.operation == "abort" ? S3Fault::kReset : S3Fault::kNone; };
  Result<std::string> etag = Status::internal("not uploaded");
  const std::string bytes = "bytes";
  const std::span<const std::byte> piece = bytes_of(bytes);
  std::jthread part([&] { etag = client->upload_part(in_bucket("part"), id, 1, std::span(&piece, 1)); });
  has_arrived.wait(false);
  EXPECT_FALSE(client->abort(in_bucket("one"), "id", S3Patience::kLeast).is_ok());
  may_go_on = true;
  may_go_on.notify_all();
  part.join();
  ASSERT_TRUE(etag.is_ok()) << etag.status().to_string();
  EXPECT_THAT(client->abort(in_bucket("two"), "id", S3Patience::kLeast).message(), HasSubstr("was not tried"));
  server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
  ASSERT_TRUE(client->list_some(in_bucket(""), 1).is_ok());
  EXPECT_TRUE(client->abort(in_bucket("part"), id, S3Patience::kLeast).is_ok());
}

/// A store on a server like Ceph's.
class S3OnRadosgw : public S3StoreTest {
 protected:
  S3OnRadosgw() : S3StoreTest(Conditions::kPutOnly) {
    fake().state.is_radosgw = true;
    store_ = std::make_unique<S3Store>(server_.make_client(patient(server_)));
    EXPECT_EQ(store_->first_wins(at("out")).value(), FirstWins::kCommitRecord);
  }
  /// Leaves a commit record of an upload that is aborted.
  void leave_record(const std::string& name) {
    fake().fault = [](const FakeS3::Call& call) { return call.operation == "complete" ? S3Fault::kReset : S3Fault::kNone; };
    EXPECT_EQ(publish("out", name, "rows of a dead writer").status().code(), StatusCode::kUnavailable);
    fake().fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
    fake().with_state([](FakeS3Objects& state) { state.uploads.clear(); });
    ASSERT_THAT(fake().keys_below("out/_tmp"), ElementsAre("out/_tmp/" + name + ".commit-1"));
  }
};

TEST_F(S3OnRadosgw, is_not_blocked_by_a_record_whose_upload_is_gone) {
  leave_record("part");
  const int num_before = fake().num_calls("complete");
  const Result<PublishOutcome> outcome = publish("out", "part", "our rows");
  ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, PublishOutcome::kPublished);
  EXPECT_EQ(fake().num_calls("complete") - num_before, 2) << "the dead writer's, and ours";
  EXPECT_EQ(fake().bytes_of("out/part"), "our rows");
  EXPECT_THAT(fake().keys_below(), ElementsAre("out/part"));
}

TEST_F(S3OnRadosgw, sweeps_though_the_upload_of_a_record_is_gone) {
  leave_record("part");
  const Result<SweepReport> report = store_->sweep(at("out"), hours(24), fake().state.now);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_completed, 0);
  EXPECT_THAT(fake().keys_below(), ElementsAre("out/_tmp/part.commit-1"));
}

TEST_F(S3OnRadosgw, takes_a_completion_that_came_about_for_one_though_it_was_called_a_failure) {
  fake().fault = [left = std::make_shared<std::atomic<int>>(1)](const FakeS3::Call& call) {
    return call.operation == "complete" && (*left)-- > 0 ? S3Fault::kInternalDone : S3Fault::kNone;
  };
  const Result<PublishOutcome> outcome = publish("out", "part", "our rows");
  ASSERT_TRUE(outcome.is_ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, PublishOutcome::kPublished);
  EXPECT_THAT(fake().keys_below(), ElementsAre("out/part"));
}

class AbortedUploads : public testing::TestWithParam<bool> {};  // Whether a stop came first.
INSTANTIATE_TEST_SUITE_P(Stops, AbortedUploads, testing::Bool());

TEST_P(AbortedUploads, of_a_store_that_answers_nothing_any_more_are_tried_once_for_all_of_them) {
  for (const S3Fault fault : {S3Fault::kHang, S3Fault::kReset}) {
    std::mutex mutex;
    std::set<std::string> tried;  // Guarded by mutex; not how often, which a loaded machine may count late.
    S3Server server;
    const bool is_silent = fault == S3Fault::kHang;  // Its patience is waited for.
    S3Store store(server.make_client(is_silent ? server.options() : patient(server)));
    std::vector<std::unique_ptr<PendingObject>> objects;
    for (int i = 0; i < 8; ++i) {
      objects.push_back(store.begin_object("pictures/out", "large-" + std::to_string(i)).value());
      ASSERT_TRUE(objects.back()->write_text(std::string(1000, 'x')).is_ok());
    }
    ASSERT_EQ(server.fake.num_uploads(), 8u);
    wait_for_parts(server, 72);
    server.fake.fault = [&, fault](const FakeS3::Call& call) {
      const std::lock_guard hold(mutex);
      if (call.operation != "abort") {
        return S3Fault::kNone;
      }
      tried.insert(call.key);
      return fault;
    };
    if (GetParam()) {
      server.stop.request_stop();
    }
    objects.front().reset();
    objects.clear();
    {
      const std::lock_guard hold(mutex);
      EXPECT_THAT(tried, ElementsAre("out/large-0"));
    }
    EXPECT_EQ(server.fake.num_uploads(), 8u);
    server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
    if (!GetParam() && !is_silent) {  // An answer brings the next ones their tries back.
      auto late = store.begin_object("pictures/out", "late").value();
      ASSERT_TRUE(late->write_text(std::string(1000, 'x')).is_ok());
      late.reset();
      EXPECT_EQ(server.fake.num_uploads(), 8u);
    }
  }
}

TEST(make_s3_store, finds_keys_and_says_when_there_are_none) {
  S3Server server;
  S3Options options = server.options();
  options.profile = "no-such-profile-of-anybody";
  EXPECT_EQ(make_s3_store(options, {*server.http, server.clock}).status().code(), StatusCode::kFailedPrecondition);
  options.max_tries = 0;
  EXPECT_EQ(make_s3_store(options, {*server.http, server.clock}).status().code(), StatusCode::kInvalidArgument);
  options = server.options();
  options.anonymous = true;
  server.fake.is_anonymous = true;
  const auto store = make_s3_store(options, {*server.http, server.clock}).value();
  ASSERT_TRUE(store->replace_small("pictures/a", "bytes").is_ok());
  EXPECT_EQ(server.fake.bytes_of("a"), "bytes");
}

}  // namespace
}  // namespace darkroom
