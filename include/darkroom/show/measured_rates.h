#pragma once

#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/plan/measured.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// What a training run or a job of ours measured, by what lies at an address of any store:
/// - a run folder (run.json, metrics.jsonl): the speed of training, and where the time went. Each rank on a GPU
///   counts as one accelerator, ranks on processors together as one, with a note;
/// - the folder of a download job (_summary.json): share of good rows, bytes of a picture; rows a second of its last run (_speed.json);
/// - a file NAME.json that `download` or `process` wrote as --json-summary: rows a second and the share of good rows.
/// Errors: kInvalidArgument (an address of nothing), kNotFound (nothing there that was measured), kFailedPrecondition (a run of the
/// autoencoder, one without run.json or without a step, a folder of `process`), kCorruptData naming the file, those of the stores.
Result<MeasuredRates> measured_rates(StoreSet& stores, const std::string& uri, const std::stop_token& stop = {});

/// The same of a local run folder. Errors: as above.
Result<MeasuredRates> measured_rates_of_run(FileSystem& files, const std::string& run_folder);

}  // namespace darkroom
