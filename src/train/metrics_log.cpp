#include "darkroom/train/metrics_log.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "spool_records.h"

namespace darkroom {
namespace {

// Whether a line is whole and tells of one of the first `steps_done` steps.
bool belongs(std::string_view line, int64_t steps_done) {
  const auto parsed = parse_json(line);
  if (!parsed.is_object()) {
    return false;
  }
  const auto step = parsed.find("step");
  return step != parsed.end() && step->is_number_integer() && step->get<int64_t>() <= steps_done;
}

std::string lines_up_to(std::string_view text, int64_t steps_done) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {
      break;
    }
    const auto line = text.substr(begin, end - begin);
    if (belongs(line, steps_done)) {
      kept.append(line).append("\n");
    }
    begin = end + 1;
  }
  return kept;
}

// Lines of programs before 0.2 have none.
double last_seconds(std::string_view whole_lines) {
  while (!whole_lines.empty()) {
    whole_lines.remove_suffix(1);
    const size_t begin = whole_lines.rfind('\n') + 1;  // 0 where there is no line end.
    const auto line = parse_json(whole_lines.substr(begin));
    if (const auto seconds = line.find("seconds"); seconds != line.end() && seconds->is_number()) {
      return seconds->get<double>();
    }
    whole_lines = whole_lines.substr(0, begin);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<MetricsLog>> MetricsLog::open(FileSystem& files, const std::string& path, int64_t steps_done, LostRecords* lost) {
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  double seconds_before = 0;
  if (exists) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
    const std::string kept = lines_up_to(text, steps_done);
    if (kept != text) {
      DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, path, kept));
    }
    seconds_before = last_seconds(kept);
  }
  DARKROOM_ASSIGN_OR_RETURN(auto file, files.open_append(path));
  DARKROOM_ASSIGN_OR_RETURN(file, allow_lost_records(files, std::move(file), lost));
  return std::unique_ptr<MetricsLog>(new MetricsLog(std::move(file), seconds_before));
}

Status MetricsLog::append(const nlohmann::ordered_json& line) {
  DARKROOM_CHECK(line.contains("step") && line["step"].is_number_integer(), "a line of metrics has no step");
  return file_->write_text(line.dump() + "\n");
}

std::pair<double, double> first_and_last_loss(std::string_view metrics) {
  constexpr size_t kLines = 50;
  std::vector<double> losses;
  std::istringstream lines{std::string(metrics)};
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = parse_json(line);
    if (const auto loss = parsed.find("loss"); loss != parsed.end() && loss->is_number()) {
      losses.push_back(loss->get<double>());
    }
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(kLines, (losses.size() + 1) / 2));
  if (count == 0) {
    return {0, 0};
  }
  return {std::accumulate(losses.begin(), losses.begin() + count, 0.0) / static_cast<double>(count),
          std::accumulate(losses.end() - count, losses.end(), 0.0) / static_cast<double>(count)};
}

}  // namespace darkroom
