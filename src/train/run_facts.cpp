#include "run_facts.h"

#include <chrono>
#include <ctime>
#include <limits>

#include "darkroom/core/machine.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/version.h"
#include "step_settings.h"

namespace darkroom {
namespace {

constexpr int64_t kFormatVersion = 1;

// "2026-11-22T03:44:10Z".
std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(text, length);
}

nlohmann::ordered_json this_start(const RunFacts& facts, int64_t steps_done) {
  const Recipe& recipe = facts.recipe;
  const MachineFacts machine = read_machine_facts();
  nlohmann::ordered_json start = {{"step", steps_done},
                                  {"started", utc_now()},
                                  {"darkroom", kVersion},
                                  {"device", facts.device},
                                  {"precision", precision_on(recipe, torch::Device(facts.device))},
                                  {"processor", machine.processor},
                                  {"cores", machine.num_cores},
                                  {"memory_bytes", machine.memory_bytes},
                                  {"threads", recipe.runtime.threads},
                                  {"workers", recipe.runtime.workers},
                                  {"ranks", facts.ranks}};
  if (facts.peak.tflops > 0) {
    start["rank_peak_tflops"] = facts.peak.tflops;
    start["rank_peak_is_measured"] = facts.peak.is_measured;
  }
  return start;
}

bool is_step(const nlohmann::ordered_json& number) {
  return number.is_number_integer() && number >= 0 && number <= std::numeric_limits<int64_t>::max();
}

// What an earlier start wrote; null when there was none.
Result<nlohmann::ordered_json> read_earlier(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  if (!exists) {
    return nlohmann::ordered_json();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  auto earlier = parse_json<nlohmann::ordered_json>(text);
  const auto is_number = [&](const char* key) { return earlier.contains(key) && earlier[key].is_number(); };
  if (!earlier.is_object() || !earlier.contains("step") || !is_step(earlier["step"]) || !is_number("seconds") ||
      !earlier.contains("starts") || !earlier["starts"].is_array()) {
    return Status::corrupt_data("the facts of the run are damaged; delete the file, then the run goes on without those of earlier starts:",
                                path);
  }
  return earlier;
}

}  // namespace

Result<std::unique_ptr<RunFactsFile>> RunFactsFile::open(FileSystem& files, const std::string& path, const RunFacts& facts,
                                                         int64_t steps_done, double logged_seconds) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::ordered_json earlier, read_earlier(files, path));
  std::unique_ptr<RunFactsFile> file(new RunFactsFile(files, path));
  file->seconds_before_ = logged_seconds;
  auto starts = nlohmann::ordered_json::array();
  if (!earlier.is_null()) {
    if (earlier["step"] == steps_done) {
      file->seconds_before_ = earlier["seconds"].get<double>();
    }
    for (const auto& start : earlier["starts"]) {
      if (start.is_object() && start.contains("step") && start["step"].is_number_integer() && start["step"].get<int64_t>() < steps_done) {
        starts.push_back(start);
      }
    }
  }
  starts.push_back(this_start(facts, steps_done));
  file->content_ = {
      {"format_version", kFormatVersion}, {"component", facts.component}, {"parameters", facts.parameters},        {"step", steps_done},
      {"seconds", file->seconds_before_}, {"starts", std::move(starts)},  {"recipe", recipe_to_json(facts.recipe)}};
  DARKROOM_RETURN_IF_ERROR(file->write(steps_done, file->seconds_before_));
  return file;
}

Result<int64_t> recorded_checkpoint_step(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto earlier, read_earlier(files, path));
  return earlier.is_null() ? int64_t{0} : earlier["step"].get<int64_t>();
}

Status RunFactsFile::write(int64_t steps_done, double seconds) {
  content_["step"] = steps_done;
  content_["seconds"] = seconds;
  return store();
}

Status RunFactsFile::write_online(const nlohmann::json& balance) {
  content_["starts"].back()["online"] = balance;
  return store();
}

Status RunFactsFile::store() const {
  return write_file_atomic(files_, path_, content_.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace darkroom
