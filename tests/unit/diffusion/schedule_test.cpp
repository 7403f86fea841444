#include "darkroom/diffusion/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "golden_file.h"
#include "support/error_bound.h"
#include "support/reference_spread.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

using nlohmann::json;

NoiseSchedule sd2_schedule(PredictionType type = PredictionType::kEpsilon) {
  NoiseScheduleConfig config;
  config.prediction_type = type;
  return NoiseSchedule(config);
}

StatusCode from_json_code(const json& config) { return NoiseScheduleConfig::from_json(config).status().code(); }

TEST(noise_schedule, has_the_published_anchors) {
  const NoiseSchedule schedule = sd2_schedule();
  EXPECT_FLOAT_EQ(schedule.alpha_cumprod(0), 0.99915F);
  EXPECT_TRUE(is_near(schedule.alpha_cumprod(500), 0.2763327, 5e-7));
  EXPECT_TRUE(is_near(schedule.alpha_cumprod(999), 0.00466010, 5e-8));
}

TEST(noise_schedule, equals_diffusers_with_and_without_keys) {
  const json goldens = read_diffusion_goldens()["schedules"], spreads = read_spread("diffusion")["schedules"];
  for (size_t number = 0; number < goldens.size(); ++number) {
    const json &golden = goldens[number], &spread = spreads.at(number);
    const auto config = NoiseScheduleConfig::from_json(golden["config"]);
    ASSERT_TRUE(config.is_ok()) << config.status().to_string();
    NoiseScheduleConfig velocity = *config;
    velocity.prediction_type = PredictionType::kVelocity;
    const torch::Tensor clean = golden_start();
    const torch::Tensor noise = clean.flip({0}) * 2 - 1;
    const torch::Tensor timesteps = torch::tensor({0, 1, 500, 999}, torch::kInt64);
    const std::vector<std::pair<std::string, torch::Tensor>> got = {{"alphas_cumprod", NoiseSchedule(*config).alphas_cumprod()},
                                                                    {"noisy", NoiseSchedule(*config).add_noise(clean, noise, timesteps)},
                                                                    {"velocity", NoiseSchedule(velocity).target(clean, noise, timesteps)}};
    for (const auto& [name, tensor] : got) {
      // A few roundings of the largest value, 1, and what diffusers itself makes of another vector width: linspace, and with it a
      // product of a thousand factors.
      const double bound = accumulation_tolerance<float>(2, 1.0) + kSpreadSafety * spread.value(name, 0.0);
      for (size_t i = 0; i < golden[name].size(); ++i) {
        EXPECT_TRUE(is_near(tensor.flatten()[static_cast<int64_t>(i) * 97].item<double>(), golden[name][i], bound)) << name << " " << i;
      }
    }
  }
}

TEST(noise_schedule, zero_terminal_snr_ends_at_zero_and_keeps_the_start) {
  NoiseScheduleConfig config;
  config.zero_terminal_snr = true;
  const NoiseSchedule rescaled(config);
  EXPECT_EQ(rescaled.alpha_cumprod(999), 0.0F);
  EXPECT_FLOAT_EQ(rescaled.alpha_cumprod(0), sd2_schedule().alpha_cumprod(0));
  EXPECT_LT(rescaled.alpha_cumprod(500), sd2_schedule().alpha_cumprod(500));
}

TEST(noise_schedule, target_is_the_noise_for_epsilon) {
  const torch::Tensor clean = torch::zeros({2, 1, 2, 2});
  const torch::Tensor noise = torch::ones({2, 1, 2, 2});
  EXPECT_TRUE(torch::equal(sd2_schedule().target(clean, noise, torch::tensor({3, 4}, torch::kInt64)), noise));
}

TEST(noise_schedule, a_perfect_prediction_gives_back_clean_and_noise) {
  const torch::Tensor clean = golden_start();
  const torch::Tensor noise = clean.flip({1}) * 3 - 1;
  for (const PredictionType type : {PredictionType::kEpsilon, PredictionType::kVelocity, PredictionType::kClean}) {
    const NoiseSchedule schedule = sd2_schedule(type);
    const torch::Tensor timesteps = torch::full({4}, 400, torch::kInt64);
    const torch::Tensor noisy = schedule.add_noise(clean, noise, timesteps);
    const Prediction split = split_prediction(type, noisy, schedule.target(clean, noise, timesteps), schedule.alpha_cumprod(400));
    const double bound = 16 * std::numeric_limits<float>::epsilon() * 3 / std::sqrt(schedule.alpha_cumprod(400));
    EXPECT_TRUE(is_near(split.clean, clean, bound));
    EXPECT_TRUE(is_near(split.noise, noise, bound));
  }
}

TEST(noise_schedule, a_timestep_outside_the_table_is_a_bug) {
  EXPECT_THROW((void)sd2_schedule().alpha_cumprod(1000), CheckFailure);
  EXPECT_THROW((void)sd2_schedule().alpha_cumprod(-1), CheckFailure);
}

TEST(noise_schedule_config, missing_keys_mean_the_defaults_of_diffusers) {
  const auto config = NoiseScheduleConfig::from_json(json::object());
  ASSERT_TRUE(config.is_ok());
  EXPECT_EQ(config->num_timesteps, 1000);
  EXPECT_EQ(config->beta_start, 0.0001);
  EXPECT_EQ(config->beta_end, 0.02);
  EXPECT_EQ(config->beta_schedule, BetaSchedule::kLinear);
  EXPECT_EQ(config->prediction_type, PredictionType::kEpsilon);
}

TEST(noise_schedule_config, reads_v_prediction_and_ignores_null_betas) {
  const auto config = NoiseScheduleConfig::from_json({{"prediction_type", "v_prediction"}, {"trained_betas", nullptr}});
  ASSERT_TRUE(config.is_ok());
  EXPECT_EQ(config->prediction_type, PredictionType::kVelocity);
  EXPECT_EQ(prediction_type_name(config->prediction_type), "v_prediction");
}

TEST(noise_schedule_config, refuses_what_it_cannot_compute) {
  EXPECT_EQ(from_json_code({{"trained_betas", {0.1, 0.2}}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"beta_schedule", "squaredcos_cap_v2"}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"prediction_type", "flow"}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"rescale_betas_zero_snr", "yes"}}), StatusCode::kFailedPrecondition);
}

TEST(noise_schedule_config, refuses_wrong_types_and_ranges) {
  EXPECT_EQ(from_json_code(json::array()), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"beta_start", "small"}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"num_train_timesteps", 0}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"beta_start", 0.0}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"beta_start", 0.5}, {"beta_end", 0.1}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(from_json_code({{"beta_end", 1.0}}), StatusCode::kFailedPrecondition);
}

TEST(noise_schedule_config, a_wrong_value_is_named_in_the_message) {
  const auto config = NoiseScheduleConfig::from_json({{"beta_schedule", "wavy"}});
  EXPECT_NE(config.status().message().find("wavy"), std::string::npos) << config.status().to_string();
}

TEST(noise_schedule, has_up_to_a_million_timesteps) {
  NoiseScheduleConfig config;
  config.num_timesteps = 1'000'000;
  EXPECT_TRUE(config.validate().is_ok());
  config.num_timesteps = 1'000'001;
  EXPECT_EQ(config.validate().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
