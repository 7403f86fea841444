#include "darkroom/optim/objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "support/tensor_error.h"
#include "toy_network.h"

namespace darkroom {
namespace {

DiffusionObjective objective(DiffusionObjectiveOptions options = {}, PredictionType type = PredictionType::kEpsilon) {
  NoiseScheduleConfig config;
  config.prediction_type = type;
  return {NoiseSchedule(config), options, toy_empty_states()};
}

std::vector<int> keys_up_to(int count) {
  std::vector<int> keys(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    keys[static_cast<size_t>(i)] = i;
  }
  return keys;
}

TEST(diffusion_objective, draws_are_those_of_the_documented_generator) {
  const DiffusionInputs inputs = objective({.seed = 42}).prepare(toy_batch({5, 6}, 3));
  const uint64_t key = hash_key("6");
  const CounterRandom noise(42, Purpose::kNoise, 3, key);
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(inputs.noise_nchw[1].flatten()[i].item<float>(), noise.normal(static_cast<uint64_t>(i)));
  }
  EXPECT_EQ(inputs.timesteps_n[1].item<int64_t>(), CounterRandom(42, Purpose::kTimestep, 3, key).below(0, 1000));
  EXPECT_EQ(inputs.dropped_n[1].item<bool>(), CounterRandom(42, Purpose::kCaptionDrop, 3, key).uniform(0) < 0.1);
}

TEST(diffusion_objective, a_sample_does_not_see_its_batch) {
  const DiffusionObjective objective_of_test = objective();
  const DiffusionInputs whole = objective_of_test.prepare(toy_batch(keys_up_to(7)));
  for (const auto& order : {std::vector<int>{3}, std::vector<int>{6, 3}, std::vector<int>{0, 3, 1}}) {
    const DiffusionInputs part = objective_of_test.prepare(toy_batch(order));
    const auto place = static_cast<int64_t>(std::find(order.begin(), order.end(), 3) - order.begin());
    EXPECT_TRUE(torch::equal(part.noisy_nchw[place], whole.noisy_nchw[3]));
    EXPECT_TRUE(torch::equal(part.states_ntw[place], whole.states_ntw[3]));
    EXPECT_TRUE(torch::equal(part.timesteps_n[place], whole.timesteps_n[3]));
  }
}

TEST(diffusion_objective, another_epoch_or_seed_draws_anew) {
  const torch::Tensor first = objective().prepare(toy_batch({1})).noise_nchw;
  EXPECT_FALSE(torch::equal(objective().prepare(toy_batch({1}, 1)).noise_nchw, first));
  EXPECT_FALSE(torch::equal(objective({.seed = 1}).prepare(toy_batch({1})).noise_nchw, first));
}

TEST(diffusion_objective, drops_a_tenth_of_the_captions) {
  const DiffusionBatch batch = toy_batch(keys_up_to(2000));
  const DiffusionInputs inputs = objective().prepare(batch);
  const auto dropped = inputs.dropped_n.sum().item<int64_t>();
  EXPECT_NEAR(static_cast<double>(dropped), 200.0, 5 * std::sqrt(2000 * 0.1 * 0.9));
  for (int64_t n = 0; n < 200; ++n) {
    const torch::Tensor want = inputs.dropped_n[n].item<bool>() ? toy_empty_states() : batch.states_ntw[n];
    EXPECT_TRUE(torch::equal(inputs.states_ntw[n], want)) << n;
  }
}

TEST(diffusion_objective, no_dropout_needs_no_empty_caption) {
  const DiffusionObjective without(NoiseSchedule({}), {.caption_drop = 0.0}, {});
  const DiffusionBatch batch = toy_batch({1, 2});
  EXPECT_TRUE(torch::equal(without.prepare(batch).states_ntw, batch.states_ntw));
  EXPECT_THROW(DiffusionObjective(NoiseSchedule({}), {.caption_drop = 0.1}, {}), CheckFailure);
}

TEST(diffusion_objective, timesteps_cover_the_schedule) {
  const torch::Tensor timesteps = objective().prepare(toy_batch(keys_up_to(4000))).timesteps_n;
  EXPECT_GE(timesteps.min().item<int64_t>(), 0);
  EXPECT_LE(timesteps.max().item<int64_t>(), 999);
  // Standard deviation of a uniform draw of 1000 values is 288.7.
  EXPECT_NEAR(timesteps.to(torch::kFloat64).mean().item<double>(), 499.5, 5 * 288.7 / std::sqrt(4000.0));
}

TEST(diffusion_objective, loss_is_the_mean_squared_error_of_each_sample) {
  for (const PredictionType type : {PredictionType::kEpsilon, PredictionType::kVelocity}) {
    const DiffusionObjective objective_of_test = objective({}, type);
    const DiffusionInputs inputs = objective_of_test.prepare(toy_batch({1, 2, 3}));
    const ConditionalDenoiser zero = [](const torch::Tensor& noisy, const torch::Tensor&, const torch::Tensor&) {
      return torch::zeros_like(noisy);
    };
    const torch::Tensor want = inputs.target_nchw.square().mean({1, 2, 3});
    EXPECT_TRUE(is_near(objective_of_test.losses(zero, inputs), want, 1e-6 * largest(want)));
    const ConditionalDenoiser perfect = [&](const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
      return inputs.target_nchw;
    };
    EXPECT_EQ(objective_of_test.losses(perfect, inputs).abs().max().item<float>(), 0.0F);
  }
}

// Hang et al. 2023: min(SNR, gamma) over SNR for epsilon, over SNR + 1 for v, bare for the clean latent; in double here.
TEST(diffusion_objective, min_snr_weighs_timesteps_as_published) {
  const torch::Tensor timesteps = torch::tensor({0, 1, 100, 300, 500, 900, 999}, torch::kInt64);
  for (const PredictionType type : {PredictionType::kEpsilon, PredictionType::kVelocity, PredictionType::kClean}) {
    const DiffusionObjective weighted = objective({.min_snr_gamma = 5.0}, type);
    const torch::Tensor weights = weighted.loss_weights(timesteps);
    for (int64_t i = 0; i < timesteps.numel(); ++i) {
      const double alpha = weighted.schedule().alpha_cumprod(timesteps[i].item<int64_t>());
      const double snr = alpha / (1.0 - alpha);
      const double over = type == PredictionType::kEpsilon ? snr : type == PredictionType::kVelocity ? snr + 1.0 : 1.0;
      const double want = std::min(snr, 5.0) / over;
      EXPECT_TRUE(is_near(weights[i].item<double>(), want, 2e-4 * want)) << i;  // 1 - abar_0 has 10 bits less than abar_0.
    }
  }
  EXPECT_TRUE(torch::equal(objective().loss_weights(timesteps), torch::ones({7})));
}

TEST(diffusion_objective, min_snr_scales_each_samples_loss) {
  const ConditionalDenoiser zero = [](const torch::Tensor& noisy, const torch::Tensor&, const torch::Tensor&) {
    return torch::zeros_like(noisy);
  };
  const DiffusionObjective weighted = objective({.min_snr_gamma = 5.0}, PredictionType::kVelocity);
  const DiffusionObjective plain = objective({}, PredictionType::kVelocity);
  const DiffusionInputs inputs = weighted.prepare(toy_batch({1, 2, 3}));
  const torch::Tensor want = plain.losses(zero, inputs) * weighted.loss_weights(inputs.timesteps_n);
  EXPECT_TRUE(torch::equal(weighted.losses(zero, inputs), want));
}

TEST(diffusion_objective, min_snr_with_zero_terminal_snr_is_refused) {
  NoiseScheduleConfig noise;
  noise.prediction_type = PredictionType::kVelocity;
  const DiffusionObjectiveOptions options{.min_snr_gamma = 5.0};
  EXPECT_TRUE(options.validate_for(noise).is_ok());
  noise.zero_terminal_snr = true;
  EXPECT_EQ(options.validate_for(noise).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(DiffusionObjectiveOptions().validate_for(noise).is_ok());
  EXPECT_THROW(DiffusionObjective(NoiseSchedule(noise), options, toy_empty_states()), CheckFailure);
  for (const double gamma : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ((DiffusionObjectiveOptions{.min_snr_gamma = gamma}).validate().code(), StatusCode::kInvalidArgument);
  }
}

TEST(diffusion_objective, a_slice_holds_the_named_samples) {
  const DiffusionBatch batch = toy_batch({0, 1, 2, 3, 4});
  const DiffusionBatch part = batch.slice(1, 3);
  EXPECT_EQ(part.size(), 3);
  EXPECT_EQ(part.samples[2].key_hash, hash_key("3"));
  EXPECT_TRUE(torch::equal(part.latents_nchw, batch.latents_nchw.narrow(0, 1, 3)));
}

TEST(diffusion_objective, bad_dropout_is_refused) {
  EXPECT_EQ((DiffusionObjectiveOptions{.caption_drop = 1.5}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((DiffusionObjectiveOptions{.caption_drop = std::nan("")}).validate().code(), StatusCode::kInvalidArgument);
}

PictureBatch pictures(int count) {
  std::vector<SampleCoordinates> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back({.epoch = 0, .key_hash = hash_key(std::to_string(i))});
  }
  PictureBatch batch{.coordinates_n2 = coordinates_of(samples), .images_nchw = {}};
  batch.images_nchw = torch::linspace(-1.0, 1.0, count * 3 * 8 * 8).view({count, 3, 8, 8});
  return batch;
}

// Posterior N(mean of the picture, e^logvar); the decoder repeats the latent as a flat picture.
AutoencoderNetwork flat_autoencoder(double logvar) {
  return {.encode =
              [logvar](const torch::Tensor& images) {
                const torch::Tensor mean = images.mean({1, 2, 3}, true).expand({-1, 4, 2, 2});
                return std::pair(mean, torch::full_like(mean, logvar));
              },
          .decode =
              [](const torch::Tensor& latents) {
                return latents.mean({1, 2, 3}, true).expand({-1, 3, 8, 8});
              }};
}

TEST(autoencoder_objective, adds_l1_mse_log_mse_and_kl_with_their_weights) {
  const PictureBatch batch = pictures(3);
  const double logvar = -60.0;  // Practically no noise.
  const torch::Tensor mean = batch.images_nchw.mean({1, 2, 3});
  const torch::Tensor error = batch.images_nchw - mean.view({-1, 1, 1, 1});
  const torch::Tensor kl = 0.5 * 16 * (mean.square() + std::exp(logvar) - 1.0 - logvar);
  const torch::Tensor want = 2.0 * error.abs().mean({1, 2, 3}) + 3.0 * error.square().mean({1, 2, 3}) +
                             0.5 * (error.square().mean({1, 2, 3}) + 1e-4).log() + 0.25 * kl;
  const AutoencoderObjective objective_of_test({.l1_weight = 2.0, .mse_weight = 3.0, .log_mse_weight = 0.5, .kl_weight = 0.25});
  EXPECT_TRUE(is_near(objective_of_test.losses(flat_autoencoder(logvar), batch), want, 1e-5 * largest(want)));
}

TEST(autoencoder_objective, draws_the_posterior_of_each_key) {
  const AutoencoderObjective objective_of_test({.seed = 9, .l1_weight = 0.0, .mse_weight = 1.0, .kl_weight = 0.0});
  AutoencoderNetwork network = flat_autoencoder(0.0);
  torch::Tensor seen;
  const auto decode = network.decode;
  network.decode = [&](const torch::Tensor& latents) {
    seen = latents;
    return decode(latents);
  };
  const PictureBatch batch = pictures(2);
  (void)objective_of_test.losses(network, batch);
  const CounterRandom noise(9, Purpose::kPosterior, 0, hash_key("1"));
  const float mean = batch.images_nchw[1].mean().item<float>();
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(is_near(seen[1].flatten()[i].item<float>(), mean + noise.normal(static_cast<uint64_t>(i)),
                        8 * std::numeric_limits<float>::epsilon()));
  }
}

TEST(autoencoder_objective, bad_weights_are_refused) {
  EXPECT_EQ((AutoencoderObjectiveOptions{.l1_weight = -1.0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((AutoencoderObjectiveOptions{.l1_weight = 0.0, .mse_weight = 0.0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((AutoencoderObjectiveOptions{.l1_weight = 0.0}).validate().is_ok());
}

}  // namespace
}  // namespace darkroom
