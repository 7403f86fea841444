#include "mds_table.h"

#include <arrow/array/builder_binary.h>
#include <arrow/array/util.h>
#include <arrow/io/compressed.h>
#include <arrow/util/compression.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/picture_inputs.h"
#include "darkroom/tables/sealed_record.h"
#include "table_columns.h"
#include "window_file.h"

namespace darkroom {
namespace {

constexpr int64_t kMdsWindowBytes = 4 << 20;
constexpr uint32_t kMaxMdsRows = 16 << 20;
constexpr int64_t kMaxMdsHeaderBytes = 1 << 20;
constexpr size_t kMaxMdsFields = 1000;
constexpr int64_t kWordBytes = 4;
constexpr int64_t kMdsGroupRows = 256;  // As a latents dataset has them.

/// The bytes of a shard as they were before compression, from front to back. Thread safety: one object, one thread.
class MdsBytes {
 public:
  virtual ~MdsBytes() = default;
  /// The next bytes from `offset` on. Errors: kCorruptData where there are fewer. REQUIRES: not before what was read.
  virtual Status read(int64_t offset, std::span<std::byte> out) = 0;
};

Status mds_ends_early(const std::string& path, int64_t offset, size_t wanted) {
  return Status::corrupt_data("an MDS shard ends before what it says that it holds (file, offset, bytes wanted):", path, offset, wanted);
}

class PlainMdsBytes final : public MdsBytes {
 public:
  explicit PlainMdsBytes(std::shared_ptr<const InputFile> file) : file_(std::move(file), kMdsWindowBytes) {}

  Status read(int64_t offset, std::span<std::byte> out) override {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file_.read_at(offset, out));
    return num_read == out.size() ? Status::ok() : mds_ends_early(file_.path(), offset, out.size());
  }

