#include "darkroom/nn/init.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "darkroom/core/random.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"

namespace darkroom {
namespace {

torch::Tensor parameter(const torch::nn::Module& module, const std::string& name) { return module.named_parameters()[name].detach(); }

TEST(InitTest, draws_are_those_of_the_parameters_name) {
  UNet2DConditionModel unet(find_preset("tiny").value().unet);
  initialize_parameters(unet, 7);
  const CounterRandom random(7, Purpose::kInit, 0, "unet/conv_in.weight");
  const auto weight = parameter(*unet, "conv_in.weight").view(-1);
  const double bound = 1 / std::sqrt(4.0 * 9);
  for (const int64_t i : {0, 1, 100, 2303}) {
    EXPECT_EQ(weight[i].item<float>(), static_cast<float>((2 * random.uniform(static_cast<uint64_t>(i)) - 1) * bound)) << i;
  }
}

TEST(InitTest, follows_pytorchs_distributions) {
  UNet2DConditionModel unet(find_preset("tiny").value().unet);
  initialize_parameters(unet, 0);
  const auto weight = parameter(*unet, "mid_block.resnets.0.conv1.weight");
  const double bound = 1 / std::sqrt(96.0 * 9);
  EXPECT_LE(weight.abs().max().item<double>(), bound);
  EXPECT_NEAR(weight.std().item<double>(), bound / std::sqrt(3.0), bound * 0.02);
  EXPECT_LE(parameter(*unet, "mid_block.resnets.0.conv1.bias").abs().max().item<double>(), bound);
  EXPECT_GT(parameter(*unet, "mid_block.resnets.0.conv1.bias").abs().max().item<double>(), bound / 2);
  EXPECT_TRUE(at::equal(parameter(*unet, "conv_norm_out.weight"), torch::ones({64})));
  EXPECT_TRUE(at::equal(parameter(*unet, "conv_norm_out.bias"), torch::zeros({64})));
}

TEST(InitTest, text_encoder_follows_transformers) {
  ClipTextModel text_encoder(find_preset("tiny").value().text_encoder);
  initialize_parameters(text_encoder, 0);
  const std::string layer = "text_model.encoder.layers.1.";
  EXPECT_NEAR(parameter(*text_encoder, "text_model.embeddings.token_embedding.weight").std().item<double>(), 0.02, 0.0002);
  EXPECT_NEAR(parameter(*text_encoder, layer + "self_attn.q_proj.weight").std().item<double>(), 1 / std::sqrt(128.0 * 4), 0.001);
  EXPECT_NEAR(parameter(*text_encoder, layer + "self_attn.out_proj.weight").std().item<double>(), 1 / std::sqrt(128.0), 0.002);
  EXPECT_NEAR(parameter(*text_encoder, layer + "mlp.fc1.weight").std().item<double>(), 1 / std::sqrt(2 * 128.0), 0.001);
  EXPECT_NEAR(parameter(*text_encoder, layer + "mlp.fc2.weight").std().item<double>(), 1 / std::sqrt(128.0 * 4), 0.001);
  EXPECT_EQ(parameter(*text_encoder, layer + "mlp.fc2.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(parameter(*text_encoder, layer + "layer_norm1.weight").min().item<double>(), 1);
}

TEST(InitTest, a_stop_request_leaves_the_rest_as_it_was) {
  AutoencoderKL vae(find_preset("tiny").value().vae);
  const torch::NoGradGuard no_grad;
  for (auto& values : vae->parameters()) {
    values.fill_(3);
  }
  std::stop_source stop;
  stop.request_stop();
  initialize_parameters(vae, 7, stop.get_token());
  for (const auto& values : vae->parameters()) {
    EXPECT_TRUE(values.eq(3).all().item<bool>());
  }
}

TEST(InitTest, threads_change_nothing_and_the_seed_changes_everything) {
  const auto config = find_preset("tiny").value().vae;
  AutoencoderKL one(config), three(config), other(config);
  at::set_num_threads(1);
  initialize_parameters(one, 5);
  at::set_num_threads(3);
  initialize_parameters(three, 5);
  at::set_num_threads(1);
  initialize_parameters(other, 6);
  EXPECT_EQ(component_fingerprint(one), component_fingerprint(three));
  EXPECT_NE(component_fingerprint(one), component_fingerprint(other));
}

}  // namespace
}  // namespace darkroom
