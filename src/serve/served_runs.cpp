#include "darkroom/serve/served_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "darkroom/files/paths.h"
#include "free_name.h"

namespace darkroom {
namespace {

Result<std::string> find_run_folder(const std::string& folder) {
  if (folder.find("://") != std::string::npos) {
    return Status::invalid_argument("--run takes folders of this machine; copy the run, or serve where it trains, got:", folder);
  }
  std::error_code failure;
  const std::filesystem::path path = std::filesystem::canonical(folder, failure);
  if (failure || !std::filesystem::is_directory(path, failure)) {
    return Status::not_found("there is no such run folder; --run needs one that train has made:", folder);
  }
  for (const char* name : {"recipe.toml", "run.json", "metrics.jsonl"}) {
    if (std::filesystem::is_regular_file(path / name, failure)) {
      return path.string();
    }
  }
  return Status::not_found("this is no run folder: it has neither recipe.toml nor run.json nor metrics.jsonl:", folder);
}

}  // namespace

std::string free_name(const std::string& name, const std::vector<std::string>& taken) {
  std::string free = name;
  for (int number = 2; std::find(taken.begin(), taken.end(), free) != taken.end(); ++number) {
    free = fmt::format("{}-{}", name, number);
  }
  return free;
}

Result<std::vector<ServedRun>> name_served_runs(const std::vector<std::string>& folders) {
  std::vector<ServedRun> runs;
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string path, find_run_folder(folder));
    if (std::any_of(runs.begin(), runs.end(), [&](const ServedRun& run) { return run.path == path; })) {
      return Status::invalid_argument("--run names one folder twice:", folder);
    }
    names.push_back(free_name(file_name(path), names));
    runs.push_back({.name = names.back(), .path = path});
  }
  return runs;
}

}  // namespace darkroom
