#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "darkroom/data/process_job.h"
#include "darkroom/files/file_system.h"
#include "later_flags.h"
#include "verb.h"

namespace darkroom {
namespace {

struct ProcessFlags {
  ProcessOptions options;
  std::string latents = "sample";
  std::string text = "embeddings";
  std::string dtype = "float16";
  std::string compute_dtype = "auto";
  std::string device = "auto";
  std::string resize = "bilinear";
  std::string crop = "center";
  std::string orientation = "ignore";
  std::string tokenizer_dialect = "hf";
  std::vector<std::string> visualize;
};

Result<size_t> choose(const char* flag, const std::string& value, const std::vector<std::string>& choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == value) {
      return i;
    }
  }
  return Status::invalid_argument(fmt::format("{} must be one of {}, got:", flag, fmt::join(choices, ", ")), value);
}

/// The encoders run on the CPU in float32; what asks for something else is refused.
Status check_device(const ProcessFlags& flags) {
  DARKROOM_RETURN_IF_ERROR(choose("--compute-dtype", flags.compute_dtype, {"auto", "float32", "float16", "bfloat16"}).status());
  if (flags.compute_dtype != "auto" && flags.compute_dtype != "float32") {
    return Status::invalid_argument("the encoders compute in float32 only as yet, use --compute-dtype float32; got:", flags.compute_dtype);
  }
  if (flags.device != "auto" && flags.device != "cpu") {
    return Status::invalid_argument("the encoders run on the CPU only as yet, use --device cpu; got:", flags.device);
  }
  return {};
}

Status parse_visualize(const std::vector<std::string>& values, ProcessOptions& options) {
  if (values.empty()) {
    return {};
  }
  const std::string& number = values[0];
  if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != std::string::npos ||
      number.find_first_not_of('0') == std::string::npos) {
    return Status::invalid_argument("--visualize takes a number of samples from 1 to 9999 and a path, got the number:", number);
  }
  options.num_visualized = std::stoi(number);
  options.visualize_path = values[1];
  return {};
}

Result<ProcessOptions> options_of(const ProcessFlags& flags) {
  ProcessOptions options = flags.options;
  DARKROOM_RETURN_IF_ERROR(check_device(flags));
  DARKROOM_RETURN_IF_ERROR(parse_visualize(flags.visualize, options));
  DARKROOM_ASSIGN_OR_RETURN(const size_t latents, choose("--latents", flags.latents, {"sample", "moments"}));
  DARKROOM_ASSIGN_OR_RETURN(const size_t text, choose("--text", flags.text, {"embeddings", "tokens", "both"}));
  DARKROOM_ASSIGN_OR_RETURN(const size_t dtype, choose("--dtype", flags.dtype, {"float16", "float32"}));
  DARKROOM_RETURN_IF_ERROR(choose("--resize", flags.resize, {"bilinear", "bicubic", "lanczos"}).status());
  options.latents = static_cast<LatentsKind>(latents);
  options.text = static_cast<TextKind>(text);
  options.dtype = dtype == 0 ? torch::kFloat16 : torch::kFloat32;
  DARKROOM_ASSIGN_OR_RETURN(options.transform.filter, parse_filter(flags.resize));
  DARKROOM_ASSIGN_OR_RETURN(options.transform.crop, parse_crop(flags.crop));
  DARKROOM_ASSIGN_OR_RETURN(options.transform.orientation, parse_orientation(flags.orientation));
  DARKROOM_ASSIGN_OR_RETURN(options.tokenizer_dialect, parse_tokenizer_dialect(flags.tokenizer_dialect));
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

Result<int> run_verb(const ProcessFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const ProcessOptions options, options_of(flags));
  DARKROOM_ASSIGN_OR_RETURN(const StageSummary summary, run_process(local_files(), options, context.stop));
  context.summary = summary.to_json();
  return 0;
}

void add_work_flags(CLI::App& command, ProcessFlags& flags) {
  ProcessOptions& options = flags.options;
  command
      .add_option("--batch-size", options.batch_size, "rows an encoder takes at once; 0: as many as 4 pictures of 512 x 512 have pixels")
      ->type_name("N");
  command.add_option("--num-readers", options.num_readers, "reading workers; 0: automatic")->type_name("N");
  command.add_option("--num-transformers", options.num_transformers, "CPU workers that decode, transform and tokenise; 0: automatic")
      ->type_name("N");
  command.add_option("--num-encoders", options.num_encoders, "encoder workers; 0: automatic")->type_name("N");
  command.add_option("--encoder-threads", options.encoder_threads, "threads inside one encoder worker; they change the bits")
      ->type_name("N");
  command.add_option("--compute-dtype", flags.compute_dtype, "of the encoders: auto|float32")->type_name("DTYPE");
  command.add_option("--device", flags.device, "where the encoders run: auto|cpu")->type_name("DEVICE");
  command.add_option("--memory", options.memory_bytes, "budget of all queues and buffers, in bytes; 0: a quarter of the machine's")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false));
}

void add_value_flags(CLI::App& command, ProcessFlags& flags) {
  ProcessOptions& options = flags.options;
  command.add_option("--resolution", options.transform.resolution, "target square in pixels, a multiple of the VAE's factor")
      ->type_name("N");
  command.add_option("--latents", flags.latents, "what is kept of a picture: one draw x scaling factor, or mean and log-variance")
      ->type_name("sample|moments");
  command.add_option("--text", flags.text, "what is stored for the caption")->type_name("embeddings|tokens|both");
  command.add_option("--dtype", flags.dtype, "storage type")->type_name("float16|float32");
  command.add_option("--seed", options.seed, "of the posterior draw and the random crop")->type_name("S");
  command.add_option("--resize", flags.resize, "filter")->type_name("bilinear|bicubic|lanczos");
  command.add_option("--crop", flags.crop, "which part of the resized picture")->type_name("center|center_round|random");
  command.add_option("--orientation", flags.orientation, "EXIF orientation")->type_name("ignore|apply");
  command.add_option("--tokenizer-dialect", flags.tokenizer_dialect, "cleaning and padding of captions")->type_name("hf|open_clip");
}

}  // namespace

Verb add_process_verb(CLI::App& program) {
  auto flags = std::make_shared<ProcessFlags>();  // Shared by CLI11's bindings and the action.
  ProcessOptions& options = flags->options;
  CLI::App* command = program.add_subcommand("process", "image parquet -> latents and caption embeddings (or token ids)");
  command->add_option("RAW_URI", options.input, "image dataset: file, folder or pattern")->required();
  command->add_option("OUTPUT_URI", options.output, "folder of the latents dataset")->required();
  command->add_option("--model", options.model, "model folder: its vae, text_encoder and tokenizer are used")->required()->type_name("DIR");
  command->add_option("--rows-per-file", options.rows_per_file, "input rows an output file covers")->type_name("N");
  command->add_option("--limit", options.limit, "only the first N rows; negative: all")->type_name("N");
  add_value_flags(*command, *flags);
  add_work_flags(*command, *flags);
  command->add_option("--visualize", flags->visualize, "picture of N samples: input, latent channels, caption states, decoded latents")
      ->type_name("N PATH.png")
      ->expected(2);
  refuse_later_flags(*command, {"--output-dialect", "--accelerator-type"});
  return {command, [flags](VerbContext& context) { return run_verb(*flags, context); }};
}

}  // namespace darkroom
