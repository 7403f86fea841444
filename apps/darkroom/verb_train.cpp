#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "child_process/child_process.h"
#include "child_process/rank_group.h"
#include "darkroom/core/log.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/file_system.h"
#include "darkroom/show/run_report.h"
#include "darkroom/tensor/communicator.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/kept_memory.h"
#include "darkroom/tensor/launcher_job.h"
#include "darkroom/train/train_loop.h"
#include "darkroom/train/training_plan.h"
#include "darkroom/web/spot_notice.h"
#include "jobs/job_observation.h"
#include "opening/open_stores.h"
#include "painting/picture_flags.h"
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
  double encoder_timeout_seconds = 120;
  double encoder_wait_seconds = 600;
  int64_t num_ranks = 1;
  int64_t max_restarts = 3;
  std::string spot_notice;
  bool is_dry_run = false;
  PlanQuestion plan = {.num_ranks = 0};  // 0: those of this start.
  ObservationFlags observation;
};

Result<SpotSource> parse_spot_flag(const std::string& text) {
  auto source = SpotSource::parse(text);
  return source.is_ok() ? std::move(source) : source.status().with_context("--spot-notice");
}

/// Without what may be secret.
std::string shown_source(const SpotSource& source) {
  switch (source.kind) {
    case SpotSource::Kind::kAws:
      return "EC2's metadata service " + recorded_uri(source.place);
    case SpotSource::Kind::kGcp:
      return "Compute Engine's metadata service " + recorded_uri(source.place);
    case SpotSource::Kind::kUrl:
      return recorded_uri(source.place);
    case SpotSource::Kind::kFile:
      break;
  }
  return "the file " + source.place;
}

/// Stops this process as SIGTERM does once its machine is about to be taken back. The machine's own SIGTERM may come before or after.
class SpotStop {
 public:
  /// Errors: kInvalidArgument (no such source), kResourceExhausted. `context` outlives this.
  static Result<std::unique_ptr<SpotStop>> start(const std::string& text, const VerbContext& context) {
    DARKROOM_ASSIGN_OR_RETURN(const SpotSource source, parse_spot_flag(text));
    log_info("every {} s a spot notice is looked for at {}", SpotWatch::kPeriod.count(), shown_source(source));
    std::unique_ptr<SpotStop> stop(new SpotStop());
    DARKROOM_ASSIGN_OR_RETURN(stop->http_, HttpClient::start({.num_loops = 1}, stop->metrics_));
    stop->watch_ = std::make_unique<SpotWatch>(source, *stop->http_, system_clock(), [&context](const std::string& notice) {
      log_warning("this machine is about to be taken back: {}", notice);
      context.is_rank();  // Whoever stops the machine sends signals of its own, and none of them is to end the save.
      if (!context.stop.stop_requested()) {
        kill(getpid(), SIGTERM);
      }
    });
    return stop;
  }

 private:
  SpotStop() = default;

  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> http_;
  std::unique_ptr<SpotWatch> watch_;  // The last member: it uses the others.
};

/// A plan opens no dataset, so that none need be named.
void name_what_is_not_opened(Recipe& recipe) {
  if (recipe.data.path.empty() && recipe.data.raw_path.empty()) {
    (recipe.objective.kind == "autoencoder" ? recipe.data.raw_path : recipe.data.path) = "any";
  }
}

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
  if (flags.device != "auto") {
    recipe.runtime.device = flags.device;
  }
  for (const auto& [flag, field] :
       {std::pair(flags.max_steps, &recipe.schedule.max_steps), std::pair(flags.global_batch, &recipe.batch.global),
        std::pair(flags.micro_batch, &recipe.batch.micro)}) {
    if (flag != 0) {
      *field = flag;
    }
  }
  if (flags.is_dry_run) {
    name_what_is_not_opened(recipe);
  }
  DARKROOM_RETURN_IF_ERROR(recipe.validate().with_context(flags.recipe_path));
  return recipe;
}

