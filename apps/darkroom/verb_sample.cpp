#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/version.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/png.h"
#include "darkroom/tensor/safetensors.h"
#include "open_painter.h"
#include "verb.h"

namespace darkroom {
namespace {

struct SampleFlags {
  PainterSource source;
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::string output;
  PaintRequest request;
  uint64_t seed = 0;
  int images_per_prompt = 1;
  bool grid = false;
  std::string latents_in;
  std::string latents_out;
  std::string init_image;
  int threads = 1;
};

// One prompt a line; an empty line is an empty prompt.
Status read_prompts_file(const std::string& path, std::vector<std::string>& prompts) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(local_files(), path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    prompts.push_back(std::move(line));
    begin = end + 1;
  }
  return Status::ok();
}

// Image j of every prompt has seed + j.
Status fill_pictures(const SampleFlags& flags, PaintRequest& request) {
  std::vector<std::string> prompts = flags.prompts;
  if (!flags.prompts_file.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_prompts_file(flags.prompts_file, prompts));
  }
  if (prompts.empty()) {
    return Status::invalid_argument("there is nothing to paint; give --prompt or --prompts-file");
  }
  for (const std::string& prompt : prompts) {
    for (int j = 0; j < flags.images_per_prompt; ++j) {
      request.prompts.push_back(prompt);
      request.seeds.push_back(flags.seed + static_cast<uint64_t>(j));
    }
  }
  return Status::ok();
}

Status read_latents(const std::string& path, PaintRequest& request) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor latents, file->tensor("latents"));
  if (latents.dim() != 4 || latents.scalar_type() != torch::kFloat32) {
    return Status::failed_precondition("--latents: the tensor `latents` must be float32 [N, C, h, w] (path, shape, type):", path,
                                       c10::str(latents.sizes()), c10::toString(latents.scalar_type()));
  }
  if (latents.size(0) != static_cast<int64_t>(request.prompts.size())) {
    return Status::failed_precondition("--latents holds another number of pictures than asked for (path, latents, pictures):", path,
                                       latents.size(0), request.prompts.size());
  }
  request.unit_noise_nchw = latents;
  return Status::ok();
}

Status read_init_image(const std::string& path, PaintRequest& request) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), path));
  RowResult<Image> image = decode_image(std::as_bytes(std::span(bytes)), kAnySize);
  if (!image.is_ok()) {
    return Status::failed_precondition("--init-image: the picture cannot be read (path, error, detail):", path, image.error().name(),
                                       image.error().detail);
  }
  request.init_images.push_back(std::move(image).value());
  return Status::ok();
}

Status write_latents(const std::string& path, const torch::Tensor& latents) {
  FileSystem& files = local_files();
  const std::string temporary = path + ".partial";
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(path)));
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(temporary));
  DARKROOM_RETURN_IF_ERROR(write_safetensors(files, temporary, {{"latents", latents}}));
  return files.rename_replace(temporary, path);
}

// PATH.png -> PATH-00007.png.
std::string numbered_path(const std::string& path, size_t index) {
  const std::string name = file_name(path);
  const size_t dot = name.rfind('.');
  const std::string stem = dot == std::string::npos || dot == 0 ? path : path.substr(0, path.size() - (name.size() - dot));
  return fmt::format("{}-{:05}{}", stem, index, path.substr(stem.size()));
}

std::vector<PngText> settings_text(const SampleFlags& flags, const PaintRequest& request, const std::string& sampler, size_t index,
                                   const Image& image) {
  std::vector<PngText> text = {{"prompt", request.prompts[index]},
                               {"negative_prompt", request.negative},
                               {"seed", fmt::format("{}", request.seeds[index])},
                               {"sampler", sampler},
                               {"steps", fmt::format("{}", request.sampler.num_steps)},
                               {"guidance", fmt::format("{}", request.guidance)},
                               {"guidance_rescale", fmt::format("{}", request.guidance_rescale)},
                               {"eta", fmt::format("{}", request.sampler.eta)},
                               {"size", fmt::format("{}x{}", image.width, image.height)},
                               {"model", flags.source.model},
                               {"weights", flags.source.weights},
                               {"Software", "darkroom " + std::string(kVersion)}};
  if (request.unit_noise_nchw.defined()) {
    text.emplace_back("latents", flags.latents_in);
  }
  if (!request.init_images.empty()) {
    text.emplace_back("init_image", flags.init_image);
    text.emplace_back("strength", fmt::format("{}", request.strength));
  }
  return text;
}

