#pragma once

#include <string>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/job_run.h"
#include "latents_writer.h"

namespace darkroom {

/// Paints the first `num_samples` committed rows of a latents dataset as one PNG, a row each: the transformed input, each latent
/// channel, a heat map of the caption's states (where they are stored) and the decoded latents (the posterior's mean for moments).
/// Inputs and outputs are joined by key. Errors: those of reading both and of writing the file.
Status write_process_picture(const JobRun& run, const RowEncoder& encoder, const LatentsLayout& layout, int num_samples,
                             const std::string& path);

}  // namespace darkroom
