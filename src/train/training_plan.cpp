#include "darkroom/train/training_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "darkroom/feed/dataset_index.h"
#include "darkroom/nn/config_file.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/ops/operation_table.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/optim/objective.h"
#include "darkroom/stores/model_copy.h"
#include "darkroom/tensor/multiply_adds.h"
#include "darkroom/tensor/shape_run.h"
#include "darkroom/text/clip_tokenizer.h"
#include "run_data.h"
#include "step_settings.h"
#include "trained_part.h"

namespace darkroom {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kStoredBytes = 2;      // An element as process stores it: float16.
constexpr int64_t kPublishedFactor = 8;  // Pixels a latent pixel where there is no VAE to ask.

// The networks that a run needs to know.
struct Architecture {
  std::optional<UNetConfig> unet;
  std::optional<VaeConfig> vae;
};

// One forward and backward pass of a micro-batch.
struct PassCost {
  int64_t peak_bytes = 0;  // Beside parameters and gradients.
  int64_t multiply_adds = 0;
};

struct Workload {
  std::string component;
  std::shared_ptr<torch::nn::Module> network;
  std::function<torch::Tensor(int64_t num_samples)> losses;  // On shapes.
  std::vector<int64_t> sample_elements;                      // Of each tensor of a batch.
  bool is_stored = false;                                    // As latents and states, as large as they are in the batch.

  int64_t elements_of_a_sample() const { return std::reduce(sample_elements.begin(), sample_elements.end()); }
};

template <typename Config>
Result<std::optional<Config>> read_optional_config(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (!is_there) {
    return std::optional<Config>();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto json, read_config_file(files, path));
  auto config = Config::from_json(json);
  return config.is_ok() ? Result<std::optional<Config>>(*config) : config.status().with_context(path);
}

Result<Architecture> read_architecture(StoreSet& stores, const std::string& model, const std::stop_token& stop) {
  const auto takes = [](const std::string& name) { return name.ends_with("config.json"); };
  DARKROOM_ASSIGN_OR_RETURN(const LocalCopy copy, fetch_model_files(stores, model, takes, stop));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, local_files().exists(copy.path()));
  if (!is_there) {
    const auto preset = find_preset(model);
    return preset.is_ok() ? Result<Architecture>(Architecture{preset->unet, preset->vae})
                          : preset.status().with_context("there is no such model folder");
  }
  Architecture found;
  DARKROOM_ASSIGN_OR_RETURN(found.unet, read_optional_config<UNetConfig>(local_files(), copy.path() + "/unet/config.json"));
  DARKROOM_ASSIGN_OR_RETURN(found.vae, read_optional_config<VaeConfig>(local_files(), copy.path() + "/vae/config.json"));
  return found;
}

// Of the plugin's operations (src/plugin/*_operation.cpp) what they make and keep for their backward passes: of a normed and activated x
// neither the normed values nor the gradient between, of a gated unit no gate. The kernels' partial sums are left out.
ForwardResult group_norm_of_a_gpu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                  const GroupNormSettings& settings) {
  const torch::Tensor kept = x.contiguous();
  const torch::Tensor mean = torch::empty({x.size(0), settings.num_groups}, x.options().dtype(torch::kFloat32));
  return {at::empty_like(kept), {kept, weight, bias, mean, at::empty_like(mean)}};
}

std::array<torch::Tensor, 3> group_norm_backward_of_a_gpu(const torch::Tensor& /*grad*/, const std::vector<torch::Tensor>& saved,
                                                          const GroupNormSettings& /*settings*/, std::array<bool, 3> /*wanted*/) {
  return {at::empty_like(saved[0]), at::empty_like(saved[1]), at::empty_like(saved[2])};
}

ForwardResult geglu_of_a_gpu(const torch::Tensor& x) {
  std::vector<int64_t> half = x.sizes().vec();
  half.back() /= 2;
  return {torch::empty(half, x.options()), {x.contiguous()}};
}

torch::Tensor geglu_backward_of_a_gpu(const torch::Tensor& /*grad*/, const std::vector<torch::Tensor>& saved) {
  return at::empty_like(saved[0]);
}

