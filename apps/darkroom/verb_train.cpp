#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/file_system.h"
#include "darkroom/show/run_report.h"
#include "darkroom/train/train_loop.h"
#include "open_stores.h"
#include "resources.h"
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
  std::string device = "auto";
  bool is_sandboxed = true;
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
  if (const char* world_size = std::getenv("WORLD_SIZE"); world_size != nullptr && std::string(world_size) != "1") {
    return Status::invalid_argument("training has one rank only as yet, unset WORLD_SIZE; it is:", world_size);
  }
  TrainOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.recipe, resolve_recipe(flags));
  if (flags.is_sandboxed && !options.recipe.data.raw_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(options.decoder_program, find_decoder());
  }
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, {});  // A stop ends no read: the step at hand is finished, then saved.
  TrainSummary summary;
  const Status status = run_training(*stores, options, context.stop, summary);
  context.summary["train"] = summary.to_json();
  const bool is_stopped = status.code() == StatusCode::kCancelled;
  if (status.is_ok() || is_stopped) {
    const Status reported = write_run_report(*stores, options.output);
    if (is_stopped && !reported.is_ok()) {
      log_warning("the report of the stopped run was not written: {}", reported.message());  // The exit status tells of the stop.
    } else {
      DARKROOM_RETURN_IF_ERROR(reported);
    }
  }
  DARKROOM_RETURN_IF_ERROR(status);
  log_info("trained {} steps in {:.0f} s: loss {:.4f} -> {:.4f} (means over 50 logged lines), {:.0f} img/s; the run is in {}",
           summary.steps, summary.seconds, summary.loss_first, summary.loss_last, summary.images_per_second, options.output);
  return 0;
}

void add_data_flags(VerbDefinition& verb, TrainFlags& flags) {
  verb.group("What to train on");
  verb.flag("--data", value::uri(flags.data, "URI", "the recipe's"), "latents dataset (offline)");
  verb.flag("--raw-data", value::uri(flags.raw_data, "URI", "none"), "image dataset: encode in the same job (online)");
  verb.flag("--model", value::uri(flags.model, "DIR", "the recipe's"),
            "model folder: frozen parts, config and weights of the trained part");
  verb.flag("--no-sandbox", value::toggle_off(flags.is_sandboxed),
            "decode the pictures of --raw-data in this process: where the kernel refuses the sandbox, or all of them are trusted");
  verb.flag("--validation", value::uri(flags.validation, "URI", "none"), "held-out dataset, scored every validation.every_steps");
  verb.later({"--num-readers"});
}

void add_run_flags(VerbDefinition& verb, TrainFlags& flags) {
  TrainOptions& options = flags.options;
  verb.group("The run");
  verb.flag("--output", value::uri(options.output, "URI"), "run folder: checkpoints, samples, metrics, events").required();
  verb.flag("--set", value::repeated_texts(flags.settings, "section.key=value"), "a field of the recipe; repeatable");
  verb.flag("--resume", value::uri(options.resume, "auto|none|PATH"),
            "the newest valid checkpoint of the run folder, none, or a checkpoint");
  verb.flag("--init-from", value::uri(options.init_from, "PATH", "none"), "checkpoint or model folder: weights only, step 0");
  verb.flag("--max-steps", value::count(flags.max_steps).least(1).also("recipe", 0), "steps of the run");
  verb.flag("--global-batch", value::count(flags.global_batch).least(1).also("recipe", 0), "samples per step");
  verb.flag("--micro-batch", value::count(flags.micro_batch).least(1).also("recipe", 0), "samples per forward pass");
  verb.flag("--deterministic", value::toggle(options.deterministic), "bit-identical runs: refuse operations that are not reproducible");
  verb.flag("--device", value::device(flags.device, true), "where the step runs");
  verb.flag("--trace", value::path(options.trace_path, "PATH.safetensors", "none"), "record the first steps for checking");
  verb.flag("--trace-steps", value::count(options.trace_steps).least(1).shown("K"), "steps to record");
  verb.later_except("--nproc", "1");
  verb.later({"--max-restarts", "--dry-run", "--metrics-port"});
}

}  // namespace

void add_train_verb(CommandLine& line) {
  const auto flags = std::make_shared<TrainFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("train", "latents (offline) or raw images (online) -> checkpoints, samples, metrics");
  verb.positional("RECIPE.toml", value::path(flags->recipe_path, "RECIPE.toml"), "what to train and how: recipes/*.toml").required();
  add_data_flags(verb, *flags);
  add_run_flags(verb, *flags);
  verb.example("darkroom train recipes/tiny.toml --data latents --model models/tiny --output run", "from stored latents");
  verb.example("darkroom train recipes/tiny.toml --raw-data images --model models/tiny --output run --set optimizer.lr=1e-4 --max-steps 2k",
               "from pictures, with changes to the recipe");
  verb.example("darkroom train recipes/tiny.toml --data s3://bucket/latents --model models/tiny --output s3://bucket/run",
               "on a store of objects; keys come from the environment or the AWS files");
  verb.run([flags](VerbContext& context) { return run_train(*flags, context); });
}

}  // namespace darkroom
