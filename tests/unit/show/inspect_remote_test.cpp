#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <utility>

#include "darkroom/feed/stored_run.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/image/png.h"
#include "darkroom/ingest/job_inputs.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/show/inspect.h"
#include "darkroom/show/run_report.h"
#include "support/fake_hub.h"
#include "support/fake_s3_stores.h"
#include "support/forwarding_files.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"
#include "support/trained_run.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Image datasets of three parts as a job of ours leaves them, with its summary.
class InspectRemote : public testing::Test {
 protected:
  static std::string part_name(int64_t item) { return fmt::format("part-{:06}.parquet", item); }
  void write_part(int64_t item, const std::string& name) {
    arrow::StringBuilder keys, captions;
    arrow::BinaryBuilder images;
    for (int64_t row = 0; row < 4; ++row) {
      ASSERT_TRUE(keys.Append(fmt::format("{:012}", 4 * item + row)).ok());
      ASSERT_TRUE(captions.Append("caption").ok());
      ASSERT_TRUE(images.Append(encode_png(Image::filled(40, 33, 3, static_cast<uint8_t>(row)))).ok());
    }
    const auto schema =
        arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
    const auto rows = arrow::RecordBatch::Make(schema, 4, {*keys.Finish(), *captions.Finish(), *images.Finish()});
    const std::string record =
        fmt::format(R"({{"job":"abc","identity":{{}},"item":{},"rows_in":4,"rows_out":4,"rows_by_error":{{}}}})", item);
    const auto written = put_shard(local_files(), folder_.path("images"), name, *rows, {{kShardKey, record}});
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
    summary_["parts"].push_back({{"name", name}, {"size_bytes", written->num_bytes}, {"content_hash", written->content_hash}});
  }
  void write_dataset(int64_t num_parts) {
    for (int64_t item = 0; item < num_parts; ++item) {
      write_part(item, part_name(item));
    }
    write_summary();
  }
  void write_summary() { ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/_summary.json"), summary_.dump()).is_ok()); }
  void remove(const std::string& name) { ASSERT_TRUE(local_files().remove_file(folder_.path("images/" + name)).is_ok()); }

  /// A job of one input of so many rows, four an item.
  void write_pins(int64_t num_rows) {
    std::filesystem::remove(folder_.path("images/_inputs.parquet"));
    const JobIdentity identity{.verb = "download", .fields = {{"a", 1}}, .rows_per_file = 4};
    const Location output{.store = &local_store(), .path = folder_.path("images")};
    const std::string job =
        nlohmann::json{{"version", kJobFormatVersion}, {"job", identity.hash()}, {"identity", identity.to_json()}}.dump();
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/_job.json"), job).is_ok());
    const JobInput input{.name = "urls.parquet", .size_bytes = 100, .tail_sha256 = "x", .num_rows = num_rows};
    const auto written = darkroom::write_pins(output, identity, 0, {input});
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }

  InspectReport verify_local() {
    auto report = inspect(local_files(), {.uri = folder_.path("images"), .verify = true}, {});
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report.is_ok() ? *report : InspectReport();
  }
  InspectReport look(const std::string& name, InspectOptions options = {}) {
    options.uri = FakeS3Stores::uri(name);
    auto report = inspect(s3_.set, options, {});
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report.is_ok() ? *report : InspectReport();
  }

  nlohmann::json summary_ = {{"version", 2}, {"job", "abc"}, {"parts", nlohmann::json::array()}};
  TemporaryFolder folder_;
  FakeS3Stores s3_;
};

TEST_F(InspectRemote, a_whole_dataset_has_no_damage) {
  write_dataset(3);
  EXPECT_THAT(verify_local().damage, IsEmpty());
  remove("_summary.json");
  EXPECT_THAT(verify_local().damage, IsEmpty());
}

TEST_F(InspectRemote, verify_finds_a_missing_part_by_the_summary) {
  write_dataset(3);
  remove(part_name(2));  // The last one: nothing else tells.
  EXPECT_THAT(verify_local().damage, ElementsAre(AllOf(HasSubstr("a part is missing"), HasSubstr("images/part-000002.parquet"))));
}

TEST_F(InspectRemote, a_part_that_was_replaced_since_the_summary_is_no_damage) {
  write_part(0, "part-000000-r00002.parquet");
  remove("part-000000-r00002.parquet");
  write_summary();
  write_part(0, part_name(0));
  EXPECT_THAT(verify_local().damage, IsEmpty());
}

TEST_F(InspectRemote, verify_finds_a_missing_part_by_its_item) {
  write_dataset(4);
  remove("_summary.json");
  remove(part_name(1));
  remove(part_name(2));
  EXPECT_THAT(verify_local().damage, ElementsAre(AllOf(HasSubstr("parts are missing"), HasSubstr("2 1, 2"))));
}

TEST_F(InspectRemote, verify_finds_missing_parts_at_the_end_by_the_pinned_list) {
  write_part(0, part_name(0));
  write_pins(20);  // Items of four rows: five.
  EXPECT_THAT(verify_local().damage,
              ElementsAre(AllOf(HasSubstr("parts are missing: 4 of 5 items have no part"), HasSubstr("1, 2, 3, 4"))));
  write_part(3, part_name(3));
  EXPECT_THAT(verify_local().damage, ElementsAre(AllOf(HasSubstr("3 of 5 items have no part"), HasSubstr("1, 2, 4"))));
  write_pins(12);
  EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("items before the last one have none")));
}

