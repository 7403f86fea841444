#include "mds_table.h"

#include <arrow/builder.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/sealed_record.h"
#include "table_columns.h"

namespace darkroom {

namespace {

constexpr int64_t kMdsGroupRows = 256;
constexpr int64_t kMaxMdsConfigBytes = int64_t{16} << 20;
constexpr size_t kMaxMdsColumns = 1000;

Status corrupt_mds(const InputFile& file, std::string_view why) {
  return Status::corrupt_data("reading an MDS shard (why, path):", why, file.path());
}

std::shared_ptr<arrow::DataType> type_of_encoding(const std::string& encoding) {
  static const std::array<std::pair<std::string_view, std::shared_ptr<arrow::DataType>>, 17> kTypes = {{
      {"str", arrow::utf8()},
      {"json", arrow::utf8()},
      {"int", arrow::int64()},
      {"int8", arrow::int8()},
      {"int16", arrow::int16()},
      {"int32", arrow::int32()},
      {"int64", arrow::int64()},
      {"uint8", arrow::uint8()},
      {"uint16", arrow::uint16()},
      {"uint32", arrow::uint32()},
      {"uint64", arrow::uint64()},
      {"float16", arrow::float16()},
      {"float32", arrow::float32()},
      {"float64", arrow::float64()},
      {"str_int", arrow::utf8()},
      {"str_float", arrow::utf8()},
      {"str_decimal", arrow::utf8()},
  }};
  const auto* found = std::ranges::find(kTypes, std::string_view(encoding), &decltype(kTypes)::value_type::first);
  return found == kTypes.end() ? arrow::binary() : found->second;
}

struct MdsField {
  std::shared_ptr<arrow::DataType> type;
  int64_t num_bytes = 0;  ///< Of every value; 0: each has its own size.
};

/// What the ranges of one shard share; immutable.
struct MdsSource {
  std::shared_ptr<const InputFile> file;
  std::vector<MdsField> fields;
  std::shared_ptr<arrow::Schema> schema;
  std::vector<uint32_t> offsets;  ///< Of each sample, then their end.

