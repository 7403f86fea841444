#include "darkroom/paint/painter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/diffusion/guidance.h"
#include "darkroom/diffusion/seeded_noise.h"
#include "darkroom/nn/placement.h"
#include "darkroom/paint/pictures.h"
#include "support/tensor_error.h"
#include "tiny_painter.h"

namespace darkroom {
namespace {

TEST(painter, paints_one_picture_a_prompt_at_the_models_size) {
  const Painting painting = painter().paint(request_of({"a red apple", ""}, {0, 1})).value();
  ASSERT_EQ(painting.images.size(), 2U);
  EXPECT_EQ(painting.images[0].width, 64);
  EXPECT_EQ(painting.images[0].height, 64);
  EXPECT_EQ(painting.latents_nchw.sizes(), (std::vector<int64_t>{2, 4, 8, 8}));
}

TEST(painter, counts_the_pictures_that_came_out_without_numbers) {
  PaintRequest request = request_of({"a", "b", "c"}, {1, 2, 3}, 2);
  request.batch_size = 2;
  EXPECT_EQ(painter().paint(request)->num_not_finite, 0);
  request.unit_noise_nchw = torch::zeros({3, 4, 8, 8});
  request.unit_noise_nchw[0][0][0][0] = NAN;
  request.unit_noise_nchw[2][3][7][7] = INFINITY;
  const Painting painting = painter().paint(request).value();
  EXPECT_EQ(painting.num_not_finite, 2);
  EXPECT_EQ(painting.images.size(), 3U);
  EXPECT_EQ(painting.images[0].pixels, std::vector<uint8_t>(64 * 64 * 3, 0)) << "black, as of diffusers";
}

TEST(painter, the_same_request_gives_the_same_bytes) {
  const PaintRequest request = request_of({"a cat", "a dog"}, {5, 5});
  EXPECT_EQ(painter().paint(request)->images, painter().paint(request)->images);
}

TEST(painter, a_picture_does_not_depend_on_its_batch) {
  const std::vector<std::string> prompts = {"a", "b", "c", "a", "e"};
  PaintRequest request = request_of(prompts, {1, 2, 3, 4, 5});
  request.batch_size = 5;
  const torch::Tensor whole = painter().paint(request)->latents_nchw;
  for (const int64_t batch_size : {1, 2, 4}) {
    request.batch_size = batch_size;
    EXPECT_TRUE(is_near(painter().paint(request)->latents_nchw, whole, 1e-4 * largest(whole))) << batch_size;
  }
}

TEST(painter, the_start_noise_is_that_of_torchs_cpu_generator) {
  const PaintRequest request = request_of({"x", "y"}, {7, 8});
  PaintRequest given = request;
  std::vector<torch::Tensor> noise;
  for (const uint64_t seed : request.seeds) {
    torch::manual_seed(seed);
    noise.push_back(torch::randn({1, 4, 8, 8}));
  }
  given.unit_noise_nchw = torch::cat(noise);
  given.seeds.clear();
  EXPECT_TRUE(torch::equal(painter().paint(given)->latents_nchw, painter().paint(request)->latents_nchw));
}

TEST(painter, captions_seeds_and_guidance_change_the_picture) {
  const PaintRequest request = request_of({"a red apple"}, {0});
  const torch::Tensor latents = painter().paint(request)->latents_nchw;
  PaintRequest other = request;
  other.prompts = {"a blue whale"};
  EXPECT_FALSE(torch::equal(painter().paint(other)->latents_nchw, latents));
  other = request;
  other.seeds = {1};
  EXPECT_FALSE(torch::equal(painter().paint(other)->latents_nchw, latents));
  other = request;
  other.negative = "blurry";
  EXPECT_FALSE(torch::equal(painter().paint(other)->latents_nchw, latents));
  other = request;
  other.guidance = 1.0;
  EXPECT_FALSE(torch::equal(painter().paint(other)->latents_nchw, latents));
}

TEST(painter, without_guidance_the_negative_text_does_not_matter) {
  PaintRequest request = request_of({"a"}, {0});
  request.guidance = 1.0;
  const torch::Tensor latents = painter().paint(request)->latents_nchw;
  request.negative = "something";
  EXPECT_TRUE(torch::equal(painter().paint(request)->latents_nchw, latents));
}

TEST(painter, an_empty_sampler_name_means_the_models_scheduler) {
  PaintRequest request = request_of({"a"}, {0}, 5);
  request.sampler.name = "pndm";
  const torch::Tensor latents = painter().paint(request)->latents_nchw;
  request.sampler.name = "";
  EXPECT_TRUE(torch::equal(painter().paint(request)->latents_nchw, latents));
}

TEST(painter, other_sizes_and_no_prompts_work) {
  PaintRequest request = request_of({"wide"}, {0}, 2);
  request.width = 96;
  request.height = 32;
  const Painting painting = painter().paint(request).value();
  EXPECT_EQ(painting.images[0].width, 96);
  EXPECT_EQ(painting.images[0].height, 32);
  const Painting none = painter().paint(request_of({}, {})).value();
  EXPECT_TRUE(none.images.empty());
  EXPECT_EQ(none.latents_nchw.size(0), 0);
}

TEST(painter, refuses_requests_that_do_not_fit) {
  const auto code = [](const PaintRequest& request) { return painter().paint(request).status().code(); };
  EXPECT_EQ(code(request_of({"a", "b"}, {0})), StatusCode::kInvalidArgument);
  PaintRequest request = request_of({"a"}, {0});
  request.width = 65;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request = request_of({"a"}, {0});
  request.batch_size = 0;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request = request_of({"a"}, {0});
  request.unit_noise_nchw = torch::zeros({1, 4, 8, 9});
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request = request_of({"a"}, {0});
  request.sampler.name = "magic";
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(request_of({"a"}, {0}, 0)), StatusCode::kInvalidArgument);
}

TEST(painter, eta_draws_from_the_pictures_own_generator) {
  PaintRequest request = request_of({"a", "b"}, {3, 4});
  request.sampler.eta = 1.0;
  const torch::Tensor both = painter().paint(request)->latents_nchw;
  PaintRequest second = request_of({"b"}, {4});
  second.sampler.eta = 1.0;
  EXPECT_TRUE(is_near(painter().paint(second)->latents_nchw[0], both[1], 1e-4 * largest(both)));
  request.unit_noise_nchw = torch::zeros({2, 4, 8, 8});
  request.seeds.clear();
  EXPECT_EQ(painter().paint(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(painter, every_sampler_paints) {
  for (const std::string_view name : sampler_names()) {
    PaintRequest request = request_of({"a", "b"}, {3, 4}, 4);
    request.sampler.name = name;
    const Painting painting = painter().paint(request).value();
    EXPECT_TRUE(painting.latents_nchw.isfinite().all().item<bool>()) << name;
    EXPECT_FALSE(torch::equal(painting.latents_nchw[0], painting.latents_nchw[1])) << name;
  }
}

TEST(painter, a_stochastic_sampler_needs_seeds_beside_latents) {
  PaintRequest request = request_of({"a"}, {3});
  request.sampler.name = "euler_a";
  request.unit_noise_nchw = torch::zeros({1, 4, 8, 8});
  EXPECT_TRUE(painter().paint(request).is_ok());
  request.seeds.clear();
  EXPECT_EQ(painter().paint(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(painter, guidance_rescale_changes_the_picture) {
  PaintRequest request = request_of({"a"}, {0});
  const torch::Tensor latents = painter().paint(request)->latents_nchw;
  request.guidance_rescale = 0.7;
  EXPECT_FALSE(torch::equal(painter().paint(request)->latents_nchw, latents));
  request.guidance_rescale = 1.5;
  EXPECT_EQ(painter().paint(request).status().code(), StatusCode::kInvalidArgument);
}

// Keys and values of the text are worked out once a run; here in every call.
TEST(painter, remembers_the_text_with_the_bits_of_asking_again) {
  TinyModel& model = tiny_model();
  const PaintRequest request = request_of({"a cat", "a dog"}, {5, 6}, 4);
  const Painting got = painter().paint(request).value();
  const torch::NoGradGuard no_grad;
  const std::vector<std::string> texts = {"", "", "a cat", "a dog"};
  const torch::Tensor states = painter().encode_prompts(texts).value();
  const Denoiser denoiser = guided_denoiser([&](const torch::Tensor& noisy, const torch::Tensor& timesteps_n,
                                                const torch::Tensor& both) { return model.unet->forward(noisy, timesteps_n, both); },
                                            states.slice(0, 0, 2), states.slice(0, 2), {.scale = request.guidance});
  const auto sampler = make_sampler(request.sampler, painter().scheduler()).value();
  const std::vector<int64_t> shape = {2, 4, 8, 8};
  SeededNoise noise(request.seeds, shape);
  const torch::Tensor want = run_sampler_from(*sampler, 0, denoiser, noise.draw() * sampler->initial_sigma(), {}).value();
  EXPECT_TRUE(torch::equal(got.latents_nchw, want));
  EXPECT_FALSE(got.latents_nchw.is_inference());
}

TEST(painter, a_u_net_in_bfloat16_paints_about_the_same_picture_and_samples_in_float32) {
  TinyModel half;
  place_network(*half.unet, {.device = torch::kCPU, .type = torch::kBFloat16});
  place_network(*half.text_encoder, {.device = torch::kCPU, .type = torch::kBFloat16});
  const auto half_painter = half.painter().value();
  EXPECT_EQ(half_painter->place().type, torch::kBFloat16);
  for (const std::string_view name : sampler_names()) {
    PaintRequest request = request_of({"a cat"}, {5}, 4);
    request.sampler.name = name;
    const torch::Tensor want = painter().paint(request)->latents_nchw;
    const torch::Tensor got = half_painter->paint(request)->latents_nchw;
    EXPECT_EQ(got.scalar_type(), torch::kFloat32) << name;
    EXPECT_FALSE(torch::equal(got, got.to(torch::kBFloat16).to(torch::kFloat32))) << name << ": digits were lost beside the network";
    EXPECT_TRUE(is_near(got, want, 0x1p-3 * largest(want))) << name;
  }
}

Image gradient(int width, int height) {
  Image image = Image::filled(width, height, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i * 7 % 256);
  }
  return image;
}

PaintRequest from_picture(const Image& image, double strength) {
  PaintRequest request = request_of({"a", "b"}, {5, 6}, 4);
  request.init_images = {image};
  request.strength = strength;
  return request;
}

TEST(painter, an_initial_picture_gives_its_size_rounded_down) {
  const Painting painting = painter().paint(from_picture(gradient(70, 45), 0.5)).value();
  EXPECT_EQ(painting.images[1].width, 64);
  EXPECT_EQ(painting.images[1].height, 40);
  PaintRequest request = from_picture(gradient(70, 45), 0.5);
  request.width = 96;
  EXPECT_EQ(painter().paint(request)->images[0].width, 96);
  EXPECT_EQ(painter().paint(request)->images[0].height, 40);
}

// The generator of a picture draws its posterior first, then the start noise.
TEST(painter, image_to_image_follows_the_documented_order_of_draws) {
  PaintRequest request = from_picture(gradient(64, 64), 0.25);  // One of four steps.
  request.prompts = {"a"};
  request.seeds = {9};
  request.guidance = 1.0;
  const torch::Tensor got = painter().paint(request)->latents_nchw;
  TinyModel& model = tiny_model();
  const torch::Tensor bytes = torch::from_blob(request.init_images[0].pixels.data(), {1, 64, 64, 3}, torch::kUInt8);
  const torch::NoGradGuard no_grad;
  const Moments posterior = model.vae->encode(bytes.permute({0, 3, 1, 2}).to(torch::kFloat32) / 255.0F * 2.0F - 1.0F);
  torch::manual_seed(9);
  const torch::Tensor drawn = posterior.mean + (posterior.logvar * 0.5).exp() * torch::randn({1, 4, 8, 8});
  const auto sampler = make_sampler(request.sampler, painter().scheduler()).value();
  const torch::Tensor start = sampler->add_noise(3, drawn * model.vae->config().scaling_factor, torch::randn({1, 4, 8, 8}));
  const std::vector<std::string> texts = {"a"};
  const torch::Tensor timestep = torch::full({1}, sampler->timesteps()[3], torch::kInt64);
  const torch::Tensor want = sampler->step(3, model.unet->forward(start, timestep, painter().encode_prompts(texts).value()), start, {});
  EXPECT_TRUE(is_near(got, want, 1e-5 * largest(want)));
}

TEST(painter, refuses_initial_pictures_that_do_not_fit) {
  const auto code = [](const PaintRequest& request) { return painter().paint(request).status().code(); };
  const Image image = gradient(64, 64);
  for (const double strength : {0.0, -0.5, 1.5, 0.2, std::nan("")}) {  // 0.2 of 4 steps is none.
    EXPECT_EQ(code(from_picture(image, strength)), StatusCode::kInvalidArgument) << strength;
  }
  PaintRequest request = from_picture(image, 0.5);
  request.unit_noise_nchw = torch::zeros({2, 4, 8, 8});
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request = from_picture(image, 0.5);
  request.init_images = {image, image, image};
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(from_picture(gradient(7, 64), 0.5)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(from_picture(Image::filled(64, 64, 1), 0.5)), StatusCode::kInvalidArgument);
}

TEST(painter, stops_when_asked) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(painter().paint(request_of({"a"}, {0}), stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(painter, equal_texts_have_equal_states) {
  const std::vector<std::string> texts = {"b", "a", "b"};
  const torch::Tensor states = painter().encode_prompts(texts).value();
  EXPECT_TRUE(torch::equal(states[0], states[2]));
  EXPECT_FALSE(torch::equal(states[0], states[1]));
}

TEST(painter, parts_of_different_models_are_refused) {
  TinyModel& model = tiny_model();
  const SchedulerConfig scheduler = SchedulerConfig::from_json(model.preset.scheduler).value();
  ClipTextConfig wider = model.preset.text_encoder;
  wider.hidden_size = 64;
  EXPECT_EQ(Painter::create(model.unet, model.vae, ClipTextModel(wider), model.tokenizer, scheduler).status().code(),
            StatusCode::kFailedPrecondition);
  ClipTextConfig fewer = model.preset.text_encoder;
  fewer.vocab_size = 1000;
  EXPECT_EQ(Painter::create(model.unet, model.vae, ClipTextModel(fewer), model.tokenizer, scheduler).status().code(),
            StatusCode::kFailedPrecondition);
  VaeConfig channels = model.preset.vae;
  channels.latent_channels = 8;
  EXPECT_EQ(Painter::create(model.unet, AutoencoderKL(channels), model.text_encoder, model.tokenizer, scheduler).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(to_images, rounds_half_to_even_and_clamps) {
  // x/2 + 1/2 times 255 is v for x = v / 127.5 - 1.
  const std::vector<float> pixels = {-1.0F, 1.0F, -3.0F, 3.0F, 0.0F, std::nanf("")};
  const torch::Tensor images = torch::tensor(pixels).view({1, 1, 1, 6}).expand({1, 3, 1, 6});
  const std::vector<Image> got = to_images(images);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].width, 6);
  const std::vector<uint8_t> want = {0, 255, 0, 255, 128, 0};  // 127.5 is rounded to the even 128.
  for (size_t x = 0; x < want.size(); ++x) {
    EXPECT_EQ(got[0].pixels[3 * x], want[x]) << x;
  }
}

TEST(to_images, keeps_rows_columns_and_channels_apart) {
  const torch::Tensor bytes = torch::arange(2 * 3 * 4 * 5, torch::kFloat32).view({2, 3, 4, 5});
  const std::vector<Image> images = to_images(bytes / 127.5 - 1.0);
  EXPECT_EQ(images[1].row(2)[3 * 4 + 1], bytes[1][1][2][4].item<int>());
}

}  // namespace
}  // namespace darkroom
