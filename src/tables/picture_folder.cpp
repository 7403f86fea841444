#include "picture_folder.h"

#include <arrow/array/builder_binary.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/input_name.h"
#include "darkroom/tables/picture_inputs.h"
#include "table_columns.h"
#include "text_table.h"
#include "window_file.h"

namespace darkroom {
namespace {

constexpr int64_t kMaxTxtBytes = 1 << 20;
constexpr int64_t kIdentityTailBytes = 64 << 10;
constexpr const char* kPictureColumn = "image";
constexpr const char* kPictureCaption = "caption";
constexpr const char* kFileNameColumn = "file_name";

/// Whether a part of the name begins with "." or "_"; ".." does, too.
bool has_hidden_part(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    if (name[begin] == '.' || name[begin] == '_') {
      return true;
    }
    begin = std::min(name.find('/', begin), name.size() - 1) + 1;
  }
  return false;
}

/// The files of a folder that make up its rows.
class FolderFiles {
 public:
  static Result<std::shared_ptr<const FolderFiles>> list(FolderSource source) {
    DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> found, source.list());
    std::erase_if(found, [](const FileInfo& file) { return has_hidden_part(file.path); });
    std::ranges::sort(found, {}, &FileInfo::path);
    auto files = std::make_shared<FolderFiles>();
    for (FileInfo& file : found) {
      const ContainerKind kind = container_kind(file.path);
      if (kind == ContainerKind::kPicture) {
        files->pictures_.push_back(std::move(file));
      } else if (kind == ContainerKind::kMetadata && file.path.find('/') == std::string::npos) {
        files->metadata_.push_back(std::move(file));
      } else if (file.path.ends_with(".txt")) {
        files->texts_.push_back(std::move(file));
      }
    }
    files->source_ = std::move(source);
    return std::shared_ptr<const FolderFiles>(std::move(files));
  }

  const std::string& path() const { return source_.path; }
  const std::vector<FileInfo>& pictures() const { return pictures_; }
  const std::vector<FileInfo>& metadata() const { return metadata_; }
  const FileInfo* find_picture(std::string_view name) const { return find_file(pictures_, name.substr(name.starts_with("./") ? 2 : 0)); }
  /// The text beside a picture.
  const FileInfo* find_text(const std::string& picture) const { return find_file(texts_, picture.substr(0, picture.rfind('.')) + ".txt"); }

  Result<std::unique_ptr<InputFile>> open(const FileInfo& file) const { return source_.open(file); }
  /// The whole file. Errors: kFailedPrecondition when it has another size now.
  Result<std::string> read(const FileInfo& file) const {
    DARKROOM_ASSIGN_OR_RETURN(const auto opened, open(file));
    if (opened->size_bytes() != file.size_bytes) {
      return Status::failed_precondition("a file changed since its folder was listed (file):", path() + file.path);
    }
    return read_bytes(*opened, 0, file.size_bytes);
  }

 private:
  static const FileInfo* find_file(const std::vector<FileInfo>& files, std::string_view name) {
    const auto found = std::ranges::lower_bound(files, name, {}, [](const FileInfo& file) { return std::string_view(file.path); });
    return found != files.end() && found->path == name ? &*found : nullptr;
  }

  FolderSource source_;
  std::vector<FileInfo> pictures_, texts_, metadata_;  // In byte order of their names.
};

/// The identity that names and sizes give.
class ListingHash {
 public:
  void add(const std::vector<FileInfo>& files) {
    for (const FileInfo& file : files) {
      hash_.update(std::to_string(file.size_bytes) + " " + std::to_string(file.path.size()) + " " + file.path + "\n");
      size_bytes_ += file.size_bytes;
    }
  }
  void add_bytes(std::string_view bytes) { hash_.update(bytes); }
  TableIdentity finish() { return {.size_bytes = size_bytes_, .sha256 = hash_.finish_hex()}; }

 private:
  Sha256 hash_;
  int64_t size_bytes_ = 0;
};

/// A column of pictures, and how many bytes it holds.
class PictureBuilder {
 public:
  explicit PictureBuilder(const FolderFiles& files) : files_(files), builder_(table_pool()) {}

  /// Null for none, or one that is too large: false then.
  Result<bool> add(const FileInfo* picture) {
    if (picture == nullptr || picture->size_bytes > kMaxPictureBytes) {
      DARKROOM_RETURN_IF_ARROW_ERROR(builder_.AppendNull(), "reading a folder of pictures");
      return false;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, files_.read(*picture));
    DARKROOM_RETURN_IF_ARROW_ERROR(builder_.Append(bytes), "reading a folder of pictures");
    num_bytes_ += static_cast<int64_t>(bytes.size());
    return true;
  }
  int64_t num_bytes() const { return num_bytes_; }
  Result<std::shared_ptr<arrow::Array>> finish() {
    std::shared_ptr<arrow::Array> array;
    DARKROOM_RETURN_IF_ARROW_ERROR(builder_.Finish(&array), "reading a folder of pictures");
    return array;
  }

