#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "darkroom/tables/tensor_column.h"
#include "process_fixture.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

constexpr int kMostRows = 9;

/// Rows encoded in batches of every size, with every row at every place in them.
class RowBatches : public ProcessJob {
 protected:
  static std::shared_ptr<const RowEncoder> encoder(int rows_together, torch::ScalarType type = torch::kFloat32, int side = kProcessSide) {
    RowEncoderOptions options;
    options.transform.resolution = side;
    options.dtype = torch::kFloat32;
    options.rows_together = rows_together;
    const auto models =
        *load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace, {.device = torch::kCPU, .type = type});
    return *RowEncoder::create(models, options);
  }
  static std::vector<PreparedRow> prepared_rows(const RowEncoder& encoder) {
    const auto decoder = decoder_in_process();
    std::vector<PreparedRow> rows;
    for (const ImageRow& row : good_rows(kMostRows)) {
      rows.push_back(encoder.prepare(row, *decoder)->value());
    }
    return rows;
  }
  static ::testing::AssertionResult is_same_row(const EncodedRows& got, int64_t i, const EncodedRows& want, int64_t j) {
    if (!torch::equal(got.latents_nchw[i], want.latents_nchw[j])) {
      return ::testing::AssertionFailure() << "the latents differ by " << largest(got.latents_nchw[i] - want.latents_nchw[j]);
    }
    if (!torch::equal(got.states_btc[i], want.states_btc[j])) {
      return ::testing::AssertionFailure() << "the text states differ by " << largest(got.states_btc[i] - want.states_btc[j]);
    }
    return torch::equal(got.ids_bt[i], want.ids_bt[j]) ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << "other ids";
  }
};

// 40: a latent's numbers don't fill the vector registers, so that the end of a row is computed by other code than its beginning.
TEST_F(RowBatches, alone_a_rows_bits_are_the_same_in_batches_of_every_size_at_every_place) {
  for (const auto& [type, side] : {std::pair(torch::kFloat32, 32), std::pair(torch::kFloat32, 40), std::pair(torch::kBFloat16, 32)}) {
    const auto alone = encoder(1, type, side);
    const std::vector<PreparedRow> rows = prepared_rows(*alone);
    at::set_num_threads(1);
    const EncodedRows want = alone->encode(rows);
    for (int size = 1; size <= kMostRows; ++size) {
      for (int first = 0; first + size <= kMostRows; ++first) {
        const EncodedRows got = alone->encode(std::span(rows).subspan(static_cast<size_t>(first), static_cast<size_t>(size)));
        for (int i = 0; i < size; ++i) {
          ASSERT_TRUE(is_same_row(got, i, want, first + i)) << torch::toString(type) << " side " << side << " size " << size << " at " << i;
        }
      }
    }
  }
}

TEST_F(RowBatches, together_a_rows_bits_depend_on_the_batch_size_and_not_on_its_place_or_its_neighbours) {
  at::set_num_threads(1);
  const EncodedRows want_about = encoder(1)->encode(prepared_rows(*encoder(1)));
  for (int size = 1; size <= kMostRows; ++size) {
    const auto together = encoder(size);
    std::vector<PreparedRow> rows = prepared_rows(*together);
    const EncodedRows want = together->encode(rows);  // The last batch is filled up.
    EXPECT_TRUE(is_near(want.latents_nchw, want_about.latents_nchw, 1e-4 * largest(want_about.latents_nchw))) << size;
    EXPECT_TRUE(is_near(want.states_btc, want_about.states_btc, 1e-4 * largest(want_about.states_btc))) << size;
    for (int turn = 1; turn <= size; ++turn) {
      std::rotate(rows.begin(), rows.begin() + 1, rows.end());
      const EncodedRows got = together->encode(rows);
      for (int i = 0; i < kMostRows; ++i) {
        ASSERT_TRUE(is_same_row(got, i, want, (i + turn) % kMostRows)) << "size " << size << " turned by " << turn << " at " << i;
      }
    }
    const EncodedRows got = together->encode(std::span(rows).first(1));
    EXPECT_TRUE(is_same_row(got, 0, want, size % kMostRows)) << "beside blank rows, size " << size;
  }
}

