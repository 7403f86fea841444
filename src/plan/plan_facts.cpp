#include "plan_facts.h"

#include <algorithm>
#include <iterator>

namespace darkroom {
namespace {

constexpr double kAnyNumber = std::numeric_limits<double>::max();

constexpr PlanFact kPlanFacts[] = {
    {"distinct_pictures_256", "pictures", "distinct pictures of the 256 px phase"},
    {"distinct_pictures_512", "pictures", "distinct pictures of the 512 px phase"},
    {"download_success", "1", "share of the listed URLs that give a picture", 1},
    {"picture_bytes", "bytes/pictures", "encoded bytes of a picture, mean"},
    {"latent_values_256", "values/pictures", "values of a latent at 256 px (4 x 32 x 32)"},
    {"latent_values_512", "values/pictures", "values of a latent at 512 px (4 x 64 x 64)"},
    {"caption_values", "values/pictures", "values of a caption's states (77 x 1024)"},
    {"stored_value_bytes", "bytes/values", "bytes of a stored value (float16)"},
    {"trained_parameters", "parameters", "parameters of the U-Net"},
    {"checkpoint_parameter_bytes", "bytes/parameters", "bytes of a checkpoint per parameter (weights, EMA and both moments in float32)"},
    {"kept_checkpoints", "1", "checkpoints that are kept"},
    {"model_bytes", "bytes", "bytes of the model folder that leaves the store at the end"},
    {"rows_per_image_part", "pictures/parts", "rows of a file that download writes"},
    {"rows_per_latents_part", "pictures/parts", "rows of a file that process writes"},
    {"transfer_bytes", "bytes/requests", "bytes of one request of a large transfer"},
    {"requests_per_part", "requests/parts", "requests that begin, complete and name an object, besides its pieces"},
    {"gflop_256", "GFLOP/pictures", "one training step of a picture at 256 px, forward and backward"},
    {"gflop_512", "GFLOP/pictures", "one training step of a picture at 512 px, forward and backward"},
    {"online_slowdown", "1", "training time with the encoders on the trainers, over the time without"},
    {"checkpoint_hours", "h", "pause of training for a checkpoint"},
    {"pue", "1", "energy of the building over the energy of the machines"},
    {"carbon_grams_per_kwh", "g/kWh", "carbon dioxide of a kilowatt-hour", kAnyNumber, true},
};

}  // namespace

const PlanFact* find_plan_fact(std::string_view name) {
  const auto* found = std::find_if(std::begin(kPlanFacts), std::end(kPlanFacts), [&](const PlanFact& one) { return one.name == name; });
  return found == std::end(kPlanFacts) ? nullptr : found;
}

std::vector<std::string> plan_fact_names() {
  std::vector<std::string> names;
  std::transform(std::begin(kPlanFacts), std::end(kPlanFacts), std::back_inserter(names), [](const PlanFact& one) { return one.name; });
  return names;
}

}  // namespace darkroom
