#pragma once

#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/process/latents_layout.h"

namespace darkroom {

/// Paints the first options.num_visualized committed rows of a latents dataset as one PNG, a row each: the transformed input, each latent
/// channel, a heat map of the caption's states (where they are stored) and the decoded latents (the posterior's mean for moments).
/// Inputs and outputs are joined by key. `layout`: of the dataset. Errors: those of reading both, of the decoder and of writing the
/// file.
Status write_process_picture(const JobRun& run, const RowEncoder& encoder, const ProcessJobOptions& options, const LatentsLayout& layout,
                             const Location& picture);

}  // namespace darkroom
