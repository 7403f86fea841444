#include "darkroom/nn/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/component_config.h"

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

// A whole number from 0 to `most`. Throws as nlohmann's conversions do.
Result<int64_t> read_count(const nlohmann::json& state, const char* name, int64_t most) {
  const int64_t value = whole_number(state.at(name));
  if (value < 0 || value > most) {
    return Status::corrupt_data(fmt::format("state.json's {} must be 0 to {}, got:", name, most), value);
  }
  return value;
}

// Throws as nlohmann's conversions do.
Result<CheckpointRecord> read_record(const nlohmann::json& state) {
  constexpr int64_t kMostSteps = int64_t{1} << 38;  // Times the largest batch of a recipe, 2^24, an int64_t holds them.
  CheckpointRecord record;
  DARKROOM_ASSIGN_OR_RETURN(record.step, read_count(state, "step", kMostSteps));
  DARKROOM_ASSIGN_OR_RETURN(record.samples, read_count(state, "samples", std::numeric_limits<int64_t>::max()));
  DARKROOM_ASSIGN_OR_RETURN(record.batch_number, read_count(state, "batch_number", kMostSteps));
  DARKROOM_ASSIGN_OR_RETURN(record.optimizer_updates, read_count(state, "optimizer_updates", record.step));
  if (record.batch_number != record.step) {
    return Status::corrupt_data("state.json's batch_number must be its step, got (step, batch_number):", record.step, record.batch_number);
  }
  state.at("component").get_to(record.component);
  state.at("index_hash").get_to(record.index_hash);
  state.at("recipe").get_to(record.recipe);
  state.at("frozen_path").get_to(record.frozen_path);
  state.at("frozen_fingerprints").get_to(record.frozen_fingerprints);
  state.at("tokenizer_dialect").get_to(record.tokenizer_dialect);
  state.at("loss_scale").get_to(record.loss_scale);
  return record;
}

// Throws as nlohmann's conversions do.
Result<RecordedCheckpoint> from_json(const nlohmann::json& state) {
  constexpr int64_t kMostBytes = int64_t{1} << 53;  // Of all files, so that sizes can be added up.
  RecordedCheckpoint parsed;
  DARKROOM_ASSIGN_OR_RETURN(parsed.record, read_record(state));
  int64_t num_left = kMostBytes;
  for (const auto& [path, digest] : state.at("files").items()) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t size_bytes, read_count(digest, "size_bytes", num_left));
    num_left -= size_bytes;
    if (!is_name_within(path) || path.ends_with('/')) {
      return Status::corrupt_data("state.json names a file that is none within its folder:", path);
    }
    parsed.digests[path] = {size_bytes, digest.at("sha256").get<std::string>()};
  }
  return parsed;
}

// Nothing is read that was not compared with its record.
Status check_has_all_files(const RecordedCheckpoint& checkpoint) {
  std::vector<std::string> names;
  for (const std::string& component : {checkpoint.record.component, std::string(kEmaFolder)}) {
    for (const char* name : {"config.json", kComponentWeightsFile}) {
      names.push_back(join_path(component, name));
    }
  }
  const int64_t num_moments_files = std::max<int64_t>(1, count_moments_files(checkpoint.digests));
  for (int64_t i = 0; i < num_moments_files; ++i) {
    names.push_back(moments_file(i, num_moments_files));
  }
  for (const std::string& name : names) {
    if (!checkpoint.digests.contains(name)) {
      return Status::corrupt_data("state.json lacks a file of the checkpoint:", name);
    }
  }
  return {};
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
  try {
    if (const int64_t version = whole_number(state.at("format_version")); version != kFormatVersion) {
      return Status::failed_precondition("this program reads checkpoints of another format version (reads, found):", kFormatVersion,
                                         version);
    }
    DARKROOM_ASSIGN_OR_RETURN(RecordedCheckpoint checkpoint, from_json(state));
    DARKROOM_RETURN_IF_ERROR(check_has_all_files(checkpoint));
    return checkpoint;
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("state.json lacks a field, or it is of another kind:", error.what());
  }
}

std::string moments_file(int64_t index, int64_t num_files) { return fmt::format("optimizer-{:05}-of-{:05}.safetensors", index, num_files); }

int64_t count_moments_files(const FileDigests& digests) {
  return std::ranges::count_if(digests, [](const auto& file) { return file.first.starts_with("optimizer-"); });
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

namespace {

// Ends behind `most_bytes`: a file may grow.
Result<FileDigest> digest_bytes(const InputFile& file, int64_t most_bytes, const std::stop_token& stop) {
  std::vector<std::byte> buffer(size_t{4} << 20);
  Sha256 hash;
  int64_t offset = 0;
  while (!stop.stop_requested()) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, buffer));
    hash.update(std::span(buffer.data(), num_read));
    offset += static_cast<int64_t>(num_read);
    if (num_read < buffer.size() || offset > most_bytes) {
      return FileDigest{offset, hash.finish_hex()};
    }
  }
  return Status::cancelled("stopped while a file of a checkpoint was read (path):", file.path());
}

// A pipe would be waited for, and a device be read without an end.
Result<FileDigest> digest_regular_file(FileSystem& files, const std::string& path, int64_t size_bytes, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const WriteTarget target, files.find_write_target(path));
  if (target.is_stream) {
    return Status::corrupt_data("a file of the checkpoint is no regular file (path):", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(path));
  return file->size_bytes() == size_bytes ? digest_bytes(*file, size_bytes, stop) : FileDigest{file->size_bytes(), "not read"};
}

}  // namespace

Result<FileDigest> digest_file(FileSystem& files, const std::string& path, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(path));
  return digest_bytes(*file, std::numeric_limits<int64_t>::max(), stop);
}

Status verify_checkpoint_file(FileSystem& files, const std::string& folder, const std::string& name, const FileDigest& want,
                              const std::stop_token& stop) {
  const std::string path = join_path(folder, name);
  const auto got = digest_regular_file(files, path, want.size_bytes, stop);
  if (got.status().code() == StatusCode::kNotFound) {
    return Status::corrupt_data("a file of the checkpoint is missing:", path);
  }
  DARKROOM_RETURN_IF_ERROR(got.status());
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
