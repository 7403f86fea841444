#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "nn/layers.h"
#include "support/network_golden.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

constexpr int64_t kNumGroups = 4;

// Values of variance `eps`: a norm with ten times the right epsilon is off by more than a half.
torch::Tensor faint_values(at::IntArrayRef shape, double eps) {
  return (at::arange(c10::multiply_integers(shape), torch::kFloat64).mul(1.7).sin() * std::sqrt(2 * eps))
      .reshape(shape)
      .to(torch::kFloat32);
}

// The definition in double: rows of `x`, weights of the shape of the whole.
torch::Tensor normalised(const torch::Tensor& x, int64_t num_rows, double eps) {
  const torch::Tensor rows = x.to(torch::kFloat64).reshape({num_rows, -1});
  const torch::Tensor centred = rows - rows.mean(1, true);
  return (centred / (centred.square().mean(1, true) + eps).sqrt()).reshape(x.sizes());
}

void expect_norm(const torch::Tensor& got, const torch::Tensor& unscaled, const torch::nn::Module& norm, at::IntArrayRef channels,
                 int64_t num_terms) {
  const auto parameters = norm.named_parameters();
  const auto scale = [&](const char* name) { return parameters[name].detach().to(torch::kFloat64).view(channels); };
  const torch::Tensor want = unscaled * scale("weight") + scale("bias");
  EXPECT_TRUE(is_near(got, want, accumulation_tolerance<float>(num_terms, largest(want))));
}

// Runs every norm of a network by itself. Returns how many there are of each epsilon.
std::map<double, int> expect_epsilons(torch::nn::Module& network, const std::function<double(const std::string& name)>& epsilon_of) {
  const torch::NoGradGuard no_grad;
  fill_parameters(network);
  std::map<double, int> counts;
  for (const auto& item : network.named_modules("", /*include_self=*/false)) {
    SCOPED_TRACE(item.key());
    const double eps = epsilon_of(item.key());
    const auto num_channels = [&] { return item.value()->named_parameters()["weight"].numel(); };
    if (auto* group_norm = item.value()->as<GroupNormImpl>()) {
      const torch::Tensor x = faint_values({1, num_channels(), 5}, eps);
      expect_norm(group_norm->forward(x), normalised(x, kNumGroups, eps), *group_norm, {1, -1, 1}, x.numel() / kNumGroups);
    } else if (auto* layer_norm = item.value()->as<LayerNormImpl>()) {
      const torch::Tensor x = faint_values({3, num_channels()}, eps);
      expect_norm(layer_norm->forward(x), normalised(x, 3, eps), *layer_norm, {1, -1}, num_channels());
    } else {
      EXPECT_EQ(item.key().find("norm"), std::string::npos) << "another kind of norm";
      continue;
    }
    ++counts[eps];
  }
  return counts;
}

// Epsilons as diffusers 0.42.1 chooses them: Transformer2DModel, BasicTransformerBlock; norm_eps everywhere else.
TEST(NormEpsilon, of_every_norm_of_a_unet) {
  UNetConfig config;
  config.levels = {{.num_channels = 8, .num_resnets = 1, .num_heads = 2, .states_width = 12},
                   {.num_channels = 16, .down_attention = false, .num_resnets = 1, .num_heads = 2, .states_width = 12}};
  config.norm_num_groups = kNumGroups;
  config.norm_eps = 3e-4;
  UNet2DConditionModel unet(config);
  const auto counts = expect_epsilons(*unet, [&](const std::string& name) {
    return name.ends_with(".norm") ? 1e-6 : name.find(".transformer_blocks.") != std::string::npos ? 1e-5 : config.norm_eps;
  });
  // Transformers: 1 on the way down, 1 in the middle, 4 on the way up. Residual blocks: 2, 2, 4. One norm at the end.
  EXPECT_EQ(counts, (std::map<double, int>{{1e-6, 6}, {1e-5, 3 * 6}, {3e-4, 2 * 8 + 1}}));
}

// Encoder, Decoder and UNetMidBlock2D of diffusers 0.42.1.
TEST(NormEpsilon, of_every_norm_of_a_vae) {
  VaeConfig config;
  config.block_out_channels = {8, 16};
  config.norm_num_groups = kNumGroups;
  AutoencoderKL vae(config);
  const auto counts = expect_epsilons(*vae, [](const std::string&) { return 1e-6; });
  ASSERT_EQ(counts.size(), 1U);
  // Of each half: the middle's two residual blocks and attention, the norm at the end; the decoder's levels have one block more.
  EXPECT_EQ(counts.at(1e-6), 2 * (2 * 2 + 1 + 1) + 2 * 2 * (config.layers_per_block + config.layers_per_block + 1));
}

TEST(NormEpsilon, of_every_norm_of_a_text_encoder) {
  ClipTextConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.intermediate_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 9;
  config.layer_norm_eps = 7e-3;
  ClipTextModel text_encoder(config);
  EXPECT_EQ(expect_epsilons(*text_encoder, [&](const std::string&) { return config.layer_norm_eps; }),
            (std::map<double, int>{{7e-3, 2 * 2 + 1}}));
}

}  // namespace
}  // namespace darkroom
