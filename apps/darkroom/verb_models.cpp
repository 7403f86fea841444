#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/check_model.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/run_component.h"
#include "darkroom/nn/write_model.h"
#include "darkroom/stores/model_copy.h"
#include "darkroom/tables/folder_archive.h"
#include "opening/model_source.h"
#include "opening/open_stores.h"
#include "opening/remote_models.h"
#include "resources.h"
#include "verb.h"

namespace darkroom {
namespace {

using DtypeChoices = std::vector<std::pair<std::string, WeightsDtype>>;

const DtypeChoices& dtype_choices() {
  static const DtypeChoices choices = {{"float32", WeightsDtype::kFloat32}, {"float16", WeightsDtype::kFloat16}};
  return choices;
}

struct InitFlags {
  std::string preset;
  std::string output;
  std::string tokenizer;
  uint64_t seed = 0;
  WeightsDtype dtype = WeightsDtype::kFloat32;
};

struct CheckFlags {
  std::string model;
};

struct ExportFlags {
  ModelSource source;
  std::string output;
  WeightsDtype dtype = WeightsDtype::kFloat32;
  bool ema = false;
  bool single_file = false;
  bool sagemaker = false;
};

Result<int> run_init(const InitFlags& flags, const VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(flags.preset));
  FoundModel vocabulary;
  vocabulary.tokenizer_folder = flags.tokenizer;
  vocabulary.has_own_tokenizer = !flags.tokenizer.empty();
  vocabulary.is_version_1 = preset.text_encoder.hidden_act == ClipActivation::kQuickGelu;
  if (flags.tokenizer.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(vocabulary.tokenizer_folder, find_resource(kShippedTokenizer));
  }
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  DARKROOM_RETURN_IF_ERROR(write_model_at(*stores, flags.output, ModelForm::kFolder, context.stop, [&](const std::string& path) {
    return write_random_model(local_files(), preset, flags.seed, flags.dtype, tokenizer_writer(vocabulary), path, context.stop);
  }));
  log_info("wrote {} with random weights (preset {}, seed {})", flags.output, preset.name, flags.seed);
  return 0;
}

// Where the shipped vocabulary is missing, a model that needs it says so.
std::string shipped_tokenizer() {
  const Result<std::string> found = find_resource(kShippedTokenizer);
  return found.is_ok() ? *found : std::string();
}

Status check_tokenizer(const FoundModel& model, int64_t num_ids, nlohmann::json& summary) {
  if (model.tokenizer_folder.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(model, TokenizerDialect::kHuggingFace));
  if (num_ids > 0 && num_ids < tokenizer->vocabulary_size()) {
    return Status::failed_precondition("the parts do not fit: the tokenizer has more ids than the text encoder (folder, ids, vocab_size):",
                                       model.folder, tokenizer->vocabulary_size(), num_ids);
  }
  fmt::print("{:<14}{:>14} ids         {}{}\n", "tokenizer", tokenizer->vocabulary_size(), tokenizer->fingerprint(),
             model.has_own_tokenizer ? "" : "  (the shipped one)");
  summary["tokenizer"] = {{"ids", tokenizer->vocabulary_size()}, {"fingerprint", tokenizer->fingerprint()}};
  return Status::ok();
}

Result<int> run_check(const CheckFlags& flags, VerbContext& context) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  DARKROOM_ASSIGN_OR_RETURN(const LocalCopy copy, fetch_model_files(*stores, flags.model, {}, context.stop));
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel found, find_model_folder(copy.path(), shipped_tokenizer()));
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(found.folder));
  const auto print_part = [&](const PartReport& part) {
    fmt::print("{:<14}{:>14} parameters  {}\n", part.name, part.num_parameters, part.fingerprint);
    context.summary[part.name] = {{"parameters", part.num_parameters}, {"fingerprint", part.fingerprint}};
  };
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_ids, check_model(folder, print_part, context.stop));
  DARKROOM_RETURN_IF_ERROR(check_tokenizer(found, num_ids, context.summary));
  if (!found.parts.scheduler.is_null()) {
    fmt::print("{:<14}{}, {}\n", "scheduler", found.parts.scheduler.value("_class_name", "?"),
               found.parts.scheduler.value("prediction_type", "epsilon"));
  }
  return 0;
}

// SageMaker unpacks the archive into /opt/ml/model, which `serve` opens.
Status write_archive(const std::string& path, const std::function<Status(const std::string& folder)>& write_folder,
                     const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::make());
  const std::string folder = join_path(scratch.path(), "model");
  DARKROOM_RETURN_IF_ERROR(write_folder(folder));
  return write_folder_archive(local_files(), folder, path, stop);
}

Result<int> run_export(const ExportFlags& flags, const VerbContext& context) {
  if (flags.single_file && flags.sagemaker) {
    return Status::invalid_argument("a model is exported in one form: --single-file or --sagemaker");
  }
  ModelSource source = flags.source;
  source.shipped_tokenizer = shipped_tokenizer();
  source.weights = flags.ema ? "ema" : "unet";
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  DARKROOM_ASSIGN_OR_RETURN(const SourceCopies copies, fetch_source(*stores, source, context.stop));
  DARKROOM_ASSIGN_OR_RETURN(FoundModel found, find_model(source));
  if (flags.ema && !found.checkpoint) {
    return Status::invalid_argument("--ema belongs to a checkpoint, but the model is a folder or file:", flags.source.model);
  }
  if (!flags.single_file && !found.parts.unet.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(found.parts.scheduler, require_scheduler(found));
  }
  const auto write_folder = [&](const std::string& path) {
    return export_model_folder(local_files(), found.parts, flags.dtype, tokenizer_writer(found), path, context.stop);
  };
  const ModelForm form = flags.single_file || flags.sagemaker ? ModelForm::kSingleFile : ModelForm::kFolder;
  DARKROOM_RETURN_IF_ERROR(write_model_at(*stores, flags.output, form, context.stop, [&](const std::string& path) {
    return flags.single_file ? export_single_file(local_files(), found.parts, flags.dtype, path, context.stop)
           : flags.sagemaker ? write_archive(path, write_folder, context.stop)
                             : write_folder(path);
  }));
  log_info("wrote {} from {}{}", flags.output, found.checkpoint ? fmt::format("step {} of ", found.checkpoint->step) : "",
           recorded_uri(flags.source.model));
  return 0;
}

