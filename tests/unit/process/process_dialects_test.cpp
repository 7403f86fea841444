// Process jobs that write other dialects: what is on disk.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "darkroom/tables/verify_shard.h"
#include "process_fixture.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr LatentsDialect kForeignDialects[] = {LatentsDialect::kAnyscale, LatentsDialect::kRaySummit, LatentsDialect::kMosaicMl,
                                               LatentsDialect::kHuggingFace};

class ProcessDialects : public ProcessJob {
 protected:
  ProcessJobOptions options_of(LatentsDialect dialect, std::string output = {}) const {
    ProcessJobOptions job = options(output.empty() ? std::string(latents_dialect_name(dialect)) : output);
    job.dialect = dialect;
    return job;
  }
  std::string part_of(const ProcessJobOptions& job, int64_t item) const {
    return job.output + "/" +
           PartName{.item = item, .container = job.dialect == LatentsDialect::kMosaicMl ? PartContainer::kMds : PartContainer::kParquet}
               .text();
  }
};

TEST_F(ProcessDialects, columns_have_the_published_names_and_types) {
  write_images("part-000000.parquet", good_rows(3));
  const std::map<LatentsDialect, std::vector<std::string>> want = {
      {LatentsDialect::kAnyscale,
       {"key: string", "caption: string", "width: int32", "height: int32", "latents_32_bytes: large_list<element: float>",
        "caption_latents: large_list<element: float>", "hash: int64"}},
      {LatentsDialect::kRaySummit,
       {"key: string", "caption: string", "width: int32", "height: int32", "image_latents_32: large_list<element: float>",
        "caption_latents: large_list<element: float>", "hash: int64"}},
      {LatentsDialect::kHuggingFace,
       {"key: string", "caption: string", "width: int32", "height: int32",
        "image_latents_32: list<element: list<element: list<element: halffloat>>>",
        "caption_embeddings: list<element: list<element: halffloat>>", "hash: int64"}},
      {LatentsDialect::kMosaicMl,
       {"caption: string", "caption_latents: binary", "hash: string", "height: int64", "key: string", "latents_32: binary",
        "width: int64"}}};
  for (const auto& [dialect, columns] : want) {
    ProcessJobOptions job = options_of(dialect);
    job.keep_columns = {"hash"};
    process(job);
    std::vector<std::string> got;
    const auto table = *open_table(local_files(), part_of(job, 0));
    for (const auto& field : table->schema()->fields()) {
      got.push_back(field->name() + ": " + field->type()->ToString());
    }
    EXPECT_EQ(got, columns) << latents_dialect_name(dialect);
  }
}

TEST_F(ProcessDialects, parts_are_the_same_for_any_workers_and_after_a_limit) {
  write_images("part-000000.parquet", good_rows(23));
  for (const LatentsDialect dialect : kForeignDialects) {
    const ProcessJobOptions whole = options_of(dialect, "whole");
    process(whole);
    ProcessJobOptions job = options_of(dialect, "again");
    job.selection.limit = 14;
    process(job);
    job.selection.limit = -1;
    job.num_encoders = 2;
    job.num_transformers = 3;
    job.num_readers = 2;
    const StageSummary summary = process(job);
    EXPECT_EQ(summary.rows_this_run, 13) << latents_dialect_name(dialect);  // The cut item is done again.
    EXPECT_EQ(part_bytes(job.output), part_bytes(whole.output)) << latents_dialect_name(dialect);
    EXPECT_EQ(process(job).rows_this_run, 0);
    for (int64_t item = 0; item < 3; ++item) {
      EXPECT_TRUE(verify_shard(local_files(), part_of(job, item)).is_ok()) << latents_dialect_name(dialect);
    }
    std::filesystem::remove_all(whole.output);
    std::filesystem::remove_all(job.output);
  }
}

TEST_F(ProcessDialects, a_folder_of_another_dialect_is_another_job) {
  write_images("part-000000.parquet", good_rows(3));
  process(options_of(LatentsDialect::kMosaicMl, "latents"));
  const Status status = failure(options_of(LatentsDialect::kHuggingFace, "latents"));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("output_dialect (had \"mosaicml\", asked for \"huggingface\")"));
  EXPECT_EQ(failure(options_of(LatentsDialect::kDarkroom, "latents")).code(), StatusCode::kFailedPrecondition);
}

