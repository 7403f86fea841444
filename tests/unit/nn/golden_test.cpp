#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <map>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "support/network_golden.h"
#include "support/reference_spread.h"
#include "support/source_path.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

// In the head of the report, so that tools/check/every_processor.py sees that what it asked for is what runs.
class UsedLevel : public testing::Environment {
 public:
  void SetUp() override { testing::Test::RecordProperty("aten_level", at::get_cpu_capability()); }
};
[[maybe_unused]] const auto* const kUsedLevel = testing::AddGlobalTestEnvironment(new UsedLevel);

struct Golden : NetworkGolden {
  explicit Golden(const std::string& name)
      : NetworkGolden(NetworkGolden::open(source_path("tests/golden/nn/" + name + ".safetensors")).value()),
        spreads_(read_spread("nn").at(name)) {}

  /// Room for what the reference itself makes of the tensor on another processor.
  double spread(const std::string& name) const { return kSpreadSafety * spreads_.value(name, 0.0); }

  torch::Tensor input(const std::string& name) const {
    const auto copy = tensor(name).clone();
    return copy.is_floating_point() ? copy.set_requires_grad(true) : copy;
  }

 private:
  nlohmann::json spreads_;
};

void expect_outputs(const Golden& golden, const Tensors& outputs) {
  for (const auto& [name, output] : outputs) {
    const auto want = golden.tensor(name);
    EXPECT_TRUE(is_near(output, want, 1e-5 * largest(want) + golden.spread(name))) << name;
  }
}

void backpropagate(const Golden& golden, const Tensors& outputs) {
  std::vector<torch::Tensor> roots, cotangents;
  for (const auto& [name, output] : outputs) {
    roots.push_back(output);
    cotangents.push_back(golden.tensor("cotangent." + name));
  }
  torch::autograd::backward(roots, cotangents);
}

// Within 1e-4 of the largest |want|, or within the noise that the reference itself has there: the bias of keys before a softmax has no
// gradient but noise.
void expect_gradient(const Golden& golden, const std::string& name, const torch::Tensor& leaf) {
  ASSERT_TRUE(leaf.grad().defined()) << name;
  const auto got = name.starts_with("grad.") ? thinned(leaf.grad()) : leaf.grad();
  const auto want = golden.tensor(name);
  EXPECT_TRUE(is_near(got, want, std::max(1e-4 * largest(want), golden.spread(name)))) << name;
}

void expect_gradients(const Golden& golden, const torch::nn::Module& module, const Tensors& inputs) {
  size_t num_reached = 0;
  for (const auto& item : module.named_parameters()) {
    if (golden.file->contains("grad." + item.key())) {
      expect_gradient(golden, "grad." + item.key(), item.value());
      ++num_reached;
    } else {
      EXPECT_FALSE(item.value().grad().defined()) << "the reference does not reach " << item.key();
    }
  }
  const auto num_stored = std::ranges::count_if(golden.file->names(), [](const std::string& name) { return name.starts_with("grad."); });
  EXPECT_EQ(num_reached, static_cast<size_t>(num_stored)) << "the reference has other parameters";
  for (const auto& [name, input] : inputs) {
    if (input.requires_grad()) {
      expect_gradient(golden, "grad_input." + name, input);
    }
  }
}

void check_golden(const Golden& golden, torch::nn::Module& module, const Tensors& inputs, const Tensors& outputs) {
  expect_outputs(golden, outputs);
  backpropagate(golden, outputs);
  expect_gradients(golden, module, inputs);
}

class UNetGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(UNetGoldenTest, outputs_and_gradients_equal_diffusers) {
  const Golden golden(GetParam());
  UNet2DConditionModel unet(UNetConfig::from_json(golden.config).value());
  fill_parameters(*unet);
  const Tensors inputs = {{"sample", golden.input("sample")},
                          {"timestep", golden.input("timestep")},
                          {"encoder_hidden_states", golden.input("encoder_hidden_states")}};
  const auto output = unet(inputs.at("sample"), inputs.at("timestep"), inputs.at("encoder_hidden_states"));
  check_golden(golden, *unet, inputs, {{"output", output}});
}

TEST(SdxlGoldenTest, unet_outputs_and_gradients_equal_diffusers) {
  const Golden golden("unet_sdxl");
  UNet2DConditionModel unet(UNetConfig::from_json(golden.config).value());
  fill_parameters(*unet);
  Tensors inputs;
  for (const char* name : {"sample", "timestep", "encoder_hidden_states", "text_embeds", "time_ids"}) {
    inputs[name] = golden.input(name);
  }
  const AddedConditions added{.text_embeds_nc = inputs.at("text_embeds"), .time_ids_nk = inputs.at("time_ids")};
  const auto output = unet->forward_with(inputs.at("sample"), inputs.at("timestep"), inputs.at("encoder_hidden_states"), added);
  check_golden(golden, *unet, inputs, {{"output", output}});
}

