#include "darkroom/feed/row_group_reader.h"

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/posix_store.h"
#include "small_datasets.h"
#include "support/forwarding_files.h"
#include "support/image_containers.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RowGroupReader, a_part_that_moved_aside_for_its_next_generation_is_read_there) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  const DatasetFiles files = find_local_dataset(dataset).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  std::filesystem::create_directory(dataset + "/_superseded");
  std::filesystem::rename(dataset + "/part-000000.parquet", dataset + "/_superseded/part-000000.parquet");
  const auto place = reader->locate(4);
  ASSERT_TRUE(place.is_ok()) << place.status().to_string();
  EXPECT_TRUE(reader->read(*place, {}).is_ok());
}

/// The machine's files as a store of objects has them: an open file is read by its name.
class ReadByName final : public ForwardingFiles {
 public:
  ReadByName() : ForwardingFiles(local_files()) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    DARKROOM_ASSIGN_OR_RETURN(auto file, local_files().open_input(path));
    return std::unique_ptr<InputFile>(std::make_unique<Named>(std::move(file)));
  }

 private:
  class Named final : public InputFile {
   public:
    explicit Named(std::unique_ptr<InputFile> file) : file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    int64_t size_bytes() const override { return file_->size_bytes(); }
    Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
      DARKROOM_RETURN_IF_ERROR(local_files().stat(path()).status());
      return file_->read_at(offset, out);
    }

   private:
    const std::unique_ptr<InputFile> file_;
  };
};

TEST(RowGroupReader, an_open_part_of_a_store_of_objects_is_read_on_where_it_moved) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  ReadByName files;
  const auto store = make_posix_store(files, "named");
  const Location place{.store = store.get(), .path = dataset + "/part-000000.parquet"};
  const DatasetFiles listed{.uri = "named://data", .root = place.parent(), .objects = {{.place = place}}};
  const auto reader = RowGroupReader::create(listed, DatasetIndex::of_latents(listed).value());
  const RowGroupPlace group = reader->locate(4).value();
  std::filesystem::create_directory(dataset + "/_superseded");
  std::filesystem::rename(dataset + "/part-000000.parquet", dataset + "/_superseded/part-000000.parquet");
  const auto read = reader->read(group, {});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read->front()->num_rows(), 5);
  std::filesystem::remove_all(dataset + "/_superseded");
  EXPECT_EQ(reader->read(group, {}).status().code(), StatusCode::kNotFound);
}

TEST(RowGroupReader, what_another_job_left_aside_is_not_read) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  const DatasetFiles files = find_local_dataset(dataset).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  std::filesystem::remove(dataset + "/part-000000.parquet");
  write_small_latents(dataset + "/_superseded", "part-000000.parquet", {.first = 100, .num_rows = 5});
  const Status status = reader->locate(0).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("_superseded/part-000000.parquet"));
}

TEST(IndexedGenerations, a_run_goes_on_with_those_that_it_began_with) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  write_small_latents(dataset, "part-000001.parquet", {.first = 5, .num_rows = 5});
  const DatasetIndex began_with = DatasetIndex::of_latents(find_local_dataset(dataset).value()).value();
  write_small_latents(dataset, "part-000000-g1.parquet", {.first = 50, .num_rows = 6});
  const auto index_now = [&] {
    DatasetFiles files = find_local_dataset(dataset).value();
    take_indexed_generations(began_with, files);
    return DatasetIndex::of_latents(files);
  };
  EXPECT_EQ(index_now()->hash(), began_with.hash()) << "side by side";
  std::filesystem::create_directory(dataset + "/_superseded");
  std::filesystem::rename(dataset + "/part-000000.parquet", dataset + "/_superseded/part-000000.parquet");
  EXPECT_EQ(index_now()->hash(), began_with.hash()) << "moved aside";
  std::filesystem::remove_all(dataset + "/_superseded");
  const Status gone = index_now().status();
  EXPECT_EQ(gone.code(), StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), HasSubstr("data/part-000000.parquet"));
}

