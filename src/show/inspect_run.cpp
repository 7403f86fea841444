#include "inspect_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cell_text.h"
#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "metrics_lines.h"
#include "weights_study.h"

namespace darkroom {
namespace {

constexpr const char* kStateFile = "state.json";
constexpr const char* kStateDigestKey = "state_sha256";

Result<nlohmann::json> read_state(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kStateFile);
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  nlohmann::json state = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("files") || !state["files"].is_object()) {
    return Status::corrupt_data("the checkpoint's state.json is damaged (path):", path);
  }
  return state;
}

Result<std::pair<int64_t, std::string>> digest_file(FileSystem& files, const std::string& path, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(path));
  std::vector<std::byte> buffer(size_t{4} << 20);
  Sha256 hash;
  int64_t offset = 0;
  while (!stop.stop_requested()) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(offset, buffer));
    hash.update(std::span(buffer.data(), num_read));
    offset += static_cast<int64_t>(num_read);
    if (num_read < buffer.size()) {
      return std::pair(offset, hash.finish_hex());
    }
  }
  return Status::cancelled("inspect was stopped while it read (path):", path);
}

// The digest in state.json covers its own text without that entry (docs/formats/checkpoint.md).
Status check_state_digest(nlohmann::json state, const std::string& path) {
  const nlohmann::json want = state.value(kStateDigestKey, nlohmann::json());
  state.erase(kStateDigestKey);
  if (want != sha256_hex(state.dump(1) + "\n")) {
    return Status::corrupt_data("the checkpoint's state.json is damaged: its SHA-256 is not the recorded one (path):", path);
  }
  return Status::ok();
}

Status verify_file(FileSystem& files, const std::string& folder, const std::string& name, const nlohmann::json& record,
                   const std::stop_token& stop) {
  const std::string path = join_path(folder, name);
  auto got = digest_file(files, path, stop);
  if (!got.is_ok()) {
    return got.status().with_context("a file of the checkpoint cannot be read");
  }
  if (!record.is_object() || record.value("size_bytes", nlohmann::json()) != got->first ||
      record.value("sha256", nlohmann::json()) != got->second) {
    return Status::corrupt_data("a file of the checkpoint is damaged: its size or SHA-256 is not the recorded one (path, want, got):", path,
                                record.dump(), fmt::format("{} {}", got->first, got->second));
  }
  return Status::ok();
}

Status verify_checkpoint(FileSystem& files, const std::string& folder, const nlohmann::json& state, const std::stop_token& stop,
                         DamageLog& damage) {
  DARKROOM_RETURN_IF_ERROR(damage.take(check_state_digest(state, join_path(folder, kStateFile))));
  std::vector<std::string> whole_weights;
  for (const auto& [name, record] : state["files"].items()) {
    show_progress(fmt::format("inspect: verifying {}/{}", file_name(folder), name));
    const int64_t num_damages = damage.count();
    DARKROOM_RETURN_IF_ERROR(damage.take(verify_file(files, folder, name, record, stop)));
    if (name.ends_with(".safetensors") && damage.count() == num_damages) {
      whole_weights.push_back(join_path(folder, name));
    }
  }
  show_progress("");
  return check_weights(whole_weights, stop, damage);
}

std::string field_text(const nlohmann::json& state, const char* name) {
  const auto value = state.find(name);
  if (value == state.end()) {
    return "-";
  }
  return clipped_text(
      value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 96);
}

