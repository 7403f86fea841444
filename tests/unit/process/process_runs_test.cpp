// Process jobs in parts, in other stores, with other columns and with decoders of their own.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/stores/s3_store.h"
#include "darkroom/tables/tar_writer.h"
#include "process_fixture.h"
#include "support/fake_s3.h"
#include "support/leap_clock.h"
#include "support/other_stores.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string program_beside_tests(const std::string& name) { return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name; }

class ProcessRuns : public ProcessJob {
 protected:
  ProcessRuns() { networks_.states_shape = {77, 128}; }  // So that a store gets a part in pieces.
  void write_three_files() {
    for (int file = 0; file < 3; ++file) {
      write_images(PartName{.item = file}.text(), good_rows(17));
    }
  }
  std::map<std::string, std::string> parts_of(const std::string& output) { return part_bytes(folder_.path(output)); }
};

TEST_F(ProcessRuns, shards_of_a_job_give_the_parts_of_the_whole) {
  write_three_files();
  process(options("whole"));
  ProcessJobOptions job = options("shards");
  job.selection.num_shards = 2;
  EXPECT_EQ(process(job).rows_this_run, 30);  // Items 0, 2 and 4 of 10, 7, 10, 7, 10 and 7 rows.
  EXPECT_EQ(process(job).rows_this_run, 0);
  job.selection.shard = 1;
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_this_run, 21);
  EXPECT_EQ(summary.rows_in, 51);
  EXPECT_EQ(parts_of("shards"), parts_of("whole"));
}

TEST_F(ProcessRuns, only_the_items_asked_for_are_done) {
  write_three_files();
  process(options("whole"));
  ProcessJobOptions job = options();
  job.selection.items = {1, 4};
  EXPECT_EQ(process(job).num_parts, 2);
  const auto whole = parts_of("whole");
  const auto some = parts_of("latents");
  EXPECT_EQ(some.size(), 2u);
  for (const int item : {1, 4}) {
    const std::string name = PartName{.item = item}.text();
    EXPECT_EQ(some.at(name), whole.at(name));
  }
  job.selection.items = {6};
  EXPECT_THAT(failure(job).message(), HasSubstr("--items"));
}

TEST_F(ProcessRuns, row_groups_hold_256_rows_whatever_the_batch) {
  write_images("part-000000.parquet", good_rows(600));
  for (const int batch_size : {7, 64}) {
    ProcessJobOptions job = options(std::to_string(batch_size));
    job.transform.resolution = 8;
    job.rows_per_file = 1000;
    job.batch_size = batch_size;
    job.text = TextKind::kTokens;
    process(job);
    const TableFooter footer = *read_footer(local_files(), part(0, std::to_string(batch_size)));
    std::vector<int64_t> rows;
    for (const RowGroupInfo& group : footer.row_groups) {
      rows.push_back(group.num_rows);
    }
    EXPECT_THAT(rows, ElementsAre(256, 256, 88));
  }
}

// -- columns that are carried along -----------------------------------------------------------------------------------

TEST_F(ProcessRuns, columns_are_carried_along_with_the_rows_that_stay) {
  auto rows = good_rows(9);
  rows[1].image.clear();
  rows[5].caption = " ";
  write_images("part-000000.parquet", rows);
  ProcessJobOptions job = options();
  job.keep_columns = {"hash"};
  process(job);
  const auto table = read_table(part(0));
  EXPECT_EQ(table->schema()->fields().back()->name(), "hash");
  const auto& hashes = static_cast<const arrow::Int64Array&>(*table->GetColumnByName("hash")->chunk(0));
  std::vector<std::string> kept;
  for (int64_t i = 0; i < hashes.length(); ++i) {
    kept.push_back(hashes.IsNull(i) ? "null" : std::to_string(hashes.Value(i)));
  }
  EXPECT_THAT(kept, ElementsAre("0", "null", "33", "44", "66", "77", "null"));  // Of rows 0, 2, 3, 4, 6, 7 and 8.
  EXPECT_EQ(texts(*table, "key"),
            (std::vector<std::string>{row_key(0), row_key(2), row_key(3), row_key(4), row_key(6), row_key(7), row_key(8)}));
  job.keep_columns.clear();
  EXPECT_THAT(failure(job).message(), HasSubstr("keep_columns (had [\"hash\"]"));
}

