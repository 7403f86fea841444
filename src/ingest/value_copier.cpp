#include "darkroom/ingest/value_copier.h"

#include <arrow/api.h>

#include "darkroom/core/utf8.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

Status arrow_failure(const arrow::Status& status, std::string_view what) { return Status::resource_exhausted(what, status.ToString()); }

template <typename Array, typename Builder>
arrow::Result<std::shared_ptr<arrow::ArrayData>> with_valid_text(const std::shared_ptr<arrow::ArrayData>& data) {
  const Array texts(data);
  if (texts.ValidateUTF8().ok()) {
    return data;
  }
  Builder builder(data->type, arrow::default_memory_pool());
  for (int64_t row = 0; row < texts.length(); ++row) {
    ARROW_RETURN_NOT_OK(texts.IsNull(row) ? builder.AppendNull() : builder.Append(replace_invalid_utf8(texts.GetView(row)).first));
  }
  ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::Array> repaired, builder.Finish());
  return repaired->data();
}

/// `data` with the text in lists, structs, maps and dictionaries repaired; itself where all of it is valid.
arrow::Result<std::shared_ptr<arrow::ArrayData>> with_valid_nested_text(std::shared_ptr<arrow::ArrayData> data) {
  if (data->type->id() == arrow::Type::STRING) {
    return with_valid_text<arrow::StringArray, arrow::StringBuilder>(data);
  }
  if (data->type->id() == arrow::Type::LARGE_STRING) {
    return with_valid_text<arrow::LargeStringArray, arrow::LargeStringBuilder>(data);
  }
  if (data->type->id() == arrow::Type::STRING_VIEW) {
    return with_valid_text<arrow::StringViewArray, arrow::StringViewBuilder>(data);
  }
  const std::shared_ptr<arrow::ArrayData> original = data;
  for (size_t i = 0; i < original->child_data.size(); ++i) {
    ARROW_ASSIGN_OR_RAISE(auto child, with_valid_nested_text(original->child_data[i]));
    if (child != original->child_data[i]) {
      data = data == original ? original->Copy() : data;
      data->child_data[i] = std::move(child);
    }
  }
  if (original->dictionary != nullptr) {
    ARROW_ASSIGN_OR_RAISE(auto dictionary, with_valid_nested_text(original->dictionary));
    if (dictionary != original->dictionary) {
      data = data == original ? original->Copy() : data;
      data->dictionary = std::move(dictionary);
    }
  }
  return data;
}

}  // namespace

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
  if (!is_null && !values->type()->Equals(*type_)) {
    return Status::failed_precondition("a value has another type than its column (type of the column, of the value):", type_->ToString(),
                                       values->type()->ToString());
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
  auto repaired = with_valid_nested_text((*array)->data());
  return repaired.ok() ? Result<std::shared_ptr<arrow::Array>>(arrow::MakeArray(*std::move(repaired)))
                       : arrow_failure(repaired.status(), "repairing the text of a metadata column failed:");
}

}  // namespace darkroom
