#include "jobs/job_flags.h"

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/ingest/job_cleaning.h"
#include "opening/open_stores.h"

namespace darkroom {
namespace {

ValueDefinition read_by(Status (*read)(std::string_view, Selection&), Selection& selection, std::string shown, std::string default_text) {
  ValueDefinition definition{.kind = "text", .shown = std::move(shown), .default_text = std::move(default_text)};
  definition.take = [read, selection = &selection](const std::vector<std::string>& values) { return read(values.back(), *selection); };
  return definition;
}

}  // namespace

void add_selection_flags(VerbDefinition& verb, Selection& selection, bool& clean) {
  verb.flag("--shard", read_by(read_shard, selection, "I/N", "0/1"),
            "do items I, I+N, I+2N, ... only; I counts from 0. N machines with one I each do the whole job");
  verb.flag("--items", read_by(read_items, selection, "LIST", "all"),
            "do these items only: numbers and ranges, such as 17,18,30-39; -: those whose numbers come on the standard input, a line each; "
            "what became of each is said on the standard output");
  verb.flag("--clean", value::toggle(clean), "remove what dead runs left in the output (claims, unfinished files, uploads), and end");
}

void add_scratch_flags(VerbDefinition& verb, ScratchFlags& scratch) {
  verb.flag("--scratch", value::folder(scratch.folder, "DIR", "the output's disk, else /tmp"),
            "folder of this machine where pictures that wait for slower ones go when --memory is full");
  verb.flag("--scratch-bytes", value::bytes(scratch.num_bytes).also("auto", -1),
            "most that may lie there; auto: 20 GB, or half of what the disk has free; 0: no disk, then fewer are fetched at a time");
}

Result<int> run_clean(const ObservationFlags& flags, std::string_view verb, const std::string& output, bool is_dry_run,
                      VerbContext& context) {
  if (is_dry_run) {
    return Status::invalid_argument("--clean cannot be tried with --dry-run: it is the removing itself");
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto observation, JobObservation::start(flags, {.verb = std::string(verb), .output = ""}));
  const std::unique_ptr<StoreSet> stores = open_job_stores(observation->registry(), context.stop);
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores->resolve(output, Access::kWrite));
  DARKROOM_ASSIGN_OR_RETURN(const CleanReport report, clean_job(place, system_clock()));
  context.summary["clean"] = {{"temporaries", report.swept.num_temporaries}, {"uploads", report.swept.num_uploads},
                              {"completed", report.swept.num_completed},     {"claims", report.num_claims},
                              {"cut_parts", report.num_cut_parts},           {"moved_parts", report.num_moved_parts},
                              {"live_claims", report.num_live_claims}};
  log_info("{}: {}", place.uri(), report.to_text());
  return 0;
}

}  // namespace darkroom
