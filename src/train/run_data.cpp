#include "run_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "darkroom/batches/latents_info.h"
#include "darkroom/batches/latents_reader.h"
#include "darkroom/encode/online_source.h"
#include "darkroom/train/recipe_encoding.h"

namespace darkroom {
namespace {

Filter filter_of(const std::string& name) {
  return name == "bicubic" ? Filter::kBicubic : name == "lanczos" ? Filter::kLanczos : Filter::kBilinear;
}

Status check_fingerprint(std::string_view part, const std::string& dataset, const std::string& model, const std::string& path) {
  if (dataset.empty() || dataset == model) {
    return {};
  }
  return Status::failed_precondition(
      fmt::format("the latents were made with another {} than the model folder holds; process again or name the model they were made with "
                  "(dataset, fingerprint there, fingerprint of the model):",
                  part),
      path, dataset, model);
}

Status check_dialect(const std::string& dataset, TokenizerDialect dialect, const std::string& path) {
  if (dataset.empty() || dataset == tokenizer_dialect_name(dialect)) {
    return {};
  }
  return Status::failed_precondition(
      "the captions were tokenised in another dialect than previews would be; set data.tokenizer_dialect to the dataset's (dataset, its "
      "dialect):",
      path, dataset);
}

Status check_shape(std::string_view what, const std::vector<int64_t>& encoder, const std::vector<int64_t>& network) {
  if (encoder == network) {
    return {};
  }
  return Status::failed_precondition(
      fmt::format("the encoders of the model folder make {} of another shape than its U-Net takes (make, takes):", what),
      fmt::format("{}", fmt::join(encoder, "x")), fmt::format("{}", fmt::join(network, "x")));
}

Result<DatasetFiles> find_pictures(StoreSet& stores, const std::string& uri, const DatasetIndex* began_with) {
  DARKROOM_ASSIGN_OR_RETURN(DatasetFiles dataset, find_image_dataset(stores, uri));
  if (began_with != nullptr) {
    take_indexed_generations(*began_with, dataset);
  }
  return dataset;
}

Status take_images(const DatasetFiles& dataset, const Recipe& recipe, RunData& data) {
  DARKROOM_ASSIGN_OR_RETURN(IndexedDataset indexed, index_images(dataset, recipe.data.rows_per_file));
  data.index = std::move(indexed.index);
  data.row_groups = indexed.row_groups;
  data.image_row_bytes = indexed.mean_row_bytes;
  return {};
}

/// Everything of an online run but who encodes.
struct PicturesToEncode {
  RunData data;
  DatasetFiles dataset;
  std::shared_ptr<const RowEncoder> encoder;
};

Result<PicturesToEncode> open_to_encode(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes,
                                        std::shared_ptr<const FrozenModels> frozen, const DatasetIndex* began_with) {
  DARKROOM_ASSIGN_OR_RETURN(DatasetFiles dataset, find_pictures(stores, recipe.data.raw_path, began_with));
  RunData data;
  DARKROOM_RETURN_IF_ERROR(take_images(dataset, recipe, data));
  DARKROOM_ASSIGN_OR_RETURN(const ProcessOptions process, encoding_of(recipe));
  RowEncoderOptions encoding;
  encoding.transform = process.transform;
  encoding.dtype = *process.dtype;
  encoding.seed = process.seed;
  if (const torch::Device device = place_of(*frozen->vae).device; !device.is_cpu()) {
    // As process does there, but no more than a step is sure to have, since blank rows cost as much, and than leaves memory to the step.
    constexpr int64_t kMostBesideAStep = 16;
    const int64_t most = std::min<int64_t>(kMostBesideAStep, default_batch_size(process.transform.resolution, device));
    encoding.rows_together = static_cast<int>(std::min(most, recipe.batch.micro));
  }
  DARKROOM_ASSIGN_OR_RETURN(auto encoder, RowEncoder::create(frozen, encoding));
  DARKROOM_RETURN_IF_ERROR(check_shape("latents", encoder->latents_shape(), shapes.latents));
  DARKROOM_RETURN_IF_ERROR(check_shape("text states", encoder->states_shape(), shapes.states));
  data.vae_fingerprint = frozen->vae_fingerprint;
  data.text_encoder_fingerprint = frozen->text_encoder_fingerprint;
  data.tokenizer_fingerprint = frozen->tokenizer->fingerprint();
  data.tokenizer_dialect = tokenizer_dialect_name(frozen->tokenizer->dialect());
  if (recipe.objective.caption_dropout > 0) {
    at::set_num_threads(1);  // As process does: threads are part of the bits.
    data.empty_states_tw = encoder->empty_caption_states().to(torch::kFloat32);
    at::set_num_threads(static_cast<int>(recipe.runtime.threads));
  }
  return PicturesToEncode{.data = std::move(data), .dataset = std::move(dataset), .encoder = std::move(encoder)};
}

}  // namespace

int64_t memory_of_rank(int64_t bytes, int64_t local_ranks) {
  constexpr int64_t kLeast = 1 << 20;  // As the recipe's own.
  return std::max(kLeast, bytes / std::max<int64_t>(1, local_ranks));
}

TransformOptions transform_of(const Recipe& recipe) {
  TransformOptions transform;
  transform.resolution = static_cast<int>(recipe.data.resolution);
  transform.filter = filter_of(recipe.data.resize);
  transform.crop = recipe.data.crop == "random" ? Crop::kRandom : Crop::kCenter;
  transform.orientation = recipe.data.orientation == "apply" ? Orientation::kApply : Orientation::kIgnore;
  return transform;
}

Result<ProcessOptions> encoding_of(const Recipe& recipe) {
  ProcessOptions options;
  options.input = recipe.data.raw_path;
  options.model = recipe.model.path;
  options.transform = transform_of(recipe);
  options.dtype = recipe.data.storage_dtype == "float32" ? torch::kFloat32 : torch::kFloat16;
  options.seed = static_cast<uint64_t>(recipe.data.process_seed);
  options.rows_per_file = recipe.data.rows_per_file;
  DARKROOM_ASSIGN_OR_RETURN(options.tokenizer_dialect, parse_tokenizer_dialect(recipe.data.tokenizer_dialect));
  return options;
}

Result<RunData> open_pictures(StoreSet& stores, const Recipe& recipe, const std::string& decoder_program, const DatasetIndex* began_with) {
  RunData data;
  DARKROOM_ASSIGN_OR_RETURN(const DatasetFiles dataset, find_pictures(stores, recipe.data.raw_path, began_with));
  DARKROOM_RETURN_IF_ERROR(take_images(dataset, recipe, data));
  const PictureSourceOptions options{.transform = transform_of(recipe),
                                     .seed = static_cast<uint64_t>(recipe.runtime.seed),
                                     .memory_bytes = recipe.data.memory_bytes,
                                     .decoder_program = decoder_program};
  DARKROOM_ASSIGN_OR_RETURN(data.source, PictureSource::open(dataset, data.index, options));
  data.num_ahead = recipe.data.batches_ahead;
  return data;
}

Result<RunData> open_latents(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, const FrozenModels* frozen) {
  RunData data;
  DARKROOM_ASSIGN_OR_RETURN(const DatasetFiles dataset, find_dataset(stores, recipe.data.path));
  const std::string& path = dataset.uri;
  DARKROOM_ASSIGN_OR_RETURN(IndexedDataset indexed, index_latents(dataset));
  DARKROOM_ASSIGN_OR_RETURN(const LatentsDatasetInfo info, read_latents_info(indexed));
  data.index = std::move(indexed.index);
  const LatentsReaderOptions options{.resolution = recipe.data.resolution,
                                     .latents_shape = shapes.latents,
                                     .states_shape = shapes.states,
                                     .memory_bytes = recipe.data.memory_bytes,
                                     .keeps_float16 = shapes.keeps_float16};
  DARKROOM_ASSIGN_OR_RETURN(data.source, LatentsReader::open(dataset, data.index, options));
  data.num_ahead = recipe.data.batches_ahead;
  if (frozen != nullptr) {
    DARKROOM_RETURN_IF_ERROR(check_dialect(info.tokenizer_dialect, frozen->tokenizer->dialect(), path));
    DARKROOM_RETURN_IF_ERROR(check_fingerprint("VAE", info.vae_fingerprint, frozen->vae_fingerprint, path));
    DARKROOM_RETURN_IF_ERROR(check_fingerprint("text encoder", info.text_encoder_fingerprint, frozen->text_encoder_fingerprint, path));
  }
  data.vae_fingerprint = info.vae_fingerprint;
  data.text_encoder_fingerprint = info.text_encoder_fingerprint;
  data.tokenizer_dialect = info.tokenizer_dialect;
  data.unfit = info.unfit;
  data.row_groups = indexed.row_groups;
  if (recipe.objective.caption_dropout > 0) {
    DARKROOM_ASSIGN_OR_RETURN(DropoutStates states, read_empty_caption(dataset, info, shapes.states));
    data.empty_states_tw = std::move(states.states_tw);
    data.unfit = data.unfit.is_ok() ? states.unfit : data.unfit;
    data.doubt = states.doubt;
  }
  return data;
}

Result<RunData> open_online(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, std::shared_ptr<const FrozenModels> frozen,
                            const std::string& decoder_program, const DatasetIndex* began_with) {
  DARKROOM_ASSIGN_OR_RETURN(PicturesToEncode pictures, open_to_encode(stores, recipe, shapes, std::move(frozen), began_with));
  const OnlineSourceOptions options{.memory_bytes = recipe.data.memory_bytes,
                                    .threads = 1,
                                    .training_threads = recipe.runtime.threads,
                                    .decoder_program = decoder_program};
  DARKROOM_ASSIGN_OR_RETURN(pictures.data.source, OnlineSource::open(pictures.dataset, pictures.data.index, pictures.encoder, options));
  return std::move(pictures.data);
}

Result<RunData> open_remote(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, std::shared_ptr<const FrozenModels> frozen,
                            const SliceFleetOptions& fleet, const DatasetIndex* began_with) {
  DARKROOM_ASSIGN_OR_RETURN(PicturesToEncode pictures, open_to_encode(stores, recipe, shapes, std::move(frozen), began_with));
  const RemoteSourceOptions options{.fleet = fleet, .memory_bytes = recipe.data.memory_bytes};
  DARKROOM_ASSIGN_OR_RETURN(auto source, RemoteSource::open(pictures.dataset, pictures.data.index, *pictures.encoder, options));
  RunData data = std::move(pictures.data);
  data.image_row_bytes = 0;                                          // Encoders read the pictures.
  data.num_ahead = std::min<int64_t>(1, recipe.data.batches_ahead);  // One is put together here while the next are on their way.
  data.num_expected = std::max<int64_t>(0, recipe.data.batches_ahead - data.num_ahead);
  data.remote = source.get();
  data.source = std::move(source);
  return data;
}

}  // namespace darkroom
