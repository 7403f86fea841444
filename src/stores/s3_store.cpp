#include "darkroom/stores/s3_store.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/paths.h"
#include "key_process.h"
#include "range_reads.h"
#include "s3_credentials.h"
#include "s3_key_issuers.h"
#include "s3_key_ring.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

constexpr std::chrono::seconds kKeyProcessTimeout{30};

FileInfo file_info(const std::string& bucket, const S3Object& object) {
  return {.path = S3Store::path_of(bucket, object.key), .size_bytes = object.size_bytes, .is_folder = false};
}

/// Consoles make empty objects with such names to show folders.
bool is_folder_mark(const std::string& key) { return key.ends_with('/'); }

Status no_such_folder(const std::string& uri) { return Status::not_found("nothing is below this folder (folder):", uri); }

/// Perhaps another has moved an object between our look and our copy.
bool is_overtaken(const Status& moved) { return moved.code() == StatusCode::kNotFound || moved.code() == StatusCode::kFailedPrecondition; }

/// The process's own environment and files.
AwsPlaces own_places() {
  AwsPlaces places;
  places.environment = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::optional<std::string>() : std::optional<std::string>(value);
  };
  places.read_file = [](const std::string& path) { return read_file(local_files(), path); };
  return places;
}

/// Looks for the keys of this process, and asks who gives out temporary ones.
S3KeyRing::Find find_own_keys(S3Identity identity, const StoreTools& store) {
  const auto run = [stop = store.stop](const std::vector<std::string>& command) {
    return run_key_process(command, kKeyProcessTimeout, stop);
  };
  S3IssuerTools tools{
      .places = own_places(),
      .exchange = [&http = store.http, stop = store.stop](const HttpRequest& request) { return http.exchange(request, stop); },
      .run_process = run,
      .clock = store.clock};
  return [identity = std::move(identity), issuers = S3KeyIssuers(std::move(tools)), stop = store.stop]() -> Result<S3Credentials> {
    const S3Surroundings surroundings{own_places(),
                                      [&issuers](S3KeyIssuer issuer, const std::string& profile) { return issuers.ask(issuer, profile); }};
    Result<S3Credentials> found = find_s3_credentials(identity, surroundings);
    return found.is_ok() || !stop.stop_requested() ? std::move(found) : Status::cancelled("the search for keys of a store was stopped");
  };
}

}  // namespace

S3Name S3Store::name_of(const std::string& path) {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? S3Name{.bucket = path, .key = {}}
                                    : S3Name{.bucket = path.substr(0, slash), .key = path.substr(slash + 1)};
}

S3Name S3Store::prefix_of(const std::string& folder) {
  S3Name prefix = name_of(std::string(without_trailing_slashes(folder)));
  prefix.key += prefix.key.empty() ? "" : "/";
  return prefix;
}

