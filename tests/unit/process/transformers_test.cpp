#include <arrow/api.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "darkroom/process/transform_service.h"
#include "darkroom/slices/slice_fleet.h"
#include "process/transformed_slice.h"
#include "process_fixture.h"
#include "support/packed_stream.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

/// A transformer on a thread of this process, until it goes.
class RunningTransformer {
 public:
  RunningTransformer(StoreSet& stores, TransformServiceOptions options) {
    std::promise<SocketAddress> listens;
    auto address = listens.get_future();
    thread_ =
        std::jthread([this, &stores, options = std::move(options), listens = std::move(listens)](const std::stop_token& stop) mutable {
          bool is_told = false;
          const auto tell = [&](const SocketAddress& at) {
            is_told = true;
            listens.set_value(at);
            return Status::ok();
          };
          ended_ = serve_transforms(stores, options, tell, stop, counts_);
          if (!is_told) {
            listens.set_value({});
          }
        });
    address_ = address.get().to_string();
  }

  const std::string& address() const { return address_; }
  SliceServerCounts end() {
    thread_.request_stop();
    thread_.join();
    EXPECT_TRUE(ended_.is_ok()) << ended_.to_string();
    return counts_;
  }

 private:
  Status ended_;
  SliceServerCounts counts_;
  std::string address_;
  std::jthread thread_;
};

class Transformers : public ProcessJob {
 protected:
  static TransformServiceOptions service_of(const ProcessJobOptions& job) {
    return {.input = job.input,
            .transform = job.transform,
            .seed = job.seed,
            .caption_column = job.caption_column,
            .keep_columns = job.keep_columns,
            .num_workers = 2,
            .address = *parse_listen_address("127.0.0.1:0")};
  }
  /// Rows of each kind of failure, and an item of which none is good.
  static std::vector<ImageRow> mixed_rows() {
    std::vector<ImageRow> rows = good_rows(47);
    for (size_t i = 20; i < 30; ++i) {
      rows[i].image = "no picture";
    }
    rows[1].image = "no picture";
    rows[3].caption = "  ";
    rows[4].image.clear();
    rows[5].caption = "broken \xff utf-8";
    return rows;
  }
  ProcessJobOptions job(const std::string& output) {
    ProcessJobOptions job = options(output);
    job.text = TextKind::kBoth;
    job.transform.crop = Crop::kRandom;
    job.seed = 5;
    job.keep_columns = {"hash"};
    job.transformer_patience = std::chrono::milliseconds(20'000);
    return job;
  }
  /// Names of all that lies in a job's output.
  std::vector<std::string> file_names(const std::string& output) const {
    std::vector<std::string> names;
    if (std::filesystem::exists(folder_.path(output))) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path(output))) {
        names.push_back(entry.path().string());
      }
    }
    std::ranges::sort(names);
    return names;
  }
  std::vector<std::string> parts(const std::string& output) const {
    std::vector<std::string> bytes;
    for (int item = 0; item < 5; ++item) {
      bytes.push_back(*read_file(local_files(), part(item, output)));
    }
    return bytes;
  }
};

TEST_F(Transformers, a_job_writes_the_parts_that_it_writes_alone) {
  write_images("part-000000.parquet", mixed_rows());
  const StageSummary alone = process(job("alone"));
  std::atomic<int> num_drained = 0;
  TransformServiceOptions first = service_of(job(""));
  first.on_drained = [&] { ++num_drained; };
  RunningTransformer one(stores_, first);
  RunningTransformer other(stores_, service_of(job("")));
  ProcessJobOptions apart = job("apart");
  apart.transformers = one.address() + "," + other.address();
  apart.decoder_program = "/no/such/decoder";  // It has none, and wants none.
  const StageSummary summary = process(apart);
  EXPECT_EQ(parts("apart"), parts("alone"));
  EXPECT_EQ(summary.rows_out, alone.rows_out);
  EXPECT_EQ(summary.rows_by_error, alone.rows_by_error);
  EXPECT_EQ(summary.num_invalid_captions, alone.num_invalid_captions);
  EXPECT_EQ(num_drained.load(), 0);
  EXPECT_EQ(one.end().rows + other.end().rows, 47);
  EXPECT_EQ(num_drained.load(), 1);
}

