#include <gtest/gtest.h>

#include <cmath>

#include "golden_runs.h"
#include "support/error_bound.h"

namespace darkroom {
namespace {

using nlohmann::json;

const json kVelocity = {{"prediction_type", "v_prediction"}};
const json kKarras = {{"use_karras_sigmas", true}};
// The config of diffusers' tests of the multistep solvers.
const json kSolverTest = {{"beta_schedule", "linear"}, {"beta_start", 0.0001}, {"beta_end", 0.02}, {"final_sigmas_type", "sigma_min"}};

double mean_abs(const torch::Tensor& tensor) { return sum_abs(tensor) / static_cast<double>(tensor.numel()); }

// diffusers' Euler tests hand the scaled input to the step, instead of the latents themselves.
double euler_test_sum(const std::string& name, const json& changes) {
  const json config =
      with({{"num_train_timesteps", 1100}, {"beta_schedule", "linear"}, {"beta_start", 0.0001}, {"beta_end", 0.02}}, changes);
  const auto sampler = make_sampler(spec(name, 10), scheduler(config)).value();
  const NoiseSource noise = golden_noise();
  torch::Tensor latents = golden_start() * sampler->initial_sigma();
  for (size_t call = 0; call < 10; ++call) {
    latents = sampler->scale_input(call, latents);
    const torch::Tensor output = golden_network(latents, torch::full({1}, sampler->timesteps()[call], torch::kFloat32));
    latents = sampler->step(call, output, latents, noise);
  }
  return sum_abs(latents);
}

// The published sums of diffusers' tests/schedulers, with those tests' own tolerances.
TEST(euler, reaches_the_published_sums) {
  EXPECT_TRUE(is_near(euler_test_sum("euler", json::object()), 10.0807, 1e-2));
  EXPECT_TRUE(is_near(euler_test_sum("euler", kKarras), 124.52299499511719, 1e-2));
}

TEST(euler_a, reaches_the_published_sums) {
  EXPECT_TRUE(is_near(euler_test_sum("euler_a", json::object()), 152.3192, 1e-2));
  EXPECT_TRUE(is_near(euler_test_sum("euler_a", kVelocity), 108.4439, 1e-2));
}

TEST(dpmpp_2m, reaches_the_published_means) {
  const json config = with(kSolverTest, {{"lower_order_final", false}});
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("dpmpp_2m", 10), config)), 0.3301, 1e-3));
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("dpmpp_2m", 10), with(config, kVelocity))), 0.2251, 1e-3));
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("dpmpp_2m_karras", 10), with(config, kVelocity))), 0.2096, 1e-3));
}

TEST(unipc, reaches_the_published_means) {
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("unipc", 10), kSolverTest)), 0.2464, 1e-3));
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("unipc", 10), with(kSolverTest, kVelocity))), 0.1014, 1e-3));
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("unipc", 10), with(kSolverTest, kKarras))), 0.2925, 1e-3));
  EXPECT_TRUE(is_near(mean_abs(golden_run(spec("unipc", 10), with(with(kSolverTest, kKarras), kVelocity))), 0.1966, 1e-3));
}

TEST(lcm, reaches_the_published_sums) {
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("lcm", 1), json::object())), 18.7097, 1e-2));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("lcm", 10), json::object())), 197.7616, 1e-2));
}

// Own float64 derivation with the real settings (shared reference, section 6).
TEST(sigma_samplers, reach_the_sd2_sums_derived_in_double) {
  const auto expect = [](const char* name, const json& changes, double epsilon, double velocity) {
    SCOPED_TRACE(name + changes.dump());
    EXPECT_TRUE(is_near(sum_abs(golden_run(spec(name, 20), with(kSd2, changes))), epsilon, 1e-5 * epsilon));
    EXPECT_TRUE(is_near(sum_abs(golden_run(spec(name, 20), with(with(kSd2, changes), kVelocity))), velocity, 1e-5 * velocity));
  };
  expect("euler", json::object(), 189.605317, 75.832889);
  expect("euler", {{"timestep_spacing", "leading"}}, 189.347448, 78.005610);
  expect("dpmpp_2m", json::object(), 190.498532, 82.792467);
  expect("dpmpp_2m_karras", json::object(), 205.588715, 94.584479);
  expect("unipc", json::object(), 190.358889, 82.218030);
}

