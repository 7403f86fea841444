#pragma once

#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/train_step.h"
#include "darkroom/tensor/safetensors.h"
#include "trained_part.h"

namespace darkroom {

/// Records the first steps of a run for checking by another implementation (docs/train.md): step.K.* (K from 0) of the
/// inputs, the loss and the gradient norm, step.K.weights.NAME after each step, and initial.weights.NAME.
/// Weights are parked in one file a step beside the trace until finish(), so that memory holds one tensor at a time.
/// Thread safety: none.
class TraceWriter {
 public:
  /// Parks the initial weights. Errors: kAlreadyExists (there is a file of that name), those of the file system.
  static Result<std::unique_ptr<TraceWriter>> begin(FileSystem& files, const std::string& path, int64_t num_steps,
                                                    const FlatParameters& parameters);
  /// Removes parked files.
  ~TraceWriter();

  /// Records a step that was done; does nothing after the last one to trace.
  /// `part` holds the step's batch.
  Status add(const TrainedPart& part, const Batch& batch, const StepReport& report, const FlatParameters& parameters);
  /// Whether all steps to trace have been added.
  bool is_complete() const { return next_step_ == num_steps_; }
  /// Writes the trace, which is whole under its name or not there. Errors: those of the file system.
  Status finish();

 private:
  TraceWriter(FileSystem& files, std::string path, int64_t num_steps) : files_(files), path_(std::move(path)), num_steps_(num_steps) {}
  Status park_weights(const std::string& prefix, const FlatParameters& parameters);
  Status write_all(OutputFile& output) const;

  FileSystem& files_;
  std::string path_;
  int64_t num_steps_;
  int64_t next_step_ = 0;
  std::vector<NamedTensor> tensors_;       // Small ones: everything but weights.
  std::vector<std::string> parked_files_;  // Of weights.
};

}  // namespace darkroom
