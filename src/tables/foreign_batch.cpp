#include "foreign_batch.h"

#include <arrow/array.h>
#include <arrow/array/validate.h>
#include <arrow/extension_type.h>
#include <arrow/util/checked_cast.h>

namespace darkroom {

namespace {

/// The same type with text as binary, at any depth.
std::shared_ptr<arrow::DataType> without_text(const std::shared_ptr<arrow::DataType>& type) {
  const auto child = [&](int i) { return type->field(i)->WithType(without_text(type->field(i)->type())); };
  switch (type->id()) {
    case arrow::Type::STRING:
      return arrow::binary();
    case arrow::Type::LARGE_STRING:
      return arrow::large_binary();
    case arrow::Type::STRING_VIEW:
      return arrow::binary_view();
    case arrow::Type::EXTENSION:
      return without_text(arrow::internal::checked_cast<const arrow::ExtensionType&>(*type).storage_type());
    case arrow::Type::LIST:
      return arrow::list(child(0));
    case arrow::Type::LARGE_LIST:
      return arrow::large_list(child(0));
    case arrow::Type::FIXED_SIZE_LIST:
      return arrow::fixed_size_list(child(0), arrow::internal::checked_cast<const arrow::FixedSizeListType&>(*type).list_size());
    case arrow::Type::MAP:
      return std::make_shared<arrow::MapType>(child(0), arrow::internal::checked_cast<const arrow::MapType&>(*type).keys_sorted());
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = arrow::internal::checked_cast<const arrow::DictionaryType&>(*type);
      return arrow::dictionary(dictionary.index_type(), without_text(dictionary.value_type()), dictionary.ordered());
    }
    case arrow::Type::STRUCT: {
      arrow::FieldVector fields;
      for (int i = 0; i < type->num_fields(); ++i) {
        fields.push_back(child(i));
      }
      return arrow::struct_(fields);
    }
    default:
      return type;
  }
}

/// A view of `data` as `type`, which differs only where text became binary.
std::shared_ptr<arrow::ArrayData> view_as(const arrow::ArrayData& data, const std::shared_ptr<arrow::DataType>& type) {
  std::shared_ptr<arrow::ArrayData> view = data.Copy();
  view->type = type;
  for (size_t i = 0; i < view->child_data.size() && i < static_cast<size_t>(type->num_fields()); ++i) {
    view->child_data[i] = view_as(*view->child_data[i], type->field(static_cast<int>(i))->type());
  }
  if (view->dictionary != nullptr) {
    const auto& dictionary = arrow::internal::checked_cast<const arrow::DictionaryType&>(*type);
    view->dictionary = view_as(*view->dictionary, dictionary.value_type());
  }
  return view;
}

}  // namespace

arrow::Status validate_foreign(const arrow::RecordBatch& batch) {
  ARROW_RETURN_NOT_OK(batch.Validate());
  for (const auto& column : batch.columns()) {
    ARROW_RETURN_NOT_OK(arrow::MakeArray(view_as(*column->data(), without_text(column->type())))->ValidateFull());
  }
  return arrow::Status::OK();
}

}  // namespace darkroom
