#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/log.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/run_component.h"
#include "darkroom/text/clip_tokenizer.h"
#include "darkroom/train/checkpoint.h"
#include "verb.h"

namespace darkroom {
namespace {

using nlohmann::json;

struct InitFlags {
  std::string preset;
  std::string output;
  std::string tokenizer;
  uint64_t seed = 0;
  std::string dtype = "float32";
};

struct CheckFlags {
  std::string model;
};

struct ExportFlags {
  std::string checkpoint;
  std::string output;
  std::string frozen;
  std::string dtype = "float32";
  bool ema = false;
  bool single_file = false;
};

WeightsDtype parse_dtype(const std::string& name) { return name == "float16" ? WeightsDtype::kFloat16 : WeightsDtype::kFloat32; }

// A model appears under its name only when it is complete. `write` makes the folder or file whose path it is given.
Status write_new(const std::string& output, const std::function<Status(const std::string&)>& write) {
  FileSystem& files = local_files();
  DARKROOM_ASSIGN_OR_RETURN(const bool is_taken, files.exists(output));
  if (is_taken) {
    return Status::already_exists("the output is there already; remove it or name another (path):", output);
  }
  const std::string temporary = output + ".partial";
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(temporary));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(output)));
  Status status = write(temporary);
  if (status.is_ok()) {
    status = files.rename_no_replace(temporary, output);
  }
  if (!status.is_ok()) {
    static_cast<void>(files.remove_tree(temporary));  // The first failure is the one to report.
    return status;
  }
  return files.sync_folder(parent_folder(output));
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

// The shipped vocabulary: beside the working folder or beside the program's.
std::optional<std::string> find_shipped_tokenizer() {
  std::error_code ignored;  // Without /proc only the working folder is looked at.
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const auto& root : {std::filesystem::path("."), program.parent_path() / ".."}) {
    const auto folder = root / "models" / "tiny" / "tokenizer";
    if (std::filesystem::exists(folder / "merges.txt", ignored)) {
      return folder.lexically_normal().string();
    }
  }
  return std::nullopt;
}

Status copy_tokenizer(const std::string& from, const std::string& to) {
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, ClipTokenizer::load(local_files(), from, TokenizerDialect::kHuggingFace));
  return tokenizer->save(local_files(), to);
}

template <typename Model>
Model initialized(Model model, uint64_t seed) {
  initialize_parameters(model, seed);
  return model;
}

// One part is in memory at a time.
Status fill_initial_model(const InitFlags& flags, const ModelPreset& preset, const std::string& folder) {
  FileSystem& files = local_files();
  const WeightsDtype dtype = parse_dtype(flags.dtype);
  DARKROOM_RETURN_IF_ERROR(save_unet(files, initialized(UNet2DConditionModel(preset.unet), flags.seed), join_path(folder, "unet"), dtype));
  DARKROOM_RETURN_IF_ERROR(save_vae(files, initialized(AutoencoderKL(preset.vae), flags.seed), join_path(folder, "vae"), dtype));
  DARKROOM_RETURN_IF_ERROR(
      save_text_encoder(files, initialized(ClipTextModel(preset.text_encoder), flags.seed), join_path(folder, "text_encoder"), dtype));

  const auto tokenizer = flags.tokenizer.empty() ? find_shipped_tokenizer() : flags.tokenizer;
  if (tokenizer) {
    DARKROOM_RETURN_IF_ERROR(copy_tokenizer(*tokenizer, join_path(folder, "tokenizer")));
  } else {
    log_warning("no tokenizer found, so the model folder has none; give one with --tokenizer DIR");
  }
  return save_model_index(files, folder, preset.scheduler);
}

Result<int> run_init(const InitFlags& flags) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(flags.preset));
  const std::string output = without_trailing_slash(flags.output);
  DARKROOM_RETURN_IF_ERROR(write_new(output, [&](const std::string& folder) { return fill_initial_model(flags, preset, folder); }));
  log_info("wrote {} with random weights (preset {}, seed {})", output, preset.name, flags.seed);
  return 0;
}

constexpr int64_t kCheckedAtOnce = int64_t{1} << 20;

