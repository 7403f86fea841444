#include "darkroom/data/row_columns.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

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
  if (!is_own(name)) {
    return name;
  }
  std::string renamed = "input_" + name;
  while (std::find(input_names.begin(), input_names.end(), renamed) != input_names.end()) {
    renamed = "input_" + renamed;
  }
  return renamed;
}

bool is_bytes_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_STRING ||
         type.id() == arrow::Type::LARGE_BINARY;
}

std::string_view bytes_at(const arrow::Array& array, int64_t row) {
  if (array.type_id() == arrow::Type::LARGE_STRING || array.type_id() == arrow::Type::LARGE_BINARY) {
    return static_cast<const arrow::LargeBinaryArray&>(array).GetView(row);
  }
  return static_cast<const arrow::BinaryArray&>(array).GetView(row);
}

Status arrow_failure(const arrow::Status& status, std::string_view what) { return Status::resource_exhausted(what, status.ToString()); }

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

Result<ImageColumns> find_image_columns(const arrow::Schema& schema, const std::string& path) {
  ImageColumns columns;
  DARKROOM_ASSIGN_OR_RETURN(columns.image, find_column(schema, path, "image", "", kImageNames, ""));
  DARKROOM_ASSIGN_OR_RETURN(columns.caption, find_column(schema, path, "caption", "", kCaptionNames, ""));
  const arrow::DataType& type = *schema.GetFieldByName(columns.image)->type();
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

Result<BytesColumn> BytesColumn::open(const std::string& path, const std::string& name, std::shared_ptr<arrow::Array> array) {
  std::shared_ptr<arrow::Array> values = array;
  if (array->type_id() == arrow::Type::DICTIONARY) {
    values = static_cast<const arrow::DictionaryArray&>(*array).dictionary();
  }
  if (!is_bytes_type(*values->type())) {
    return Status::failed_precondition("a column does not hold text or bytes (table, column, type):", path, name,
                                       array->type()->ToString());
  }
  const bool is_dictionary = values != array;
  return BytesColumn(std::move(values), is_dictionary ? std::move(array) : nullptr);
}

std::optional<std::string_view> BytesColumn::at(int64_t row) const {
  if (indices_ != nullptr) {
    if (indices_->IsNull(row)) {
      return std::nullopt;
    }
    row = static_cast<const arrow::DictionaryArray&>(*indices_).GetValueIndex(row);
  }
  return values_->IsNull(row) ? std::nullopt : std::optional<std::string_view>(bytes_at(*values_, row));
}

Result<BytesColumn> open_image_column(const std::string& path, const std::string& name, const std::shared_ptr<arrow::Array>& array) {
  if (array->type_id() != arrow::Type::STRUCT) {
    return BytesColumn::open(path, name, array);
  }
  // Flattened, so that a null struct is a null image.
  const auto& structs = static_cast<const arrow::StructArray&>(*array);
  const int field = static_cast<const arrow::StructType&>(*array->type()).GetFieldIndex("bytes");
  auto flattened = structs.GetFlattenedField(field);
  if (!flattened.ok()) {
    return arrow_failure(flattened.status(), "reading the image column failed:");
  }
  return BytesColumn::open(path, name + ".bytes", *flattened);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

Result<ValueCopier> ValueCopier::create(const std::string& name, const std::shared_ptr<arrow::DataType>& type) {
  std::shared_ptr<arrow::DataType> value_type = type;
  if (type->id() == arrow::Type::DICTIONARY) {
    value_type = static_cast<const arrow::DictionaryType&>(*type).value_type();
  }
  auto builder = arrow::MakeBuilder(value_type);
  if (!builder.ok()) {
    return Status::failed_precondition("a metadata column has a type that cannot be copied (column, type):", name, type->ToString());
  }
  return ValueCopier(std::move(value_type), *std::move(builder));
}

Status ValueCopier::append(const arrow::Array& array, int64_t row) {
  const arrow::Array* values = &array;
  bool is_null = array.IsNull(row);
  if (!is_null && array.type_id() == arrow::Type::DICTIONARY) {
    const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
    values = dictionary.dictionary().get();
    row = dictionary.GetValueIndex(row);
    is_null = values->IsNull(row);
  }
  arrow::Status appended;
  if (is_null) {
    appended = builder_->AppendNull();
  } else if (type_->id() == arrow::Type::STRING) {
    appended = static_cast<arrow::StringBuilder&>(*builder_).Append(replace_invalid_utf8(bytes_at(*values, row)).first);
  } else if (type_->id() == arrow::Type::LARGE_STRING) {
    appended = static_cast<arrow::LargeStringBuilder&>(*builder_).Append(replace_invalid_utf8(bytes_at(*values, row)).first);
  } else {
    appended = builder_->AppendArraySlice(arrow::ArraySpan(*values->data()), row, 1);
  }
  return appended.ok() ? Status() : arrow_failure(appended, "copying a metadata value failed:");
}

Result<std::shared_ptr<arrow::Array>> ValueCopier::finish() {
  auto array = builder_->Finish();
  if (!array.ok()) {
    return arrow_failure(array.status(), "building a metadata column failed:");
  }
  return *array;
}

}  // namespace darkroom
