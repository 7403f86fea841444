#include "darkroom/diffusion/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "golden_runs.h"
#include "support/error_bound.h"
#include "support/reference_spread.h"

namespace darkroom {
namespace {

using nlohmann::json;

// The published sums of diffusers' tests/schedulers, with those tests' own tolerance.
TEST(ddim, reaches_the_published_sums) {
  const json linear = {{"beta_schedule", "linear"}, {"beta_start", 0.0001}, {"beta_end", 0.02}, {"clip_sample", true}};
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 10), linear)), 172.0067, 1e-2));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 10), with(linear, {{"prediction_type", "v_prediction"}}))), 52.5302, 1e-2));
  const json start = with(linear, {{"beta_start", 0.01}});
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 10), with(start, {{"set_alpha_to_one", true}}))), 149.8295, 1e-2));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 10), with(start, {{"set_alpha_to_one", false}}))), 149.0784, 1e-2));
}

TEST(pndm, reaches_the_published_sums_with_runge_kutta_start) {
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("pndm", 10), json::object())), 198.1318, 1e-2));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("pndm", 10), {{"prediction_type", "v_prediction"}})), 67.3986, 1e-2));
}

// Own float64 derivation with the real settings (shared reference, section 6).
TEST(samplers, reach_the_sd2_sums_derived_in_double) {
  const json velocity = with(kSd2, {{"prediction_type", "v_prediction"}});
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 50), kSd2)), 197.978972, 197.978972e-5));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("ddim", 50), velocity)), 85.323878, 85.323878e-5));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("pndm", 50), kSd2)), 203.499226, 203.499226e-5));
  EXPECT_TRUE(is_near(sum_abs(golden_run(spec("pndm", 50), velocity)), 88.499390, 88.499390e-5));
}

// Whole timesteps are equal. Fractions come from float32 logarithms up to 8.4 (zero terminal SNR), which NumPy and the C library round
// differently by up to 4 ulp, where a timestep is at least 0.003 of a logarithm.
void expect_timesteps(const std::vector<double>& got, const std::vector<double>& want, double spread) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double fraction_bound = 4 * std::numeric_limits<float>::epsilon() * 8.4 / 0.003 + kSpreadSafety * spread;
    const double bound = want[i] == std::floor(want[i]) ? 0.0 : fraction_bound;
    EXPECT_TRUE(is_near(got[i], want[i], bound)) << i;
  }
}