TEST_F(ProcessDialects, the_job_is_known_by_its_parts_alone) {
  write_images("part-000000.parquet", good_rows(23));
  const ProcessJobOptions job = options_of(LatentsDialect::kMosaicMl);
  process(job);
  const auto parts = part_bytes(job.output);
  const std::string index = read_bytes(job.output + "/index.json");
  for (const char* name : {"_job.json", "_inputs.parquet", "_summary.json", "index.json"}) {
    ASSERT_TRUE(std::filesystem::remove(job.output + "/" + name)) << name;
  }
  EXPECT_EQ(process(job).rows_this_run, 0);
  EXPECT_EQ(part_bytes(job.output), parts);
  EXPECT_EQ(read_bytes(job.output + "/index.json"), index);
  std::filesystem::remove(part_of(job, 1));
  EXPECT_EQ(process(job).rows_this_run, 10);
  EXPECT_EQ(part_bytes(job.output), parts);
}

TEST_F(ProcessDialects, the_index_lists_every_shard_with_samples) {
  auto rows = good_rows(13);
  for (size_t i = 10; i < 13; ++i) {
    rows[i].caption = " ";  // The second item has no good row.
  }
  write_images("part-000000.parquet", rows);
  const ProcessJobOptions job = options_of(LatentsDialect::kMosaicMl);
  EXPECT_EQ(process(job).rows_out, 10);
  const auto index = nlohmann::json::parse(read_bytes(job.output + "/index.json"));
  ASSERT_EQ(index["shards"].size(), 1u);
  EXPECT_EQ(index["shards"][0]["raw_data"]["basename"], "part-000000.mds");
  EXPECT_EQ(index["shards"][0]["raw_data"]["bytes"], std::filesystem::file_size(part_of(job, 0)));
  EXPECT_EQ(index["shards"][0]["samples"], 10);
}

TEST_F(ProcessDialects, what_a_dialect_cannot_hold_is_refused) {
  for (const LatentsDialect dialect : {LatentsDialect::kAnyscale, LatentsDialect::kRaySummit, LatentsDialect::kMosaicMl}) {
    ProcessJobOptions job = options_of(dialect);
    job.latents = LatentsKind::kMoments;
    EXPECT_THAT(job.validate().message(), AllOf(HasSubstr("--latents sample"), HasSubstr(std::string(latents_dialect_name(dialect)))));
    job = options_of(dialect);
    job.text = TextKind::kBoth;
    EXPECT_THAT(job.validate().message(), HasSubstr("--text embeddings"));
    job = options_of(dialect);
    job.keep_columns = {"Caption_Latents"};
    EXPECT_EQ(job.validate().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(ProcessDialects, huggingface_holds_moments_and_ids_too) {
  write_images("part-000000.parquet", good_rows(3));
  ProcessJobOptions job = options_of(LatentsDialect::kHuggingFace);
  job.latents = LatentsKind::kMoments;
  job.text = TextKind::kBoth;
  job.keep_columns = {"image"};
  process(job);
  const TableFooter footer = *read_footer(local_files(), part_of(job, 0));
  EXPECT_THAT(footer.schema->field_names(),
              ElementsAre("key", "caption", "width", "height", "image_moments_32", "caption_embeddings", "caption_ids", "image"));
  EXPECT_EQ(footer.schema->GetFieldByName("image")->type()->ToString(), "struct<bytes: binary, path: string>");
  // Where the package looks for it: Arrow takes a schema's metadata from the stored schema alone.
  ASSERT_NE(footer.schema->metadata(), nullptr);
  EXPECT_EQ(footer.schema->metadata()->Get("huggingface").ValueOr(""), *footer.find("huggingface"));
  const auto features = nlohmann::json::parse(*footer.find("huggingface"))["info"]["features"];
  EXPECT_EQ(features["image"], nlohmann::json::parse(R"({"_type": "Image"})"));
  EXPECT_EQ(features["image_moments_32"]["_type"], "Array3D");
  EXPECT_EQ(features["caption"], nlohmann::json::parse(R"({"_type": "Value", "dtype": "string"})"));
  const auto pictures = std::static_pointer_cast<arrow::StructArray>(read_table(part_of(job, 0))->GetColumnByName("image")->chunk(0));
  EXPECT_EQ(static_cast<const arrow::BinaryArray&>(*pictures->field(0)).GetString(2), good_rows(3)[2].image);
}

TEST_F(ProcessDialects, huggingface_tells_a_kept_column_of_halves_by_its_name_there) {
  const auto schema = arrow::schema(
      {arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8()), arrow::field("score", arrow::float16())});
  arrow::BinaryBuilder images;
  arrow::StringBuilder captions;
  ASSERT_TRUE((images.Append(numbered_png(1)) & captions.Append("a caption")).ok());
  const auto row =
      arrow::RecordBatch::Make(schema, 1, {*images.Finish(), *captions.Finish(), *arrow::MakeArrayOfNull(arrow::float16(), 1)});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "part-000000.parquet", *row).is_ok());
  const auto features_of_job = [&](const ProcessJobOptions& job) {
    return nlohmann::json::parse(read_bytes(job.output + "/_job.json"))["identity"]["fields"]["features"];
  };
  ProcessJobOptions job = options_of(LatentsDialect::kHuggingFace);
  process(job);
  EXPECT_EQ(features_of_job(job), 2);
  job.output = folder_.path("scored");
  job.keep_columns = {"score"};
  process(job);
  EXPECT_EQ(features_of_job(job), 3);
  const TableFooter footer = *read_footer(local_files(), part_of(job, 0));
  const auto features = nlohmann::json::parse(*footer.find("huggingface"))["info"]["features"];
  EXPECT_EQ(features["score"], nlohmann::json::parse(R"({"_type": "Value", "dtype": "float16"})"));
}

