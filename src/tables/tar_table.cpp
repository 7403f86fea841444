#include "tar_table.h"

#include <arrow/array/builder_binary.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/input_name.h"
#include "darkroom/tables/picture_inputs.h"
#include "darkroom/tables/tar_samples.h"
#include "json_row.h"
#include "table_columns.h"
#include "tar_header.h"
#include "window_file.h"

namespace darkroom {
namespace {

constexpr int kSamplesStudied = 32;
constexpr size_t kMaxTarFields = 1000;
constexpr int64_t kStudyWindowBytes = 256 << 10;
constexpr int64_t kCountWindowBytes = 1 << 20;
constexpr int64_t kTarWindowBytes = 4 << 20;
constexpr int64_t kMaxJsonBytes = 4 << 20;
constexpr int64_t kMaxCaptionBytes = 1 << 20;
constexpr const char* kTarKey = "key";
constexpr const char* kTarImage = "image";
constexpr const char* kTarCaption = "caption";

/// The samples from a place in a tar on.
struct SampleWalk {
  WindowFile file;
  TarReader tar;
  TarSampleReader samples;

  SampleWalk(std::shared_ptr<const InputFile> source, int64_t window_bytes, int64_t offset)
      : file(std::move(source), window_bytes), tar(file, {}, offset), samples(tar) {}
};

int64_t start_of(const TarSample& sample) { return sample.parts.front().member.header_offset; }

/// Where samples begin, as far as anybody has read: all of the first ones, and of those behind them some. Shared by a table and its ranges.
/// Thread safety: any thread.
class SampleMarks {
 public:
  /// Where row `row` begins; nothing where that is not known.
  std::optional<int64_t> find(int64_t row) const {
    const std::lock_guard hold(mutex_);
    if (row < size()) {
      return marks_[static_cast<size_t>(row)];
    }
    const auto found = far_.find(row);
    return found == far_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(int64_t row, int64_t offset) {
    const std::lock_guard hold(mutex_);
    if (row == size()) {
      marks_.push_back(offset);
    } else if (row > size() && row % kRowsPerTarMark == 0) {
      far_.emplace(row, offset);
    }
  }
  struct Mark {
    int64_t row = 0;
    int64_t offset = 0;
  };
  /// The last known one at or before a row.
  Mark before(int64_t row) const {
    const std::lock_guard hold(mutex_);
    if (const auto after = far_.upper_bound(row); after != far_.begin() && std::prev(after)->first >= size()) {
      return {std::prev(after)->first, std::prev(after)->second};
    }
    const int64_t last = std::min(row, size() - 1);
    return last < 0 ? Mark() : Mark{last, marks_[static_cast<size_t>(last)]};
  }

 private:
  int64_t size() const { return static_cast<int64_t>(marks_.size()); }

  mutable std::mutex mutex_;  // Guards both.
  std::vector<int64_t> marks_;
  std::map<int64_t, int64_t> far_;  // By row.
};

const TarMember* picture_of(const TarSample& sample) {
  for (const TarPart& part : sample.parts) {
    if (is_picture_extension(part.extension)) {
      return &part.member;
    }
  }
  return nullptr;
}

/// The column that a member of the json is.
std::string column_of(const std::string& field, const std::vector<std::string>& fields) {
  std::string lower = field;
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (lower != kTarKey && lower != kTarImage && lower != kTarCaption) {
    return field;
  }
  return input_name(field, fields);
}

/// The columns of a tar and what of a sample's json goes into which.
struct TarLayout {
  std::shared_ptr<arrow::Schema> schema;
  std::map<std::string, int> columns;  // Of the json's members, `caption` among them; in order, as text_table's.
};

/// What the first samples have.
class LayoutStudy {
 public:
  Status add(const InputFile& file, const TarSample& sample) {
    is_empty_ = false;
    has_caption_ = has_caption_ || sample.find("txt") != nullptr;
    const TarMember* json = sample.find("json");
    if (json == nullptr || json->size_bytes > kMaxJsonBytes) {
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_bytes(file, json->data_offset, json->size_bytes));
    const size_t num_fields = fields_.size();
    bool names_caption = false;
    const bool is_object = read_json_row(text, [&](const std::string& name) {
      names_caption = names_caption || name == kTarCaption;
      if (name != kTarCaption && fields_.size() < kMaxTarFields && std::ranges::find(fields_, name) == fields_.end()) {
        fields_.push_back(name);
      }
      return nullptr;
    });
    has_caption_ = has_caption_ || (is_object && names_caption);
    if (!is_object) {
      fields_.resize(num_fields);
    }
    return Status::ok();
  }

