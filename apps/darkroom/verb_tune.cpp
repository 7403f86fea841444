#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/plan/catalogue.h"
#include "darkroom/tensor/device.h"
#include "darkroom/train/training_plan.h"
#include "estimates.h"
#include "opening/open_stores.h"
#include "tuner/trial_process.h"
#include "tuner/tuner.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TuneFlags {
  std::string recipe_path;
  std::vector<std::string> settings;
  TuneOptions options;
  std::string data;
  std::string raw_data;
  std::string model;
  std::string validation;
  std::string device = "auto";
  bool is_sandboxed = true;
  double budget_minutes = 0;
  int64_t num_workers = 0;  // 0: as many as the machine holds.
  std::string launcher;
  std::string instance;
  std::string purchase = "on_demand";
  double dollars_per_hour = 0;
  std::string catalogue;
};

/// The recipe with --set and then the flags on top, and with a validation.
Result<Recipe> tuned_recipe(const TuneFlags& flags) {
  DARKROOM_ASSIGN_OR_RETURN(Recipe recipe, load_recipe(local_files(), flags.recipe_path));
  for (const auto& setting : flags.settings) {
    DARKROOM_RETURN_IF_ERROR(set_recipe_field(recipe, setting));
  }
  if (!flags.data.empty() && !flags.raw_data.empty()) {
    return Status::invalid_argument("--data (offline) and --raw-data (online) exclude each other; --raw-data is:", flags.raw_data);
  }
  if (!flags.data.empty() || !flags.raw_data.empty()) {
    recipe.data.path = flags.data;
    recipe.data.raw_path = flags.raw_data;
  }
  for (const auto& [flag, field] : {std::pair(&flags.model, &recipe.model.path), std::pair(&flags.validation, &recipe.validation.path)}) {
    *field = flag->empty() ? *field : *flag;
  }
  if (flags.device != "auto") {
    recipe.runtime.device = flags.device;
  }
  DARKROOM_RETURN_IF_ERROR(recipe.validate().with_context(flags.recipe_path));
  if (recipe.validation.path.empty()) {
    recipe.validation.path = recipe.data.path.empty() ? recipe.data.raw_path : recipe.data.path;
    log_warning("no --validation is given: trials are compared by {} rows that they train on, which favours what memorises them",
                recipe.validation.num_rows);
  }
  return recipe;
}

/// Of --instance from the catalogue, or as given.
Result<TunePrice> tune_price(const TuneFlags& flags) {
  TunePrice price{.label = "", .dollars_per_hour = flags.dollars_per_hour};
  if (flags.instance.empty()) {
    price.label = flags.dollars_per_hour > 0 ? fmt::format("${} an hour, as given", flags.dollars_per_hour) : "";
    return price;
  }
  DARKROOM_ASSIGN_OR_RETURN(const Catalogue catalogue, load_own_catalogue(flags.catalogue));
  const Machine* machine = catalogue.machine(flags.instance);
  if (machine == nullptr) {
    std::vector<std::string> names;
    for (const Machine& one : catalogue.machines) {
      names.push_back(one.name);
    }
    return Status::invalid_argument(fmt::format("--instance: the catalogue has no machine '{}'; did you mean '{}'?", flags.instance,
                                                nearest_word(names, flags.instance)));
  }
  price.watts = machine->watts;
  if (flags.dollars_per_hour > 0) {
    price.label = fmt::format("{} at ${} an hour, as given", machine->name, flags.dollars_per_hour);
    return price;
  }
  const Price* listed = catalogue.price(machine->name, flags.purchase);
  if (listed == nullptr) {
    return Status::invalid_argument(
        fmt::format("--purchase: the catalogue has no {} price of {}; give --dollars-per-hour", flags.purchase, machine->name));
  }
  price.dollars_per_hour = listed->dollars_per_hour;
  price.label = fmt::format("{}, {}: ${} an hour ({})", machine->name, flags.purchase, listed->dollars_per_hour, listed->origin.to_text());
  return price;
}

/// Trials side by side, where the user does not say.
Result<int64_t> machine_workers(const Recipe& recipe, const VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string device, resolve_device(recipe.runtime.device));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  PlanQuestion question;
  question.device = device;
  DARKROOM_ASSIGN_OR_RETURN(const TrainingPlan plan, plan_training(*stores, recipe, question, context.stop));
  return default_tune_workers(recipe, device, plan.peak_on_host(), usable_memory_bytes(), num_processors());
}

Result<int> run_tune_verb(const TuneFlags& flags, VerbContext& context) {
  if (!flags.launcher.empty()) {
    context.is_rank();  // What stops a job on several machines often reaches the search twice; that must not cost the trials' checkpoints.
  }
  TuneOptions options = flags.options;
  options.budget_seconds = 60 * flags.budget_minutes;
  DARKROOM_ASSIGN_OR_RETURN(options.recipe, tuned_recipe(flags));
  DARKROOM_ASSIGN_OR_RETURN(options.price, tune_price(flags));
  if (!flags.is_sandboxed) {
    options.train_flags.emplace_back("--no-sandbox");
  }
  options.num_workers = flags.num_workers;
  if (!flags.launcher.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(options.launcher, launcher_words(flags.launcher));
    options.num_workers = std::max<int64_t>(1, flags.num_workers);  // What other machines hold is not known here.
  }
  if (options.num_workers == 0) {
    DARKROOM_ASSIGN_OR_RETURN(options.num_workers, machine_workers(options.recipe, context));
  }
  const Status status = run_tune(options, context.stop, context.summary["tune"]);
  DARKROOM_RETURN_IF_ERROR(status);
  return 0;
}

