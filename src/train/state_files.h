#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"

namespace darkroom {

// The files of a checkpoint that hold tensors: unet/ or vae/, ema/, and the moments. Each is a header, then float32 values in the
// canonical order of the parameters, so that every rank knows where its own lie in it.

/// Values of one of the flat buffers, as they lie in a file.
struct StateSection {
  FlatRange range;    ///< Of the canonical order.
  torch::Tensor own;  ///< This rank's slice of the buffer; of several ranks in canonical order (optim's canonical_slices).
};

struct StateFile {
  std::string name;               ///< Within the checkpoint.
  std::vector<TensorSpec> specs;  ///< In the order of the file.
  SafetensorsMetadata metadata;
  std::vector<StateSection> sections;  ///< One after the other behind the header.
};

/// This rank's slices as they are now.
StateValues values_at_hand(const TrainingState& state);

/// Those of a checkpoint that trains `component`: the same at every rank but for the sections' own values.
std::vector<StateFile> state_files(const TrainingState& state, const std::string& component);

/// Moments are cut into files; ranges are nearly equal, none empty, the same for any number of ranks.
int64_t num_moments_files(const TrainingState& state);
FlatRange moments_range(const TrainingState& state, int64_t index, int64_t num_files);
inline constexpr const char* kFirstMoment = "first_moment";
inline constexpr const char* kSecondMoment = "second_moment";

/// Rank 0's part: writes them into `folder`, all ranks together. Where every rank sees the folder each writes its own ranges, and digests
/// come back of all files (the ranks share that work, too); else they send their ranges here, a piece at a time, and there are no digests.
/// A failure at a rank is one at all. Errors: those of ranks and file system.
Result<FileDigests> write_state_files(FileSystem& files, const std::string& folder, const std::string& component,
                                      const TrainingState& state);
/// The part of the others. Errors: the same, and what rank 0 told instead.
Status write_state_share(const TrainingState& state);
/// Rank 0 cannot begin: ends write_state_share() of the others with this failure.
void tell_no_state_files(Communicator& ranks, const Status& failure);

}  // namespace darkroom
