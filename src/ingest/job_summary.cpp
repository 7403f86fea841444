#include "darkroom/ingest/job_summary.h"

#include <fmt/format.h>

namespace darkroom {

int64_t StageSummary::rows_failed() const {
  int64_t num_rows = 0;
  for (const auto& [code, count] : rows_by_error) {
    num_rows += count;
  }
  return num_rows;
}

double StageSummary::failed_percent() const {
  return rows_in == 0 ? 0.0 : 100.0 * static_cast<double>(rows_failed()) / static_cast<double>(rows_in);
}

nlohmann::json StageSummary::to_json() const {
  nlohmann::json json = {
      {"rows_in", rows_in},
      {"rows_out", rows_out},
      {"rows_by_error", nlohmann::json::object()},
      {"first_errors", first_errors},
      {"rows_filtered", rows_filtered},
      {"rows_this_run", rows_this_run},
      {"retries", retries},
      {"bytes", bytes},
      {"seconds", seconds},
      {"rows_per_second", seconds > 0 ? static_cast<double>(rows_this_run) / seconds : 0.0},
      {"parts", num_parts},
      {"items", num_items},
      {"items_to_do", num_pending},
      {"invalid_captions", num_invalid_captions},
      {"unported_captions", num_unported_captions},
      {"stages", nlohmann::json::array()},
  };
  for (const auto& [code, count] : rows_by_error) {
    json["rows_by_error"][code] = count;
  }
  for (const HostCounts& host : hosts) {
    json["hosts"].push_back({{"host", host.host}, {"rows", host.num_rows}, {"rows_failed", host.num_failed}, {"seconds", host.seconds}});
  }
  for (const StageSnapshot& stage : stages) {
    json["stages"].push_back({{"name", stage.name},
                              {"workers", stage.num_workers},
                              {"rows", stage.num_rows},
                              {"bytes", stage.num_bytes},
                              {"busy_seconds", stage.busy_seconds},
                              {"cpu_seconds", stage.cpu_seconds}});
  }
  return json;
}

std::string StageSummary::to_text(const std::string& name) const {
  std::string text =
      fmt::format("{}: {} rows in, {} out, {} failed ({:.1f}%), {}{} parts; this run {} rows in {:.1f} s", name, rows_in, rows_out,
                  rows_failed(), failed_percent(), rows_filtered > 0 ? fmt::format("{} left out by the condition, ", rows_filtered) : "",
                  num_parts, rows_this_run, seconds);
  for (const auto& [code, count] : rows_by_error) {
    text += fmt::format("{}{} {}", code == rows_by_error.begin()->first ? "; errors: " : ", ", code, count);
  }
  return text;
}

}  // namespace darkroom
