#include "darkroom/show/dataset_pages.h"

#include <arrow/api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/file_system.h"
#include "darkroom/image/png.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tables/tensor_column.h"
#include "support/fake_s3_stores.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"
#include "support/watched_decoder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

/// Ten pictures in parts of four, four and two rows; row 5 is no picture and the caption of row 7 is null.
class DatasetPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int64_t first = 0; first < 10; first += 4) {
      write_part(first, std::min<int64_t>(10, first + 4));
    }
  }
  void write_part(int64_t first, int64_t end) {
    arrow::StringBuilder keys, captions;
    arrow::BinaryBuilder images;
    arrow::DoubleBuilder scores;
    for (int64_t row = first; row < end; ++row) {
      ASSERT_TRUE((keys.Append(fmt::format("{:012}", row)) & scores.Append(static_cast<double>(row) / 4)).ok());
      ASSERT_TRUE((row == 7 ? captions.AppendNull() : captions.Append(row % 2 == 0 ? "a Red apple" : "grey stone")).ok());
      ASSERT_TRUE(images.Append(row == 5 ? "no picture" : encode_png(Image::filled(512, 300, 3, static_cast<uint8_t>(row)))).ok());
    }
    const auto schema = arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                                       arrow::field("image", arrow::binary()), arrow::field("score", arrow::float64())});
    const auto rows =
        arrow::RecordBatch::Make(schema, end - first, {*keys.Finish(), *captions.Finish(), *images.Finish(), *scores.Finish()});
    const std::string record = fmt::format(
        R"({{"job":"abc","identity":{{"fields":{{"input":"/home/somebody"}}}},"rows_in":{},"rows_out":{},"rows_by_error":{{"timeout":3}}}})",
        end - first + 3, end - first);
    const auto written =
        put_shard(local_files(), folder_.path("images"), fmt::format("part-{:06}.parquet", first / 4), *rows, {{kShardKey, record}});
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }
  Result<std::unique_ptr<DatasetPages>> open(const std::string& uri) {
    return DatasetPages::open(s3_.set, {.uri = uri, .open_decoder = [](const std::stop_token&) { return decoder_in_process(); }}, {});
  }
  std::unique_ptr<DatasetPages> opened_with(DatasetPagesOptions options) {
    options.uri = folder_.path("images");
    return DatasetPages::open(s3_.set, options, {}).value();
  }
  /// A row of latents of zeros, four channels of so many places a side, and a vae of so many channels that decodes them.
  std::unique_ptr<DatasetPages> opened_latents(int64_t side, int64_t vae_channels) {
    const std::vector<std::byte> zeros(static_cast<size_t>(4 * side * side * 2));
    const auto column = make_tensor_column(TensorElement::kFloat16, {4, side, side}, zeros).value();
    const std::string name = "latents of " + std::to_string(vae_channels);
    write_latents(name, "image_latents_" + std::to_string(8 * side), tensor_type(TensorElement::kFloat16, {4, side, side}), column);
    VaeConfig config = find_preset("tiny")->vae;
    config.latent_channels = vae_channels;
    AutoencoderKL vae(config);
    initialize_parameters(vae, 1);
    const std::string vae_folder = folder_.path("vae of " + std::to_string(vae_channels));
    EXPECT_TRUE(save_vae(local_files(), vae, vae_folder).is_ok());
    const DatasetPagesOptions options{.uri = folder_.path(name), .vae_folder = vae_folder};
    return DatasetPages::open(s3_.set, options, {}).value();
  }
  void write_latents(const std::string& folder, const std::string& column, const std::shared_ptr<arrow::DataType>& type,
                     const std::shared_ptr<arrow::Array>& latents) {
    const auto rows = arrow::RecordBatch::Make(arrow::schema({arrow::field(column, type)}), latents->length(), {latents});
    const std::string record = R"({"job":"abc","rows_in":1,"rows_out":1,"rows_by_error":{}})";
    ASSERT_TRUE(put_shard(local_files(), folder_.path(folder), "part-000000.parquet", *rows, {{kShardKey, record}}).is_ok());
  }
  std::unique_ptr<DatasetPages> opened() { return open(folder_.path("images")).value(); }
  static ShownRows rows(DatasetPages& pages, const ShownRowsAsked& asked) {
    auto found = pages.rows(asked, {});
    EXPECT_TRUE(found.is_ok()) << found.status().to_string();
    return found.is_ok() ? *std::move(found) : ShownRows();
  }
  std::vector<int64_t> found(const std::string& words) { return rows(*opened(), {.count = 24, .words = words}).numbers; }

  TemporaryFolder folder_;
  FakeS3Stores s3_;
};

