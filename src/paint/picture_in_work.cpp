#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/paint/painter.h"
#include "darkroom/paint/recorded_memory.h"
#include "recorded_calls.h"

namespace darkroom {

Result<std::unique_ptr<PictureInWork>> Painter::begin(const PaintRequest& request) {
  DARKROOM_RETURN_IF_ERROR(check(request));
  if (request.prompts.size() != 1) {
    return Status::invalid_argument("pictures are begun one at a time, prompts:", request.prompts.size());
  }
  const c10::InferenceMode inference;
  DARKROOM_ASSIGN_OR_RETURN(PictureInWork started, start_batch(request, 0, 1));
  auto picture = std::unique_ptr<PictureInWork>(new PictureInWork(std::move(started)));
  const torch::Device device = place().device;
  picture->guidance_ = {request.guidance, request.guidance_rescale};
  picture->timesteps_k_ = upload_timesteps(*picture->sampler_, device).to(torch::kFloat32);  // Whole numbers up to 2^24 stay themselves.
  DARKROOM_ASSIGN_OR_RETURN(PromptStates states, encode_request(request, request.prompts));
  picture->positive_states_ntw_ = std::move(states.positive_ntw);
  picture->negative_states_ntw_ = std::move(states.negative_ntw);
  return picture;
}

void Painter::step(std::span<PictureInWork* const> pictures) {
  std::map<int64_t, std::vector<PictureInWork*>> by_length;  // A call takes texts of one length.
  for (PictureInWork* picture : pictures) {
    by_length[picture->positive_states_ntw_.size(1)].push_back(picture);
  }
  std::exception_ptr failure;  // The first.
  for (const auto& [length, together] : by_length) {
    try {
      step_together(together);
    } catch (const std::exception&) {
      failure = failure == nullptr ? std::current_exception() : failure;
    }
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

// The rows of the call: the unconditional branch of each picture that is guided, then the conditional one of each picture; for one
// picture, or several that are all guided, the order of guided_denoiser.
void Painter::step_together(std::span<PictureInWork* const> pictures) {
  const c10::InferenceMode inference;
  std::vector<torch::Tensor> noisy;
  std::vector<torch::Tensor> timesteps;
  std::vector<torch::Tensor> states;
  const auto add_row = [&](const PictureInWork& picture, const torch::Tensor& text) {
    noisy.push_back(picture.sampler_->scale_input(picture.next_call_, picture.latents_nchw_));
    timesteps.push_back(picture.timesteps_k_.narrow(0, static_cast<int64_t>(picture.next_call_), 1));
    states.push_back(text);
  };
  for (const PictureInWork* picture : pictures) {
    DARKROOM_CHECK(picture->num_calls_left() > 0, "a picture is asked for more steps than it has");
    if (picture->guidance_.is_active()) {
      add_row(*picture, picture->negative_states_ntw_);
    }
  }
  int64_t negative_row = 0;
  auto positive_row = static_cast<int64_t>(noisy.size());
  for (const PictureInWork* picture : pictures) {
    add_row(*picture, picture->positive_states_ntw_);
  }
  const torch::Tensor outputs = calls_->call(torch::cat(noisy), torch::cat(timesteps), torch::cat(states));
  const torch::Device device = place().device;
  for (PictureInWork* picture : pictures) {
    const torch::Tensor& input = noisy[static_cast<size_t>(positive_row)];
    const torch::Tensor positive = outputs.narrow(0, positive_row++, 1);
    const bool is_guided = picture->guidance_.is_active();
    const torch::Tensor negative = is_guided ? outputs.narrow(0, negative_row++, 1) : torch::Tensor();
    const NoiseSource draw = [&] {  // A step that is tried again gets the same noise.
      picture->drawn_noise_ = picture->drawn_noise_.defined() ? picture->drawn_noise_ : picture->noise_.draw();
      return upload(picture->drawn_noise_, device);
    };
    const auto [output, latents] = with_memory_for([&] {
      const torch::Tensor mixed = is_guided ? guided_output(negative, positive, picture->guidance_) : positive;
      return std::pair(mixed, picture->sampler_->step(picture->next_call_, mixed, picture->latents_nchw_, draw));
    });
    picture->latents_nchw_ = latents;
    picture->last_input_nchw_ = input;
    picture->last_output_nchw_ = output;
    picture->drawn_noise_ = torch::Tensor();
    ++picture->next_call_;
  }
}

// Inputs of the U-Net are of the forward process whatever the sampler: those with sigmas scale their latents so.
torch::Tensor Painter::predicted_clean(const PictureInWork& picture) const {
  constexpr double kLeastSignal = 1e-4;  // Where next to nothing but noise is left, the noise tells nothing of the picture.
  const NoiseSchedule schedule(scheduler_.noise);
  const double timestep = std::clamp(picture.sampler_->timesteps()[picture.next_call_ - 1], 0.0, schedule.num_timesteps() - 1.0);
  const double signal = std::max<double>(schedule.alpha_cumprod(std::lround(timestep)), kLeastSignal);
  switch (scheduler_.noise.prediction_type) {
    case PredictionType::kClean:
      return picture.last_output_nchw_;
    case PredictionType::kVelocity:
      return std::sqrt(signal) * picture.last_input_nchw_ - std::sqrt(1.0 - signal) * picture.last_output_nchw_;
    case PredictionType::kEpsilon:
      break;
  }
  return (picture.last_input_nchw_ - std::sqrt(1.0 - signal) * picture.last_output_nchw_) / std::sqrt(signal);
}

Image Painter::preview(const PictureInWork& picture, int max_side) {
  DARKROOM_CHECK(picture.last_output_nchw_.defined(), "a preview is asked for before the first step");
  const c10::InferenceMode inference;
  torch::Tensor clean = predicted_clean(picture);
  const int64_t side = std::max(picture.latent_height(), picture.latent_width());
  const int64_t most = max_side / latent_factor();
  DARKROOM_CHECK(most > 0, "a preview of no latent pixel is asked for, side:", max_side);
  if (side > most) {
    const auto shorter = [&](int64_t size) { return std::max<int64_t>(1, size * most / side); };
    clean = torch::adaptive_avg_pool2d(clean, {shorter(picture.latent_height()), shorter(picture.latent_width())});
  }
  return std::move(decode(clean).front());
}

Result<Image> Painter::finish(const PictureInWork& picture) {
  DARKROOM_CHECK(picture.num_calls_left() == 0, "a picture is finished before its last step");
  const c10::InferenceMode inference;
  int64_t num_not_finite = 0;
  std::vector<Image> images = decode_counted(picture.latents_nchw_, num_not_finite);
  if (num_not_finite > 0) {
    return Status::internal("the networks made values that are no numbers (NaN or infinite) of the picture; weights or precision:",
                            float_type_name(place().type));
  }
  return std::move(images.front());
}

}  // namespace darkroom
