#include "inspect_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cell_text.h"
#include "darkroom/core/log.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/show/run_report.h"
#include "darkroom/stores/stores.h"
#include "darkroom/stream/progress.h"
#include "run_folder.h"
#include "weights_study.h"

namespace darkroom {
namespace {

int64_t recorded_bytes(const FileDigests& digests) {
  int64_t sum = 0;
  for (const auto& [name, digest] : digests) {
    sum += digest.size_bytes;
  }
  return sum;
}

/// On a terminal; `num_bytes` of so many are verified.
void show_verified(int64_t num_bytes, int64_t num_recorded, const std::string& file) {
  const std::string bar = num_recorded > 0 ? terminal_bar(static_cast<double>(num_bytes) / static_cast<double>(num_recorded)) : "";
  show_progress(fmt::format("inspect {}{:.1f}/{:.1f} MB, verifying {}", bar, static_cast<double>(num_bytes) * 1e-6,
                            static_cast<double>(num_recorded) * 1e-6, file));
}

Status verify_checkpoint(FileSystem& files, const std::string& folder, const FileDigests& digests, const std::stop_token& stop,
                         DamageLog& damage) {
  std::vector<std::string> whole_weights;
  const int64_t num_recorded = recorded_bytes(digests);
  int64_t num_bytes = 0;
  for (const auto& [name, digest] : digests) {
    show_verified(num_bytes, num_recorded, file_name(folder) + "/" + name);
    num_bytes += digest.size_bytes;
    const int64_t num_damages = damage.count();
    DARKROOM_RETURN_IF_ERROR(damage.take(verify_checkpoint_file(files, folder, name, digest, stop)));
    if (name.ends_with(".safetensors") && damage.count() == num_damages) {
      whole_weights.push_back(join_path(folder, name));
    }
  }
  show_progress("");
  return check_weights(whole_weights, stop, damage);
}

std::string field_text(const nlohmann::ordered_json& state, const char* name) {
  const auto value = state.find(name);
  if (value == state.end()) {
    return "-";
  }
  return clipped_text(
      value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), 96);
}

// unet/ or vae/, and ema/.
Status describe_parts(FileSystem& files, const std::string& path, InspectReport& report, DamageLog& damage) {
  ReportTable table{.title = "parts", .head = {"folder", "weights"}, .rows = {}};
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  for (const FileInfo& entry : entries) {
    if (!entry.is_folder) {
      continue;
    }
    const auto facts = read_weights_facts(files, entry.path);
    if (!facts.is_ok()) {
      DARKROOM_RETURN_IF_ERROR(damage.is_on() ? Status::ok() : facts.status());  // Its checksum is the finding.
      continue;
    }
    table.rows.push_back({file_name(entry.path), facts->to_text()});
    report.summary["components"][file_name(entry.path)] = {{"parameters", facts->num_parameters}, {"tensors", facts->num_tensors}};
  }
  report.tables.push_back(std::move(table));
  return Status::ok();
}

Status describe_checkpoints(FileSystem& files, const std::string& folder, const std::stop_token& stop, InspectReport& report,
                            DamageLog& damage) {
  ReportTable table{.title = "checkpoints", .head = {"name", "step", "samples", "bytes"}, .rows = {}};
  report.summary["checkpoints"] = nlohmann::json::array();
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<CheckpointPlace> places, list_checkpoints(files, folder));
  for (const CheckpointPlace& place : places) {
    const std::string name = file_name(place.path);
    const auto checkpoint = read_checkpoint_record(files, place.path);
    if (!checkpoint.is_ok()) {
      DARKROOM_RETURN_IF_ERROR(damage.take(checkpoint.status()));
      table.rows.push_back({name, "damaged", "-", "-"});
      continue;
    }
    const CheckpointRecord& record = checkpoint->record;
    table.rows.push_back(
        {name, grouped_digits(record.step), grouped_digits(record.samples), bytes_text(recorded_bytes(checkpoint->digests))});
    report.summary["checkpoints"].push_back({{"name", name}, {"step", record.step}, {"samples", record.samples}});
    if (damage.is_on()) {
      DARKROOM_RETURN_IF_ERROR(verify_checkpoint(files, place.path, checkpoint->digests, stop, damage));
    }
  }
  report.tables.push_back(std::move(table));
  return Status::ok();
}