Status check_finite(const torch::nn::Module& module, const std::string& folder) {
  for (const auto& item : module.named_parameters()) {
    for (const auto& piece : item.value().detach().flatten().split(kCheckedAtOnce)) {  // The check makes copies of what it looks at.
      if (!at::isfinite(piece).all().item<bool>()) {
        return Status::corrupt_data("a weight is NaN or infinite (folder, tensor):", folder, item.key());
      }
    }
  }
  return Status::ok();
}

// Loads and checks one component, prints its line and notes it in the summary. Returns its config.
template <typename Model>
Result<Model> check_component(const std::string& name, const std::string& folder, Result<Model> (*load)(const std::string&),
                              json& summary) {
  DARKROOM_ASSIGN_OR_RETURN(const Model model, load(folder));
  DARKROOM_RETURN_IF_ERROR(check_finite(*model, folder));
  const int64_t parameters = count_parameters(*model);
  const std::string fingerprint = component_fingerprint(model);
  fmt::print("{:<14}{:>14} parameters  {}\n", name, parameters, fingerprint);
  summary[name] = {{"parameters", parameters}, {"fingerprint", fingerprint}};
  return model;
}

// `text_width` is that of all text encoders together, 0 without one.
Status check_fit(const ModelFolder& model, const std::optional<UNet2DConditionModel>& unet, const std::optional<AutoencoderKL>& vae,
                 int64_t text_width) {
  if (unet && vae && (*unet)->config().in_channels != (*vae)->config().latent_channels) {
    return Status::failed_precondition("the parts do not fit: U-Net in_channels and VAE latent_channels differ (folder, U-Net, VAE):",
                                       model.path, (*unet)->config().in_channels, (*vae)->config().latent_channels);
  }
  if (unet && text_width > 0 && (*unet)->config().states_width() != text_width) {
    return Status::failed_precondition(
        "the parts do not fit: U-Net cross_attention_dim and text encoder hidden_size differ (folder, U-Net, text encoder):", model.path,
        (*unet)->config().states_width(), text_width);
  }
  return Status::ok();
}

Status check_tokenizer(const ModelFolder& model, const std::optional<ClipTextModel>& text_encoder, json& summary) {
  if (!model.has_tokenizer) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer,
                            ClipTokenizer::load(local_files(), model.tokenizer_folder(), TokenizerDialect::kHuggingFace));
  if (text_encoder && (*text_encoder)->config().vocab_size < tokenizer->vocabulary_size()) {
    return Status::failed_precondition("the parts do not fit: the tokenizer has more ids than the text encoder (folder, ids, vocab_size):",
                                       model.path, tokenizer->vocabulary_size(), (*text_encoder)->config().vocab_size);
  }
  fmt::print("{:<14}{:>14} ids         {}\n", "tokenizer", tokenizer->vocabulary_size(), tokenizer->fingerprint());
  summary["tokenizer"] = {{"ids", tokenizer->vocabulary_size()}, {"fingerprint", tokenizer->fingerprint()}};
  return Status::ok();
}

Result<int> run_check(const CheckFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder model, open_model_folder(without_trailing_slash(flags.model)));
  std::optional<UNet2DConditionModel> unet;
  std::optional<AutoencoderKL> vae;
  std::optional<ClipTextModel> text_encoder;
  int64_t text_width = 0;
  if (model.has_unet) {
    DARKROOM_ASSIGN_OR_RETURN(unet, check_component("unet", model.unet_folder(), load_any_unet, context.summary));
  }
  if (model.has_vae) {
    DARKROOM_ASSIGN_OR_RETURN(vae, check_component("vae", model.vae_folder(), load_vae, context.summary));
  }
  if (model.has_text_encoder) {
    DARKROOM_ASSIGN_OR_RETURN(text_encoder,
                              check_component("text_encoder", model.text_encoder_folder(), load_text_encoder, context.summary));
    text_width = (*text_encoder)->config().hidden_size;
  }
  if (model.has_text_encoder_2) {
    DARKROOM_ASSIGN_OR_RETURN(const auto second,
                              check_component("text_encoder_2", model.text_encoder_2_folder(), load_text_encoder, context.summary));
    text_width += second->config().hidden_size;
  }
  DARKROOM_RETURN_IF_ERROR(check_tokenizer(model, text_encoder, context.summary));
  if (!model.scheduler_config.is_null()) {
    fmt::print("{:<14}{}, {}\n", "scheduler", model.scheduler_config.value("_class_name", "?"),
               model.scheduler_config.value("prediction_type", "epsilon"));
  }
  DARKROOM_RETURN_IF_ERROR(check_fit(model, unet, vae, text_width));
  return 0;
}

