#include "darkroom/diffusion/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/diffusion/guidance.h"
#include "golden_file.h"

namespace darkroom {
namespace {

using nlohmann::json;

const json kSd2 = {{"_class_name", "PNDMScheduler"},
                   {"num_train_timesteps", 1000},
                   {"beta_start", 0.00085},
                   {"beta_end", 0.012},
                   {"set_alpha_to_one", false},
                   {"beta_schedule", "scaled_linear"},
                   {"clip_sample", false},
                   {"skip_prk_steps", true},
                   {"steps_offset", 1}};

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

SchedulerConfig scheduler(const json& config) { return SchedulerConfig::from_json(config).value(); }

SamplerSpec spec(const std::string& name, int num_steps, double eta = 0.0) { return {.name = name, .num_steps = num_steps, .eta = eta}; }

// diffusers' own scheduler tests, on torch's CPU generator with seed 0 where noise is asked for.
torch::Tensor golden_run(const SamplerSpec& spec, const json& config) {
  const auto sampler = make_sampler(spec, scheduler(config));
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(0);
  const NoiseSource noise = [&] { return torch::randn({4, 3, 8, 8}, generator); };
  return run_sampler(**sampler, golden_network, golden_start(), noise).value();
}

double sum_abs(const torch::Tensor& tensor) { return tensor.to(torch::kFloat64).abs().sum().item<double>(); }

std::vector<double> timesteps(const std::string& name, int num_steps, const json& changes = json::object()) {
  return make_sampler(spec(name, num_steps), scheduler(with(kSd2, changes))).value()->timesteps();
}

// The published sums of diffusers' tests/schedulers, with those tests' own tolerance.
TEST(ddim, reaches_the_published_sums) {
  const json linear = {{"beta_schedule", "linear"}, {"beta_start", 0.0001}, {"beta_end", 0.02}, {"clip_sample", true}};
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 10), linear)), 172.0067, 1e-2);
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 10), with(linear, {{"prediction_type", "v_prediction"}}))), 52.5302, 1e-2);
  const json start = with(linear, {{"beta_start", 0.01}});
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 10), with(start, {{"set_alpha_to_one", true}}))), 149.8295, 1e-2);
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 10), with(start, {{"set_alpha_to_one", false}}))), 149.0784, 1e-2);
}

TEST(pndm, reaches_the_published_sums_with_runge_kutta_start) {
  EXPECT_NEAR(sum_abs(golden_run(spec("pndm", 10), json::object())), 198.1318, 1e-2);
  EXPECT_NEAR(sum_abs(golden_run(spec("pndm", 10), {{"prediction_type", "v_prediction"}})), 67.3986, 1e-2);
}

// Own float64 derivation with the real settings (shared reference, section 6).
TEST(samplers, reach_the_sd2_sums_derived_in_double) {
  const json velocity = with(kSd2, {{"prediction_type", "v_prediction"}});
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 50), kSd2)), 197.978972, 197.978972e-5);
  EXPECT_NEAR(sum_abs(golden_run(spec("ddim", 50), velocity)), 85.323878, 85.323878e-5);
  EXPECT_NEAR(sum_abs(golden_run(spec("pndm", 50), kSd2)), 203.499226, 203.499226e-5);
  EXPECT_NEAR(sum_abs(golden_run(spec("pndm", 50), velocity)), 88.499390, 88.499390e-5);
}

TEST(samplers, equal_recorded_runs_of_diffusers) {
  const json goldens = read_diffusion_goldens();
  ASSERT_EQ(goldens["runs"].size(), 58U);
  for (const json& golden : goldens["runs"]) {
    SCOPED_TRACE(golden["sampler"].dump() + golden["num_steps"].dump() + golden["config"].dump());
    const SamplerSpec asked = spec(golden["sampler"], golden["num_steps"], golden["eta"]);
    EXPECT_EQ(make_sampler(asked, scheduler(golden["config"])).value()->timesteps(), golden["timesteps"].get<std::vector<double>>());
    const torch::Tensor got = golden_run(asked, golden["config"]);
    EXPECT_NEAR(sum_abs(got), golden["sum_abs"].get<double>(), 1e-5 * golden["sum_abs"].get<double>());
    const double bound = 1e-5 * got.abs().max().item<double>();
    for (size_t i = 0; i < golden["values"].size(); ++i) {
      EXPECT_NEAR(got.flatten()[static_cast<int64_t>(i) * 97].item<double>(), golden["values"][i].get<double>(), bound) << i;
    }
  }
}

TEST(pndm, calls_the_network_once_more_than_its_steps) {
  const std::vector<double> calls = timesteps("pndm", 50);
  ASSERT_EQ(calls.size(), 51U);
  EXPECT_EQ(std::vector<double>(calls.begin(), calls.begin() + 5), (std::vector<double>{981, 961, 961, 941, 921}));
  EXPECT_EQ(calls.back(), 1);
}

