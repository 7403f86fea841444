#include "darkroom/tune/trial_curve.h"

#include <algorithm>
#include <limits>

#include "darkroom/core/median.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

// A field's number; NaN where it has none, as JSON writes what is not finite.
double number_of(const nlohmann::json& line, const char* field) {
  const auto found = line.find(field);
  return found != line.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

void take_metrics_line(const nlohmann::json& line, TrialCurve& curve, std::vector<double>& rates) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) {
    return;
  }
  curve.last_step = line["step"].get<int64_t>();
  if (const double seconds = number_of(line, "seconds"); seconds == seconds) {
    curve.seconds = seconds;
  }
  if (const double rate = number_of(line, "images_per_second"); rate > 0) {
    rates.push_back(rate);
  }
  if (line.contains("validation_loss")) {
    const double samples = number_of(line, "samples");
    curve.validations.push_back({.step = curve.last_step,
                                 .samples = samples == samples ? static_cast<int64_t>(samples) : 0,
                                 .seconds = curve.seconds,
                                 .loss = number_of(line, "validation_loss")});
  }
}

}  // namespace

std::optional<CurvePoint> TrialCurve::at(int64_t step) const {
  const auto found = std::find_if(validations.begin(), validations.end(), [&](const CurvePoint& point) { return point.step == step; });
  return found == validations.end() ? std::nullopt : std::optional(*found);
}

Result<TrialCurve> read_trial_curve(FileSystem& files, const std::string& path) {
  TrialCurve curve;
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  if (!exists) {
    return curve;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  std::vector<double> rates;
  for (size_t begin = 0, end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    take_metrics_line(parse_json(std::string_view(text).substr(begin, end - begin)), curve, rates);
  }
  if (rates.size() > 1) {
    rates.erase(rates.begin());  // The first step warms caches up.
  }
  curve.images_per_second = rates.empty() ? 0 : median(rates);
  return curve;
}

}  // namespace darkroom
