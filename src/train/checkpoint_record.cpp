#include "checkpoint_record.h"

#include <nlohmann/json.hpp>

#include "darkroom/core/sha256.h"

namespace darkroom {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kDigestKey = "state_sha256";

std::string print(const nlohmann::json& state) { return state.dump(1) + "\n"; }

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

ParsedRecord from_json(const nlohmann::json& state) {
  ParsedRecord parsed;
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

}  // namespace

std::string print_record(const CheckpointRecord& record, const FileDigests& digests) {
  auto state = to_json(record, digests);
  state[kDigestKey] = sha256_hex(print(state));
  return print(state);
}

Result<ParsedRecord> parse_record(std::string_view text) {
  auto state = nlohmann::json::parse(text, nullptr, false);
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

}  // namespace darkroom