int64_t recorded_bytes(const nlohmann::json& state) {
  int64_t sum = 0;
  for (const auto& [name, record] : state["files"].items()) {
    const auto size = record.is_object() ? record.value("size_bytes", nlohmann::json()) : nlohmann::json();
    sum += size.is_number_integer() ? size.get<int64_t>() : 0;
  }
  return sum;
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
  DARKROOM_ASSIGN_OR_RETURN(const bool has_folder, files.exists(folder));
  const auto entries = has_folder ? files.list(folder) : std::vector<FileInfo>();
  DARKROOM_RETURN_IF_ERROR(entries.status());
  for (const FileInfo& entry : *entries) {
    if (!entry.is_folder || file_name(entry.path).starts_with("_")) {
      continue;  // _tmp holds what is being written.
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool has_state, files.exists(join_path(entry.path, kStateFile)));
    if (!has_state) {
      continue;
    }
    const auto state = read_state(files, entry.path);
    if (!state.is_ok()) {
      DARKROOM_RETURN_IF_ERROR(damage.take(state.status()));
      table.rows.push_back({file_name(entry.path), "damaged", "-", "-"});
      continue;
    }
    table.rows.push_back(
        {file_name(entry.path), field_text(*state, "step"), field_text(*state, "samples"), bytes_text(recorded_bytes(*state))});
    report.summary["checkpoints"].push_back({{"name", file_name(entry.path)},
                                             {"step", state->value("step", nlohmann::json())},
                                             {"samples", state->value("samples", nlohmann::json())}});
    if (damage.is_on()) {
      DARKROOM_RETURN_IF_ERROR(verify_checkpoint(files, entry.path, *state, stop, damage));
    }
  }
  report.tables.push_back(std::move(table));
  return Status::ok();
}

Status describe_metrics(FileSystem& files, const std::string& path, InspectReport& report, DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(const bool has_metrics, files.exists(path));
  if (!has_metrics) {
    return Status::ok();
  }
  const auto lines = read_metrics_lines(files, path);
  if (!lines.is_ok()) {
    return damage.take(lines.status());
  }
  ReportTable table{.title = "metrics", .head = {}, .rows = {{"logged lines", grouped_digits(static_cast<int64_t>(lines->size()))}}};
  report.summary["metrics"]["lines"] = lines->size();
  if (!lines->empty()) {
    const nlohmann::json& last = lines->back();
    for (const char* name : {"step", "samples", "loss", "validation_loss", "images_per_second"}) {
      if (last.contains(name)) {
        table.rows.push_back({std::string("last ") + name, field_text(last, name)});
        report.summary["metrics"][std::string("last_") + name] = last[name];
      }
    }
  }
  report.tables.push_back(std::move(table));
  return Status::ok();
}

}  // namespace

Status inspect_checkpoint(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                          DamageLog& damage) {
  report.kind = "checkpoint";
  const auto state = read_state(files, path);
  if (!state.is_ok()) {
    return damage.take(state.status());
  }
  ReportTable facts{.title = "", .head = {}, .rows = {}};
  for (const char* name : {"format_version", "step", "samples", "batch_number", "optimizer_updates", "component", "index_hash",
                           "frozen_path", "frozen_fingerprints", "tokenizer_dialect", "loss_scale"}) {
    facts.rows.push_back({name, field_text(*state, name)});
    report.summary[name] = state->value(name, nlohmann::json());
  }
  const int64_t num_bytes = recorded_bytes(*state);
  facts.rows.push_back({"files", fmt::format("{}, {}", (*state)["files"].size(), bytes_text(num_bytes))});
  report.summary["bytes"] = num_bytes;
  report.tables.push_back(std::move(facts));
  DARKROOM_RETURN_IF_ERROR(describe_parts(files, path, report, damage));
  return damage.is_on() ? verify_checkpoint(files, path, *state, stop, damage) : Status::ok();
}

Status inspect_run_folder(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                          DamageLog& damage) {
  report.kind = "run folder";
  DARKROOM_RETURN_IF_ERROR(describe_metrics(files, join_path(path, "metrics.jsonl"), report, damage));
  DARKROOM_RETURN_IF_ERROR(describe_checkpoints(files, join_path(path, "checkpoints"), stop, report, damage));
  ReportTable table{.title = "files", .head = {}, .rows = {}};
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  for (const FileInfo& entry : entries) {
    table.rows.push_back(
        {clipped_text(file_name(entry.path), 64) + (entry.is_folder ? "/" : ""), entry.is_folder ? "" : bytes_text(entry.size_bytes)});
  }
  report.tables.push_back(std::move(table));
  return Status::ok();
}

}  // namespace darkroom
