// Process jobs over image datasets in containers of others.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "darkroom/files/posix_store.h"
#include "darkroom/ingest/part_record.h"
#include "process_fixture.h"
#include "support/fake_s3_stores.h"
#include "support/image_containers.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ProcessContainers : public ProcessJob {
 protected:
  static std::vector<ContainedRow> contained(const std::vector<ImageRow>& rows) {
    std::vector<ContainedRow> contained;
    for (const ImageRow& row : rows) {
      contained.push_back({row.key, row.caption, row.image});
    }
    return contained;
  }
  /// Writes the rows in every container, each in a folder of its name.
  void write_containers(const std::vector<ImageRow>& rows) {
    FileSystem& files = local_files();
    write_tars(files, folder_.path("tar"), contained(rows));
    write_image_folder(files, folder_.path("imagefolder"), contained(rows));
    write_plain_folder(files, folder_.path("plain"), contained(rows));
    write_mds(files, folder_.path("mds"), contained(rows));
  }
  ProcessJobOptions options_of(const std::string& container, const std::string& output) const {
    ProcessJobOptions job = options(output);
    job.input = folder_.path(container);
    return job;
  }
  /// What a dataset's parts hold, whatever their job: by their names, the hashes of all before their footers.
  std::map<std::string, std::string> contents(const std::string& output) const {
    std::map<std::string, std::string> hashes;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(output))) {
      const std::string name = entry.path().filename();
      if (PartName::parse(name)) {
        const auto record = read_part_record({.store = &local_store(), .path = entry.path()});
        EXPECT_TRUE(record.is_ok()) << record.status().to_string();
        hashes[name] = record.is_ok() ? record->content_hash : "";
      }
    }
    return hashes;
  }
  std::map<std::string, std::string> bytes(const std::string& output) const { return part_bytes(folder_.path(output)); }
  void put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(name), text).is_ok());
  }
};

const std::vector<std::string> kContainers = {"tar", "imagefolder", "plain", "mds"};

TEST_F(ProcessContainers, the_same_rows_give_the_same_latents_whatever_holds_them) {
  const auto rows = good_rows(27);
  write_images("part-000000.parquet", rows);
  write_containers(rows);
  process(options());
  const auto wanted = contents("latents");
  ASSERT_EQ(wanted.size(), 3U);
  for (const std::string& container : kContainers) {
    const StageSummary summary = process(options_of(container, "latents-" + container));
    EXPECT_EQ(summary.rows_out, 27) << container;
    EXPECT_EQ(contents("latents-" + container), wanted) << container;
    EXPECT_EQ(process(options_of(container, "latents-" + container)).rows_this_run, 0) << container;
  }
}

TEST_F(ProcessContainers, the_bytes_depend_on_no_number_of_workers_and_no_shard_of_the_job) {
  write_containers(good_rows(27));
  for (const std::string& container : kContainers) {
    ProcessJobOptions job = options_of(container, container + "-whole");
    job.rows_per_file = 4;
    process(job);
    job.output = folder_.path(container + "-many");
    job.num_readers = 3;
    job.num_encoders = 2;
    job.selection.num_shards = 2;
    process(job);
    job.selection.shard = 1;
    process(job);
    EXPECT_EQ(bytes(container + "-many"), bytes(container + "-whole")) << container;
  }
}

TEST_F(ProcessContainers, a_run_that_was_cut_short_is_gone_on_with) {
  write_containers(good_rows(27));
  for (const std::string& container : kContainers) {
    ProcessJobOptions job = options_of(container, container + "-whole");
    process(job);
    job.output = folder_.path(container + "-cut");
    job.selection.limit = 13;
    EXPECT_EQ(process(job).rows_out, 13);
    job.selection.limit = -1;
    EXPECT_EQ(process(job).rows_this_run, 17) << "the whole item of 10 rows stays: " << container;
    EXPECT_EQ(bytes(container + "-cut"), bytes(container + "-whole")) << container;
  }
}

TEST_F(ProcessContainers, the_same_parts_come_from_a_store) {
  write_containers(good_rows(12));
  FakeS3Stores s3;
  for (const std::string& container : kContainers) {
    process(options_of(container, container + "-local"));
    ASSERT_TRUE(s3.upload(folder_.path(container), container).is_ok());
    ProcessJobOptions job = options(container + "-remote");
    job.input = FakeS3Stores::uri(container);
    const auto summary = run(s3.set, job);
    ASSERT_TRUE(summary.is_ok()) << container << summary.status().to_string();
    EXPECT_EQ(summary->rows_out, 12) << container;
    EXPECT_EQ(bytes(container + "-remote"), bytes(container + "-local")) << container;
  }
}

TEST_F(ProcessContainers, many_tars_are_one_dataset_in_the_order_of_their_names) {
  const auto rows = good_rows(25);
  write_tars(local_files(), folder_.path("tars"), contained(rows), 10);
  write_images("a.parquet", {rows.begin(), rows.begin() + 10});
  write_images("b.parquet", {rows.begin() + 10, rows.begin() + 20});
  write_images("c.parquet", {rows.begin() + 20, rows.end()});
  process(options());
  process(options_of("tars", "from-tars"));
  EXPECT_EQ(contents("from-tars"), contents("latents"));
}

