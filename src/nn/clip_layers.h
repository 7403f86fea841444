#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/nn/clip_text.h"
#include "layers.h"

namespace darkroom {

/// A layer of either tower of CLIP.
struct ClipLayerConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  ClipActivation activation = ClipActivation::kQuickGelu;
  double layer_norm_eps = 1e-5;
  bool is_causal = false;
};

/// One pre-norm transformer layer with transformers' names.
class ClipEncoderLayerImpl : public torch::nn::Module {
 public:
  explicit ClipEncoderLayerImpl(const ClipLayerConfig& config);
  torch::Tensor forward(const torch::Tensor& x_btc);

 private:
  torch::Tensor activate(const torch::Tensor& x) const;

  ClipLayerConfig config_;
  Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, out_proj_{nullptr}, fc1_{nullptr}, fc2_{nullptr};
  LayerNorm layer_norm1_{nullptr}, layer_norm2_{nullptr};
};

}  // namespace darkroom
