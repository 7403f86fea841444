#include "darkroom/encode/row_encoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "darkroom/core/random.h"
#include "darkroom/core/used_up_memory.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/ops/counter_normal.h"
#include "darkroom/tensor/device_event.h"
#include "darkroom/tensor/device_runtime.h"

// Layouts: N batch, C channels, H and W pixels, h and w latent cells, T tokens, B batch, W text width in btc.

namespace darkroom {
namespace {

// normalise_chw's result for every byte.
torch::Tensor normalised_bytes() {
  Image bytes = Image::filled(256, 1, 1);
  std::iota(bytes.pixels.begin(), bytes.pixels.end(), uint8_t{0});
  torch::Tensor values = torch::empty({256}, torch::kFloat32);
  normalise_chw(bytes, {values.data_ptr<float>(), 256});
  return values;
}

// Where the draws of each row come from, as counter_normal takes it; blank rows draw, too.
torch::Tensor draw_coordinates(std::span<const PreparedRow> rows, int64_t size, uint32_t epoch) {
  torch::Tensor coordinates_n2 = torch::zeros({size, 2}, torch::kInt64);
  int64_t* values = coordinates_n2.data_ptr<int64_t>();
  for (const PreparedRow& row : rows) {
    *values++ = epoch;
    *values++ = static_cast<int64_t>(hash_key(row.key));
  }
  return coordinates_n2;
}

torch::Tensor finite_rows(const torch::Tensor& values_n) { return torch::isfinite(values_n).flatten(1).all(1); }

}  // namespace

Result<std::shared_ptr<const FrozenModels>> load_frozen_models(FileSystem& files, const std::string& model_folder, TokenizerDialect dialect,
                                                               const NetworkPlace& place) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(model_folder));
  auto models = std::make_shared<FrozenModels>();
  DARKROOM_ASSIGN_OR_RETURN(models->vae, load_vae(folder.vae_folder()));
  DARKROOM_ASSIGN_OR_RETURN(models->text_encoder, load_text_encoder(folder.text_encoder_folder()));
  DARKROOM_ASSIGN_OR_RETURN(models->tokenizer, ClipTokenizer::load(files, folder.tokenizer_folder(), dialect));
  models->vae->eval();
  models->text_encoder->eval();
  models->vae_fingerprint = component_fingerprint(models->vae);
  models->text_encoder_fingerprint = component_fingerprint(models->text_encoder);
  place_network(*models->vae, place);
  place_network(*models->text_encoder, place);
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
  if (rows_together < 1) {
    return Status::invalid_argument("the networks take at least one row, got:", rows_together);
  }
  return {};
}

RowEncoder::RowEncoder(std::shared_ptr<const FrozenModels> models, const RowEncoderOptions& options)
    : models_(std::move(models)), options_(options), vae_place_(place_of(*models_->vae)), text_place_(place_of(*models_->text_encoder)) {
  if (!vae_place_.device.is_cpu()) {
    pixel_values_ = normalised_bytes().to(vae_place_.device, vae_place_.type);
  }
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
  const RowTransform how{.transform = options_.transform, .seed = options_.seed, .epoch = options_.epoch};
  return prepare_row(row, how, *models_->tokenizer, decoder);
}

torch::Tensor RowEncoder::load_images(std::span<const PreparedRow> rows) const {
  const int64_t side = options_.transform.resolution;
  const int64_t size = options_.rows_together;
  if (vae_place_.device.is_cpu()) {
    const torch::Tensor images_nchw = torch::zeros({size, 3, side, side}, torch::kFloat32);
    const auto image_floats = static_cast<size_t>(3 * side * side);
    float* out = images_nchw.data_ptr<float>();
    for (const PreparedRow& row : rows) {
      normalise_chw(row.square, {out, image_floats});
      out += image_floats;
    }
    return images_nchw.to(vae_place_.type);
  }
  // Bytes travel, a quarter of the floats, and become the same values over there.
  const torch::Tensor bytes_nhwc = torch::zeros({size, side, side, 3}, torch::kUInt8);
  uint8_t* out = bytes_nhwc.data_ptr<uint8_t>();
  for (const PreparedRow& row : rows) {
    std::memcpy(out, row.square.pixels.data(), row.square.pixels.size());
    out += row.square.pixels.size();
  }
  const torch::Tensor bytes_nchw = upload(bytes_nhwc, vae_place_.device).permute({0, 3, 1, 2}).contiguous();
  return pixel_values_.index_select(0, bytes_nchw.flatten().to(torch::kInt32)).view(bytes_nchw.sizes());
}