Result<FileInfo> S3Store::stat(const std::string& path) {
  const S3Name name = name_of(path);
  if (!name.key.empty() && !is_folder_mark(name.key)) {
    const Result<S3Head> head = client_->head(name);
    if (head.is_ok()) {
      return FileInfo{.path = path, .size_bytes = head->size_bytes, .is_folder = false};
    }
    if (head.status().code() != StatusCode::kNotFound) {
      return head.status();
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const S3ObjectPage below, client_->list_some(prefix_of(path), 1));  // Also says that the bucket is missing.
  if (below.objects.empty() && !name.key.empty()) {
    return Status::not_found("there is no such object (object):", name.uri());
  }
  return FileInfo{.path = path, .size_bytes = 0, .is_folder = true};
}

Result<std::vector<FileInfo>> S3Store::list(const std::string& folder) {
  const S3Name prefix = prefix_of(folder);
  std::vector<FileInfo> entries;
  bool is_there = prefix.key.empty();
  const auto add_page = [&](S3ObjectPage page) {
    is_there = is_there || !page.objects.empty() || !page.prefixes.empty();
    for (const S3Object& object : page.objects) {
      if (!is_folder_mark(object.key)) {
        entries.push_back(file_info(prefix.bucket, object));
      }
    }
    for (std::string& key : page.prefixes) {
      key.pop_back();
      entries.push_back({.path = path_of(prefix.bucket, key), .size_bytes = 0, .is_folder = true});
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(client_->list(prefix, "/", add_page));
  if (!is_there) {
    return no_such_folder(prefix.uri());
  }
  std::ranges::stable_sort(entries, {}, &FileInfo::path);
  return entries;
}

Status S3Store::list_tree(const std::string& folder, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page) {
  const S3Name prefix = prefix_of(folder);
  bool is_there = prefix.key.empty();
  const auto hand_over = [&](const S3ObjectPage& found) {
    if (stop.stop_requested()) {
      return Status::cancelled("listing stopped on request (folder):", prefix.uri());
    }
    is_there = is_there || !found.objects.empty();
    std::vector<FileInfo> files;
    for (const S3Object& object : found.objects) {
      if (!is_folder_mark(object.key)) {
        files.push_back(file_info(prefix.bucket, object));
      }
    }
    return files.empty() ? Status::ok() : page(files);
  };
  DARKROOM_RETURN_IF_ERROR(client_->list(prefix, "", hand_over, stop));
  return is_there ? Status::ok() : no_such_folder(prefix.uri());
}

Result<std::unique_ptr<InputFile>> S3Store::open_input(const std::string& path, std::optional<int64_t> known_size) {
  return open_s3_input(*this, path, known_size);
}

Result<ObjectTail> S3Store::read_tail(const std::string& path, int64_t num_bytes) {
  if (num_bytes <= 0) {
    DARKROOM_ASSIGN_OR_RETURN(const S3Head head, client_->head(name_of(path)));
    return ObjectTail{.size_bytes = head.size_bytes, .bytes = {}, .version = head.etag};
  }
  DARKROOM_ASSIGN_OR_RETURN(S3GetReply got, client_->get_suffix(name_of(path), num_bytes));
  return ObjectTail{.size_bytes = got.size_bytes, .bytes = std::move(got.bytes), .version = got.etag};
}

Result<std::string> S3Store::read_small(const std::string& path, int64_t max_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(S3GetReply got, client_->get(name_of(path), max_bytes));
  return std::move(got.bytes);
}

Result<std::unique_ptr<PendingObject>> S3Store::begin_object(const std::string& folder, const std::string& name) {
  DARKROOM_CHECK(!name.empty() && name.find('/') == std::string::npos, "not a plain name:", name);
  return begin_s3_object(*this, join_path(folder, name));
}

Result<std::unique_ptr<PendingFolder>> S3Store::begin_folder(const std::string& folder, const std::string& name) {
  DARKROOM_CHECK(!name.empty() && name.find('/') == std::string::npos, "not a plain name:", name);
  return begin_s3_folder(*this, folder, name);
}

Status S3Store::replace(const std::string& path, std::string_view bytes, S3Patience patience) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(bytes));
  return client_->put(name_of(path), std::span(&piece, 1), make_writer_mark(), S3Condition::kNone, patience).status();
}

Result<bool> S3Store::create_small(const std::string& path, std::string_view bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, first_wins(parent_folder(path)));
  const S3Name name = name_of(path);
  if (how == FirstWins::kLookBefore) {
    const Status there = client_->head(name).status();
    if (there.code() != StatusCode::kNotFound) {
      return there.is_ok() ? Result<bool>(false) : there;
    }
  }
  const std::span<const std::byte> piece = std::as_bytes(std::span(bytes));
  const S3Condition condition = how == FirstWins::kLookBefore ? S3Condition::kNone : S3Condition::kAbsent;
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome outcome, client_->put(name, std::span(&piece, 1), make_writer_mark(), condition));
  if (outcome == S3Outcome::kUnsupported) {
    return Status::failed_precondition("the store takes no condition any more (object):", name.uri());
  }
  return outcome == S3Outcome::kStored;
}

Status S3Store::remove_tree(const std::string& folder) {
  const S3Name prefix = prefix_of(folder);
  DARKROOM_CHECK(!prefix.key.empty(), "a whole bucket is not removed:", prefix.uri());
  const auto remove_page = [&](const S3ObjectPage& page) {
    return run_at_once(page.objects.size(), kMostRequestsAtOnce,
                       [&](size_t i) { return client_->remove({.bucket = prefix.bucket, .key = page.objects[i].key}); });
  };
  return client_->list(prefix, "", remove_page);
}

