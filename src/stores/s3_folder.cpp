#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "range_reads.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

/// What a commit record says of a folder on its way.
struct NamedFolder {
  std::string source;              ///< Where its files are now: a path of the store.
  std::vector<std::string> files;  ///< Their names below it, and below the folder later.
  std::string record;              ///< What the file that is written last will hold.
};

/// Names and records are bytes; JSON is UTF-8.
std::string hex_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::optional<std::string> text_of_hex(const nlohmann::json& hex) {
  const std::string text = hex.is_string() ? hex.get<std::string>() : "?";
  if (text.size() % 2 != 0 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return std::nullopt;
  }
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string print_folder(const NamedFolder& folder) {
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& file : folder.files) {
    files.push_back(hex_text(file));
  }
  return nlohmann::json{{"folder", hex_text(folder.source)}, {"files", std::move(files)}, {"record", hex_text(folder.record)}}.dump();
}

std::optional<NamedFolder> parse_folder(const std::string& body) {
  const nlohmann::json fields = parse_json(body);
  if (!fields.is_object() || !fields.contains("folder") || !fields.contains("files") || !fields["files"].is_array() ||
      !fields.contains("record")) {
    return std::nullopt;
  }
  const std::optional<std::string> source = text_of_hex(fields["folder"]);
  const std::optional<std::string> record = text_of_hex(fields["record"]);
  if (!source || !record) {
    return std::nullopt;
  }
  NamedFolder folder{.source = *source, .files = {}, .record = *record};
  for (const nlohmann::json& file : fields["files"]) {
    const std::optional<std::string> name = text_of_hex(file);
    if (!name || name->empty()) {
      return std::nullopt;
    }
    folder.files.push_back(*name);
  }
  return folder;
}

/// Relative, and in itself.
bool is_inner_name(std::string_view name) {
  while (true) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    if (part.size() == name.size()) {
      return true;
    }
    name.remove_prefix(part.size() + 1);
  }
}

/// Whether it is of the kind that a writer of this folder makes: whoever may write a record must not choose what is copied and removed.
bool may_become(const NamedFolder& named, const std::string& contender, const std::string& target) {
  const std::string name = file_name(named.source);
  return named.source.find('/') != std::string::npos && parent_folder(named.source) == parent_folder(target) &&
         join_path(parent_folder(target), name) == named.source && name.starts_with(kS3TemporaryPrefix) && !contender.empty() &&
         name.ends_with("." + contender) && std::ranges::all_of(named.files, is_inner_name);
}

/// Of records and folders on their way within a folder on its way.
bool is_temporary_name(std::string_view name) {
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.starts_with(kS3TemporaryPrefix) || (part == kS3TemporaryFolder && slash != std::string_view::npos)) {
      return true;
    }
    if (slash == std::string_view::npos) {
      return false;
    }
    name.remove_prefix(slash + 1);
  }
}

/// Whose the record of a folder is; nothing: it is not there.
Result<std::optional<Completion>> look_at_record(S3Client& client, const S3Name& record, const std::string& contender) {
  const Result<S3Head> there = client.head(record);
  if (there.status().code() == StatusCode::kNotFound) {
    return std::optional<Completion>();
  }
  DARKROOM_RETURN_IF_ERROR(there.status());
  return std::optional(there->writer == contender ? Completion::kDone : Completion::kAnotherThere);
}

/// kNotFound: one of them is gone.
Status copy_files(S3Client& client, const NamedFolder& folder, const std::string& target) {
  return run_at_once(folder.files.size(), kMostRequestsAtOnce, [&](size_t i) -> Status {
    const S3Name from = S3Store::name_of(join_path(folder.source, folder.files[i]));
    DARKROOM_ASSIGN_OR_RETURN(const S3Head head, client.head(from));
    return copy_s3_object(client, from, head, S3Store::name_of(join_path(target, folder.files[i])));
  });
}

class PendingS3Folder final : public PendingFolder {
 public:
  PendingS3Folder(S3Store& store, const std::string& folder, const std::string& name)
      : store_(store), path_(join_path(folder, name)), source_(join_path(folder, fmt::format("{}.{}", s3_temporary_stem(name), mark_))) {}

  ~PendingS3Folder() override {
    if (is_recorded_) {
      return;  // Whoever meets the record completes it; when nobody does, a sweep takes it.
    }
    if (const Status removed = store_.remove_tree(source_); !removed.is_ok()) {
      log_warning("files stay until a sweep removes them: {}", removed.message());
    }
  }

  Location folder() const override { return {.store = &store_, .path = source_}; }

