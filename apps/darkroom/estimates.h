#pragma once

#include <functional>
#include <string>

#include "command_line.h"
#include "darkroom/plan/job_estimate.h"

namespace darkroom {

/// The catalogue that is shipped with the program, with the lines of a file of the user's own (empty: none) over it. Errors: as
/// load_catalogue().
Result<Catalogue> load_own_catalogue(const std::string& own);

/// --dry-run and --catalogue: flags of every job.
struct EstimateFlags {
  std::string catalogue = {};  ///< A file with figures of the user's own.
};
void add_estimate_flags(VerbDefinition& verb, bool& dry_run, EstimateFlags& flags);

using MakeOutlook = std::function<Result<JobOutlook>(const StageSummary& summary, const Catalogue& catalogue, int num_cores)>;

/// After a dry run: logs what the rest of the job comes to, and puts it under "estimate" of summary[verb]. Errors: those of the catalogue.
Status show_estimate(const char* verb, const EstimateFlags& flags, const StageSummary& summary, const MakeOutlook& make_outlook,
                     VerbContext& context);

}  // namespace darkroom
