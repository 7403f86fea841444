// What a process job makes of rows, whatever its networks are.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <parquet/arrow/writer.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <stop_token>

#include "darkroom/image/png.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/tables/tensor_column.h"
#include "process_fixture.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The bytes of a row's tensor in a part.
std::string tensor_bytes(const arrow::Table& table, const std::string& name, int64_t row) {
  auto column = TensorColumn::open(*table.schema()->GetFieldByName(name), table.GetColumnByName(name)->chunk(0));
  EXPECT_TRUE(column.is_ok()) << column.status().to_string();
  const auto bytes = column->bytes(row);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(ProcessJob, stores_what_the_encoder_made_of_each_row_that_stays) {
  auto rows = good_rows(13);
  rows[2].image = "no picture";
  rows[5].caption = "nan";
  write_images("part-000000.parquet", rows);
  for (const TensorElement element : {TensorElement::kFloat16, TensorElement::kFloat32}) {
    networks_.element = element;
    ProcessJobOptions job = options(element == TensorElement::kFloat16 ? "half" : "full");
    job.text = TextKind::kBoth;
    job.keep_columns = {"hash"};
    const StageSummary summary = process(job);
    EXPECT_EQ(summary.rows_out, 11);
    EXPECT_EQ(summary.rows_by_error, (RowsByError{{"nan_latents", 1}, {"not_an_image", 1}}));
    const StubEncoder encoder(tokenizer(), job, networks_);
    const auto table = read_table(part(0, element == TensorElement::kFloat16 ? "half" : "full"));
    const auto& ids = static_cast<const arrow::FixedSizeListArray&>(*table->GetColumnByName("caption_ids")->chunk(0));
    const auto decoder = decoder_in_process();
    int64_t stored = 0;
    for (const size_t i : {0, 1, 3, 4, 6, 7, 8, 9}) {
      const PreparedRow row = prepare_row(rows[i], {.transform = job.transform}, *tokenizer(), *decoder)->value();
      EXPECT_EQ(texts(*table, "key")[static_cast<size_t>(stored)], row.key);
      EXPECT_EQ(tensor_bytes(*table, "image_latents_32", stored), encoder.latents_of(row)) << i;
      const auto slice = ids.value_slice(stored);
      const auto& id = static_cast<const arrow::UInt16Array&>(*slice);
      EXPECT_EQ(std::vector<int32_t>(id.raw_values(), id.raw_values() + id.length()), row.ids) << i;
      ++stored;
    }
    EXPECT_EQ(table->num_rows(), stored);
  }
}

TEST_F(ProcessJob, a_row_whose_key_is_empty_is_named_by_its_number) {
  auto rows = good_rows(3);
  rows[0].key = rows[2].key = "";
  rows[1].key = "own";
  write_images("part-000000.parquet", rows);
  process(options());
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), "own", row_key(2)}));
}

TEST_F(ProcessJob, does_not_go_on_with_what_an_earlier_algorithm_began) {
  write_images("part-000000.parquet", good_rows(3));
  process(options());
  const std::string record = options().output + "/_job.json";
  auto began = nlohmann::json::parse(*read_file(local_files(), record));
  began["identity"]["fields"]["algorithm_version"] = 3;  // Which kept an empty key.
  ASSERT_TRUE(write_file_atomic(local_files(), record, began.dump()).is_ok());
  const Status refused = failure(options());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("algorithm_version (had 3, asked for 5)"));
}

TEST_F(ProcessJob, rows_that_are_not_finite_cost_themselves_in_every_container) {
  auto rows = good_rows(7);
  rows[0].caption = "nan";
  rows[4].caption = "nan, too";
  write_images("part-000000.parquet", rows);
  for (const LatentsDialect dialect : {LatentsDialect::kDarkroom, LatentsDialect::kMosaicMl}) {
    ProcessJobOptions job = options(std::string(latents_dialect_name(dialect)));
    job.dialect = dialect;
    job.keep_columns = {"hash"};
    EXPECT_EQ(process(job).rows_by_error, (RowsByError{{"nan_latents", 2}}));
    const PartName name{.item = 0, .container = dialect == LatentsDialect::kMosaicMl ? PartContainer::kMds : PartContainer::kParquet};
    const auto table = read_table(job.output + "/" + name.text());
    EXPECT_EQ(texts(*table, "key"), (std::vector<std::string>{row_key(1), row_key(2), row_key(3), row_key(5), row_key(6)}));
    EXPECT_EQ(process(job).rows_by_error, (RowsByError{{"nan_latents", 2}})) << "read back from the part";
  }
}