TEST_F(ProcessContainers, a_tar_without_samples_costs_nothing) {
  const auto rows = good_rows(12);
  write_tars(local_files(), folder_.path("tars"), contained(rows), 6);
  ProcessJobOptions job = options_of("tars", "wanted");
  job.keep_columns = {"url"};
  process(job);
  put("tars/0.tar", std::string(1024, '\0'));
  put("tars/00000-none.tar", std::string(1024, '\0'));
  job.output = folder_.path("latents");
  EXPECT_EQ(process(job).rows_out, 12);
  EXPECT_EQ(contents("latents"), contents("wanted"));
  job.keep_columns = {"colour"};
  job.output = folder_.path("none");
  EXPECT_EQ(failure(job).code(), StatusCode::kNotFound);
}

TEST_F(ProcessContainers, what_a_row_lacks_costs_that_row) {
  auto rows = good_rows(8);
  rows[2].image.clear();
  rows[5].image = "no picture";
  rows[6].caption.clear();
  write_tars(local_files(), folder_.path("tar"), contained(rows));
  write_image_folder(local_files(), folder_.path("imagefolder"), contained(rows));
  write_mds(local_files(), folder_.path("mds"), contained(rows));
  for (const std::string& container : {std::string("tar"), std::string("imagefolder"), std::string("mds")}) {
    const StageSummary summary = process(options_of(container, "latents-" + container));
    EXPECT_EQ(summary.rows_out, 5) << container;
    EXPECT_EQ(summary.rows_by_error, (RowsByError{{"empty_caption", 1}, {"not_an_image", 1}, {"null_image", 1}})) << container;
  }
}

TEST_F(ProcessContainers, damage_ends_the_job_before_anything_is_written_with_file_and_offset) {
  write_containers(good_rows(12));
  const std::string tar = folder_.path("tar/00000.tar");
  const auto size = std::filesystem::file_size(tar);
  std::filesystem::resize_file(tar, size / 2);
  const Status status = failure(options_of("tar", "latents"));
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("00000.tar"), HasSubstr("offset")));
  std::filesystem::resize_file(folder_.path("mds/shard.00000.mds"), 100);
  EXPECT_THAT(failure(options_of("mds", "latents")).message(), HasSubstr("shard.00000.mds"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

TEST_F(ProcessContainers, a_folder_that_changed_is_another_input) {
  write_containers(good_rows(12));
  ProcessJobOptions job = options_of("plain", "latents");
  job.selection.limit = 3;
  process(job);
  job.selection.limit = -1;
  put("plain/zzz.png", numbered_png(99, 32, 32));
  const Status grown = failure(job);
  EXPECT_EQ(grown.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(grown.message(), AllOf(HasSubstr("./"), HasSubstr("changed")));
  std::filesystem::remove(folder_.path("plain/zzz.png"));
  job.input += "/";
  EXPECT_EQ(process(job).rows_out, 12);
}

TEST_F(ProcessContainers, two_kinds_in_a_folder_are_refused_unless_a_pattern_takes_one) {
  const auto rows = good_rows(6);
  write_images("part-000000.parquet", rows);
  write_tars(local_files(), folder_.path("images"), contained(rows));
  const Status status = failure(options());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("part-000000.parquet"), HasSubstr("00000.tar")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
  process(options_of("images/*.tar", "from-tars"));
  process(options_of("images/**/*.parquet", "from-parquet"));
  EXPECT_EQ(contents("from-tars"), contents("from-parquet"));
  EXPECT_EQ(process(options_of("images/00000.tar", "from-file")).rows_out, 6);
}

TEST_F(ProcessContainers, the_metadata_file_stands_for_its_folder) {
  write_image_folder(local_files(), folder_.path("imagefolder"), contained(good_rows(5)));
  process(options_of("imagefolder", "a"));
  process(options_of("imagefolder/metadata.jsonl", "b"));
  EXPECT_EQ(bytes("a"), bytes("b"));
}

TEST_F(ProcessContainers, columns_are_kept_and_captions_taken_by_name) {
  write_containers(good_rows(5));
  for (const std::string& container : {std::string("tar"), std::string("imagefolder")}) {
    ProcessJobOptions job = options_of(container, container + "-latents");
    job.caption_column = "url";
    job.keep_columns = {"url"};
    process(job);
    const auto table = *open_table(local_files(), part(0, container + "-latents"));
    const auto batch = *(*table->read_rows(0, 1, {"caption", "url"}))->next();
    for (int column = 0; column < 2; ++column) {
      EXPECT_EQ(static_cast<const arrow::StringArray&>(*batch->column(column)).GetView(0), "http://x/" + row_key(0)) << container;
    }
  }
  ProcessJobOptions missing = options_of("plain", "none");
  missing.caption_column = "title";
  const Status status = failure(missing);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("title"), HasSubstr("file_name")));
}

}  // namespace
}  // namespace darkroom