 private:
  WindowFile file_;
};

class ZstdMdsBytes final : public MdsBytes {
 public:
  explicit ZstdMdsBytes(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {}

  Status open() {
    const std::string doing = "decompressing " + file_->path();
    auto codec = arrow::util::Codec::Create(arrow::Compression::ZSTD);
    DARKROOM_RETURN_IF_ARROW_ERROR(codec.status(), doing);
    codec_ = *std::move(codec);
    auto stream = arrow::io::CompressedInputStream::Make(codec_.get(), make_arrow_input(file_), table_pool());
    DARKROOM_RETURN_IF_ARROW_ERROR(stream.status(), doing);
    stream_ = *std::move(stream);
    return Status::ok();
  }

  Status read(int64_t offset, std::span<std::byte> out) override {
    std::array<std::byte, 64 << 10> dropped;
    while (at_ < offset) {
      const auto step = static_cast<size_t>(std::min<int64_t>(offset - at_, dropped.size()));
      DARKROOM_RETURN_IF_ERROR(take(std::span(dropped).first(step)));
    }
    return take(out);
  }

 private:
  Status take(std::span<std::byte> out) {
    while (!out.empty()) {
      const auto num_read = stream_->Read(static_cast<int64_t>(out.size()), out.data());
      DARKROOM_RETURN_IF_ARROW_ERROR(num_read.status(), fmt::format("decompressing {} behind byte {}", file_->path(), at_));
      if (*num_read == 0) {
        return mds_ends_early(file_->path(), at_, out.size());
      }
      at_ += *num_read;
      out = out.subspan(static_cast<size_t>(*num_read));
    }
    return Status::ok();
  }

  std::shared_ptr<const InputFile> file_;
  std::unique_ptr<arrow::util::Codec> codec_;
  std::shared_ptr<arrow::io::CompressedInputStream> stream_;
  int64_t at_ = 0;  // In the decompressed bytes.
};

bool is_zstd_name(const std::string& path) { return has_ending(path, ".zstd") || has_ending(path, ".zst"); }

Result<std::unique_ptr<MdsBytes>> open_mds_bytes(std::shared_ptr<const InputFile> file) {
  if (!is_zstd_name(file->path())) {
    return std::unique_ptr<MdsBytes>(std::make_unique<PlainMdsBytes>(std::move(file)));
  }
  auto bytes = std::make_unique<ZstdMdsBytes>(std::move(file));
  DARKROOM_RETURN_IF_ERROR(bytes->open());
  return std::unique_ptr<MdsBytes>(std::move(bytes));
}

uint32_t word_of(const char* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);  // Little-endian, as this machine.
  return word;
}

/// A column of a shard.
struct MdsField {
  std::string name;
  std::string encoding;
  int64_t size_bytes = 0;  ///< Of each value; 0: each sample says it.
  std::shared_ptr<arrow::DataType> type;
};

struct MdsScalar {
  const char* encoding;
  std::shared_ptr<arrow::DataType> (*type)();
};

template <const std::shared_ptr<arrow::DataType>& (*kType)()>
std::shared_ptr<arrow::DataType> type_of() {
  return kType();
}

/// null() for what is not decoded.
std::shared_ptr<arrow::DataType> type_of_encoding(const std::string& encoding) {
  static constexpr std::array kScalars = {
      MdsScalar{"int", type_of<arrow::int64>},       MdsScalar{"int8", type_of<arrow::int8>},
      MdsScalar{"int16", type_of<arrow::int16>},     MdsScalar{"int32", type_of<arrow::int32>},
      MdsScalar{"int64", type_of<arrow::int64>},     MdsScalar{"uint8", type_of<arrow::uint8>},
      MdsScalar{"uint16", type_of<arrow::uint16>},   MdsScalar{"uint32", type_of<arrow::uint32>},
      MdsScalar{"uint64", type_of<arrow::uint64>},   MdsScalar{"float16", type_of<arrow::float16>},
      MdsScalar{"float32", type_of<arrow::float32>}, MdsScalar{"float64", type_of<arrow::float64>},
      MdsScalar{"bytes", type_of<arrow::binary>},    MdsScalar{"jpeg", type_of<arrow::binary>},
      MdsScalar{"png", type_of<arrow::binary>},      MdsScalar{"str", type_of<arrow::utf8>},
      MdsScalar{"json", type_of<arrow::utf8>},       MdsScalar{"str_int", type_of<arrow::utf8>},
      MdsScalar{"str_float", type_of<arrow::utf8>},  MdsScalar{"str_decimal", type_of<arrow::utf8>},
  };
  const auto found = std::ranges::find(kScalars, encoding, &MdsScalar::encoding);
  return found == kScalars.end() ? arrow::null() : found->type();
}

bool is_fixed_type(const arrow::DataType& type) { return type.id() != arrow::Type::NA && !arrow::is_base_binary_like(type.id()); }

/// What stands before the samples.
struct MdsHeader {
  std::vector<uint32_t> offsets;  ///< Where each sample begins, then the end of the last one.
  std::vector<MdsField> columns;