TEST(sigma_samplers, have_the_published_timesteps) {
  const std::vector<double> solver = timesteps("dpmpp_2m", 20);
  EXPECT_EQ(std::vector<double>(solver.begin(), solver.begin() + 4), (std::vector<double>{999, 949, 899, 849}));
  EXPECT_EQ(std::vector<double>(solver.end() - 3, solver.end()), (std::vector<double>{150, 100, 50}));
  EXPECT_EQ(timesteps("unipc", 20), solver);
  EXPECT_EQ(timesteps("dpmpp_2m_karras", 20),
            (std::vector<double>{999, 962, 921, 876, 827, 772, 710, 640, 561, 474, 380, 285, 197, 123, 69, 35, 15, 6, 2, 0}));
  const std::vector<double> euler = timesteps("euler", 20);
  EXPECT_TRUE(is_near(euler[1], 946.421, 1e-3));
  EXPECT_EQ(euler.back(), 0);
  EXPECT_EQ(timesteps("lcm", 4), (std::vector<double>{999, 759, 499, 259}));
  EXPECT_EQ(timesteps("lcm", 8), (std::vector<double>{999, 879, 759, 639, 499, 379, 259, 139}));
}

TEST(sigma_samplers, a_schedule_of_one_timestep_is_at_it) {
  for (const double beta : {0.00085, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01}) {
    const json one = with(kSd2, {{"num_train_timesteps", 1}, {"use_karras_sigmas", true}, {"beta_start", beta}});
    for (const char* name : {"euler", "dpmpp_2m_karras"}) {
      const auto sampler = make_sampler(spec(name, 1), scheduler(one));
      ASSERT_TRUE(sampler.is_ok()) << name << ": " << sampler.status().to_string();
      EXPECT_EQ((*sampler)->timesteps(), std::vector<double>{0}) << name << " " << beta;
    }
  }
}

TEST(euler, starts_at_the_largest_sigma) {
  EXPECT_TRUE(is_near(make_sampler(spec("euler", 20), scheduler(kSd2)).value()->initial_sigma(), 14.61464, 1e-4));
  // Leading: variance sigma^2 + 1, at the first timestep, 951.
  const double alpha = NoiseSchedule(NoiseScheduleConfig{}).alpha_cumprod(951);
  const double leading = make_sampler(spec("euler", 20), scheduler(with(kSd2, {{"timestep_spacing", "leading"}}))).value()->initial_sigma();
  EXPECT_TRUE(is_near(leading, 1.0 / std::sqrt(alpha), 1e-5));
}

// Image to image. Not pndm: its second call repeats the first step wherever a run starts, as in diffusers.
TEST(samplers, a_start_in_the_middle_is_as_noisy_as_the_run_is_there) {
  for (const char* name : {"ddim", "euler", "dpmpp_2m", "dpmpp_2m_karras", "unipc"}) {
    const auto sampler = make_sampler(spec(name, 10), scheduler(kSd2)).value();
    const torch::Tensor clean = golden_start();
    const torch::Tensor noise = clean.flip({0}) - 0.5;
    const torch::Tensor start = sampler->add_noise(4, clean, noise);
    const Denoiser knows_the_noise = [&](const torch::Tensor&, const torch::Tensor&) { return noise; };
    const torch::Tensor end = run_sampler_from(*sampler, 4, knows_the_noise, start, {}).value();
    // Where the last step ends at abar_0, that much of the noise is left.
    EXPECT_LE((end - clean).abs().max().item<double>(), 0.03) << name;
    EXPECT_GT((start - clean).abs().max().item<double>(), 0.3) << name;
  }
}

TEST(make_sampler, refuses_settings_that_are_not_built) {
  const auto code = [](const char* name, const json& changes) {
    return make_sampler(spec(name, 10), scheduler(with(kSd2, changes))).status().code();
  };
  const std::vector<std::pair<const char*, json>> refused = {
      {"euler", {{"use_beta_sigmas", true}}},     {"euler", {{"timestep_type", "continuous"}}},
      {"dpmpp_2m", {{"solver_order", 3}}},        {"dpmpp_2m", {{"algorithm_type", "sde-dpmsolver++"}}},
      {"dpmpp_2m", {{"solver_type", "heun"}}},    {"dpmpp_2m_karras", {{"use_lu_lambdas", true}}},
      {"unipc", {{"solver_type", "bh1"}}},        {"unipc", {{"predict_x0", false}}},
      {"unipc", {{"lower_order_final", false}}},  {"unipc", {{"disable_corrector", {0}}}},
      {"lcm", {{"original_inference_steps", 0}}}, {"lcm", {{"original_inference_steps", 1001}}}};
  for (const auto& [name, changes] : refused) {
    EXPECT_EQ(code(name, changes), StatusCode::kFailedPrecondition) << name << changes.dump();
  }
  // Another sampler's settings, and those that mean the default, do no harm.
  EXPECT_EQ(code("euler", {{"solver_order", 3}}), StatusCode::kOk);
  EXPECT_EQ(code("dpmpp_2m", {{"algorithm_type", "deis"}, {"lambda_min_clipped", nullptr}}), StatusCode::kOk);
}

