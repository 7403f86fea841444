#include "darkroom/ingest/pinned_job.h"

#include <optional>
#include <utility>

#include "darkroom/ingest/job_inputs.h"
#include "darkroom/ingest/job_plan.h"

namespace darkroom {
namespace {

PartContainer container_of(const nlohmann::json& fields) {
  const nlohmann::json dialect = fields.value("output_dialect", nlohmann::json());
  return dialect == "img2dataset" ? PartContainer::kTar : dialect == "mosaicml" ? PartContainer::kMds : PartContainer::kParquet;
}

/// Nothing where JobIdentity would not have written it.
std::optional<JobIdentity> read_identity(const nlohmann::json& json) {
  const auto verb = json.find("verb"), fields = json.find("fields"), rows = json.find("rows_per_file");
  if (verb == json.end() || !verb->is_string() || fields == json.end() || !fields->is_object() || rows == json.end() ||
      !rows->is_number_integer() || *rows <= 0) {
    return std::nullopt;
  }
  JobIdentity identity{.verb = *verb, .fields = *fields, .rows_per_file = *rows, .container = container_of(*fields)};
  return canonical_text(identity.to_json()) == canonical_text(json) ? std::optional(std::move(identity)) : std::nullopt;
}

}  // namespace

WorkItem PinnedJob::item(int64_t number) const {
  WorkItem work = find_item(inputs, identity.rows_per_file, number);
  work.container = identity.container;
  return work;
}

Result<PinnedJob> read_pinned_job(const Location& output) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json json, read_job_file(output));
  std::optional<JobIdentity> identity = read_identity(json);
  if (!identity) {
    return Status::failed_precondition(
        fmt::format("the job is of another version of the format than {} (its version, output):", kJobFormatVersion),
        json.value("version", nlohmann::json()).dump(), output.uri());
  }
  DARKROOM_ASSIGN_OR_RETURN(std::optional<PinnedList> pins, read_pins(output, *identity));
  if (!pins) {
    return Status::not_found("the job's list of inputs is gone; run the job's command, which makes it anew:", output.uri());
  }
  PinnedJob job{.identity = *std::move(identity), .inputs = std::move(pins->inputs)};
  number_inputs(job.inputs, job.identity.rows_per_file);
  return job;
}

}  // namespace darkroom
