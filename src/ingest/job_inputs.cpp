#include "darkroom/ingest/job_inputs.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/base64.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/quick_footer.h"
#include "read_many.h"
#include "usable_inputs.h"

namespace darkroom {
namespace {

constexpr int64_t kNotCounted = -1;
constexpr const char* kFolderItself = "./";  // The name of an input that is the whole folder asked for.

/// The folder that input names are relative to: the folder asked for, or the one above a file or above the first wildcard. A split of the
/// hub's (?config=...) is named from its repository's revision on.
Result<std::string> naming_root(StoreSet& stores, const std::string& uri, const std::vector<InputObject>& objects) {
  const Result<Location> place = stores.resolve(uri, Access::kRead);
  if (!place.is_ok()) {
    constexpr int kNamesOfRevision = 3;  // datasets/ORG/NAME@REVISION
    size_t end = 0;
    for (int i = 0; i < kNamesOfRevision && end != std::string::npos; ++i) {
      end = objects.front().place.path.find('/', end + (i > 0 ? 1 : 0));
    }
    return objects.front().place.path.substr(0, end);
  }
  const std::string& first = objects.front().place.path;
  if (first.ends_with('/') && !has_wildcard(place->path)) {
    const Result<FileInfo> info = place->store->stat(place->path);  // A metadata file stands for its folder.
    return info.is_ok() && !info->is_folder ? parent_folder(place->path) : std::string(without_trailing_slashes(place->path));
  }
  if (objects.size() == 1 && first == place->path) {
    return parent_folder(place->path);
  }
  const bool is_folder = objects.front().place.path.starts_with(join_path(place->path, ""));
  return is_folder ? place->path : folder_above_wildcards(place->path);
}

/// In byte order of their paths; of a file that is named twice the first naming counts.
std::vector<JobInput> each_once(std::vector<JobInput> inputs) {
  std::set<std::pair<std::string, const Store*>> known;
  std::erase_if(inputs, [&](const JobInput& input) { return !known.emplace(input.path, input.store).second; });
  std::stable_sort(inputs.begin(), inputs.end(), [](const JobInput& a, const JobInput& b) { return a.path < b.path; });
  return inputs;
}

std::string relative_name(const std::string& path, const std::string& root) {
  const std::string prefix = join_path(root, "");
  return path == prefix ? kFolderItself : path.starts_with(prefix) ? path.substr(prefix.size()) : file_name(path);
}

/// The objects that an address stood for as inputs; of the parts of one item the one that counts.
Status add_named(StoreSet& stores, const std::string& uri, const std::vector<InputObject>& objects, std::vector<JobInput>& inputs) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string root, naming_root(stores, uri, objects));
  std::vector<FileInfo> files;
  for (const InputObject& object : objects) {
    files.push_back({.path = object.place.path, .size_bytes = object.size_bytes});
  }
  if (files.size() > 1) {  // A part that was named alone is meant.
    (void)take_out_superseded_parts(files);
  }
  for (FileInfo& file : files) {
    std::string name = relative_name(file.path, root);
    inputs.push_back({.path = std::move(file.path),
                      .name = std::move(name),
                      .size_bytes = file.size_bytes,
                      .num_rows = kNotCounted,
                      .store = objects.front().place.store});
  }
  return Status::ok();
}

/// The types that an ARROW:schema names, without the metadata beside them, which differ from file to file; bytes that cannot be read stand
/// for themselves.
std::string arrow_types(std::string_view arrow_schema) {
  arrow::io::BufferReader bytes(arrow::Buffer::FromString(arrow::util::base64_decode(arrow_schema)));
  arrow::ipc::DictionaryMemo dictionaries;
  const auto schema = arrow::ipc::ReadSchema(&bytes, &dictionaries);
  return schema.ok() && !(*schema)->fingerprint().empty() ? (*schema)->fingerprint() : std::string(arrow_schema);
}

/// The same for tables with the same columns, and for no others: `binary` and `large_binary` are one type of Parquet. "" where the quick
/// look has not seen them.
std::string columns_key(const std::optional<QuickFooter>& quick) {
  if (!quick) {
    return "";
  }
  const std::string types = quick->arrow_schema.empty() ? "" : arrow_types(quick->arrow_schema);
  return sha256_hex(sha256_hex(quick->schema) + types);
}

/// Columns that were looked at, so that of 200,000 tables alike one is. Thread safety: any thread.
class CheckedSchemas {
 public:
  explicit CheckedSchemas(const CheckColumns& check) : check_(check) {}

  /// `key`: columns_key's.
  bool knows(const std::string& key) {
    const std::lock_guard hold(mutex_);
    return known_.contains(key);
  }
  Status check(TableReader& table, const std::string& key) {
    DARKROOM_RETURN_IF_ERROR(check_ ? check_(*table.schema(), table.path()) : Status::ok());
    const std::lock_guard hold(mutex_);
    known_.insert(key);
    return Status::ok();
  }