TEST_F(InspectRemote, verify_expects_no_more_than_a_run_was_asked_for) {
  write_dataset(3);
  write_pins(20);
  EXPECT_THAT(verify_local().damage, IsEmpty()) << "a run of three items ended well and left its summary";
  write_part(3, part_name(3));
  EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("1 of 5 items have no part"))) << "a later run has not ended";
  remove(part_name(3));
  remove("_summary.json");
  EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("2 of 5 items have no part")));
  remove(part_name(2));
  write_part(2, "part-000002-r00003.parquet");
  EXPECT_THAT(verify_local().damage, IsEmpty()) << "--limit cut the last item";
}

TEST_F(InspectRemote, a_damaged_pinned_list_is_a_finding) {
  write_dataset(3);
  write_pins(12);
  remove("_summary.json");
  EXPECT_THAT(verify_local().damage, IsEmpty());
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/_inputs.parquet"), "no list").is_ok());
  EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("the list of pinned inputs is damaged")));
}

TEST_F(InspectRemote, verify_finds_a_part_that_is_there_twice_and_one_that_is_another) {
  write_dataset(2);
  std::filesystem::copy(folder_.path("images/part-000001.parquet"), folder_.path("images/copy.parquet"));
  const InspectReport twice = verify_local();
  EXPECT_THAT(twice.damage, testing::Contains(HasSubstr("an item has two parts, so that its rows are there twice (item, parts): 1")));
  EXPECT_GT(twice.num_damages, 1) << "its keys, too";
  remove("copy.parquet");
  summary_["parts"][0]["content_hash"] = "other";
  write_summary();
  EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("a part is not the one that the job's summary lists")));
}

TEST_F(InspectRemote, verify_counts_what_a_part_far_away_leaves_out_and_names_an_item_that_cannot_be) {
  write_part(0, part_name(0));
  write_part(900'000'000'000, part_name(1));
  write_part(2'000'000'000'000'000'000, part_name(2));
  EXPECT_THAT(verify_local().damage, testing::UnorderedElementsAre(AllOf(HasSubstr("parts are missing"), HasSubstr("899999999999 1, 2, 3")),
                                                                   AllOf(HasSubstr("an item that no job has"),
                                                                         HasSubstr("part-000002.parquet 2000000000000000000"))));
}

TEST_F(InspectRemote, verify_names_a_summary_that_is_none) {
  write_dataset(1);
  for (const char* text : {"no json", "[]", R"({"parts": 1})", R"({"parts": [{"name": 1}]})"}) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/_summary.json"), text).is_ok());
    EXPECT_THAT(verify_local().damage, ElementsAre(HasSubstr("images/_summary.json"))) << text;
  }
}

