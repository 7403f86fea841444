#include "darkroom/encode/online_source.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <optional>

#include "darkroom/batches/latents_info.h"
#include "darkroom/batches/latents_reader.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/image/png.h"
#include "darkroom/stores/stores.h"
#include "support/image_containers.h"
#include "support/put_shard.h"
#include "tiny_models.h"

namespace darkroom {
namespace {

constexpr int kSide = 32;

/// A picture whose colours follow its number.
std::string picture(int number) {
  Image image = Image::filled(kSide + number % 3, kSide + 5, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(number) * 31);
  }
  return encode_png(image);
}

void write_pictures(const std::string& folder, const std::vector<std::string>& pictures) {
  arrow::StringBuilder keys, captions;
  arrow::BinaryBuilder images;
  for (size_t i = 0; i < pictures.size(); ++i) {
    ASSERT_TRUE(keys.Append("key-" + std::to_string(i)).ok());
    ASSERT_TRUE(captions.Append("picture number " + std::to_string(i)).ok());
    ASSERT_TRUE((pictures[i].empty() ? images.AppendNull() : images.Append(pictures[i])).ok());
  }
  const auto schema =
      arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
  const auto batch =
      arrow::RecordBatch::Make(schema, static_cast<int64_t>(pictures.size()), {*keys.Finish(), *captions.Finish(), *images.Finish()});
  const auto written = put_shard(local_files(), folder, "part-000000.parquet", *batch);
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
}

std::vector<std::string> good_pictures(int count) {
  std::vector<std::string> pictures;
  for (int i = 0; i < count; ++i) {
    pictures.push_back(picture(i));
  }
  return pictures;
}

TransformOptions small_transform() {
  TransformOptions transform;
  transform.resolution = kSide;
  return transform;
}

TEST(online_source, gives_the_bits_that_process_stores) {
  TemporaryFolder folder;
  const TinyModelFolder model;
  write_pictures(folder.path("images"), good_pictures(11));
  ProcessOptions process;
  process.input = folder.path("images");
  process.output = folder.path("latents");
  process.model = model.path();
  process.transform = small_transform();
  process.rows_per_file = 4;
  MetricsRegistry metrics;
  StoreSet stores({}, system_clock(), metrics);
  const auto processed = run_process(stores, process, {});
  ASSERT_TRUE(processed.is_ok()) << processed.status().to_string();

  const auto frozen = *load_frozen_models(local_files(), model.path(), TokenizerDialect::kHuggingFace);
  const auto encoder = *RowEncoder::create(frozen, {.transform = small_transform()});
  const auto images = *DatasetIndex::of_images(*find_local_dataset(folder.path("images")), 4);
  const auto latents = *DatasetIndex::of_latents(*find_local_dataset(folder.path("latents")));
  EXPECT_EQ(images.block_rows(), latents.block_rows()) << "the canonical order of both would differ";

  auto online = *OnlineSource::open(*find_local_dataset(folder.path("images")), images, encoder, {});
  auto offline =
      *LatentsReader::open(*find_local_dataset(folder.path("latents")), latents,
                           {.resolution = kSide, .latents_shape = encoder->latents_shape(), .states_shape = encoder->states_shape()});
  const std::vector<SampleRef> samples = {{0, 7}, {2, 0}, {0, 10}, {0, 7}, {0, 3}};
  const auto want = offline->read(samples);
  ASSERT_TRUE(want.is_ok()) << want.status().to_string();
  for (int again = 0; again < 2; ++again) {
    const auto got = online->read(samples);
    ASSERT_TRUE(got.is_ok()) << got.status().to_string();
    EXPECT_TRUE(torch::equal(got->latents_nchw, want->latents_nchw));
    EXPECT_TRUE(torch::equal(got->states_btc, want->states_btc));
    EXPECT_EQ(got->keys, want->keys);
  }
  const auto info = *read_latents_info(*index_latents(*find_local_dataset(folder.path("latents"))));
  const auto empty = read_empty_caption(*find_local_dataset(folder.path("latents")), info, encoder->states_shape())->states_tw;
  EXPECT_TRUE(torch::equal(encoder->empty_caption_states().to(torch::kFloat32), empty));
}

TEST(picture_source, gives_transformed_pictures_and_replaces_bad_rows) {
  TemporaryFolder folder;
  auto pictures = good_pictures(5);
  pictures[1] = "no picture";
  pictures[2] = "";
  pictures[4] = picture(4).substr(0, 60);
  write_pictures(folder.path("images"), pictures);
  const auto index = *DatasetIndex::of_images(*find_local_dataset(folder.path("images")), 100);
  auto source = *PictureSource::open(*find_local_dataset(folder.path("images")), index, {.transform = small_transform()});
  const std::vector<SampleRef> samples = {{0, 0}, {0, 1}, {0, 3}, {0, 4}};
  const auto batch = source->read(samples);
  ASSERT_TRUE(batch.is_ok()) << batch.status().to_string();
  EXPECT_EQ(batch->keys, (std::vector<std::string>{"key-0", "key-3", "key-3", "key-0"}));
  EXPECT_EQ(batch->images_nchw.sizes(), torch::IntArrayRef({4, 3, kSide, kSide}));
  const auto want = transform_image(std::as_bytes(std::span(pictures[3])), small_transform(), {});
  EXPECT_TRUE(torch::equal(batch->images_nchw[1].flatten(), torch::tensor(want->chw)));
  EXPECT_TRUE(torch::equal(batch->images_nchw[1], batch->images_nchw[2]));
}

TEST(online_sources, decode_in_a_sandbox_with_the_same_results_and_lose_only_the_row_of_a_crash) {
  TemporaryFolder folder;
  const TinyModelFolder model;
  auto pictures = good_pictures(4);
  pictures[1] = "PLANT:crash\n" + pictures[1];
  write_pictures(folder.path("images"), pictures);
  const auto index = *DatasetIndex::of_images(*find_local_dataset(folder.path("images")), 100);
  const std::string planted = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "planted_decoder";
  const std::vector<SampleRef> samples = {{0, 0}, {0, 1}, {0, 3}};
  auto locked_in =
      *PictureSource::open(*find_local_dataset(folder.path("images")), index, {.transform = small_transform(), .decoder_program = planted});
  auto here = *PictureSource::open(*find_local_dataset(folder.path("images")), index, {.transform = small_transform()});
  const auto got = locked_in->read(samples);
  ASSERT_TRUE(got.is_ok()) << got.status().to_string();
  EXPECT_EQ(got->keys, (std::vector<std::string>{"key-0", "key-2", "key-3"}));
  EXPECT_TRUE(torch::equal(got->images_nchw, here->read(samples)->images_nchw));  // To which the mark is no picture.

  const auto frozen = *load_frozen_models(local_files(), model.path(), TokenizerDialect::kHuggingFace);
  const auto encoder = *RowEncoder::create(frozen, {.transform = small_transform()});
  auto online = *OnlineSource::open(*find_local_dataset(folder.path("images")), index, encoder, {.decoder_program = planted});
  auto online_here = *OnlineSource::open(*find_local_dataset(folder.path("images")), index, encoder, {});
  EXPECT_TRUE(torch::equal(online->read(samples)->latents_nchw, online_here->read(samples)->latents_nchw));
  EXPECT_EQ(OnlineSource::open(*find_local_dataset(folder.path("images")), index, encoder, {.decoder_program = folder.path("none")})
                .status()
                .code(),
            StatusCode::kNotFound);
}

TEST(picture_source, random_crops_follow_epoch_and_key_only) {
  TemporaryFolder folder;
  write_pictures(folder.path("images"), good_pictures(3));
  const auto index = *DatasetIndex::of_images(*find_local_dataset(folder.path("images")), 100);
  PictureSourceOptions options{.transform = small_transform(), .seed = 5};
  options.transform.resolution = 16;
  options.transform.crop = Crop::kRandom;
  const auto read = [&](std::vector<SampleRef> samples, int64_t memory_bytes) {
    options.memory_bytes = memory_bytes;
    return (*PictureSource::open(*find_local_dataset(folder.path("images")), index, options))->read(samples)->images_nchw;
  };
  const auto both = read({{0, 1}, {1, 1}, {2, 1}, {3, 1}}, 1 << 20);
  EXPECT_TRUE(torch::equal(read({{1, 1}}, 1)[0], both[1]));
  bool differs = false;
  for (int64_t i = 1; i < 4; ++i) {
    differs = differs || !torch::equal(both[0], both[i]);
  }
  EXPECT_TRUE(differs) << "every epoch crops alike";
}

TEST(picture_source, fails_when_no_row_can_be_used) {
  TemporaryFolder folder;
  write_pictures(folder.path("images"), {"bad", ""});
  const auto index = *DatasetIndex::of_images(*find_local_dataset(folder.path("images")), 100);
  auto source = *PictureSource::open(*find_local_dataset(folder.path("images")), index, {.transform = small_transform()});
  const std::vector<SampleRef> samples = {{0, 0}};
  EXPECT_EQ(source->read(samples).status().code(), StatusCode::kFailedPrecondition);
}

TEST(picture_source, reads_every_container_in_the_order_of_process) {
  TemporaryFolder folder;
  std::vector<ContainedRow> rows;
  for (const std::string& bytes : good_pictures(150)) {
    rows.push_back({fmt::format("{:09d}", rows.size()), "a caption", bytes});
  }
  write_tars(local_files(), folder.path("tar"), rows);
  write_image_folder(local_files(), folder.path("imagefolder"), rows);
  write_plain_folder(local_files(), folder.path("plain"), rows);
  write_mds(local_files(), folder.path("mds"), rows);
  const std::vector<SampleRef> samples = {{0, 149}, {0, 0}, {0, 70}, {0, 64}, {0, 63}, {1, 12}};
  std::optional<torch::Tensor> wanted;
  for (const char* container : {"tar", "imagefolder", "plain", "mds"}) {
    const auto dataset = find_local_image_dataset(folder.path(container));
    ASSERT_TRUE(dataset.is_ok()) << dataset.status().to_string();
    const auto index = DatasetIndex::of_images(*dataset, 60);
    ASSERT_TRUE(index.is_ok()) << index.status().to_string();
    EXPECT_EQ(index->parts().size(), 3U) << container;
    EXPECT_EQ(DatasetIndex::of_images(*find_local_image_dataset(folder.path(container) + std::string("/")), 60)->hash(), index->hash());
    auto source = PictureSource::open(*dataset, *index, {.transform = small_transform()});
    ASSERT_TRUE(source.is_ok()) << source.status().to_string();
    const auto batch = (*source)->read(samples);
    ASSERT_TRUE(batch.is_ok()) << container << batch.status().to_string();
    wanted = wanted.value_or(batch->images_nchw);
    EXPECT_TRUE(torch::equal(batch->images_nchw, *wanted)) << container;
  }
}

}  // namespace
}  // namespace darkroom
