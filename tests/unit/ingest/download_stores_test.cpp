// Downloads of tables from, and into, stores of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>

#include "darkroom/files/claim.h"
#include "darkroom/ingest/job_cleaning.h"
#include "support/download_web.h"
#include "support/fake_hub.h"
#include "support/fake_s3.h"
#include "support/forwarding_files.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class DownloadStores : public ::testing::Test {
 protected:
  DownloadStores() {
    setenv("AWS_ACCESS_KEY_ID", s3_.keys.id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", s3_.keys.secret.c_str(), 1);
  }
  ~DownloadStores() override {
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
  }

  void start_web(int num_pictures) {
    for (int i = 0; i < num_pictures; ++i) {
      web_.add_picture(i);
    }
    web_.start();
  }
  std::string in_bucket(const std::string& key) const {
    return fmt::format("s3://{}/{}?endpoint_override={}&scheme=http", FakeS3::kBucket, key, s3_.endpoint());
  }
  std::map<std::string, std::string> parts_in_bucket(const std::string& folder) {
    std::map<std::string, std::string> parts;
    for (const std::string& key : s3_.keys_below(folder + "/part-")) {
      parts[key.substr(folder.size() + 1)] = *s3_.bytes_of(key);
    }
    return parts;
  }
  StageSummary download(const DownloadOptions& options) {
    auto summary = run_download(stores_, options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  std::map<std::string, std::string> parts_of_local_run() {
    download(web_.options(folder_.path("local")));
    return part_bytes(folder_.path("local"));
  }

  TemporaryFolder folder_;
  DownloadWeb web_;
  FakeS3 s3_;
  FakeHub hub_;
  MetricsRegistry metrics_;
  StoreSetOptions options_of_stores() {
    StoreSetOptions options;
    options.hub = [this]() -> Result<HubOptions> {
      HubOptions hub;
      hub.endpoint = hub_.endpoint();
      return hub;
    };
    return options;
  }
  StoreSet stores_{options_of_stores(), system_clock(), metrics_};
};

TEST_F(DownloadStores, a_bucket_gets_the_bytes_of_a_local_run) {
  start_web(23);
  const auto local = parts_of_local_run();
  const StageSummary summary = download(web_.options(in_bucket("out")));
  EXPECT_EQ(summary.rows_out, 23);
  EXPECT_EQ(parts_in_bucket("out"), local);
  EXPECT_EQ(s3_.num_uploads(), 0u);
  EXPECT_THAT(s3_.keys_below("out/_claims"), IsEmpty());
  EXPECT_EQ(nlohmann::json::parse(*s3_.bytes_of("out/_summary.json"))["rows_out"], 23);
  const int64_t requests_before = web_.web().num_requests();
  EXPECT_EQ(download(web_.options(in_bucket("out"))).rows_this_run, 0);
  EXPECT_EQ(web_.web().num_requests(), requests_before);
}

TEST_F(DownloadStores, a_run_into_a_bucket_that_is_stopped_goes_on) {
  start_web(47);
  const auto local = parts_of_local_run();
  std::stop_source stop;
  s3_.after = [stop](const FakeS3::Call& call) mutable {
    if (call.operation == "put" && call.key == "out/part-000001.parquet") {
      stop.request_stop();
    }
  };
  const DownloadOptions options = web_.options(in_bucket("out"));
  StageSummary stopped;
  EXPECT_EQ(run_download(stores_, options, stop.get_token(), stopped).code(), StatusCode::kCancelled);
  EXPECT_THAT(parts_in_bucket("out"), Not(IsEmpty()));
  for (const auto& [name, bytes] : parts_in_bucket("out")) {
    EXPECT_EQ(bytes, local.at(name)) << name;
  }
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_out, 47);
  EXPECT_EQ(parts_in_bucket("out"), local);
}

// Of both the beginning of a run, when it looks at what is there, and its work.
TEST_F(DownloadStores, a_stop_ends_a_run_whose_bucket_says_nothing_any_more) {
  start_web(23);
  for (const char* last : {"list", "put"}) {
    std::stop_source stop;
    const auto is_silent = std::make_shared<std::atomic<bool>>(false);  // Requests that a stop leaves may still ask for it.
    s3_.fault = [last, stop, is_silent](const FakeS3::Call& call) mutable {
      if (call.operation == last && (call.key.empty() || call.key.starts_with("out/part-"))) {
        *is_silent = true;
        stop.request_stop();
      }
      return *is_silent ? FakeS3::Fault::kHang : FakeS3::Fault::kNone;
    };
    StoreSet stores(options_of_stores(), system_clock(), metrics_, stop.get_token());
    StageSummary summary;
    const Status ended = run_download(stores, web_.options(in_bucket("out")), stop.get_token(), summary);
    EXPECT_EQ(ended.code(), StatusCode::kCancelled) << last << ": " << ended.to_string();
    EXPECT_TRUE(*is_silent) << last;
  }
  s3_.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  EXPECT_EQ(download(web_.options(in_bucket("out"))).rows_out, 23);
}

/// Files of which a table can no longer be read, once `is_working` and whoever opens it was let go.
class SpoiltTable final : public ForwardingFiles {
 public:
  explicit SpoiltTable(std::string table) : ForwardingFiles(local_files()), table_(std::move(table)) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (!*is_working || path != table_) {
      return ForwardingFiles::open_input(path);
    }
    is_opened.set_value();
    may_fail.get_future().wait();
    return Status::corrupt_data("a row group cannot be read:", path);
  }

  const std::shared_ptr<std::atomic<bool>> is_working = std::make_shared<std::atomic<bool>>(false);  // Shared with a server's thread.
  std::promise<void> is_opened;
  std::promise<void> may_fail;

 private:
  const std::string table_;
};