TEST_F(Transformers, a_transformer_of_other_flags_or_of_another_dataset_is_refused) {
  write_images("part-000000.parquet", good_rows(12));
  TransformServiceOptions other = service_of(job(""));
  other.seed = 6;
  RunningTransformer transformer(stores_, other);
  ProcessJobOptions apart = job("apart");
  apart.transformers = transformer.address();
  EXPECT_THAT(failure(apart).message(), HasSubstr("seed"));
  transformer.end();

  RunningTransformer early(stores_, service_of(job("")));
  write_images("part-000001.parquet", good_rows(3));
  apart = job("grown");
  apart.transformers = early.address();
  EXPECT_THAT(failure(apart).message(), HasSubstr("image dataset"));
  early.end();
}

TEST_F(Transformers, a_kept_column_with_a_dictionary_within_is_refused_on_both_sides) {
  const auto type = arrow::list(arrow::dictionary(arrow::int32(), arrow::utf8()));
  const auto schema =
      arrow::schema({arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8()), arrow::field("tags", type)});
  arrow::BinaryBuilder images;
  arrow::StringBuilder captions;
  ASSERT_TRUE((images.Append(numbered_png(1)) & captions.Append("a caption")).ok());
  const auto row = arrow::RecordBatch::Make(schema, 1, {*images.Finish(), *captions.Finish(), *arrow::MakeArrayOfNull(type, 1)});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "part-000000.parquet", *row).is_ok());
  ProcessJobOptions alone = job("alone");
  alone.keep_columns = {"tags"};
  process(alone);
  ProcessJobOptions apart = job("apart");
  apart.keep_columns = {"tags"};
  apart.transformers = "127.0.0.1:1";
  SliceServerCounts counts;
  const auto do_not_serve = [](const SocketAddress&) { return Status::unavailable("it would serve"); };
  for (const Status& status : {failure(apart), serve_transforms(stores_, service_of(apart), do_not_serve, {}, counts)}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("tags"), HasSubstr("--transformers"), HasSubstr("dictionary<")));
  }
  EXPECT_THAT(file_names("apart"), IsEmpty());
}

TEST_F(Transformers, a_job_that_was_begun_alone_goes_on_with_them) {
  write_images("part-000000.parquet", mixed_rows());
  process(job("alone"));
  ProcessJobOptions apart = job("apart");
  apart.selection.items = {1, 3};
  process(apart);
  RunningTransformer transformer(stores_, service_of(job("")));
  apart.selection.items = {};
  apart.transformers = transformer.address();
  process(apart);
  EXPECT_EQ(parts("apart"), parts("alone"));
  EXPECT_EQ(transformer.end().rows, 27);
}

TEST_F(Transformers, those_that_list_files_which_came_later_end_a_job_before_it_writes_and_say_why) {
  write_images("part-000000.parquet", mixed_rows());
  process(job("alone"));
  RunningTransformer early(stores_, service_of(job("")));
  TransformServiceOptions other = service_of(job(""));
  other.transform.resolution *= 2;
  RunningTransformer unlike(stores_, other);
  ProcessJobOptions apart = job("apart");
  apart.selection.items = {1};
  process(apart);
  write_images("part-000001.parquet", good_rows(3));
  RunningTransformer late(stores_, service_of(job("")));
  apart.selection.items = {};
  apart.transformers = late.address();
  const auto before = file_names("apart");
  EXPECT_THAT(failure(apart).message(), AllOf(HasSubstr("image dataset"), HasSubstr("the 1 files that it began with"),
                                              HasSubstr("--transformers"), HasSubstr("transformer and job do not fit")));
  EXPECT_EQ(file_names("apart"), before);
  EXPECT_EQ(late.end().rows, 0);
  apart.transformers = unlike.address();
  EXPECT_THAT(failure(apart).message(), AllOf(HasSubstr("transform"), Not(HasSubstr("began with"))));  // That is not why.
  apart.transformers = early.address();
  process(apart);
  EXPECT_EQ(parts("apart"), parts("alone"));
  EXPECT_EQ(early.end().rows, 37);
}

