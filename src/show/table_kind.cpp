#include "table_kind.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "darkroom/ingest/row_dialects.h"

namespace darkroom {
namespace {

// The R of a name like image_latents_R or latents_R_bytes; 0 for another name.
int64_t resolution_of(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) {
    return 0;
  }
  const std::string digits(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  return digits.size() > 6 || digits.find_first_not_of("0123456789") != std::string::npos ? 0 : std::atoll(digits.c_str());
}

std::vector<TensorColumnName> tensor_columns(const arrow::Schema& schema) {
  std::vector<TensorColumnName> columns;
  for (const std::string& name : schema.field_names()) {
    const int64_t latents = std::max(
        {resolution_of(name, "image_latents_", ""), resolution_of(name, "latents_", "_bytes"), resolution_of(name, "latents_", "")});
    const int64_t moments = resolution_of(name, "image_moments_", "");
    if (latents > 0) {
      columns.push_back({name, {{4, latents / 8, latents / 8}}, true});
    } else if (moments > 0) {
      columns.push_back({name, {{8, moments / 8, moments / 8}}, true});
    } else if (name == "caption_embeddings" || name == "caption_latents") {
      columns.push_back({name, {{77, 1024}, {77, 768}}, false});
    }
  }
  return columns;
}

std::string first_of(const arrow::Schema& schema, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (schema.GetFieldIndex(name) >= 0) {
      return name;
    }
  }
  return {};
}

}  // namespace

bool TableKind::has_pictures() const {
  return !image.empty() || std::any_of(tensors.begin(), tensors.end(), [](const auto& column) { return column.is_latents; });
}

TableKind table_kind(const arrow::Schema& schema, const std::string& path) {
  TableKind kind;
  kind.key = first_of(schema, {"key", "__key__"});
  kind.caption = first_of(schema, {"caption", "TEXT", "text", "top_caption", "alt_text"});
  if (auto tensors = tensor_columns(schema); std::any_of(tensors.begin(), tensors.end(), [](const auto& one) { return one.is_latents; })) {
    kind.name = "latents dataset";
    kind.tensors = std::move(tensors);
    return kind;
  }
  if (auto columns = find_image_columns(schema, path); columns.is_ok()) {
    kind.name = "image dataset";
    kind.image = columns->image;
    kind.caption = columns->caption;
    return kind;
  }
  if (auto columns = find_url_columns(schema, path, "", ""); columns.is_ok()) {
    kind.name = "URL table";
    kind.caption = columns->caption;
    kind.key.clear();  // A passed-through column: nothing says that it is unique.
    return kind;
  }
  kind.name = "table";
  kind.key.clear();
  return kind;
}

}  // namespace darkroom
