#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/file_system.h"
#include "darkroom/io/uri.h"
#include "darkroom/show/run_report.h"
#include "darkroom/train/train_loop.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TrainFlags {
  std::string recipe_path;
  std::vector<std::string> settings;
  TrainOptions options;
  std::string data;
  std::string raw_data;
  std::string model;
  std::string validation;
  int64_t max_steps = 0;  // 0: the recipe's.
  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  int64_t num_processes = 1;
};

/// The recipe with --set and then the flags on top.
Result<Recipe> resolve_recipe(const TrainFlags& flags) {
  DARKROOM_ASSIGN_OR_RETURN(Recipe recipe, load_recipe(local_files(), flags.recipe_path));
  for (const auto& setting : flags.settings) {
    DARKROOM_RETURN_IF_ERROR(set_recipe_field(recipe, setting));
  }
  if (!flags.data.empty() && !flags.raw_data.empty()) {
    return Status::invalid_argument("--data (offline) and --raw-data (online) exclude each other; --raw-data is:", flags.raw_data);
  }
  if (!flags.data.empty()) {
    recipe.data.path = flags.data;
    recipe.data.raw_path.clear();
  }
  if (!flags.raw_data.empty()) {
    recipe.data.raw_path = flags.raw_data;
    recipe.data.path.clear();
  }
  if (!flags.model.empty()) {
    recipe.model.path = flags.model;
  }
  if (!flags.validation.empty()) {
    recipe.validation.path = flags.validation;
  }
  for (const auto& [flag, field] :
       {std::pair(flags.max_steps, &recipe.schedule.max_steps), std::pair(flags.global_batch, &recipe.batch.global),
        std::pair(flags.micro_batch, &recipe.batch.micro)}) {
    if (flag != 0) {
      *field = flag;
    }
  }
  return recipe;
}

Result<int> run_train(const TrainFlags& flags, VerbContext& context) {
  if (flags.num_processes != 1) {
    return Status::invalid_argument("training runs in one process only as yet, use --nproc 1; got:", flags.num_processes);
  }
  if (const char* world_size = std::getenv("WORLD_SIZE"); world_size != nullptr && std::string(world_size) != "1") {
    return Status::invalid_argument("training has one rank only as yet, unset WORLD_SIZE; it is:", world_size);
  }
  TrainOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.recipe, resolve_recipe(flags));
  const auto result = run_training(options, context.stop);
  if (result.is_ok() || result.status().code() == StatusCode::kCancelled) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string folder, local_path(options.output));
    DARKROOM_RETURN_IF_ERROR(write_run_report(local_files(), folder));
  }
  DARKROOM_ASSIGN_OR_RETURN(const TrainSummary summary, result);
  context.summary["train"] = summary.to_json();
  log_info("trained {} steps in {:.0f} s: loss {:.4f} -> {:.4f} (means over 50 steps), {:.0f} img/s; the run is in {}", summary.steps,
           summary.seconds, summary.loss_first, summary.loss_last, summary.images_per_second, options.output);
  return 0;
}

}  // namespace

Verb add_train_verb(CLI::App& program) {
  // Shared by the flags' bindings and the action.
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = program.add_subcommand("train", "latents (offline) or raw images (online) -> checkpoints, samples, metrics");
  TrainOptions& options = flags->options;
  command->add_option("recipe", flags->recipe_path, "what to train and how: recipes/*.toml")->type_name("RECIPE.toml")->required();
  command->add_option("--set", flags->settings, "a field of the recipe; repeatable")
      ->type_name("section.key=value")
      ->allow_extra_args(false);
  command->add_option("--data", flags->data, "latents dataset (offline); default: the recipe's")->type_name("URI");
  command->add_option("--raw-data", flags->raw_data, "image dataset: encode in the same job (online)")->type_name("URI");
  command->add_option("--model", flags->model, "model folder: frozen parts, config and weights of the trained part; default: the recipe's")
      ->type_name("DIR");
  command->add_option("--output", options.output, "run folder: checkpoints, samples, metrics, events")->type_name("URI")->required();
  command->add_option("--resume", options.resume, "auto: the newest valid checkpoint of the run folder; none; or a checkpoint")
      ->type_name("auto|none|PATH");
  command->add_option("--init-from", options.init_from, "checkpoint or model folder: weights only, step 0")->type_name("PATH");
  command->add_option("--max-steps", flags->max_steps, "steps of the run; 0: the recipe's")->type_name("N");
  command->add_option("--global-batch", flags->global_batch, "samples a step; 0: the recipe's")->type_name("N");
  command->add_option("--micro-batch", flags->micro_batch, "samples a forward pass; 0: the recipe's")->type_name("N");
  command->add_option("--validation", flags->validation, "held-out dataset, scored every validation.every_steps")->type_name("URI");
  command->add_flag("--deterministic", options.deterministic, "bit-identical runs: refuse operations that are not reproducible");
  command->add_option("--trace", options.trace_path, "record the first steps for checking")->type_name("PATH.safetensors");
  command->add_option("--trace-steps", options.trace_steps, "steps to record")->type_name("K");
  command->add_option("--nproc", flags->num_processes)->group("");  // Not built yet: absent from --help.
  return {command, [flags](VerbContext& context) { return run_train(*flags, context); }};
}

}  // namespace darkroom