TEST_F(RowBatches, networks_in_bfloat16_give_about_the_same_rows) {
  at::set_num_threads(1);
  const auto full = encoder(1);
  const auto half = encoder(1, torch::kBFloat16);
  const std::vector<PreparedRow> rows = prepared_rows(*full);
  const EncodedRows want = full->encode(rows);
  const EncodedRows got = half->encode(rows);
  EXPECT_EQ(half->models().vae_fingerprint, full->models().vae_fingerprint);
  EXPECT_EQ(got.latents_nchw.scalar_type(), torch::kFloat32);
  EXPECT_FALSE(torch::equal(got.latents_nchw, want.latents_nchw));
  // A rounding of 2^-8 in each of some dozens of layers, of random sign.
  EXPECT_TRUE(is_near(got.latents_nchw, want.latents_nchw, 0x1p-4 * largest(want.latents_nchw)));
  EXPECT_TRUE(is_near(got.states_btc, want.states_btc, 0x1p-4 * largest(want.states_btc)));
}

TEST_F(RowBatches, text_states_of_float16_networks_stay_as_they_are) {
  at::set_num_threads(1);
  RowEncoderOptions options;
  options.transform.resolution = kProcessSide;
  const auto models =
      *load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace, {.device = torch::kCPU, .type = torch::kFloat16});
  const auto half = *RowEncoder::create(models, options);
  const std::vector<PreparedRow> rows = prepared_rows(*half);
  const EncodedRows got = half->encode(std::span(rows).first(1));
  const torch::NoGradGuard no_gradients;
  ClipTextModel text_encoder = models->text_encoder;
  EXPECT_EQ(got.states_btc.scalar_type(), torch::kFloat16);
  EXPECT_TRUE(torch::equal(got.states_btc, text_encoder->forward(got.ids_bt)));
}

TEST_F(RowBatches, results_are_ordinary_tensors) {
  const auto alone = encoder(1);
  EncodedRows got = alone->encode(prepared_rows(*alone));
  EXPECT_FALSE(got.latents_nchw.is_inference() || got.states_btc.is_inference() || alone->empty_caption_states().is_inference());
}

TEST_F(RowBatches, rows_that_go_together_are_another_job_and_so_are_other_types) {
  write_images("part-000000.parquet", good_rows(5));
  process(options());
  ProcessOptions job = options();
  job.batching = Batching::kTogether;
  EXPECT_THAT(failure(job).message(), HasSubstr("batching (had "));
  job = options();
  job.place.type = torch::kBFloat16;
  EXPECT_THAT(failure(job).message(), HasSubstr("compute_dtype (had "));
  job = options();
  job.batching = Batching::kAlone;  // What the CPU does anyway.
  EXPECT_EQ(process(job).rows_this_run, 0);
}

TEST_F(RowBatches, rows_that_go_together_do_not_depend_on_workers_or_on_rows_that_fail) {
  auto rows = good_rows(13);
  write_images("part-000000.parquet", rows);
  ProcessOptions job = options("whole");
  job.batching = Batching::kTogether;
  job.num_encoders = 1;
  process(job);
  job.output = folder_.path("many");
  job.num_encoders = job.num_transformers = 3;
  process(job);
  EXPECT_EQ(part_bytes(folder_.path("whole")), part_bytes(job.output));

  std::filesystem::remove_all(folder_.path("images"));
  rows[0].image = "no picture";
  write_images("part-000000.parquet", rows);
  job.output = folder_.path("less");
  EXPECT_EQ(process(job).rows_out, 12);
  const auto values = [&](const std::string& output, int64_t row) {
    const auto table = read_table(part(0, output));
    auto column = TensorColumn::open(*table->schema()->GetFieldByName("image_latents_32"),
                                     table->GetColumnByName("image_latents_32")->chunk(0), {4, 4, 4});
    const auto bytes = column->bytes(row);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (int64_t row = 1; row < 10; ++row) {
    EXPECT_EQ(values("less", row - 1), values("whole", row)) << row;
  }
}

}  // namespace
}  // namespace darkroom
