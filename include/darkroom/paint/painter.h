#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/diffusion/guidance.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/diffusion/seeded_noise.h"
#include "darkroom/image/image.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/placement.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/text/clip_tokenizer.h"
#include "darkroom/text/prompt.h"

namespace darkroom {

class RecordedCalls;  // src/paint/recorded_calls.h

// N pictures, C latent channels, h x w latent pixels, T tokens, W text width.

/// What to paint: picture i shows prompts[i] from the noise of seeds[i].
struct PaintRequest {
  std::vector<std::string> prompts;  ///< May be empty texts.
  std::vector<uint64_t> seeds;       ///< As many as prompts, unless unit_noise_nchw is given.
  std::string negative;              ///< What guidance leads away from.
  PromptReading reading = {};        ///< How prompts and negative become ids and weights.
  SamplerSpec sampler;               ///< An empty name means the model's scheduler.
  double guidance = 7.5;             ///< Guidance scale; at most 1: none.
  double guidance_rescale = 0.0;     ///< See Guidance.
  int width = 0;                     ///< Pixels; 0: the model's size, or the first initial picture's, rounded down to the VAE's factor.
  int height = 0;                    ///< As width.
  torch::Tensor unit_noise_nchw;     ///< Start noise of variance 1, float32 (N, C, h, w), instead of the seeds'; or undefined.
  std::vector<Image> init_images;    ///< RGB pictures to start from, one for all or one each; none: start from noise alone.
  double strength = 0.8;             ///< With init_images: share of the steps taken, above 0 to 1; 1 keeps next to nothing of them.
  int64_t batch_size = 8;            ///< Pictures painted at a time; changes results by rounding at most.
};

/// What can be said of a request's texts without a model. Errors: those of parse_weighted_prompt.
Status check_prompts(const PaintRequest& request);

/// Text states of prompts and of what guidance leads away from, as many tokens each, where the U-Net lies.
struct PromptStates {
  torch::Tensor positive_ntw;
  torch::Tensor negative_ntw;  ///< Of one text, (1, T, W); undefined without guidance.
};

struct Painting {
  torch::Tensor latents_nchw;  ///< Scaled latents, as diffusers' output_type="latent": float32 on the CPU.
  std::vector<Image> images;
  int64_t num_not_finite = 0;  ///< Pictures that came out of the networks with a NaN or an infinity, which shows black as in diffusers.
};

/// A picture on its way from noise: what Painter::begin gives and Painter::step brings forward, one call of the U-Net at a time and each
/// time in other company. Thread safety: that of its painter.
class PictureInWork {
 public:
  /// Calls of the U-Net until it can be finished.
  size_t num_calls_left() const { return sampler_->timesteps().size() - next_call_; }
  /// Latent pixels: only pictures of one shape share a call.
  int64_t latent_height() const { return latents_nchw_.size(2); }
  int64_t latent_width() const { return latents_nchw_.size(3); }

 private:
  friend class Painter;
  PictureInWork(std::unique_ptr<Sampler> sampler, SeededNoise noise, size_t next_call, torch::Tensor latents_nchw)
      : sampler_(std::move(sampler)), noise_(std::move(noise)), next_call_(next_call), latents_nchw_(std::move(latents_nchw)) {}

  // Before its first call a picture is a batch of any size; begin() makes it one of a single picture.
  std::unique_ptr<Sampler> sampler_;
  SeededNoise noise_;
  size_t next_call_;
  torch::Tensor latents_nchw_;
  torch::Tensor last_input_nchw_;  // Of the U-Net's last call, and what guidance made of its output; undefined before the first.
  torch::Tensor last_output_nchw_;
  torch::Tensor drawn_noise_;  // Of a step that failed after the draw; else undefined.
  Guidance guidance_;
  torch::Tensor timesteps_k_;          // Of all calls, where the U-Net lies.
  torch::Tensor positive_states_ntw_;  // The prompt's.
  torch::Tensor negative_states_ntw_;  // Undefined without guidance.
};

/// Prompts to pictures: the engine behind `sample`, training previews and `serve`. Follows diffusers' StableDiffusionPipeline and
/// StableDiffusionImg2ImgPipeline step for step: one CPU generator of torch a picture, which draws the posterior of an initial
/// picture first, then the start noise, then what a stochastic sampler asks for; float32; text states encoded once.
/// Shares its networks with whoever gave them (a trainer's U-Net is painted with as it stands), and works where each of them lies and in
/// its type (nn/placement.h): they may lie apart. Guidance, the sampler and what becomes of a picture's values are float32 in any case.
/// Thread safety: several threads may paint() on the CPU; otherwise one at a time.
class Painter {
 public:
  ~Painter();
  /// The networks and the tokenizer must be of one model. Errors: kFailedPrecondition when the widths of text states, the
  /// channels of latents or the vocabularies do not fit.
  static Result<std::unique_ptr<Painter>> create(UNet2DConditionModel unet, AutoencoderKL vae, ClipTextModel text_encoder,
                                                 std::shared_ptr<const ClipTokenizer> tokenizer, SchedulerConfig scheduler);

  /// Prompts and the negative text of a picture are filled up with empty chunks to the longer of the two; pictures of other lengths are
  /// other batches, so that a picture does not depend on its company. Errors: those of check(), kCancelled.
  Result<Painting> paint(const PaintRequest& request, std::stop_token stop = {});

