#include "darkroom/nn/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kDigestKey = "state_sha256";
constexpr std::string_view kNamePrefix = "step-";

// Paths may hold bytes that are no UTF-8; in the text they are replaced.
std::string print(const nlohmann::json& state) { return state.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"; }

// Without its digest. Keys are in byte order, so that the same state is the same text.
nlohmann::json to_json(const CheckpointRecord& record, const FileDigests& digests) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [path, digest] : digests) {
    files[path] = {{"size_bytes", digest.size_bytes}, {"sha256", digest.sha256}};
  }
  return {{"format_version", kFormatVersion},
          {"step", record.step},
          {"samples", record.samples},
          {"batch_number", record.batch_number},
          {"optimizer_updates", record.optimizer_updates},
          {"component", record.component},
          {"index_hash", record.index_hash},
          {"recipe", record.recipe},
          {"frozen_path", record.frozen_path},
          {"frozen_fingerprints", record.frozen_fingerprints},
          {"tokenizer_dialect", record.tokenizer_dialect},
          {"loss_scale", record.loss_scale},
          {"files", files}};
}

RecordedCheckpoint from_json(const nlohmann::json& state) {
  RecordedCheckpoint parsed;
  CheckpointRecord& record = parsed.record;
  state.at("step").get_to(record.step);
  state.at("samples").get_to(record.samples);
  state.at("batch_number").get_to(record.batch_number);
  state.at("optimizer_updates").get_to(record.optimizer_updates);
  state.at("component").get_to(record.component);
  state.at("index_hash").get_to(record.index_hash);
  state.at("recipe").get_to(record.recipe);
  state.at("frozen_path").get_to(record.frozen_path);
  state.at("frozen_fingerprints").get_to(record.frozen_fingerprints);
  state.at("tokenizer_dialect").get_to(record.tokenizer_dialect);
  state.at("loss_scale").get_to(record.loss_scale);
  for (const auto& [path, digest] : state.at("files").items()) {
    parsed.digests[path] = {digest.at("size_bytes").get<int64_t>(), digest.at("sha256").get<std::string>()};
  }
  return parsed;
}

// The step that a folder's name says; -1 when it is no checkpoint's name.
int64_t step_of_name(std::string_view name) {
  if (!name.starts_with(kNamePrefix) || name.size() < kNamePrefix.size() + 8 || name.size() > kNamePrefix.size() + 18) {
    return -1;
  }
  int64_t step = 0;
  for (const char digit : name.substr(kNamePrefix.size())) {
    if (digit < '0' || digit > '9') {
      return -1;
    }
    step = step * 10 + (digit - '0');
  }
  return step;
}

// Those of a folder's entries that are checkpoints, by step.
Result<std::vector<CheckpointPlace>> complete_checkpoints(const std::vector<FileInfo>& entries,
                                                          const std::function<Result<bool>(const std::string& path)>& exists) {
  std::vector<CheckpointPlace> places;
  for (const auto& entry : entries) {
    const int64_t step = entry.is_folder ? step_of_name(file_name(entry.path)) : -1;
    if (step < 0) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool complete, exists(join_path(entry.path, kCheckpointRecordFile)));
    if (complete) {
      places.push_back({entry.path, step});
    }
  }
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return places;
}

}  // namespace

std::string print_checkpoint_record(const CheckpointRecord& record, const FileDigests& digests) {
  auto state = to_json(record, digests);
  state[kDigestKey] = sha256_hex(print(state));
  return print(state);
}

Result<RecordedCheckpoint> parse_checkpoint_record(std::string_view text) {
  auto state = parse_json(text);
  if (!state.is_object() || print(state) != text || !state.contains(kDigestKey)) {
    return Status::corrupt_data("state.json is damaged: it is not the JSON that was written; bytes:", text.size());
  }
  const auto digest = state[kDigestKey];
  state.erase(kDigestKey);
  if (digest != sha256_hex(print(state))) {
    return Status::corrupt_data("state.json is damaged: its SHA-256 is not the recorded one, which is:", digest.dump());
  }
  if (const auto version = state.value("format_version", int64_t{0}); version != kFormatVersion) {
    return Status::failed_precondition("this program reads checkpoints of another format version (reads, found):", kFormatVersion, version);
  }
  try {
    return from_json(state);
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("state.json lacks a field:", error.what());
  }
}

