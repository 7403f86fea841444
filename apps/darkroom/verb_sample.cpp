#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
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
  std::string size;
  bool grid = false;
  std::string latents_in;
  std::string latents_out;
  std::string init_image;
  int threads = 1;
};

Status parse_size(const std::string& text, PaintRequest& request) {
  const size_t cross = text.find('x');
  const auto parse = [](std::string_view digits, int& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value > 0;
  };
  const std::string_view view = text;
  if (cross == std::string::npos || !parse(view.substr(0, cross), request.width) || !parse(view.substr(cross + 1), request.height)) {
    return Status::invalid_argument("--size must be WIDTHxHEIGHT in pixels, such as 512x512, got:", text);
  }
  return Status::ok();
}

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
  if (flags.images_per_prompt < 1) {
    return Status::invalid_argument("--images must be at least 1, got:", flags.images_per_prompt);
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
  return flags.latents_out.empty() ? Status::ok()
                                   : write_safetensors_atomic(local_files(), flags.latents_out, {{"latents", painting.latents_nchw}});
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
  if (flags.threads < 1) {
    return Status::invalid_argument("--threads must be at least 1, got:", flags.threads);
  }
  if (!flags.size.empty()) {
    DARKROOM_RETURN_IF_ERROR(parse_size(flags.size, request));
  }
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
    if (flags.size.empty()) {
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

void add_setting_flags(CLI::App& command, SampleFlags& flags) {
  command
      .add_option("--sampler", flags.request.sampler.name,
                  fmt::format("{}; default: the model's scheduler", fmt::join(sampler_names(), ", ")))
      ->type_name("NAME");
  command.add_option("--steps", flags.request.sampler.num_steps, "sampling steps")->type_name("N");
  command.add_option("--guidance", flags.request.guidance, "classifier-free guidance scale; at most 1: off")->type_name("S");
  command
      .add_option("--guidance-rescale", flags.request.guidance_rescale, "share of the guided output's deviation that is corrected, 0 to 1")
      ->type_name("R");
  command.add_option("--eta", flags.request.sampler.eta, "noise that ddim adds, 0 to 1")->type_name("E");
  command.add_option("--seed", flags.seed, "image j of every prompt uses seed + j")->type_name("N");
  command.add_option("--images", flags.images_per_prompt, "pictures a prompt")->type_name("N");
  command.add_option("--size", flags.size, "in pixels; default: the model's")->type_name("WxH");
  command.add_option("--batch-size", flags.request.batch_size, "pictures painted at a time")->type_name("N");
  command.add_option("--threads", flags.threads, "threads inside an operation; they change the last bits of a picture")->type_name("N");
}

}  // namespace

Verb add_sample_verb(CLI::App& program) {
  // Shared by the flags' bindings and the action.
  const auto flags = std::make_shared<SampleFlags>();
  CLI::App* command = program.add_subcommand("sample", "checkpoint or model folder + prompts -> pictures");
  command->add_option("--model", flags->source.model, "model folder or checkpoint")->type_name("DIR")->required();
  command->add_option("--prompt", flags->prompts, "what to paint; several texts give several pictures")->type_name("TEXT");
  command->add_option("--prompts-file", flags->prompts_file, "one prompt a line")->type_name("PATH");
  command->add_option("--negative", flags->request.negative, "what guidance leads away from")->type_name("TEXT");
  command->add_option("--output", flags->output, "picture; several pictures become PATH-00000.png, PATH-00001.png, ...")
      ->type_name("PATH.png")
      ->required();
  add_setting_flags(*command, *flags);
  command->add_flag("--grid", flags->grid, "write one sheet with captions to PATH.png, besides numbered single files");
  command->add_option("--weights", flags->source.weights, "of a checkpoint: ema or unet")->type_name("NAME");
  command->add_option("--frozen", flags->source.frozen, "model folder of a checkpoint's frozen parts; default: the one it names")
      ->type_name("DIR");
  command->add_option("--tokenizer-dialect", flags->source.tokenizer_dialect, "hf or open_clip; default: the checkpoint's, else hf")
      ->type_name("NAME");
  command->add_option("--save-latents", flags->latents_out, "tensor `latents`, float32 [N, C, h, w], scaled")
      ->type_name("PATH.safetensors");
  command
      ->add_option("--latents", flags->latents_in,
                   "start noise of variance 1 instead of the seeds': tensor `latents`, float32 [N, C, h, w]")
      ->type_name("PATH.safetensors");
  command
      ->add_option("--init-image", flags->init_image, "start from this picture (image to image) instead of noise alone; JPEG, PNG or WebP")
      ->type_name("PATH");
  command->add_option("--strength", flags->request.strength, "with --init-image: share of the steps taken, above 0 to 1")->type_name("S");
  return {command, [flags](VerbContext& context) { return run_sample(*flags, context); }};
}

}  // namespace darkroom