// The clock of the stores stands still: whoever waits for the bucket waits for ever.
TEST_F(DownloadStores, a_job_that_fails_otherwise_does_not_wait_for_a_bucket_out_of_reach) {
  start_web(20);
  web_.write_table(folder_.path("first.jsonl"), 0, 10);
  web_.write_table(folder_.path("second.jsonl"), 10, 20);
  SpoiltTable files(folder_.path("second.jsonl"));
  const auto spoilt = make_posix_store(files, "spoilt");
  const auto is_out = std::make_shared<std::atomic<bool>>(false);  // Requests that a stop leaves may still ask for it.
  const std::shared_future<void> is_opened = files.is_opened.get_future().share();
  s3_.fault = [is_out, is_opened, is_working = files.is_working](const FakeS3::Call& call) {
    if (call.operation == "put" && call.key == "out/_claims/000000") {
      *is_working = true;  // The inputs were counted.
    }
    if (call.operation == "put" && call.key == "out/part-000000.parquet") {
      is_opened.wait();
      *is_out = true;
    }
    return *is_out ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  StoreSetOptions options_of_set = options_of_stores();
  options_of_set.outage_patience = std::chrono::hours(12);
  options_of_set.others = {spoilt.get()};
  FakeClock clock;
  StoreSet stores(options_of_set, clock, metrics_);
  DownloadOptions options = web_.options(in_bucket("out") + "&tries=1");
  options.metadata = {folder_.path("first.jsonl"), "spoilt://" + folder_.path("second.jsonl")};
  auto job = std::async(std::launch::async, [&] { return run_download(stores, options, {}).status(); });
  ASSERT_TRUE(clock.await_waiting(1)) << "between two probes";
  files.may_fail.set_value();
  const auto is_over = [&](std::chrono::milliseconds patience) { return job.wait_for(patience) == std::future_status::ready; };
  EXPECT_TRUE(is_over(std::chrono::minutes(1)));
  while (!is_over(std::chrono::milliseconds(100))) {
    clock.advance(std::chrono::hours(1));
  }
  const Status ended = job.get();
  EXPECT_EQ(ended.code(), StatusCode::kCorruptData) << ended.to_string();
  EXPECT_THAT(ended.message(), HasSubstr("a row group cannot be read"));
  EXPECT_THAT(s3_.keys_below("out/_claims"), SizeIs(2)) << "they expire";
}

// What a machine leaves that dies in the middle: its claim, and an upload that nobody ends.
TEST_F(DownloadStores, cleaning_a_bucket_ends_the_uploads_of_the_dead) {
  start_web(23);
  download(web_.options(in_bucket("out")));
  const Location output = stores_.resolve(in_bucket("out"), Access::kWrite).value();
  auto pending = output.store->begin_object(output.path, "part-000002.parquet").value();
  const std::string much(20 << 20, 'x');
  ASSERT_TRUE(pending->write_text(much).is_ok());
  ASSERT_EQ(s3_.num_uploads(), 1u);
  ASSERT_TRUE(output.store->replace_small((output / "_claims" / "000002").path, R"({"owner":"lost","expires":1})").is_ok());
  const CleanReport report = clean_job(output, system_clock()).value();
  EXPECT_EQ(report.swept.num_uploads, 1);
  EXPECT_EQ(report.num_claims, 1);
  EXPECT_EQ(s3_.num_uploads(), 0u);
  EXPECT_THAT(s3_.keys_below("out/_claims"), IsEmpty());
  EXPECT_THAT(parts_in_bucket("out"), SizeIs(3));
}

TEST_F(DownloadStores, an_upload_of_more_than_a_day_is_spared_while_somebody_works_on_the_job) {
  start_web(23);
  const Location output = stores_.resolve(in_bucket("out"), Access::kWrite).value();
  auto pending = output.store->begin_object(output.path, "part-000007.parquet").value();
  ASSERT_TRUE(pending->write_text(std::string(20 << 20, 'x')).is_ok());
  const auto now = system_clock().wall();
  s3_.with_state([&](FakeS3Objects& objects) {
    for (auto& [id, upload] : objects.uploads) {
      upload.initiated = std::chrono::floor<std::chrono::seconds>(now - std::chrono::hours(30));
    }
  });
  const Location claim = output / "_claims" / "000007";
  ASSERT_EQ(take_claim(claim, "living", system_clock()).value(), ClaimHolder::kOurs);
  download(web_.options(in_bucket("out")));
  EXPECT_EQ(clean_job(output, system_clock())->swept.num_uploads, 0);
  EXPECT_EQ(s3_.num_uploads(), 1u);
  ASSERT_TRUE(release_claim(claim, "living").is_ok());
  EXPECT_EQ(clean_job(output, system_clock())->swept.num_uploads, 1);
}

TEST_F(DownloadStores, tables_may_lie_in_a_bucket_on_the_hub_or_on_a_web_server) {
  start_web(23);
  const auto local = parts_of_local_run();
  const std::string table = read_bytes(web_.table());
  const Location in_s3 = stores_.resolve(in_bucket("in/urls.jsonl"), Access::kWrite).value();
  ASSERT_TRUE(in_s3.store->replace_small(in_s3.path, table).is_ok());
  hub_.add("datasets/org/name", "main", {{"urls.jsonl", {.bytes = table}}});
  const ScriptedServer server([&](const ScriptedServer::Request& request) {
    return ScriptedServer::Answer{.bytes = ranged_answer(request, table, "ETag: \"1\"\r\n")};
  });
  for (const std::string& uri : {in_bucket("in"), in_bucket("in/*.jsonl"), std::string("hf://datasets/org/name@main/urls.jsonl"),
                                 server_url(server, "/urls.jsonl")}) {
    SCOPED_TRACE(uri);
    std::filesystem::remove_all(folder_.path("out"));
    DownloadOptions options = web_.options(folder_.path("out"));
    options.metadata = {uri};
    EXPECT_EQ(download(options).rows_out, 23);
    EXPECT_EQ(part_bytes(options.output), local) << "the table has the same name, size and rows";
  }
}

TEST_F(DownloadStores, what_can_only_be_read_is_refused_as_output) {
  start_web(1);
  for (const char* uri : {"hf://datasets/org/name", "https://example.org/out"}) {
    DownloadOptions options = web_.options(uri);
    const Status status = run_download(stores_, options, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << uri;
    EXPECT_THAT(status.message(), HasSubstr("can only be read"));
  }
}

TEST_F(DownloadStores, troubles_of_a_bucket_that_pass_change_nothing) {
  start_web(23);
  const auto local = parts_of_local_run();
  std::atomic<int> num_puts = 0;
  s3_.fault = [&](const FakeS3::Call& call) {
    const int number = call.operation == "put" && call.key == "out/part-000001.parquet" ? ++num_puts : 0;
    return number == 1 ? FakeS3::Fault::kInternal : number == 2 ? FakeS3::Fault::kLostReply : FakeS3::Fault::kNone;
  };
  EXPECT_EQ(download(web_.options(in_bucket("out"))).rows_out, 23);
  EXPECT_EQ(parts_in_bucket("out"), local);
  EXPECT_GE(num_puts, 3);
}

}  // namespace
}  // namespace darkroom
