#include "darkroom/encode/online_source.h"

#include <functional>
#include <optional>

#include "darkroom/core/log.h"
#include "darkroom/core/random.h"
#include "darkroom/feed/lru_cache.h"
#include "darkroom/image/sandbox.h"
#include "image_row_reader.h"

namespace darkroom {
namespace {

constexpr int64_t kWarningsShown = 10;

/// Works on a row; on failure on the rows after it, until one succeeds.
class GoodRows {
 public:
  /// The row's own error; the outer one ends the read.
  using Work = std::function<Result<std::optional<RowError>>(const ImageRow&)>;

  explicit GoodRows(std::unique_ptr<ImageRowReader> reader) : reader_(std::move(reader)) {}

  Status work(int64_t row, const Work& work) {
    for (int64_t tries = 0; tries < reader_->num_rows(); ++tries) {
      const int64_t candidate = (row + tries) % reader_->num_rows();
      DARKROOM_ASSIGN_OR_RETURN(const ImageRow image, reader_->read(candidate));
      DARKROOM_ASSIGN_OR_RETURN(const std::optional<RowError> error, work(image));
      if (!error) {
        return {};
      }
      note(candidate, *error);
    }
    return Status::failed_precondition("not one row of the image dataset can be used; rows:", reader_->num_rows());
  }
  std::string describe(int64_t row) const { return reader_->describe(row); }

 private:
  void note(int64_t row, const RowError& error) {
    if (++num_replaced_ <= kWarningsShown) {
      log_warning("a row is replaced by the next good one ({}): {}{}", error.name(), describe(row),
                  num_replaced_ == kWarningsShown ? "; further ones are not shown" : "");
    }
  }

  std::unique_ptr<ImageRowReader> reader_;
  int64_t num_replaced_ = 0;
};

}  // namespace

struct PictureSource::State {
  struct Picture {
    std::string key;
    Image square;
  };

  PictureSourceOptions options;
  GoodRows rows;
  std::unique_ptr<PictureDecoder> decoder;
  LruCache<Picture> pictures;

  State(const PictureSourceOptions& source_options, std::unique_ptr<ImageRowReader> reader, std::unique_ptr<PictureDecoder> picture_decoder)
      : options(source_options), rows(std::move(reader)), decoder(std::move(picture_decoder)), pictures(source_options.memory_bytes / 2) {}
  Result<std::shared_ptr<const Picture>> load(const SampleRef& sample, int64_t cache_key);
};

Result<std::shared_ptr<const PictureSource::State::Picture>> PictureSource::State::load(const SampleRef& sample, int64_t cache_key) {
  const int side = options.transform.resolution;
  Picture picture{.key = {}, .square = Image::filled(side, side, 3)};
  DARKROOM_RETURN_IF_ERROR(rows.work(sample.row, [&](const ImageRow& row) -> Result<std::optional<RowError>> {
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

Result<std::unique_ptr<PictureSource>> PictureSource::open(FileSystem& files, const std::string& uri, const DatasetIndex& index,
                                                           const PictureSourceOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.transform.validate());
  DARKROOM_ASSIGN_OR_RETURN(auto reader, ImageRowReader::open(files, uri, index, options.memory_bytes / 2));
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
  struct Encoded {
    std::string key;
    torch::Tensor latents_chw;
    torch::Tensor states_tw;
  };

  std::shared_ptr<const RowEncoder> encoder;  // Shared with the caller, who asks it for the empty caption.
  OnlineSourceOptions options;
  GoodRows rows;
  std::unique_ptr<PictureDecoder> decoder;
  LruCache<Encoded> encoded;

  State(std::shared_ptr<const RowEncoder> row_encoder, const OnlineSourceOptions& source_options, std::unique_ptr<ImageRowReader> reader,
        std::unique_ptr<PictureDecoder> picture_decoder)
      : encoder(std::move(row_encoder)),
        options(source_options),
        rows(std::move(reader)),
        decoder(std::move(picture_decoder)),
        encoded(source_options.memory_bytes / 2) {}
  Result<std::shared_ptr<const Encoded>> load(int64_t row);
};

Result<std::shared_ptr<const OnlineSource::State::Encoded>> OnlineSource::State::load(int64_t row) {
  Encoded result;
  DARKROOM_RETURN_IF_ERROR(rows.work(row, [&](const ImageRow& image) -> Result<std::optional<RowError>> {
    DARKROOM_ASSIGN_OR_RETURN(const RowResult<PreparedRow> prepared, encoder->prepare(image, *decoder));
    if (!prepared.is_ok()) {
      return std::optional(prepared.error());
    }
    const EncodedRows out = encoder->encode(std::span(&*prepared, 1));
    if (out.is_finite[0] == 0) {
      return std::optional(RowError{.code = RowErrorCode::kNanLatents});
    }
    result = {image.key, out.latents_nchw[0], out.states_btc[0]};
    return std::optional<RowError>();
  }));
  const auto num_bytes = static_cast<int64_t>(result.latents_chw.nbytes() + result.states_tw.nbytes() + sizeof(Encoded));
  return encoded.insert(row, std::move(result), num_bytes);
}

OnlineSource::OnlineSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
OnlineSource::~OnlineSource() = default;

Result<std::unique_ptr<OnlineSource>> OnlineSource::open(FileSystem& files, const std::string& uri, const DatasetIndex& index,
                                                         std::shared_ptr<const RowEncoder> encoder, const OnlineSourceOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(auto reader, ImageRowReader::open(files, uri, index, options.memory_bytes / 2));
  DARKROOM_ASSIGN_OR_RETURN(auto decoder, open_decoder(options.decoder_program, kAnySize, {}));
  auto state = std::make_unique<State>(std::move(encoder), options, std::move(reader), std::move(decoder));
  return std::unique_ptr<OnlineSource>(new OnlineSource(std::move(state)));
}

Result<Batch> OnlineSource::read(std::span<const SampleRef> samples) {
  const auto num_samples = static_cast<int64_t>(samples.size());
  const auto sized = [&](std::vector<int64_t> shape) {
    shape.insert(shape.begin(), num_samples);
    return torch::empty(shape, torch::kFloat32);
  };
  at::set_num_threads(static_cast<int>(state_->options.threads));
  Batch batch;
  batch.latents_nchw = sized(state_->encoder->latents_shape());
  batch.states_btc = sized(state_->encoder->states_shape());
  for (int64_t i = 0; i < num_samples; ++i) {
    const int64_t row = samples[static_cast<size_t>(i)].row;
    auto encoded = state_->encoded.find(row);
    if (encoded == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(encoded, state_->load(row));
    }
    batch.latents_nchw[i].copy_(encoded->latents_chw);
    batch.states_btc[i].copy_(encoded->states_tw);
    batch.keys.push_back(encoded->key);
  }
  at::set_num_threads(static_cast<int>(state_->options.training_threads));
  return batch;
}

std::string OnlineSource::describe(int64_t row) const { return state_->rows.describe(row); }

}  // namespace darkroom