// Draws have no shapes to give, only values: nothing to do. REQUIRES: this thread's is the run on shapes.
void give_shapes_operations(const torch::Device& device) {
  OperationTable table = reference_operations();
  table.counter_normal = [](torch::Tensor&, uint64_t, uint8_t, const torch::Tensor&) {};
  if (!device.is_cpu()) {
    table.group_norm = table.group_norm_silu = group_norm_of_a_gpu;
    table.group_norm_backward = table.group_norm_silu_backward = group_norm_backward_of_a_gpu;
    table.geglu = geglu_of_a_gpu;
    table.geglu_backward = geglu_backward_of_a_gpu;
  }
  install_operations(torch::kMeta, table);
}

torch::Tensor shape_of(std::vector<int64_t> sizes) { return torch::empty(sizes, torch::dtype(torch::kFloat32).device(torch::kMeta)); }

Result<Workload> diffusion_workload(const Recipe& recipe, const Architecture& architecture) {
  if (!architecture.unet) {
    return Status::not_found("the model folder has no U-Net to train; its unet/config.json is missing:", recipe.model.path);
  }
  const int64_t factor = architecture.vae ? architecture.vae->factor() : kPublishedFactor;
  if (recipe.data.resolution % factor != 0) {
    return Status::invalid_argument("the recipe's data.resolution must be a multiple of the VAE's factor (factor, resolution):", factor,
                                    recipe.data.resolution);
  }
  const int64_t side = recipe.data.resolution / factor, channels = architecture.unet->in_channels;
  const int64_t tokens = ClipTokenizer::kContextLength, width = architecture.unet->states_width();
  NoiseScheduleConfig noise;
  noise.prediction_type = recipe.objective.prediction == "epsilon" ? PredictionType::kEpsilon : PredictionType::kVelocity;
  const DiffusionObjectiveOptions options{.seed = 0, .caption_drop = recipe.objective.caption_dropout, .min_snr_gamma = 0};
  UNet2DConditionModel unet(*architecture.unet);
  const auto losses = [=](int64_t count) {
    const DiffusionObjective objective(NoiseSchedule(noise), options, shape_of({tokens, width}));
    const DiffusionDraws draws = DiffusionDraws::empty(count, torch::kMeta);
    const torch::Tensor latents = shape_of({count, channels, side, side}), states = shape_of({count, tokens, width});
    return objective.losses(denoiser_of(unet), objective.mix(draws, latents, states));
  };
  return Workload{"unet", unet.ptr(), losses, {channels * side * side, tokens * width}, recipe.data.raw_path.empty()};
}

Result<Workload> autoencoder_workload(const Recipe& recipe, const Architecture& architecture) {
  if (!architecture.vae) {
    return Status::not_found("the model folder has no autoencoder to train; its vae/config.json is missing:", recipe.model.path);
  }
  const int64_t side = recipe.data.resolution, channels = architecture.vae->in_channels;
  if (side % architecture.vae->factor() != 0) {
    return Status::invalid_argument(
        "the recipe's data.resolution must be a multiple of the VAE's factor (factor, resolution):", architecture.vae->factor(), side);
  }
  AutoencoderKL vae(*architecture.vae);
  const auto losses = [=](int64_t count) {
    const torch::Tensor coordinates = torch::empty({count, 2}, torch::dtype(torch::kInt64).device(torch::kMeta));
    return AutoencoderObjective(AutoencoderObjectiveOptions())
        .losses(network_of(vae), {coordinates, shape_of({count, channels, side, side})});
  };
  return Workload{"vae", vae.ptr(), losses, {channels * side * side}, false};
}

Result<Workload> make_workload(StoreSet& stores, const Recipe& recipe, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const Architecture architecture, read_architecture(stores, recipe.model.path, stop));
  return recipe.objective.kind == "diffusion" ? diffusion_workload(recipe, architecture) : autoencoder_workload(recipe, architecture);
}

// Runs the network itself, on shapes, as it would run on the device.
PassCost cost_of_pass(const Workload& workload, const FlatParametersOptions& flat, int64_t num_samples) {
  ShapeRun shapes;
  give_shapes_operations(flat.device);
  ShapeRun::move_here(*workload.network, flat.compute_type);
  const int64_t before = shapes.held_bytes();
  shapes.restart_peak();
  torch::Tensor loss;
  PassCost cost;
  cost.multiply_adds = count_multiply_adds([&] { loss = workload.losses(num_samples).sum(); });
  loss.backward();
  cost.peak_bytes = shapes.peak_bytes() - before;
  return cost;
}

int64_t samples_of_pass(const Recipe& recipe) { return std::min(recipe.batch.micro, group_size(recipe)); }