 private:
  const FolderFiles& files_;
  arrow::BinaryBuilder builder_;
  int64_t num_bytes_ = 0;
};

/// Rows of a folder without metadata.
class PlainFolderRange final : public RowRange {
 public:
  PlainFolderRange(std::shared_ptr<const FolderFiles> files, std::shared_ptr<arrow::Schema> schema, int64_t first, int64_t count,
                   const ReadOptions& options)
      : files_(std::move(files)), schema_(std::move(schema)), options_(options) {
    const auto num_rows = static_cast<int64_t>(files_->pictures().size());
    next_ = std::min(first, num_rows);
    end_ = count > num_rows - next_ ? num_rows : next_ + count;
  }

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    PictureBuilder pictures(*files_);
    arrow::StringBuilder captions(table_pool());
    arrow::StringBuilder names(table_pool());
    int64_t num_rows = 0;
    while (next_ < end_ && num_rows < options_.max_batch_rows && pictures.num_bytes() < options_.batch_bytes) {
      const FileInfo& file = files_->pictures()[static_cast<size_t>(next_)];
      bool is_whole = true;
      if (schema_->GetFieldIndex(kPictureColumn) >= 0) {
        DARKROOM_ASSIGN_OR_RETURN(is_whole, pictures.add(&file));
      }
      if (schema_->GetFieldIndex(kPictureCaption) >= 0) {
        DARKROOM_ASSIGN_OR_RETURN(const bool has_caption, add_caption(file, captions));
        is_whole = is_whole && has_caption;
      }
      DARKROOM_RETURN_IF_ARROW_ERROR(names.Append(file.path), "reading a folder of pictures");
      num_malformed_rows_ += is_whole ? 0 : 1;
      ++num_rows;
      ++next_;
    }
    return num_rows == 0 ? Result<std::shared_ptr<arrow::RecordBatch>>(nullptr) : finish(num_rows, pictures, captions, names);
  }
  int64_t num_malformed_rows() const override { return num_malformed_rows_; }

 private:
  Result<bool> add_caption(const FileInfo& picture, arrow::StringBuilder& captions) const {
    const FileInfo* file = files_->find_text(picture.path);
    std::string text;
    if (file != nullptr && file->size_bytes > kMaxTxtBytes) {
      DARKROOM_RETURN_IF_ARROW_ERROR(captions.AppendNull(), "reading a folder of pictures");
      return false;
    }
    if (file != nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(text, files_->read(*file));
    }
    for (const char end : {'\n', '\r'}) {
      text.resize(text.size() - (text.ends_with(end) ? 1 : 0));
    }
    DARKROOM_RETURN_IF_ARROW_ERROR(captions.Append(text), "reading a folder of pictures");
    return true;
  }

  Result<std::shared_ptr<arrow::RecordBatch>> finish(int64_t num_rows, PictureBuilder& pictures, arrow::StringBuilder& captions,
                                                     arrow::StringBuilder& names) const {
    arrow::ArrayVector arrays;
    for (const auto& field : schema_->fields()) {
      if (field->name() == kPictureColumn) {
        DARKROOM_ASSIGN_OR_RETURN(arrays.emplace_back(), pictures.finish());
      } else {
        auto& builder = field->name() == kPictureCaption ? captions : names;
        DARKROOM_RETURN_IF_ARROW_ERROR(builder.Finish(&arrays.emplace_back()), "reading a folder of pictures");
      }
    }
    return arrow::RecordBatch::Make(schema_, num_rows, std::move(arrays));
  }

  std::shared_ptr<const FolderFiles> files_;  // Shared with the table and its other ranges.
  std::shared_ptr<arrow::Schema> schema_;     // Of the columns that are wanted.
  ReadOptions options_;
  int64_t next_ = 0;
  int64_t end_ = 0;
  int64_t num_malformed_rows_ = 0;
};

std::shared_ptr<arrow::Schema> chosen_schema(const arrow::Schema& schema, const std::vector<int>& places) {
  arrow::FieldVector fields;
  for (const int place : places) {
    fields.push_back(schema.field(place));
  }
  return arrow::schema(std::move(fields));
}