Result<bool> S3Store::hold_same_bytes(const S3Name& one, const S3Head& one_head, const S3Name& other, const S3Head& other_head) {
  if (one_head.size_bytes != other_head.size_bytes) {
    return false;
  }
  if (!one_head.writer.empty() && one_head.writer == other_head.writer) {
    return true;  // No mark is used twice: one is the copy of the other, of which an upload's ETag would tell nothing.
  }
  if (one_head.etag.empty() || other_head.etag.empty()) {
    return Status::failed_precondition(
        "the store gives no ETags: whether two objects hold the same bytes cannot be told (objects):", one.uri(), other.uri());
  }
  for (int64_t at = 0; at < one_head.size_bytes && one_head.etag != other_head.etag; at += kMostRequestBytes) {
    const ByteRange range{.offset = at, .num_bytes = std::min(kMostRequestBytes, one_head.size_bytes - at)};
    DARKROOM_ASSIGN_OR_RETURN(const S3GetReply ours, client_->get_range(one, range, one_head.etag));
    DARKROOM_ASSIGN_OR_RETURN(const S3GetReply theirs, client_->get_range(other, range, other_head.etag));
    for (const S3GetReply* got : {&ours, &theirs}) {
      if (got->offset != at || static_cast<int64_t>(got->bytes.size()) != range.num_bytes || got->size_bytes != one_head.size_bytes) {
        return Status::corrupt_data(
            "the store serves other bytes than it was asked for (object, offset):", (got == &ours ? one : other).uri(), at);
      }
    }
    if (ours.bytes != theirs.bytes) {
      return false;
    }
  }
  return true;
}

Status S3Store::move_object(const std::string& from_path, const std::string& to_path) {
  DARKROOM_CHECK(from_path != to_path, "an object moves to where it is (path):", from_path);
  const S3Name from = name_of(from_path);
  const S3Name to = name_of(to_path);
  const Status moved = try_to_move(from, to);
  return is_overtaken(moved) ? try_to_move(from, to) : moved;
}

Status S3Store::move_over(const std::string& from_path, const std::string& to_path) {
  DARKROOM_CHECK(from_path != to_path, "an object moves to where it is (path):", from_path);
  const S3Name from = name_of(from_path);
  const S3Name to = name_of(to_path);
  const Result<S3Head> head = client_->head(from);
  Status moved = head.is_ok() ? copy_s3_object(*client_, from, *head, to) : head.status();
  moved = moved.is_ok() ? client_->remove(from) : moved;
  return is_overtaken(moved) ? try_to_move(from, to) : moved;  // Which replaces nothing: what is there now may be the other's.
}

Status S3Store::try_to_move(const S3Name& from, const S3Name& to) {
  const Result<S3Head> from_head = client_->head(from);
  const bool is_gone = from_head.status().code() == StatusCode::kNotFound;
  DARKROOM_RETURN_IF_ERROR(is_gone ? Status::ok() : from_head.status());
  const Result<S3Head> to_head = client_->head(to);
  if (to_head.status().code() == StatusCode::kNotFound) {
    DARKROOM_RETURN_IF_ERROR(from_head.status());
    DARKROOM_RETURN_IF_ERROR(copy_s3_object(*client_, from, *from_head, to));
    return client_->remove(from);
  }
  DARKROOM_RETURN_IF_ERROR(to_head.status());
  if (is_gone) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_same, hold_same_bytes(from, *from_head, to, *to_head));
  return is_same ? client_->remove(from) : Status::already_exists("another object has the name (object):", to.uri());
}