TEST_F(ProcessDialects, columns_without_an_mds_encoding_are_refused_before_anything_is_written) {
  const auto type = arrow::list(arrow::int32());
  const auto schema =
      arrow::schema({arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8()), arrow::field("boxes", type)});
  arrow::BinaryBuilder images;
  arrow::StringBuilder captions;
  ASSERT_TRUE((images.Append(numbered_png(1)) & captions.Append("a caption")).ok());
  const auto row = arrow::RecordBatch::Make(schema, 1, {*images.Finish(), *captions.Finish(), *arrow::MakeArrayOfNull(type, 1)});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "part-000000.parquet", *row).is_ok());
  ProcessJobOptions job = options_of(LatentsDialect::kMosaicMl);
  job.keep_columns = {"boxes"};
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("boxes"), HasSubstr("list<element: int32>")));
  EXPECT_FALSE(std::filesystem::exists(job.output + "/_job.json"));
}

TEST_F(ProcessDialects, missing_numbers_are_null_in_an_mds_shard) {
  write_images("part-000000.parquet", good_rows(3));
  ProcessJobOptions job = options_of(LatentsDialect::kMosaicMl);
  job.keep_columns = {"hash"};
  process(job);
  EXPECT_EQ(texts(*read_table(part_of(job, 0)), "hash"), (std::vector<std::string>{"0", "11", "null"}));
}

TEST_F(ProcessDialects, items_that_no_mds_shard_can_hold_are_refused_before_anything_is_written) {
  write_images("many.parquet", std::vector<ImageRow>(90));  // None of which has a picture.
  networks_.latents_shape = {4, 2560, 2560};                // Of which 81 are more than 4 GiB.
  ProcessJobOptions job = options_of(LatentsDialect::kMosaicMl);
  job.rows_per_file = 100;
  const Status refused = failure(job);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("--rows-per-file"), HasSubstr("90")));
  EXPECT_FALSE(std::filesystem::exists(job.output));
  // One that fits.
  job.rows_per_file = 10;
  job.selection.limit = 10;
  EXPECT_EQ(process(job).rows_in, 10);
  // One that was begun, all rows of which fail.
  job.output = folder_.path("begun");
  job.rows_per_file = 100;
  EXPECT_EQ(process(job).rows_in, 10);
  job.selection.limit = -1;
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_in, 90);
  EXPECT_EQ(summary.rows_out, 0);
}

}  // namespace
}  // namespace darkroom
