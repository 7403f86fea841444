#include "darkroom/files/commit_record.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "temporary.h"

namespace darkroom {

namespace {

constexpr int kRecordVersion = 1;
constexpr std::string_view kRecordMark = ".commit-";
constexpr int64_t kMaxRecordBytes = 4 << 20;  // An upload of 10,000 parts is one of 1 MB.
constexpr int64_t kMaxContenders = 10'000;    // Each but the last was given up by a writer that failed after its record.
constexpr int kMaxRestarts = 16;              // Records vanish while one looks only when the object has become visible.
constexpr size_t kMaxPlainNameBytes = 200;

/// Names are bytes, JSON is UTF-8: what is not printable ASCII is written as %XX, and so is "%".
std::string escape_bytes(std::string_view bytes) {
  std::string text;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    text += byte < 0x20 || byte > 0x7e || byte == '%' ? fmt::format("%{:02x}", byte) : std::string(1, letter);
  }
  return text;
}

std::optional<std::string> unescape_bytes(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      bytes += text[at];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(at + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) {
      return std::nullopt;
    }
    bytes += static_cast<char>(byte);
    at += 2;
  }
  return bytes;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos && name != "." && name != "..";
}

/// A long name would not leave room for the rest; cut alone it could be another object's.
std::string record_stem(const std::string& name) {
  return name.size() <= kMaxPlainNameBytes ? name : fmt::format("{}-{}", name.substr(0, 100), sha256_hex(name).substr(0, 32));
}

Location record_place(const Location& object, int64_t number) {
  return object.parent() / kTemporaryFolder / fmt::format("{}{}{}", record_stem(object.name()), kRecordMark, number);
}

struct NamedRecord {
  std::string object;  ///< Its name.
  CommitRecord record;
};

std::string print_record(const NamedRecord& named) {
  const nlohmann::json fields = {{"version", kRecordVersion},
                                 {"object", escape_bytes(named.object)},
                                 {"contender", escape_bytes(named.record.contender)},
                                 {"body", escape_bytes(named.record.body)}};
  return fields.dump();
}

std::optional<std::string> field_of(const nlohmann::json& fields, const char* name) {
  const auto found = fields.is_object() ? fields.find(name) : fields.end();
  return found != fields.end() && found->is_string() ? unescape_bytes(found->get<std::string>()) : std::nullopt;
}

Result<NamedRecord> parse_record(const std::string& text, const Location& place) {
  const nlohmann::json fields = parse_json(text);
  const auto version = fields.is_object() ? fields.find("version") : fields.end();
  if (version != fields.end() && version->is_number_integer() && *version > kRecordVersion) {
    return Status::failed_precondition("a newer darkroom made this commit record; publish with that one (record, version, known version):",
                                       place.uri(), version->get<int64_t>(), kRecordVersion);
  }
  const std::optional<std::string> object = field_of(fields, "object");
  const std::optional<std::string> contender = field_of(fields, "contender");
  const std::optional<std::string> body = field_of(fields, "body");
  const bool is_known = version != fields.end() && *version == kRecordVersion;
  if (!is_known || !object || !contender || !body || !is_plain_name(*object) || !is_plain_name(*contender)) {
    return Status::corrupt_data(
        "this is no commit record; when no job writes to its folder, remove it and run the same command again (record):", place.uri());
  }
  return NamedRecord{.object = *object, .record = {.contender = *contender, .body = *body}};
}

/// Nothing when it is gone.
Result<std::optional<NamedRecord>> read_record(const Location& place) {
  const Result<std::string> text = place.store->read_small(place.path, kMaxRecordBytes);
  if (!text.is_ok()) {
    return text.status().code() == StatusCode::kNotFound ? Result<std::optional<NamedRecord>>(std::nullopt) : text.status();
  }
  DARKROOM_ASSIGN_OR_RETURN(NamedRecord named, parse_record(*text, place));
  return std::optional(std::move(named));
}

/// Best effort: the next sweep tries again. REQUIRES: the object is visible and durable.
void remove_records(const Location& object, int64_t last) {
  for (int64_t number = last; number >= 1; --number) {
    const Location place = record_place(object, number);
    (void)place.store->remove(place.path);
  }
}

/// The record of that number, made of `mine` when there is none. Nothing when it vanished meanwhile.
Result<std::optional<CommitRecord>> make_or_read_record(const Location& object, int64_t number, const CommitRecord& mine) {
  const Location place = record_place(object, number);
  DARKROOM_ASSIGN_OR_RETURN(const bool is_made,
                            place.store->create_small(place.path, print_record({.object = object.name(), .record = mine})));
  if (is_made) {
    return std::optional(mine);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<NamedRecord> named, read_record(place));
  if (named && named->object != object.name()) {
    return Status::corrupt_data("a commit record is another object's (record, object):", place.uri(), object.uri());
  }
  return named ? std::optional(named->record) : std::nullopt;
}

