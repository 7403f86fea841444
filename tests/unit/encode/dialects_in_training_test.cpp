// Training reads what process jobs write in other dialects.
#include <gmock/gmock.h>

#include <filesystem>

#include "darkroom/batches/latents_info.h"
#include "darkroom/batches/latents_reader.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/tables/tensor_column.h"
#include "process_fixture.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

constexpr LatentsDialect kForeignDialects[] = {LatentsDialect::kAnyscale, LatentsDialect::kRaySummit, LatentsDialect::kMosaicMl,
                                               LatentsDialect::kHuggingFace};

class DialectsInTraining : public ProcessJob {
 protected:
  ProcessOptions options_of(LatentsDialect dialect, std::string output = {}) const {
    ProcessOptions job = options(output.empty() ? std::string(latents_dialect_name(dialect)) : output);
    job.dialect = dialect;
    return job;
  }
  /// What training reads of a dataset, in order.
  static Batch read_by_training(const std::string& folder) {
    const DatasetFiles dataset = *find_local_dataset(folder);
    const auto index = DatasetIndex::of_latents(dataset);
    EXPECT_TRUE(index.is_ok()) << index.status().to_string();
    const LatentsReaderOptions options{.resolution = kProcessSide, .latents_shape = latents_shape_, .states_shape = states_shape_};
    auto reader = LatentsReader::open(dataset, *index, options);
    EXPECT_TRUE(reader.is_ok()) << reader.status().to_string();
    std::vector<SampleRef> all;
    for (int64_t row = 0; row < index->num_rows(); ++row) {
      all.push_back({0, row});
    }
    auto batch = (*reader)->read(all);
    EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
    return *std::move(batch);
  }
  /// Learns the shapes from a job of our own dialect.
  void process_own(torch::Dtype dtype) {
    ProcessOptions job = options("darkroom");
    job.dtype = dtype;
    process(job);
    const auto schema = (*open_table(local_files(), part(0, "darkroom")))->schema();
    for (const auto& [name, shape] : {std::pair{"image_latents_32", &latents_shape_}, {"caption_embeddings", &states_shape_}}) {
      const auto column =
          TensorColumn::open(*schema->GetFieldByName(name), read_table(part(0, "darkroom"))->GetColumnByName(name)->chunk(0));
      *shape = column->shape();
    }
  }

  inline static std::vector<int64_t> latents_shape_;
  inline static std::vector<int64_t> states_shape_;
};

TEST_F(DialectsInTraining, training_reads_the_same_samples_from_every_dialect) {
  write_images("part-000000.parquet", good_rows(23));
  for (const LatentsDialect dialect : kForeignDialects) {
    const bool was_float32 = dialect == LatentsDialect::kAnyscale || dialect == LatentsDialect::kRaySummit;
    std::filesystem::remove_all(folder_.path("darkroom"));
    process_own(was_float32 ? torch::kFloat32 : torch::kFloat16);
    const Batch want = read_by_training(folder_.path("darkroom"));
    const ProcessOptions job = options_of(dialect);
    EXPECT_EQ(process(job).rows_out, 23);
    const Batch got = read_by_training(job.output);
    EXPECT_EQ(got.keys, want.keys);
    EXPECT_TRUE(torch::equal(got.latents_nchw, want.latents_nchw)) << latents_dialect_name(dialect);
    EXPECT_TRUE(torch::equal(got.states_btc, want.states_btc)) << latents_dialect_name(dialect);
    EXPECT_TRUE(torch::equal(read_empty_caption(*find_local_dataset(job.output), {}, states_shape_)->states_tw,
                             read_empty_caption(*find_local_dataset(folder_.path("darkroom")), {}, states_shape_)->states_tw));
  }
}

TEST_F(DialectsInTraining, samples_of_a_foreign_dialect_can_be_painted) {
  write_images("part-000000.parquet", good_rows(3));
  for (const LatentsDialect dialect : kForeignDialects) {
    ProcessOptions job = options_of(dialect);
    job.num_visualized = 2;
    job.visualize_path = folder_.path("look.png");
    process(job);
    EXPECT_TRUE(std::filesystem::remove(job.visualize_path)) << latents_dialect_name(dialect);
  }
}

TEST_F(DialectsInTraining, an_mds_shard_holds_float16_alone) {
  ProcessOptions job = options_of(LatentsDialect::kMosaicMl);
  job.dtype = torch::kFloat32;
  EXPECT_THAT(job.validate().message(), testing::HasSubstr("float16"));
}

}  // namespace
}  // namespace darkroom
