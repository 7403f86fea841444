#include "darkroom/paint/painter.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/diffusion/guidance.h"
#include "darkroom/diffusion/seeded_noise.h"
#include "darkroom/image/resample.h"
#include "darkroom/image/transform.h"
#include "darkroom/nn/one_run.h"
#include "darkroom/paint/pictures.h"
#include "darkroom/paint/recorded_memory.h"
#include "recorded_calls.h"

namespace darkroom {

namespace {

// Pictures that the decoder sees at a time, of latents of height x width: its activations are the largest of all.
int64_t decode_batch(const torch::Tensor& latents_nchw) {
  constexpr int64_t kLatentPixels = 8 * 64 * 64;  // Eight of 512 px.
  return std::clamp<int64_t>(kLatentPixels / (latents_nchw.size(2) * latents_nchw.size(3)), 1, 8);
}

// The call at which image to image starts: the last int(steps * strength) steps are taken.
int64_t first_call(const PaintRequest& request) {
  const int64_t taken = static_cast<int64_t>(static_cast<double>(request.sampler.num_steps) * request.strength);
  return request.sampler.num_steps - std::min<int64_t>(taken, request.sampler.num_steps);
}

const Image& init_image(const PaintRequest& request, int64_t picture) {
  return request.init_images[request.init_images.size() == 1 ? 0 : static_cast<size_t>(picture)];
}

Status check_init_images(const PaintRequest& request, int factor) {
  if (request.init_images.empty()) {
    return Status::ok();
  }
  if (request.unit_noise_nchw.defined()) {
    return Status::invalid_argument("a run starts from initial latents or from initial pictures, not from both; pictures:",
                                    request.init_images.size());
  }
  if (request.init_images.size() != 1 && request.init_images.size() != request.prompts.size()) {
    return Status::invalid_argument("initial pictures are one for all prompts or one each (prompts, pictures):", request.prompts.size(),
                                    request.init_images.size());
  }
  for (const Image& image : request.init_images) {
    if (image.num_channels != 3 || std::min(image.width, image.height) < factor || std::max(image.width, image.height) > kLargestSide) {
      return Status::invalid_argument(
          fmt::format("an initial picture must be RGB, its sides from the VAE's factor to {} (width, height, channels):", kLargestSide),
          image.width, image.height, image.num_channels);
    }
  }
  if (!(request.strength > 0.0 && request.strength <= 1.0) || first_call(request) == request.sampler.num_steps) {
    return Status::invalid_argument(
        "strength must be at most 1 and leave at least one of the steps (steps, strength):", request.sampler.num_steps, request.strength);
  }
  return Status::ok();
}

}  // namespace

Painter::Painter(UNet2DConditionModel unet, AutoencoderKL vae, ClipTextModel text_encoder, std::shared_ptr<const ClipTokenizer> tokenizer,
                 SchedulerConfig scheduler)
    : unet_(std::move(unet)),
      vae_(std::move(vae)),
      text_encoder_(std::move(text_encoder)),
      tokenizer_(std::move(tokenizer)),
      scheduler_(std::move(scheduler)),
      calls_(std::make_unique<RecordedCalls>(
          [unet = unet_](const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw) mutable {
            return unet->forward(noisy_nchw, timesteps_n, states_ntw).to(torch::kFloat32);
          })) {}

Painter::~Painter() = default;

Result<std::unique_ptr<Painter>> Painter::create(UNet2DConditionModel unet, AutoencoderKL vae, ClipTextModel text_encoder,
                                                 std::shared_ptr<const ClipTokenizer> tokenizer, SchedulerConfig scheduler) {
  if (unet->config().states_width() != text_encoder->config().hidden_size) {
    return Status::failed_precondition("the U-Net and the text encoder are of different models (cross_attention_dim, hidden_size):",
                                       unet->config().states_width(), text_encoder->config().hidden_size);
  }
  if (unet->config().in_channels != vae->config().latent_channels || unet->config().out_channels != vae->config().latent_channels) {
    return Status::failed_precondition("the U-Net and the VAE are of different models (in_channels, out_channels, latent_channels):",
                                       unet->config().in_channels, unet->config().out_channels, vae->config().latent_channels);
  }
  if (tokenizer->vocabulary_size() > text_encoder->config().vocab_size) {
    return Status::failed_precondition("the tokenizer has ids that the text encoder does not know (tokenizer, text encoder):",
                                       tokenizer->vocabulary_size(), text_encoder->config().vocab_size);
  }
  if (text_encoder->config().max_position_embeddings < ClipTokenizer::kContextLength) {
    return Status::failed_precondition("the text encoder takes fewer tokens than the tokenizer makes (text encoder, tokenizer):",
                                       text_encoder->config().max_position_embeddings, ClipTokenizer::kContextLength);
  }
  return std::unique_ptr<Painter>(
      new Painter(std::move(unet), std::move(vae), std::move(text_encoder), std::move(tokenizer), std::move(scheduler)));
}

int Painter::native_size() const { return static_cast<int>(unet_->config().sample_size) * latent_factor(); }

int Painter::latent_factor() const { return static_cast<int>(vae_->config().factor()); }

std::vector<int64_t> Painter::latent_shape(const PaintRequest& request) const {
  const int64_t factor = vae_->config().factor();
  const auto side = [&](int asked, int Image::*of_init_image) {
    const int otherwise = request.init_images.empty() ? native_size() : request.init_images.front().*of_init_image;
    return (asked > 0 ? asked : otherwise) / factor;
  };
  return {static_cast<int64_t>(request.prompts.size()), vae_->config().latent_channels, side(request.height, &Image::height),
          side(request.width, &Image::width)};
}

Status Painter::check(const PaintRequest& request) const {
  for (const int side : {request.width, request.height}) {
    if (side < 0 || side > kLargestSide || side % vae_->config().factor() != 0) {
      return Status::invalid_argument(
          fmt::format("a picture's width and height must be multiples of the VAE's factor, at most {} (factor, got):", kLargestSide),
          vae_->config().factor(), side);
    }
  }
  if (request.batch_size < 1) {
    return Status::invalid_argument("the batch size must be at least 1, got:", request.batch_size);
  }
  DARKROOM_RETURN_IF_ERROR((Guidance{request.guidance, request.guidance_rescale}.validate()));
  DARKROOM_RETURN_IF_ERROR(check_prompts(request));
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler, make_sampler(request.sampler, scheduler_));
  return check_start(request, *sampler);
}