TEST_F(ProcessJob, an_item_without_a_good_row_is_a_part_without_rows) {
  auto rows = good_rows(4);
  for (ImageRow& row : rows) {
    row.caption = "nan";
  }
  write_images("part-000000.parquet", rows);
  EXPECT_EQ(process(options()).rows_out, 0);
  EXPECT_EQ(read_table(part(0))->num_rows(), 0);
  EXPECT_EQ(process(options()).rows_this_run, 0);
}

TEST_F(ProcessJob, networks_that_throw_end_the_job_and_the_next_run_goes_on) {
  write_images("part-000000.parquet", good_rows(35));
  process(options("whole"));
  ProcessJobOptions job = options();
  job.num_transformers = job.num_encoders = 3;
  networks_.on_row = [](const PreparedRow& row) {
    if (row.key == row_key(23)) {
      throw std::runtime_error("out of memory on the device");
    }
  };
  const Status broken = failure(job);
  EXPECT_EQ(broken.code(), StatusCode::kInternal) << broken.to_string();
  EXPECT_THAT(broken.message(), HasSubstr("out of memory on the device"));
  networks_ = {};
  EXPECT_EQ(process(job).rows_out, 35);
  EXPECT_EQ(part_bytes(job.output), part_bytes(folder_.path("whole")));
}

TEST_F(ProcessJob, a_stop_within_a_batch_ends_the_job_wherever_it_comes) {
  write_images("part-000000.parquet", good_rows(35));
  process(options("whole"));
  for (const int stop_at : {0, 1, 11, 34}) {
    ProcessJobOptions job = options("stopped-" + std::to_string(stop_at));
    job.num_transformers = job.num_encoders = 2;
    std::stop_source stop;
    networks_.on_row = [&](const PreparedRow& row) {
      if (row.key == row_key(stop_at)) {
        stop.request_stop();
      }
    };
    EXPECT_EQ(run(stores_, job, stop.get_token()).status().code(), StatusCode::kCancelled);
    networks_ = {};
    EXPECT_EQ(process(job).rows_in, 35);
    EXPECT_EQ(part_bytes(job.output), part_bytes(folder_.path("whole"))) << stop_at;
  }
}

TEST_F(ProcessJob, an_encoder_that_cannot_be_opened_ends_the_job_before_anything_is_written) {
  write_images("part-000000.parquet", good_rows(2));
  StageSummary summary;
  const auto refuse = []() -> Result<std::unique_ptr<const ProcessEncoder>> { return Status::not_found("no such model:", "there"); };
  EXPECT_EQ(run_process_job(stores_, options(), refuse, {}, summary).code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents")));
}

TEST_F(ProcessJob, what_the_networks_are_belongs_to_the_job) {
  write_images("part-000000.parquet", good_rows(3));
  process(options());
  ProcessJobOptions job = options();
  job.batch_size = 5;
  EXPECT_THAT(failure(job).message(), HasSubstr("batch_size (had 4, asked for 5)"));
  job = options();
  job.transform.resolution = 40;
  EXPECT_THAT(failure(job).message(), HasSubstr("resolution (had 32, asked for 40)"));
  networks_.fingerprint = "others";
  const Status status = failure(options());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("vae (had"), HasSubstr("text_encoder (had")));
  networks_ = {.element = TensorElement::kFloat32};
  EXPECT_THAT(failure(options()).message(), HasSubstr("dtype (had \"float16\", asked for \"float32\")"));
}

TEST_F(ProcessJob, samples_are_painted_once_the_job_is_done) {
  write_images("part-000000.parquet", good_rows(12));
  ProcessJobOptions job = options();
  job.num_visualized = 1;
  job.visualize_path = folder_.path("sheet.png");
  process(job);
  EXPECT_EQ(read_bytes(job.visualize_path), "2 parts");
}

TEST_F(ProcessJob, bad_options_are_refused) {
  const auto is_refused = [&](const std::function<void(ProcessJobOptions&)>& change) {
    ProcessJobOptions job = options();
    change(job);
    return job.validate().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.input.clear(); }));
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.output.clear(); }));
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.batch_size = 0; }));
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.num_readers = -1; }));
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.rows_per_file = 0; }));
  EXPECT_TRUE(is_refused([](ProcessJobOptions& job) { job.num_visualized = 2; }));
  EXPECT_FALSE(is_refused([](ProcessJobOptions&) {}));
  ProcessJobOptions job = options();
  job.selection.on_demand = true;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
}

