#include "darkroom/nn/packing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <future>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/placement.h"
#include "darkroom/nn/text_states.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "support/network_golden.h"
#include "support/reference_spread.h"
#include "support/source_path.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

struct PackedGolden : NetworkGolden {
  explicit PackedGolden(const std::string& name)
      : NetworkGolden(NetworkGolden::open(source_path("tests/golden/nn/" + name + ".safetensors")).value()),
        spreads(read_spread("nn").at(name)) {}

  // The bound of the networks that are not packed (golden_test.cpp).
  testing::AssertionResult holds(const std::string& name, const torch::Tensor& output) const {
    const auto want = tensor(name);
    return is_near(output, want, 1e-5 * largest(want) + kSpreadSafety * spreads.value(name, 0.0));
  }

  nlohmann::json spreads;
};

torch::Tensor predict(const PackedGolden& golden, UNet2DConditionModel& unet) {
  return unet(golden.tensor("sample"), golden.tensor("timestep"), golden.tensor("encoder_hidden_states"));
}

UNet2DConditionModel filled_unet(const PackedGolden& golden) {
  UNet2DConditionModel unet(UNetConfig::from_json(golden.config).value());
  fill_parameters(*unet);
  return unet;
}

class PackedUNetTest : public testing::TestWithParam<const char*> {};

TEST_P(PackedUNetTest, outputs_equal_diffusers_and_come_as_those_of_a_plain_network) {
  const PackedGolden golden(GetParam());
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const c10::InferenceMode inference;
  const auto output = predict(golden, unet);
  EXPECT_TRUE(golden.holds("output", output));
  EXPECT_TRUE(output.is_contiguous());
  EXPECT_TRUE(at::equal(predict(golden, unet), output)) << "a second pass";
}

TEST_P(PackedUNetTest, bits_do_not_depend_on_known_text_states) {
  const PackedGolden golden(GetParam());
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const torch::NoGradGuard no_grad;
  const TextStates states(golden.tensor("encoder_hidden_states"), TextStates::Memory::kKeysAndValues);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_TRUE(at::equal(unet->forward_known(golden.tensor("sample"), golden.tensor("timestep"), states), predict(golden, unet))) << pass;
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, PackedUNetTest, testing::Values("unet_linear", "unet_conv"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PackingTest, sdxls_unet_equals_diffusers) {
  const PackedGolden golden("unet_sdxl");
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const torch::NoGradGuard no_grad;
  const AddedConditions added{.text_embeds_nc = golden.tensor("text_embeds"), .time_ids_nk = golden.tensor("time_ids")};
  EXPECT_TRUE(golden.holds(
      "output", unet->forward_with(golden.tensor("sample"), golden.tensor("timestep"), golden.tensor("encoder_hidden_states"), added)));
}

TEST(PackingTest, the_vae_equals_diffusers) {
  const torch::NoGradGuard no_grad;
  const PackedGolden encoding("vae_encoder"), decoding("vae_decoder");
  AutoencoderKL encoder(VaeConfig::from_json(encoding.config).value()), decoder(VaeConfig::from_json(decoding.config).value());
  fill_parameters(*encoder);
  fill_parameters(*decoder);
  ASSERT_TRUE(pack_network(*encoder) && pack_network(*decoder));
  const Moments moments = encoder->encode(encoding.tensor("sample"));
  EXPECT_TRUE(encoding.holds("mean", moments.mean));
  EXPECT_TRUE(encoding.holds("logvar", moments.logvar));
  EXPECT_TRUE(decoding.holds("image", decoder->decode(decoding.tensor("sample"))));
}

TEST(PackingTest, the_text_encoder_equals_transformers) {
  const torch::NoGradGuard no_grad;
  const PackedGolden golden("text_gelu");
  ClipTextModel text_encoder(ClipTextConfig::from_json(golden.config).value());
  fill_parameters(*text_encoder);
  ASSERT_TRUE(pack_network(*text_encoder));
  EXPECT_TRUE(golden.holds("last_hidden_state", text_encoder(golden.tensor("input_ids"))));
}

// Two roundings of every value to 8 bits on another way each: as far from each other as from the truth, which gpu_parity bounds by
// 6.25 % in norm.
TEST(PackingTest, bfloat16_stays_within_its_rounding_where_the_processor_has_it) {
  constexpr double kBound = 0.0625;
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  place_network(*unet, torch::kCPU, torch::kBFloat16);
  const torch::NoGradGuard no_grad;
  const auto want = golden.tensor("output").to(torch::kFloat64);
  if (!pack_network(*unet)) {
    GTEST_SKIP() << "this processor has no AVX512-BF16: networks in bfloat16 are not packed on it";
  }
  const auto got = predict(golden, unet);
  EXPECT_EQ(got.scalar_type(), torch::kBFloat16);
  EXPECT_LE((got.to(torch::kFloat64) - want).norm().item<double>(), kBound * want.norm().item<double>());
}

// Memory that a parameter's values hold.
int64_t held_bytes(const torch::Tensor& parameter) { return static_cast<int64_t>(parameter.storage().nbytes()); }

TEST(PackingTest, plain_weights_give_their_memory_back_and_keep_name_shape_and_type) {
  const PackedGolden golden("unet_conv");
  auto unet = filled_unet(golden);
  auto plain = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const auto want = plain->named_parameters();
  ASSERT_EQ(unet->named_parameters().size(), want.size());
  for (const auto& item : unet->named_parameters()) {
    EXPECT_EQ(item.value().sizes(), want[item.key()].sizes()) << item.key();
    EXPECT_EQ(item.value().scalar_type(), want[item.key()].scalar_type()) << item.key();
    if (item.value().dim() == 1) {
      EXPECT_TRUE(at::equal(item.value(), want[item.key()])) << item.key();
    } else {
      EXPECT_LE(held_bytes(item.value()), item.value().element_size()) << item.key();
      EXPECT_TRUE(item.value().isnan().all().item<bool>()) << item.key() << ": what is gone must not look like a weight";
    }
  }
}

// Latents of odd sides and any number of pictures, as `serve` asks for them, each size for the first time and again.
TEST(PackingTest, every_batch_and_size_stays_within_the_bound_of_the_plain_network) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  auto plain = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const torch::NoGradGuard no_grad;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const torch::Tensor states = golden.tensor("encoder_hidden_states");
  for (const auto& [count, height, width] : {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 7}, {2, 16, 8}, {1, 9, 1}, {5, 3, 7}, {3, 17, 16}}) {
    const auto sample = at::randn({count, plain->config().in_channels, height, width}, generator);
    const auto texts = at::randn({count, states.size(1), states.size(2)}, generator);
    const auto timesteps = at::arange(count) * 113;
    const auto want = plain(sample, timesteps, texts);
    const double bound = 2 * 1e-5 * largest(want) + kSpreadSafety * golden.spreads.value("output", 0.0);  // Each is as near to the truth.
    EXPECT_TRUE(is_near(unet(sample, timesteps, texts), want, bound)) << count << " x " << height << " x " << width;
  }
}