TEST_F(InspectRemote, describes_and_verifies_a_dataset_of_s3) {
  write_dataset(3);
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "data/images").is_ok());
  const InspectReport report = look("data/images", {.verify = true});
  EXPECT_EQ(report.kind, "image dataset");
  EXPECT_THAT(report.damage, IsEmpty());
  EXPECT_EQ(report.summary["rows"], 12);
  EXPECT_EQ(report.summary["uri"], "s3://pictures/data/images");
  const InspectReport local = verify_local();
  EXPECT_EQ(report.summary["statistics"], local.summary["statistics"]);
  EXPECT_EQ(look("data/images/part-000001.parquet").summary["rows"], 4);
  EXPECT_EQ(look("data/images/part-*.parquet").summary["rows"], 12);
}

TEST_F(InspectRemote, verify_finds_damage_and_missing_parts_on_s3) {
  write_dataset(4);
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "images").is_ok());
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.erase("images/part-000003.parquet");
    state.objects.at("images/part-000000.parquet").bytes[40] ^= 1;
  });
  EXPECT_THAT(look("images", {.verify = true}).damage,
              testing::UnorderedElementsAre(AllOf(HasSubstr("is missing"), HasSubstr("s3://pictures/images/part-000003.parquet")),
                                            HasSubstr("s3://pictures/images/part-000000.parquet")));
}

/// The machine's files; calls back once, when a file of that name is opened for the n-th time.
class MeetingFiles final : public ForwardingFiles {
 public:
  MeetingFiles(std::string name, int number, std::function<void()> then)
      : ForwardingFiles(local_files()), name_(std::move(name)), number_(number), then_(std::move(then)) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (path.ends_with("images/" + name_) && ++num_opened == number_) {
      then_();
    }
    return ForwardingFiles::open_input(path);
  }
  int num_opened = 0;

 private:
  const std::string name_;
  const int number_;
  const std::function<void()> then_;
};

TEST_F(InspectRemote, verify_beside_a_retry_finds_no_damage) {
  const std::string g0 = "images/" + part_name(1), g1 = "images/part-000001-g1.parquet", aside = "images/_superseded/" + part_name(1);
  for (int number = 1; number < 20; ++number) {
    SCOPED_TRACE(number);
    ASSERT_TRUE(local_files().remove_tree(folder_.path("images")).is_ok());
    summary_["parts"].clear();
    write_dataset(3);
    MeetingFiles files(part_name(1), number, [&] {
      std::filesystem::copy(folder_.path(g0), folder_.path(g1));
      ASSERT_TRUE(local_files().create_folders(folder_.path("images/_superseded")).is_ok());
      std::filesystem::rename(folder_.path(g0), folder_.path(aside));
      write_part(3, part_name(3));  // And a plain run beside it.
      summary_["parts"][1]["name"] = "part-000001-g1.parquet";
      write_summary();
    });
    const auto report = inspect(files, {.uri = folder_.path("images"), .verify = true}, {});
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_THAT(report->damage, IsEmpty());
    EXPECT_EQ(report->summary["rows_studied"], 12);
    if (files.num_opened < number) {
      EXPECT_GT(number, 3);
      break;
    }
  }
  // What lies aside under the name of a part that is gone need not be it.
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(aside), "another job's").is_ok());
  MeetingFiles files(part_name(1), 2, [&] { std::filesystem::rename(folder_.path(g0), folder_.path("gone")); });
  const auto report = inspect(files, {.uri = folder_.path("images"), .verify = true}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_THAT(report->damage, testing::Contains(HasSubstr(g0)));
}