TEST(timesteps, trailing_rounds_half_to_even) {
  const std::vector<double> sixteen = timesteps("ddim", 16, {{"timestep_spacing", "trailing"}});
  EXPECT_EQ(sixteen[3], 811);
}

TEST(timesteps, trailing_never_has_one_too_many) {
  const std::vector<double> calls = timesteps("ddim", 61, {{"timestep_spacing", "trailing"}});
  EXPECT_EQ(calls.size(), 61U);
  EXPECT_GE(calls.back(), 0);
}

TEST(timesteps, every_number_of_steps_stays_inside_the_schedule) {
  for (const char* spacing : {"leading", "linspace", "trailing"}) {
    for (const int num_steps : {1, 2, 3, 61, 499, 500, 999}) {
      const std::vector<double> calls = timesteps("ddim", num_steps, {{"timestep_spacing", spacing}});
      ASSERT_EQ(calls.size(), static_cast<size_t>(num_steps));
      EXPECT_TRUE(std::is_sorted(calls.rbegin(), calls.rend()));
      EXPECT_LE(calls.front(), 999) << spacing;
      EXPECT_GE(calls.back(), 0) << spacing;
    }
  }
}

TEST(make_sampler, refuses_steps_that_leave_the_schedule) {
  const SchedulerConfig config = scheduler(kSd2);
  for (const int num_steps : {0, -1, 1001, 1000}) {  // 1000 with an offset of 1 would need timestep 1000.
    EXPECT_EQ(make_sampler(spec("ddim", num_steps), config).status().code(), StatusCode::kInvalidArgument) << num_steps;
  }
  EXPECT_EQ(make_sampler(spec("pndm", 3), scheduler(json::object())).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(make_sampler(spec("pndm", 1), config).is_ok());
}

TEST(make_sampler, refuses_a_bad_eta) {
  for (const double eta : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(make_sampler(spec("ddim", 10, eta), scheduler(kSd2)).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(make_sampler, says_which_samplers_are_not_built) {
  for (const char* name : {"euler", "euler_a", "dpmpp_2m", "dpmpp_2m_karras", "unipc", "lcm"}) {
    const Status status = make_sampler(spec(name, 10), scheduler(kSd2)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("not built yet"), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(make_sampler(spec("magic", 10), scheduler(kSd2)).status().code(), StatusCode::kInvalidArgument);
}

TEST(make_sampler, an_empty_name_means_the_class_of_the_config) {
  EXPECT_EQ(resolve_sampler_name({}, scheduler(kSd2)).value(), "pndm");
  EXPECT_EQ(resolve_sampler_name({}, scheduler({{"_class_name", "DDIMScheduler"}})).value(), "ddim");
  EXPECT_EQ(resolve_sampler_name({}, scheduler({{"_class_name", "UniPCMultistepScheduler"}})).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(scheduler_config, refuses_unknown_spacing_and_thresholding) {
  EXPECT_EQ(SchedulerConfig::from_json({{"timestep_spacing", "wide"}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"thresholding", true}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"clip_sample", "yes"}}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(run_sampler, stops_when_asked) {
  const auto sampler = make_sampler(spec("ddim", 10), scheduler(kSd2));
  int asked = 0;
  const auto result = run_sampler(**sampler, golden_network, golden_start(), {}, [&] { return ++asked == 3; });
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
}

TEST(pndm, calls_out_of_order_are_a_bug) {
  const auto sampler = make_sampler(spec("pndm", 10), scheduler(kSd2));
  EXPECT_THROW((void)(*sampler)->step(1, golden_start(), golden_start(), {}), CheckFailure);
}

TEST(guidance, mixes_both_branches_in_the_order_negative_positive) {
  const ConditionalDenoiser network = [](const torch::Tensor& noisy, const torch::Tensor& timesteps_n, const torch::Tensor& states) {
    EXPECT_EQ(noisy.size(0), states.size(0));
    EXPECT_EQ(timesteps_n.size(0), states.size(0));
    return noisy * 0 + states.mean({1, 2}).view({-1, 1, 1, 1});
  };
  const torch::Tensor noisy = torch::zeros({3, 1, 2, 2});
  const torch::Tensor steps = torch::full({3}, 5, torch::kInt64);
  const torch::Tensor negative = torch::full({3, 2, 2}, 1.0);
  const torch::Tensor positive = torch::full({3, 2, 2}, 2.0);
  EXPECT_TRUE(torch::equal(guided_denoiser(network, negative, positive, 3.0)(noisy, steps), torch::full({3, 1, 2, 2}, 4.0)));
  EXPECT_TRUE(torch::equal(guided_denoiser(network, {}, positive, 1.0)(noisy, steps), torch::full({3, 1, 2, 2}, 2.0)));
  EXPECT_FALSE(guidance_is_active(1.0));
  EXPECT_TRUE(guidance_is_active(1.0001));
}

}  // namespace
}  // namespace darkroom