  TarLayout finish() const {
    arrow::FieldVector columns = {arrow::field(kTarKey, arrow::utf8(), false), arrow::field(kTarImage, arrow::binary())};
    TarLayout layout;
    if (has_caption_ || is_empty_) {  // A download's item without a good row looks like its other ones.
      layout.columns.emplace(kTarCaption, static_cast<int>(columns.size()));
      columns.push_back(arrow::field(kTarCaption, arrow::utf8()));
    }
    for (const std::string& field : fields_) {
      layout.columns.emplace(field, static_cast<int>(columns.size()));
      columns.push_back(arrow::field(column_of(field, fields_), arrow::utf8()));
    }
    layout.schema = arrow::schema(std::move(columns));
    return layout;
  }

 private:
  bool has_caption_ = false;
  bool is_empty_ = true;
  std::vector<std::string> fields_;  // In the order in which they appear.
};

/// Without the line end that editors put behind a text.
std::string without_line_end(std::string text) {
  for (const char end : {'\n', '\r'}) {
    if (!text.empty() && text.back() == end) {
      text.pop_back();
    }
  }
  return text;
}

class TarRange final : public RowRange {
 public:
  TarRange(std::unique_ptr<SampleWalk> walk, std::shared_ptr<const TarLayout> layout, std::shared_ptr<SampleMarks> marks,
           std::vector<int> columns, int64_t first, int64_t count, const ReadOptions& options)
      : walk_(std::move(walk)),
        layout_(std::move(layout)),
        marks_(std::move(marks)),
        columns_(std::move(columns)),
        row_(first),
        left_(count),
        options_(options),
        values_(static_cast<size_t>(layout_->schema->num_fields())) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& name = layout_->schema->field(columns_[i])->name();
      wants_image_ = wants_image_ || name == kTarImage;
      wants_text_ = wants_text_ || (name != kTarImage && name != kTarKey);
      wants_caption_ = wants_caption_ || name == kTarCaption;
    }
  }

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::vector<std::unique_ptr<arrow::ArrayBuilder>> builders;
    arrow::FieldVector fields;
    for (const int column : columns_) {
      fields.push_back(layout_->schema->field(column));
      DARKROOM_RETURN_IF_ARROW_ERROR(arrow::MakeBuilder(table_pool(), fields.back()->type(), &builders.emplace_back()), "reading a tar");
    }
    int64_t num_rows = 0;
    for (int64_t num_bytes = 0; left_ > 0 && num_rows < options_.max_batch_rows && num_bytes < options_.batch_bytes; ++num_rows) {
      DARKROOM_ASSIGN_OR_RETURN(const std::optional<TarSample> sample, walk_->samples.next());
      if (!sample) {
        left_ = 0;
        break;
      }
      marks_->add(row_++, start_of(*sample));
      --left_;
      DARKROOM_RETURN_IF_ERROR(read_values(*sample));
      DARKROOM_RETURN_IF_ARROW_ERROR(append(builders, num_bytes), "reading a tar");
    }
    if (num_rows == 0) {
      return std::shared_ptr<arrow::RecordBatch>();
    }
    arrow::ArrayVector arrays(builders.size());
    for (size_t i = 0; i < builders.size(); ++i) {
      DARKROOM_RETURN_IF_ARROW_ERROR(builders[i]->Finish(&arrays[i]), "reading a tar");
    }
    return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), num_rows, std::move(arrays));
  }
  int64_t num_malformed_rows() const override { return num_malformed_rows_; }

 private:
  /// The values of a sample by column; null where it has none.
  Status read_values(const TarSample& sample) {
    std::ranges::fill(values_, std::nullopt);
    values_[0] = sample.key;
    bool is_whole = true;
    if (wants_image_) {
      const TarMember* picture = picture_of(sample);
      is_whole = picture != nullptr && picture->size_bytes <= kMaxPictureBytes;
      if (is_whole) {
        DARKROOM_ASSIGN_OR_RETURN(values_[1], read_member(*picture));
      }
    }
    if (wants_text_) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_read, read_text(sample));
      is_whole = is_whole && is_read;
    }
    num_malformed_rows_ += is_whole ? 0 : 1;
    return Status::ok();
  }

  /// Json, and the txt where that gives no caption. False where one of them cannot be used.
  Result<bool> read_text(const TarSample& sample) {
    bool is_whole = true;
    if (const TarMember* json = sample.find("json")) {
      is_whole = json->size_bytes <= kMaxJsonBytes;
      if (is_whole) {
        DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_member(*json));
        is_whole = read_json_row(text, [&](const std::string& name) {
          const auto column = layout_->columns.find(name);
          return column == layout_->columns.end() ? nullptr : &values_[static_cast<size_t>(column->second)];
        });
      }
      if (!is_whole) {  // What the parser stored before it gave up.
        std::fill(values_.begin() + 2, values_.end(), std::nullopt);
      }
    }
    if (const TarMember* txt = sample.find("txt"); txt != nullptr && wants_caption_ && !values_[2]) {
      if (txt->size_bytes > kMaxCaptionBytes) {
        return false;
      }
      DARKROOM_ASSIGN_OR_RETURN(std::string caption, read_member(*txt));
      values_[2] = without_line_end(std::move(caption));
    }
    return is_whole;
  }

  Result<std::string> read_member(const TarMember& member) const { return read_bytes(walk_->file, member.data_offset, member.size_bytes); }

  arrow::Status append(std::vector<std::unique_ptr<arrow::ArrayBuilder>>& builders, int64_t& num_bytes) const {
    for (size_t i = 0; i < builders.size(); ++i) {
      const auto& value = values_[static_cast<size_t>(columns_[i])];
      auto& builder = static_cast<arrow::BinaryBuilder&>(*builders[i]);  // A builder of text is one of these.
      ARROW_RETURN_NOT_OK(value ? builder.Append(*value) : builder.AppendNull());
      num_bytes += value ? static_cast<int64_t>(value->size()) : 0;
    }
    return arrow::Status::OK();
  }

  std::unique_ptr<SampleWalk> walk_;
  std::shared_ptr<const TarLayout> layout_;  // Shared with the table and its other ranges, as the marks.
  std::shared_ptr<SampleMarks> marks_;
  std::vector<int> columns_;
  bool wants_image_ = false;
  bool wants_text_ = false;
  bool wants_caption_ = false;
  int64_t row_;   // The next one's number.
  int64_t left_;  // Rows still to hand out.
  ReadOptions options_;
  std::vector<std::optional<std::string>> values_;  // Of one sample, by column of the schema.
  int64_t num_malformed_rows_ = 0;
};