TEST_F(ProcessJob, counts_bad_rows_under_their_codes_and_keeps_the_others) {
  auto rows = good_rows(9);
  rows[1].image.clear();
  rows[3].image = "no picture";
  rows[4].caption = " \t";
  rows[6].image.resize(rows[6].image.size() / 2);
  write_images("part-000000.parquet", rows);
  testing::internal::CaptureStderr();
  const StageSummary summary = process(options());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("process: a row failed, not_an_image: no known magic bytes\n"), std::string::npos);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"null_image", 1}, {"not_an_image", 1}, {"empty_caption", 1}, {"truncated", 1}}));
  EXPECT_EQ(summary.rows_in, summary.rows_out + summary.rows_failed());
  for (const StageSnapshot& stage : summary.stages) {
    EXPECT_EQ(stage.num_rows, stage.name == "encode" ? 5 : 9) << stage.name << "; what failed before is not encoded";
  }
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), row_key(2), row_key(5), row_key(7), row_key(8)}));
}

TEST_F(ProcessJob, counts_captions_that_open_clip_would_clean_otherwise) {
  auto rows = good_rows(9);
  rows[2].caption = "a letter of Unicode 15: \U0001E4D0";
  rows[5].caption = rows[2].caption;
  write_images("part-000000.parquet", rows);
  EXPECT_EQ(process(options()).num_unported_captions, 0);  // The dialect hf promises every caption.
  ProcessJobOptions open_clip = options("open_clip");
  dialect_ = TokenizerDialect::kOpenClip;
  const StageSummary summary = process(open_clip);
  EXPECT_EQ(summary.num_unported_captions, 2);
  EXPECT_EQ(summary.rows_out, 9);
  EXPECT_EQ(process(open_clip).num_unported_captions, 2);  // Read back from the shards.
}

TEST_F(ProcessJob, reads_structs_of_bytes_and_numbers_rows_without_keys) {
  auto bytes = std::make_shared<arrow::BinaryBuilder>();
  arrow::StructBuilder images(arrow::struct_({arrow::field("bytes", arrow::binary())}), arrow::default_memory_pool(), {bytes});
  arrow::StringBuilder captions;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(images.Append().ok());
    ASSERT_TRUE(bytes->Append(numbered_png(i)).ok());
    ASSERT_TRUE(captions.Append("caption").ok());
  }
  const auto schema = arrow::schema({arrow::field("image", images.type()), arrow::field("text", arrow::utf8())});
  const auto rows = arrow::RecordBatch::Make(schema, 3, {*images.Finish(), *captions.Finish()});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "train.parquet", *rows).is_ok());
  process(options());
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), row_key(1), row_key(2)}));
}

TEST_F(ProcessJob, bytes_do_not_depend_on_workers_or_memory) {
  for (int file = 0; file < 3; ++file) {
    write_images(PartName{.item = file}.text(), good_rows(17));
  }
  ProcessJobOptions job = options("one");
  job.num_readers = job.num_transformers = job.num_encoders = 1;
  process(job);
  for (const int num_workers : {2, 4}) {
    job.output = folder_.path(std::to_string(num_workers));
    job.num_readers = job.num_transformers = job.num_encoders = num_workers;
    job.memory_bytes = 1'000'000 / num_workers;
    process(job);
    EXPECT_EQ(part_bytes(folder_.path("one")), part_bytes(job.output));
  }
}

// Three items lie in one page that is larger than all that the rows may hold, and two readers read them.
TEST_F(ProcessJob, pages_larger_than_the_memory_are_read_one_after_the_other) {
  arrow::StringBuilder keys, captions;
  arrow::BinaryBuilder images;
  for (int row = 0; row < 30; ++row) {
    Image noise = Image::filled(200, 200, 3, 0);
    uint32_t state = static_cast<uint32_t>(row) + 1;
    for (uint8_t& value : noise.pixels) {
      state = state * 1'664'525u + 1'013'904'223u;
      value = static_cast<uint8_t>(state >> 24);
    }
    ASSERT_TRUE((keys.Append(row_key(row)) & captions.Append("caption") & images.Append(encode_png(noise))).ok());
  }
  const auto schema =
      arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
  const auto table = arrow::Table::Make(schema, {*keys.Finish(), *captions.Finish(), *images.Finish()});
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 30).ok());
  const std::string bytes = sink->Finish().ValueOrDie()->ToString();
  ASSERT_GE(bytes.size(), 3'000'000u);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/a.parquet"), bytes).is_ok());

  EXPECT_EQ(process(options("plenty")).rows_out, 30);
  ProcessJobOptions little = options("little");
  little.memory_bytes = 2 << 20;
  little.num_readers = 2;
  testing::internal::CaptureStderr();
  EXPECT_EQ(process(little).rows_out, 30);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the pages of " + folder_.path("images/a.parquet") + " are larger"));
  for (int item = 0; item < 3; ++item) {
    EXPECT_EQ(read_file(local_files(), part(item, "plenty")).value(), read_file(local_files(), part(item, "little")).value());
  }
}

