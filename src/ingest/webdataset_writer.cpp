#include "webdataset_writer.h"

#include <arrow/scalar.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

// Fields of img2dataset's own that no column of ours has.
constexpr std::array<std::string_view, 6> kReservedFields = {"status",          "error_message", "original_width",
                                                             "original_height", "exif",          "sha256"};

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

bool is_reserved(std::string name) {
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::ranges::find(kReservedFields, name) != kReservedFields.end();
}

std::string_view picture_extension(ImageFormat format) {
  return format == ImageFormat::kJpeg ? "jpg" : format == ImageFormat::kPng ? "png" : "webp";
}

template <typename Type>
nlohmann::ordered_json number_at(const arrow::Array& array) {
  return static_cast<const arrow::NumericArray<Type>&>(array).Value(0);
}

/// JSON has no NaN and no infinity: they are null.
nlohmann::ordered_json finite_or_null(double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr; }

/// The only value of an array; a type that JSON does not have is its text.
Result<nlohmann::ordered_json> json_of(const arrow::Array& array) {
  if (array.IsNull(0)) {
    return nlohmann::ordered_json();
  }
  if (is_bytes_type(*array.type())) {
    return nlohmann::ordered_json(std::string(bytes_at(array, 0)));
  }
  const auto scalar = array.GetScalar(0);
  if (!scalar.ok()) {
    return Status::resource_exhausted("copying a metadata value failed:", scalar.status().ToString());
  }
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return nlohmann::ordered_json(static_cast<const arrow::BooleanArray&>(array).Value(0));
    case arrow::Type::INT8:
      return number_at<arrow::Int8Type>(array);
    case arrow::Type::INT16:
      return number_at<arrow::Int16Type>(array);
    case arrow::Type::INT32:
      return number_at<arrow::Int32Type>(array);
    case arrow::Type::INT64:
      return number_at<arrow::Int64Type>(array);
    case arrow::Type::UINT8:
      return number_at<arrow::UInt8Type>(array);
    case arrow::Type::UINT16:
      return number_at<arrow::UInt16Type>(array);
    case arrow::Type::UINT32:
      return number_at<arrow::UInt32Type>(array);
    case arrow::Type::UINT64:
      return number_at<arrow::UInt64Type>(array);
    case arrow::Type::FLOAT:
      return finite_or_null(static_cast<const arrow::FloatArray&>(array).Value(0));
    case arrow::Type::DOUBLE:
      return finite_or_null(static_cast<const arrow::DoubleArray&>(array).Value(0));
    default:
      return nlohmann::ordered_json((*scalar)->ToString());
  }
}

}  // namespace

Result<std::unique_ptr<ItemWriter<DownloadRow>>> WebdatasetWriter::open(JobRun& run, std::shared_ptr<DownloadItem> item) {
  std::unique_ptr<WebdatasetWriter> made(new WebdatasetWriter(run, std::move(item)));
  DARKROOM_RETURN_IF_ERROR(made->open_columns());
  const Location& output = run.output();
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, made->item_->work.part_name()));
  made->shard_ = std::make_unique<TarShardWriter>(std::move(object));
  return std::unique_ptr<ItemWriter<DownloadRow>>(std::move(made));
}

Status WebdatasetWriter::open_columns() {
  const UrlColumns& columns = item_->columns;
  for (size_t i = 0; i < columns.metadata.size(); ++i) {
    const auto field = item_->table_schema->GetFieldByName(columns.metadata[i]);
    DARKROOM_ASSIGN_OR_RETURN(ValueCopier copier, ValueCopier::create(columns.metadata[i], field->type()));
    metadata_.push_back(std::move(copier));
    std::string name = columns.output_names[i];
    while (is_reserved(name) || (name != columns.output_names[i] && std::ranges::count(columns.output_names, name) > 0)) {
      name = "input_" + name;
    }
    names_.push_back(std::move(name));
  }
  name_hex_fields();
  return Status::ok();
}

/// The fields of values' bytes: each as no other field of a row is named.
void WebdatasetWriter::name_hex_fields() {
  for (const std::string& name : names_) {
    std::string hex = name + "_hex";
    while (std::ranges::count(names_, hex) > 0 || std::ranges::count(hex_names_, hex) > 0) {
      hex += "_hex";
    }
    hex_names_.push_back(std::move(hex));
  }
}

Result<std::string> WebdatasetWriter::describe(const DownloadRow& row, const std::string& key) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (size_t i = 0; i < metadata_.size(); ++i) {
    DARKROOM_RETURN_IF_ERROR(metadata_[i].append(*row.table->GetColumnByName(item_->columns.metadata[i]), row.table_row));
    DARKROOM_ASSIGN_OR_RETURN(const auto value, metadata_[i].finish());
    DARKROOM_ASSIGN_OR_RETURN(json[names_[i]], json_of(*value));
    // JSON holds no other bytes than UTF-8: what can be shown of them, and all of them.
    const bool is_text = is_bytes_type(*value->type()) && !value->IsNull(0);
    if (const auto [shown, was_invalid] = replace_invalid_utf8(is_text ? bytes_at(*value, 0) : std::string_view()); was_invalid) {
      json[names_[i]] = shown;
      json[hex_names_[i]] = hex_of(bytes_at(*value, 0));
    }
  }
  json["caption"] = row.caption;
  json["url"] = row.url;
  json["key"] = key;
  json["status"] = "success";
  json["error_message"] = nullptr;
  json["width"] = row.header.width;
  json["height"] = row.header.height;
  json["original_width"] = row.header.width;
  json["original_height"] = row.header.height;
  json["sha256"] = sha256_hex(row.image);
  return json.dump(4, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status WebdatasetWriter::add(int64_t /*position*/, DownloadRow row) {
  ++tally_.rows_in;
  tally_.num_invalid_captions += row.caption_was_invalid ? 1 : 0;
  run_.count_row(row.error ? &*row.error : nullptr);
  if (row.error) {
    ++tally_.rows_by_error[row.error->name()];
    tally_.failed_rows[row.error->name()].push_back(row.position);
    return Status::ok();
  }
  ++tally_.rows_out;
  const std::string key = row_key(item_->work.list_row + row.position);
  DARKROOM_ASSIGN_OR_RETURN(const std::string json, describe(row, key));
  // By their extensions, as webdataset's own writer does.
  std::array<std::pair<std::string_view, std::string_view>, 3> members = {
      {{picture_extension(row.header.format), row.image}, {"json", json}, {"txt", row.caption}}};
  std::ranges::sort(members);
  for (const auto& [extension, data] : members) {
    DARKROOM_RETURN_IF_ERROR(shard_->add(fmt::format("{}.{}", key, extension), data));
  }
  return Status::ok();
}

Result<std::unique_ptr<FinishedItem>> WebdatasetWriter::finish() {
  tally_.rows_filtered = item_->rows_filtered;
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, shard_->finish(run_.plan().footer_of(item_->work, tally_), tally_.rows_out));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

}  // namespace darkroom
