#include "darkroom/ingest/job_cleaning.h"

#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/claim.h"
#include "darkroom/files/paths.h"
#include "darkroom/ingest/claims.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {
namespace {

// What is younger than this may be of a writer without a claim: of the list of inputs, of a claim that came behind our look, or of one
// that the store did not take.
constexpr std::chrono::minutes kLeastLeftoverAge = kClaimLifetime;

Result<std::vector<FileInfo>> entries_of(const Location& folder) {
  Result<std::vector<FileInfo>> entries = folder.store->list(folder.path);
  const bool is_missing = !entries.is_ok() && entries.status().code() == StatusCode::kNotFound;
  return is_missing ? Result<std::vector<FileInfo>>(std::vector<FileInfo>()) : entries;
}

/// A claim is dead when it can be taken, and its owner is not perhaps at work still.
Status clean_claims(const Location& claims, Clock& clock, CleanReport& report) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, entries_of(claims));
  const std::string owner = make_claim_owner();
  for (const FileInfo& entry : entries) {
    if (file_name(entry.path).starts_with("_tmp")) {
      continue;
    }
    const Location place{.store = claims.store, .path = entry.path};
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<Claim> claim, read_claim(place));
    if (claim && may_be_at_work(*claim, clock.wall())) {
      ++report.num_live_claims;
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const ClaimHolder holder, take_claim(place, owner, clock));
    if (holder == ClaimHolder::kOthers) {
      ++report.num_live_claims;
      continue;
    }
    DARKROOM_RETURN_IF_ERROR(release_claim(place, owner));
    ++report.num_claims;
  }
  return Status::ok();
}

Status clean_replaced_parts(const Location& output, CleanReport& report) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> parts, entries_of(output));
  std::erase_if(parts, [](const FileInfo& entry) { return entry.is_folder || !PartName::parse(file_name(entry.path)); });
  for (const FileInfo& replaced : take_out_superseded_parts(parts)) {
    const PartName name = *PartName::parse(file_name(replaced.path));
    if (const Status retired = retire_part(output, name); !retired.is_ok()) {
      log_warning("an older part stays beside the newer one, and readers leave it: {}", retired.message());
      continue;
    }
    ++(name.considered ? report.num_cut_parts : report.num_moved_parts);
  }
  return Status::ok();
}

}  // namespace

std::string CleanReport::to_text() const {
  std::string text = fmt::format("{} unfinished files, {} uploads, {} claims and {} replaced parts were removed, {} objects completed",
                                 swept.num_temporaries, swept.num_uploads, num_claims, num_cut_parts, swept.num_completed);
  if (num_moved_parts > 0) {
    text += fmt::format(", {} older generations moved to {}/", num_moved_parts, kSupersededFolder);
  }
  if (num_live_claims > 0) {
    text += fmt::format("; other processes work on {} items, so what is younger than a week may have stayed", num_live_claims);
  } else if (spares_young_uploads) {
    text += "; uploads that were begun less than ten minutes ago may be of a living process and have stayed";
  }
  return text;
}

Result<CleanReport> clean_job(const Location& output, Clock& clock) {
  CleanReport report;
  const Location claims = claims_folder(output);
  const auto before = clock.wall();  // Who began to write later has a claim that the look may have missed.
  DARKROOM_RETURN_IF_ERROR(clean_claims(claims, clock, report));
  const std::chrono::seconds age = report.num_live_claims > 0 ? std::chrono::seconds(kLeftoverAgeBesideOthers) : kLeastLeftoverAge;
  report.spares_young_uploads = !output.store->local_path(output.path).has_value();
  for (const Location& folder : {output, claims, output / kSupersededFolder}) {
    DARKROOM_ASSIGN_OR_RETURN(const SweepReport swept, folder.store->sweep(folder.path, age, before));
    report.swept.num_temporaries += swept.num_temporaries;
    report.swept.num_uploads += swept.num_uploads;
    report.swept.num_completed += swept.num_completed;
  }
  DARKROOM_RETURN_IF_ERROR(clean_replaced_parts(output, report));
  return report;
}

}  // namespace darkroom
