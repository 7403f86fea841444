#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"
#include "darkroom/stores/hub.h"

namespace darkroom {

struct FetchedModel {
  std::string commit;
  int64_t num_files = 0;          ///< That are whole and have the hub's hash.
  int64_t num_bytes = 0;          ///< Of these files, and of the one that is being read.
  int64_t num_resumed_bytes = 0;  ///< Of num_bytes, what an earlier call had stored.
  int64_t num_wanted_files = 0;   ///< Of the whole model.
  int64_t num_wanted_bytes = 0;
};

struct ModelFetchOptions {
  int64_t chunk_bytes = 32 << 20;  ///< Read and stored at once.
  /// Called before each file is read, in the caller's thread.
  std::function<void(const std::string& path, int64_t size_bytes)> on_file = {};
  /// Called when it is known what to fetch and after each chunk, in the caller's thread: what the last call said is how far a call came
  /// that fails or is stopped.
  std::function<void(const FetchedModel& so_far)> on_progress = {};
};

/// Copies a model folder of the hub in the diffusers layout to `output`, a new folder of `files`: model_index.json and, of each part that
/// it names, the JSON and text files and the safetensors weights, without variants (`.fp16`) where there are weights without. Of a
/// repository without model_index.json but with config.json at its top, a single network such as CLIP's, the same files of its top.
///
/// The files lie in a folder _tmp.NAME.fetch beside `output` until all are there and each has the hash that the hub's tree names: SHA-256
/// of a large file, git's SHA-1 of another one. Then the folder takes its name in one step. After a failure, a stop or a death it stays,
/// and another call goes on where this one ended, byte by byte, also with another revision (files whose bytes are others are read anew).
///
/// `hub_store` is a make_hub_store of `hub`. Errors: kInvalidArgument (`model` names no whole model repository); kAlreadyExists (`output`);
/// kFailedPrecondition (neither a diffusers model folder nor a network; a part has pickle weights only: nothing is read then; another
/// process fetches into the same place); kCorruptData (bytes of another hash, also when read anew); kCancelled; those of HubClient,
/// HubStore and the file system.
Result<FetchedModel> fetch_model(HubClient& hub, Store& hub_store, const HubUri& model, FileSystem& files, const std::string& output,
                                 const ModelFetchOptions& options, std::stop_token stop);

/// The same, of the hub and with the token that the environment names (hub_from_environment), to the machine's own files. Errors: also
/// kInvalidArgument: `uri` is no address of the hub.
Result<FetchedModel> fetch_model(const std::string& uri, const std::string& output, const ModelFetchOptions& options,
                                 MetricsRegistry& metrics, std::stop_token stop);

}  // namespace darkroom
