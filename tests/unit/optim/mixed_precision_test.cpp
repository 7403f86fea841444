#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "darkroom/nn/init.h"
#include "darkroom/nn/unet.h"
#include "darkroom/optim/train_step.h"
#include "support/tensor_error.h"
#include "toy_network.h"

namespace darkroom {
namespace {

constexpr double kBFloat16Roundoff = 0x1p-8;  // Half of the distance of 1 to the next number.

UNetConfig small_config() {
  return UNetConfig::from_json(nlohmann::json::parse(R"({
    "sample_size": 8, "block_out_channels": [16, 32], "layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 2,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 12, "use_linear_projection": true})"))
      .value();
}

UNet2DConditionModel small_unet() {
  UNet2DConditionModel unet(small_config());
  initialize_parameters(unet, 3);
  return unet;
}

// A small U-Net that learns 32 fixed samples with fresh noise.
class SmallRun {
 public:
  explicit SmallRun(const FlatParametersOptions& options) : unet_(small_unet()), flat_(*unet_, options) {
    torch::manual_seed(11);
    latents_nchw_ = torch::randn({kSamples, 4, 8, 8});
    states_ntw_ = torch::randn({kSamples, 5, 12});
  }

  double step(int64_t index) {
    const int64_t first = index * kBatch % kSamples;
    DiffusionBatch batch{
        .samples = {}, .latents_nchw = latents_nchw_.narrow(0, first, kBatch), .states_ntw = states_ntw_.narrow(0, first, kBatch)};
    for (int64_t n = first; n < first + kBatch; ++n) {
      batch.samples.push_back({static_cast<uint32_t>(index * kBatch / kSamples), hash_key(std::to_string(n))});
    }
    const auto report = train_step_.run(index, kBatch, [&](int64_t from, int64_t count) {
      const auto network = [&](const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
        return unet_(noisy, timesteps, states);
      };
      return objective_.losses(network, objective_.prepare(batch.slice(from, count)));
    });
    return report.value().loss;
  }
  std::vector<double> steps(int64_t count) {
    std::vector<double> losses;
    for (int64_t index = 0; index < count; ++index) {
      losses.push_back(step(index));
    }
    return losses;
  }
  const FlatParameters& flat() const { return flat_; }

 private:
  static constexpr int64_t kSamples = 32;
  static constexpr int64_t kBatch = 4;