Result<RecordedCheckpoint> read_checkpoint_record(FileSystem& files, const std::string& folder) {
  auto text = read_file(files, join_path(folder, kCheckpointRecordFile));
  if (!text.is_ok()) {
    return text.status().with_context("there is no checkpoint in " + folder);
  }
  auto parsed = parse_checkpoint_record(*text);
  return parsed.is_ok() ? std::move(parsed) : parsed.status().with_context("cannot use the checkpoint " + folder);
}

Result<RecordedCheckpoint> read_checkpoint_record(const Location& folder) {
  const auto text = folder.store->read_small((folder / kCheckpointRecordFile).path);
  if (!text.is_ok()) {
    return text.status().with_context("there is no checkpoint in " + folder.uri());
  }
  auto parsed = parse_checkpoint_record(*text);
  return parsed.is_ok() ? std::move(parsed) : parsed.status().with_context("cannot use the checkpoint " + folder.uri());
}

Result<FileDigest> digest_file(FileSystem& files, const std::string& path, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(path));
  std::vector<std::byte> buffer(size_t{4} << 20);
  Sha256 hash;
  int64_t offset = 0;
  while (!stop.stop_requested()) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(offset, buffer));
    hash.update(std::span(buffer.data(), num_read));
    offset += static_cast<int64_t>(num_read);
    if (num_read < buffer.size()) {
      return FileDigest{offset, hash.finish_hex()};
    }
  }
  return Status::cancelled("stopped while a file of a checkpoint was read (path):", path);
}

Status verify_checkpoint_file(FileSystem& files, const std::string& folder, const std::string& name, const FileDigest& want,
                              const std::stop_token& stop) {
  const std::string path = join_path(folder, name);
  const auto got = digest_file(files, path, stop);
  if (!got.is_ok()) {
    return got.status().code() == StatusCode::kCancelled
               ? got.status()
               : Status::corrupt_data("a file of the checkpoint cannot be read (path, why):", path, got.status().message());
  }
  if (*got != want) {
    return Status::corrupt_data("a file of the checkpoint is damaged: its size or SHA-256 is not the recorded one (path, want, got):", path,
                                fmt::format("{} bytes {}", want.size_bytes, want.sha256),
                                fmt::format("{} bytes {}", got->size_bytes, got->sha256));
  }
  return Status::ok();
}

Result<CheckpointRecord> read_checkpoint(FileSystem& files, const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(RecordedCheckpoint checkpoint, read_checkpoint_record(files, folder));
  for (const auto& [name, want] : checkpoint.digests) {
    DARKROOM_RETURN_IF_ERROR(verify_checkpoint_file(files, folder, name, want));
  }
  return std::move(checkpoint.record);
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kNamePrefix, step); }

Result<std::vector<CheckpointPlace>> list_checkpoints(FileSystem& files, const std::string& checkpoints_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(checkpoints_folder));
  if (!exists) {
    return std::vector<CheckpointPlace>();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, files.list(checkpoints_folder));
  return complete_checkpoints(entries, [&](const std::string& path) { return files.exists(path); });
}

Result<std::vector<CheckpointPlace>> list_checkpoints(const Location& checkpoints_folder) {
  const auto entries = checkpoints_folder.store->list(checkpoints_folder.path);
  if (entries.status().code() == StatusCode::kNotFound) {
    return std::vector<CheckpointPlace>();
  }
  DARKROOM_RETURN_IF_ERROR(entries.status());
  return complete_checkpoints(*entries,
                              [&](const std::string& path) { return Location{.store = checkpoints_folder.store, .path = path}.exists(); });
}

}  // namespace darkroom
