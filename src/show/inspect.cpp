#include "darkroom/show/inspect.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "damage_log.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/png.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/stores/model_copy.h"
#include "dataset_view.h"
#include "inspect_model.h"
#include "inspect_run.h"
#include "inspect_table.h"
#include "listed_parts.h"

namespace darkroom {
namespace {

constexpr int64_t kMaxRowsShown = 1000;

enum class Kind { kTables, kCheckpoint, kRunFolder, kModelFolder, kComponent, kSafetensors };

// By what lies in a folder; everything else is tables or an error of theirs.
Result<Kind> recognise_folder(FileSystem& files, const std::string& path) {
  const auto has = [&](const char* name) { return files.exists(join_path(path, name)); };
  DARKROOM_ASSIGN_OR_RETURN(const bool has_state, has("state.json"));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_metrics, has("metrics.jsonl"));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_checkpoints, has("checkpoints"));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_index, has("model_index.json"));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_config, has("config.json"));
  if (has_state) {
    return Kind::kCheckpoint;
  }
  if (has_metrics || has_checkpoints) {
    return Kind::kRunFolder;
  }
  if (has_config) {
    return Kind::kComponent;
  }
  for (const char* config : {"unet/config.json", "vae/config.json", "text_encoder/config.json"}) {
    DARKROOM_ASSIGN_OR_RETURN(const bool has_part, has(config));
    if (has_index || has_part) {
      return Kind::kModelFolder;
    }
  }
  return Kind::kTables;
}

Result<Kind> recognise(FileSystem& files, const std::string& path) {
  const auto info = files.stat(path);
  if (!info.is_ok()) {
    // A pattern names no file itself; what is not there at all is refused by list_inputs.
    return info.status().code() == StatusCode::kNotFound ? Result<Kind>(Kind::kTables) : info.status();
  }
  if (info->is_folder) {
    return recognise_folder(files, path);
  }
  return path.ends_with(".safetensors") ? Kind::kSafetensors : Kind::kTables;
}

Status explain_unknown(const Status& status, const std::string& uri) {
  if (status.code() != StatusCode::kNotFound) {
    return status;
  }
  return Status::not_found(status.message() +
                               "; inspect knows datasets (parquet, csv, tsv, jsonl, webdataset tars, MDS, folders of pictures), "
                               "checkpoints (state.json), run folders (metrics.jsonl), "
                               "model folders (model_index.json) and .safetensors files; got:",
                           uri);
}

/// What is looked at, as files of `files`.
struct Subject {
  Kind kind = Kind::kTables;
  std::string path = {};              ///< Of all but tables.
  std::vector<FileInfo> inputs = {};  ///< Of tables.
  bool is_folder = false;             ///< The tables are those of a folder.
};

Status describe(FileSystem& files, const Subject& subject, const InspectOptions& options, const std::stop_token& stop,
                InspectReport& report, DamageLog& damage) {
  switch (subject.kind) {
    case Kind::kCheckpoint:
      return inspect_checkpoint(files, subject.path, stop, report, damage);
    case Kind::kRunFolder:
      return inspect_run_folder(files, subject.path, options, stop, report, damage);
    case Kind::kModelFolder:
      return inspect_model_folder(files, subject.path, stop, report, damage);
    case Kind::kComponent:
      return inspect_component(files, subject.path, stop, report, damage);
    case Kind::kSafetensors:
      return inspect_safetensors(files, subject.path, stop, report, damage);
    case Kind::kTables:
      break;
  }
  ListedParts parts(files, subject.inputs);
  return inspect_tables(parts, {.inputs = subject.inputs, .are_a_folders = subject.is_folder}, options, stop, report, damage);
}

Status check_kind(Kind kind, const InspectOptions& options) {
  if (kind != Kind::kTables && !options.sheet_path.empty()) {
    return Status::failed_precondition("--sheet needs a dataset of images or latents, this is none:", options.uri);
  }
  if (kind != Kind::kRunFolder && !options.compare.empty()) {
    return Status::failed_precondition("--compare sets two run folders beside each other; this is none:", options.uri);
  }
  return Status::ok();
}