TEST(SdxlGoldenTest, text_states_and_gradients_equal_transformers) {
  const Golden golden("text_projection");
  nlohmann::json config = golden.config;
  config["architectures"] = {"CLIPTextModelWithProjection"};
  ClipTextModel text_encoder(ClipTextConfig::from_json(config).value());
  fill_parameters(*text_encoder);
  const Tensors inputs = {{"input_ids", golden.input("input_ids")}};
  const ClipTextStates states = text_encoder->encode(inputs.at("input_ids"));
  check_golden(golden, *text_encoder, inputs,
               {{"penultimate_hidden_state", states.penultimate_btc}, {"text_embeds", states.text_embeds_np}});
}

INSTANTIATE_TEST_SUITE_P(Configs, UNetGoldenTest, testing::Values("unet_linear", "unet_conv"),
                         [](const auto& info) { return std::string(info.param); });

TEST(VaeGoldenTest, encoder_moments_and_gradients_equal_diffusers) {
  const Golden golden("vae_encoder");
  AutoencoderKL vae(VaeConfig::from_json(golden.config).value());
  fill_parameters(*vae);
  const Tensors inputs = {{"sample", golden.input("sample")}};
  const Moments moments = vae->encode(inputs.at("sample"));
  check_golden(golden, *vae, inputs, {{"mean", moments.mean}, {"logvar", moments.logvar}});
}

TEST(VaeGoldenTest, decoder_image_and_gradients_equal_diffusers) {
  const Golden golden("vae_decoder");
  AutoencoderKL vae(VaeConfig::from_json(golden.config).value());
  fill_parameters(*vae);
  const Tensors inputs = {{"sample", golden.input("sample")}};
  check_golden(golden, *vae, inputs, {{"image", vae->decode(inputs.at("sample"))}});
}

class TextGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TextGoldenTest, states_and_gradients_equal_transformers) {
  const Golden golden(GetParam());
  ClipTextModel text_encoder(ClipTextConfig::from_json(golden.config).value());
  fill_parameters(*text_encoder);
  const Tensors inputs = {{"input_ids", golden.input("input_ids")}};
  check_golden(golden, *text_encoder, inputs, {{"last_hidden_state", text_encoder(inputs.at("input_ids"))}});
}

INSTANTIATE_TEST_SUITE_P(Activations, TextGoldenTest, testing::Values("text_gelu", "text_quick_gelu"),
                         [](const auto& info) { return std::string(info.param); });

TEST(UNetTest, added_conditions_must_be_those_of_the_config) {
  const Golden golden("unet_sdxl"), plain("unet_conv");
  UNet2DConditionModel unet(UNetConfig::from_json(golden.config).value()), other(UNetConfig::from_json(plain.config).value());
  const auto sample = golden.input("sample"), states = golden.input("encoder_hidden_states"), t = torch::tensor(7);
  const AddedConditions added{.text_embeds_nc = torch::ones({2, 10}), .time_ids_nk = torch::ones({2, 6})};
  const AddedConditions misfit{.text_embeds_nc = torch::ones({2, 10}), .time_ids_nk = torch::ones({2, 5})};
  EXPECT_THROW(unet(sample, t, states), CheckFailure);
  EXPECT_THROW(unet->forward_with(sample, t, states, misfit), CheckFailure);
  EXPECT_THROW(other->forward_with(sample, t, states, added), CheckFailure);
}

TEST(ClipTextTest, the_embedding_of_a_text_is_taken_at_its_first_end) {
  const Golden golden("text_projection");
  nlohmann::json config = golden.config;
  config["architectures"] = {"CLIPTextModelWithProjection"};
  ClipTextModel first_end(ClipTextConfig::from_json(config).value());
  config["eos_token_id"] = 2;
  ClipTextModel largest_id(ClipTextConfig::from_json(config).value());
  fill_parameters(*first_end);
  fill_parameters(*largest_id);
  const torch::NoGradGuard no_grad;
  // 39 is the end; everything behind it must not matter, however the config names it.
  const auto ids = torch::tensor({{38, 5, 39, 0, 0}, {38, 5, 39, 39, 7}});
  const auto embeds = first_end->encode(ids).text_embeds_np;
  // Sums of at most 32 products, twice a layer and once at the end, of values around the embeds' own.
  EXPECT_TRUE(is_near(embeds[0], embeds[1], accumulation_tolerance<float>(32, largest(embeds))));
  EXPECT_TRUE(at::equal(largest_id->encode(ids).text_embeds_np[0], embeds[0]));
}

TEST(UNetTest, one_timestep_for_all_equals_a_list_of_it) {
  const Golden golden("unet_conv");
  UNet2DConditionModel unet(UNetConfig::from_json(golden.config).value());
  fill_parameters(*unet);
  const torch::NoGradGuard no_grad;
  const auto sample = golden.input("sample"), states = golden.input("encoder_hidden_states");
  const auto listed = unet(sample, torch::tensor({7, 7}), states);
  EXPECT_TRUE(at::equal(unet(sample, torch::tensor(7), states), listed));
  EXPECT_TRUE(at::equal(unet(sample, torch::tensor(7.0F), states), listed));
}

}  // namespace
}  // namespace darkroom