class PlainFolderTable final : public TableReader {
 public:
  explicit PlainFolderTable(std::shared_ptr<const FolderFiles> files) : files_(std::move(files)) {
    ListingHash hash;
    hash.add(files_->pictures());
    for (const FileInfo& picture : files_->pictures()) {
      if (const FileInfo* text = files_->find_text(picture.path)) {
        hash.add({*text});
      }
    }
    identity_ = hash.finish();
  }

  const std::string& path() const override { return files_->path(); }
  TableFormat format() const override { return TableFormat::kFolder; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  Result<int64_t> num_rows() override { return static_cast<int64_t>(files_->pictures().size()); }
  std::optional<TableIdentity> identity() const override { return identity_; }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<int> places, find_columns(*schema_, columns, path()));
    return std::unique_ptr<RowRange>(std::make_unique<PlainFolderRange>(files_, chosen_schema(*schema_, places), first, count, options));
  }

 private:
  std::shared_ptr<const FolderFiles> files_;
  TableIdentity identity_;
  std::shared_ptr<arrow::Schema> schema_ =
      arrow::schema({arrow::field(kPictureColumn, arrow::binary()), arrow::field(kPictureCaption, arrow::utf8()),
                     arrow::field(kFileNameColumn, arrow::utf8(), false)});
};

/// Rows of metadata joined with the pictures that they name.
class ImageFolderRange final : public RowRange {
 public:
  /// `metadata`: its columns are those of `schema` without the pictures, in their order; the file names are column `names`, perhaps behind
  /// them.
  ImageFolderRange(std::shared_ptr<const FolderFiles> files, std::unique_ptr<RowRange> metadata, int names,
                   std::shared_ptr<arrow::Schema> schema, const ReadOptions& options)
      : files_(std::move(files)), metadata_(std::move(metadata)), names_(names), schema_(std::move(schema)), options_(options) {}

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    if (rows_ == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(rows_, metadata_->next());
    }
    if (rows_ == nullptr) {
      return rows_;
    }
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn names, BytesColumn::open(files_->path(), kFileNameColumn, rows_->column(names_)));
    const bool wants_pictures = schema_->GetFieldIndex(kPictureColumn) >= 0;
    PictureBuilder pictures(*files_);
    int64_t num_rows = 0;
    while (num_rows < rows_->num_rows() && (!wants_pictures || pictures.num_bytes() < options_.batch_bytes)) {
      if (wants_pictures) {
        DARKROOM_ASSIGN_OR_RETURN(const bool is_there, pictures.add(files_->find_picture(names.at(num_rows).value_or(""))));
        num_missing_ += is_there ? 0 : 1;
      }
      ++num_rows;
    }
    DARKROOM_ASSIGN_OR_RETURN(auto batch, finish(*rows_->Slice(0, num_rows), pictures));
    rows_ = num_rows < rows_->num_rows() ? rows_->Slice(num_rows) : nullptr;
    return batch;
  }
  /// A malformed row of the metadata names no picture: it is counted as such.
  int64_t num_malformed_rows() const override {
    return schema_->GetFieldIndex(kPictureColumn) >= 0 ? num_missing_ : metadata_->num_malformed_rows();
  }

 private:
  Result<std::shared_ptr<arrow::RecordBatch>> finish(const arrow::RecordBatch& rows, PictureBuilder& pictures) const {
    arrow::ArrayVector arrays;
    int next_text = 0;
    for (const auto& field : schema_->fields()) {
      if (field->name() == kPictureColumn) {
        DARKROOM_ASSIGN_OR_RETURN(arrays.emplace_back(), pictures.finish());
      } else {
        arrays.push_back(rows.column(next_text++));
      }
    }
    return arrow::RecordBatch::Make(schema_, rows.num_rows(), std::move(arrays));
  }

  std::shared_ptr<const FolderFiles> files_;
  std::unique_ptr<RowRange> metadata_;
  const int names_;
  std::shared_ptr<arrow::Schema> schema_;
  ReadOptions options_;
  std::shared_ptr<arrow::RecordBatch> rows_;  // Of the metadata, not handed out yet; null: none.
  int64_t num_missing_ = 0;
};

class ImageFolderTable final : public TableReader {
 public:
  ImageFolderTable(std::shared_ptr<const FolderFiles> files, std::unique_ptr<TableReader> metadata)
      : files_(std::move(files)), metadata_(std::move(metadata)) {}