// Prompts become rows when each has several pictures; else the pictures fill a square.
Image draw_grid(const SampleFlags& flags, const PaintRequest& request, const std::vector<Image>& images) {
  size_t num_columns = static_cast<size_t>(flags.images_per_prompt);
  if (num_columns == 1) {
    while (num_columns * num_columns < images.size()) {
      ++num_columns;
    }
  }
  std::vector<std::vector<ContactSheetCell>> rows;
  for (size_t i = 0; i < images.size(); ++i) {
    if (i % num_columns == 0) {
      rows.emplace_back();
    }
    rows.back().push_back({images[i], request.prompts[i]});
  }
  const int cell = std::clamp(std::max(images[0].width, images[0].height), 128, 512);
  return render_contact_sheet(rows, {.cell_width = cell, .cell_height = cell});
}

Status write_pictures(const SampleFlags& flags, const PaintRequest& request, const std::string& sampler, const Painting& painting) {
  const bool numbered = painting.images.size() > 1 || flags.grid;
  for (size_t i = 0; i < painting.images.size(); ++i) {
    const std::string png = encode_png(painting.images[i], settings_text(flags, request, sampler, i, painting.images[i]));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), numbered ? numbered_path(flags.output, i) : flags.output, png));
  }
  if (flags.grid) {
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), flags.output, encode_png(draw_grid(flags, request, painting.images))));
  }
  return flags.latents_out.empty() ? Status::ok() : write_latents(flags.latents_out, painting.latents_nchw);
}

// Trailing spacing has a timestep -1 for some numbers of steps, as in diffusers. To ddim and pndm that means the table's noisiest
// entry, so the step spoils the picture.
void warn_of_useless_step(const SamplerSpec& spec, const std::string& name, const SchedulerConfig& scheduler) {
  const auto sampler = make_sampler(spec, scheduler);
  if ((name == "ddim" || name == "pndm") && sampler.is_ok() && (*sampler)->timesteps().back() < 0) {
    log_warning("trailing timesteps of {} steps end at -1, as in diffusers, which spoils the picture; take another number of steps",
                spec.num_steps);
  }
}

Result<int> run_sample(const SampleFlags& flags, VerbContext& context) {
  const auto start = std::chrono::steady_clock::now();
  PaintRequest request = flags.request;
  DARKROOM_RETURN_IF_ERROR(fill_pictures(flags, request));
  if (!flags.init_image.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_init_image(flags.init_image, request));
  }
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(parent_folder(flags.output)));
  at::set_num_threads(flags.threads);
  DARKROOM_ASSIGN_OR_RETURN(const auto painter, open_painter(flags.source));
  DARKROOM_ASSIGN_OR_RETURN(const std::string sampler, resolve_sampler_name(request.sampler, painter->scheduler()));
  if (!flags.latents_in.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_latents(flags.latents_in, request));
    if (request.width == 0) {
      request.height = static_cast<int>(request.unit_noise_nchw.size(2)) * painter->latent_factor();
      request.width = static_cast<int>(request.unit_noise_nchw.size(3)) * painter->latent_factor();
    }
  }
  warn_of_useless_step(request.sampler, sampler, painter->scheduler());
  DARKROOM_ASSIGN_OR_RETURN(const Painting painting, painter->paint(request, context.stop));
  DARKROOM_RETURN_IF_ERROR(write_pictures(flags, request, sampler, painting));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto num_pictures = static_cast<double>(painting.images.size());
  context.summary["sample"] = {{"rows_in", request.prompts.size()},
                               {"rows_out", painting.images.size()},
                               {"rows_by_error", nlohmann::json::object()},
                               {"retries", 0},
                               {"seconds", seconds},
                               {"rows_per_second", num_pictures / seconds},
                               {"sampler", sampler},
                               {"steps", request.sampler.num_steps}};
  log_info("painted {} pictures in {:.1f} s ({}, {} steps, guidance {}): {}", painting.images.size(), seconds, sampler,
           request.sampler.num_steps, request.guidance, flags.output);
  return 0;
}

std::vector<std::string> sampler_choices() {
  std::vector<std::string> names;
  for (const std::string_view name : sampler_names()) {
    names.emplace_back(name);
  }
  return names;
}