  Result<PublishOutcome> publish(const std::string& record_name, std::string_view record) override {
    DARKROOM_CHECK(!is_spent_, "the folder was already published (path):", path_);
    is_spent_ = true;
    if (record_name.empty()) {
      return Status::failed_precondition("a store of objects shows a folder by its record and cannot publish one without (folder):",
                                         store_.uri_of(path_));
    }
    DARKROOM_CHECK(record_name.find('/') == std::string::npos, "not a plain name:", record_name);
    DARKROOM_ASSIGN_OR_RETURN(const NamedFolder named, list_files(record));
    const CommitRecord mine{.contender = mark_, .body = print_folder(named)};
    const Location object = {.store = &store_, .path = join_path(path_, record_name)};
    DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, store_.first_wins(path_));
    DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome,
                              how == FirstWins::kLookBefore ? publish_looking(object, mine) : publish_recorded(object, mine));
    is_recorded_ = false;  // Nobody needs the sources any more.
    return outcome;
  }

 private:
  Result<NamedFolder> list_files(std::string_view record) {
    NamedFolder named{.source = source_, .files = {}, .record = std::string(record)};
    const auto add = [&](std::span<const FileInfo> files) {
      for (const FileInfo& file : files) {
        const std::string name = file.path.substr(source_.size() + 1);
        if (!is_temporary_name(name)) {
          named.files.push_back(name);
        }
      }
      return Status::ok();
    };
    const Status listed = store_.list_tree(source_, {}, add);
    DARKROOM_RETURN_IF_ERROR(listed.code() == StatusCode::kNotFound ? Status::ok() : listed);  // Nothing but the record.
    return named;
  }

  Result<PublishOutcome> publish_recorded(const Location& object, const CommitRecord& mine) {
    is_recorded_ = true;
    const auto complete = [this](const Location& place, const CommitRecord& record) {
      return complete_s3_contender(store_, place, record);
    };
    return publish_by_record(object, mine, complete);
  }

  Result<PublishOutcome> publish_looking(const Location& object, const CommitRecord& mine) {
    DARKROOM_ASSIGN_OR_RETURN(const Completion completion, complete_s3_folder(store_, object, mine));
    if (completion == Completion::kGone) {
      return Status::unavailable("a sweep took the files before they were visible; run the same command again (folder):",
                                 store_.uri_of(path_));
    }
    return completion == Completion::kDone ? PublishOutcome::kPublished : PublishOutcome::kAlreadyThere;
  }

  S3Store& store_;
  const std::string mark_ = make_writer_mark();
  const std::string path_;
  const std::string source_;
  bool is_spent_ = false;
  bool is_recorded_ = false;
};

}  // namespace

std::string s3_temporary_stem(const std::string& name) { return kS3TemporaryPrefix + name.substr(0, 80); }

std::unique_ptr<PendingFolder> begin_s3_folder(S3Store& store, const std::string& folder, const std::string& name) {
  return std::make_unique<PendingS3Folder>(store, folder, name);
}

Result<Completion> complete_s3_folder(S3Store& store, const Location& object, const CommitRecord& record) {
  const std::optional<NamedFolder> folder = parse_folder(record.body);
  if (!folder) {
    return Status::corrupt_data("a commit record names neither an upload nor a folder (object):", object.uri());
  }
  if (!may_become(*folder, record.contender, parent_folder(object.path))) {
    return Status::corrupt_data("a commit record names files that are none of its folder's (object):", object.uri());
  }
  S3Client& client = store.client();
  const S3Name name = S3Store::name_of(object.path);
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Completion> before, look_at_record(client, name, record.contender));
  if (before) {
    return *before;
  }
  const Status copied = copy_files(client, *folder, parent_folder(object.path));
  if (copied.code() == StatusCode::kNotFound) {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<Completion> now, look_at_record(client, name, record.contender));
    if (!now) {
      // What cannot be completed must not be begun again by a slow one: then its files would come among those of the next contender.
      DARKROOM_RETURN_IF_ERROR(store.remove_tree(folder->source));
    }
    return now.value_or(Completion::kGone);
  }
  DARKROOM_RETURN_IF_ERROR(copied);
  DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, store.first_wins(parent_folder(object.path)));
  const S3Condition condition = how == FirstWins::kLookBefore ? S3Condition::kNone : S3Condition::kAbsent;
  const std::span<const std::byte> piece = std::as_bytes(std::span(folder->record));
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome outcome, client.put(name, std::span(&piece, 1), record.contender, condition));
  if (outcome == S3Outcome::kUnsupported) {
    return Status::failed_precondition("the store takes no condition any more (object):", object.uri());
  }
  return outcome == S3Outcome::kStored ? Completion::kDone : Completion::kAnotherThere;
}

}  // namespace darkroom