  int64_t num_rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

Status read_exactly(const InputFile& file, int64_t offset, std::span<std::byte> out) {
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, out));
  return num_read == out.size() ? Status::ok() : corrupt_mds(file, "the file ends within its head or its samples");
}

Status read_offsets(const InputFile& file, std::vector<uint32_t>& offsets) {
  constexpr auto kNumber = static_cast<int64_t>(sizeof(uint32_t));
  uint32_t num_samples = 0;
  DARKROOM_RETURN_IF_ERROR(read_exactly(file, 0, std::as_writable_bytes(std::span(&num_samples, 1))));
  const int64_t table_bytes = kNumber * (int64_t{num_samples} + 1);
  if (kNumber + table_bytes > file.size_bytes()) {
    return corrupt_mds(file, "it says that it has more samples than its size allows");
  }
  offsets.resize(size_t{num_samples} + 1);
  DARKROOM_RETURN_IF_ERROR(read_exactly(file, kNumber, std::as_writable_bytes(std::span(offsets))));
  if (!std::ranges::is_sorted(offsets) || int64_t{offsets.front()} < kNumber + table_bytes || int64_t{offsets.back()} > file.size_bytes()) {
    return corrupt_mds(file, "its offsets do not ascend, or lie outside the file");
  }
  return Status::ok();
}

Status read_fields(const InputFile& file, const nlohmann::json& config, MdsSource& source) {
  if (!config.is_object() || config.value("version", nlohmann::json()) != 2 || config.value("format", nlohmann::json()) != "mds") {
    return corrupt_mds(file, "its head is none of version 2");
  }
  try {
    const auto names = config.at("column_names").get<std::vector<std::string>>();
    const auto encodings = config.at("column_encodings").get<std::vector<std::string>>();
    const nlohmann::json& sizes = config.at("column_sizes");
    if (names.empty() || names.size() > kMaxMdsColumns || encodings.size() != names.size() || !sizes.is_array() ||
        sizes.size() != names.size()) {
      return corrupt_mds(file, "its head names no columns, too many, or not as many encodings and sizes");
    }
    arrow::FieldVector fields;
    for (size_t i = 0; i < names.size(); ++i) {
      MdsField field{.type = type_of_encoding(encodings[i]), .num_bytes = sizes[i].is_null() ? 0 : sizes[i].get<int64_t>()};
      const int width = field.type->bit_width() > 0 ? field.type->bit_width() / 8 : 0;
      if (field.num_bytes < 0 || field.num_bytes > UINT32_MAX || (width > 0 && width != field.num_bytes)) {
        return corrupt_mds(file, "its head gives a column a size that its encoding does not have");
      }
      fields.push_back(arrow::field(names[i], field.type));
      source.fields.push_back(std::move(field));
    }
    source.schema = arrow::schema(std::move(fields));
  } catch (const nlohmann::json::exception& failure) {
    return corrupt_mds(file, failure.what());
  }
  return Status::ok();
}

Result<std::shared_ptr<MdsSource>> open_source(std::shared_ptr<const InputFile> file) {
  auto source = std::make_shared<MdsSource>();
  source->file = std::move(file);
  const InputFile& shard = *source->file;
  DARKROOM_RETURN_IF_ERROR(read_offsets(shard, source->offsets));
  const auto config_offset = static_cast<int64_t>(sizeof(uint32_t) * (source->offsets.size() + 1));
  const int64_t config_bytes = source->offsets.front() - config_offset;
  if (config_bytes > kMaxMdsConfigBytes) {
    return corrupt_mds(shard, "its head is too large");
  }
  std::string config(static_cast<size_t>(config_bytes), '\0');
  DARKROOM_RETURN_IF_ERROR(read_exactly(shard, config_offset, std::as_writable_bytes(std::span(config))));
  DARKROOM_RETURN_IF_ERROR(read_fields(shard, parse_json(config), *source));
  return source;
}

Status append_value(arrow::ArrayBuilder& builder, const MdsField& field, std::span<const std::byte> value) {
  arrow::Status appended;
  if (arrow::is_base_binary_like(field.type->id())) {
    appended =
        static_cast<arrow::BinaryBuilder&>(builder).Append(std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
  } else {
    // One value of a fixed width, whatever its type.
    auto buffer = arrow::Buffer::FromString(std::string(reinterpret_cast<const char*>(value.data()), value.size()));
    const auto array = arrow::ArrayData::Make(field.type, 1, {nullptr, std::move(buffer)}, 0);
    appended = builder.AppendArraySlice(arrow::ArraySpan(*array), 0, 1);
  }
  return from_arrow(appended, "reading an MDS shard", StatusCode::kResourceExhausted);
}

class MdsRange final : public RowRange {
 public:
  MdsRange(std::shared_ptr<const MdsSource> source, std::vector<int> columns, int64_t first, int64_t count, const ReadOptions& options)
      : source_(std::move(source)),
        columns_(std::move(columns)),
        next_(std::min(first, source_->num_rows())),
        end_(next_ + std::min(count, source_->num_rows() - next_)),
        options_(options) {}

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    if (next_ == end_) {
      return std::shared_ptr<arrow::RecordBatch>();
    }
    const int64_t begin = next_;
    const int64_t begin_offset = offset(begin);
    do {
      ++next_;
    } while (next_ < end_ && next_ - begin < options_.max_batch_rows && offset(next_ + 1) - begin_offset <= options_.batch_bytes);
    std::vector<std::byte> bytes(static_cast<size_t>(offset(next_) - begin_offset));
    DARKROOM_RETURN_IF_ERROR(read_exactly(*source_->file, begin_offset, bytes));
    return build(begin, bytes);
  }

 private:
  int64_t offset(int64_t sample) const { return source_->offsets[static_cast<size_t>(sample)]; }

  Result<std::shared_ptr<arrow::RecordBatch>> build(int64_t begin, std::span<const std::byte> bytes) const {
    std::vector<std::unique_ptr<arrow::ArrayBuilder>> builders;
    arrow::FieldVector fields;
    for (const int column : columns_) {
      fields.push_back(source_->schema->field(column));
      auto builder = arrow::MakeBuilder(fields.back()->type(), table_pool());
      DARKROOM_RETURN_IF_ARROW_ERROR(builder.status(), "reading an MDS shard");
      builders.push_back(*std::move(builder));
    }
    for (int64_t sample = begin; sample < next_; ++sample) {
      const auto first = static_cast<size_t>(offset(sample) - offset(begin));
      DARKROOM_ASSIGN_OR_RETURN(const auto values,
                                split_sample(sample, bytes.subspan(first, static_cast<size_t>(offset(sample + 1) - offset(sample)))));
      for (size_t i = 0; i < builders.size(); ++i) {
        const auto column = static_cast<size_t>(columns_[i]);
        DARKROOM_RETURN_IF_ERROR(append_value(*builders[i], source_->fields[column], values[column]));
      }
    }
    arrow::ArrayVector arrays;
    for (const auto& builder : builders) {
      auto array = builder->Finish();
      DARKROOM_RETURN_IF_ARROW_ERROR(array.status(), "reading an MDS shard");
      arrays.push_back(*std::move(array));
    }
    return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), next_ - begin, std::move(arrays));
  }

  /// The values of all columns: first the sizes of those that have their own, then the values.
  Result<std::vector<std::span<const std::byte>>> split_sample(int64_t number, std::span<const std::byte> sample) const {
    std::vector<int64_t> sizes;
    size_t place = 0;
    for (const MdsField& field : source_->fields) {
      uint32_t size = static_cast<uint32_t>(field.num_bytes);
      if (field.num_bytes == 0) {
        if (sample.size() - place < sizeof size) {
          return short_sample(number);
        }
        std::memcpy(&size, sample.data() + place, sizeof size);
        place += sizeof size;
      }
      sizes.push_back(size);
    }
    std::vector<std::span<const std::byte>> values;
    for (const int64_t size : sizes) {
      if (static_cast<int64_t>(sample.size() - place) < size) {
        return short_sample(number);
      }
      values.push_back(sample.subspan(place, static_cast<size_t>(size)));
      place += static_cast<size_t>(size);
    }
    return values;
  }

  Status short_sample(int64_t number) const {
    return Status::corrupt_data(
        "reading an MDS shard: the values of a sample take more bytes than it has (path, sample):", source_->file->path(), number);
  }

  std::shared_ptr<const MdsSource> source_;  // Shared with the table and its other ranges.
  std::vector<int> columns_;                 // In the order that was asked for.
  int64_t next_;
  int64_t end_;
  ReadOptions options_;
};