bool is_launched_here() { return std::getenv(kRankLauncherVariable) != nullptr; }

/// A rank that --nproc started, or a trial of tune, ends with the process that looks after it, however that ends.
void end_with_starter() {
  // The ranks of a trial inherit its variable, too.
  const char* starter = std::getenv(is_launched_here() ? kRankLauncherVariable : kStarterVariable);
  if (starter == nullptr) {
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (starter != std::string_view(kAnyStarter) && std::to_string(getppid()) != starter) {
    _exit(kExitRankLost);  // It ended before.
  }
}

/// This program's own command line, for the ranks that it starts.
Result<std::vector<std::string>> own_command() {
  std::ifstream file("/proc/self/cmdline");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) {
    return Status::unavailable("cannot read this program's own command line:", "/proc/self/cmdline");
  }
  std::vector<std::string> words = {"/proc/self/exe"};
  size_t begin = text.find('\0') + 1;
  while (begin < text.size()) {
    const size_t end = text.find('\0', begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// The ranks of all machines, where --nproc starts `num_here` on this one, which is the `launched` of its launcher; a launcher of several
/// processes a machine is refused.
Result<SpreadGroup> multiply_place(const RankPlace& launched, int64_t num_here) {
  if (launched.local_size > 1 || launched.local_rank > 0) {
    return Status::invalid_argument(
        "--nproc starts the ranks of a machine itself, but the launcher has started several here already; let it start one process a "
        "machine, or drop --nproc (processes of the launcher, here):",
        launched.size, std::max(launched.local_size, launched.local_rank + 1));
  }
  return SpreadGroup{.first_rank = launched.rank * num_here,
                     .size = launched.size * num_here,
                     .host = launched.host,
                     .port = launched.port,
                     .hosts_store = launched.hosts_store,
                     .job = launcher_job_of_environment(),
                     .attempt = launched.attempt};
}

/// What an earlier run wrote as its --json-summary must not stand for this one.
Status remove_old_summary(const std::string& path) {
  if (path.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const WriteTarget target, local_files().find_write_target(path));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, local_files().exists(target.path));
  return is_there && !target.is_stream ? local_files().remove_file(target.path) : Status::ok();
}

/// Whether rank 0 has written --json-summary. What went into a pipe or a terminal is told by how the group ended alone.
bool has_summary(const std::string& path, const Result<int>& ended) {
  const auto target = local_files().find_write_target(path);
  if (target.is_ok() && target->is_stream) {
    return ended.is_ok() || ended.status().code() == StatusCode::kCancelled;
  }
  const auto is_there = local_files().exists(path);
  return is_there.is_ok() && *is_there;
}

/// Rank 0 writes --json-summary where it comes to its end. A group that ends otherwise has this launcher's word.
void say_how_ranks_ended(const Result<int>& ended, VerbContext& context) {
  const bool is_done = ended.is_ok() && *ended == 0;
  if (is_done || context.summary_path.empty() || has_summary(context.summary_path, ended)) {
    return;
  }
  context.writes_summary = true;
  if (ended.is_ok()) {
    context.summary["error"] = fmt::format("the ranks ended with exit code {}, as one of them says in the log", *ended);
  }
}

/// Starts the ranks on this machine and looks after them.
Result<int> launch_ranks(const TrainFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const RankPlace place, rank_place_of_environment());
  DARKROOM_ASSIGN_OR_RETURN(const SpreadGroup all, multiply_place(place, flags.num_ranks));
  TrainOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.recipe, resolve_recipe(flags));
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (all.size > options.recipe.runtime.gradient_groups) {
    return Status::invalid_argument(
        "--nproc wants a gradient group a rank; set runtime.gradient_groups to as many or more (groups, ranks):",
        options.recipe.runtime.gradient_groups, all.size);
  }
  RankGroupOptions group{.command = {}, .num_ranks = flags.num_ranks, .max_restarts = flags.max_restarts};
  // A lost rank is missed after one and a quarter watchdog periods at most: together two, as promised.
  group.patience = std::chrono::milliseconds(750 * options.recipe.runtime.watchdog_seconds);
  if (place.size > 1) {
    context.is_rank();  // Nobody sits here, and whatever stops all machines often signals twice.
    group.of = all;
    group.max_restarts = place.hosts_store ? flags.max_restarts : 0;  // Whoever keeps the store (torchrun) starts all again.
  }
  DARKROOM_ASSIGN_OR_RETURN(group.command, own_command());
  group.command_that_goes_on = options.command_that_goes_on();
  if (place.rank == 0) {  // Else rank 0 is another machine's, and so is the file, perhaps.
    DARKROOM_RETURN_IF_ERROR(remove_old_summary(context.summary_path).with_context("--json-summary"));
  }
  context.writes_summary = false;
  Result<int> ended = run_rank_group(group, context.stop);
  say_how_ranks_ended(ended, context);
  return ended;
}

