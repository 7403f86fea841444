#include "darkroom/plan/catalogue.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

constexpr int kCatalogueVersion = 1;

Status bad_figure(const std::string& file, const std::string& name, std::string_view field, const nlohmann::json& got) {
  constexpr size_t kMostShown = 60;
  return Status::invalid_argument(fmt::format("the catalogue {}: figure {}: {}; it is:", file, name, field),
                                  got.dump().substr(0, kMostShown));
}

Result<double> read_number(const nlohmann::json& figure, const char* field, const std::string& file, const std::string& name) {
  const auto found = figure.find(field);
  const bool is_number = found != figure.end() && found->is_number() && std::isfinite(found->get<double>()) && found->get<double>() >= 0;
  return is_number ? Result<double>(found->get<double>())
                   : bad_figure(file, name, fmt::format("{} must be a number of 0 or more", field), figure.value(field, nlohmann::json()));
}

Result<std::string> read_words(const nlohmann::json& figure, const char* field, const std::string& file, const std::string& name) {
  const auto found = figure.find(field);
  const bool is_text = found != figure.end() && found->is_string() && !found->get<std::string>().empty();
  return is_text ? Result<std::string>(found->get<std::string>())
                 : bad_figure(file, name, fmt::format("{} must be a text", field), figure.value(field, nlohmann::json()));
}

Result<Figure> read_figure(const nlohmann::json& json, const std::string& file, const std::string& name) {
  if (!json.is_object()) {
    return bad_figure(file, name, "must be an object", json);
  }
  Figure figure;
  DARKROOM_ASSIGN_OR_RETURN(figure.value.low, read_number(json, "low", file, name));
  DARKROOM_ASSIGN_OR_RETURN(figure.value.high, read_number(json, "high", file, name));
  if (figure.value.high < figure.value.low) {
    return bad_figure(file, name, "high must not be below low", json["high"]);
  }
  // At a rate of 0 nothing ever ends.
  if (figure.value.low == 0 && (name.ends_with("_per_second") || name.ends_with("_per_core_second"))) {
    return bad_figure(file, name, "low must be above 0", json["low"]);
  }
  DARKROOM_ASSIGN_OR_RETURN(figure.unit, read_words(json, "unit", file, name));
  DARKROOM_ASSIGN_OR_RETURN(figure.date, read_words(json, "date", file, name));
  DARKROOM_ASSIGN_OR_RETURN(figure.source, read_words(json, "source", file, name));
  return figure;
}

}  // namespace

Status Catalogue::add(std::string_view json, const std::string& source) {
  const auto root = parse_json(std::string(json));
  if (!root.is_object() || !root.contains("figures") || !root["figures"].is_object()) {
    return Status::invalid_argument("a catalogue is a JSON object with version and figures; this one is not (file):", source);
  }
  if (root.value("version", nlohmann::json()) != nlohmann::json(kCatalogueVersion)) {
    return Status::invalid_argument(fmt::format("the catalogue {} is of another version than {}; it is:", source, kCatalogueVersion),
                                    root.value("version", nlohmann::json()).dump());
  }
  std::map<std::string, Figure> read;
  for (const auto& [name, figure] : root["figures"].items()) {
    DARKROOM_ASSIGN_OR_RETURN(read[name], read_figure(figure, source, name));
  }
  for (auto& [name, figure] : read) {
    figures_[name] = std::move(figure);
  }
  return Status::ok();
}

Result<Figure> Catalogue::find(const std::string& name) const {
  const auto found = figures_.find(name);
  return found != figures_.end() ? Result<Figure>(found->second)
                                 : Status::failed_precondition("the catalogue lacks a figure that the estimate needs:", name);
}

}  // namespace darkroom
