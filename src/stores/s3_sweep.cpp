#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/paths.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

constexpr std::string_view kInTemporaryFolder = "_tmp/";
constexpr int kMaxBucketPages = 10;  // Of a thousand uploads each.

/// Of the folder itself, or of a folder on its way beside it; not of another folder below.
bool belongs_to(std::string_view key, std::string_view prefix) {
  const std::string_view rest = key.substr(prefix.size());
  return rest.find('/') == std::string_view::npos || rest.starts_with(kS3TemporaryPrefix) || rest.starts_with(kInTemporaryFolder);
}

/// Whether it is on its way to the object or folder of this name. `rest`: behind its folder's prefix.
bool is_of_name(std::string_view rest, const std::string& name) {
  const std::string_view first = rest.substr(0, rest.find('/'));  // NAME, or _tmp.NAME.MARK.
  return first == name || (first.size() < rest.size() && first.substr(0, first.rfind('.')) == s3_temporary_stem(name));
}

/// One sweep of a folder.
class S3Sweep {
 public:
  /// `name`: all that is swept of the folder; empty: all that `scope` says.
  S3Sweep(S3Store& store, const std::string& folder, S3SweepScope scope, std::chrono::sys_seconds oldest, std::string name = {})
      : store_(store),
        folder_(without_trailing_slashes(folder)),
        prefix_(S3Store::prefix_of(folder)),
        scope_(scope),
        name_(std::move(name)),
        oldest_(oldest) {}

