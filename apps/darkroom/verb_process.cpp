#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/tensor/kept_memory.h"
#include "estimates.h"
#include "jobs/job_flags.h"
#include "jobs/job_observation.h"
#include "jobs/standard_orders.h"
#include "opening/open_stores.h"
#include "painting/picture_flags.h"
#include "resources.h"
#include "verb.h"

namespace darkroom {
namespace {

struct ProcessFlags {
  ProcessOptions options;
  std::string compute_dtype = "auto";
  std::string device = "auto";
  bool no_sandbox = false;
  bool clean = false;
  ObservationFlags observation;
  EstimateFlags estimates;
};

Result<int> run_verb(const ProcessFlags& flags, VerbContext& context) {
  if (flags.clean) {
    return run_clean(flags.observation, "process", flags.options.output, flags.options.dry_run, context);
  }
  ProcessOptions options = flags.options;
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_ASSIGN_OR_RETURN(options.place, find_network_place(flags.device, flags.compute_dtype, torch::kFloat16));
  DARKROOM_ASSIGN_OR_RETURN(const auto observation,
                            JobObservation::start(flags.observation, {.verb = "process", .output = options.dry_run ? "" : options.output}));
  options.metrics = &observation->registry();
  options.trace = observation->trace();
  const std::unique_ptr<StoreSet> stores = open_job_stores(observation->registry(), context.stop);
  const bool decodes = options.transformers.empty() || options.num_visualized > 0;
  if (!flags.no_sandbox && !options.dry_run && decodes) {
    DARKROOM_ASSIGN_OR_RETURN(options.decoder_program, find_decoder());
  }
  options.transformer_token = encoder_token();
  StandardOrders orders;
  options.orders = &orders;
  keep_freed_memory(options.place.device);
  StageSummary summary;
  const Status status = run_process(*stores, options, context.stop, summary);
  context.summary["process"] = summary.to_json();
  context.summary["process"]["resolution"] = options.transform.resolution;
  observation->tell_cost(context.summary["process"]);
  DARKROOM_RETURN_IF_ERROR(status);
  if (options.dry_run) {
    DARKROOM_RETURN_IF_ERROR(show_estimate("process", flags.estimates, summary, &process_outlook, context));
    return 0;
  }
  if (!options.selection.on_demand && summary.rows_in > 0 && summary.rows_out == 0) {
    log_error("process finished, but every row failed: the errors by code are above; {} holds no sample", options.output);
    return kExitOverErrorBudget;
  }
  return 0;
}

void add_storage_flags(VerbDefinition& verb, ProcessOptions& options) {
  verb.group("What is stored");
  verb.flag("--latents", value::choice(options.latents, {{"sample", LatentsKind::kSample}, {"moments", LatentsKind::kMoments}}),
            "one draw x scaling factor, or mean and log-variance");
  verb.flag("--text",
            value::choice(options.text, {{"embeddings", TextKind::kEmbeddings}, {"tokens", TextKind::kTokens}, {"both", TextKind::kBoth}}),
            "what is stored for the caption");
  verb.flag("--dtype", value::choice(options.dtype, {{"auto", std::nullopt}, {"float16", torch::kFloat16}, {"float32", torch::kFloat32}}),
            "storage type; auto: float16, and float32 in the dialects anyscale and ray-summit");
  verb.flag("--tokenizer-dialect",
            value::choice(options.tokenizer_dialect, {{"hf", TokenizerDialect::kHuggingFace}, {"open_clip", TokenizerDialect::kOpenClip}}),
            "cleaning and padding of captions");
  verb.flag("--rows-per-file", value::count(options.rows_per_file).least(1), "input rows an output file covers");
  verb.flag("--limit", value::count(options.selection.limit).also("none", -1), "only the first N rows");
  verb.flag("--visualize", value::number_and_path(options.num_visualized, options.visualize_path, "N PATH.png"),
            "picture of N samples: input, latent channels, caption states, decoded latents");
  verb.flag("--caption-column", value::text(options.caption_column, "NAME", "auto"), "column of the captions; auto: by the known names");
  verb.flag("--keep-columns", column_names(options.keep_columns), "columns of the image dataset to carry along, such as hash,url");
  std::vector<std::pair<std::string, LatentsDialect>> dialects;
  for (const LatentsDialect dialect : {LatentsDialect::kDarkroom, LatentsDialect::kAnyscale, LatentsDialect::kRaySummit,
                                       LatentsDialect::kMosaicMl, LatentsDialect::kHuggingFace}) {
    dialects.emplace_back(latents_dialect_name(dialect), dialect);
  }
  verb.flag("--output-dialect", value::choice(options.dialect, dialects), "names and types of the columns, and the container");
}

void add_work_flags(VerbDefinition& verb, ProcessFlags& flags) {
  ProcessOptions& options = flags.options;
  verb.group("How to work");
  verb.flag("--batch-size", value::count(options.batch_size).least(1).also("auto", 0),
            "rows that the workers hand on together, and that the networks take in one call unless --batching is alone; auto: as many as 4 "
            "pictures of 512 x 512 have pixels, at most 64; on a GPU as 40, at most 120");
  verb.flag(
      "--batching",
      value::choice(options.batching, {{"auto", Batching::kAuto}, {"alone", Batching::kAlone}, {"together", Batching::kTogether}}),
      "alone: the networks take a batch row by row, so that no row's bits depend on it; together: in one call, which is faster, and which "
      "the job remembers; auto: alone on the CPU, together on a GPU");
  verb.flag("--num-readers", value::count(options.num_readers).least(1).also("auto", 0), "reading workers");
  verb.flag("--num-transformers", value::count(options.num_transformers).least(1).also("auto", 0),
            "CPU workers that decode, transform and tokenise");
  verb.flag(
      "--transformers", value::text(options.transformers, "HOST:PORT,...|@FILE", "none"),
      "transformers on other machines (`darkroom transformer`) that read, decode and cut instead of this process; @FILE: a file with an "
      "address a line, which is looked at again; DARKROOM_ENCODER_TOKEN as theirs");
  verb.flag("--num-encoders", value::count(options.num_encoders).least(1).also("auto", 0), "encoder workers");
  verb.flag("--encoder-threads", value::count(options.encoder_threads).least(1), "threads inside one encoder worker; they change the bits");
  verb.flag("--compute-dtype", value::choice(flags.compute_dtype, {"auto", "float32", "float16", "bfloat16"}),
            "of the encoders; auto: float32 on the CPU, float16 on a GPU");
  verb.flag("--device", value::device(flags.device, false), "where the encoders run; auto: the first GPU, else the CPU");
  verb.flag("--memory", value::bytes(options.memory_bytes).least(1).also("auto", 0),
            "budget of all queues and buffers together; auto: a quarter of the machine's");
  verb.flag("--no-sandbox", value::toggle(flags.no_sandbox),
            "decode pictures in this process: where the kernel refuses the sandbox, or all pictures are trusted");
  add_estimate_flags(verb, options.dry_run, flags.estimates);
  add_selection_flags(verb, options.selection, flags.clean);
  add_observation_flags(verb, flags.observation);
  verb.later({"--accelerator-type"});
}

}  // namespace

void add_process_verb(CommandLine& line) {
  const auto flags = std::make_shared<ProcessFlags>();  // Shared by the definitions and the action.
  ProcessOptions& options = flags->options;
  VerbDefinition& verb = line.add_verb("process", "image dataset -> latents and caption embeddings (or token ids)");
  verb.positional("RAW_URI", value::uri(options.input, "URI"),
                  "image dataset: folder, file or pattern of Parquet files, webdataset tars, MDS shards, or a folder of pictures")
      .required();
  verb.positional("OUTPUT_URI", value::uri(options.output, "URI"), "folder of the latents dataset").required();
  verb.group("Model");
  verb.flag("--model", value::uri(options.model, "URI"), "model folder: its vae, text_encoder and tokenizer are used")
      .required_unless("--clean");
  verb.group("Pictures");
  add_transform_flags(verb, options.transform, options.seed, "the posterior draw and the random crop");
  add_storage_flags(verb, options);
  add_work_flags(verb, *flags);
  verb.example("darkroom process images latents --model models/tiny --resolution 64", "latents for the tiny model");
  verb.example("darkroom process images latents --model sd2-base --resolution 256 --text tokens --visualize 8 look.png",
               "small files for Stable Diffusion 2, and a picture of eight samples");
  verb.example(
      "darkroom process s3://bucket/images s3://bucket/latents --model hf://stabilityai/stable-diffusion-2-base --resolution 256",
      "from and to a store of objects, with a model of the hub; --shard I/N, or this very command, on as many machines as there are");
  verb.run([flags](VerbContext& context) { return run_verb(*flags, context); });
}

}  // namespace darkroom
