#include "run_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kChunkBytes = size_t{1} << 18;
constexpr size_t kMaxLineBytes = size_t{1} << 20;

RunMetrics no_metrics() {
  RunMetrics metrics;
  for (const char* field : {"step", "samples", "seconds", "loss", "validation_loss", "grad_norm", "lr", "images_per_second", "tflops",
                            "mfu", "peak_memory_bytes"}) {
    metrics.columns[field];
  }
  metrics.phase_ms = {{"data", 0}, {"forward", 0}, {"backward", 0}, {"optimizer", 0}};
  return metrics;
}

// Whether it is a part of the step that its line tells of (docs/formats/run_folder.md).
bool adds_up_to_step(const std::string& phase, const Json& phases) {
  return !phases.contains("device_idle") || (phase != "data" && phase != "device_wait");
}

void add_phases(const Json& phases, RunMetrics& metrics) {
  metrics.num_timed_lines += 1;
  for (const auto& [name, value] : phases.items()) {
    if (!adds_up_to_step(name, phases)) {
      continue;
    }
    auto& sums = metrics.phase_ms;
    auto sum = std::find_if(sums.begin(), sums.end(), [&phase = name](const auto& one) { return one.first == phase; });
    if (sum == sums.end() && sums.size() == RunMetrics::kMaxPhases) {
      continue;
    }
    if (sum == sums.end()) {
      sum = sums.emplace(name == "device_idle" ? sums.begin() : sums.end(), name, 0);
    }
    sum->second += value.is_number() ? value.get<double>() : 0;
  }
}

// False where it is no object with a step.
bool add_line(std::string_view text, RunMetrics& metrics) {
  Json line = parse_json<Json>(text);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number()) {
    return false;
  }
  for (auto& [field, values] : metrics.columns) {
    const auto value = line.find(field);
    const bool is_there = value != line.end() && value->is_number();
    values.push_back(is_there ? value->get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  if (const auto phases = line.find("ms"); phases != line.end() && phases->is_object()) {
    add_phases(*phases, metrics);
  }
  metrics.num_lines += 1;
  metrics.last = std::move(line);
  return true;
}

}  // namespace

const std::vector<double>& RunMetrics::column(std::string_view field) const {
  const auto found = columns.find(field);
  DARKROOM_CHECK(found != columns.end(), "no column of the metrics:", field);
  return found->second;
}

std::vector<double> RunMetrics::values_of(std::string_view field) const {
  std::vector<double> values;
  std::copy_if(column(field).begin(), column(field).end(), std::back_inserter(values), [](double value) { return !std::isnan(value); });
  return values;
}

Result<RunMetrics> read_run_metrics(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(path));
  RunMetrics metrics = no_metrics();
  std::string pending, chunk(kChunkBytes, '\0');  // Pending: the beginning of a line, cut where it is too long already.
  for (int64_t offset = 0;;) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(offset, std::as_writable_bytes(std::span(chunk))));
    if (num_read == 0) {
      return metrics;
    }
    offset += static_cast<int64_t>(num_read);
    std::string_view rest = std::string_view(chunk).substr(0, num_read);
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      pending.append(rest.substr(0, end));
      if (pending.size() > kMaxLineBytes) {
        return Status::corrupt_data("metrics hold a line of more than 1 MiB (path, line):", path, metrics.num_lines + 1);
      }
      if (!add_line(pending, metrics)) {
        return Status::corrupt_data("metrics hold a line that is no object with a step (path, line):", path, metrics.num_lines + 1);
      }
      pending.clear();
    }
    pending.append(rest.substr(0, kMaxLineBytes + 1 - pending.size()));
  }
}

}  // namespace darkroom