 private:
  const CheckColumns& check_;
  std::mutex mutex_;
  std::set<std::string> known_;  // Guarded by mutex_.
};

Status check_num_rows(const JobInput& input) {
  return input.num_rows <= kMaxInputRows
             ? Status::ok()
             : Status::corrupt_data("an input says that it has more rows than can be (file, rows):", input.path, input.num_rows);
}

/// Takes what tells a folder from another one.
void take_identity(TableIdentity identity, JobInput& input) {
  input.size_bytes = identity.size_bytes;
  input.tail_sha256 = std::move(identity.sha256);
}

Status measure_folder(const Location& place, CheckedSchemas& schemas, JobInput& input) {
  DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(place));
  DARKROOM_RETURN_IF_ERROR(schemas.check(*table, ""));
  take_identity(*table->identity(), input);
  DARKROOM_ASSIGN_OR_RETURN(input.num_rows, table->num_rows());  // Of the same listing.
  return check_num_rows(input);
}

/// A tar without samples, a download's item without a good row, has no columns of theirs: that is no failure.
Status pass_empty_tar(TableReader& tar, Status status, JobInput& input) {
  DARKROOM_ASSIGN_OR_RETURN(input.num_rows, tar.num_rows());
  return input.num_rows == 0 ? Status::ok() : status;
}

Status measure_input(Store* store, CheckedSchemas& schemas, JobInput& input) {
  const Location place = place_of(store, input);
  if (place.path.ends_with('/')) {
    return measure_folder(place, schemas, input);
  }
  DARKROOM_ASSIGN_OR_RETURN(const ObjectTail tail, place.store->read_tail(place.path, kPlanningTailBytes));
  input.size_bytes = tail.size_bytes;
  input.tail_sha256 = sha256_hex(tail.bytes);
  const Result<TableFormat> format = container_format(place.path);  // Other formats may end with whatever a footer looks like.
  const bool is_parquet = format.is_ok() && *format == TableFormat::kParquet;
  const std::optional<QuickFooter> quick = is_parquet ? read_quick_footer(tail) : std::nullopt;
  const std::string columns = columns_key(quick);
  // A damaged footer that says 0 rows would drop the file without a word: the whole reader looks at it.
  if (quick && quick->num_rows > 0 && schemas.knows(columns)) {
    input.num_rows = quick->num_rows;
    return check_num_rows(input);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(place));
  if (Status status = schemas.check(*table, columns); !status.is_ok()) {
    return table->format() == TableFormat::kTar ? pass_empty_tar(*table, std::move(status), input) : status;
  }
  if (table->format() != TableFormat::kParquet) {
    input.num_rows = kNotCounted;
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(input.num_rows, table->num_rows());
  return check_num_rows(input);
}

auto identity_of(const JobInput& input) { return std::tie(input.name, input.size_bytes, input.tail_sha256); }

/// Indices in the order of what identifies a file; equal ones in their own order.
std::vector<size_t> sorted_indices(const std::vector<JobInput>& inputs) {
  std::vector<size_t> indices(inputs.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::stable_sort(indices.begin(), indices.end(), [&](size_t a, size_t b) { return identity_of(inputs[a]) < identity_of(inputs[b]); });
  return indices;
}

/// The measured file of each pin; nothing where there is none.
std::vector<std::optional<size_t>> match(const std::vector<JobInput>& measured, const std::vector<JobInput>& pins) {
  const std::vector<size_t> there = sorted_indices(measured);
  std::vector<std::optional<size_t>> matches(pins.size());
  size_t next = 0;
  for (const size_t pin : sorted_indices(pins)) {
    while (next < there.size() && identity_of(measured[there[next]]) < identity_of(pins[pin])) {
      ++next;
    }
    if (next < there.size() && identity_of(measured[there[next]]) == identity_of(pins[pin])) {
      matches[pin] = there[next++];
    }
  }
  return matches;
}

}  // namespace

Result<std::vector<JobInput>> list_job_inputs(StoreSet& stores, const std::vector<std::string>& uris) {
  std::vector<JobInput> inputs;
  for (const std::string& uri : uris) {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<InputObject> objects, stores.resolve_inputs(uri));
    DARKROOM_RETURN_IF_ERROR(add_named(stores, uri, objects, inputs));
  }
  return each_once(std::move(inputs));
}

Result<std::vector<JobInput>> list_image_job_inputs(StoreSet& stores, const std::string& uri) {
  std::vector<JobInput> inputs;
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<InputObject> objects, stores.resolve_image_inputs(uri));
  DARKROOM_RETURN_IF_ERROR(add_named(stores, uri, objects, inputs));
  return each_once(std::move(inputs));
}

