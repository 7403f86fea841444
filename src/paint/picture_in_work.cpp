#include <map>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/paint/painter.h"

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
  for (const auto& [length, together] : by_length) {
    step_together(together);
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
  const torch::Tensor outputs = unet_->forward(torch::cat(noisy), torch::cat(timesteps), torch::cat(states)).to(torch::kFloat32);
  const torch::Device device = place().device;
  for (PictureInWork* picture : pictures) {
    torch::Tensor output = outputs.narrow(0, positive_row++, 1);
    if (picture->guidance_.is_active()) {
      output = guided_output(outputs.narrow(0, negative_row++, 1), output, picture->guidance_);
    }
    const NoiseSource draw = [&] { return upload(picture->noise_.draw(), device); };
    picture->latents_nchw_ = picture->sampler_->step(picture->next_call_, output, picture->latents_nchw_, draw);
    ++picture->next_call_;
  }
}

Image Painter::finish(const PictureInWork& picture) {
  DARKROOM_CHECK(picture.num_calls_left() == 0, "a picture is finished before its last step");
  const c10::InferenceMode inference;
  return std::move(decode(picture.latents_nchw_).front());
}

}  // namespace darkroom
