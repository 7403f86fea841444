#include "planted_troubles.h"

#include <fmt/format.h>

#include <set>

namespace darkroom {

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
  const auto compare = [&differences](const std::string& name, int64_t want, int64_t got) {
    if (want != got) {
      differences += fmt::format("{}{} {} {}", differences.empty() ? "" : ", ", name, want, got);
    }
  };
  const auto count = [](const RowsByError& rows, const std::string& code) {
    const auto found = rows.find(code);
    return found == rows.end() ? int64_t{0} : found->second;
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
    compare(code, count(planted.rows_by_error, code), count(download.rows_by_error, code));
  }
  return differences.empty()
             ? Status::ok()
             : Status::internal("the download does not report the troubles that were planted (what, planted, reported):", differences);
}

}  // namespace darkroom
