#include "estimates.h"

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/file_system.h"
#include "resources.h"

namespace darkroom {

Result<Catalogue> load_own_catalogue(const std::string& own) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string shipped, find_resource(kCatalogueResource));
  return load_catalogue(local_files(), shipped, own);
}

void add_estimate_flags(VerbDefinition& verb, bool& dry_run, EstimateFlags& flags) {
  verb.flag("--dry-run", value::toggle(dry_run),
            "plan only: items, bytes, hours, requests and prices of what is to do, with what they rest on; nothing is written");
  verb.flag("--catalogue", value::path(flags.catalogue, "FILE.toml", kCatalogueResource),
            "rates, sizes and prices of your own, over those that are shipped")
      .only_with("--dry-run");
}

Status show_estimate(const char* verb, const EstimateFlags& flags, const StageSummary& summary, const MakeOutlook& make_outlook,
                     VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const Catalogue catalogue, load_own_catalogue(flags.catalogue));
  DARKROOM_ASSIGN_OR_RETURN(const JobOutlook outlook, make_outlook(summary, catalogue, num_processors()));
  DARKROOM_ASSIGN_OR_RETURN(const JobEstimate estimate, estimate_job(outlook, catalogue));
  context.summary[verb]["estimate"] = estimate.to_json();
  log_info("{}: an estimate\n{}", verb, estimate.to_text());
  return Status::ok();
}

}  // namespace darkroom
