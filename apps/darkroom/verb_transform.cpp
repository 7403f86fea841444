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
  TransformOptions options;
  uint64_t seed = 0;
};

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
  // Else one of them would cost all, when the one file of them is written.
  if (!can_name_tensor(base_name(path))) {
    return Status::corrupt_data("a picture's base name becomes a tensor's, which is UTF-8 and not __metadata__, rename it:", path);
  }
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
  const TransformOptions& options = flags.options;
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_names(flags.images));
  std::vector<NamedTensor> tensors;
  Status first_failure;
  int64_t num_read = 0;
  const auto count = [&] { context.summary = {{"rows_in", num_read}, {"rows_out", tensors.size()}}; };
  for (const std::string& path : flags.images) {
    count();
    if (context.stop.stop_requested()) {
      return Status::cancelled("stopped; nothing was written, run the same command again");
    }
    ++num_read;
    Result<torch::Tensor> tensor = transform_file(path, options, flags.seed);
    if (tensor.is_ok()) {
      tensors.push_back({base_name(path), *std::move(tensor)});
      continue;
    }
    log_warning("{}", tensor.status().message());
    first_failure = first_failure.is_ok() ? tensor.status() : first_failure;
  }
  count();
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

void add_transform_verb(CommandLine& line) {
  const auto flags = std::make_shared<TransformFlags>();  // Shared by the definitions and the action.
  TransformOptions& options = flags->options;
  VerbDefinition& verb = line.add_verb("transform", "pictures as the autoencoder sees them, in one safetensors file");
  verb.positional("IMAGE", value::paths(flags->images, "IMAGE"),
                  "JPEG, PNG or WebP files; each becomes a tensor [3, N, N] under its base name")
      .required();
  verb.flag("--resolution", value::count(options.resolution).least(1).unit("pixels"), "target square").required();
  verb.flag("--output", value::path(flags->output, "OUT.safetensors"), "file to write; replaced when it exists").required();
  verb.flag("--resize",
            value::choice(options.filter, {{"bilinear", Filter::kBilinear},
                                           {"bicubic", Filter::kBicubic},
                                           {"lanczos", Filter::kLanczos},
                                           {"hamming", Filter::kHamming},
                                           {"box", Filter::kBox}}),
            "filter");
  verb.flag("--crop",
            value::choice(options.crop, {{"center", Crop::kCenter}, {"center_round", Crop::kCenterRound}, {"random", Crop::kRandom}}),
            "which part of the resized picture");
  verb.flag("--orientation", value::choice(options.orientation, {{"ignore", Orientation::kIgnore}, {"apply", Orientation::kApply}}),
            "what to do with the EXIF orientation");
  verb.flag("--seed", value::count(flags->seed).shown("S"), "of the random crop; the draw depends on the base name, too");
  verb.example("darkroom transform --resolution 512 --output pixels.safetensors a.jpg b.png", "two pictures, resized and cropped");
  verb.run([flags](VerbContext& context) { return run_transform(*flags, context); });
}

}  // namespace darkroom