Status Painter::check_start(const PaintRequest& request, const Sampler& sampler) const {
  const bool has_seeds = request.seeds.size() == request.prompts.size();
  if (!request.unit_noise_nchw.defined() && !has_seeds) {
    return Status::invalid_argument("each prompt needs one seed (prompts, seeds):", request.prompts.size(), request.seeds.size());
  }
  if (request.unit_noise_nchw.defined()) {
    if (request.unit_noise_nchw.sizes() != at::IntArrayRef(latent_shape(request))) {
      return Status::invalid_argument("the initial latents' shape must be pictures, channels, height, width (want, got):",
                                      c10::str(at::IntArrayRef(latent_shape(request))), c10::str(request.unit_noise_nchw.sizes()));
    }
    if (sampler.is_stochastic() && !has_seeds) {
      return Status::invalid_argument("a stochastic sampler needs one seed a prompt beside initial latents (prompts, seeds):",
                                      request.prompts.size(), request.seeds.size());
    }
  }
  return check_init_images(request, latent_factor());
}

namespace {

// Lets a GPU multiply float32 in TF32 while this lives, whose 10 bits of fraction are float16's: for the VAE beside a U-Net that computes
// in less than float32. Else float32 is float32 (find_network_place).
class Tf32Scope {
 public:
  explicit Tf32Scope(const NetworkPlace& unet) : is_on_(!unet.device.is_cpu() && unet.type != torch::kFloat32) { allow(true); }
  ~Tf32Scope() { allow(false); }
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;

 private:
  void allow(bool is_allowed) const {
    if (is_on_) {
      at::globalContext().setAllowTF32CuDNN(is_allowed);
      at::globalContext().setAllowTF32CuBLAS(is_allowed);
    }
  }

  const bool is_on_;
};

}  // namespace

std::vector<Image> Painter::decode(const torch::Tensor& latents_nchw) {
  int64_t num_not_finite = 0;
  return decode_counted(latents_nchw, num_not_finite);
}

// Latents that are not finite decode to values that are not: one look at these finds also what the decoder itself spoiled.
std::vector<Image> Painter::decode_counted(const torch::Tensor& latents_nchw, int64_t& num_not_finite) {
  const torch::NoGradGuard no_grad;
  const Tf32Scope products(this->place());
  const NetworkPlace place = place_of(*vae_);
  std::vector<Image> images;
  const auto add = [&](const torch::Tensor& part) {
    std::vector<Image> decoded = with_memory_for([&] {
      const torch::Tensor decoded_nchw = vae_->decode((part / vae_->config().scaling_factor).to(place.type));
      std::vector<Image> shown = to_images(decoded_nchw);
      num_not_finite += count_not_finite(decoded_nchw);  // Last: what runs out of memory before is done again.
      return shown;
    });
    std::move(decoded.begin(), decoded.end(), std::back_inserter(images));
  };
  for (const torch::Tensor& part : latents_nchw.to(place.device).split(decode_batch(latents_nchw))) {
    try {
      add(part);
      continue;
    } catch (const c10::OutOfMemoryError&) {
      if (part.size(0) == 1) {
        throw;
      }
    }
    for (const torch::Tensor& picture : part.split(1)) {
      add(picture);
    }
  }
  return images;
}

