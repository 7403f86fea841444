#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/random.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/transform.h"
#include "darkroom/tensor/safetensors.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TransformFlags {
  std::vector<std::string> images;
  std::string output;
  int resolution = 512;
  std::string resize = "bilinear";
  std::string crop = "center";
  std::string orientation = "ignore";
  uint64_t seed = 0;
};

Result<TransformOptions> options_of(const TransformFlags& flags) {
  TransformOptions options;
  options.resolution = flags.resolution;
  DARKROOM_ASSIGN_OR_RETURN(options.filter, parse_filter(flags.resize));
  DARKROOM_ASSIGN_OR_RETURN(options.crop, parse_crop(flags.crop));
  DARKROOM_ASSIGN_OR_RETURN(options.orientation, parse_orientation(flags.orientation));
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

std::string base_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

Status check_names(const std::vector<std::string>& images) {
  std::set<std::string> names;
  for (const std::string& image : images) {
    if (!names.insert(base_name(image)).second) {
      return Status::invalid_argument("two pictures of one base name cannot share an output, rename one:", image);
    }
  }
  return Status::ok();
}

Result<torch::Tensor> transform_file(const std::string& path, const TransformOptions& options, uint64_t seed) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), path));
  const CounterRandom random(seed, Purpose::kCrop, 0, base_name(path));
  const RowResult<TransformedImage> image =
      transform_image(std::as_bytes(std::span(bytes)), options, kAnySize, {random.uniform(0), random.uniform(1)});
  if (!image.is_ok()) {
    return Status::corrupt_data("the picture cannot be used (path, code, reason):", path, image.error().name(), image.error().detail);
  }
  return torch::tensor(image->chw, torch::kFloat32).reshape({3, options.resolution, options.resolution});
}

Result<int> run_transform(const TransformFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const TransformOptions options, options_of(flags));
  DARKROOM_RETURN_IF_ERROR(check_names(flags.images));
  std::vector<NamedTensor> tensors;
  Status first_failure;
  for (const std::string& path : flags.images) {
    if (context.stop.stop_requested()) {
      return Status::cancelled("stopped; nothing was written, run the same command again");
    }
    Result<torch::Tensor> tensor = transform_file(path, options, flags.seed);
    if (tensor.is_ok()) {
      tensors.push_back({base_name(path), *std::move(tensor)});
      continue;
    }
    log_warning("{}", tensor.status().message());
    first_failure = first_failure.is_ok() ? tensor.status() : first_failure;
  }
  context.summary = {{"rows_in", flags.images.size()}, {"rows_out", tensors.size()}};
  if (tensors.empty()) {
    return first_failure.with_context("no picture could be transformed, nothing was written; the first");
  }
  DARKROOM_RETURN_IF_ERROR(write_safetensors_atomic(local_files(), flags.output, tensors));
  if (!first_failure.is_ok()) {
    return first_failure.with_context(
        fmt::format("{} of {} pictures are in the output, the others failed; the first", tensors.size(), flags.images.size()));
  }
  return 0;
}

}  // namespace

Verb add_transform_verb(CLI::App& program) {
  auto flags = std::make_shared<TransformFlags>();  // Shared by CLI11's bindings and the action.
  CLI::App* command = program.add_subcommand("transform", "pictures as the autoencoder sees them, in one safetensors file");
  command->add_option("IMAGE", flags->images, "JPEG, PNG or WebP files; each becomes a tensor [3, N, N] under its base name")->required();
  command->add_option("--resolution", flags->resolution, "target square in pixels")->required()->type_name("N");
  command->add_option("--output", flags->output, "file to write; replaced when it exists")->required()->type_name("OUT.safetensors");
  command->add_option("--resize", flags->resize, "filter: bilinear|bicubic|lanczos|hamming|box")->type_name("FILTER");
  command->add_option("--crop", flags->crop, "center|center_round|random")->type_name("CROP");
  command->add_option("--orientation", flags->orientation, "EXIF orientation: ignore|apply")->type_name("HOW");
  command->add_option("--seed", flags->seed, "of the random crop; the draw depends on the base name, too")->type_name("S");
  return {command, [flags](VerbContext& context) { return run_transform(*flags, context); }};
}

}  // namespace darkroom
