#include "darkroom/ingest/row_dialects.h"

#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/input_name.h"

namespace darkroom {
namespace {

constexpr std::array<std::string_view, 3> kUrlNames = {"url", "URL", "image_url"};
constexpr std::array<std::string_view, 5> kCaptionNames = {"caption", "TEXT", "text", "top_caption", "alt_text"};
constexpr std::array<std::string_view, 5> kImageNames = {"image", "jpg", "png", "webp", "bytes"};
// Columns of the image dataset that are ours.
constexpr std::array<std::string_view, 8> kOwnNames = {"key", "url", "caption", "image", "width", "height", "mime", "error"};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string join(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

std::string column_names(const arrow::Schema& schema) {
  std::string text;
  for (const auto& name : schema.field_names()) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "(none)" : text;
}

Result<std::string> find_column(const arrow::Schema& schema, const std::string& path, std::string_view meaning, const std::string& wanted,
                                std::span<const std::string_view> accepted, std::string_view advice) {
  if (!wanted.empty()) {
    if (schema.GetFieldIndex(wanted) >= 0) {
      return wanted;
    }
    return Status::not_found(fmt::format("the table {} has no {} column '{}'; its columns:", path, meaning, wanted), column_names(schema));
  }
  for (const std::string_view name : accepted) {
    if (schema.GetFieldIndex(std::string(name)) >= 0) {
      return std::string(name);
    }
  }
  return Status::not_found(
      fmt::format("the table {} has no {} column (looked for {}){}; its columns:", path, meaning, join(accepted), advice),
      column_names(schema));
}

std::string output_name(const std::string& name, const std::vector<std::string>& input_names) {
  const auto is_own = [](const std::string& candidate) {
    return std::find(kOwnNames.begin(), kOwnNames.end(), lower_case(candidate)) != kOwnNames.end();
  };
  return is_own(name) ? input_name(name, input_names) : name;
}

}  // namespace

Result<UrlColumns> find_url_columns(const arrow::Schema& schema, const std::string& path, const std::string& url_column,
                                    const std::string& caption_column) {
  UrlColumns columns;
  DARKROOM_ASSIGN_OR_RETURN(columns.url, find_column(schema, path, "URL", url_column, kUrlNames, "; name it with --url-column"));
  DARKROOM_ASSIGN_OR_RETURN(columns.caption,
                            find_column(schema, path, "caption", caption_column, kCaptionNames, "; name it with --caption-column"));
  const std::vector<std::string> names = schema.field_names();
  for (const std::string& name : names) {
    if (name != columns.url && name != columns.caption) {
      columns.metadata.push_back(name);
      columns.output_names.push_back(output_name(name, names));
    }
  }
  return columns;
}

Result<ImageColumns> find_image_columns(const arrow::Schema& schema, const std::string& path, const std::string& caption_column) {
  ImageColumns columns;
  DARKROOM_ASSIGN_OR_RETURN(columns.image, find_column(schema, path, "image", "", kImageNames, ""));
  DARKROOM_ASSIGN_OR_RETURN(columns.caption, find_column(schema, path, "caption", caption_column, kCaptionNames, ""));
  const auto image = schema.GetFieldByName(columns.image);  // Null where the name stands twice.
  if (image == nullptr) {
    return Status::failed_precondition("a table has two columns of one name (table, column):", path, columns.image);
  }
  if (image->type()->id() == arrow::Type::NA && image->metadata() != nullptr && image->metadata()->Contains("encoding")) {
    return Status::failed_precondition(
        "pictures of this encoding are not read; write them as jpeg, png or bytes (shard, column, encoding):", path, columns.image,
        *image->metadata()->Get("encoding"));
  }
  const arrow::DataType& type = *image->type();
  const bool is_bytes_struct = type.id() == arrow::Type::STRUCT && static_cast<const arrow::StructType&>(type).GetFieldIndex("bytes") >= 0;
  if (!is_bytes_type(type) && !is_bytes_struct) {
    return Status::failed_precondition("the image column is neither binary nor a struct with bytes (table, column, type):", path,
                                       columns.image, type.ToString());
  }
  const auto key = schema.GetFieldByName("key");
  if (key != nullptr && is_bytes_type(*key->type())) {
    columns.key = "key";
  }
  return columns;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

}  // namespace darkroom