torch::Tensor RowEncoder::encode_images(std::span<const PreparedRow> rows) const {
  AutoencoderKL vae = models_->vae;  // A second handle: encode is not declared const.
  const Moments moments = vae->encode(load_images(rows));
  const torch::Tensor mean = moments.mean.to(torch::kFloat32);
  const torch::Tensor logvar = moments.logvar.to(torch::kFloat32);
  if (options_.latents == LatentsKind::kMoments) {
    return torch::cat({mean, logvar}, 1);
  }
  const torch::Tensor coordinates_n2 = upload(draw_coordinates(rows, mean.size(0), options_.epoch), vae_place_.device);
  const torch::Tensor noise_nchw = counter_normal(options_.seed, Purpose::kPosterior, coordinates_n2, mean.sizes());
  // sample = mean + std * noise with std = exp(logvar / 2), then scaled: Rombach et al. 2022, as diffusers computes it.
  const torch::Tensor deviation = torch::exp(0.5 * logvar);
  return (mean + deviation * noise_nchw) * vae->config().scaling_factor;
}

torch::Tensor RowEncoder::encode_ids(const torch::Tensor& ids_bt) const {
  ClipTextModel text_encoder = models_->text_encoder;
  return text_encoder->forward(upload(ids_bt, text_place_.device));
}

void RowEncoder::encode_part(std::span<const PreparedRow> rows, int64_t first, const torch::Tensor& is_finite_n,
                             EncodedRows& encoded) const {
  const auto count = static_cast<int64_t>(rows.size());
  const auto put = [&](const torch::Tensor& values, const torch::Tensor& into) {
    into.narrow(0, first, count).copy_(values.narrow(0, 0, count), /*non_blocking=*/true);
  };
  // Rounded to the storage type, and laid out as it is stored, before it travels.
  const torch::Tensor latents_nchw = encode_images(rows).to(options_.dtype).contiguous();
  torch::Tensor is_finite = finite_rows(latents_nchw);
  put(latents_nchw, encoded.latents_nchw);
  if (options_.with_states) {
    torch::Tensor ids_bt = torch::zeros({options_.rows_together, ClipTokenizer::kContextLength}, torch::kInt64);
    ids_bt.narrow(0, 0, count).copy_(encoded.ids_bt.narrow(0, first, count));
    const torch::Tensor states_btc = encode_ids(ids_bt).to(options_.dtype).contiguous();
    put(states_btc, encoded.states_btc);
    is_finite = is_finite.logical_and(finite_rows(states_btc).to(is_finite.device()));
  }
  put(is_finite, is_finite_n);
}

EncodedRows RowEncoder::encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const try {
  DARKROOM_CHECK(!rows.empty(), "an encoder batch without rows");
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto rows_of = [&](std::vector<int64_t> shape, torch::Dtype dtype) {
    shape.insert(shape.begin(), num_rows);
    return empty_staging(shape, dtype, vae_place_.device);
  };
  EncodedRows encoded{.latents_nchw = rows_of(latents_shape(), options_.dtype),
                      .states_btc = options_.with_states ? rows_of(states_shape(), options_.dtype) : torch::Tensor(),
                      .ids_bt = torch::empty({num_rows, ClipTokenizer::kContextLength}, torch::kInt64),
                      .is_finite = {}};
  const torch::Tensor is_finite_n = rows_of({}, torch::kBool);
  int64_t* ids = encoded.ids_bt.data_ptr<int64_t>();
  for (const PreparedRow& row : rows) {
    ids = std::copy(row.ids.begin(), row.ids.end(), ids);
  }
  int64_t first = 0;
  std::optional<DeviceEvent> done;
  {
    const c10::InferenceMode inference;  // The results are ordinary tensors of before.
    std::unique_lock issuing(issuing_, std::defer_lock);
    if (!vae_place_.device.is_cpu()) {
      issuing.lock();
    }
    while (first < num_rows && !stop.stop_requested()) {
      const int64_t count = std::min<int64_t>(options_.rows_together, num_rows - first);
      encode_part(rows.subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first, is_finite_n, encoded);
      first += count;
    }
    if (!vae_place_.device.is_cpu()) {
      done.emplace(vae_place_.device);
      done->record();
    }
  }
  if (done.has_value()) {
    done->synchronize();  // Not for what other batches have asked meanwhile.
  }
  const bool* is_finite = is_finite_n.const_data_ptr<bool>();
  encoded.is_finite.assign(is_finite, is_finite + first);
  return encoded;
} catch (const c10::OutOfMemoryError& failure) {
  throw GpuMemoryUsedUp(failure.what_without_backtrace());
}

torch::Tensor RowEncoder::empty_caption_states() const try {
  const torch::NoGradGuard no_gradients;
  std::vector<int32_t> ids(ClipTokenizer::kContextLength);
  models_->tokenizer->encode("", ids);
  const torch::Tensor ids_bt = torch::tensor(ids, torch::kInt32).to(torch::kInt64).unsqueeze(0);
  return encode_ids(ids_bt).squeeze(0).to(options_.dtype).cpu().contiguous();
} catch (const c10::OutOfMemoryError& failure) {
  throw GpuMemoryUsedUp(failure.what_without_backtrace());
}

}  // namespace darkroom