Status describe_local(FileSystem& files, const InspectOptions& options, const std::stop_token& stop, InspectReport& report,
                      DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string given, local_path(options.uri));
  Subject subject{.path = std::string(without_trailing_slashes(given))};
  DARKROOM_ASSIGN_OR_RETURN(subject.kind, recognise(files, subject.path));
  DARKROOM_RETURN_IF_ERROR(check_kind(subject.kind, options));
  if (subject.kind != Kind::kTables) {
    return describe(files, subject, options, stop, report, damage);
  }
  const auto info = files.stat(subject.path);
  subject.is_folder = info.is_ok() && info->is_folder;
  auto inputs = dataset_or_tables<std::vector<FileInfo>>(
      subject.is_folder, [&] { return list_image_inputs(files, options.uri, stop); },
      [&] { return list_inputs(files, options.uri, stop); });
  DARKROOM_RETURN_IF_ERROR(explain_unknown(inputs.status(), options.uri));
  subject.inputs = *std::move(inputs);
  return explain_unknown(describe(files, subject, options, stop, report, damage), options.uri);
}

/// By the names in a remote folder; everything else is tables.
Result<Kind> recognise_remote_folder(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, place.store->list(place.path));
  std::set<std::string> names;
  bool has_metrics = false;
  for (const FileInfo& entry : entries) {
    names.insert(file_name(entry.path));
    has_metrics = has_metrics || step_of_metrics_part(file_name(entry.path)).has_value();
  }
  if (names.contains("state.json")) {
    return Kind::kCheckpoint;
  }
  if (has_metrics || names.contains("metrics.jsonl") || names.contains("checkpoints")) {
    return Kind::kRunFolder;
  }
  if (names.contains("config.json")) {
    return Kind::kComponent;
  }
  for (const char* part : {"unet", "vae", "text_encoder"}) {
    DARKROOM_ASSIGN_OR_RETURN(const bool has_part, names.contains(part) ? (place / part / "config.json").exists() : Result<bool>(false));
    if (has_part || names.contains("model_index.json")) {
      return Kind::kModelFolder;
    }
  }
  return Kind::kTables;
}

/// What lies at a remote place.
struct Recognised {
  Kind kind = Kind::kTables;
  bool is_folder = false;
};

/// Everything unknown is tables or an error of theirs.
Result<Recognised> recognise_remote(const Location& place) {
  const Result<FileInfo> info = place.store->stat(place.path);
  if (!info.is_ok()) {
    return info.status().code() == StatusCode::kNotFound ? Result<Recognised>(Recognised()) : info.status();
  }
  if (!info->is_folder) {
    return Recognised{.kind = place.path.ends_with(".safetensors") ? Kind::kSafetensors : Kind::kTables, .is_folder = false};
  }
  DARKROOM_ASSIGN_OR_RETURN(const Kind kind, recognise_remote_folder(place));
  return Recognised{.kind = kind, .is_folder = true};
}

/// What is looked at; other forms of the weights, and whatever else lies there, become holes of the right size.
int64_t known_bytes(const std::string& name, const InputFile& file) {
  const bool is_known = name.ends_with(".safetensors") || name.ends_with(".json") || name.ends_with(".txt");
  return is_known ? file.size_bytes() : 0;
}

/// Of weights their header alone.
Result<int64_t> header_bytes(const std::string& name, const InputFile& file) {
  uint64_t length = 0;
  if (!name.ends_with(".safetensors") || file.size_bytes() < static_cast<int64_t>(sizeof length)) {
    return known_bytes(name, file);
  }
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  const auto rest = static_cast<uint64_t>(file.size_bytes()) - sizeof length;
  return num_read == sizeof length && length <= rest ? static_cast<int64_t>(sizeof length + length) : file.size_bytes();
}