double step_flop_of(const Recipe& recipe, int64_t multiply_adds_of_pass) {
  constexpr double kForwardAndBackward = 3, kOperations = 2;
  return kForwardAndBackward * kOperations * static_cast<double>(multiply_adds_of_pass) / static_cast<double>(samples_of_pass(recipe)) *
         static_cast<double>(recipe.batch.global);
}

// Samples of a group's last pass where that is a smaller one, else 0.
int64_t rest_of_group(const Recipe& recipe) {
  const int64_t samples = group_size(recipe);
  return samples > recipe.batch.micro ? samples % recipe.batch.micro : 0;
}

// The rank that holds most, of several the one with most samples: how many sums wait depends on where in the tree its run of groups lies.
void choose_rank(const Recipe& recipe, const RankMemorySpec& spec, TrainingPlan& plan) {
  constexpr int64_t kMostLookedAt = 1024;  // Each look is linear in the ranks.
  for (int64_t rank = 0; rank < std::min(spec.flat.num_ranks, kMostLookedAt); ++rank) {
    RankMemorySpec own = spec;
    own.flat.rank = rank;
    const RankMemory memory = rank_memory(own);
    const int64_t samples = samples_of_rank(recipe, rank, spec.flat.num_ranks).count;
    if (rank == 0 || std::pair(memory.kept(), samples) > std::pair(plan.memory.kept(), plan.rank_samples)) {
      plan.rank = rank;
      plan.memory = memory;
      plan.rank_samples = samples;
    }
  }
}

int64_t samples_of_busiest_rank(const Recipe& recipe, int64_t num_ranks) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    most = std::max(most, samples_of_rank(recipe, rank, num_ranks).count);
  }
  return most;
}

void plan_feed(const Recipe& recipe, const Workload& workload, TrainingPlan& plan) {
  constexpr int64_t kMaking = 2;      // One at hand, one in the making.
  constexpr int64_t kPageLocked = 2;  // Copies on their way to a GPU (Upload).
  const bool is_cpu = plan.question.device == "cpu";
  const int64_t element = is_cpu || !workload.is_stored ? kFloatBytes : kStoredBytes;
  const int64_t sample = workload.elements_of_a_sample() * element, batch = plan.rank_samples * sample;
  const int64_t read_by_graphs = plan.keeps_graphs ? (plan.micro_batch + rest_of_group(recipe)) * sample : 0;
  plan.device_inputs = is_cpu ? 0 : batch + read_by_graphs;
  const int64_t ahead = recipe.data.raw_path.empty() || workload.component == "vae" ? recipe.data.batches_ahead + kMaking : 1;
  plan.batches = batch * ahead;
  if (!is_cpu) {
    for (const int64_t elements : workload.sample_elements) {
      plan.batches += kPageLocked * page_locked_bytes(plan.rank_samples * elements * element);
    }
  }
  plan.most_samples = memory_of_rank(recipe.data.memory_bytes, plan.question.local_ranks);
  if (workload.is_stored) {
    plan.shuffled_samples = window_rows(recipe, plan.question.num_ranks) * workload.elements_of_a_sample() * kStoredBytes;
    plan.read_a_step = recipe.batch.global * workload.elements_of_a_sample() * kStoredBytes;
  }
}

// As docs/ranks.md tells them.
int64_t bytes_sent(const Recipe& recipe, const RankMemorySpec& spec, const TrainingPlan& plan) {
  const int64_t others = spec.flat.num_ranks - 1, wire = static_cast<int64_t>(c10::elementSize(spec.gradient_wire));
  const int64_t gradients = plan.memory.gradients / kFloatBytes * wire / spec.flat.num_ranks * others;
  const int64_t weights = plan.memory.compute / spec.flat.num_ranks * others;
  if (others == 0) {
    return 0;
  }
  if (spec.fast_reduction) {
    return 2 * gradients + weights;
  }
  const GroupSpan run = groups_of_rank(recipe.runtime.gradient_groups, plan.rank, spec.flat.num_ranks);
  return gradients * static_cast<int64_t>(largest_subtrees(recipe.runtime.gradient_groups, run).size()) + weights;
}