Result<FirstWins> S3Store::first_wins(const std::string& folder) {
  const std::lock_guard hold(mutex_);
  const std::string bucket = name_of(folder).bucket;
  if (const auto known = first_wins_.find(bucket); known != first_wins_.end()) {
    return known->second;
  }
  DARKROOM_ASSIGN_OR_RETURN(const FirstWins found, probe_first_wins(folder));
  first_wins_[bucket] = found;
  if (found == FirstWins::kLookBefore) {
    log_warning(
        "this store knows no condition on writing: darkroom looks before it publishes, and of two jobs that publish one name at the same "
        "instant both may succeed; let one job write to a folder (bucket): {}",
        name_of(bucket).uri());
  }
  return found;
}

Result<FirstWins> S3Store::probe_first_wins(const std::string& folder) {
  const std::string first = make_writer_mark();
  const std::string second = make_writer_mark();
  const S3Name probe = name_of(join_path(join_path(folder, kS3TemporaryFolder), "probe-" + first));
  const std::span<const std::byte> piece = std::as_bytes(std::span(first));
  const S3Pieces pieces(&piece, 1);
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome stored, client_->put(probe, pieces, first, S3Condition::kAbsent));
  if (stored == S3Outcome::kUnsupported) {
    return FirstWins::kLookBefore;
  }
  const Result<FirstWins> found = stored == S3Outcome::kStored ? probe_taken_name(probe, pieces, second) : FirstWins::kLookBefore;
  if (const Status removed = client_->remove(probe); !removed.is_ok()) {
    return found.is_ok() ? removed : found.status();
  }
  return found;
}

Result<FirstWins> S3Store::probe_taken_name(const S3Name& probe, S3Pieces pieces, const std::string& writer) {
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome again, client_->put(probe, pieces, writer, S3Condition::kAbsent));
  if (again != S3Outcome::kTaken) {
    return FirstWins::kLookBefore;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string upload, client_->create_upload(probe, writer));
  const Result<S3Outcome> completed = probe_upload(probe, upload, pieces, writer);
  const Status aborted = client_->abort(probe, upload);
  DARKROOM_RETURN_IF_ERROR(completed.status());
  DARKROOM_RETURN_IF_ERROR(aborted);
  // Where the first reply was lost there is another one. Nobody else knows the probe's name.
  if (const Status others = client_->abort_all(probe); !others.is_ok()) {
    log_detail("an upload may stay until a sweep aborts it: {}", others.message());
  }
  return *completed == S3Outcome::kTaken ? FirstWins::kAtomic : FirstWins::kCommitRecord;
}

Result<S3Outcome> S3Store::probe_upload(const S3Name& probe, const std::string& upload, S3Pieces pieces, const std::string& writer) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string etag, client_->upload_part(probe, upload, 1, pieces));
  const S3Part part{.number = 1, .etag = etag};
  return client_->complete(probe, upload, std::span(&part, 1), writer, S3Condition::kAbsent);
}

Result<SweepReport> S3Store::sweep(const std::string& folder, std::chrono::seconds age, std::chrono::system_clock::time_point now) {
  return sweep_s3_folder(*this, folder, S3SweepScope::kFolder, std::chrono::floor<std::chrono::seconds>(now) - age);
}

Result<SweepReport> S3Store::sweep_folders(const std::string& folder, std::chrono::seconds age, std::chrono::system_clock::time_point now) {
  return sweep_s3_folder(*this, folder, S3SweepScope::kFoldersToo, std::chrono::floor<std::chrono::seconds>(now) - age);
}

Result<SweepReport> S3Store::sweep_name(const std::string& path, std::chrono::seconds age, std::chrono::system_clock::time_point now) {
  return sweep_s3_name(*this, path, std::chrono::floor<std::chrono::seconds>(now) - age);
}

Result<std::unique_ptr<Store>> make_s3_store(const S3Options& options, const StoreTools& tools) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  const S3Identity identity{.anonymous = options.anonymous, .profile = options.profile};
  const auto keys = std::make_shared<S3KeyRing>(find_own_keys(identity, tools), tools.clock);  // Shared by the store's threads alone.
  DARKROOM_RETURN_IF_ERROR(keys->get(false).status());
  const S3KeySource source = [keys](bool anew) { return keys->get(anew); };
  return std::unique_ptr<Store>(std::make_unique<S3Store>(std::make_unique<S3Client>(options, source, tools)));
}

}  // namespace darkroom