/// The small files of a run and its checkpoints' records, or the whole checkpoints.
Status fetch_run(const Location& place, const std::string& folder, bool with_checkpoints, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(fetch_run_files(place, folder, std::numeric_limits<int64_t>::max(), {}, stop));
  const CopyOptions options{.takes = [&](const std::string& name) { return with_checkpoints || name.ends_with("/state.json"); },
                            .wanted_bytes = {},
                            .stop = stop};
  const Status fetched = copy_tree_here(place / "checkpoints", join_path(folder, "checkpoints"), options);
  return fetched.code() == StatusCode::kNotFound ? Status::ok() : fetched;
}

/// A remote place: its address as it was given, which is shown nowhere, and what lies there. The options name it in words.
struct RemotePlace {
  const std::string& address;
  std::optional<Location> place = {};  ///< Nothing for an address that names tables at several places.
};

Status describe_remote_tables(StoreSet& stores, const std::string& address, bool is_folder, const InspectOptions& options,
                              const std::stop_token& stop, InspectReport& report, DamageLog& damage) {
  const auto dataset = find_shown_dataset(stores, address, is_folder);
  DARKROOM_RETURN_IF_ERROR(explain_unknown(dataset.status(), options.uri));
  DatasetView view(*dataset);
  return describe(view, {.kind = Kind::kTables, .path = {}, .inputs = view.inputs(), .is_folder = is_folder}, options, stop, report,
                  damage);
}

Status describe_remote(StoreSet& stores, const RemotePlace& remote, const InspectOptions& options, const std::stop_token& stop,
                       InspectReport& report, DamageLog& damage) {
  if (!remote.place) {
    return describe_remote_tables(stores, remote.address, false, options, stop, report, damage);
  }
  const Location& place = *remote.place;
  DARKROOM_ASSIGN_OR_RETURN(const auto recognised, recognise_remote(place));
  const Kind kind = recognised.kind;
  DARKROOM_RETURN_IF_ERROR(check_kind(kind, options));
  if (kind == Kind::kTables) {
    return describe_remote_tables(stores, remote.address, recognised.is_folder, options, stop, report, damage);
  }
  DARKROOM_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::make());
  const std::string copy = join_path(scratch.path(), place.name());
  CopyOptions what{.takes = {}, .wanted_bytes = header_bytes, .stop = stop};
  if (options.verify) {
    what.wanted_bytes = known_bytes;
  }
  DARKROOM_RETURN_IF_ERROR(kind == Kind::kRunFolder     ? fetch_run(place, copy, options.verify, stop)
                           : kind == Kind::kSafetensors ? copy_file_here(place, copy, what)
                                                        : copy_tree_here(place, copy, what));
  const Status described = describe(local_files(), {.kind = kind, .path = copy, .inputs = {}}, options, stop, report, damage);
  damage.rename(copy, place.uri());
  return described.is_ok() ? described : Status::make(described.code(), DamageLog::renamed(described.message(), copy, place.uri()));
}

/// Another run and a model are looked at as files of this machine.
struct Companions {
  std::optional<ScratchFolder> run;
  std::optional<LocalCopy> model;
};

Status fetch_companions(StoreSet& stores, InspectOptions& options, const std::stop_token& stop, Companions& companions) {
  if (!options.model.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(companions.model, fetch_model_files(stores, options.model, {}, stop));
    options.model = companions.model->path();
  }
  if (options.compare.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location run, stores.resolve(options.compare, Access::kRead));
  if (auto local = run.store->local_path(run.path)) {
    options.compare = *std::move(local);
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::make());
  companions.run.emplace(std::move(scratch));
  options.compare = join_path(companions.run->path(), run.name());
  return fetch_run(run, options.compare, false, stop);
}

/// Fills the report's summary, and writes what was asked for once it is whole.
void sum_up(const InspectOptions& options, const DamageLog& damage, InspectReport& report) {
  report.damage = damage.lines();
  report.num_damages = damage.count();
  report.summary["kind"] = report.kind.empty() ? nlohmann::json() : nlohmann::json(report.kind);
  report.summary["uri"] = report.uri;
  report.summary["verified"] = options.verify;
  report.summary["damage"] = report.damage;
  report.summary["num_damages"] = report.num_damages;
}