TEST_F(InspectRemote, verify_beside_a_retry_finds_no_damage_on_s3) {
  write_dataset(3);
  for (int number = 1; number < 40; ++number) {
    SCOPED_TRACE(number);
    s3_.fake.with_state([](FakeS3Objects& state) { state.objects.clear(); });
    ASSERT_TRUE(s3_.upload(folder_.path("images"), "images").is_ok());
    std::atomic<int> num_reads = 0;
    s3_.fake.before = [&](const FakeS3::Call& call) {
      const bool is_read = call.operation == "get" || call.operation == "head";
      if (is_read && call.key == "images/part-000001.parquet" && ++num_reads == number) {
        s3_.fake.with_state([](FakeS3Objects& state) {
          const auto part = state.objects.extract("images/part-000001.parquet");
          state.objects["images/part-000001-g1.parquet"] = part.mapped();
          state.objects["images/_superseded/part-000001.parquet"] = part.mapped();
        });
      }
    };
    const InspectReport report = look("images", {.verify = true});
    s3_.fake.before = [](const FakeS3::Call&) {};
    EXPECT_THAT(report.damage, IsEmpty());
    EXPECT_EQ(report.summary["rows_studied"], 12);
    if (num_reads < number) {
      EXPECT_GT(number, 2);
      break;
    }
  }
}

TEST_F(InspectRemote, verify_looks_for_the_parts_of_a_folder_however_its_address_is_written) {
  write_dataset(3);
  remove(part_name(2));
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "images").is_ok());
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "50%/images").is_ok());
  for (const char* name : {"images/", "images?region=us-east-1", "50%/images"}) {
    EXPECT_THAT(look(name, {.verify = true}).damage, ElementsAre(AllOf(HasSubstr("a part is missing"), HasSubstr("part-000002.parquet"))))
        << name;
  }
}

TEST_F(InspectRemote, describes_a_table_whose_address_is_signed) {
  write_dataset(1);
  const std::string bytes = *read_file(local_files(), folder_.path("images/" + part_name(0)));
  const ScriptedServer server([&](const ScriptedServer::Request& request) -> ScriptedServer::Answer {
    const bool is_signed = request.head.substr(0, request.head.find("\r\n")).find("/table.parquet?sig=s3cret ") != std::string::npos;
    return {is_signed ? ranged_answer(request, bytes, "ETag: \"1\"\r\n") : http_answer(403, "")};
  });
  const std::string address = server_url(server, "/table.parquet");
  const auto report = inspect(s3_.set, {.uri = address + "?sig=s3cret", .verify = true}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->summary["rows"], 4);
  EXPECT_EQ(report->summary["uri"], address);
  EXPECT_THAT(report->to_text(), Not(HasSubstr("s3cret")));
}

TEST_F(InspectRemote, writes_sheet_and_page_to_s3) {
  write_dataset(1);
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "images").is_ok());
  look("images", {.sheet_path = FakeS3Stores::uri("looks/sheet.png"), .html_path = FakeS3Stores::uri("looks/page.html")});
  EXPECT_TRUE(s3_.fake.bytes_of("looks/sheet.png")->starts_with("\x89PNG"));
  EXPECT_THAT(*s3_.fake.bytes_of("looks/page.html"), HasSubstr("image dataset"));
}

TEST_F(InspectRemote, says_what_is_not_there) {
  const Status failed = inspect(s3_.set, {.uri = FakeS3Stores::uri("nothing")}, {}).status();
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/nothing"));
}

/// A run as it lies on a store: of the local one what a remote one stores.
class InspectRemoteRun : public InspectRemote {
 protected:
  void store_run(const std::string& name) {
    trained_.train(name, 6);
    ASSERT_TRUE(s3_.upload(trained_.path(name), "runs/" + name).is_ok());
    s3_.fake.with_state([&](FakeS3Objects& state) {
      auto metrics = state.objects.extract("runs/" + name + "/metrics.jsonl");
      metrics.key() = "runs/" + name + "/" + metrics_part_name(6);
      state.objects.insert(std::move(metrics));
    });
  }
  TrainedRun trained_;
};