  UNet2DConditionModel unet_;
  FlatParameters flat_;
  AdamW adamw_{flat_, {}};
  Ema ema_{flat_, {}};
  DiffusionObjective objective_{NoiseSchedule({}), {.caption_drop = 0.1}, torch::zeros({5, 12})};
  TrainStep train_step_{flat_, adamw_, &ema_, {.micro_batch = 4, .schedule = {.peak = 1e-3, .warmup_steps = 10}}};
  torch::Tensor latents_nchw_, states_ntw_;
};

double mean(const std::vector<double>& values, size_t first, size_t count) {
  return std::accumulate(values.begin() + static_cast<int64_t>(first), values.begin() + static_cast<int64_t>(first + count), 0.0) /
         static_cast<double>(count);
}

// About 64 roundings lie one after the other on the way through this network, each of relative size 2^-8 and of random sign, so the
// output is off by sqrt(64) of them, and a squared error by twice that share. Over a mean of 50 steps random shares average out.
TEST(mixed_precision, two_hundred_steps_in_bfloat16_follow_those_in_float32) {
  constexpr int64_t kSteps = 200;
  constexpr size_t kWindow = 50;
  const double share = 2 * kBFloat16Roundoff * std::sqrt(64.0);
  const auto wide = SmallRun({}).steps(kSteps);
  const auto narrow = SmallRun({.compute_type = torch::kBFloat16}).steps(kSteps);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_TRUE(is_near(narrow[i], wide[i], share * wide[i])) << i;
  }
  for (size_t first = 0; first < wide.size(); first += kWindow) {
    const double want = mean(wide, first, kWindow);
    EXPECT_TRUE(is_near(mean(narrow, first, kWindow), want, share / std::sqrt(static_cast<double>(kWindow)) * want)) << first;
  }
  EXPECT_LT(mean(narrow, 150, kWindow), 0.95 * mean(narrow, 0, kWindow)) << "nothing was learnt";
}

TEST(mixed_precision, the_compute_copy_is_the_rounded_master_after_every_step) {
  SmallRun run({.compute_type = torch::kBFloat16, .channels_last = true, .alignment = 64});
  for (int64_t index = 0; index < 3; ++index) {
    run.step(index);
    EXPECT_TRUE(torch::equal(run.flat().compute_copy(), run.flat().values().to(torch::kBFloat16))) << index;
  }
  EXPECT_EQ(run.flat().gradients().scalar_type(), torch::kFloat32);
}

// What backward() leaves after four micro-batches, against the float32 sum of the bfloat16 gradients of each.
TEST(mixed_precision, micro_batches_in_bfloat16_add_up_in_float32) {
  constexpr int64_t kBatch = 8, kMicro = 2;
  const DiffusionObjective objective(NoiseSchedule({}), {.caption_drop = 0.0}, {});
  torch::manual_seed(13);
  DiffusionBatch batch{.samples = {}, .latents_nchw = torch::randn({kBatch, 4, 8, 8}), .states_ntw = torch::randn({kBatch, 5, 12})};
  for (int64_t n = 0; n < kBatch; ++n) {
    batch.samples.push_back({0, hash_key(std::to_string(n))});
  }
  for (const int64_t workers : {1, 2}) {
    for (const bool channels_last : {false, true}) {
      UNet2DConditionModel unet = small_unet();
      FlatParameters flat(*unet, {.compute_type = torch::kBFloat16, .channels_last = channels_last, .alignment = channels_last ? 64 : 1});
      const auto losses = [&](int64_t first, int64_t count) {
        const auto network = [&](const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
          return unet(noisy, timesteps, states);
        };
        return objective.losses(network, objective.prepare(batch.slice(first, count)));
      };
      std::vector<torch::Tensor> want(flat.parameters().size()), narrow_sum(flat.parameters().size());
      for (int64_t first = 0; first < kBatch; first += kMicro) {
        const auto gradients = torch::autograd::grad({losses(first, kMicro).sum() / static_cast<double>(kBatch)}, flat.parameters());
        for (size_t i = 0; i < gradients.size(); ++i) {
          ASSERT_EQ(gradients[i].scalar_type(), torch::kBFloat16) << flat.entries()[i].name;
          const torch::Tensor gradient = gradients[i].to(torch::kFloat32);
          want[i] = first == 0 ? gradient : want[i] + gradient;
          narrow_sum[i] = first == 0 ? gradients[i] : narrow_sum[i] + gradients[i];
        }
      }
      AdamW adamw(flat, {});
      TrainStep step(flat, adamw, nullptr, {.micro_batch = kMicro, .workers = workers, .schedule = {.peak = 1e-3, .warmup_steps = 0}});
      ASSERT_TRUE(step.run(0, kBatch, losses).is_ok());
      const auto got = flat.named_views(flat.gradients());
      int64_t num_rounded = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i].second, want[i])) << got[i].first << ", workers " << workers;
        num_rounded += torch::ne(narrow_sum[i].to(torch::kFloat32), want[i]).sum().item<int64_t>();
      }
      EXPECT_GT(num_rounded, flat.num_elements() / 4) << "sums in bfloat16 are hardly others: nothing was tested";
    }
  }
}

// Another layout of the same numbers: other kernels, so other roundings, of float32.
TEST(mixed_precision, channels_last_and_alignment_change_nothing_but_roundings) {
  const auto plain = SmallRun({}).steps(5);
  const auto aligned = SmallRun({.channels_last = true, .alignment = 64}).steps(5);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(is_near(aligned[i], plain[i], 1e-5 * plain[i])) << i;
  }
}

struct OddNetwork : torch::nn::Module {
  OddNetwork() {
    torch::manual_seed(2);
    bias = register_parameter("a_bias", torch::randn({3}));
    kernel = register_parameter("b_kernel", torch::randn({2, 3, 3, 5}));
    matrix = register_parameter("c_matrix", torch::randn({4, 5}));
  }
  torch::Tensor bias, kernel, matrix;
};