/// A run folder as all ranks name it, wherever they were started, without what may be secret.
std::string shown_output(const std::string& output) {
  return recorded_uri(output.find("://") == std::string::npos ? std::filesystem::absolute(output).lexically_normal().string() : output);
}

/// Joins the ranks that the environment names. Null: this run is alone.
Result<std::unique_ptr<Communicator>> join_ranks(const RankPlace& place, const TrainOptions& train, const std::stop_token& stop) {
  const Recipe& recipe = train.recipe;
  if (place.size == 1) {
    return std::unique_ptr<Communicator>();
  }
  GlooOptions options;
  options.place = place;
  if (const char* meeting = std::getenv(kRankMeetingVariable)) {
    options.place.attempt = meeting;
  }
  auto agreement = recipe_agreement(recipe);
  agreement["--output"] = shown_output(train.output);  // Of two runs that meet at the same port by mistake.
  agreement["--stop-at"] = train.stop_at;
  agreement["--encoders"] = !train.encoders.empty();  // Their addresses may be other names of the same.
  agreement["--deterministic"] = train.deterministic;
  agreement["kind of device"] = train.device.substr(0, train.device.find(':'));
  agreement["job"] = launcher_job_of_environment();
  options.agreement = agreement.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // A path may be no UTF-8.
  options.stop = stop;
  options.watchdog = std::chrono::seconds(recipe.runtime.watchdog_seconds);
  options.progress = std::chrono::seconds(recipe.runtime.progress_seconds);
  options.on_lost = [rank = place.rank](const std::string& what) {
    alarm(5);  // The disk that hangs may be the log's.
    log_error("train: rank {} ends, because {}", rank, what);
    _exit(kExitRankLost);  // The training thread may wait for ever.
  };
  DARKROOM_ASSIGN_OR_RETURN(auto ranks, join_gloo(options));
  const torch::Device device(train.device);
  if (device.is_cpu()) {
    return ranks;
  }
  return join_gpus(std::move(ranks), {.gpu = device.index(),
                                      .arrival = options.arrival,
                                      .longest = options.longest,
                                      .is_loopback = is_loopback(place.host),
                                      .on_lost = options.on_lost});
}

/// The exit code of a rank among others.
Result<int> end_rank(const Status& status, const RankPlace& place) {
  if (status.code() == StatusCode::kCancelled) {
    if (place.rank == 0) {
      log_warning("train: {}", status.message());
    }
    return 128 + SIGTERM;  // Also of the ranks that got no signal themselves.
  }
  if (status.code() == StatusCode::kUnavailable) {
    log_error("train: rank {}: {}", place.rank, status.message());
    return kExitRankLost;
  }
  return status.with_context(fmt::format("rank {}", place.rank));
}

