#pragma once

#include "darkroom/encode/process_job.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/job_run.h"

namespace darkroom {

/// Paints the first options.num_visualized committed rows of a latents dataset as one PNG, a row each: the transformed input, each latent
/// channel, a heat map of the caption's states (where they are stored) and the decoded latents (the posterior's mean for moments).
/// Inputs and outputs are joined by key. Errors: those of reading both, of the decoder and of writing the file.
Status write_process_picture(const JobRun& run, const RowEncoder& encoder, const ProcessOptions& options, const Location& picture);

}  // namespace darkroom