TEST_F(ProcessRuns, pictures_can_be_carried_along) {
  const auto rows = good_rows(5);
  write_images("part-000000.parquet", rows);
  ProcessJobOptions job = options();
  job.keep_columns = {"image"};
  process(job);
  const auto pictures = texts(*read_table(part(0)), "image");
  ASSERT_EQ(pictures.size(), 5u);
  for (size_t i = 0; i < pictures.size(); ++i) {
    EXPECT_EQ(pictures[i], rows[i].image) << i;
  }
}

TEST_F(ProcessRuns, a_missing_column_is_named_with_those_that_exist) {
  write_images("part-000000.parquet", good_rows(2));
  ProcessJobOptions job = options();
  job.keep_columns = {"hash", "url"};
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("part-000000.parquet"), HasSubstr("key, caption, image, hash"), HasSubstr("url")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

TEST_F(ProcessRuns, columns_that_cannot_stand_beside_ours_are_refused) {
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"key"}, {"Caption"}, {"image_latents_64"}, {"CAPTION_IDS"}, {"hash", "hash"}, {"hash", "HASH"}, {""}}) {
    ProcessJobOptions job = options();
    job.keep_columns = names;
    EXPECT_EQ(job.validate().code(), StatusCode::kInvalidArgument) << names.back();
  }
}

TEST_F(ProcessRuns, a_column_of_two_types_is_refused_before_anything_is_written) {
  write_images("part-000000.parquet", good_rows(2));
  const auto schema =
      arrow::schema({arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8()), arrow::field("hash", arrow::utf8())});
  arrow::BinaryBuilder images;
  arrow::StringBuilder captions, hashes;
  ASSERT_TRUE((images.Append(numbered_png(1)) & captions.Append("a caption") & hashes.Append("x")).ok());
  const auto rows = arrow::RecordBatch::Make(schema, 1, {*images.Finish(), *captions.Finish(), *hashes.Finish()});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "part-000001.parquet", *rows).is_ok());
  ProcessJobOptions job = options();
  process(options("without"));
  job.keep_columns = {"hash"};
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("hash"), HasSubstr("part-000000.parquet"), HasSubstr("int64"),
                                      HasSubstr("part-000001.parquet"), HasSubstr("string")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

// They are one type of Parquet.
TEST_F(ProcessRuns, columns_that_differ_in_arrow_alone_are_two_types) {
  for (const auto& [name, type] : {std::pair{"part-000000.parquet", arrow::binary()}, {"part-000001.parquet", arrow::large_binary()}}) {
    const auto schema =
        arrow::schema({arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8()), arrow::field("hash", type)});
    arrow::BinaryBuilder images;
    arrow::StringBuilder captions;
    ASSERT_TRUE((images.Append(numbered_png(1)) & captions.Append("a caption")).ok());
    const std::shared_ptr<arrow::Scalar> hash = *arrow::MakeScalar(type, arrow::Buffer::FromString("hash"));
    const std::shared_ptr<arrow::Array> hashes = *arrow::MakeArrayFromScalar(*hash, 1);
    const auto rows = arrow::RecordBatch::Make(schema, 1, {*images.Finish(), *captions.Finish(), hashes});
    ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), name, *rows).is_ok());
  }
  ProcessJobOptions job = options();
  job.keep_columns = {"hash"};
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("part-000000.parquet"), HasSubstr("part-000001.parquet"), HasSubstr("large_binary")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

// -- other stores -----------------------------------------------------------------------------------------------------

constexpr auto kFollowLinks = std::filesystem::directory_options::follow_directory_symlink;

/// A server of S3 and the stores that reach it.
class S3Places {
 public:
  S3Places() { fake_.is_anonymous = true; }

  StoreSet& stores() { return stores_; }
  FakeS3& fake() { return fake_; }
  Status copy(const std::string& path, const std::string& uri) {
    DARKROOM_ASSIGN_OR_RETURN(const Location place, stores_.resolve(uri, Access::kWrite));
    return place.store->replace_small(place.path, read_bytes(path));
  }
  std::map<std::string, std::string> parts_below(const std::string& prefix) {
    std::map<std::string, std::string> parts;
    for (const std::string& key : fake_.keys_below(prefix + "/part-")) {
      parts[key.substr(prefix.size() + 1)] = *fake_.bytes_of(key);
    }
    return parts;
  }

