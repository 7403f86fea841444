#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/core/trace_recorder.h"
#include "darkroom/image/transform.h"
#include "darkroom/slices/slice_server.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

struct TransformServiceOptions {
  std::string input;                           ///< URI of the image dataset: the one of the job.
  TransformOptions transform = {};             ///< As the job's, like the four below.
  uint64_t seed = 0;                           ///< Of random crops.
  std::string caption_column = {};             ///< Empty: by its name.
  std::vector<std::string> keep_columns = {};  ///< Columns that go along.
  std::string decoder_program = {};            ///< darkroom-decoder: pictures are decoded locked in; empty: in this process.
  int num_workers = 0;                         ///< Rows are worked on by so many threads; 0: as many as processors.
  SocketAddress address = {};                  ///< Where to listen.
  std::string token = {};                      ///< Which jobs must know; empty: they may have none.
  MetricsRegistry* metrics = nullptr;          ///< Where the stage "transform" counts; may be null. Outlives the service.
  TraceRecorder* trace = nullptr;              ///< Of a span "transform" for each slice; may be null. Outlives the service.
  std::function<void()> on_drained = {};       ///< Called once nobody waits for a slice any more: what is read then is read in vain.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// The part of the process job that wants processors alone, for jobs whose encoders are on other machines (docs/process.md: transformers):
/// reads, decodes, cuts and sends rows of the image dataset to whichever job asks for them, until it is stopped. Loads no model. It holds
/// no state of any job: a lost one costs the slices under way, which jobs ask others for. `listening` is told the address; its failure ends
/// the service. `counts`: what was done, at the end. Errors: those of listing, reading and decoding as run_process'; SliceServer::start's.
/// ok: stopped.
Status serve_transforms(StoreSet& stores, const TransformServiceOptions& options,
                        const std::function<Status(const SocketAddress&)>& listening, std::stop_token stop, SliceServerCounts& counts);

}  // namespace darkroom
