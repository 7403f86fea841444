#include "validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace darkroom {
namespace {

// Rows [first, first + count) of a dataset as samples of epoch 0.
std::vector<SampleRef> rows_of_epoch_0(int64_t first, int64_t count) {
  std::vector<SampleRef> samples;
  for (int64_t row = first; row < first + count; ++row) {
    samples.push_back({0, row});
  }
  return samples;
}

// A loss on what other encoders made would tell of them, not of the network. What a dataset does not tell is not compared.
Status check_made_alike(const RunData& held_out, const RunData& training, const std::string& uri) {
  const auto compare = [&](const char* what, const std::string& there, const std::string& of_training) {
    return there.empty() || of_training.empty() || there == of_training
               ? Status::ok()
               : Status::failed_precondition(
                     fmt::format("the validation set was made with another {} than the training set; process one of them again (validation "
                                 "set, {} there, that of the training set):",
                                 what, what),
                     uri, there, of_training);
  };
  DARKROOM_RETURN_IF_ERROR(compare("tokenizer dialect", held_out.tokenizer_dialect, training.tokenizer_dialect));
  DARKROOM_RETURN_IF_ERROR(compare("VAE", held_out.vae_fingerprint, training.vae_fingerprint));
  return compare("text encoder", held_out.text_encoder_fingerprint, training.text_encoder_fingerprint);
}

// A dataset's first rows in micro-batches.
class ValidationRows {
 public:
  ValidationRows(RunData data, const Recipe& recipe)
      : data_(std::move(data)),
        num_rows_(std::min(recipe.validation.num_rows, data_.index.num_rows())),
        batch_size_(std::min(recipe.batch.micro, recipe.batch.global)) {}

  template <typename Visit>
  Status visit(const std::function<void()>& get_on, const Visit& visit) {
    for (int64_t first = 0; first < num_rows_; first += batch_size_) {
      get_on();
      const auto samples = rows_of_epoch_0(first, std::min(batch_size_, num_rows_ - first));
      DARKROOM_ASSIGN_OR_RETURN(Batch batch, data_.source->read(samples));
      batch.samples = samples;
      visit(batch, static_cast<int64_t>(samples.size()));
    }
    return {};
  }
  int64_t num_rows() const { return num_rows_; }

 private:
  RunData data_;
  int64_t num_rows_;
  int64_t batch_size_;
};

// Without min-SNR weights, so that runs with others compare.
class DiffusionValidation : public Validation {
 public:
  DiffusionValidation(RunData data, const Recipe& recipe, const UNetPart& part)
      : rows_(std::move(data), recipe),
        unet_(part.unet()),
        device_(part.device()),
        objective_(part.objective().schedule(), {.seed = static_cast<uint64_t>(recipe.runtime.seed), .caption_drop = 0.0}, {}) {}

  Result<nlohmann::ordered_json> score(const std::function<void()>& get_on) override {
    const torch::NoGradGuard no_gradients;
    double sum = 0;
    DARKROOM_RETURN_IF_ERROR(rows_.visit(get_on, [&](const Batch& batch, int64_t) {
      const auto losses = objective_.losses(denoiser_of(unet_), objective_.prepare(diffusion_batch(batch, device_)));
      sum += losses.to(torch::kFloat64).sum().item<double>();
    }));
    return nlohmann::ordered_json{{"validation_loss", sum / static_cast<double>(rows_.num_rows())}};
  }

 private:
  ValidationRows rows_;
  UNet2DConditionModel unet_;
  torch::Device device_;
  DiffusionObjective objective_;
};

class AutoencoderValidation : public Validation {
 public:
  AutoencoderValidation(RunData data, const Recipe& recipe, VaePart& part) : rows_(std::move(data), recipe), part_(part) {}

  Result<nlohmann::ordered_json> score(const std::function<void()>& get_on) override {
    const torch::NoGradGuard no_gradients;
    double loss_sum = 0;
    double psnr_sum = 0;
    DARKROOM_RETURN_IF_ERROR(rows_.visit(get_on, [&](const Batch& batch, int64_t) {
      part_.load(batch);
      loss_sum += part_.losses(part_.inputs()).to(torch::kFloat64).sum().item<double>();
      const auto made = part_.reconstruct(part_.images_nchw()).clamp(-1, 1);
      const auto errors = (made - part_.images_nchw()).square().to(torch::kFloat64).mean({1, 2, 3});
      // Peak to peak is 2 in [-1, 1].
      psnr_sum += (10.0 * torch::log10(4.0 / errors.clamp_min(1e-10))).sum().item<double>();
    }));
    const auto count = static_cast<double>(rows_.num_rows());
    return nlohmann::ordered_json{{"validation_loss", loss_sum / count}, {"validation_psnr", psnr_sum / count}};
  }

 private:
  ValidationRows rows_;
  VaePart& part_;
};

}  // namespace

Result<std::unique_ptr<Validation>> make_diffusion_validation(StoreSet& stores, const Recipe& recipe, const UNetPart& part,
                                                              const SampleShapes& shapes, const FrozenModels* frozen, RunData& training) {
  Recipe held_out = recipe;
  held_out.data.path = recipe.validation.path;
  held_out.objective.caption_dropout = 0;
  DARKROOM_ASSIGN_OR_RETURN(RunData data, open_latents(stores, held_out, shapes, frozen));
  for (const Status& status : {data.unfit, check_made_alike(data, training, recorded_uri(recipe.validation.path))}) {
    training.unfit = training.unfit.is_ok() ? status : training.unfit;
  }
  return std::unique_ptr<Validation>(std::make_unique<DiffusionValidation>(std::move(data), recipe, part));
}

Result<std::unique_ptr<Validation>> make_autoencoder_validation(StoreSet& stores, const Recipe& recipe, VaePart& part,
                                                                const std::string& decoder_program) {
  Recipe held_out = recipe;
  held_out.data.raw_path = recipe.validation.path;
  DARKROOM_ASSIGN_OR_RETURN(RunData data, open_pictures(stores, held_out, decoder_program));
  return std::unique_ptr<Validation>(std::make_unique<AutoencoderValidation>(std::move(data), recipe, part));
}

}  // namespace darkroom