using WriteOutput = std::function<Status(const std::string& path, const std::string& bytes)>;

Status write_outputs(const InspectOptions& options, const InspectReport& report, const WriteOutput& write) {
  if (!options.sheet_path.empty() && !report.sheet.pixels.empty()) {
    DARKROOM_RETURN_IF_ERROR(write(options.sheet_path, encode_png(report.sheet)));
  }
  return options.html_path.empty() ? Status::ok() : write(options.html_path, report.to_html());
}

/// A place that may hold a `?` (a split of the hub) names tables.
Result<std::optional<Location>> remote_place(StoreSet& stores, const std::string& uri) {
  if (uri.starts_with("hf://") && uri.find('?') != std::string::npos) {
    return std::optional<Location>();
  }
  DARKROOM_ASSIGN_OR_RETURN(Location place, stores.resolve(uri, Access::kRead));
  return std::optional(std::move(place));
}

}  // namespace

Status InspectOptions::validate() const {
  if (uri.empty()) {
    return Status::invalid_argument("inspect needs a URI: a dataset, a checkpoint, a run folder or a model folder; got nothing");
  }
  if (num_rows < 0 || num_rows > kMaxRowsShown) {
    return Status::invalid_argument("--rows must be from 0 to 1000, got:", num_rows);
  }
  if (num_rows == 0 && !sheet_path.empty()) {
    return Status::invalid_argument("--sheet shows the first --rows rows, so --rows must be at least 1, got:", num_rows);
  }
  if (max_pixels < 1) {
    return Status::invalid_argument("--max-pixels must be at least 1, got:", max_pixels);
  }
  if (max_bytes < 1) {
    return Status::invalid_argument("--max-bytes must be at least 1, got:", max_bytes);
  }
  if (!model.empty() && sheet_path.empty() && html_path.empty()) {
    return Status::invalid_argument("--model decodes the latents of a sheet: give --sheet or --html too; --model is:", model);
  }
  return Status::ok();
}

Status inspect(FileSystem& files, const InspectOptions& options, const std::stop_token& stop, InspectReport& report) {
  report = {};
  DARKROOM_RETURN_IF_ERROR(options.validate());
  report.uri = options.uri;
  DamageLog damage(options.verify);
  const Status described = describe_local(files, options, stop, report, damage);
  sum_up(options, damage, report);
  DARKROOM_RETURN_IF_ERROR(described);
  return write_outputs(options, report,
                       [&](const std::string& path, const std::string& bytes) { return write_file_atomic(files, path, bytes); });
}

Result<InspectReport> inspect(FileSystem& files, const InspectOptions& options, const std::stop_token& stop) {
  InspectReport report;
  DARKROOM_RETURN_IF_ERROR(inspect(files, options, stop, report));
  return report;
}

Status inspect(StoreSet& stores, const InspectOptions& given, const std::stop_token& stop, InspectReport& report) {
  report = {};
  DARKROOM_RETURN_IF_ERROR(given.validate());
  InspectOptions options = given;
  options.uri = recorded_uri(given.uri);
  report.uri = options.uri;
  Companions companions;
  DARKROOM_RETURN_IF_ERROR(fetch_companions(stores, options, stop, companions));
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Location> place, remote_place(stores, given.uri));
  DamageLog damage(options.verify);
  const bool is_local = place && place->store->local_path(place->path);
  const Status described = is_local ? describe_local(local_files(), options, stop, report, damage)
                                    : describe_remote(stores, {.address = given.uri, .place = place}, options, stop, report, damage);
  sum_up(options, damage, report);
  DARKROOM_RETURN_IF_ERROR(described);
  return write_outputs(options, report, [&](const std::string& path, const std::string& bytes) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const Location to, stores.resolve(path, Access::kWrite));
    return to.store->replace_small(to.path, bytes);
  });
}

Result<InspectReport> inspect(StoreSet& stores, const InspectOptions& options, const std::stop_token& stop) {
  InspectReport report;
  DARKROOM_RETURN_IF_ERROR(inspect(stores, options, stop, report));
  return report;
}

}  // namespace darkroom
