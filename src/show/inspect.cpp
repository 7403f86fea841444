#include "darkroom/show/inspect.h"

#include <algorithm>

#include "damage_log.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/png.h"
#include "darkroom/stores/uri.h"
#include "darkroom/tables/table_reader.h"
#include "inspect_model.h"
#include "inspect_run.h"
#include "inspect_table.h"

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
  return Status::not_found(
      status.message() +
          "; inspect knows datasets (parquet, csv, tsv, jsonl), checkpoints (state.json), run folders (metrics.jsonl), "
          "model folders (model_index.json) and .safetensors files; got:",
      uri);
}

Status describe(FileSystem& files, const InspectOptions& options, const std::stop_token& stop, InspectReport& report, DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string given, local_path(options.uri));
  const std::string path(without_trailing_slashes(given));
  DARKROOM_ASSIGN_OR_RETURN(const Kind kind, recognise(files, path));
  if (kind != Kind::kTables && !options.sheet_path.empty()) {
    return Status::failed_precondition("--sheet needs a dataset of images or latents, this is none:", options.uri);
  }
  if (kind != Kind::kRunFolder && !options.compare.empty()) {
    return Status::failed_precondition("--compare sets two run folders beside each other; this is none:", options.uri);
  }
  switch (kind) {
    case Kind::kCheckpoint:
      return inspect_checkpoint(files, path, stop, report, damage);
    case Kind::kRunFolder:
      return inspect_run_folder(files, path, options, stop, report, damage);
    case Kind::kModelFolder:
      return inspect_model_folder(files, path, stop, report, damage);
    case Kind::kComponent:
      return inspect_component(files, path, stop, report, damage);
    case Kind::kSafetensors:
      return inspect_safetensors(files, path, stop, report, damage);
    case Kind::kTables:
      break;
  }
  return explain_unknown(inspect_tables(files, options, stop, report, damage), options.uri);
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
  const Status described = describe(files, options, stop, report, damage);
  report.damage = damage.lines();
  report.num_damages = damage.count();
  report.summary["kind"] = report.kind.empty() ? nlohmann::json() : nlohmann::json(report.kind);
  report.summary["uri"] = report.uri;
  report.summary["verified"] = options.verify;
  report.summary["damage"] = report.damage;
  report.summary["num_damages"] = report.num_damages;
  DARKROOM_RETURN_IF_ERROR(described);
  if (!options.sheet_path.empty() && !report.sheet.pixels.empty()) {
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, options.sheet_path, encode_png(report.sheet)));
  }
  if (!options.html_path.empty()) {
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, options.html_path, report.to_html()));
  }
  return Status::ok();
}

Result<InspectReport> inspect(FileSystem& files, const InspectOptions& options, const std::stop_token& stop) {
  InspectReport report;
  DARKROOM_RETURN_IF_ERROR(inspect(files, options, stop, report));
  return report;
}

}  // namespace darkroom