ValueDefinition sampler_value(std::string& target) {
  ValueDefinition definition = value::choice(target, sampler_choices());
  definition.shown = "NAME";
  definition.default_text = "the model's scheduler";
  return definition;
}

void add_prompt_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("What to paint");
  verb.flag("--prompt", value::free_texts(flags.prompts, "TEXT"), "what to paint; several texts give several pictures");
  verb.flag("--prompts-file", value::path(flags.prompts_file, "PATH", "none"), "one prompt a line");
  verb.flag("--negative", value::free_text(flags.request.negative, "TEXT"), "what guidance leads away from");
  verb.flag("--init-image", value::path(flags.init_image, "PATH", "none"),
            "start from this picture (image to image) instead of noise alone; JPEG, PNG or WebP");
  verb.flag("--strength", value::number(flags.request.strength).above(0).most(1).shown("S"), "with --init-image: share of the steps taken");
  verb.flag("--seed", value::count(flags.seed), "image j of every prompt uses seed + j");
  verb.flag("--images", value::count(flags.images_per_prompt).least(1), "pictures per prompt");
  verb.flag("--size", value::picture_size(flags.request.width, flags.request.height), "of the pictures");
  verb.later_except("--prompt-syntax", "plain");
  verb.later({"--jobs"});
}

void add_sampler_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("How to paint");
  verb.flag("--sampler", sampler_value(flags.request.sampler.name), fmt::format("{}", fmt::join(sampler_names(), ", ")));
  verb.flag("--steps", value::count(flags.request.sampler.num_steps).least(1), "sampling steps");
  verb.flag("--guidance", value::number(flags.request.guidance).shown("S"), "classifier-free guidance scale; at most 1: off");
  verb.flag("--guidance-rescale", value::number(flags.request.guidance_rescale).least(0).most(1).shown("R"),
            "share of the guided output's deviation that is corrected");
  verb.flag("--eta", value::number(flags.request.sampler.eta).least(0).most(1).shown("E"), "noise that ddim adds");
  verb.flag("--batch-size", value::count(flags.request.batch_size).least(1), "pictures painted at a time");
  verb.flag("--threads", value::count(flags.threads).least(1), "threads inside an operation; they change the last bits of a picture");
}

void add_output_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("What is written");
  verb.flag("--output", value::path(flags.output, "PATH.png"), "picture; several pictures become PATH-00000.png, PATH-00001.png, ...")
      .required();
  verb.flag("--grid", value::toggle(flags.grid), "write one sheet with captions to PATH.png, besides numbered single files");
  verb.flag("--save-latents", value::path(flags.latents_out, "PATH.safetensors", "none"), "tensor `latents`, float32 [N, C, h, w], scaled");
  verb.flag("--latents", value::path(flags.latents_in, "PATH.safetensors", "none"),
            "start noise of variance 1 instead of the seeds': tensor `latents`, float32 [N, C, h, w]");
}

}  // namespace

void add_sample_verb(CommandLine& line) {
  const auto flags = std::make_shared<SampleFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("sample", "checkpoint or model folder + prompts -> pictures");
  verb.group("Model");
  verb.flag("--model", value::path(flags->source.model, "DIR_or_CHECKPOINT"), "model folder or checkpoint").required();
  verb.flag("--weights", value::choice(flags->source.weights, {"ema", "unet"}), "of a checkpoint: averaged or last");
  verb.flag("--frozen", value::folder(flags->source.frozen, "DIR", "the one that it names"), "model folder of a checkpoint's frozen parts");
  verb.flag("--tokenizer-dialect", value::text(flags->source.tokenizer_dialect, "hf|open_clip", "auto"),
            "cleaning and padding; auto: the checkpoint's, else hf");
  add_prompt_flags(verb, *flags);
  add_sampler_flags(verb, *flags);
  add_output_flags(verb, *flags);
  verb.example("darkroom sample --model models/tiny --prompt 'a red apple' --output apple.png", "one picture");
  verb.example("darkroom sample --model run/checkpoints/step-00002000 --prompts-file prompts.txt --images 4 --grid --output sheet.png",
               "four pictures per line of a file, from a checkpoint, and a sheet of them");
  verb.run([flags](VerbContext& context) { return run_sample(*flags, context); });
}

}  // namespace darkroom
