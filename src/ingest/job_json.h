#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/ingest/job_record.h"

namespace darkroom {

inline constexpr const char* kJobFile = "_job.json";
inline constexpr const char* kSummaryFile = "_summary.json";
inline constexpr int kJobFormatVersion = 1;

/// Reads OUT/_job.json and checks its outer form. Errors: kNotFound, kCorruptData saying that the file may be deleted.
Result<nlohmann::json> read_job_json(FileSystem& files, const std::string& output);

/// Its input list. REQUIRES: a value of read_job_json.
std::vector<JobInput> pinned_inputs(const nlohmann::json& job);

}  // namespace darkroom
