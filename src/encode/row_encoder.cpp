#include "darkroom/encode/row_encoder.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/random.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/nn/model_folder.h"

// Layouts: N batch, C channels, H and W pixels, h and w latent cells, T tokens, B batch, W text width in btc.

namespace darkroom {

Result<std::shared_ptr<const FrozenModels>> load_frozen_models(FileSystem& files, const std::string& model_folder,
                                                               TokenizerDialect dialect) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(model_folder));
  auto models = std::make_shared<FrozenModels>();
  DARKROOM_ASSIGN_OR_RETURN(models->vae, load_vae(folder.vae_folder()));
  DARKROOM_ASSIGN_OR_RETURN(models->text_encoder, load_text_encoder(folder.text_encoder_folder()));
  DARKROOM_ASSIGN_OR_RETURN(models->tokenizer, ClipTokenizer::load(files, folder.tokenizer_folder(), dialect));
  models->vae->eval();
  models->text_encoder->eval();
  models->vae_fingerprint = component_fingerprint(models->vae);
  models->text_encoder_fingerprint = component_fingerprint(models->text_encoder);
  const ClipTextConfig& text = models->text_encoder->config();
  if (text.max_position_embeddings < ClipTokenizer::kContextLength) {
    return Status::failed_precondition("the text encoder takes fewer tokens than a caption has (folder, takes, has):", model_folder,
                                       text.max_position_embeddings, int{ClipTokenizer::kContextLength});
  }
  if (models->tokenizer->vocabulary_size() > text.vocab_size) {
    return Status::failed_precondition("the tokenizer has ids that the text encoder does not have (folder, ids, embeddings):", model_folder,
                                       models->tokenizer->vocabulary_size(), text.vocab_size);
  }
  return std::shared_ptr<const FrozenModels>(std::move(models));
}

Status RowEncoderOptions::validate(const FrozenModels& models) const {
  DARKROOM_RETURN_IF_ERROR(transform.validate());
  if (transform.resolution % models.vae->config().factor() != 0) {
    return Status::invalid_argument(
        "resolution must be a multiple of the VAE's factor (factor, resolution):", models.vae->config().factor(), transform.resolution);
  }
  if (dtype != torch::kFloat16 && dtype != torch::kFloat32) {
    return Status::invalid_argument("dtype must be float16 or float32, got:", torch::toString(dtype));
  }
  return {};
}

Result<std::shared_ptr<const RowEncoder>> RowEncoder::create(std::shared_ptr<const FrozenModels> models, const RowEncoderOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate(*models));
  return std::shared_ptr<const RowEncoder>(new RowEncoder(std::move(models), options));
}

std::vector<int64_t> RowEncoder::latents_shape() const {
  const VaeConfig& vae = models_->vae->config();
  const int64_t side = options_.transform.resolution / vae.factor();
  const int64_t channels = vae.latent_channels * (options_.latents == LatentsKind::kMoments ? 2 : 1);
  return {channels, side, side};
}

std::vector<int64_t> RowEncoder::states_shape() const {
  return {ClipTokenizer::kContextLength, models_->text_encoder->config().hidden_size};
}

Result<RowResult<PreparedRow>> RowEncoder::prepare(const ImageRow& row, PictureDecoder& decoder) const {
  if (row.image.empty()) {
    return RowResult<PreparedRow>(RowError{.code = RowErrorCode::kNullImage});
  }
  if (is_blank(row.caption)) {
    return RowResult<PreparedRow>(RowError{.code = RowErrorCode::kEmptyCaption});
  }
  const TransformOptions& transform = options_.transform;
  CropDraw draw;
  if (transform.crop == Crop::kRandom) {
    const CounterRandom random(options_.seed, Purpose::kCrop, options_.epoch, row.key);
    draw = {.x = random.uniform(0), .y = random.uniform(1)};
  }
  Image square = Image::filled(transform.resolution, transform.resolution, 3);
  DARKROOM_ASSIGN_OR_RETURN(const RowResult<DecodedSize> size,
                            decoder.transform(std::as_bytes(std::span(row.image)), transform, kAnySize, draw, square.pixels));
  if (!size.is_ok()) {
    return RowResult<PreparedRow>(size.error());
  }
  PreparedRow prepared{.key = row.key,
                       .caption = row.caption,
                       .width = size->width,
                       .height = size->height,
                       .square = std::move(square),
                       .ids = std::vector<int32_t>(ClipTokenizer::kContextLength)};
  prepared.unported = models_->tokenizer->encode(row.caption, prepared.ids);
  return RowResult<PreparedRow>(std::move(prepared));
}