  int64_t num_rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

Status bad_header(const std::string& path, std::string_view why) {
  return Status::corrupt_data(fmt::format("the head of an MDS shard cannot be read, {} (file):", why), path);
}

/// Throws what nlohmann throws.
Result<std::vector<MdsField>> columns_of(const nlohmann::json& config, const std::string& path) {
  if (const int64_t version = config.value("version", int64_t{2}); version != 2) {
    return Status::failed_precondition("an MDS shard is of a version that is not known; 2 is (file, version):", path, version);
  }
  if (config.value("format", std::string("mds")) != "mds") {
    return bad_header(path, "it is of another format");
  }
  const auto names = config.at("column_names").get<std::vector<std::string>>();
  const auto encodings = config.at("column_encodings").get<std::vector<std::string>>();
  const nlohmann::json& sizes = config.at("column_sizes");
  if (names.size() != encodings.size() || !sizes.is_array() || names.size() != sizes.size() || names.size() > kMaxMdsFields) {
    return bad_header(path, "its lists of columns differ in length or are too long");
  }
  std::vector<MdsField> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    MdsField column{.name = names[i], .encoding = encodings[i], .size_bytes = 0, .type = type_of_encoding(encodings[i])};
    column.size_bytes = sizes[i].is_null() ? 0 : sizes[i].get<int64_t>();
    const bool is_fixed = is_fixed_type(*column.type);
    if (column.size_bytes < 0 || (is_fixed && column.size_bytes != column.type->byte_width())) {
      return bad_header(
          path, fmt::format("the column {} has values of {} bytes and the encoding {}", column.name, column.size_bytes, column.encoding));
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

Result<MdsHeader> read_mds_header(MdsBytes& bytes, const std::string& path, std::optional<int64_t> file_bytes) {
  std::string head(kWordBytes, '\0');
  DARKROOM_RETURN_IF_ERROR(bytes.read(0, std::as_writable_bytes(std::span(head))));
  const uint32_t num_rows = word_of(head.data());
  if (num_rows > kMaxMdsRows) {
    return Status::corrupt_data("an MDS shard says that it has more rows than can be (file, rows, limit):", path, num_rows, kMaxMdsRows);
  }
  if (file_bytes && kWordBytes * (int64_t{num_rows} + 2) > *file_bytes) {
    return mds_ends_early(path, kWordBytes, kWordBytes * (size_t{num_rows} + 1));
  }
  MdsHeader header;
  constexpr size_t kWordsAtOnce = 64 << 10;  // A size that lies costs no more memory than there are bytes.
  for (size_t left = size_t{num_rows} + 1, at = kWordBytes; left > 0;) {
    const size_t count = std::min(left, kWordsAtOnce);
    const size_t begin = header.offsets.size();
    header.offsets.resize(begin + count);
    DARKROOM_RETURN_IF_ERROR(bytes.read(static_cast<int64_t>(at), std::as_writable_bytes(std::span(header.offsets).subspan(begin))));
    left -= count;
    at += count * kWordBytes;
  }
  const int64_t config_at = kWordBytes * (int64_t{num_rows} + 2);
  const int64_t config_bytes = int64_t{header.offsets.front()} - config_at;
  if (!std::ranges::is_sorted(header.offsets) || config_bytes < 0 || config_bytes > kMaxMdsHeaderBytes) {
    return bad_header(path, "the places of its samples are out of order");
  }
  if (file_bytes && int64_t{header.offsets.back()} > *file_bytes) {
    return mds_ends_early(path, header.offsets.front(), header.offsets.back() - header.offsets.front());
  }
  std::string config(static_cast<size_t>(config_bytes), '\0');
  DARKROOM_RETURN_IF_ERROR(bytes.read(config_at, std::as_writable_bytes(std::span(config))));
  try {
    DARKROOM_ASSIGN_OR_RETURN(header.columns, columns_of(parse_json(config), path));
  } catch (const nlohmann::json::exception& error) {
    return bad_header(path, error.what());
  }
  return header;
}

/// Builds one column of a batch.
class MdsFieldBuilder {
 public:
  explicit MdsFieldBuilder(const MdsField& column)
      : column_(column),
        fixed_(arrow::fixed_size_binary(is_fixed_type(*column.type) ? column.type->byte_width() : 0), table_pool()),
        variable_(table_pool()) {}

  /// A null pointer is a null. REQUIRES: a value of a fixed size has it.
  arrow::Status append(const std::string_view* value) {
    ++num_rows_;
    if (column_.type->id() == arrow::Type::NA) {
      return arrow::Status::OK();
    }
    if (is_fixed_type(*column_.type)) {
      return value != nullptr ? fixed_.Append(*value) : fixed_.AppendNull();
    }
    return value != nullptr ? variable_.Append(*value) : variable_.AppendNull();
  }
  arrow::Result<std::shared_ptr<arrow::Array>> finish() {
    if (column_.type->id() == arrow::Type::NA) {
      return arrow::MakeArrayOfNull(column_.type, num_rows_, table_pool());
    }
    std::shared_ptr<arrow::Array> array;
    arrow::ArrayBuilder& builder = is_fixed_type(*column_.type) ? static_cast<arrow::ArrayBuilder&>(fixed_) : variable_;
    ARROW_RETURN_NOT_OK(builder.Finish(&array));
    return array->View(column_.type);
  }

 private:
  const MdsField& column_;
  arrow::FixedSizeBinaryBuilder fixed_;
  arrow::BinaryBuilder variable_;
  int64_t num_rows_ = 0;
};

/// The values of a sample, one a column. False when its sizes do not fit it.
bool split_sample(std::string_view sample, const std::vector<MdsField>& columns, std::vector<std::string_view>& values) {
  size_t at = 0;
  std::vector<size_t> sizes;
  for (const MdsField& column : columns) {
    sizes.push_back(static_cast<size_t>(column.size_bytes));
    if (column.size_bytes == 0) {
      if (sample.size() - at < kWordBytes) {
        return false;
      }
      sizes.back() = word_of(sample.data() + at);
      at += kWordBytes;
    }
  }
  values.clear();
  for (const size_t size : sizes) {
    if (size > sample.size() - at) {
      return false;
    }
    values.push_back(sample.substr(at, size));
    at += size;
  }
  return at == sample.size();
}

class MdsRange final : public RowRange {
 public:
  MdsRange(std::unique_ptr<MdsBytes> bytes, std::shared_ptr<const MdsHeader> header, std::vector<int> columns, int64_t first, int64_t count,
           const ReadOptions& options)
      : bytes_(std::move(bytes)), header_(std::move(header)), columns_(std::move(columns)), options_(options) {
    next_ = std::min(first, header_->num_rows());
    end_ = count > header_->num_rows() - next_ ? header_->num_rows() : next_ + count;
  }

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::vector<MdsFieldBuilder> builders;
    builders.reserve(columns_.size());
    for (const int column : columns_) {
      builders.emplace_back(header_->columns[static_cast<size_t>(column)]);
    }
    int64_t num_rows = 0;
    for (int64_t num_bytes = 0; next_ < end_ && num_rows < options_.max_batch_rows && num_bytes < options_.batch_bytes; ++num_rows) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_whole, read_sample());
      for (size_t i = 0; i < builders.size(); ++i) {
        const std::string_view* value = is_whole ? &values_[static_cast<size_t>(columns_[i])] : nullptr;
        DARKROOM_RETURN_IF_ARROW_ERROR(builders[i].append(value), "reading an MDS shard");
      }
      num_bytes += static_cast<int64_t>(sample_.size());
    }
    return num_rows == 0 ? Result<std::shared_ptr<arrow::RecordBatch>>(nullptr) : finish(num_rows, builders);
  }
  int64_t num_malformed_rows() const override { return num_malformed_rows_; }