  Status open(const InputFile& metadata_file) {
    if (metadata_->schema()->GetFieldIndex(kFileNameColumn) < 0) {
      return find_columns(*metadata_->schema(), {kFileNameColumn}, metadata_->path()).status();
    }
    const std::vector<std::string> names = metadata_->schema()->field_names();
    arrow::FieldVector fields = {arrow::field(kPictureColumn, arrow::binary())};
    for (const auto& field : metadata_->schema()->fields()) {
      std::string lower = field->name();
      std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
      fields.push_back(lower == kPictureColumn ? field->WithName(input_name(field->name(), names)) : field);
    }
    schema_ = arrow::schema(std::move(fields));
    const int64_t tail = std::min(metadata_file.size_bytes(), kIdentityTailBytes);
    DARKROOM_ASSIGN_OR_RETURN(const std::string end, read_bytes(metadata_file, metadata_file.size_bytes() - tail, tail));
    ListingHash hash;
    hash.add(files_->metadata());
    hash.add(files_->pictures());
    hash.add_bytes(end);
    identity_ = hash.finish();
    return Status::ok();
  }

  const std::string& path() const override { return files_->path(); }
  TableFormat format() const override { return TableFormat::kFolder; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  Result<int64_t> num_rows() override { return metadata_->num_rows(); }
  std::optional<TableIdentity> identity() const override { return identity_; }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<int> places, find_columns(*schema_, columns, path()));
    std::vector<std::string> texts;
    for (const int place : places) {
      if (place > 0) {
        texts.push_back(metadata_->schema()->field(place - 1)->name());
      }
    }
    auto names = std::ranges::find(texts, kFileNameColumn);
    if (names == texts.end()) {
      names = texts.insert(texts.end(), kFileNameColumn);
    }
    const auto names_at = static_cast<int>(names - texts.begin());
    DARKROOM_ASSIGN_OR_RETURN(auto rows, metadata_->read_rows(first, count, texts, options));
    return std::unique_ptr<RowRange>(
        std::make_unique<ImageFolderRange>(files_, std::move(rows), names_at, chosen_schema(*schema_, places), options));
  }

 private:
  std::shared_ptr<const FolderFiles> files_;
  std::unique_ptr<TableReader> metadata_;
  TableIdentity identity_;
  std::shared_ptr<arrow::Schema> schema_;  // The pictures, then the metadata's columns.
};

/// The name of a file within a folder.
std::string name_within(const std::string& folder, const std::string& path) {
  const std::string prefix = join_path(folder, "");
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

}  // namespace

FolderSource folder_source(FileSystem& files, const std::string& path) {
  std::string folder(without_trailing_slashes(path));
  return {.path = path,
          .list = [&files, folder]() -> Result<std::vector<FileInfo>> {
            DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> found, files.list_tree(folder));
            for (FileInfo& file : found) {
              file.path = name_within(folder, file.path);
            }
            return found;
          },
          .open = [&files, folder](const FileInfo& file) { return files.open_input(join_path(folder, file.path)); }};
}

FolderSource folder_source(const Location& place) {
  const Location folder{.store = place.store, .path = std::string(without_trailing_slashes(place.path))};
  return {.path = place.path,
          .list = [folder]() -> Result<std::vector<FileInfo>> {
            std::vector<FileInfo> found;
            DARKROOM_RETURN_IF_ERROR(folder.store->list_tree(folder.path, {}, [&](std::span<const FileInfo> page) {
              for (const FileInfo& file : page) {
                found.push_back({.path = name_within(folder.path, file.path), .size_bytes = file.size_bytes});
              }
              return Status::ok();
            }));
            return found;
          },
          .open = [folder](const FileInfo& file) { return folder.store->open_input(join_path(folder.path, file.path), file.size_bytes); }};
}

Result<std::unique_ptr<TableReader>> open_folder_table(FolderSource source) {
  DARKROOM_ASSIGN_OR_RETURN(auto files, FolderFiles::list(std::move(source)));
  if (files->metadata().empty()) {
    return std::unique_ptr<TableReader>(std::make_unique<PlainFolderTable>(std::move(files)));
  }
  if (files->metadata().size() > 1) {
    return Status::failed_precondition("an imagefolder has two metadata files; keep one of them (folder, files):", files->path(),
                                       files->metadata()[0].path, files->metadata()[1].path);
  }
  const FileInfo& described = files->metadata().front();
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const InputFile> file, files->open(described));
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, table_format(described.path));
  DARKROOM_ASSIGN_OR_RETURN(auto metadata, open_text_table(file, format));
  auto table = std::make_unique<ImageFolderTable>(std::move(files), std::move(metadata));
  DARKROOM_RETURN_IF_ERROR(table->open(*file));
  return std::unique_ptr<TableReader>(std::move(table));
}

}  // namespace darkroom