  Result<SweepReport> run() {
    // The records are completed when the stale uploads are known: what a record named by then is visible, or will never be.
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<S3Upload> stale, list_stale_uploads());
    DARKROOM_RETURN_IF_ERROR(settle({.store = &store_, .path = folder_}));
    DARKROOM_RETURN_IF_ERROR(settle_folders());
    for (const S3Upload& upload : stale) {
      if (!unsettled_keys_.contains(upload.key)) {
        DARKROOM_RETURN_IF_ERROR(client().abort({.bucket = prefix_.bucket, .key = upload.key}, upload.id));
        ++report_.num_uploads;
      }
    }
    DARKROOM_RETURN_IF_ERROR(remove_stale_temporaries());
    return failure_.is_ok() ? Result<SweepReport>(report_) : failure_;
  }

 private:
  S3Client& client() { return store_.client(); }

  bool is_ours(std::string_view key) const {
    if (!name_.empty()) {
      return is_of_name(key.substr(prefix_.key.size()), name_);
    }
    return scope_ == S3SweepScope::kFoldersToo || belongs_to(key, prefix_.key);
  }

  /// What nobody knows the beginning of may be under way.
  bool is_stale(const std::optional<std::chrono::sys_seconds>& began) const { return began && *began < oldest_; }

  Result<std::vector<S3Upload>> list_stale_uploads() {
    std::map<std::string, S3Upload> stale;  // By id.
    size_t num_listed = 0;
    const auto add = [&](S3UploadPage page) {
      num_listed += page.uploads.size();
      for (S3Upload& upload : page.uploads) {
        if (upload.key.starts_with(prefix_.key) && is_ours(upload.key) && is_stale(upload.initiated)) {
          stale.emplace(upload.id, std::move(upload));
        }
      }
      return Status::ok();
    };
    bool is_one_empty = false;
    const auto list = [&](const std::string& key) {
      num_listed = 0;
      const Status listed = client().list_uploads({.bucket = prefix_.bucket, .key = key}, add);
      is_one_empty = is_one_empty || num_listed == 0;
      return listed;
    };
    DARKROOM_RETURN_IF_ERROR(list(prefix_.key + name_));
    DARKROOM_RETURN_IF_ERROR(name_.empty() ? Status::ok() : list(prefix_.key + s3_temporary_stem(name_)));
    if (is_one_empty) {  // MinIO takes a prefix of uploads for a whole key, and lists all where there is none.
      const Status listed = client().list_first_uploads(prefix_.bucket, kMaxBucketPages, add);
      DARKROOM_RETURN_IF_ERROR(listed.code() == StatusCode::kCancelled ? listed : Status::ok());
      if (!listed.is_ok()) {  // Perhaps not allowed.
        log_detail("the uploads of the whole bucket are not looked at: {}", listed.message());
      }
    }
    std::vector<S3Upload> uploads;
    std::ranges::transform(stale, std::back_inserter(uploads), [](auto& entry) { return std::move(entry.second); });
    return uploads;
  }

  /// Completes what the records of one folder name. A failure is kept for the end, and what its record names is spared.
  Status settle(const Location& place) {
    const auto complete = [this](const Location& object, const CommitRecord& record) {
      Result<Completion> completion = complete_s3_contender(store_, object, record);
      if (!completion.is_ok()) {
        unsettled_marks_.insert(record.contender);
        unsettled_keys_.insert(S3Store::name_of(object.path).key);
      }
      num_gone_ += completion.is_ok() && *completion == Completion::kGone ? 1 : 0;
      return completion;
    };
    const Result<int64_t> num_completed = sweep_records(place, complete);
    if (!num_completed.is_ok()) {
      failure_ = failure_.is_ok() ? num_completed.status() : failure_;
      return Status::ok();
    }
    report_.num_completed += *num_completed;
    return Status::ok();
  }

  /// The record of a folder on its way lies below the folder that it becomes.
  Status settle_folders() {
    std::vector<std::string> names;
    const auto add = [&](const S3ObjectPage& page) {
      for (const std::string& key : page.prefixes) {
        std::string name = key.substr(prefix_.key.size(), key.size() - 1 - prefix_.key.size());
        const bool is_named = name_.empty() || name == name_;
        if (is_named && name != kS3TemporaryFolder && !name.starts_with(kS3TemporaryPrefix)) {
          names.push_back(std::move(name));
        }
      }
      return Status::ok();
    };
    DARKROOM_RETURN_IF_ERROR(client().list({.bucket = prefix_.bucket, .key = prefix_.key + name_}, "/", add));
    for (const std::string& name : names) {
      DARKROOM_ASSIGN_OR_RETURN(const int64_t num_before, count_records(name));
      if (num_before > 0) {
        num_gone_ = 0;
        DARKROOM_RETURN_IF_ERROR(settle({.store = &store_, .path = join_path(folder_, name)}));
        DARKROOM_ASSIGN_OR_RETURN(const int64_t num_left, count_records(name));
        if (num_left > num_gone_) {  // Of one that could not be read, nobody knows what it names.
          unsettled_names_.insert(s3_temporary_stem(name));
        }
      }
    }
    return Status::ok();
  }

  Result<int64_t> count_records(const std::string& name) {
    int64_t count = 0;
    const auto add = [&](const S3ObjectPage& page) {
      count += std::ranges::count_if(page.objects, [](const S3Object& object) { return is_commit_record(file_name(object.key)); });
      return Status::ok();
    };
    const S3Name records{.bucket = prefix_.bucket, .key = fmt::format("{}{}/{}", prefix_.key, name, kInTemporaryFolder)};
    DARKROOM_RETURN_IF_ERROR(client().list(records, "/", add));
    return count;
  }

  /// Whether it may be what a record names that is not settled. `name`: _tmp.NAME.MARK.
  bool is_spared(const std::string& name) const {
    const size_t dot = name.rfind('.');
    return unsettled_marks_.contains(name.substr(dot + 1)) || unsettled_names_.contains(name.substr(0, dot));
  }

  /// Probes and folders on their way; records are settled above.
  Status remove_stale_temporaries() {
    struct Group {
      std::vector<std::string> keys;
      bool is_stale = true;
    };
    std::map<std::string, Group> groups;  // A folder on its way goes whole or not at all.
    const auto add = [&](const S3ObjectPage& page) {
      for (const S3Object& object : page.objects) {
        const std::string rest = object.key.substr(prefix_.key.size());
        const bool is_probe = rest.starts_with(kInTemporaryFolder);
        const size_t slash = rest.find('/');
        const bool is_of_folder = rest.starts_with(kS3TemporaryPrefix) && slash != std::string::npos;
        const bool is_record =
            is_probe && rest.find('/', kInTemporaryFolder.size()) == std::string::npos && is_commit_record(file_name(rest));
        const bool is_anothers = !name_.empty() && !is_of_name(rest, name_);
        if (is_record || is_anothers || !(is_probe || is_of_folder) || (is_of_folder && is_spared(rest.substr(0, slash)))) {
          continue;
        }
        Group& group = groups[is_probe ? rest : rest.substr(0, slash)];
        group.keys.push_back(object.key);
        group.is_stale = group.is_stale && is_stale(object.modified);
      }
      return Status::ok();
    };
    DARKROOM_RETURN_IF_ERROR(client().list({.bucket = prefix_.bucket, .key = prefix_.key + kS3TemporaryFolder}, "", add));
    for (const auto& [name, group] : groups) {
      for (const std::string& key : group.is_stale ? group.keys : std::vector<std::string>()) {
        DARKROOM_RETURN_IF_ERROR(client().remove({.bucket = prefix_.bucket, .key = key}));
        ++report_.num_temporaries;
      }
    }
    return Status::ok();
  }

  S3Store& store_;
  const std::string folder_;
  const S3Name prefix_;
  const S3SweepScope scope_;
  const std::string name_;
  const std::chrono::sys_seconds oldest_;
  SweepReport report_;
  Status failure_;                         // The first of the records'.
  int64_t num_gone_ = 0;                   // Contenders of the folder looked at.
  std::set<std::string> unsettled_marks_;  // Of contenders whose completion failed.
  std::set<std::string> unsettled_keys_;   // Of the objects that those would become.
  std::set<std::string> unsettled_names_;  // s3_temporary_stem of folders with other records that stay.
};

Result<SweepReport> with_context(Result<SweepReport> report) {
  return report.is_ok() ? std::move(report) : report.status().with_context("sweeping what an interrupted run left");
}

}  // namespace

Result<SweepReport> sweep_s3_folder(S3Store& store, const std::string& folder, S3SweepScope scope, std::chrono::sys_seconds oldest) {
  return with_context(S3Sweep(store, folder, scope, oldest).run());
}

Result<SweepReport> sweep_s3_name(S3Store& store, const std::string& path, std::chrono::sys_seconds oldest) {
  DARKROOM_CHECK(path.find('/') != std::string::npos, "a bucket is no name (path):", path);
  return with_context(S3Sweep(store, parent_folder(path), S3SweepScope::kFolder, oldest, file_name(path)).run());
}

}  // namespace darkroom