void add_trial_flags(VerbDefinition& verb, TuneFlags& flags) {
  TuneOptions& options = flags.options;
  verb.group("What is tried");
  verb.flag("--set-range", value::repeated_texts(options.ranges, "key=a,b,c|key=low..high[:log|:int|:int-log]"),
            "a field of the recipe and what it may be; repeatable; without any: learning rate, batch and warm-up around the recipe");
  verb.flag("--strategy",
            value::choice(options.strategy,
                          {{"grid", TuneStrategy::kGrid}, {"random", TuneStrategy::kRandom}, {"halving", TuneStrategy::kHalving}}),
            "every combination; drawn evenly; or drawn, and the best third of each rung goes on three times as long");
  verb.flag("--trials", value::count(options.num_trials).least(1).most(kMostTrials).also("auto", 0),
            "at most so many; auto: 27 of halving, fewer where the budget is short, 9 of random, all of a grid");
  verb.flag("--samples", value::count(options.num_samples).least(1).also("budget", 0),
            "samples that a full trial sees; budget: what fits in, and no more than the recipe's own run");
  verb.flag("--score",
            value::choice(options.score, {{"loss-at-samples", TuneScore::kLossAtSamples}, {"loss-at-budget", TuneScore::kLossAtBudget}}),
            "validation loss after equally many samples, or after equal training time at the speed measured for the batch");
  verb.flag("--grid-points", value::count(options.grid_points).least(1).most(100), "of a range in a grid, its ends among them");
  verb.flag("--seed", value::count(options.seed).shown("S"), "of what is drawn; the trials' own seed is the recipe's");
}

void add_machine_flags(VerbDefinition& verb, TuneFlags& flags) {
  verb.group("Time and machine");
  verb.flag("--budget", value::minutes(flags.budget_minutes).above(0),
            "of all starts together; what cannot end within it is not begun, what runs at its end stops with a checkpoint")
      .required();
  verb.flag("--workers", value::count(flags.num_workers).least(1).also("auto", 0),
            "trials side by side; auto: as many as cores and memory hold, 1 on a GPU or with --launcher");
  verb.flag(
      "--launcher", value::text(flags.launcher, "PROGRAM", "none"),
      "a program, with its first words where there are some, that runs the command which follows them: a trial's, on another machine");
  verb.flag("--device", value::device(flags.device, false), "where the steps run; auto: as the recipe's runtime.device says");
  verb.flag("--instance", value::text(flags.instance, "NAME", "none"),
            "a machine of the catalogue, for what trials cost and the energy they take");
  verb.flag("--purchase", value::choice(flags.purchase, {"on_demand", "reserved", "spot"}), "which price of --instance");
  verb.flag("--dollars-per-hour", value::number(flags.dollars_per_hour).least(0).also("none", 0),
            "price of this machine's hour; without it and --instance costs are machine-hours");
  verb.flag("--catalogue", value::path(flags.catalogue, "FILE.toml", kCatalogueResource),
            "prices of your own, over those that are shipped");
}

}  // namespace

void add_tune_verb(CommandLine& line) {
  const auto flags = std::make_shared<TuneFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("tune", "small hyper-parameter search: trials of train, a report, the best recipe");
  verb.positional("RECIPE.toml", value::path(flags->recipe_path, "RECIPE.toml"), "where the search begins").required();
  verb.group("What to train on");
  verb.flag("--data", value::uri(flags->data, "URI", "the recipe's"), "latents dataset (offline)");
  verb.flag("--raw-data", value::uri(flags->raw_data, "URI", "none"), "image dataset: every trial encodes it itself (online)");
  verb.flag("--model", value::uri(flags->model, "DIR", "the recipe's"), "model folder, as of train");
  verb.flag("--validation", value::uri(flags->validation, "URI", "the recipe's"),
            "held-out dataset that trials are compared by; without any the first rows of the training data");
  verb.flag("--set", value::repeated_texts(flags->settings, "section.key=value"), "a field of the recipe, for all trials; repeatable");
  verb.flag("--no-sandbox", value::toggle_off(flags->is_sandboxed), "decode the pictures of --raw-data in the trials' own processes");
  add_trial_flags(verb, *flags);
  add_machine_flags(verb, *flags);
  verb.flag("--output", value::folder(flags->options.output, "DIR"), "folder of the search: trials, ledger, report.html, best.toml")
      .required();
  verb.example("darkroom tune recipes/tiny.toml --data latents --model models/tiny --validation held-out --output tuned --budget 10",
               "ten minutes around the recipe: learning rate, batch and warm-up");
  verb.example(
      "darkroom tune recipes/tiny.toml --data latents --model models/tiny --output tuned --budget 60 --strategy grid "
      "--set-range optimizer.lr=5e-4,1e-3,2e-3 --set-range batch.global=32,64",
      "six trials");
  verb.run([flags](VerbContext& context) { return run_tune_verb(*flags, context); });
}

}  // namespace darkroom
