#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "child_process/rank_group.h"
#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/encode/encoder_service.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tensor/kept_memory.h"
#include "darkroom/train/recipe.h"
#include "darkroom/train/recipe_encoding.h"
#include "jobs/job_observation.h"
#include "opening/open_stores.h"
#include "painting/picture_flags.h"
#include "resources.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr std::chrono::seconds kSendPatience{20};  // SIGKILL often comes 30 s after SIGTERM.

struct EncoderFlags {
  EncoderServiceOptions options;
  std::string recipe_path;
  std::vector<std::string> settings;
  std::string listen = "127.0.0.1:0";
  std::string compute_dtype = "auto";
  std::string device = "auto";
  torch::Dtype dtype = torch::kFloat16;
  bool is_sandboxed = true;
  ObservationFlags observation;
};

/// What is encoded and how, by the trainer's recipe and what its command line changes of that.
Status take_recipe(const EncoderFlags& flags, const GivenWords& given, ProcessOptions& options) {
  for (const char* name :
       {"--resolution", "--resize", "--crop", "--orientation", "--seed", "--dtype", "--tokenizer-dialect", "--rows-per-file"}) {
    if (given.contains(name)) {
      return Status::invalid_argument("--recipe says this, too: take it away, or change the recipe's field with --set:", name);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(Recipe recipe, load_recipe(local_files(), flags.recipe_path));
  for (const std::string& setting : flags.settings) {
    DARKROOM_RETURN_IF_ERROR(set_recipe_field(recipe, setting));
  }
  for (const auto& [given_path, path] : {std::pair(&options.input, &recipe.data.raw_path), std::pair(&options.model, &recipe.model.path)}) {
    if (!given_path->empty()) {
      *path = *given_path;
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const ProcessOptions of_recipe, encoding_of(recipe));
  if (of_recipe.input.empty() || of_recipe.model.empty()) {
    return Status::invalid_argument("neither the recipe nor --raw-data and --model name the pictures and the model; recipe:",
                                    flags.recipe_path);
  }
  options.input = of_recipe.input;
  options.model = of_recipe.model;
  options.transform = of_recipe.transform;
  options.dtype = of_recipe.dtype;
  options.seed = of_recipe.seed;
  options.rows_per_file = of_recipe.rows_per_file;
  options.tokenizer_dialect = of_recipe.tokenizer_dialect;
  return {};
}

/// A stop breaks off the start, with what the stores read; later ones read on, for slices that are being made.
Result<std::unique_ptr<EncoderService>> start_service(StoreSet& stores, const EncoderServiceOptions& options, std::stop_source& reading,
                                                      const std::stop_token& stop) {
  const std::stop_callback at_stop(stop, [&reading] { reading.request_stop(); });
  return EncoderService::start(stores, options, stop);
}

Result<int> run_encoder(const EncoderFlags& flags, VerbContext& context) {
  EncoderServiceOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.address, parse_listen_address(flags.listen));
  options.token = encoder_token();
  options.process.dtype = flags.dtype;
  if (!flags.recipe_path.empty()) {
    DARKROOM_RETURN_IF_ERROR(take_recipe(flags, context.given, options.process));
  }
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_ASSIGN_OR_RETURN(options.process.place, find_network_place(flags.device, flags.compute_dtype, torch::kFloat16));
  if (flags.is_sandboxed) {
    DARKROOM_ASSIGN_OR_RETURN(options.process.decoder_program, find_decoder());
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto observation, JobObservation::start(flags.observation, {.verb = "encoder"}));
  options.process.metrics = &observation->registry();
  options.process.trace = observation->trace();
  keep_freed_memory(options.process.place.device);
  std::stop_source ended;
  const std::stop_callback at_stop(context.stop, [&ended] { ended.request_stop(); });
  std::atomic<bool> is_lost = false;
  options.lost = [&](const Status& why) {
    if (!is_lost.exchange(true)) {
      log_error("encoder: {}", why.message());
      ended.request_stop();
    }
  };
  std::stop_source reading;  // Of the stores.
  const auto stores = open_stores(observation->registry(), reading.get_token());
  DARKROOM_ASSIGN_OR_RETURN(const auto service, start_service(*stores, options, reading, context.stop));
  DARKROOM_RETURN_IF_ERROR(print_text(fmt::format("encoder ready at {}\n", service->address().to_string())));
  log_info("encoding {} rows for trainers, {} slices at a time", service->num_rows(), service->num_encoders());
  system_clock().sleep_until(Clock::Instant::max(), ended.get_token());
  if (!service->drain(kSendPatience)) {
    log_warning("encoder: slices that were not sent within {} s are given up", kSendPatience.count());
  }
  reading.request_stop();
  const SliceServerCounts counts = service->counts();
  const double idle_seconds = counts.seconds * service->num_encoders() - counts.busy_seconds;
  context.summary["encoder"] = {{"rows", counts.rows},
                                {"slices", counts.slices},
                                {"seconds", counts.seconds},
                                {"busy_seconds", counts.busy_seconds},
                                {"idle_seconds", idle_seconds}};
  observation->tell_cost(context.summary["encoder"]);
  log_info("encoded {} rows in {} slices; busy {:.1f} s, idle {:.1f} s", counts.rows, counts.slices, counts.busy_seconds, idle_seconds);
  return is_lost ? kExitRankLost : 0;  // A new process may find the GPU again, or another one.
}

void add_picture_flags(VerbDefinition& verb, EncoderFlags& flags) {
  ProcessOptions& options = flags.options.process;
  TransformOptions& transform = options.transform;
  verb.group("What is encoded, and how: as the trainer's recipe says");
  verb.flag("--recipe", value::path(flags.recipe_path, "RECIPE.toml", "none"), "the trainer's: all that follows here is taken from it");
  verb.flag("--set", value::repeated_texts(flags.settings, "section.key=value"), "of --recipe: a field, as the trainer's; repeatable")
      .only_with("--recipe");
  verb.flag("--raw-data", value::uri(options.input, "URI", "the recipe's"), "image dataset, as the trainer's --raw-data")
      .required_unless("--recipe");
  verb.flag("--model", value::uri(options.model, "URI", "the recipe's"), "model folder: its vae, text_encoder and tokenizer are used")
      .required_unless("--recipe");
  verb.flag("--resolution", value::count(transform.resolution).least(1).unit("pixels"), "data.resolution");
  verb.flag(
      "--resize",
      value::choice(transform.filter, {{"bilinear", Filter::kBilinear}, {"bicubic", Filter::kBicubic}, {"lanczos", Filter::kLanczos}}),
      "data.resize");
  verb.flag("--crop", value::choice(transform.crop, {{"center", Crop::kCenter}, {"random", Crop::kRandom}}), "data.crop");
  verb.flag("--orientation", value::choice(transform.orientation, {{"ignore", Orientation::kIgnore}, {"apply", Orientation::kApply}}),
            "data.orientation");
  verb.flag("--seed", value::count(options.seed).shown("S"), "data.process_seed: of the posterior draw and the random crop");
  verb.flag("--dtype", value::choice(flags.dtype, {{"float16", torch::kFloat16}, {"float32", torch::kFloat32}}),
            "data.storage_dtype: of what is sent");
  verb.flag("--tokenizer-dialect",
            value::choice(options.tokenizer_dialect, {{"hf", TokenizerDialect::kHuggingFace}, {"open_clip", TokenizerDialect::kOpenClip}}),
            "data.tokenizer_dialect");
  verb.flag("--rows-per-file", value::count(options.rows_per_file).least(1), "data.rows_per_file");
}

void add_encoding_flags(VerbDefinition& verb, EncoderFlags& flags) {
  ProcessOptions& options = flags.options.process;
  verb.group("How to work: all encoders of a run alike");
  verb.flag("--listen", value::text(flags.listen, "ADDRESS:PORT"),
            "where; port 0: one that is free, which the first line on stdout names; beyond loopback DARKROOM_ENCODER_TOKEN must be set");
  verb.flag("--max-trainers", value::count(flags.options.max_trainers).least(1).most(4096), "connections at a time: a rank is one");
  verb.flag("--device", value::device(flags.device, false), "where the encoders run; auto: the first GPU, else the CPU");
  verb.flag("--compute-dtype", value::choice(flags.compute_dtype, {"auto", "float32", "float16", "bfloat16"}),
            "of the encoders; auto: float32 on the CPU, float16 on a GPU");
  verb.flag("--batching",
            value::choice(options.batching, {{"auto", Batching::kAuto}, {"alone", Batching::kAlone}, {"together", Batching::kTogether}}),
            "as of process: alone on the CPU, together on a GPU");
  verb.flag("--batch-size", value::count(options.batch_size).least(1).also("auto", 0), "rows in one call of the networks, as of process");
  verb.flag("--num-encoders", value::count(options.num_encoders).least(1).also("auto", 0), "slices that are worked on at a time");
  verb.flag("--encoder-threads", value::count(options.encoder_threads).least(1), "threads inside one encoder worker; they change the bits");
  verb.flag("--memory", value::bytes(options.memory_bytes).least(1).also("auto", 0),
            "of encoded pictures and of rows that are kept for the next who asks; auto: a quarter of the machine's");
  verb.flag("--no-sandbox", value::toggle_off(flags.is_sandboxed),
            "decode pictures in this process: where the kernel refuses the sandbox, or all pictures are trusted");
  add_observation_flags(verb, flags.observation);
}

}  // namespace

void add_encoder_verb(CommandLine& line) {
  const auto flags = std::make_shared<EncoderFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("encoder", "encodes an image dataset for `train --encoders` on other machines");
  add_picture_flags(verb, *flags);
  add_encoding_flags(verb, *flags);
  verb.example("darkroom encoder --raw-data images --model models/tiny --resolution 64", "on this machine, at a port that is printed");
  verb.example(
      "darkroom encoder --raw-data s3://bucket/images --model hf://stabilityai/stable-diffusion-2-base --resolution 256 --listen "
      "0.0.0.0:7000",
      "on a machine of its own, with DARKROOM_ENCODER_TOKEN in its environment");
  verb.run([flags](VerbContext& context) { return run_encoder(*flags, context); });
}

}  // namespace darkroom