void plan_checkpoints(const Recipe& recipe, TrainingPlan& plan) {
  constexpr int64_t kBytesAParameter = 4 * kFloatBytes;  // Weights, average and both moments, whatever the precision.
  plan.checkpoint = kBytesAParameter * plan.parameters;
  const int64_t every = std::max<int64_t>(1, recipe.checkpoint.every_steps > 0 ? recipe.checkpoint.every_steps : plan.steps);
  const int64_t written = (plan.steps + every - 1) / every, last = std::min(written, recipe.checkpoint.keep_last);
  // As superfluous_checkpoints() keeps them: of those before the last ones, whose steps are all multiples of `every`.
  const int64_t keep_every = recipe.checkpoint.keep_every;
  const int64_t for_good = keep_every > 0 ? (written - last) / (keep_every / std::gcd(every, keep_every)) : 0;
  plan.all_checkpoints = plan.checkpoint * (last + for_good);
}

}  // namespace

Status PlanQuestion::validate() const {
  if (num_ranks < 1 || local_ranks < 1 || local_ranks > num_ranks) {
    return Status::invalid_argument(
        "a run is planned for at least one rank, and no more on a machine than in all (ranks, on a machine):", num_ranks, local_ranks);
  }
  if (!(mfu > 0 && mfu <= 1)) {
    return Status::invalid_argument("--mfu must be above 0 and at most 1, got:", mfu);
  }
  if (!(tflops >= 0)) {
    return Status::invalid_argument("--tflops must be 0 or more, got:", tflops);
  }
  return {};
}

Result<double> count_step_flop(StoreSet& stores, const Recipe& recipe, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(recipe.validate());
  DARKROOM_ASSIGN_OR_RETURN(const Workload workload, make_workload(stores, recipe, stop));
  ShapeRun shapes;
  give_shapes_operations(torch::kCPU);  // The products are the same on every device, in every type.
  ShapeRun::move_here(*workload.network, torch::kFloat32);
  return step_flop_of(recipe, count_multiply_adds([&] { workload.losses(samples_of_pass(recipe)); }));
}

Result<TrainingPlan> plan_training(StoreSet& stores, const Recipe& recipe, const PlanQuestion& question, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(question.validate());
  DARKROOM_RETURN_IF_ERROR(recipe.validate());
  if (question.num_ranks > recipe.runtime.gradient_groups) {
    return Status::invalid_argument(
        "each rank takes at least one gradient group of a batch; set runtime.gradient_groups to the ranks or more (groups, ranks):",
        recipe.runtime.gradient_groups, question.num_ranks);
  }
  DARKROOM_ASSIGN_OR_RETURN(const Workload workload, make_workload(stores, recipe, stop));
  const torch::Device device(question.device);
  const FlatParametersOptions flat = flat_options(recipe, device);
  RankMemorySpec spec = rank_memory_spec(recipe, *workload.network, flat);
  spec.flat.num_ranks = question.num_ranks;
  TrainingPlan plan{.component = workload.component,
                    .parameters = count_parameters(*workload.network),
                    .precision = precision_on(recipe, device),
                    .question = question,
                    .global_batch = recipe.batch.global,
                    .gradient_groups = recipe.runtime.gradient_groups,
                    .steps = recipe.schedule.max_steps};
  choose_rank(recipe, spec, plan);
  plan.busiest_samples = samples_of_busiest_rank(recipe, question.num_ranks);
  plan.micro_batch = samples_of_pass(recipe);
  plan.rank_passes = num_passes(recipe, plan.rank_samples);
  plan.passes_at_a_time = passes_at_a_time(recipe, device, plan.rank_samples, question.local_ranks);
  const PassCost pass = cost_of_pass(workload, flat, plan.micro_batch);
  plan.activations = plan.passes_at_a_time * pass.peak_bytes;
  plan.keeps_graphs = train_step_options(recipe, device, question.local_ranks).records_passes(device, question.num_ranks);
  if (plan.keeps_graphs && rest_of_group(recipe) > 0) {  // Each graph keeps what its passes hold.
    plan.activations += cost_of_pass(workload, flat, rest_of_group(recipe)).peak_bytes;
  }
  const bool shows_something = !recipe.samples.prompts.empty() || recipe.objective.kind == "autoencoder";
  plan.looks = !recipe.validation.path.empty() || (recipe.samples.every_steps > 0 && shows_something);
  plan.pass_gradients = plan.passes_at_a_time > 1 ? plan.passes_at_a_time * plan.memory.compute : 0;
  plan.step_flop = step_flop_of(recipe, pass.multiply_adds);
  plan.snapshot = snapshot_bytes(recipe, plan.memory, spec.flat);
  plan_feed(recipe, workload, plan);
  plan.sent_a_step = bytes_sent(recipe, spec, plan);
  plan_checkpoints(recipe, plan);
  return plan;
}

}  // namespace darkroom
