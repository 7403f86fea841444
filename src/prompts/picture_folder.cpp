#include "darkroom/prompts/picture_folder.h"

#include <set>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/folder_lock.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"

namespace darkroom {
namespace {

std::string line_of(const std::string& file, const std::string& identity, const std::string& sha256) {
  return nlohmann::ordered_json({{"file", file}, {"identity", identity}, {"sha256", sha256}}).dump() + "\n";
}

}  // namespace

Result<std::unique_ptr<PictureFolder>> PictureFolder::open(FileSystem& files, const std::string& folder) {
  std::unique_ptr<PictureFolder> opened(new PictureFolder(files, folder));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  constexpr const char* kHeld = "another process is painting into this folder; wait for it or take another --output:";
  DARKROOM_ASSIGN_OR_RETURN(opened->lock_, lock_folder(files, folder, kHeld));
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files, folder));
  DARKROOM_RETURN_IF_ERROR(opened->read_earlier());
  return opened;
}

Status PictureFolder::read_earlier() {
  const std::string record_path = join_path(folder_, kPictureRecordFile);
  DARKROOM_ASSIGN_OR_RETURN(const bool has_record, files_.exists(record_path));
  if (has_record) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files_, record_path));
    const Result<PictureRecord> record = read_picture_record(text, record_path);
    if (!record.is_ok()) {
      return Status::corrupt_data("the folder's record cannot be read; move it away, and all pictures are painted again:",
                                  record.status().message());
    }
    for (const RecordedPicture& picture : record->pictures) {
      painted_[picture.file] = {picture_identity(record->origin, picture), picture.sha256};
    }
  }
  const std::string journal_path = join_path(folder_, kPictureJournalFile);
  DARKROOM_ASSIGN_OR_RETURN(const bool has_journal, files_.exists(journal_path));
  if (has_journal) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files_, journal_path));
    read_lines(text);
  }
  return Status::ok();
}

// What is no line, such as the torn last one of a killed run, tells of no picture.
void PictureFolder::read_lines(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {
      return;
    }
    const auto line = parse_json(text.substr(begin, end - begin));
    const auto has_text = [&](const char* key) { return line.is_object() && line.contains(key) && line[key].is_string(); };
    if (has_text("file") && has_text("identity") && has_text("sha256")) {
      painted_[line["file"].get<std::string>()] = {line["identity"].get<std::string>(), line["sha256"].get<std::string>()};
    }
    begin = end + 1;
  }
}

std::optional<std::string> PictureFolder::find(const std::string& file, const std::string& identity) const {
  const auto found = painted_.find(file);
  if (found == painted_.end() || found->second.identity != identity) {
    return std::nullopt;
  }
  const Result<std::string> bytes = read_file(files_, join_path(folder_, file));
  if (!bytes.is_ok() || sha256_hex(*bytes) != found->second.sha256) {
    return std::nullopt;
  }
  return found->second.sha256;
}

Status PictureFolder::begin(const std::vector<std::string>& jobs) {
  for (const std::string& job : jobs) {
    DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files_, join_path(folder_, job)));
  }
  std::string lines;
  for (const auto& [file, painted] : painted_) {
    lines += line_of(file, painted.identity, painted.sha256);
  }
  const std::string path = join_path(folder_, kPictureJournalFile);
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, path, lines));
  const Status removed = files_.remove_file(join_path(folder_, kPictureRecordFile));
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) {
    return removed;
  }
  DARKROOM_ASSIGN_OR_RETURN(journal_, files_.open_append(path));
  return Status::ok();
}

Result<std::string> PictureFolder::add(const std::string& file, const std::string& identity, std::string_view png) {
  DARKROOM_CHECK(journal_ != nullptr, "a picture was added before begin():", file);
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, join_path(folder_, file), png));
  std::string sha256 = sha256_hex(png);
  const std::lock_guard hold(mutex_);
  DARKROOM_RETURN_IF_ERROR(journal_->write_text(line_of(file, identity, sha256)));
  return sha256;
}

Status PictureFolder::finish(const PictureRecord& record) {
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, join_path(folder_, kPictureRecordFile), picture_record_to_json(record)));
  if (journal_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(journal_->close());
    journal_ = nullptr;
  }
  return keep_lines_of_others(record);
}

Status PictureFolder::keep_lines_of_others(const PictureRecord& record) {
  std::set<std::string_view> recorded;
  for (const RecordedPicture& picture : record.pictures) {
    recorded.insert(picture.file);
  }
  std::string lines;
  for (const auto& [file, painted] : painted_) {
    if (!recorded.contains(file)) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files_.exists(join_path(folder_, file)));
      lines += is_there ? line_of(file, painted.identity, painted.sha256) : "";
    }
  }
  const std::string path = join_path(folder_, kPictureJournalFile);
  if (!lines.empty()) {
    return write_file_atomic(files_, path, lines);
  }
  const Status removed = files_.remove_file(path);
  return removed.code() == StatusCode::kNotFound ? Status::ok() : removed;
}

}  // namespace darkroom