void add_init(CommandLine& line) {
  const auto flags = std::make_shared<InitFlags>();  // Shared by the definitions and the action, as below.
  VerbDefinition& verb = line.add_verb("models init", "a model folder with random weights");
  verb.positional("OUT", value::uri(flags->output, "OUT"), "folder to write; must not exist").required();
  verb.flag("--preset", value::choice(flags->preset, preset_names()), "architecture").required();
  verb.flag("--seed", value::count(flags->seed).shown("S"), "of the weights");
  verb.flag("--tokenizer", value::folder(flags->tokenizer, "DIR", "the shipped one"), "tokenizer folder to copy");
  verb.flag("--dtype", value::choice(flags->dtype, dtype_choices()), "how weights are stored");
  verb.example("darkroom models init --preset tiny my-model --seed 1", "small networks to train from the beginning");
  verb.run([flags](VerbContext& context) { return run_init(*flags, context); });
}

void add_check(CommandLine& line) {
  const auto flags = std::make_shared<CheckFlags>();
  VerbDefinition& verb = line.add_verb("models check", "load every part of a model folder or single file and print sizes and fingerprints");
  verb.positional("DIR", value::uri(flags->model, "DIR"), "model folder, or an original checkpoint as one safetensors file").required();
  verb.example("darkroom models check models/tiny", "the model that comes with the program");
  verb.run([flags](VerbContext& context) { return run_check(*flags, context); });
}

void add_export(CommandLine& line) {
  const auto flags = std::make_shared<ExportFlags>();
  VerbDefinition& verb = line.add_verb("models export", "a checkpoint, model folder or single file as a model folder or single file");
  verb.positional("MODEL", value::uri(flags->source.model, "MODEL"),
                  "checkpoint folder, model folder, or original checkpoint as one safetensors file")
      .required();
  verb.positional("OUT", value::uri(flags->output, "OUT"), "folder (with --single-file or --sagemaker: file) to write; must not exist")
      .required();
  verb.flag("--ema", value::toggle(flags->ema), "of a checkpoint: the averaged weights instead of the last ones");
  verb.flag("--single-file", value::toggle(flags->single_file),
            "one safetensors file in the layout of the original SD1 and SD2 checkpoints");
  verb.flag("--sagemaker", value::toggle(flags->sagemaker),
            "a .tar.gz of the model folder: the model archive of a SageMaker endpoint whose container runs `serve`");
  verb.flag("--frozen", value::uri(flags->source.frozen, "DIR", "the checkpoint's"), "model folder of a checkpoint's frozen parts");
  verb.flag("--prediction-type", value::choice(flags->source.prediction_type, prediction_choices()),
            "what the U-Net predicts; a single file of version 2 does not say it");
  verb.flag("--dtype", value::choice(flags->dtype, dtype_choices()), "how weights are stored");
  verb.example("darkroom models export run/checkpoints/step-00002000 my-model --ema", "the averaged weights for diffusers");
  verb.example("darkroom models export my-model my-model.safetensors --single-file", "a model folder as one file");
  verb.example("darkroom models export my-model s3://bucket/model.tar.gz --sagemaker", "what a SageMaker endpoint's ModelDataUrl names");
  verb.run([flags](VerbContext& context) { return run_export(*flags, context); });
}

void add_forward(CommandLine& line) {
  const auto run = std::make_shared<ComponentRun>();
  VerbDefinition& verb = line.add_verb("models forward", "run one component on given tensors");
  verb.positional("DIR", value::path(run->model, "DIR"), "model folder, single file, or the component's own folder").required();
  verb.flag("--component", value::choice(run->component, component_names()), "which one").required();
  verb.flag("--inputs", value::path(run->inputs, "IN.safetensors"), "tensors to read").required();
  verb.flag("--output", value::path(run->output, "OUT.safetensors"), "tensors to write").required();
  verb.flag("--gradients", value::toggle(run->gradients), "also every gradient, from the inputs' cotangents");
  verb.flag("--packed", value::toggle(run->packed), "as `sample` runs it on the CPU: weights laid out once, without gradients");
  verb.flag("--threads", value::count(run->threads).least(1), "intra-op threads");
  verb.example("darkroom models forward models/tiny --component unet --inputs in.safetensors --output out.safetensors",
               "the U-Net on given tensors, to compare with another implementation");
  verb.run([run](VerbContext& context) -> Result<int> {
    DARKROOM_RETURN_IF_ERROR(run_component(*run, context.stop));
    return 0;
  });
}

}  // namespace

void add_models_verbs(CommandLine& line) {
  line.describe("models", "init, fetch, check, export and run model folders in the diffusers layout");
  add_init(line);
  add_models_fetch_verb(line);
  add_check(line);
  add_export(line);
  add_forward(line);
}

}  // namespace darkroom