TEST_F(Transformers, one_that_does_not_fit_ends_a_job_before_anything_is_written) {
  write_images("part-000000.parquet", good_rows(12));
  TransformServiceOptions other = service_of(job(""));
  other.transform.resolution *= 2;
  RunningTransformer transformer(stores_, other);
  ProcessJobOptions apart = job("apart");
  apart.transformers = transformer.address();
  EXPECT_THAT(failure(apart).message(), AllOf(HasSubstr("transform"), Not(HasSubstr("began with"))));
  EXPECT_THAT(file_names("apart"), IsEmpty());
}

/// What this process says on stderr while it lives, to be waited for.
class Said {
 public:
  explicit Said(std::string path) : path_(std::move(path)), stderr_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~Said() {
    dup2(stderr_, STDERR_FILENO);
    ::close(stderr_);
  }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;

  void await(const std::string& text) const {
    while (read_file(local_files(), path_).value().find(text) == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  const std::string path_;
  const int stderr_;
};

TEST_F(Transformers, a_failed_job_waits_for_none) {
  write_images("part-000000.parquet", good_rows(200));
  std::promise<void> has_slice, goes_on;
  std::atomic<int> num_encoded = 0;
  networks_.on_row = [&, first = std::make_shared<std::once_flag>(), gate = goes_on.get_future().share()](const PreparedRow&) {
    std::call_once(*first, [&] { has_slice.set_value(); });
    gate.wait();
    ++num_encoded;
  };
  const auto await_standstill = [&] {  // Of what had come all is encoded, and the readers wait.
    constexpr int kLooks = 10;
    for (int looks = 0, before = -1; looks < kLooks; ++looks) {
      looks = std::exchange(before, num_encoded.load()) == num_encoded ? looks : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  std::optional<RunningTransformer> transformer(std::in_place, stores_, service_of(job("")));
  ProcessJobOptions apart = job("apart");
  apart.transformers = transformer->address();
  apart.rows_per_file = 1;  // More items than a job has open at a time, while its encoders are held.
  apart.transformer_patience = std::chrono::hours(1);
  std::stop_source stop;
  auto ended = std::async(std::launch::async, [&] { return run(stores_, apart, stop.get_token()).status(); });
  has_slice.get_future().wait();
  {
    const Said said(folder_.path("said"));
    EXPECT_GT(transformer->end().rows, 0);
    goes_on.set_value();
    said.await("no transformer is left");
  }
  await_standstill();
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it waits for one";
  stop.request_stop();
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
}

TEST_F(Transformers, flags_that_do_not_go_together_are_refused) {
  ProcessJobOptions apart = job("apart");
  apart.transformers = "node:7000";
  apart.num_transformers = 2;
  EXPECT_THAT(failure(apart).message(), HasSubstr("--num-transformers"));
  apart.num_transformers = 0;
  apart.keep_columns = {"pixels_32"};
  EXPECT_THAT(failure(apart).message(), HasSubstr("pixels_32"));
  apart.keep_columns = {};
  apart.transformers = "nowhere";
  EXPECT_THAT(failure(apart).message(), HasSubstr("HOST:PORT"));

  TransformServiceOptions service = service_of(job(""));
  service.address = *parse_listen_address("0.0.0.0:0");
  EXPECT_THAT(service.validate().message(), HasSubstr("DARKROOM_ENCODER_TOKEN"));
  service.token = "secret";
  EXPECT_TRUE(service.validate().is_ok());
  service.keep_columns = {"pixels_32"};
  EXPECT_THAT(service.validate().message(), HasSubstr("pixels_32"));
}

TEST_F(Transformers, without_any_the_job_ends_after_its_patience_and_goes_on_later) {
  write_images("part-000000.parquet", good_rows(12));
  ProcessJobOptions apart = job("apart");
  apart.transformers = "127.0.0.1:1";
  apart.transformer_patience = std::chrono::milliseconds(50);
  EXPECT_EQ(failure(apart).code(), StatusCode::kUnavailable);
  EXPECT_EQ(process(job("apart")).rows_out, 12);
}

/// A slice of three rows, of which the middle one failed.
std::string slice_bytes(int resolution) {
  ProcessBatch rows;
  for (const int64_t position : {0, 2}) {
    rows.prepared.push_back({.key = "k" + std::to_string(position),
                             .caption = "c",
                             .width = 3,
                             .height = 4,
                             .square = Image::filled(resolution, resolution, 3),
                             .ids = {}});
    rows.positions.push_back(position);
  }
  rows.count_failed("not_an_image", 1);
  rows.tally.num_invalid_captions = 1;
  return *write_transformed_slice(resolution, {}, rows, 77);
}

TEST(TransformedSlices, come_back_as_they_were_sent) {
  const TransformedSlice slice = *TransformedSlice::read(slice_bytes(4), 3, 4, 0);
  EXPECT_EQ(slice.picture_bytes(), 77);
  EXPECT_EQ(slice.num_invalid_captions(), 1);
  const ProcessBatch all = slice.batch(0, 3, 100);
  EXPECT_THAT(all.positions, ElementsAre(100, 102));
  EXPECT_THAT(all.tally.failed_rows, ElementsAre(Pair("not_an_image", ElementsAre(101))));
  EXPECT_EQ(all.tally.rows_in, 3);
  const ProcessBatch last = slice.batch(2, 1, 102);
  EXPECT_THAT(last.positions, ElementsAre(102));
  EXPECT_EQ(last.prepared[0].key, "k2");
  EXPECT_TRUE(last.tally.failed_rows.empty());
}

TEST(TransformedSlices, packed_ones_are_refused_before_they_are_unpacked) {
  for (const int resolution : {4, 1024}) {
    const std::string packed = packed_stream(slice_bytes(resolution));
    const Status refused = TransformedSlice::read(packed, 3, resolution, 0).status();
    EXPECT_EQ(refused.code(), StatusCode::kCorruptData);
    EXPECT_THAT(refused.message(), HasSubstr("packed"));
  }
}

TEST(TransformedSlices, what_is_none_is_refused) {
  const std::string good = slice_bytes(4);
  EXPECT_FALSE(TransformedSlice::read(good, 2, 4, 0).is_ok());  // Fewer rows were asked for.
  EXPECT_FALSE(TransformedSlice::read(good, 4, 4, 0).is_ok());
  EXPECT_FALSE(TransformedSlice::read(good, 3, 8, 0).is_ok());
  EXPECT_FALSE(TransformedSlice::read(good, 3, 4, 1).is_ok());
  EXPECT_FALSE(TransformedSlice::read("", 3, 4, 0).is_ok());
  for (size_t size = 0; size < good.size(); size += 7) {
    const auto read = TransformedSlice::read(good.substr(0, size), 3, 4, 0);
    if (read.is_ok()) {  // Of the stream's last bytes nothing is needed.
      EXPECT_THAT(read->batch(0, 3, 0).positions, ElementsAre(0, 2));
    }
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    const auto read = TransformedSlice::read(bad, 3, 4, 0);
    if (read.is_ok()) {
      EXPECT_EQ(read->batch(0, 3, 0).prepared.size() + read->batch(0, 3, 0).tally.failed_rows.size(), 3);
    }
  }
}

}  // namespace
}  // namespace darkroom