  /// Whether a request can be painted; any thread may ask, also while another paints. Errors: kInvalidArgument (sampler, steps, size,
  /// seeds, weights of a prompt, noise or initial pictures that do not fit), kFailedPrecondition (a setting of the model's scheduler that
  /// is not built).
  Status check(const PaintRequest& request) const;
  /// Of each picture the chunks of its prompt, or those of the negative text where guidance reads it and it has more; any thread may ask.
  /// Errors: those of parse_weighted_prompt.
  Result<std::vector<int64_t>> chunk_counts(const PaintRequest& request) const;

  /// Begins a request of one picture without taking a step. Errors: as paint(); kInvalidArgument for several pictures.
  Result<std::unique_ptr<PictureInWork>> begin(const PaintRequest& request);
  /// Takes the next step of every picture in one call of the U-Net, whatever their timesteps, samplers and guidance (one call for each
  /// length of their texts, where these are of several chunks). A picture that takes all its steps alone has the bits of paint() with a
  /// batch of one; in company it differs by rounding. A GPU records the calls of a shape that comes again and again, and replays them.
  /// What one of several calls throws comes after the others. Then pictures whose calls left have changed have had their step, and the
  /// others may be stepped again. REQUIRES: pictures of this painter, not empty, of one shape, each with calls left; the networks stay
  /// where they are.
  void step(std::span<PictureInWork* const> pictures);
  /// What a picture is about to become: the clean latent that its last call predicts (Ho et al. 2020, formula 15, or of velocities Salimans
  /// and Ho 2022, appendix D), averaged down to at most `max_side` pixels a side before it is decoded, which costs as much less. Changes
  /// nothing of what comes of the picture. REQUIRES: at least one step was taken; max_side is at least the VAE's factor.
  Image preview(const PictureInWork& picture, int max_side);
  /// Decodes a picture. Errors: kInternal (it came out of the networks with a NaN or an infinity). REQUIRES: no calls are left.
  Result<Image> finish(const PictureInWork& picture);

  /// Text states (N, T, W) where the text encoder lies and in its type; the same prompt is encoded once. The states of a prompt's chunks
  /// stand one after another, T = 77 * chunks; prompts with fewer than the longest and than `least_chunks` are filled up with empty ones.
  /// Weights follow stable-diffusion-webui 1.10 (modules/sd_emphasis.py, "Original"): each id's state times its weight, then all states
  /// of the chunk times the one number that makes their mean what it was, in float32. Where that mean is 0 within rounding, as of text
  /// encoders whose last norm was never trained (the preset tiny), the published quotient is one of rounding errors, and states are only
  /// weighted. Errors: those of parse_weighted_prompt.
  /// REQUIRES: prompts not empty.
  Result<torch::Tensor> encode_prompts(std::span<const std::string> prompts, const PromptReading& reading = {}, int64_t least_chunks = 1);
  /// What becomes of a prompt that is too long, see TokenizedPrompt::lost_text. Errors: as encode_prompts.
  Result<std::string> lost_text(const std::string& prompt, const PromptReading& reading) const;
  /// Pictures of scaled latents (N, C, h, w), which may lie anywhere; one by one where a GPU has no memory for several.
  std::vector<Image> decode(const torch::Tensor& latents_nchw);

  const SchedulerConfig& scheduler() const { return scheduler_; }
  /// Where the U-Net lies.
  NetworkPlace place() const { return place_of(*unet_); }
  /// Side of a picture that the model was made for, in pixels.
  int native_size() const;
  /// Pixels a latent pixel, a side.
  int latent_factor() const;

 private:
  Painter(UNet2DConditionModel unet, AutoencoderKL vae, ClipTextModel text_encoder, std::shared_ptr<const ClipTokenizer> tokenizer,
          SchedulerConfig scheduler);
  Status check_start(const PaintRequest& request, const Sampler& sampler) const;
  std::vector<int64_t> latent_shape(const PaintRequest& request) const;
  std::vector<Image> decode_counted(const torch::Tensor& latents_nchw, int64_t& num_not_finite);
  torch::Tensor encode_init_images(const PaintRequest& request, int64_t first, int64_t count, const torch::Tensor& posterior_noise);
  torch::Tensor encode_ids(const torch::Tensor& ids_nt);
  Result<PromptStates> encode_request(const PaintRequest& request, std::span<const std::string> prompts);
  Result<Denoiser> make_denoiser(const PaintRequest& request, std::span<const std::string> prompts, size_t num_calls);
  Result<PictureInWork> start_batch(const PaintRequest& request, int64_t first, int64_t count);
  Result<torch::Tensor> paint_batch(const PaintRequest& request, int64_t first, int64_t count, const std::stop_token& stop);
  void step_together(std::span<PictureInWork* const> pictures);
  torch::Tensor predicted_clean(const PictureInWork& picture) const;

  UNet2DConditionModel unet_;
  AutoencoderKL vae_;
  ClipTextModel text_encoder_;
  // Shared: a trainer's encoders use the same one.
  std::shared_ptr<const ClipTokenizer> tokenizer_;
  SchedulerConfig scheduler_;
  std::unique_ptr<RecordedCalls> calls_;  // Of step(). Last: recordings go before the weights that they read.
};

}  // namespace darkroom