// The parts that the checkpoint did not train, from the model folder that it was trained with.
Status copy_frozen_parts(const ModelFolder& frozen, const std::string& trained, WeightsDtype dtype, const std::string& folder) {
  FileSystem& files = local_files();
  if (frozen.has_unet && trained != "unet") {
    DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_unet(frozen.unet_folder()));
    DARKROOM_RETURN_IF_ERROR(save_unet(files, unet, join_path(folder, "unet"), dtype));
  }
  if (frozen.has_vae && trained != "vae") {
    DARKROOM_ASSIGN_OR_RETURN(const auto vae, load_vae(frozen.vae_folder()));
    DARKROOM_RETURN_IF_ERROR(save_vae(files, vae, join_path(folder, "vae"), dtype));
  }
  if (frozen.has_text_encoder) {
    DARKROOM_ASSIGN_OR_RETURN(const auto text_encoder, load_text_encoder(frozen.text_encoder_folder()));
    DARKROOM_RETURN_IF_ERROR(save_text_encoder(files, text_encoder, join_path(folder, "text_encoder"), dtype));
  }
  if (frozen.has_tokenizer) {
    DARKROOM_RETURN_IF_ERROR(copy_tokenizer(frozen.tokenizer_folder(), join_path(folder, "tokenizer")));
  }
  return Status::ok();
}

Status fill_export(const ExportFlags& flags, const CheckpointRecord& record, const std::string& folder) {
  const WeightsDtype dtype = parse_dtype(flags.dtype);
  const std::string weights = join_path(flags.checkpoint, flags.ema ? "ema" : record.component);
  if (record.component == "vae") {
    DARKROOM_ASSIGN_OR_RETURN(const auto vae, load_vae(weights));
    DARKROOM_RETURN_IF_ERROR(save_vae(local_files(), vae, join_path(folder, "vae"), dtype));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_unet(weights));
    DARKROOM_RETURN_IF_ERROR(save_unet(local_files(), unet, join_path(folder, "unet"), dtype));
  }
  const std::string frozen_path = flags.frozen.empty() ? record.frozen_path : flags.frozen;
  json scheduler = json::object();
  if (!frozen_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const ModelFolder frozen, open_model_folder(frozen_path));
    DARKROOM_RETURN_IF_ERROR(copy_frozen_parts(frozen, record.component, dtype, folder));
    scheduler = frozen.scheduler_config;
  }
  if (!scheduler.is_object() || scheduler.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset("sd2-base"));
    scheduler = preset.scheduler;
  }
  return save_model_index(local_files(), folder, scheduler);
}

// A single file needs all three networks, so the checkpoint's frozen parts must be known.
Status write_export_file(const ExportFlags& flags, const CheckpointRecord& record, const std::string& path) {
  const std::string frozen_path = flags.frozen.empty() ? record.frozen_path : flags.frozen;
  if (frozen_path.empty()) {
    return Status::invalid_argument("a single file holds all parts; name the folder of the frozen ones with --frozen DIR, got none for:",
                                    flags.checkpoint);
  }
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder frozen, open_model_folder(frozen_path));
  const std::string trained = join_path(flags.checkpoint, flags.ema ? "ema" : record.component);
  const bool trained_vae = record.component == "vae";
  DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_unet(trained_vae ? frozen.unet_folder() : trained));
  DARKROOM_ASSIGN_OR_RETURN(const auto vae, load_vae(trained_vae ? trained : frozen.vae_folder()));
  DARKROOM_ASSIGN_OR_RETURN(const auto text_encoder, load_text_encoder(frozen.text_encoder_folder()));
  return save_single_file(local_files(), unet, vae, text_encoder, path, parse_dtype(flags.dtype));
}

Result<int> run_export(const ExportFlags& flags) {
  DARKROOM_ASSIGN_OR_RETURN(const CheckpointRecord record, read_checkpoint(local_files(), flags.checkpoint));
  const std::string output = without_trailing_slash(flags.output);
  DARKROOM_RETURN_IF_ERROR(write_new(output, [&](const std::string& path) {
    return flags.single_file ? write_export_file(flags, record, path) : fill_export(flags, record, path);
  }));
  log_info("wrote {} from step {} of {}", output, record.step, flags.checkpoint);
  return 0;
}