torch::Tensor RowEncoder::encode_image(const PreparedRow& row) const {
  const int64_t side = options_.transform.resolution;
  const torch::Tensor image_nchw = torch::empty({1, 3, side, side}, torch::kFloat32);
  normalise_chw(row.square, {image_nchw.data_ptr<float>(), static_cast<size_t>(image_nchw.numel())});
  AutoencoderKL vae = models_->vae;  // A second handle: encode is not declared const.
  const Moments moments = vae->encode(image_nchw);
  if (options_.latents == LatentsKind::kMoments) {
    return torch::cat({moments.mean, moments.logvar}, 1);
  }
  torch::Tensor noise_nchw = torch::empty(moments.mean.sizes(), torch::kFloat32);
  CounterRandom(options_.seed, Purpose::kPosterior, options_.epoch, row.key)
      .fill_normal({noise_nchw.data_ptr<float>(), static_cast<size_t>(noise_nchw.numel())});
  // sample = mean + std * noise with std = exp(logvar / 2), then scaled: Rombach et al. 2022, as diffusers computes it.
  const torch::Tensor deviation = torch::exp(0.5 * moments.logvar);
  return (moments.mean + deviation * noise_nchw) * vae->config().scaling_factor;
}

torch::Tensor RowEncoder::encode_ids(const torch::Tensor& ids_bt) const {
  ClipTextModel text_encoder = models_->text_encoder;
  return text_encoder->forward(ids_bt);
}

EncodedRows RowEncoder::encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const {
  DARKROOM_CHECK(!rows.empty(), "an encoder batch without rows");
  const torch::NoGradGuard no_gradients;
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto rows_of = [&](std::vector<int64_t> shape, torch::Dtype dtype) {
    shape.insert(shape.begin(), num_rows);
    return torch::empty(shape, dtype);
  };
  EncodedRows encoded{.latents_nchw = rows_of(latents_shape(), options_.dtype),
                      .states_btc = options_.with_states ? rows_of(states_shape(), options_.dtype) : torch::Tensor(),
                      .ids_bt = rows_of({ClipTokenizer::kContextLength}, torch::kInt64),
                      .is_finite = {}};
  int64_t* ids = encoded.ids_bt.data_ptr<int64_t>();
  for (int64_t i = 0; i < num_rows && !stop.stop_requested(); ++i) {
    const PreparedRow& row = rows[static_cast<size_t>(i)];
    ids = std::copy(row.ids.begin(), row.ids.end(), ids);
    // Rounded to the storage type on the way to their place.
    const torch::Tensor latents_chw = encoded.latents_nchw[i].copy_(encode_image(row).squeeze(0));
    bool is_finite = torch::isfinite(latents_chw).all().item<bool>();
    if (options_.with_states) {
      const torch::Tensor states_tc = encoded.states_btc[i].copy_(encode_ids(encoded.ids_bt.narrow(0, i, 1)).squeeze(0));
      is_finite = is_finite && torch::isfinite(states_tc).all().item<bool>();
    }
    encoded.is_finite.push_back(is_finite ? 1 : 0);
  }
  return encoded;
}

torch::Tensor RowEncoder::empty_caption_states() const {
  const torch::NoGradGuard no_gradients;
  std::vector<int32_t> ids(ClipTokenizer::kContextLength);
  models_->tokenizer->encode("", ids);
  return encode_ids(torch::tensor(ids, torch::kInt32).to(torch::kInt64).unsqueeze(0)).squeeze(0).to(options_.dtype).contiguous();
}

}  // namespace darkroom