/// Where this rank's step runs.
Status resolve_train_device(const RankPlace& place, TrainOptions& options) {
  const std::string& asked = options.recipe.runtime.device;
  const RankStarter starter = is_launched_here() ? RankStarter::kThisProgram : RankStarter::kLauncher;
  const auto device = resolve_rank_device(asked, place.local_rank, place.local_size, starter);
  if (!device.is_ok()) {
    return device.status().with_context(fmt::format("--device or the recipe's field 'runtime.device' is \"{}\"", asked));
  }
  options.device = *device;
  return {};
}

/// Where a planned step would run; a GPU need not be here.
Result<std::string> planned_device(const std::string& asked) {
  const auto device = resolve_device(asked);
  if (device.is_ok() || device.status().code() != StatusCode::kUnavailable) {
    return device;
  }
  return asked == "cuda" ? std::string("cuda:0") : asked;
}

Result<int> plan_run(const TrainFlags& flags, VerbContext& context) {
  if (!flags.spot_notice.empty()) {
    DARKROOM_RETURN_IF_ERROR(parse_spot_flag(flags.spot_notice).status());
  }
  DARKROOM_ASSIGN_OR_RETURN(const Recipe recipe, resolve_recipe(flags));
  DARKROOM_ASSIGN_OR_RETURN(const RankPlace place, rank_place_of_environment());
  PlanQuestion question = flags.plan;
  if (question.num_ranks != 0 && flags.num_ranks > question.num_ranks) {
    return Status::invalid_argument(
        "--nproc is how many of the --ranks share a machine, so it cannot be more than these (--nproc, --ranks):", flags.num_ranks,
        question.num_ranks);
  }
  const int64_t ranks_here = flags.num_ranks > 1 ? flags.num_ranks : place.local_size;
  if (question.num_ranks == 0) {
    DARKROOM_ASSIGN_OR_RETURN(const SpreadGroup all, flags.num_ranks > 1 ? multiply_place(place, flags.num_ranks)
                                                                         : Result<SpreadGroup>(SpreadGroup{.size = place.size}));
    question.num_ranks = all.size;
  }
  question.local_ranks = std::min(ranks_here, question.num_ranks);
  DARKROOM_ASSIGN_OR_RETURN(question.device, planned_device(recipe.runtime.device));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  const Result<TrainingPlan> plan = plan_training(*stores, recipe, question, context.stop);
  DARKROOM_RETURN_IF_ERROR(plan.status().with_context(flags.recipe_path));
  context.summary["train"]["estimate"] = plan->to_json();
  log_info("train: an estimate\n{}", plan->to_text());
  return 0;
}

// The token is never on a command line, which others can read.
void take_encoders(const TrainFlags& flags, TrainOptions& options) {
  options.encoder_token = encoder_token();
  const auto milliseconds = [](double seconds) { return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)); };
  options.encoder_timeout = milliseconds(flags.encoder_timeout_seconds);
  options.encoder_patience = milliseconds(flags.encoder_wait_seconds);
}