/// One walk over the records. Nothing when they vanished on the way.
Result<std::optional<PublishOutcome>> walk_records(const Location& object, const CommitRecord& mine, const CompleteContender& complete) {
  for (int64_t number = 1; number <= kMaxContenders; ++number) {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<CommitRecord> record, make_or_read_record(object, number, mine));
    if (!record) {
      return std::optional<PublishOutcome>();
    }
    DARKROOM_ASSIGN_OR_RETURN(const Completion completion, complete(object, *record));
    const bool is_mine = record->contender == mine.contender;
    if (completion != Completion::kGone) {
      remove_records(object, number);
      return std::optional(is_mine && completion == Completion::kDone ? PublishOutcome::kPublished : PublishOutcome::kAlreadyThere);
    }
    if (is_mine) {
      return Status::unavailable("a sweep took the bytes before they were visible; run the same command again (object):", object.uri());
    }
  }
  return Status::failed_precondition(
      "too many writers gave up after their commit record; when no job writes to its folder, remove _tmp (object):", object.uri());
}

struct RecordName {
  std::string stem;
  int64_t number = 0;
};

std::optional<RecordName> parse_record_name(std::string_view name) {
  const size_t mark = name.rfind(kRecordMark);
  if (mark == std::string_view::npos || mark == 0) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(mark + kRecordMark.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && number >= 1;
  return is_number ? std::optional(RecordName{.stem = std::string(name.substr(0, mark)), .number = number}) : std::nullopt;
}

/// Records below _tmp by the object's stem.
Result<std::map<std::string, std::set<int64_t>>> list_records(const Location& output_folder) {
  std::map<std::string, std::set<int64_t>> found;
  const Location folder = output_folder / kTemporaryFolder;
  const Result<std::vector<FileInfo>> entries = folder.store->list(folder.path);
  if (!entries.is_ok()) {
    return entries.status().code() == StatusCode::kNotFound ? Result<std::map<std::string, std::set<int64_t>>>(found) : entries.status();
  }
  for (const FileInfo& entry : *entries) {
    if (const std::optional<RecordName> name = parse_record_name(file_name(entry.path))) {
      found[name->stem].insert(name->number);
    }
  }
  return found;
}

/// Completes what an object's records name. True when that made it visible.
Result<bool> settle_records(const Location& output_folder, const std::string& stem, const std::set<int64_t>& numbers,
                            const CompleteContender& complete) {
  for (const int64_t number : numbers) {
    const Location place = output_folder / kTemporaryFolder / fmt::format("{}{}{}", stem, kRecordMark, number);
    const Result<std::optional<NamedRecord>> named = read_record(place);
    if (named.status().code() == StatusCode::kCorruptData || named.status().code() == StatusCode::kFailedPrecondition) {
      return false;  // Whoever publishes the object is told.
    }
    DARKROOM_RETURN_IF_ERROR(named.status());
    if (!named->has_value() || record_stem((*named)->object) != stem) {
      return false;
    }
    const Location object = output_folder / (*named)->object;
    DARKROOM_ASSIGN_OR_RETURN(const bool was_there, object.exists());
    DARKROOM_ASSIGN_OR_RETURN(const Completion completion, complete(object, (*named)->record));
    if (completion != Completion::kGone) {
      remove_records(object, *numbers.rbegin());
      return completion == Completion::kDone && !was_there;
    }
  }
  return false;
}

}  // namespace

bool is_commit_record(const std::string& name) { return parse_record_name(name).has_value(); }

Result<int64_t> sweep_records(const Location& output_folder, const CompleteContender& complete) {
  int64_t num_completed = 0;
  Status first_failure;
  using Records = std::map<std::string, std::set<int64_t>>;
  DARKROOM_ASSIGN_OR_RETURN(const Records records, list_records(output_folder));
  for (const auto& [stem, numbers] : records) {
    const Result<bool> is_completed = settle_records(output_folder, stem, numbers, complete);
    if (!is_completed.is_ok()) {  // Of one object; the others are not held up by it.
      log_warning("a commit record stays: {}", is_completed.status().message());
      first_failure = first_failure.is_ok() ? is_completed.status() : first_failure;
      continue;
    }
    num_completed += *is_completed ? 1 : 0;
  }
  return first_failure.is_ok() ? Result<int64_t>(num_completed) : first_failure;
}

Result<PublishOutcome> publish_by_record(const Location& object, const CommitRecord& mine, const CompleteContender& complete) {
  DARKROOM_CHECK(is_plain_name(mine.contender), "not a plain name:", mine.contender);
  for (int restart = 0; restart <= kMaxRestarts; ++restart) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, object.exists());  // Saves most losers the record.
    if (is_there) {
      return PublishOutcome::kAlreadyThere;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<PublishOutcome> outcome, walk_records(object, mine, complete));
    if (outcome) {
      return *outcome;
    }
  }
  return Status::unavailable("commit records vanished while they were read; run the same command again (object):", object.uri());
}

}  // namespace darkroom