// Every key that save_config of diffusers 0.42.1 writes, beside those that all schedulers have.
TEST(make_sampler, takes_configs_as_diffusers_writes_them) {
  const json common = {{"beta_end", 0.02},
                       {"beta_schedule", "linear"},
                       {"beta_start", 0.0001},
                       {"num_train_timesteps", 1000},
                       {"prediction_type", "epsilon"},
                       {"rescale_betas_zero_snr", false},
                       {"steps_offset", 0},
                       {"trained_betas", nullptr}};
  const json solver = {{"dynamic_thresholding_ratio", 0.995},
                       {"final_sigmas_type", "zero"},
                       {"flow_shift", 1.0},
                       {"lower_order_final", true},
                       {"sample_max_value", 1.0},
                       {"solver_order", 2},
                       {"thresholding", false},
                       {"time_shift_type", "exponential"},
                       {"timestep_spacing", "linspace"},
                       {"use_beta_sigmas", false},
                       {"use_dynamic_shifting", false},
                       {"use_exponential_sigmas", false},
                       {"use_flow_sigmas", false},
                       {"use_karras_sigmas", false}};
  const std::vector<std::pair<const char*, json>> written = {
      {"DPMSolverMultistepScheduler", with(solver, {{"algorithm_type", "dpmsolver++"},
                                                    {"euler_at_final", false},
                                                    {"lambda_min_clipped", nullptr},
                                                    {"solver_type", "midpoint"},
                                                    {"use_lu_lambdas", false},
                                                    {"variance_type", nullptr}})},
      {"UniPCMultistepScheduler", with(solver, {{"disable_corrector", json::array()},
                                                {"predict_x0", true},
                                                {"shift_terminal", nullptr},
                                                {"sigma_max", nullptr},
                                                {"sigma_min", nullptr},
                                                {"solver_p", nullptr},
                                                {"solver_type", "bh2"}})},
      {"EulerDiscreteScheduler",
       {{"final_sigmas_type", "zero"},
        {"interpolation_type", "linear"},
        {"sigma_max", nullptr},
        {"sigma_min", nullptr},
        {"timestep_spacing", "linspace"},
        {"timestep_type", "discrete"},
        {"use_beta_sigmas", false},
        {"use_exponential_sigmas", false},
        {"use_karras_sigmas", false}}},
      {"LCMScheduler",
       {{"clip_sample", false},
        {"clip_sample_range", 1.0},
        {"dynamic_thresholding_ratio", 0.995},
        {"original_inference_steps", 50},
        {"sample_max_value", 1.0},
        {"set_alpha_to_one", true},
        {"thresholding", false},
        {"timestep_scaling", 10.0},
        {"timestep_spacing", "leading"}}}};
  for (const auto& [class_name, keys] : written) {
    const json config = with(with(common, keys), {{"_class_name", class_name}, {"_diffusers_version", "0.42.1"}});
    EXPECT_TRUE(make_sampler(spec("", 10), scheduler(config)).is_ok()) << class_name;
  }
}

TEST(make_sampler, refuses_schedules_that_a_sampler_cannot_run) {
  const auto code = [](const char* name, int num_steps, const json& changes) {
    return make_sampler(spec(name, num_steps), scheduler(with(kSd2, changes))).status().code();
  };
  const json zero_snr = {{"rescale_betas_zero_snr", true}};
  EXPECT_EQ(code("pndm", 10, zero_snr), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("lcm", 4, zero_snr), StatusCode::kInvalidArgument);  // epsilon at abar = 0.
  EXPECT_EQ(code("ddim", 10, with(zero_snr, {{"timestep_spacing", "trailing"}})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("ddim", 10, with(with(zero_snr, kVelocity), {{"timestep_spacing", "trailing"}})), StatusCode::kOk);
  EXPECT_EQ(code("pndm", 10, {{"prediction_type", "sample"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("euler_a", 10, {{"prediction_type", "sample"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("lcm", 51, json::object()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("dpmpp_2m", 1000, json::object()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("unipc", 1000, {{"timestep_spacing", "leading"}}), StatusCode::kInvalidArgument);
}

TEST(lcm, missing_betas_mean_stable_diffusions) {
  const json only_type = {{"prediction_type", "epsilon"}};
  const json named = {{"beta_start", 0.00085}, {"beta_end", 0.012}, {"beta_schedule", "scaled_linear"}};
  EXPECT_TRUE(torch::equal(golden_run(spec("lcm", 4), only_type), golden_run(spec("lcm", 4), named)));
  EXPECT_FALSE(torch::equal(golden_run(spec("lcm", 4), only_type), golden_run(spec("lcm", 4), {{"beta_start", 0.001}})));
}

}  // namespace
}  // namespace darkroom