class TarTable final : public TableReader {
 public:
  explicit TarTable(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {}

  Status open() {
    SampleWalk walk(file_, kStudyWindowBytes, 0);
    LayoutStudy study;
    for (int row = 0; row < kSamplesStudied; ++row) {
      DARKROOM_ASSIGN_OR_RETURN(const std::optional<TarSample> sample, walk.samples.next());
      if (!sample) {
        num_rows_ = row;
        break;
      }
      marks_->add(row, start_of(*sample));
      DARKROOM_RETURN_IF_ERROR(study.add(walk.file, *sample));
    }
    layout_ = std::make_shared<const TarLayout>(study.finish());
    return Status::ok();
  }

  const std::string& path() const override { return file_->path(); }
  TableFormat format() const override { return TableFormat::kTar; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return layout_->schema; }

  Result<int64_t> num_rows() override {
    DARKROOM_RETURN_IF_ERROR(find_row(std::numeric_limits<int64_t>::max()).status());
    const std::lock_guard hold(mutex_);
    return *num_rows_;
  }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(std::vector<int> places, find_columns(*schema(), columns, path()));
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> start,
                              count > 0 ? find_row(first) : Result<std::optional<int64_t>>(std::nullopt));
    const auto file = start ? with_read_ahead(file_, bytes_of(*start, first, count), options.read_ahead_bytes) : file_;
    auto walk = std::make_unique<SampleWalk>(file, kTarWindowBytes, start.value_or(0));
    return std::unique_ptr<RowRange>(
        std::make_unique<TarRange>(std::move(walk), layout_, marks_, std::move(places), first, start ? count : 0, options));
  }

  std::vector<int64_t> row_marks() const override {
    std::vector<int64_t> marks;
    while (const auto mark = marks_->find(static_cast<int64_t>(marks.size()) * kRowsPerTarMark)) {
      marks.push_back(*mark);
    }
    return marks;
  }
  void take_row_marks(std::span<const int64_t> marks) override {
    for (size_t i = 0; i < marks.size(); ++i) {
      marks_->add(static_cast<int64_t>(i) * kRowsPerTarMark, marks[i]);
    }
  }

 private:
  /// To the row behind them where its place is known, else to the end. The walk looks at that row's first header.
  ByteRange bytes_of(int64_t start, int64_t first, int64_t count) const {
    const auto behind = count <= std::numeric_limits<int64_t>::max() - first ? marks_->find(first + count) : std::nullopt;
    return {.offset = start, .num_bytes = (behind ? *behind + kTarBlockBytes : file_->size_bytes()) - start};
  }

  /// Where a row begins; nothing when there are fewer. Walks through the headers from the last sample that is known.
  Result<std::optional<int64_t>> find_row(int64_t row) {
    const std::lock_guard hold(mutex_);
    if (const auto mark = marks_->find(row); mark || (num_rows_ && row >= *num_rows_)) {
      return mark;
    }
    const SampleMarks::Mark start = marks_->before(row);
    int64_t at = start.row;
    SampleWalk walk(file_, kCountWindowBytes, start.offset);
    while (true) {
      DARKROOM_ASSIGN_OR_RETURN(const std::optional<TarSample> sample, walk.samples.next());
      if (!sample) {
        num_rows_ = at;
        return std::optional<int64_t>();
      }
      marks_->add(at, start_of(*sample));
      if (at++ == row) {
        return std::optional(start_of(*sample));
      }
    }
  }

  std::shared_ptr<const InputFile> file_;  // Shared with the ranges, as the next two.
  std::shared_ptr<SampleMarks> marks_ = std::make_shared<SampleMarks>();
  std::shared_ptr<const TarLayout> layout_;
  std::mutex mutex_;  // Guards what follows, and that one at a time walks.
  std::optional<int64_t> num_rows_;
};

}  // namespace

Result<std::unique_ptr<TableReader>> open_tar_table(std::shared_ptr<const InputFile> file) {
  if (!has_ending(file->path(), ".tar")) {
    return Status::failed_precondition("a compressed tar is not read; decompress it, for example with gzip -d or zstd -d (file):",
                                       file->path());
  }
  auto table = std::make_unique<TarTable>(std::move(file));
  DARKROOM_RETURN_IF_ERROR(table->open());
  return std::unique_ptr<TableReader>(std::move(table));
}

}  // namespace darkroom