class MdsTable final : public TableReader {
 public:
  explicit MdsTable(std::shared_ptr<const MdsSource> source) : source_(std::move(source)) {}

  const std::string& path() const override { return source_->file->path(); }
  TableFormat format() const override { return TableFormat::kMds; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return source_->schema; }
  Result<int64_t> num_rows() override { return source_->num_rows(); }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(std::vector<int> places, find_columns(*schema(), columns, path()));
    return std::unique_ptr<RowRange>(std::make_unique<MdsRange>(source_, std::move(places), first, count, options));
  }

 private:
  std::shared_ptr<const MdsSource> source_;
};

/// A file that somebody else owns.
std::shared_ptr<const InputFile> borrowed(const InputFile& file) { return {std::shared_ptr<const InputFile>(), &file}; }

}  // namespace

Result<std::unique_ptr<TableReader>> open_mds_table(std::shared_ptr<const InputFile> file) {
  DARKROOM_ASSIGN_OR_RETURN(auto source, open_source(std::move(file)));
  return std::unique_ptr<TableReader>(std::make_unique<MdsTable>(std::move(source)));
}

Result<TableFooter> read_mds_footer(const InputFile& file) {
  DARKROOM_ASSIGN_OR_RETURN(const auto source, open_source(borrowed(file)));
  TableFooter footer{.path = file.path(),
                     .file_bytes = file.size_bytes(),
                     .content_bytes = source->offsets.back(),
                     .num_rows = source->num_rows(),
                     .row_groups = {},
                     .schema = source->schema,
                     .key_values = {}};
  for (int64_t row = 0; row < footer.num_rows; row += kMdsGroupRows) {
    const int64_t end = std::min(row + kMdsGroupRows, footer.num_rows);
    footer.row_groups.push_back(
        {.num_rows = end - row, .num_bytes = source->offsets[static_cast<size_t>(end)] - source->offsets[static_cast<size_t>(row)]});
  }
  if (footer.content_bytes < footer.file_bytes) {  // Nobody else writes anything behind the samples.
    DARKROOM_ASSIGN_OR_RETURN(SealedRecord record, read_sealed_record(file));
    if (record.content_bytes != footer.content_bytes) {
      return corrupt_mds(file, "its record does not begin where its samples end");
    }
    footer.key_values = std::move(record.pairs);
  }
  return footer;
}

}  // namespace darkroom