// Values within 1e-5 of the largest on the way (docs/diffusion.md), the sum of their sizes within 1e-5 of itself, and room for what
// diffusers itself makes of the run on another processor.
TEST(samplers, equal_recorded_runs_of_diffusers) {
  const json goldens = read_diffusion_goldens(), spreads = read_spread("diffusion")["runs"];
  ASSERT_EQ(goldens["runs"].size(), 263U);
  for (size_t run = 0; run < goldens["runs"].size(); ++run) {
    const json &golden = goldens["runs"][run], &spread = spreads.at(run);
    SCOPED_TRACE(golden["sampler"].dump() + golden["num_steps"].dump() + golden["config"].dump());
    const SamplerSpec asked = spec(golden["sampler"], golden["num_steps"], golden["eta"]);
    expect_timesteps(make_sampler(asked, scheduler(golden["config"])).value()->timesteps(), golden["timesteps"],
                     spread.value("timesteps", 0.0));
    const torch::Tensor got = golden_run(asked, golden["config"]);
    const double sum = golden["sum_abs"], sum_bound = 1e-5 * sum + kSpreadSafety * spread.value("sum_abs", 0.0);
    EXPECT_TRUE(is_near(sum_abs(got), sum, sum_bound));
    double largest_value = 0;
    for (const double value : golden["values"]) {
      largest_value = std::max(largest_value, std::abs(value));
    }
    const double bound = 1e-5 * largest_value + kSpreadSafety * spread.value("values", 0.0);
    for (size_t i = 0; i < golden["values"].size(); ++i) {
      EXPECT_TRUE(is_near(got.flatten()[static_cast<int64_t>(i) * 97].item<double>(), golden["values"][i], bound)) << i;
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

TEST(timesteps, trailing_has_one_too_many_where_diffusers_has) {
  const json goldens = read_diffusion_goldens();
  for (const auto& [name, want] : goldens["trailing_61"].items()) {
    EXPECT_EQ(timesteps(name, 61, {{"timestep_spacing", "trailing"}}), want.get<std::vector<double>>()) << name;
  }
}

TEST(timesteps, every_number_of_steps_stays_inside_the_schedule) {
  for (const char* spacing : {"leading", "linspace", "trailing"}) {
    for (const int num_steps : {1, 2, 3, 60, 500, 997}) {
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

TEST(make_sampler, an_unknown_name_is_answered_with_the_names) {
  const Status status = make_sampler(spec("magic", 10), scheduler(kSd2)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("dpmpp_2m_karras, unipc, lcm"), std::string::npos) << status.to_string();
}

TEST(make_sampler, an_empty_name_means_the_class_of_the_config) {
  const std::vector<std::pair<std::string, std::string>> names = {{"PNDMScheduler", "pndm"},
                                                                  {"DDIMScheduler", "ddim"},
                                                                  {"EulerDiscreteScheduler", "euler"},
                                                                  {"EulerAncestralDiscreteScheduler", "euler_a"},
                                                                  {"DPMSolverMultistepScheduler", "dpmpp_2m"},
                                                                  {"UniPCMultistepScheduler", "unipc"},
                                                                  {"LCMScheduler", "lcm"}};
  for (const auto& [class_name, name] : names) {
    EXPECT_EQ(resolve_sampler_name({}, scheduler({{"_class_name", class_name}})).value(), name);
  }
  const json karras = {{"_class_name", "DPMSolverMultistepScheduler"}, {"use_karras_sigmas", true}};
  EXPECT_EQ(resolve_sampler_name({}, scheduler(karras)).value(), "dpmpp_2m_karras");
  EXPECT_EQ(resolve_sampler_name({}, scheduler({{"_class_name", "HeunDiscreteScheduler"}})).status().code(), StatusCode::kInvalidArgument);
}

TEST(scheduler_config, refuses_unknown_spacing_and_thresholding) {
  EXPECT_EQ(SchedulerConfig::from_json({{"timestep_spacing", "wide"}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"thresholding", true}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"clip_sample", "yes"}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"final_sigmas_type", "least"}}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SchedulerConfig::from_json({{"use_karras_sigmas", 1}}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(run_sampler, timesteps_are_whole_numbers_unless_one_is_a_fraction) {
  const auto whole = make_sampler(spec("ddim", 5), scheduler(kSd2)).value();
  const torch::Tensor timesteps = upload_timesteps(*whole, torch::kCPU);
  EXPECT_EQ(timesteps.scalar_type(), torch::kInt64);
  EXPECT_EQ(timesteps[0].item<double>(), whole->timesteps()[0]);
  const auto fractions = make_sampler(spec("euler", 7), scheduler(with(kSd2, {{"timestep_spacing", "linspace"}}))).value();
  const torch::Tensor spread = upload_timesteps(*fractions, torch::kCPU);
  EXPECT_EQ(spread.scalar_type(), torch::kFloat32);
  for (int64_t i = 0; i < spread.numel(); ++i) {
    EXPECT_EQ(spread[i].item<double>(), fractions->timesteps()[static_cast<size_t>(i)]);
  }
}

TEST(recorded_denoiser, gives_each_call_an_output_of_its_own) {
  int num_calls = 0;
  const torch::Tensor kept = torch::empty({1, 2});
  const Denoiser denoiser = recorded_denoiser(
      [&](const torch::Tensor& noisy, const torch::Tensor& timesteps_n) {
        ++num_calls;
        kept.copy_(noisy * timesteps_n.to(torch::kFloat32));
        return kept;
      },
      torch::kCPU);
  std::vector<torch::Tensor> outputs;
  for (int64_t t = 1; t <= 5; ++t) {
    outputs.push_back(denoiser(torch::full({1, 2}, 10.0), torch::full({1}, t, torch::kInt64)));
  }
  EXPECT_EQ(num_calls, 5);
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(torch::equal(outputs[i], torch::full({1, 2}, 10.0 * static_cast<double>(i + 1)))) << i;
  }
}

TEST(run_sampler, stops_when_asked) {
  const auto sampler = make_sampler(spec("ddim", 10), scheduler(kSd2));
  int asked = 0;
  const torch::Tensor start = golden_start() * (*sampler)->initial_sigma();
  const auto result = run_sampler_from(**sampler, 0, golden_network, start, {}, [&] { return ++asked == 3; });
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
}

TEST(samplers, calls_out_of_order_are_a_bug) {
  for (const char* name : {"pndm", "dpmpp_2m", "unipc"}) {
    const auto sampler = make_sampler(spec(name, 10), scheduler(kSd2)).value();
    (void)sampler->step(3, golden_start(), golden_start(), {});  // The first call may be any.
    EXPECT_THROW((void)sampler->step(3, golden_start(), golden_start(), {}), CheckFailure) << name;
    EXPECT_THROW((void)sampler->step(5, golden_start(), golden_start(), {}), CheckFailure) << name;
  }
}

TEST(samplers, a_call_that_threw_may_be_made_again) {
  const torch::Tensor unfit = torch::zeros({1, 3, 5, 7});
  for (const char* name : {"pndm", "dpmpp_2m", "unipc", "ddim", "euler", "lcm"}) {
    for (const bool runge_kutta : {false, true}) {
      const SchedulerConfig config = scheduler(with(kSd2, {{"skip_prk_steps", !runge_kutta}}));
      const auto undisturbed = make_sampler(spec(name, 16), config).value(), disturbed = make_sampler(spec(name, 16), config).value();
      const NoiseSource noise = [] { return golden_start(); };
      torch::Tensor want = golden_start(), got = golden_start();
      for (size_t index = 0; index < undisturbed->timesteps().size(); ++index) {
        const torch::Tensor output = golden_start() / static_cast<double>(index + 2);
        EXPECT_ANY_THROW((void)disturbed->step(index, unfit, got, noise)) << name;
        want = undisturbed->step(index, output, want, noise);
        got = disturbed->step(index, output, got, noise);
        ASSERT_TRUE(torch::equal(got, want)) << name << ", call " << index;
      }
    }
  }
}

TEST(ddim, begins_where_no_signal_is_left_with_all_noise_for_any_steps) {
  const json changes = {{"rescale_betas_zero_snr", true}, {"prediction_type", "v_prediction"}, {"timestep_spacing", "trailing"}};
  for (int num_steps = 1; num_steps <= 60; ++num_steps) {
    const auto sampler = make_sampler(spec("ddim", num_steps, 1.0), scheduler(with(kSd2, changes))).value();
    const torch::Tensor next = sampler->step(0, golden_start(), golden_start(), [] { return golden_start(); });
    EXPECT_TRUE(next.isfinite().all().item<bool>()) << num_steps;
  }
}

TEST(samplers, say_whether_they_ask_for_noise) {
  const auto asks = [](const char* name, int num_steps, double eta) {
    return make_sampler(spec(name, num_steps, eta), scheduler(kSd2)).value()->is_stochastic();
  };
  EXPECT_FALSE(asks("ddim", 5, 0.0));
  EXPECT_TRUE(asks("ddim", 5, 0.1));
  EXPECT_TRUE(asks("euler_a", 5, 0.0));
  EXPECT_TRUE(asks("lcm", 5, 0.0));
  EXPECT_FALSE(asks("lcm", 1, 0.0));
  for (const char* name : {"pndm", "euler", "dpmpp_2m", "dpmpp_2m_karras", "unipc"}) {
    EXPECT_FALSE(asks(name, 5, 0.5)) << name;
  }
}

}  // namespace
}  // namespace darkroom