/// The machine's files; counts how often one is opened.
class CountedOpens final : public ForwardingFiles {
 public:
  CountedOpens() : ForwardingFiles(local_files()) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    ++num_opens;
    return local_files().open_input(path);
  }
  std::atomic<int64_t> num_opens = 0;
};

TEST(RowGroupReader, who_keeps_the_groups_of_many_files_opens_none_again) {
  constexpr int64_t kFiles = 70;  // More than stay open.
  const TemporaryFolder folder;
  CountedOpens files;
  const auto store = make_posix_store(files, "counted");
  DatasetFiles dataset{.uri = "counted://data", .root = {.store = store.get(), .path = folder.path("data")}};
  for (int64_t i = 0; i < kFiles; ++i) {
    const std::string name = fmt::format("part-{:06}.parquet", i);
    write_small_latents(folder.path("data"), name, {.first = 3 * i, .num_rows = 3});
    dataset.objects.push_back({.place = dataset.root / name});
  }
  const auto reader = RowGroupReader::create(dataset, DatasetIndex::of_latents(dataset).value());
  const auto locate_all = [&] {
    for (int64_t row = 0; row < 3 * kFiles; ++row) {
      const auto place = reader->locate(row);
      ASSERT_TRUE(place.is_ok()) << place.status().to_string();
      ASSERT_EQ(place->row_in_group(), row % 3);
    }
  };
  locate_all();
  files.num_opens = 0;
  locate_all();
  EXPECT_EQ(files.num_opens, 0);
  EXPECT_TRUE(reader->read(reader->locate(0).value(), {}).is_ok());
  EXPECT_GT(files.num_opens, 0) << "it was closed for the others";
}

TEST(RowGroupReader, a_part_that_has_other_row_groups_when_it_is_opened_again_is_told) {
  const TemporaryFolder folder;
  const std::string data = folder.path("data");
  for (int64_t i = 0; i < 70; ++i) {
    write_small_latents(data, fmt::format("part-{:06}.parquet", i), {.num_rows = 300});
  }
  const DatasetFiles files = find_local_dataset(data).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  const RowGroupPlace first = reader->locate(0).value();
  for (int64_t i = 1; i < 70; ++i) {
    ASSERT_TRUE(reader->locate(300 * i).is_ok());
  }
  std::filesystem::remove(data + "/part-000000.parquet");
  write_small_latents(data, "part-000000.parquet", {.num_rows = 300, .row_group_bytes = 1 << 20});
  const Status status = reader->read(first, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("part-000000.parquet"));
}

/// The machine's files; counts the bytes that are read of those of one name.
class CountedReads final : public ForwardingFiles {
 public:
  explicit CountedReads(std::string name) : ForwardingFiles(local_files()), name_(std::move(name)) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    DARKROOM_ASSIGN_OR_RETURN(auto file, local_files().open_input(path));
    return std::unique_ptr<InputFile>(std::make_unique<Counted>(std::move(file), path.ends_with(name_) ? num_bytes : others_));
  }
  std::atomic<int64_t> num_bytes = 0;

 private:
  class Counted final : public InputFile {
   public:
    Counted(std::unique_ptr<InputFile> file, std::atomic<int64_t>& num_bytes) : file_(std::move(file)), num_bytes_(num_bytes) {}
    const std::string& path() const override { return file_->path(); }
    int64_t size_bytes() const override { return file_->size_bytes(); }
    Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
      num_bytes_ += static_cast<int64_t>(out.size());
      return file_->read_at(offset, out);
    }

   private:
    const std::unique_ptr<InputFile> file_;
    std::atomic<int64_t>& num_bytes_;
  };
  const std::string name_;
  std::atomic<int64_t> others_ = 0;
};

