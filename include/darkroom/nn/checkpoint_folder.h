#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

// A checkpoint as it lies on disk (docs/formats/checkpoint.md): component folders like a model folder's, the optimizer's
// state, and state.json, the record of all of it. Training writes and restores it (train/checkpoint.h).

inline constexpr std::string_view kCheckpointRecordFile = "state.json";
inline constexpr const char* kEmaFolder = "ema";

/// state.json of a checkpoint (docs/formats/checkpoint.md), besides the files' sizes and hashes.
struct CheckpointRecord {
  int64_t step = 0;                                             ///< Steps done.
  int64_t samples = 0;                                          ///< Samples seen.
  int64_t batch_number = 0;                                     ///< The next global batch of the canonical order.
  int64_t optimizer_updates = 0;                                ///< For AdamW's bias correction.
  std::string component;                                        ///< What is trained, and its folder: "unet" or "vae".
  std::string index_hash;                                       ///< Of the dataset index.
  std::string recipe;                                           ///< The resolved recipe, TOML.
  std::string frozen_path;                                      ///< Model folder of the frozen parts.
  std::map<std::string, std::string> frozen_fingerprints = {};  ///< "vae", "text_encoder" -> fingerprint; empty for the autoencoder.
  std::string tokenizer_dialect = {};                           ///< "hf" or "open_clip"; empty for the autoencoder.
  double loss_scale = 1.0;                                      ///< 1 in float32.
};

/// Size and SHA-256 of one file of a checkpoint.
struct FileDigest {
  int64_t size_bytes = 0;
  std::string sha256;
  bool operator==(const FileDigest&) const = default;
};

/// Files of a checkpoint by their paths within it, state.json aside.
using FileDigests = std::map<std::string, FileDigest>;

/// What state.json says.
struct RecordedCheckpoint {
  CheckpointRecord record;
  FileDigests digests;
};

/// The text of state.json. It carries a SHA-256 of itself, so a changed number is noticed, too.
std::string print_checkpoint_record(const CheckpointRecord& record, const FileDigests& digests);
/// What it says is what a run can have written: numbers in their ranges, names within the folder, all files that are read.
/// Errors: kCorruptData, kFailedPrecondition (a later format version).
Result<RecordedCheckpoint> parse_checkpoint_record(std::string_view text);

/// Moments lie in `num_files` files.
std::string moments_file(int64_t index, int64_t num_files);
/// How many of a record's files hold moments.
int64_t count_moments_files(const FileDigests& digests);

/// Reads a checkpoint's state.json; its other files are not looked at. Errors: kNotFound (no such folder, or no state.json
/// in it), kCorruptData, kFailedPrecondition (a later format version); each names the folder.
Result<RecordedCheckpoint> read_checkpoint_record(FileSystem& files, const std::string& folder);

/// The same of a checkpoint on any store.
Result<RecordedCheckpoint> read_checkpoint_record(const Location& folder);

/// Errors: those of the file system, kCancelled.
Result<FileDigest> digest_file(FileSystem& files, const std::string& path, const std::stop_token& stop = {});

/// Compares the file `name` of a checkpoint with its record, and reads no byte of one of another size. Errors: kCorruptData naming the file
/// (it is missing or no regular file, or its size or SHA-256 is another one); of one that cannot be read just now those of the file system;
/// kCancelled.
Status verify_checkpoint_file(FileSystem& files, const std::string& folder, const std::string& name, const FileDigest& want,
                              const std::stop_token& stop = {});

/// Reads state.json and checks size and SHA-256 of every file. Errors: kNotFound (no such folder, or no state.json in it),
/// kCorruptData naming the damaged file, kFailedPrecondition (a later format version), those of the file system.
Result<CheckpointRecord> read_checkpoint(FileSystem& files, const std::string& folder);

/// The folder's name: step-00001000.
std::string checkpoint_name(int64_t step);

struct CheckpointPlace {
  std::string path;
  int64_t step = 0;
  bool operator==(const CheckpointPlace&) const = default;
};

/// The checkpoints in a folder (those that have a state.json; not looked into), by step. Fine when the folder is missing.
Result<std::vector<CheckpointPlace>> list_checkpoints(FileSystem& files, const std::string& checkpoints_folder);
/// The same on any store; their paths are the store's.
Result<std::vector<CheckpointPlace>> list_checkpoints(const Location& checkpoints_folder);

}  // namespace darkroom
