#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/png.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/paint/painter.h"
#include "previews.h"

namespace darkroom {
namespace {

constexpr size_t kSheetColumns = 4;

PaintRequest request_of(const Recipe& recipe) {
  const Recipe::Samples& samples = recipe.samples;
  PaintRequest request;
  request.prompts = samples.prompts;
  for (size_t i = 0; i < samples.prompts.size(); ++i) {
    request.seeds.push_back(static_cast<uint64_t>(samples.seed) + i);
  }
  request.sampler = {.name = samples.sampler, .num_steps = static_cast<int>(samples.steps)};
  request.guidance = samples.guidance;
  request.width = static_cast<int>(recipe.data.resolution);
  request.height = request.width;
  return request;
}

class PromptPreviews : public Previews {
 public:
  /// REQUIRES: the painter takes the request.
  PromptPreviews(Recipe::Samples options, PaintRequest request, std::unique_ptr<Painter> painter)
      : options_(std::move(options)), request_(std::move(request)), painter_(std::move(painter)) {}

  Status make(FileSystem& files, const std::string& folder, int64_t step, EventWriter& events) override {
    DARKROOM_ASSIGN_OR_RETURN(const Painting painting, painter_->paint(request_));
    if (painting.num_not_finite > 0) {
      log_warning(
          "{} of {} previews of step {} came out of the networks with values that are no numbers (NaN or infinite), which show black",
          painting.num_not_finite, painting.images.size(), step);
    }
    auto listing = nlohmann::ordered_json::array();
    for (size_t i = 0; i < painting.images.size(); ++i) {
      const Image& image = painting.images[i];
      const std::string name = fmt::format("prompt-{:03}.png", i);
      const std::string png = encode_png(image, {{"prompt", options_.prompts[i]}, {"step", fmt::format("{}", step)}});
      DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path(folder, name), png));
      DARKROOM_RETURN_IF_ERROR(events.add_image(step, fmt::format("samples/{:03}", i), image.width, image.height, png));
      listing.push_back({{"file", name}, {"prompt", options_.prompts[i]}, {"seed", options_.seed + static_cast<int64_t>(i)}});
    }
    const nlohmann::ordered_json about = {
        {"step", step},     {"sampler", options_.sampler}, {"steps", options_.steps}, {"guidance", options_.guidance},
        {"weights", "ema"}, {"pictures", listing}};
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path(folder, "samples.json"), about.dump(1) + "\n"));
    return write_file_atomic(files, join_path(folder, "sheet.png"), encode_png(sheet(painting.images)));
  }

 private:
  Image sheet(const std::vector<Image>& images) const {
    std::vector<std::vector<ContactSheetCell>> rows;
    for (size_t i = 0; i < images.size(); ++i) {
      if (i % kSheetColumns == 0) {
        rows.emplace_back();
      }
      rows.back().push_back({images[i], options_.prompts[i]});
    }
    const int side = std::max(128, request_.width);
    return render_contact_sheet(rows, {.cell_width = side, .cell_height = side});
  }

  Recipe::Samples options_;
  PaintRequest request_;
  std::unique_ptr<Painter> painter_;
};

}  // namespace

Result<std::unique_ptr<Previews>> make_prompt_previews(const Recipe& recipe, const UNetPart& part,
                                                       std::shared_ptr<const FrozenModels> frozen) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(recipe.model.path));
  SchedulerConfig scheduler;
  if (!folder.scheduler_config.is_null()) {
    DARKROOM_ASSIGN_OR_RETURN(scheduler, SchedulerConfig::from_json(folder.scheduler_config));
  }
  scheduler.noise = part.objective().schedule().config();
  const std::shared_ptr<const ClipTokenizer> tokenizer(frozen, frozen->tokenizer.get());  // Kept alive by the frozen parts.
  DARKROOM_ASSIGN_OR_RETURN(auto painter, Painter::create(part.unet(), frozen->vae, frozen->text_encoder, tokenizer, scheduler));
  PaintRequest request = request_of(recipe);
  DARKROOM_RETURN_IF_ERROR(painter->check(request).with_context("the recipe's previews ([samples])"));
  return std::unique_ptr<Previews>(std::make_unique<PromptPreviews>(recipe.samples, std::move(request), std::move(painter)));
}

}  // namespace darkroom