 private:
  /// Reads the next sample into values_; false where it is none.
  Result<bool> read_sample() {
    const auto row = static_cast<size_t>(next_++);
    const int64_t begin = header_->offsets[row];
    const int64_t size = header_->offsets[row + 1] - begin;
    sample_.clear();
    bool is_whole = size <= kMaxPictureBytes;
    if (is_whole) {
      sample_.resize(static_cast<size_t>(size));
      DARKROOM_RETURN_IF_ERROR(bytes_->read(begin, std::as_writable_bytes(std::span(sample_))));
      is_whole = split_sample(sample_, header_->columns, values_);
    }
    num_malformed_rows_ += is_whole ? 0 : 1;
    return is_whole;
  }

  Result<std::shared_ptr<arrow::RecordBatch>> finish(int64_t num_rows, std::vector<MdsFieldBuilder>& builders) const {
    arrow::FieldVector fields;
    arrow::ArrayVector arrays;
    for (size_t i = 0; i < builders.size(); ++i) {
      const MdsField& column = header_->columns[static_cast<size_t>(columns_[i])];
      auto array = builders[i].finish();
      DARKROOM_RETURN_IF_ARROW_ERROR(array.status(), "reading an MDS shard");
      fields.push_back(arrow::field(column.name, column.type));
      arrays.push_back(*std::move(array));
    }
    return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), num_rows, std::move(arrays));
  }

  std::unique_ptr<MdsBytes> bytes_;
  std::shared_ptr<const MdsHeader> header_;  // Shared with the table and its other ranges.
  std::vector<int> columns_;
  ReadOptions options_;
  int64_t next_ = 0;
  int64_t end_ = 0;
  std::string sample_;
  std::vector<std::string_view> values_;  // Of sample_.
  int64_t num_malformed_rows_ = 0;
};