TEST_F(InspectRemoteRun, describes_and_verifies_a_run) {
  store_run("first");
  const InspectReport report = look("runs/first");
  EXPECT_EQ(report.kind, "run folder");
  EXPECT_EQ(report.summary["metrics"]["lines"], 6);
  EXPECT_EQ(report.summary["checkpoints"][0]["step"], 6);
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("runs/first/checkpoints/step-00000006/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  const InspectReport verified = look("runs/first", {.verify = true});
  ASSERT_EQ(verified.num_damages, 1);
  EXPECT_THAT(verified.damage[0], HasSubstr("s3://pictures/runs/first/checkpoints/step-00000006/ema"));
}

TEST_F(InspectRemoteRun, a_local_run_that_was_copied_to_a_store_has_its_metrics) {
  trained_.train("first", 6);
  ASSERT_TRUE(s3_.upload(trained_.path("first"), "runs/first").is_ok());
  EXPECT_EQ(look("runs/first").summary["metrics"]["lines"], 6);
  look("runs/first", {.compare = FakeS3Stores::uri("runs/first")});
}

TEST_F(InspectRemoteRun, describes_a_checkpoint_without_fetching_its_weights) {
  store_run("first");
  const size_t before = s3_.fake.requests().size();
  const InspectReport report = look("runs/first/checkpoints/step-00000006");
  EXPECT_EQ(report.kind, "checkpoint");
  EXPECT_EQ(report.summary["step"], 6);
  EXPECT_EQ(report.summary["components"]["unet"]["parameters"], trained_.parameters());
  const auto requests = s3_.fake.requests();
  for (size_t i = before; i < requests.size(); ++i) {
    const std::string& head = requests[i].head;
    if (head.starts_with("GET ") && head.find(".safetensors") != std::string::npos) {
      EXPECT_NE(head.find("bytes=0-"), std::string::npos) << "no more than the begin: " << head;
    }
  }
  EXPECT_THAT(look("runs/first/checkpoints/step-00000006", {.verify = true}).damage, IsEmpty());
}

TEST_F(InspectRemoteRun, compares_and_reports_runs) {
  store_run("first");
  store_run("second");
  const InspectReport report =
      look("runs/first", {.html_path = FakeS3Stores::uri("looks/both.html"), .compare = FakeS3Stores::uri("runs/second")});
  EXPECT_THAT(report.to_text(), AllOf(HasSubstr("first"), HasSubstr("second")));
  s3_.fake.with_state([&](FakeS3Objects& state) {  // Trained on a dataset of a store.
    std::string& facts = state.objects.at("runs/first/run.json").bytes;
    const std::string here = trained_.path("latents");
    facts.replace(facts.find(here), here.size(), "s3://pictures/latents");
  });
  const Status written = write_run_report(s3_.set, FakeS3Stores::uri("runs/first"));
  ASSERT_TRUE(written.is_ok()) << written.to_string();
  EXPECT_THAT(*s3_.fake.bytes_of("runs/first/report.html"), AllOf(HasSubstr("first"), Not(HasSubstr("darkroom-scratch"))));
  EXPECT_EQ(write_run_report(s3_.set, FakeS3Stores::uri("runs/none")).code(), StatusCode::kNotFound);
}

TEST_F(InspectRemoteRun, describes_and_verifies_a_model) {
  store_run("first");
  ASSERT_TRUE(s3_.upload(trained_.path("model"), "model").is_ok());
  EXPECT_EQ(look("model").kind, "model folder");
  EXPECT_THAT(look("model", {.verify = true}).damage, IsEmpty());
  EXPECT_EQ(look("model/unet", {.verify = true}).summary["components"].size(), 1U);
}

TEST_F(InspectRemoteRun, other_forms_of_the_weights_are_not_fetched) {
  store_run("first");
  ASSERT_TRUE(s3_.upload(trained_.path("model"), "model").is_ok());
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.put("model/v1-5.ckpt", "a pickle", "", false);
    state.put("model/unet/diffusion_pytorch_model.bin", "a pickle", "", false);
  });
  s3_.fake.fault = [](const FakeS3::Call& call) {
    const bool is_pickle = call.operation == "get" && (call.key.ends_with(".ckpt") || call.key.ends_with(".bin"));
    EXPECT_FALSE(is_pickle) << call.key;
    return FakeS3::Fault::kNone;
  };
  EXPECT_EQ(look("model").kind, "model folder");
  EXPECT_THAT(look("model", {.verify = true}).damage, IsEmpty());
}

}  // namespace
}  // namespace darkroom