TEST(flat_layout, names_shapes_and_values_stay_whatever_the_layout) {
  OddNetwork plain;
  OddNetwork placed;
  const FlatParameters flat(placed, {.compute_type = torch::kBFloat16, .channels_last = true, .alignment = 64});
  EXPECT_EQ(flat.size(), 64 + 128 + 64);
  for (const FlatParameters::Entry& entry : flat.entries()) {
    EXPECT_EQ(entry.first % 64, 0) << entry.name;
  }
  const auto want = plain.named_parameters();
  for (const auto& [name, view] : flat.named_views(flat.values())) {
    EXPECT_TRUE(torch::equal(view, want[name].detach())) << name;
    EXPECT_TRUE(torch::equal(placed.named_parameters()[name].detach(), want[name].detach().to(torch::kBFloat16))) << name;
  }
  EXPECT_TRUE(placed.kernel.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(placed.kernel.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
  flat.check_bound();
}

TEST(flat_layout, what_alignment_leaves_stays_zero) {
  OddNetwork network;
  FlatParameters flat(network, {.alignment = 64});
  AdamW adamw(flat, {});
  Ema ema(flat, {});
  for (int step = 0; step < 3; ++step) {
    flat.zero_gradients();
    (network.bias.sum() + network.kernel.square().sum() + network.matrix.sum()).backward();
    adamw.update(1e-2, 1.0, &ema);
  }
  for (const torch::Tensor& buffer : {flat.values(), flat.gradients(), ema.weights(), adamw.second_moment()}) {
    torch::Tensor rest = buffer.clone();
    for (auto& [name, view] : flat.named_views(rest)) {
      view.zero_();
    }
    EXPECT_EQ(rest.abs().max().item<float>(), 0.0F);
  }
}

TEST(flat_layout, an_ema_scope_lends_the_rounded_average) {
  OddNetwork network;
  FlatParameters flat(network, {.compute_type = torch::kBFloat16});
  Ema ema(flat, {});
  ema.weights().fill_(1.2345678F);
  const torch::Tensor before = network.matrix.detach().clone();
  {
    const EmaScope scope(flat, ema);
    EXPECT_TRUE(torch::equal(network.matrix.detach(), torch::full({4, 5}, 1.2345678F).to(torch::kBFloat16)));
  }
  EXPECT_TRUE(torch::equal(network.matrix.detach(), before));
}

TEST(flat_layout, bad_options_are_named) {
  EXPECT_EQ((FlatParametersOptions{.compute_type = torch::kFloat16}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((FlatParametersOptions{.alignment = 0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(FlatParametersOptions::for_gpu(torch::Device(torch::kCUDA, 0), torch::kBFloat16).validate().is_ok());
}

// A batch as tensors, as a GPU takes it, and as a function of positions; the inputs lie in the same memory in every step.
TEST(device_batch, has_the_bits_of_losses_by_position) {
  for (const int64_t workers : {1, 2}) {
    ToyNetwork plain_network, placed_network;
    FlatParameters plain_flat(plain_network), placed_flat(placed_network);
    AdamW plain_adamw(plain_flat, {}), placed_adamw(placed_flat, {});
    Ema plain_ema(plain_flat, {}), placed_ema(placed_flat, {});
    const TrainStepOptions options{
        .micro_batch = 3, .workers = workers, .max_grad_norm = 0.05, .schedule = {.peak = 1e-2, .warmup_steps = 2}};
    TrainStep plain(plain_flat, plain_adamw, &plain_ema, options), placed(placed_flat, placed_adamw, &placed_ema, options);
    const DiffusionObjective objective(NoiseSchedule({}), {.min_snr_gamma = 5.0}, toy_empty_states());
    const std::vector<int> keys = {0, 1, 2, 3, 4, 5, 6};
    const DiffusionBatch first = toy_batch(keys);
    LoadedDiffusion loaded{DiffusionDraws::empty(7, torch::kCPU), torch::empty_like(first.latents_nchw),
                           torch::empty_like(first.states_ntw)};
    const DeviceBatch placed_batch{.size = 7, .inputs = loaded.tensors(), .losses = [&](const std::vector<torch::Tensor>& inputs) {
                                     return objective.losses(placed_network.denoiser(), objective.mix(LoadedDiffusion::of(inputs)));
                                   }};
    for (int64_t step = 0; step < 4; ++step) {
      const DiffusionBatch batch = toy_batch(keys, static_cast<uint32_t>(step));
      const auto by_position = [&](int64_t from, int64_t count) {
        return objective.losses(plain_network.denoiser(), objective.prepare(batch.slice(from, count)));
      };
      const StepReport want = plain.run(step, batch.size(), by_position).value();
      loaded.draws.copy_from(objective.draw(batch.samples));
      loaded.latents_nchw.copy_(batch.latents_nchw);
      loaded.states_ntw.copy_(batch.states_ntw);
      const StepReport got = placed.run(step, placed_batch).value();
      EXPECT_EQ(got.loss, want.loss);
      EXPECT_EQ(got.grad_norm, want.grad_norm);
      EXPECT_EQ(got.learning_rate, want.learning_rate);
    }
    EXPECT_TRUE(torch::equal(placed_flat.values(), plain_flat.values()));
    EXPECT_TRUE(torch::equal(placed_ema.weights(), plain_ema.weights()));
  }
}

}  // namespace
}  // namespace darkroom
