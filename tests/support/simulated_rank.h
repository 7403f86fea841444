#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/nn/unet.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/optim/objective.h"
#include "darkroom/optim/rank_memory.h"
#include "darkroom/optim/train_step.h"
#include "support/counted_memory.h"

namespace darkroom {

/// A rank among others that are not there: they send zeros.
class SilentRanks final : public Communicator {
 public:
  SilentRanks(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  Status exchange(const std::vector<Transfer>& /*sends*/, const std::vector<Transfer>& receives) override {
    on_exchange();
    for (const Transfer& transfer : receives) {
      transfer.tensor.zero_();
    }
    return {};
  }
  Status all_reduce(const torch::Tensor& /*tensor*/) override { return {}; }
  int64_t bytes_sent() const override { return 0; }
  Result<std::unique_ptr<Communicator>> twin(const std::string& /*name*/) override {
    return std::unique_ptr<Communicator>(std::make_unique<SilentRanks>(rank_, size_));
  }
  Status finish() override { return finished; }
  ProgressMark* progress() override {
    on_progress();
    return mark;
  }

  std::function<void()> on_exchange = [] {};
  std::function<void()> on_progress = [] {};  ///< Before it says what it does now.
  ProgressMark* mark = nullptr;
  Status finished;

 private:
  int64_t rank_;
  int64_t size_;
};

/// What one rank of a run trains, and on what.
struct SimulatedRun {
  UNetConfig unet;
  int64_t latents_side = 32;
  torch::ScalarType type = torch::kFloat32;
  torch::ScalarType wire = torch::kFloat32;
  int64_t micro_batch = 1;
  int64_t num_micro_batches = 1;  ///< Of a gradient group.
  int64_t gradient_groups = 8;
  int64_t rank = 0;
  int64_t num_ranks = 8;

  int64_t group_size() const { return micro_batch * num_micro_batches; }
};

/// Bytes as torch's allocator counted them: of buffers by themselves, of passes and of the exchange beside them.
struct MeasuredRank {
  RankMemory memory;  ///< `compute` has the float32 weights beside it in it, too.
  int64_t activations = 0;
  int64_t largest_kernel = 0;  ///< float32 bytes of the largest convolution's weights.
  int64_t peak = 0;            ///< Of all together, in the second step.
  std::string failure;         ///< Of the step; empty: none.
};

/// One rank's real buffers, a real pass, and two real steps, of which the second is measured: sums of groups are kept from the first.
/// The weights are zeros, which take as long as others and need no draws.
inline MeasuredRank measure_rank(const SimulatedRun& run) {
  CountedMemory counted;
  const auto taken_by = [&](const auto& make) {
    const int64_t before = counted.held();
    make();
    return counted.held() - before;
  };
  MeasuredRank measured;
  SilentRanks ranks(run.rank, run.num_ranks);
  UNet2DConditionModel unet(run.unet);
  for (const torch::Tensor& parameter : unet->parameters()) {
    measured.largest_kernel = std::max(measured.largest_kernel, parameter.dim() == 4 ? static_cast<int64_t>(parameter.nbytes()) : 0);
  }
  const int64_t originals = counted.held();  // Given back when the parameters are views of the buffers.
  std::unique_ptr<FlatParameters> flat;
  const FlatParametersOptions options{.compute_type = run.type, .rank = run.rank, .num_ranks = run.num_ranks};
  const int64_t buffers = originals + taken_by([&] { flat = std::make_unique<FlatParameters>(*unet, options); });
  measured.memory.gradients = static_cast<int64_t>(flat->gradients().nbytes());
  measured.memory.compute = buffers - measured.memory.gradients;
  flat->values().zero_();
  flat->refresh_compute_copy();
  const FlatRange slice = slice_of_rank(flat->size(), run.rank, run.num_ranks);
  std::unique_ptr<AdamW> adamw;
  std::unique_ptr<Ema> ema;
  measured.memory.moments = taken_by([&] { adamw = std::make_unique<AdamW>(*flat, AdamWOptions{}, slice); });
  measured.memory.average = taken_by([&] { ema = std::make_unique<Ema>(*flat, EmaOptions{}, slice); });
  TrainStep step(
      *flat, *adamw, ema.get(),
      {.micro_batch = run.micro_batch, .gradient_groups = run.gradient_groups, .gradient_wire = run.wire, .schedule = {.peak = 1e-4}},
      ranks);

  const int64_t width = run.unet.states_width(), count = run.micro_batch;
  const DiffusionObjective objective(NoiseSchedule(NoiseScheduleConfig{}), {.seed = 1}, torch::zeros({77, width}));
  const torch::Tensor latents = torch::zeros({count, run.unet.in_channels, run.latents_side, run.latents_side});
  const torch::Tensor states = torch::zeros({count, 77, width});
  std::vector<SampleCoordinates> samples(static_cast<size_t>(count));
  const DiffusionDraws draws = objective.draw(samples);
  const ConditionalDenoiser network = [&](const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& texts) {
    return unet->forward(noisy, timesteps, texts);
  };
  const auto losses = [&](int64_t /*first*/, int64_t /*samples*/) {
    return objective.losses(network, objective.mix(draws, latents, states));
  };

  const int64_t batch_size = run.group_size() * run.gradient_groups;
  const int64_t before_passes = counted.held();
  counted.restart_peak();
  (losses(0, count).sum() / static_cast<double>(batch_size)).backward();
  measured.activations = counted.peak() - before_passes;

  for (int64_t number = 0; number < 2; ++number) {
    const int64_t kept = counted.held();
    measured.memory.partial_sums = kept - before_passes;
    measured.memory.received_sums = 0;
    counted.restart_peak();
    ranks.on_exchange = [&] {  // The first one is that of the gradients.
      measured.memory.received_sums = std::max(measured.memory.received_sums, counted.held() - kept);
    };
    const auto report = step.run(number, batch_size, losses);
    measured.failure = report.is_ok() ? "" : report.status().to_string();
    measured.peak = counted.peak();
  }
  return measured;
}

}  // namespace darkroom