TEST_F(ProcessJob, goes_on_after_the_parts_that_are_there) {
  write_images("part-000000.parquet", good_rows(25));
  ProcessJobOptions job = options();
  job.selection.limit = 12;
  EXPECT_EQ(process(job).rows_in, 12);
  job.selection.limit = -1;
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_in, 25);
  EXPECT_EQ(summary.rows_this_run, 15);
  job.output = folder_.path("clean");
  process(job);
  EXPECT_EQ(part_bytes(folder_.path("latents")), part_bytes(folder_.path("clean")));
}

TEST_F(ProcessJob, damaged_and_missing_inputs_are_named) {
  EXPECT_EQ(failure(options()).code(), StatusCode::kNotFound);
  write_images("part-000000.parquet", good_rows(3));
  const std::string path = folder_.path("images/part-000000.parquet");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  const Status status = failure(options());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("part-000000.parquet"), std::string::npos) << status.message();
}

TEST(CheckIds, sixteen_bits_hold_65536_of_them) {
  EXPECT_TRUE(check_ids(TextKind::kTokens, 65'536).is_ok());
  EXPECT_TRUE(check_ids(TextKind::kEmbeddings, 1'000'000).is_ok());
  for (const TextKind text : {TextKind::kTokens, TextKind::kBoth}) {
    const Status refused = check_ids(text, 65'537);
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("65537"));
  }
}

TEST_F(ProcessJob, a_vocabulary_of_more_ids_than_are_stored_is_refused_before_anything_is_written) {
  write_images("part-000000.parquet", good_rows(3));
  const std::string shipped = source_path("models/tiny/tokenizer");
  auto vocabulary = nlohmann::json::parse(*read_file(local_files(), shipped + "/vocab.json"));
  for (size_t id = vocabulary.size(); id <= 65'536; ++id) {
    vocabulary["more-" + std::to_string(id)] = id;
  }
  std::filesystem::create_directory(folder_.path("tokenizer"));
  std::filesystem::copy(shipped + "/merges.txt", folder_.path("tokenizer/merges.txt"));
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("tokenizer/vocab.json"), vocabulary.dump()).is_ok());
  auto loaded = ClipTokenizer::load(local_files(), folder_.path("tokenizer"), TokenizerDialect::kHuggingFace);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  const std::shared_ptr<const ClipTokenizer> large = *std::move(loaded);
  ProcessJobOptions job = options();
  job.text = TextKind::kTokens;
  const OpenProcessEncoder open = [&]() -> Result<std::unique_ptr<const ProcessEncoder>> {
    return std::unique_ptr<const ProcessEncoder>(std::make_unique<StubEncoder>(large, job, networks_));
  };
  StageSummary summary;
  const Status refused = run_process_job(stores_, job, open, {}, summary);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("--text embeddings"));
  EXPECT_FALSE(std::filesystem::exists(job.output));
}

TEST_F(ProcessJob, a_picture_that_has_no_place_is_told_before_the_work) {
  write_images("part-000000.parquet", good_rows(3));
  std::filesystem::create_directory(folder_.path("folder"));
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("file"), "text").is_ok());
  for (const char* place : {"folder", "file/picture.png"}) {
    ProcessJobOptions job = options();
    job.num_visualized = 2;
    job.visualize_path = folder_.path(place);
    const Status refused = failure(job);
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.to_string();
    EXPECT_THAT(refused.message(), HasSubstr("--visualize"));
    EXPECT_FALSE(std::filesystem::exists(job.output));
  }
}

TEST_F(ProcessJob, a_picture_that_cannot_be_painted_leaves_word_that_the_dataset_is_complete) {
  write_images("part-000000.parquet", good_rows(3));
  ProcessJobOptions job = options();
  job.num_visualized = 2;
  job.visualize_path = folder_.path("late/picture.png");
  networks_.on_row = [&](const PreparedRow&) {  // The place is lost meanwhile.
    static_cast<void>(write_file_atomic(local_files(), folder_.path("late"), "text"));
  };
  const Status failed = failure(job);
  EXPECT_FALSE(failed.is_ok());
  EXPECT_THAT(failed.message(), HasSubstr("the dataset is complete"));
  EXPECT_EQ(read_table(part(0))->num_rows(), 3);
}

}  // namespace
}  // namespace darkroom