TEST(PackingTest, threads_that_share_a_packed_network_get_the_bits_of_one) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const auto run = [&] {
    at::set_num_threads(1);
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> outputs;
    for (int pass = 0; pass < 4; ++pass) {
      outputs.push_back(predict(golden, unet));
    }
    return torch::stack(outputs);
  };
  const auto alone = std::async(std::launch::async, run).get();
  auto one = std::async(std::launch::async, run), other = std::async(std::launch::async, run);
  EXPECT_TRUE(at::equal(one.get(), alone));
  EXPECT_TRUE(at::equal(other.get(), alone));
}

TEST(PackingTest, a_packed_network_refuses_to_run_with_gradients) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  EXPECT_THROW(predict(golden, unet), CheckFailure);
}

TEST(PackingTest, refuses_to_run_with_weights_that_were_placed_or_cast_anew) {
  const PackedGolden golden("unet_linear");
  const torch::NoGradGuard no_grad;
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    auto unet = filled_unet(golden);
    ASSERT_TRUE(pack_network(*unet));
    place_network(*unet, torch::kCPU, type);
    EXPECT_THROW(predict(golden, unet), CheckFailure) << type;
  }
}

TEST(PackingTest, refuses_to_run_with_one_weight_loaded_anew) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  const torch::NoGradGuard no_grad;
  torch::Tensor weight = unet->named_parameters()["mid_block.resnets.1.conv2.weight"];
  EXPECT_ANY_THROW(weight.copy_(at::zeros(weight.sizes()))) << "there is no memory to write to";
  weight.set_data(at::zeros(weight.sizes()));
  EXPECT_THROW(predict(golden, unet), CheckFailure);
}

TEST(PackingTest, refuses_to_pack_twice) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  ASSERT_TRUE(pack_network(*unet));
  EXPECT_THROW(pack_network(*unet), CheckFailure);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(golden.holds("output", predict(golden, unet))) << "and stays as it was";
}

TEST(PackingTest, float16_is_left_as_it_is) {
  const PackedGolden golden("unet_linear");
  auto unet = filled_unet(golden);
  place_network(*unet, torch::kCPU, torch::kFloat16);
  EXPECT_FALSE(pack_network(*unet));
}

}  // namespace
}  // namespace darkroom