class MdsTable final : public TableReader {
 public:
  MdsTable(std::shared_ptr<const InputFile> file, MdsHeader header)
      : file_(std::move(file)), header_(std::make_shared<const MdsHeader>(std::move(header))) {
    arrow::FieldVector fields;
    for (const MdsField& column : header_->columns) {
      const bool is_read = column.type->id() != arrow::Type::NA;
      const auto field = arrow::field(column.name, column.type);
      fields.push_back(is_read ? field : field->WithMetadata(arrow::key_value_metadata({{"encoding", column.encoding}})));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  const std::string& path() const override { return file_->path(); }
  TableFormat format() const override { return TableFormat::kMds; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  Result<int64_t> num_rows() override { return header_->num_rows(); }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(std::vector<int> places, find_columns(*schema_, columns, path()));
    DARKROOM_ASSIGN_OR_RETURN(auto bytes, open_mds_bytes(with_read_ahead(file_, bytes_of(first, count), options.read_ahead_bytes)));
    return std::unique_ptr<RowRange>(std::make_unique<MdsRange>(std::move(bytes), header_, std::move(places), first, count, options));
  }

 private:
  /// What is read of the file; of a compressed one nobody knows where the last row ends.
  ByteRange bytes_of(int64_t first, int64_t count) const {
    if (is_zstd_name(path())) {
      return {.offset = 0, .num_bytes = count > 0 ? file_->size_bytes() : 0};
    }
    const int64_t begin = std::min(first, header_->num_rows());
    const int64_t end = begin + std::min(count, header_->num_rows() - begin);
    const int64_t offset = header_->offsets[static_cast<size_t>(begin)];
    return {.offset = offset, .num_bytes = header_->offsets[static_cast<size_t>(end)] - offset};
  }

  std::shared_ptr<const InputFile> file_;  // Shared with the ranges.
  std::shared_ptr<const MdsHeader> header_;
  std::shared_ptr<arrow::Schema> schema_;
};

/// A shard's head, and the record behind its samples where it is one of ours.
struct OpenedMds {
  MdsHeader header;
  KeyValues record = {};
};

Result<OpenedMds> open_mds(const std::shared_ptr<const InputFile>& file) {
  const std::string& path = file->path();
  if (!has_ending(path, ".mds") && !is_zstd_name(path)) {
    return Status::failed_precondition("an MDS shard is compressed in a way that is not read; zstd and none are (file):", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto bytes, open_mds_bytes(file));
  const std::optional<int64_t> file_bytes = is_zstd_name(path) ? std::nullopt : std::optional(file->size_bytes());
  OpenedMds opened;
  DARKROOM_ASSIGN_OR_RETURN(opened.header, read_mds_header(*bytes, path, file_bytes));
  const int64_t end = opened.header.offsets.back();
  if (file_bytes && end < *file_bytes) {  // Nobody else writes anything behind the samples.
    Result<SealedRecord> record = read_sealed_record(*file);
    if (!record.is_ok() || record->content_bytes != end) {
      return Status::corrupt_data("an MDS shard has another size than its samples end at, and no record there (file, end, size):", path,
                                  end, *file_bytes);
    }
    opened.record = std::move(record->pairs);
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<TableReader>> open_mds_table(std::shared_ptr<const InputFile> file) {
  DARKROOM_ASSIGN_OR_RETURN(OpenedMds opened, open_mds(file));
  return std::unique_ptr<TableReader>(std::make_unique<MdsTable>(std::move(file), std::move(opened.header)));
}

Result<TableFooter> read_mds_footer(const InputFile& file) {
  const std::shared_ptr<const InputFile> borrowed(std::shared_ptr<const InputFile>(), &file);
  DARKROOM_ASSIGN_OR_RETURN(OpenedMds opened, open_mds(borrowed));
  const std::vector<uint32_t> offsets = opened.header.offsets;
  const MdsTable table(borrowed, std::move(opened.header));
  TableFooter footer{.path = file.path(),
                     .file_bytes = file.size_bytes(),
                     .content_bytes = offsets.back(),
                     .num_rows = static_cast<int64_t>(offsets.size()) - 1,
                     .row_groups = {},
                     .schema = table.schema(),
                     .key_values = std::move(opened.record)};
  for (int64_t row = 0; row < footer.num_rows; row += kMdsGroupRows) {
    const int64_t end = std::min(row + kMdsGroupRows, footer.num_rows);
    footer.row_groups.push_back(
        {.num_rows = end - row, .num_bytes = offsets[static_cast<size_t>(end)] - offsets[static_cast<size_t>(row)]});
  }
  return footer;
}

}  // namespace darkroom