void add_init(CommandLine& line) {
  const auto flags = std::make_shared<InitFlags>();  // Shared by the definitions and the action, as below.
  VerbDefinition& verb = line.add_verb("models init", "a model folder with random weights");
  verb.positional("OUT", value::path(flags->output, "OUT"), "folder to write; must not exist").required();
  verb.flag("--preset", value::choice(flags->preset, preset_names()), "architecture").required();
  verb.flag("--seed", value::count(flags->seed).shown("S"), "of the weights");
  verb.flag("--tokenizer", value::folder(flags->tokenizer, "DIR", "the shipped one"), "tokenizer folder to copy");
  verb.flag("--dtype", value::choice(flags->dtype, {"float32", "float16"}), "how weights are stored");
  verb.example("darkroom models init --preset tiny my-model --seed 1", "small networks to train from the beginning");
  verb.run([flags](VerbContext&) { return run_init(*flags); });
}

void add_check(CommandLine& line) {
  const auto flags = std::make_shared<CheckFlags>();
  VerbDefinition& verb = line.add_verb("models check", "load every part of a model folder or single file and print sizes and fingerprints");
  verb.positional("DIR", value::path(flags->model, "DIR"), "model folder, or an original checkpoint as one safetensors file").required();
  verb.example("darkroom models check models/tiny", "the model that comes with the program");
  verb.run([flags](VerbContext& context) { return run_check(*flags, context); });
}

void add_export(CommandLine& line) {
  const auto flags = std::make_shared<ExportFlags>();
  VerbDefinition& verb = line.add_verb("models export", "a checkpoint and its frozen parts as a model folder");
  verb.positional("CHECKPOINT", value::path(flags->checkpoint, "CHECKPOINT"), "checkpoint folder").required();
  verb.positional("OUT", value::path(flags->output, "OUT"), "folder (with --single-file: file) to write; must not exist").required();
  verb.flag("--ema", value::toggle(flags->ema), "the averaged weights instead of the last ones");
  verb.flag("--single-file", value::toggle(flags->single_file),
            "one safetensors file in the layout of the original SD1 and SD2 checkpoints");
  verb.flag("--frozen", value::folder(flags->frozen, "DIR", "the checkpoint's"), "model folder of the frozen parts");
  verb.flag("--dtype", value::choice(flags->dtype, {"float32", "float16"}), "how weights are stored");
  verb.example("darkroom models export run/checkpoints/step-00002000 my-model --ema", "the averaged weights for diffusers");
  verb.run([flags](VerbContext&) { return run_export(*flags); });
}

void add_forward(CommandLine& line) {
  const auto flags = std::make_shared<ForwardFlags>();
  VerbDefinition& verb = line.add_verb("models forward", "run one component on given tensors");
  verb.positional("DIR", value::path(flags->model, "DIR"), "model folder, single file, or the component's own folder").required();
  verb.flag("--component", value::choice(flags->component, {"unet", "vae_encoder", "vae_decoder", "text_encoder", "text_encoder_2"}),
            "which one")
      .required();
  verb.flag("--inputs", value::path(flags->inputs, "IN.safetensors"), "tensors to read").required();
  verb.flag("--output", value::path(flags->output, "OUT.safetensors"), "tensors to write").required();
  verb.flag("--gradients", value::toggle(flags->gradients), "also every gradient, from the inputs' cotangents");
  verb.flag("--threads", value::count(flags->threads).least(1), "intra-op threads");
  verb.example("darkroom models forward models/tiny --component unet --inputs in.safetensors --output out.safetensors",
               "the U-Net on given tensors, to compare with another implementation");
  verb.run([flags](VerbContext&) -> Result<int> {
    DARKROOM_RETURN_IF_ERROR(run_forward(*flags));
    return 0;
  });
}

}  // namespace

void add_models_verbs(CommandLine& line) {
  line.describe("models", "init, check, export and run model folders in the diffusers layout");
  add_init(line);
  add_check(line);
  add_export(line);
  add_forward(line);
  line.add_later_verb("models fetch");
}

}  // namespace darkroom