TEST_F(DatasetPagesTest, tells_what_the_footers_say_but_not_where_things_lie) {
  const auto pages = opened();
  EXPECT_EQ(pages->report().kind, "image dataset");
  EXPECT_EQ(pages->num_rows(), 10);
  EXPECT_THAT(pages->rows_by_error(), ElementsAre(Pair("timeout", 9)));
  EXPECT_FALSE(pages->can_decode());
  for (const ReportTable& table : pages->report().tables) {
    for (const auto& row : table.rows) {
      EXPECT_THAT(row, testing::Each(testing::Not(HasSubstr("somebody"))));
    }
  }
}

TEST_F(DatasetPagesTest, shows_rows_of_any_place_across_parts) {
  const auto pages = opened();
  const ShownRows some = rows(*pages, {.first = 3, .count = 6});
  EXPECT_THAT(some.numbers, ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(some.next, 9);
  EXPECT_EQ(some.cards[0].caption, "grey stone");
  EXPECT_EQ(some.cards[0].pictures[0].image.width, 256);
  EXPECT_EQ(some.cards[0].pictures[0].image.height, 150);
  EXPECT_EQ(some.cards[1].pictures[0].image.pixels.front(), 4);
  EXPECT_THAT(some.cards[1].facts, testing::Contains(Pair("score", "1")));
  EXPECT_TRUE(some.cards[2].pictures[0].image.pixels.empty());
  EXPECT_THAT(some.cards[2].caption, HasSubstr("not_an_image"));
  EXPECT_EQ(some.cards[4].caption, "");
}

TEST_F(DatasetPagesTest, ends_at_the_last_row_and_refuses_wrong_numbers) {
  const auto pages = opened();
  EXPECT_EQ(rows(*pages, {.first = 9, .count = 24}).next, 10);
  EXPECT_THAT(rows(*pages, {.first = 10}).numbers, IsEmpty());
  EXPECT_THAT(rows(*pages, {.first = INT64_MAX}).numbers, IsEmpty());
  EXPECT_THAT(rows(*pages, {.first = INT64_MAX, .words = "apple"}).numbers, IsEmpty());
  for (const ShownRowsAsked& asked : {ShownRowsAsked{.first = -1}, ShownRowsAsked{.count = 0}, ShownRowsAsked{.count = 25}}) {
    EXPECT_EQ(pages->rows(asked, {}).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(DatasetPagesTest, finds_words_and_comparisons_in_all_columns_but_pictures) {
  EXPECT_THAT(found("red"), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(found("  RED apple\t0008"), ElementsAre(8));
  EXPECT_THAT(found("score>1 score<2 stone"), ElementsAre(5));
  EXPECT_THAT(found("Score=1.5"), ElementsAre(6));
  EXPECT_THAT(found("key<2"), ElementsAre(0, 1));
  EXPECT_THAT(found("none=5"), IsEmpty());
  EXPECT_THAT(found("PNG"), IsEmpty());
}

TEST_F(DatasetPagesTest, a_search_goes_on_where_it_was_full) {
  const auto pages = opened();
  const ShownRows first = rows(*pages, {.count = 2, .words = "red"});
  EXPECT_THAT(first.numbers, ElementsAre(0, 2));
  EXPECT_EQ(first.next, 3);
  EXPECT_THAT(rows(*pages, {.first = first.next, .count = 24, .words = "red"}).numbers, ElementsAre(4, 6, 8));
}

TEST_F(DatasetPagesTest, a_search_whose_time_is_over_shows_what_it_has_and_says_where_to_go_on) {
  const auto pages = opened_with({.search_patience = std::chrono::milliseconds(0), .open_decoder = [](const std::stop_token&) {
                                    return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process());
                                  }});
  const ShownRows first = rows(*pages, {.count = 24, .words = "red"});
  EXPECT_THAT(first.numbers, ElementsAre(0));
  EXPECT_EQ(first.cards.size(), 1);
  EXPECT_EQ(first.next, 2);
  EXPECT_THAT(rows(*pages, {.first = first.next, .count = 24, .words = "red"}).numbers, ElementsAre(2));
  EXPECT_EQ(rows(*pages, {.first = 8, .words = "red"}).next, 10);
}

TEST_F(DatasetPagesTest, who_leaves_ends_the_decoding_of_its_own_call_only) {
  int num_opened = 0;
  std::stop_token decoding;
  std::stop_source second;
  bool leaves = false;
  const auto before = [&] {
    leaves&& second.request_stop();
    return decoding.stop_requested() ? Status::cancelled("stopped while a picture was decoded") : Status::ok();
  };
  const auto pages = opened_with({.open_decoder = [&](const std::stop_token& stop) -> Result<std::unique_ptr<PictureDecoder>> {
    num_opened += 1;
    decoding = stop;
    return std::unique_ptr<PictureDecoder>(std::make_unique<WatchedDecoder>(before));
  }});
  std::stop_source first;
  ASSERT_TRUE(pages->rows({.count = 1}, first.get_token()).is_ok());
  first.request_stop();
  EXPECT_TRUE(pages->rows({.count = 1}, {}).is_ok());
  EXPECT_EQ(num_opened, 1);
  leaves = true;
  EXPECT_EQ(pages->rows({.count = 1}, second.get_token()).status().code(), StatusCode::kCancelled);
  leaves = false;
  EXPECT_TRUE(pages->rows({.count = 1}, {}).is_ok());
  EXPECT_EQ(num_opened, 2);
}

TEST_F(DatasetPagesTest, a_decoder_that_is_lost_costs_the_pictures_alone) {
  bool is_there = false;
  const auto open_decoder = [&](const std::stop_token&) -> Result<std::unique_ptr<PictureDecoder>> {
    return is_there ? Result<std::unique_ptr<PictureDecoder>>(decoder_in_process()) : Status::failed_precondition("no sandbox");
  };
  const auto pages = opened_with({.open_decoder = open_decoder});
  const ShownRows without = rows(*pages, {.first = 4, .count = 2});
  ASSERT_EQ(without.cards.size(), 2);
  EXPECT_TRUE(without.cards[0].pictures[0].image.pixels.empty());
  EXPECT_EQ(without.cards[0].caption, "[decode_failed] a Red apple");
  is_there = true;
  EXPECT_FALSE(rows(*pages, {.first = 4, .count = 1}).cards.at(0).pictures[0].image.pixels.empty());
}

TEST_F(DatasetPagesTest, a_row_without_latents_takes_no_room_for_any) {
  arrow::BinaryBuilder latents;
  ASSERT_TRUE(latents.AppendNull().ok());
  write_latents("latents", "image_moments_999999", arrow::binary(), *latents.Finish());  // Of which one would be 500 GB.
  const auto pages = open(folder_.path("latents"));
  ASSERT_TRUE(pages.is_ok()) << pages.status().to_string();
  EXPECT_EQ(rows(**pages, {}).cards.at(0).pictures.at(0).label, "null");
}

TEST_F(DatasetPagesTest, large_latents_are_shown_small_and_not_decoded) {
  const auto pages = opened_latents(257, 4);
  const ShownRows shown = rows(*pages, {.count = 1});
  EXPECT_EQ(shown.cards.at(0).pictures.at(0).image.width, 256);
  const Status decoded = pages->rows({.count = 1, .decodes = true}, {}).status();
  EXPECT_EQ(decoded.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(decoded.message(), HasSubstr("[4, 257, 257]"));
}

TEST_F(DatasetPagesTest, latents_are_decoded_by_the_model_that_they_are_of) {
  const auto fitting = rows(*opened_latents(4, 4), {.count = 1, .decodes = true});
  EXPECT_EQ(fitting.cards.at(0).pictures.back().label, "decoded");
  const Status others = opened_latents(4, 3)->rows({.count = 1, .decodes = true}, {}).status();
  EXPECT_EQ(others.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(others.message(), HasSubstr("does not fit"));
}

TEST_F(DatasetPagesTest, reads_a_store_and_names_what_is_none) {
  ASSERT_TRUE(s3_.upload(folder_.path("images"), "images").is_ok());
  const auto pages = open(FakeS3Stores::uri("images"));
  ASSERT_TRUE(pages.is_ok()) << pages.status().to_string();
  EXPECT_THAT(rows(**pages, {.first = 8}).numbers, ElementsAre(8, 9));
  EXPECT_EQ(open(folder_.path("missing")).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("bad.parquet"), "garbage").is_ok());
  EXPECT_EQ(open(folder_.path("bad.parquet")).status().code(), StatusCode::kCorruptData);
}

TEST_F(DatasetPagesTest, a_part_that_was_damaged_since_costs_its_own_rows) {
  const auto pages = opened();
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/part-000001.parquet"), "garbage").is_ok());
  EXPECT_FALSE(pages->rows({.first = 4, .count = 1}, {}).is_ok());
  EXPECT_THAT(rows(*pages, {.first = 8}).numbers, ElementsAre(8, 9));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(pages->rows({.first = 0}, stop.get_token()).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace darkroom