// What the run is and how it went, beside `compare_with` where one is named.
Status describe_run(FileSystem& files, const std::string& path, const std::string& compare_with, InspectReport& report, DamageLog& damage) {
  const auto run = read_run_folder(files, path);
  if (!run.is_ok()) {
    return damage.take(run.status());
  }
  report.summary["metrics"]["lines"] = run->metrics.num_lines;
  if (const nlohmann::json& last = run->metrics.last; last.is_object()) {
    for (const char* name : {"step", "samples", "loss", "validation_loss", "images_per_second", "seconds"}) {
      if (last.contains(name)) {
        report.summary["metrics"][std::string("last_") + name] = last[name];
      }
    }
  }
  report.summary["run"] = run->facts;
  report.summary["goodput"] = run->goodput;
  if (!compare_with.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const RunFolder other, read_run_folder(files, compare_with));
    report.tables.push_back(comparison_table(*run, other));
    return Status::ok();
  }
  ReportTable table{.title = "run", .head = {}, .rows = {}};
  for (const auto& [name, value] : run_facts_rows(*run)) {
    table.rows.push_back({name, value});
  }
  table.rows.push_back({"logged lines", grouped_digits(run->metrics.num_lines)});
  report.tables.push_back(std::move(table));
  return Status::ok();
}

}  // namespace

Status inspect_checkpoint(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                          DamageLog& damage) {
  report.kind = "checkpoint";
  const auto checkpoint = read_checkpoint_record(files, path);
  if (!checkpoint.is_ok()) {
    return damage.take(checkpoint.status());
  }
  const CheckpointRecord& record = checkpoint->record;
  const nlohmann::ordered_json fields = {{"step", record.step},
                                         {"samples", record.samples},
                                         {"batch_number", record.batch_number},
                                         {"optimizer_updates", record.optimizer_updates},
                                         {"component", record.component},
                                         {"index_hash", record.index_hash},
                                         {"frozen_path", record.frozen_path},
                                         {"frozen_fingerprints", record.frozen_fingerprints},
                                         {"tokenizer_dialect", record.tokenizer_dialect},
                                         {"loss_scale", record.loss_scale}};
  ReportTable facts{.title = "", .head = {}, .rows = {}};
  for (const auto& [name, value] : fields.items()) {
    facts.rows.push_back({name, field_text(fields, name.c_str())});
    report.summary[name] = value;
  }
  const int64_t num_bytes = recorded_bytes(checkpoint->digests);
  facts.rows.push_back({"files", fmt::format("{}, {}", checkpoint->digests.size(), bytes_text(num_bytes))});
  report.summary["bytes"] = num_bytes;
  report.tables.push_back(std::move(facts));
  DARKROOM_RETURN_IF_ERROR(describe_parts(files, path, report, damage));
  return damage.is_on() ? verify_checkpoint(files, path, checkpoint->digests, stop, damage) : Status::ok();
}

Status inspect_run_folder(FileSystem& files, const std::string& path, const InspectOptions& options, const std::stop_token& stop,
                          InspectReport& report, DamageLog& damage) {
  report.kind = "run folder";
  std::string compare_with;
  if (!options.compare.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(compare_with, local_path(options.compare));
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool has_metrics, files.exists(join_path(path, "metrics.jsonl")));
  if (!has_metrics && !compare_with.empty()) {
    return Status::failed_precondition("--compare needs the logged losses of both runs; this one has no metrics.jsonl:", path);
  }
  if (has_metrics) {
    DARKROOM_RETURN_IF_ERROR(describe_run(files, path, compare_with, report, damage));
  }
  DARKROOM_RETURN_IF_ERROR(describe_checkpoints(files, join_path(path, "checkpoints"), stop, report, damage));
  ReportTable table{.title = "files", .head = {}, .rows = {}};
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  for (const FileInfo& entry : entries) {
    table.rows.push_back(
        {clipped_text(file_name(entry.path), 64) + (entry.is_folder ? "/" : ""), entry.is_folder ? "" : bytes_text(entry.size_bytes)});
  }
  report.tables.push_back(std::move(table));
  if (has_metrics && !options.html_path.empty()) {
    auto page = render_run_report(files, path, compare_with);
    if (page.is_ok()) {
      report.page = std::move(page).value();
    } else {
      DARKROOM_RETURN_IF_ERROR(damage.take(page.status()));
    }
  }
  return Status::ok();
}

}  // namespace darkroom
