#include "job_requests.h"

#include <cmath>
#include <utility>

#include "picture_fields.h"

namespace darkroom {
namespace {

WantedPictures read_job_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.settings = default_picture(model, limits)};
  PictureSpec& settings = wanted.settings;
  fields.need("prompt");
  wanted.prompts = {fields.text("prompt", limits.max_text_bytes).value_or("")};
  wanted.negatives = {fields.text("negative_prompt", limits.max_text_bytes).value_or("")};
  read_prompt_syntax(fields, settings);
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  settings.num_steps = static_cast<int>(fields.integer("steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  wanted.images_per_prompt = fields.integer("images", 1, limits.max_images).value_or(1);
  settings.preview_every = static_cast<int>(fields.integer("preview_every", 0, limits.max_steps).value_or(0));
  wanted.inputs = read_start(fields, "init_image", settings);
  read_model(fields, model);
  return wanted;
}

// With what the fields have that were left out. The picture to start from is not repeated: its strength says that there was one.
nlohmann::json resolved_fields(const WantedPictures& wanted, const ModelFacts& model) {
  const PictureSpec& settings = wanted.settings;
  nlohmann::json fields = {{"model", model.name},
                           {"prompt", wanted.prompts.front()},
                           {"negative_prompt", wanted.negatives.front()},
                           {"prompt_syntax", settings.has_weight_syntax ? "weighted" : "plain"},
                           {"width", settings.width},
                           {"height", settings.height},
                           {"steps", settings.num_steps},
                           {"guidance_scale", settings.guidance},
                           {"sampler", settings.sampler.empty() ? model.default_sampler : settings.sampler},
                           {"seed", settings.seed},
                           {"images", wanted.images_per_prompt},
                           {"preview_every", settings.preview_every}};
  if (!wanted.inputs.empty()) {
    fields["strength"] = settings.strength;
  }
  return fields;
}

}  // namespace

Result<ImageRequest> read_job(std::string_view body, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  WantedPictures wanted = read_job_fields(fields, model, limits);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  ImageRequest request{.pictures = {}, .form = ReplyForm::kKept};
  request.parameters_json = json_text(resolved_fields(wanted, model));
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  request.inputs = std::move(wanted.inputs);
  return request;
}

nlohmann::json job_schema(const ModelFacts& model, const RequestLimits& limits) {
  return described_fields([&](RequestFields& fields) { read_job_fields(fields, model, limits); });
}

nlohmann::json progress_json(const WatchedPainting::View& view, int num_steps) {
  constexpr double kRoundingRoom = 1e-9;  // Of sums of shares, so that a step that is done counts.
  const auto step = static_cast<int>(std::floor(view.share * num_steps + kRoundingRoom));
  return {{"step", step}, {"steps", num_steps}, {"progress", view.share}, {"status", painting_state_name(view.state)}};
}

std::string write_event(const WatchedPainting::News& news, int num_steps,
                        const std::function<nlohmann::json(const WatchedPainting::View& view)>& end) {
  switch (news.kind) {
    case WatchedPainting::News::Kind::kProgress:
      return event_text("progress", json_text(progress_json(news.view, num_steps)));
    case WatchedPainting::News::Kind::kPreview:
      return event_text("preview", json_text({{"index", news.picture}, {"image", news.preview->base64_png()}}));
    case WatchedPainting::News::Kind::kEnd:
      break;
  }
  return event_text(painting_state_name(news.view.state), json_text(end(news.view)));
}

}  // namespace darkroom