 private:
  StoreSetOptions options() {
    StoreSetOptions options;
    options.make_s3 = [this](std::string_view, const StoreTools& tools) {
      return make_s3_store({.endpoint = fake_.endpoint(), .scheme = "http", .anonymous = true, .part_bytes = 20'000}, tools);
    };
    return options;
  }

  FakeS3 fake_;
  LeapClock clock_;
  MetricsRegistry metrics_;
  StoreSet stores_{options(), clock_, metrics_};
};

TEST_F(ProcessRuns, an_object_store_gets_the_parts_of_a_local_folder) {
  write_three_files();
  process(options());
  S3Places places;
  for (int file = 0; file < 3; ++file) {
    const std::string name = PartName{.item = file}.text();
    ASSERT_TRUE(places.copy(folder_.path("images/" + name), "s3://pictures/images/" + name).is_ok());
  }
  ProcessJobOptions job = options();
  job.input = "s3://pictures/images";
  job.output = "s3://pictures/latents";
  job.selection.limit = 23;
  const auto limited = run(places.stores(), job);
  ASSERT_TRUE(limited.is_ok()) << limited.status().to_string();
  job.selection.limit = -1;
  const auto summary = run(places.stores(), job);
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(summary->rows_in, 51);
  EXPECT_EQ(summary->rows_this_run, 51 - 17);
  EXPECT_EQ(places.parts_below("latents"), parts_of("latents"));
  EXPECT_EQ(places.fake().bytes_of("latents/_empty_caption.safetensors"), read_bytes(folder_.path("latents/_empty_caption.safetensors")));
  EXPECT_EQ(places.fake().num_uploads(), 0u);
  EXPECT_TRUE(places.fake().keys_below("latents/_claims").empty());

  job.output = folder_.path("here");  // From there to here.
  ASSERT_TRUE(run(places.stores(), job).is_ok());
  EXPECT_EQ(parts_of("here"), parts_of("latents"));
}

// What a download leaves of an item without a good row: nothing in it says which columns the others have.
TEST_F(ProcessRuns, a_job_over_tars_of_which_the_first_is_empty_goes_on_in_a_store) {
  S3Places places;
  for (int file = 0; file < 3; ++file) {
    std::string tar;
    TarWriter writer([&](std::span<const std::byte> bytes) {
      tar.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Status::ok();
    });
    for (int row = 0; row < (file == 0 ? 0 : 17); ++row) {
      const std::string sample = fmt::format("{:05}", row);
      ASSERT_TRUE(writer.add(sample + ".json", fmt::format(R"({{"url": "http://host/{}"}})", row)).is_ok());
      ASSERT_TRUE(writer.add(sample + ".png", numbered_png(row)).is_ok());
      ASSERT_TRUE(writer.add(sample + ".txt", "a caption").is_ok());
    }
    ASSERT_TRUE(writer.finish().is_ok());
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("part.tar"), tar).is_ok());
    ASSERT_TRUE(places.copy(folder_.path("part.tar"), fmt::format("s3://pictures/images/part-{:06}.tar", file)).is_ok());
  }
  ProcessJobOptions job = options();
  job.input = "s3://pictures/images";
  job.output = "s3://pictures/latents";
  job.keep_columns = {"url"};
  job.selection.limit = 20;
  const auto limited = run(places.stores(), job);
  ASSERT_TRUE(limited.is_ok()) << limited.status().to_string();
  job.selection.limit = -1;
  const auto summary = run(places.stores(), job);
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(summary->rows_out, 34);
}

TEST_F(ProcessRuns, a_dry_run_writes_nothing_and_knows_what_a_row_will_take) {
  write_images("part-000000.parquet", good_rows(200));
  ProcessJobOptions job = options();
  job.rows_per_file = 100;
  job.dry_run = true;
  StageSummary looked = process(job);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
  EXPECT_EQ(looked.num_items, 2);
  EXPECT_EQ(looked.num_pending, 2);
  const PendingWork before = looked.pending_work;
  EXPECT_EQ(before.num_rows, 200);
  EXPECT_GT(before.encoder_rows_per_second_low, 0);
  EXPECT_LE(before.encoder_rows_per_second_low, before.encoder_rows_per_second_high);
  EXPECT_GE(before.num_encoders, 1);
  EXPECT_FALSE(before.encodes_on_gpu);
  job.dry_run = false;
  process(job);
  job.dry_run = true;
  looked = process(job);
  EXPECT_EQ(looked.num_pending, 0);
  EXPECT_EQ(looked.pending_work.num_rows, 0);
  const double stored = static_cast<double>(looked.pending_work.part_bytes) / static_cast<double>(looked.pending_work.part_rows_out);
  EXPECT_NEAR(before.encoded_row_bytes / stored, 1, 0.05);
}

TEST_F(ProcessRuns, a_run_that_an_object_store_broke_goes_on) {
  write_three_files();
  process(options());
  S3Places places;
  ProcessJobOptions job = options();
  job.output = "s3://pictures/latents";
  places.fake().fault = [](const FakeS3::Call& call) {
    return call.operation == "complete" && call.key.ends_with("part-000003.parquet") ? FakeS3::Fault::kInternal : FakeS3::Fault::kNone;
  };
  const Status broken = run(places.stores(), job).status();
  EXPECT_EQ(broken.code(), StatusCode::kUnavailable) << broken.to_string();
  EXPECT_THAT(broken.message(), AllOf(HasSubstr("run the same command again"), HasSubstr("s3://pictures/latents")));
  places.fake().fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  const auto summary = run(places.stores(), job);
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(places.parts_below("latents"), parts_of("latents"));
}

// Every request to the store fails at first, each in its way, and runs are stopped while items of all kinds are open.
TEST_F(ProcessRuns, many_workers_on_a_troubled_store_make_the_parts_of_a_quiet_run) {
  for (int file = 0; file < 4; ++file) {
    auto rows = good_rows(31);
    rows[static_cast<size_t>(file)].image = "no picture";
    rows[9].image.resize(rows[9].image.size() / 2);
    rows[12].caption = "nan";
    rows[20].image.clear();
    write_images(PartName{.item = file}.text(), rows);
  }
  ProcessJobOptions job = options();
  job.keep_columns = {"hash"};
  job.num_readers = job.num_transformers = job.num_encoders = 1;
  const StageSummary quiet = process(job);
  S3Places places;
  std::mutex mutex;
  std::set<std::string> seen;
  places.fake().fault = [&](const FakeS3::Call& call) {
    const std::lock_guard hold(mutex);
    constexpr FakeS3::Fault kFaults[] = {FakeS3::Fault::kSlowDown, FakeS3::Fault::kReset, FakeS3::Fault::kInternal};
    const bool is_new = seen.insert(call.operation + call.key).second;
    return is_new ? kFaults[seen.size() % std::size(kFaults)] : FakeS3::Fault::kNone;
  };
  job.output = "s3://pictures/latents";
  job.num_readers = job.num_transformers = job.num_encoders = 3;
  job.batch_size = 4;
  for (const int stop_at : {3, 8, 14}) {
    std::stop_source stop;
    std::atomic<int> num_rows = 0;
    networks_.on_row = [&](const PreparedRow&) {
      if (++num_rows == stop_at * 4) {
        stop.request_stop();
      }
    };
    EXPECT_EQ(run(places.stores(), job, stop.get_token()).status().code(), StatusCode::kCancelled) << stop_at;
  }
  networks_.on_row = [](const PreparedRow&) {};
  const auto summary = run(places.stores(), job);
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(summary->rows_by_error, quiet.rows_by_error);
  EXPECT_EQ(places.parts_below("latents"), parts_of("latents"));
  EXPECT_GT(seen.size(), 20U);
}

TEST_F(ProcessRuns, a_failure_ends_the_job_with_batches_under_way_wherever_it_comes) {
  write_images("part-000000.parquet", good_rows(60));
  ProcessJobOptions job = options();
  job.output = "memory://latents";
  job.text = TextKind::kTokens;
  job.num_transformers = 2;
  job.num_encoders = 1;  // So that prepared batches wait for it.
  job.batch_size = 1;
  int num_failures = 0;
  for (int64_t call = 30; call < 150; call += 20) {
    MemoryFileSystem memory;
    FaultInjectingFileSystem faulty(memory);
    const std::unique_ptr<Store> store = make_posix_store(faulty, "memory");
    StoreSet stores(with_other_stores({store.get()}), system_clock(), metrics_);
    faulty.fail_call(call, Fault::kDeath);
    const Status failure = run(stores, job).status();
    num_failures += failure.is_ok() ? 0 : 1;
    faulty.heal();
    const auto summary = run(stores, job);
    ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
    EXPECT_EQ(summary->rows_out, 60);
  }
  EXPECT_GT(num_failures, 2);
}

TEST_F(ProcessRuns, an_input_that_is_replaced_after_it_was_looked_at_makes_no_part) {
  write_three_files();
  S3Places places;
  ProcessJobOptions job = options();
  job.output = "s3://pictures/latents";
  places.fake().before = [&](const FakeS3::Call& call) {
    if (call.key.ends_with("_job.json") && call.operation == "put") {  // All were looked at, and none is opened yet.
      auto rows = good_rows(17);
      rows[3].caption = "another caption";
      std::filesystem::remove(folder_.path("images/part-000001.parquet"));
      write_images("part-000001.parquet", rows);
    }
  };
  const Status status = run(places.stores(), job).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("replaced"), HasSubstr("part-000001.parquet")));
  for (const auto& [name, bytes] : places.parts_below("latents")) {
    EXPECT_THAT(name, testing::AnyOf("part-000000.parquet", "part-000001.parquet")) << "of the first file, or none";
  }
}

// -- decoders ---------------------------------------------------------------------------------------------------------

TEST_F(ProcessRuns, a_sandbox_changes_no_byte) {
  auto rows = good_rows(13);
  rows[3].image = "no picture";
  rows[6].image.resize(rows[6].image.size() / 2);
  write_images("part-000000.parquet", rows);
  for (const bool is_locked_in : {false, true}) {
    ProcessJobOptions job = options(is_locked_in ? "locked" : "here");
    job.transform.crop = Crop::kRandom;
    job.decoder_program = is_locked_in ? program_beside_tests("../darkroom-decoder") : "";
    job.num_visualized = 2;
    job.visualize_path = folder_.path(is_locked_in ? "locked.png" : "here.png");
    EXPECT_EQ(process(job).rows_by_error, (RowsByError{{"not_an_image", 1}, {"truncated", 1}}));
  }
  EXPECT_EQ(parts_of("locked"), parts_of("here"));
  EXPECT_EQ(read_bytes(folder_.path("locked.png")), read_bytes(folder_.path("here.png")));
}

TEST_F(ProcessRuns, a_decoder_that_dies_of_a_picture_costs_its_row) {
  auto rows = good_rows(9);
  rows[2].image = "PLANT:crash\n" + rows[2].image;
  rows[5].image = "PLANT:success\n" + rows[5].image;
  write_images("part-000000.parquet", rows);
  ProcessJobOptions job = options();
  job.decoder_program = program_beside_tests("planted_decoder");
  EXPECT_EQ(process(job).rows_by_error, (RowsByError{{"decode_failed", 2}}));
  EXPECT_EQ(texts(*read_table(part(0)), "key").size(), 7u);
}

TEST_F(ProcessRuns, a_missing_decoder_ends_the_job_before_anything_is_written) {
  write_images("part-000000.parquet", good_rows(2));
  ProcessJobOptions job = options();
  job.decoder_program = folder_.path("darkroom-decoder");
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("darkroom-decoder"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

// -- stops and hostile inputs -----------------------------------------------------------------------------------------

TEST_F(ProcessRuns, a_stop_ends_the_job_and_the_next_run_goes_on) {
  write_three_files();
  process(options("whole"));
  std::stop_source stop;
  stop.request_stop();
  const Status status = run(stores_, options(), stop.get_token()).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  process(options());
  EXPECT_EQ(parts_of("latents"), parts_of("whole"));
}

// While batches wait before the encoders, which are the slowest stage.
TEST_F(ProcessRuns, a_stop_in_the_middle_ends_the_job_and_the_next_run_goes_on) {
  write_images("a.parquet", good_rows(300));
  S3Places places;
  ProcessJobOptions job = options();
  job.output = "s3://pictures/latents";
  std::stop_source stop;
  places.fake().before = [stop](const FakeS3::Call& call) mutable {
    if (call.key.ends_with("part-000001.parquet") && call.operation != "head") {
      stop.request_stop();
    }
  };
  EXPECT_EQ(run(places.stores(), job, stop.get_token()).status().code(), StatusCode::kCancelled);
  places.fake().before = [](const FakeS3::Call&) {};
  const auto summary = run(places.stores(), job);
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(summary->rows_out, 300);
  EXPECT_GT(summary->rows_this_run, 0);
}

TEST_F(ProcessRuns, keys_with_invalid_text_are_repaired) {
  auto rows = good_rows(2);
  rows[1].key = "caf\xe9";
  write_images("part-000000.parquet", rows);
  process(options());
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), "caf\xEF\xBF\xBD"}));
}

}  // namespace
}  // namespace darkroom
