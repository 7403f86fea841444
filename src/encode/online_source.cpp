#include "darkroom/encode/online_source.h"

#include <optional>

#include "darkroom/core/random.h"
#include "darkroom/feed/lru_cache.h"
#include "darkroom/image/sandbox.h"
#include "encoded_batch.h"
#include "image_row_reader.h"
#include "slice_encoder.h"

namespace darkroom {

struct PictureSource::State {
  struct Picture {
    std::string key;
    Image square;
  };

  PictureSourceOptions options;
  GoodPictureRows rows;
  std::unique_ptr<PictureDecoder> decoder;
  LruCache<Picture> pictures;

  State(const PictureSourceOptions& source_options, std::unique_ptr<ImageRowReader> reader, std::unique_ptr<PictureDecoder> picture_decoder)
      : options(source_options), rows(std::move(reader)), decoder(std::move(picture_decoder)), pictures(source_options.memory_bytes / 2) {}
  Result<std::shared_ptr<const Picture>> load(const SampleRef& sample, int64_t cache_key);
};

Result<std::shared_ptr<const PictureSource::State::Picture>> PictureSource::State::load(const SampleRef& sample, int64_t cache_key) {
  const int side = options.transform.resolution;
  Picture picture{.key = {}, .square = Image::filled(side, side, 3)};
  int64_t tries = 0;
  DARKROOM_RETURN_IF_ERROR(rows.work(sample.row, tries, [&](const ImageRow& row) -> Result<std::optional<RowError>> {
    const CounterRandom random(options.seed, Purpose::kCrop, sample.epoch, row.key);
    DARKROOM_ASSIGN_OR_RETURN(const RowResult<DecodedSize> size,
                              decoder->transform(std::as_bytes(std::span(row.image)), options.transform, kAnySize,
                                                 {random.uniform(0), random.uniform(1)}, picture.square.pixels));
    if (!size.is_ok()) {
      return std::optional(size.error());
    }
    picture.key = row.key;
    return std::optional<RowError>();
  }));
  const auto num_bytes = static_cast<int64_t>(picture.square.pixels.size() + sizeof(Picture));
  return pictures.insert(cache_key, std::move(picture), num_bytes);
}

PictureSource::PictureSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
PictureSource::~PictureSource() = default;

Result<std::unique_ptr<PictureSource>> PictureSource::open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                           const PictureSourceOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.transform.validate());
  DARKROOM_ASSIGN_OR_RETURN(auto reader, ImageRowReader::open(dataset, index, options.memory_bytes / 2));
  DARKROOM_ASSIGN_OR_RETURN(auto decoder, open_decoder(options.decoder_program, kAnySize, {}));
  return std::unique_ptr<PictureSource>(new PictureSource(std::make_unique<State>(options, std::move(reader), std::move(decoder))));
}

Result<Batch> PictureSource::read(std::span<const SampleRef> samples) {
  const int64_t side = state_->options.transform.resolution;
  Batch batch;
  batch.images_nchw = torch::empty({static_cast<int64_t>(samples.size()), 3, side, side}, torch::kFloat32);
  const auto square_floats = static_cast<size_t>(3 * side * side);
  std::span<float> out(batch.images_nchw.data_ptr<float>(), samples.size() * square_floats);
  for (const auto& sample : samples) {
    // A random crop differs from epoch to epoch; a centre crop is made once.
    const bool is_fresh = state_->options.transform.crop == Crop::kRandom;
    const int64_t cache_key = is_fresh ? sample.row << 24 | sample.epoch : sample.row;
    auto picture = state_->pictures.find(cache_key);
    if (picture == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(picture, state_->load(sample, cache_key));
    }
    normalise_chw(picture->square, out.first(square_floats));
    out = out.subspan(square_floats);
    batch.keys.push_back(picture->key);
  }
  return batch;
}

std::string PictureSource::describe(int64_t row) const { return state_->rows.describe(row); }

struct OnlineSource::State {
  std::unique_ptr<SliceEncoder> encoder;
  OnlineSourceOptions options;
};

OnlineSource::OnlineSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
OnlineSource::~OnlineSource() = default;

Result<std::unique_ptr<OnlineSource>> OnlineSource::open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                         std::shared_ptr<const RowEncoder> encoder, const OnlineSourceOptions& options) {
  const SliceEncoderOptions slices{
      .memory_bytes = options.memory_bytes, .threads = static_cast<int>(options.threads), .decoder_program = options.decoder_program};
  DARKROOM_ASSIGN_OR_RETURN(auto slice_encoder, SliceEncoder::open(dataset, index, std::move(encoder), slices));
  return std::unique_ptr<OnlineSource>(new OnlineSource(std::make_unique<State>(State{std::move(slice_encoder), options})));
}

Result<Batch> OnlineSource::read(std::span<const SampleRef> samples) {
  std::vector<int64_t> rows;
  for (const SampleRef& sample : samples) {
    rows.push_back(sample.row);
  }
  const auto encoded = state_->encoder->encode(0, rows);
  at::set_num_threads(static_cast<int>(state_->options.training_threads));
  DARKROOM_RETURN_IF_ERROR(encoded.status());
  const RowEncoder& encoder = state_->encoder->encoder();
  EncodedBatch batch(encoder.latents_shape(), encoder.states_shape(), samples.size());
  for (const auto& row : *encoded) {
    batch.add(row->key, row->latents_chw, row->states_tw);
  }
  return std::move(batch).finish();
}

std::string OnlineSource::describe(int64_t row) const { return state_->encoder->describe(row); }

}  // namespace darkroom