torch::Tensor Painter::encode_init_images(const PaintRequest& request, int64_t first, int64_t count, const torch::Tensor& posterior_noise) {
  const Tf32Scope products(this->place());
  const int factor = latent_factor();
  const int width = static_cast<int>(posterior_noise.size(3)) * factor;
  const int height = static_cast<int>(posterior_noise.size(2)) * factor;
  const NetworkPlace place = place_of(*vae_);
  const torch::Tensor noise = upload(posterior_noise, place.device);
  std::vector<torch::Tensor> latents;
  for (int64_t i = 0; i < count; ++i) {
    const Image resized = resize(init_image(request, first + i), width, height, Filter::kLanczos);
    const torch::Tensor picture = torch::empty({1, 3, height, width}, torch::kFloat32);
    normalise_chw(resized, std::span(picture.data_ptr<float>(), static_cast<size_t>(picture.numel())));
    const Moments posterior = with_memory_for([&] { return vae_->encode(upload(picture, place.device).to(place.type)); });
    const torch::Tensor deviation = (0.5 * posterior.logvar.to(torch::kFloat32)).exp();
    latents.push_back(posterior.mean.to(torch::kFloat32) + deviation * noise.narrow(0, i, 1));
  }
  return vae_->config().scaling_factor * torch::cat(latents);
}

Result<Denoiser> Painter::make_denoiser(const PaintRequest& request, std::span<const std::string> prompts, size_t num_calls) {
  const Guidance guidance{request.guidance, request.guidance_rescale};
  DARKROOM_ASSIGN_OR_RETURN(PromptStates states, encode_request(request, prompts));
  if (states.negative_ntw.defined()) {
    states.negative_ntw = states.negative_ntw.expand({static_cast<int64_t>(prompts.size()), -1, -1});
  }
  // Recording costs the warm-up calls, the allocator's free memory and the graph itself: of few calls more than replays give back.
  constexpr size_t kLeastRecordedCalls = 12;
  return recorded_denoiser(guided_denoiser(for_one_run(unet_), states.negative_ntw, states.positive_ntw, guidance), place().device,
                           num_calls >= kLeastRecordedCalls);
}

// A fresh sampler and the latents with which its first call begins.
Result<PictureInWork> Painter::start_batch(const PaintRequest& request, int64_t first, int64_t count) {
  const auto range = [&](const auto& values) { return std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count)); };
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<Sampler> sampler, make_sampler(request.sampler, scheduler_));
  const torch::Device device = place().device;
  const bool has_seeds = request.seeds.size() == request.prompts.size();
  SeededNoise noise(has_seeds ? range(request.seeds) : std::span<const uint64_t>(), latent_shape(request));
  if (request.init_images.empty()) {
    const torch::Tensor& given = request.unit_noise_nchw;
    const torch::Tensor start = upload(given.defined() ? given.narrow(0, first, count) : noise.draw(), device);
    torch::Tensor latents = start * sampler->initial_sigma();
    return PictureInWork(std::move(sampler), std::move(noise), 0, std::move(latents));
  }
  const torch::Tensor clean = encode_init_images(request, first, count, noise.draw()).to(device);
  const auto call = static_cast<size_t>(first_call(request));
  torch::Tensor latents = sampler->add_noise(call, clean, upload(noise.draw(), device));
  return PictureInWork(std::move(sampler), std::move(noise), call, std::move(latents));
}

Result<torch::Tensor> Painter::paint_batch(const PaintRequest& request, int64_t first, int64_t count, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(PictureInWork work, start_batch(request, first, count));
  const torch::Device device = place().device;
  DARKROOM_ASSIGN_OR_RETURN(
      const Denoiser denoiser,
      make_denoiser(request, std::span(request.prompts).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                    work.num_calls_left()));
  return run_sampler_from(
      *work.sampler_, work.next_call_, denoiser, work.latents_nchw_, [&] { return upload(work.noise_.draw(), device); },
      [&] { return stop.stop_requested(); });
}

Result<Painting> Painter::paint(const PaintRequest& request, std::stop_token stop) {
  DARKROOM_RETURN_IF_ERROR(check(request));
  Painting painting;
  std::vector<torch::Tensor> latents;
  const auto num_pictures = static_cast<int64_t>(request.prompts.size());
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> chunks, chunk_counts(request));
  int64_t count = 0;
  for (int64_t first = 0; first < num_pictures; first += count) {
    const auto begin = chunks.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(request.batch_size, num_pictures - first));
    count = std::find_if(begin, end, [&](int64_t other) { return other != *begin; }) - begin;
    const c10::InferenceMode inference;
    DARKROOM_ASSIGN_OR_RETURN(torch::Tensor batch, paint_batch(request, first, count, stop));
    std::vector<Image> images = decode_counted(batch, painting.num_not_finite);
    std::move(images.begin(), images.end(), std::back_inserter(painting.images));
    latents.push_back(batch.cpu());
  }
  // Outside of the inference mode, whose tensors the caller could not change.
  painting.latents_nchw = latents.empty() ? torch::empty(latent_shape(request)) : torch::cat(latents);
  return painting;
}

}  // namespace darkroom