TEST(RowGroupReader, a_tar_that_was_closed_for_others_is_not_walked_through_again) {
  const TemporaryFolder folder;
  std::vector<ContainedRow> rows(2000);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {.key = fmt::format("{:05}", i), .caption = "a", .image = std::string(10'000, 'p')};
  }
  write_tars(local_files(), folder.path("data"), rows, rows.size());
  CountedReads files("00000.tar");
  const auto store = make_posix_store(files, "counted");
  const auto place = [&](const std::string& name) { return Location{.store = store.get(), .path = folder.path("data/" + name)}; };
  DatasetFiles dataset{.uri = "counted://data", .root = place("x").parent(), .objects = {{.place = place("00000.tar")}}};
  for (int i = 0; i < 64; ++i) {  // As many as stay open.
    const std::string name = fmt::format("more-{:02}", i);
    write_tars(local_files(), folder.path(name), {rows[0]});
    std::filesystem::rename(folder.path(name + "/00000.tar"), folder.path("data/" + name + ".tar"));
    dataset.objects.push_back({.place = place(name + ".tar")});
  }
  const auto reader = RowGroupReader::create(dataset, DatasetIndex::of_images(dataset, 10'000).value());
  const auto read_row = [&](int64_t row) {
    const RowGroupPlace group = reader->locate(row).value();
    const auto read = reader->read(group, {"image"});
    EXPECT_TRUE(read.is_ok()) << read.status().to_string();
  };
  read_row(1990);
  for (int64_t i = 0; i < 64; ++i) {
    read_row(2000 + i);
  }
  files.num_bytes = 0;
  read_row(1900);
  EXPECT_GT(files.num_bytes, 0) << "it was opened anew";
  EXPECT_LT(files.num_bytes, 6 << 20) << "of 22 MB";
}

TEST(RowGroupReader, a_part_that_is_nowhere_is_named) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  const DatasetFiles files = find_local_dataset(dataset).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  std::filesystem::remove(dataset + "/part-000000.parquet");
  const Status status = reader->locate(0).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("data/part-000000.parquet"));
}

TEST(RowGroupReader, what_changed_since_the_run_began_is_told) {
  const TemporaryFolder folder;
  std::vector<ContainedRow> rows = {{"1", "a house", "picture"}, {"2", "a tree", "picture"}};
  write_tars(local_files(), folder.path("tar"), rows);
  write_mds(local_files(), folder.path("mds"), rows);
  write_plain_folder(local_files(), folder.path("plain"), rows);
  rows.insert(rows.begin(), {"0", "a road", "picture"});
  for (const std::string container : {"tar", "mds", "plain"}) {
    const DatasetFiles files = find_local_image_dataset(folder.path(container)).value();
    const auto index = DatasetIndex::of_images(files, 1);
    ASSERT_TRUE(index.is_ok()) << index.status().to_string();
    EXPECT_TRUE(RowGroupReader::create(files, *index)->locate(1).is_ok()) << container;
    const auto reader = RowGroupReader::create(files, *index);
    std::filesystem::remove_all(folder.path(container));
    container == "tar"   ? write_tars(local_files(), folder.path("tar"), rows)
    : container == "mds" ? write_mds(local_files(), folder.path("mds"), rows)
                         : write_plain_folder(local_files(), folder.path("plain"), rows);
    const Status status = reader->locate(1).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << container << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("changed since the run began"));
  }
}

TEST(RowGroupReader, a_parquet_file_with_as_many_other_rows_is_told) {
  const TemporaryFolder folder;
  const auto write_rows = [&](int64_t first) {
    arrow::Int64Builder numbers;
    ASSERT_TRUE(numbers.AppendValues({first, first + 1, first + 2}).ok());
    const auto schema = arrow::schema({arrow::field("image", arrow::int64())});
    const auto batch = arrow::RecordBatch::Make(schema, 3, {*numbers.Finish()});
    std::filesystem::remove_all(folder.path("data"));
    ASSERT_TRUE(put_shard(local_files(), folder.path("data"), "rows.parquet", *batch).is_ok());
  };
  write_rows(0);
  const DatasetFiles files = find_local_image_dataset(folder.path("data")).value();
  const DatasetIndex index = DatasetIndex::of_images(files, 1).value();
  write_rows(0);  // The same ones.
  EXPECT_TRUE(RowGroupReader::create(files, index)->locate(1).is_ok());
  write_rows(7);
  const Status status = RowGroupReader::create(files, index)->locate(1).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("changed since the run began"), HasSubstr("rows.parquet")));
}

}  // namespace
}  // namespace darkroom