Result<int> run_train(const TrainFlags& flags, VerbContext& context) {
  if (flags.is_dry_run) {
    return plan_run(flags, context);
  }
  end_with_starter();
  std::unique_ptr<SpotStop> spot;
  if (!flags.spot_notice.empty() && !is_launched_here()) {  // Ranks that --nproc started are told by it.
    DARKROOM_ASSIGN_OR_RETURN(spot, SpotStop::start(flags.spot_notice, context));
  }
  if (flags.num_ranks > 1 && !is_launched_here()) {
    return launch_ranks(flags, context);
  }
  DARKROOM_ASSIGN_OR_RETURN(const RankPlace place, rank_place_of_environment());
  if (place.size > 1) {
    context.is_rank();
    end_on_uncaught_exceptions();
  }
  TrainOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.recipe, resolve_recipe(flags));
  options.is_restart = place.attempt != RankPlace().attempt;
  DARKROOM_RETURN_IF_ERROR(resolve_train_device(place, options));  // Before anything of torch is used.
  if (place.rank != 0) {
    context.writes_summary = false;
  }
  take_encoders(flags, options);
  if (flags.is_sandboxed && !options.recipe.data.raw_path.empty() && options.encoders.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(options.decoder_program, find_decoder());
  }
  DARKROOM_RETURN_IF_ERROR(options.validate());
  keep_freed_memory(torch::Device(options.device));
  const auto ranks = join_ranks(place, options, context.stop);
  if (!ranks.is_ok()) {
    return end_rank(ranks.status(), place);
  }
  if (*ranks != nullptr) {
    options.ranks = ranks->get();
    options.local_ranks = place.local_size;
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto observation, JobObservation::start(flags.observation, {.verb = "train",
                                                                                              .output = options.output,
                                                                                              .rank = place.rank,
                                                                                              .local_rank = place.local_rank,
                                                                                              .local_ranks = place.local_size}));
  if (place.rank != 0) {
    set_verbosity(Verbosity::kQuiet);  // Not before: who watches a cluster reads where each rank's numbers are.
  }
  const auto stores = open_stores(observation->registry(), {});  // A stop ends no read: the step at hand is finished, then saved.
  options.spans = observation->trace();
  if (observation->is_served()) {
    options.metrics = &observation->registry();
  }
  options.rank_tflops = flags.plan.tflops;
  options.counts_work = place.rank == 0 || observation->is_served();
  TrainSummary summary;
  const Status status = run_training(*stores, options, context.stop, summary);
  if (place.rank != 0) {
    return status.is_ok() ? Result<int>(0) : end_rank(status, place);
  }
  context.summary["train"] = summary.to_json();
  observation->tell_cost(context.summary["train"], summary.machines > 0 ? summary.machines * place.local_size : place.size);
  const bool is_stopped = status.code() == StatusCode::kCancelled;
  if (status.is_ok() || is_stopped) {
    const Status reported = write_run_report(*stores, options.output);
    if (is_stopped && !reported.is_ok()) {
      log_warning("the report of the stopped run was not written: {}", reported.message());  // The exit status tells of the stop.
    } else {
      DARKROOM_RETURN_IF_ERROR(reported);
    }
  }
  if (!status.is_ok()) {
    context.summary["error"] = status.message();
    return place.size > 1 ? end_rank(status, place) : Result<int>(status);
  }
  log_info("trained {} steps in {:.0f} s: loss {:.4f} -> {:.4f} (means of the first and last lines), {:.0f} img/s; the run is in {}",
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
  verb.flag("--encoders", value::text(flags.options.encoders, "HOST:PORT,...|@FILE", "none"),
            "encoders of other machines for --raw-data (`darkroom encoder`), or a file with one a line, which is read again and again");
  verb.flag("--encoder-timeout", value::seconds(flags.encoder_timeout_seconds).least(0.001).most(86'400),
            "of --encoders: one that owes something and says nothing for so long is given up, and others are asked");
  verb.flag("--encoder-wait", value::seconds(flags.encoder_wait_seconds).least(0.001).most(604'800),
            "of --encoders: where there is none, the run waits so long for one, then ends");
  verb.flag("--validation", value::uri(flags.validation, "URI", "none"), "held-out dataset, scored every validation.every_steps");
  verb.later({"--num-readers"});
}

void add_run_flags(VerbDefinition& verb, TrainFlags& flags) {
  TrainOptions& options = flags.options;
  verb.group("The run");
  verb.flag("--output", value::uri(options.output, "URI"), "run folder: checkpoints, samples, metrics, events")
      .required_unless("--dry-run");
  verb.flag("--set", value::repeated_texts(flags.settings, "section.key=value"), "a field of the recipe; repeatable");
  verb.flag("--resume", value::uri(options.resume, "auto|none|PATH"),
            "the newest valid checkpoint of the run folder, none, or a checkpoint");
  verb.flag("--init-from", value::uri(options.init_from, "PATH", "none"), "checkpoint or model folder: weights only, step 0");
  verb.flag("--max-steps", value::count(flags.max_steps).least(1).also("recipe", 0), "steps of the run");
  verb.flag("--stop-at", value::count(options.stop_at).least(1).also("end", 0).shown("STEP"),
            "end after this step, with a validation and a checkpoint; with a later one, or none, the same run goes on exactly there");
  verb.flag("--global-batch", value::count(flags.global_batch).least(1).also("recipe", 0), "samples per step");
  verb.flag("--micro-batch", value::count(flags.micro_batch).least(1).also("recipe", 0), "samples per forward pass");
  verb.flag("--deterministic", value::toggle(options.deterministic), "bit-identical runs: refuse operations that are not reproducible");
  verb.flag("--device", value::device(flags.device, false), "where the step runs; auto: as the recipe's runtime.device says");
  verb.flag("--trace", value::path(options.trace_path, "PATH.safetensors", "none"), "record the first steps for checking");
  verb.flag("--trace-steps", value::count(options.trace_steps).least(1).shown("K"), "steps to record");
  verb.flag("--nproc", value::count(flags.num_ranks).least(1).shown("N"),
            "ranks on this machine, with the bits of one; under a launcher of one process a machine, on each");
  verb.flag("--max-restarts", value::count(flags.max_restarts).least(0).shown("K"), "of --nproc: new starts when a rank dies or hangs");
  verb.flag("--spot-notice", value::uri(flags.spot_notice, "aws|gcp|URL|FILE", "none"),
            "where a machine learns that it is taken back: the run saves, and ends as by SIGTERM");
  add_observation_flags(verb, flags.observation);
}

void add_plan_flags(VerbDefinition& verb, TrainFlags& flags) {
  verb.group("What it will take");
  verb.flag("--dry-run", value::toggle(flags.is_dry_run),
            "plan only: memory of a rank, batch, bytes per step, checkpoints and hours; opens no dataset and writes nothing");
  verb.flag(
          "--ranks", value::count(flags.plan.num_ranks).least(1).also("auto", 0),
          "of --dry-run: ranks of the planned run, of which --nproc share a machine (it is --nproc that starts some); auto: those of this "
          "start")
      .only_with("--dry-run");
  verb.flag("--mfu", value::number(flags.plan.mfu).above(0).most(1), "of --dry-run: share of its peak that a rank reaches")
      .only_with("--dry-run");
  verb.flag("--tflops", value::number(flags.plan.tflops).least(0).also("unknown", 0),
            "a rank's peak in 10^12 floating-point operations per second, for the hours of --dry-run and the share of it (MFU) that a run "
            "reaches; unknown: a run measures it at its start, and no hours are told");
}

}  // namespace

void add_train_verb(CommandLine& line) {
  const auto flags = std::make_shared<TrainFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("train", "latents (offline) or raw images (online) -> checkpoints, samples, metrics");
  verb.positional("RECIPE.toml", value::path(flags->recipe_path, "RECIPE.toml"), "what to train and how: recipes/*.toml").required();
  add_data_flags(verb, *flags);
  add_run_flags(verb, *flags);
  add_plan_flags(verb, *flags);
  verb.example("darkroom train recipes/tiny.toml --data latents --model models/tiny --output run", "from stored latents");
  verb.example("darkroom train recipes/tiny.toml --raw-data images --model models/tiny --output run --set optimizer.lr=1e-4 --max-steps 2k",
               "from pictures, with changes to the recipe");
  verb.example("darkroom train recipes/tiny.toml --raw-data images --model models/tiny --output run --encoders node-1:7000,node-2:7000",
               "from pictures that other machines encode");
  verb.example("darkroom train recipes/sd2-256.toml --dry-run --model sd2-base --ranks 32 --device cuda --tflops 989",
               "what the published run takes on 32 GPUs; a preset's name will do for a model here");
  verb.example("darkroom train recipes/tiny.toml --data s3://bucket/latents --model models/tiny --output s3://bucket/run",
               "on a store of objects; keys come from the environment or the AWS files");
  verb.run([flags](VerbContext& context) { return run_train(*flags, context); });
}

}  // namespace darkroom
