#include "planted_troubles.h"

#include <fmt/format.h>

#include <set>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr const char* kTimeout = "timeout";

int64_t count_of(const RowsByError& rows, const std::string& code) {
  const auto found = rows.find(code);
  return found == rows.end() ? 0 : found->second;
}

}  // namespace

Result<PlantedTroubles> PlantedTroubles::parse(std::string_view expected_json) {
  try {
    const auto json = nlohmann::json::parse(expected_json);
    PlantedTroubles planted;
    planted.rows = json.at("rows").get<int64_t>();
    planted.good_rows = json.at("good_rows").get<int64_t>();
    planted.rows_by_error = json.at("rows_by_error").get<RowsByError>();
    planted.passing = json.at("retries").at("temporary").get<int64_t>();
    planted.lasting_per_retry = json.at("retries").at("lasting_per_retry").get<int64_t>();
    return planted;
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the corpus's expected.json is not as docs/corpus.md says:", error.what());
  }
}

nlohmann::json PlantedTroubles::to_json(int64_t num_retries) const {
  return {{"rows_in", rows}, {"rows_out", good_rows}, {"rows_by_error", rows_by_error}, {"retries", retries(num_retries)}};
}

Status check_download(const PlantedTroubles& planted, const StageSummary& download, int64_t num_retries) {
  std::string differences;
  bool only_slow = true;  // Rows that ran out of time lack under every other count, and nothing else is wrong.
  const auto compare = [&](const std::string& name, int64_t want, int64_t got) {
    if (want != got) {
      differences += fmt::format("{}{} {} {}", differences.empty() ? "" : ", ", name, want, got);
      only_slow = only_slow && name != "rows_in" && (name == kTimeout ? got > want : got < want);
    }
  };
  compare("rows_in", planted.rows, download.rows_in);
  compare("rows_out", planted.good_rows, download.rows_out);
  compare("retries", planted.retries(num_retries), download.retries);
  std::set<std::string> codes;
  for (const RowsByError* rows : {&planted.rows_by_error, &download.rows_by_error}) {
    for (const auto& [code, rows_of_code] : *rows) {
      codes.insert(code);
    }
  }
  for (const std::string& code : codes) {
    compare(code, count_of(planted.rows_by_error, code), count_of(download.rows_by_error, code));
  }
  if (differences.empty()) {
    return Status::ok();
  }
  if (only_slow && count_of(download.rows_by_error, kTimeout) > count_of(planted.rows_by_error, kTimeout)) {
    return Status::unavailable("this machine was too slow or too busy: good rows ran out of time (what, planted, reported):", differences);
  }
  return Status::internal("the download does not report the troubles that were planted (what, planted, reported):", differences);
}

Status download_in_time(std::span<const std::chrono::seconds> deadlines, const std::function<Status(std::chrono::seconds)>& download) {
  Status verdict;
  for (const std::chrono::seconds deadline : deadlines) {
    verdict = download(deadline);
    if (verdict.code() != StatusCode::kUnavailable) {
      return verdict;
    }
    const bool is_last = deadline == deadlines.back();
    log_warning("{}{}", verdict.message(), is_last ? "" : "; downloading again with a later deadline");
  }
  return verdict;
}

}  // namespace darkroom