std::vector<InputRoot> input_roots(StoreSet& stores, const std::vector<std::string>& uris) {
  std::vector<InputRoot> roots;
  for (const std::string& uri : uris) {
    const Result<Location> place = stores.resolve(uri, Access::kRead);
    if (!place.is_ok()) {
      return {};
    }
    const Location named{.store = place->store, .path = std::string(without_trailing_slashes(place->path))};
    if (has_wildcard(named.path)) {
      roots.push_back({.folder = {.store = named.store, .path = folder_above_wildcards(named.path)}});
      continue;
    }
    roots.push_back({.folder = named.parent(), .only_name = named.name()});
    roots.push_back({.folder = named});
  }
  return roots;
}

Status measure_inputs(Store* store, const CheckColumns& check_columns, const std::stop_token& stop, std::vector<JobInput>& inputs) {
  CheckedSchemas schemas(check_columns);
  return read_many(inputs.size(), stop, [&](size_t i) { return measure_input(store, schemas, inputs[i]); });
}

Status measure_usable_inputs(Store* store, const CheckColumns& check_columns, const std::stop_token& stop, std::vector<JobInput>& inputs,
                             std::map<std::string, Status>& unusable) {
  CheckedSchemas schemas(check_columns);
  std::mutex mutex;  // Guards `unusable`.
  return read_many(inputs.size(), stop, [&](size_t i) -> Status {
    Status status = measure_input(store, schemas, inputs[i]);
    const StatusCode code = status.code();
    const bool may_pass = code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted || code == StatusCode::kCancelled;
    if (status.is_ok() || may_pass) {
      return status;
    }
    const std::lock_guard hold(mutex);
    unusable.emplace(inputs[i].path, std::move(status));
    return Status::ok();
  });
}

Status count_other_rows(Store* store, const std::stop_token& stop, std::vector<JobInput>& inputs) {
  return read_many(inputs.size(), stop, [&](size_t i) -> Status {
    if (inputs[i].num_rows != kNotCounted) {
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(place_of(store, inputs[i])));
    DARKROOM_ASSIGN_OR_RETURN(inputs[i].num_rows, table->num_rows());
    return Status::ok();
  });
}

Result<PinnedInputs> join_pins(std::vector<JobInput> measured, const std::vector<JobInput>& pins, const std::string& output,
                               const JobIdentity& wants) {
  const std::vector<std::optional<size_t>> matches = match(measured, pins);
  std::vector<bool> is_pinned(measured.size(), false);
  std::vector<const JobInput*> lost;
  for (size_t i = 0; i < pins.size(); ++i) {
    if (matches[i]) {
      is_pinned[*matches[i]] = true;
    } else {
      lost.push_back(&pins[i]);
    }
  }
  if (!lost.empty()) {
    std::set<std::string> names;
    for (size_t i = 0; i < measured.size(); ++i) {
      if (!is_pinned[i]) {
        names.insert(measured[i].name);
      }
    }
    std::vector<std::string> differences;
    for (const JobInput* pin : lost) {
      differences.push_back("input " + pin->name + (names.contains(pin->name) ? " (changed)" : " (missing now)"));
    }
    return refuse_other_job(output, wants.to_json(), wants, std::move(differences));
  }
  PinnedInputs joined;
  joined.inputs = pins;
  for (size_t i = 0; i < pins.size(); ++i) {
    joined.inputs[i].path = measured[*matches[i]].path;
    joined.inputs[i].store = measured[*matches[i]].store;
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    if (!is_pinned[i]) {
      joined.late.push_back(std::move(measured[i]));
    }
  }
  return joined;
}

namespace {

Result<std::unique_ptr<TableReader>> open_input_at(const Location& place, const JobInput& input) {
  DARKROOM_ASSIGN_OR_RETURN(auto table, open_table(place));
  JobInput now;
  if (const auto identity = table->identity()) {
    take_identity(*identity, now);
  } else {
    // Looked at behind the opening: what replaces the file from here on is not what is read.
    DARKROOM_ASSIGN_OR_RETURN(const ObjectTail tail, place.store->read_tail(place.path, kPlanningTailBytes));
    take_identity({.size_bytes = tail.size_bytes, .sha256 = sha256_hex(tail.bytes)}, now);
  }
  if (now.size_bytes != input.size_bytes || now.tail_sha256 != input.tail_sha256) {
    return Status::failed_precondition("an input was replaced since the job looked at it: put the file back that was there (file):",
                                       place.uri());
  }
  return table;
}

}  // namespace

Result<std::unique_ptr<TableReader>> open_pinned_input(Store* store, const JobInput& input) {
  const Location place = place_of(store, input);
  Result<std::unique_ptr<TableReader>> table = open_input_at(place, input);
  if (table.status().code() == StatusCode::kNotFound && PartName::parse(place.name())) {
    // Its next generation came while the job ran: it has moved aside.
    Result<std::unique_ptr<TableReader>> aside = open_input_at(place.parent() / kSupersededFolder / place.name(), input);
    return aside.status().code() == StatusCode::kNotFound ? std::move(table) : std::move(aside);
  }
  return table;
}

}  // namespace darkroom
