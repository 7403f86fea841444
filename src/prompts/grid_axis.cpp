#include <fmt/format.h>

#include <utility>
#include <vector>

#include "job_words.h"

namespace darkroom {
namespace {

constexpr const char* kSearchField = "S/R";

// Reads one axis; its names are those of the file.
class AxisReader {
 public:
  AxisReader(TomlFields& fields, const JobFile& file, std::span<const std::string> samplers)
      : fields_(fields), file_(file), samplers_(samplers) {}

  GridAxis read();

 private:
  void add(const toml::node& node);
  void add_style(const std::string& name);
  void add_search(const std::string& text);
  Result<FieldValue> value_of_field(const FieldValue& value) const;

  TomlFields& fields_;
  const JobFile& file_;
  std::span<const std::string> samplers_;
  GridAxis axis_;
};

bool takes_texts(const std::string& field) {
  return field == "prompt" || field == "negative" || field == "negative_preset" || field == "style" || field == kSearchField;
}

GridAxis AxisReader::read() {
  std::vector<std::string> names(picture_field_names().begin(), picture_field_names().end());
  names.insert(names.end(), {"size", "style", "negative_preset", kSearchField});
  axis_.field = fields_.choice("field", names);
  axis_.kind = axis_.field == "style"        ? GridAxis::Kind::kStyle
               : axis_.field == kSearchField ? GridAxis::Kind::kSearch
                                             : GridAxis::Kind::kField;
  const std::vector<const toml::node*> nodes = fields_.list("values");
  if (nodes.empty()) {
    fields_.fail("values", "is missing");
  }
  for (const toml::node* node : nodes) {
    if (fields_.status().is_ok()) {
      add(*node);
    }
  }
  return std::move(axis_);
}

void AxisReader::add(const toml::node& node) {
  const Result<FieldValue> value = toml_value(node);
  if (!value.is_ok()) {
    return fields_.fail("values", value.status().message());
  }
  const auto* text = std::get_if<std::string>(&*value);
  if (takes_texts(axis_.field) && text == nullptr) {
    return fields_.fail("values", fmt::format("of {} must be texts in quotes, got: {}", axis_.field, shown_toml(node)));
  }
  if (axis_.kind == GridAxis::Kind::kStyle) {
    return add_style(*text);
  }
  if (axis_.kind == GridAxis::Kind::kSearch) {
    return add_search(*text);
  }
  Result<FieldValue> taken = value_of_field(*value);
  if (!taken.is_ok()) {
    return fields_.fail("values", taken.status().message());
  }
  axis_.titles.push_back(axis_.field + " " + field_text(*value));
  axis_.values.push_back(*std::move(taken));
}

void AxisReader::add_style(const std::string& name) {
  axis_.titles.push_back("style " + name);
  axis_.styles.push_back(find_style(fields_, "values", name, file_.styles));
}

void AxisReader::add_search(const std::string& text) {
  Result<std::string> literal = literal_text(text);
  if (!literal.is_ok()) {
    return fields_.fail("values", literal.status().message());
  }
  if (axis_.values.empty() && literal->empty()) {
    return fields_.fail("values", "of S/R must not search for an empty text");
  }
  axis_.titles.push_back(*literal);
  axis_.values.emplace_back(*std::move(literal));
}

// A preset's text, a text without places, or the value itself where the field takes it.
Result<FieldValue> AxisReader::value_of_field(const FieldValue& value) const {
  if (axis_.field == "negative_preset") {
    const auto& name = std::get<std::string>(value);
    const auto found = file_.negatives.find(name);
    return found == file_.negatives.end() ? Result<FieldValue>(Status::invalid_argument(unknown_name("the preset", name, file_.negatives)))
                                          : FieldValue(found->second);
  }
  if (takes_texts(axis_.field)) {
    DARKROOM_ASSIGN_OR_RETURN(std::string literal, literal_text(std::get<std::string>(value)));
    return FieldValue(std::move(literal));
  }
  PictureFields probe;
  const Status status = set_picture_field(probe, axis_.field, value, samplers_);
  return status.is_ok() ? Result<FieldValue>(value) : Status::invalid_argument(fmt::format("of {} {}", axis_.field, status.message()));
}

bool share_a_field(const GridAxis& x, const GridAxis& y) {
  const auto is_negative = [](const GridAxis& axis) { return axis.field == "negative" || axis.field == "negative_preset"; };
  const auto is_side = [](const GridAxis& axis) { return axis.field == "width" || axis.field == "height"; };
  const bool is_same = x.field == y.field && x.kind != GridAxis::Kind::kSearch;
  return is_same || (is_negative(x) && is_negative(y)) || (x.field == "size" && is_side(y)) || (y.field == "size" && is_side(x));
}

}  // namespace

std::optional<GridAxis> read_axis(TomlFields& job, const std::string& key, const JobFile& file, std::span<const std::string> samplers) {
  std::optional<TomlFields> fields = job.table(key);
  if (!fields) {
    return std::nullopt;
  }
  GridAxis axis = AxisReader(*fields, file, samplers).read();
  job.adopt(fields->finish());
  return axis;
}

void check_axes(TomlFields& job, const JobEntry& entry) {
  const auto varies = [&](std::string_view field) { return (entry.x && entry.x->field == field) || (entry.y && entry.y->field == field); };
  const JobSettings& settings = entry.settings;
  if (entry.y && !entry.x) {
    return job.fail("y", "stands without x; a grid of one axis has the axis x");
  }
  if (entry.x && entry.y && share_a_field(*entry.x, *entry.y)) {
    return job.fail("y", "varies a field of x: " + entry.x->field);
  }
  if (varies("seed") && (settings.images > 1 || (settings.seeds && settings.seeds->size() > 1))) {
    return job.fail("x", "and y cannot vary the seed of a job with several seeds or images; set images = 1");
  }
  if (varies("style") && settings.styles && settings.styles->size() > 1) {
    return job.fail("x", "and y cannot vary the style of a job with several styles");
  }
  if (varies("prompt") && settings.prompts && (settings.prompts->size() > 1 || !settings.prompts->front().lists.empty())) {
    return job.fail("x", "and y cannot vary the prompt of a job with several prompts or lists");
  }
  if (!varies("prompt") && !settings.prompts) {
    return job.fail("prompt", "is missing: give prompt or prompts, here or at the top of the file");
  }
}

}  // namespace darkroom
