#pragma once

#include <cstdint>
#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// What --clean did to a job's folder.
struct CleanReport {
  SweepReport swept = {};
  int64_t num_claims = 0;             ///< Of dead or lost processes, removed.
  int64_t num_live_claims = 0;        ///< Items that other processes work on, or may work on still.
  int64_t num_cut_parts = 0;          ///< Parts that --limit cut and that longer ones have replaced, removed.
  int64_t num_moved_parts = 0;        ///< Generations that newer ones have replaced, moved to _superseded/.
  bool spares_young_uploads = false;  ///< A store of objects does not tell whose an upload is.

  std::string to_text() const;
};

/// Clears up what dead writers left in the folder of a job (docs/formats/job.md): claims, temporaries, uploads, replaced cut parts. Where
/// the store cannot tell the dead from the living, only what is older than ten minutes counts as left behind, and while another process
/// works there, or has perhaps lost its claim within the last ten minutes, what is older than a week. Committed parts stay. Fine when the
/// folder does not exist. Errors: the store's.
Result<CleanReport> clean_job(const Location& output, Clock& clock);

}  // namespace darkroom
