#include "darkroom/feed/stored_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr std::string_view kMetricsStem = "metrics-";
constexpr std::string_view kMetricsEnding = ".jsonl";
constexpr std::string_view kEventsStem = "events.out.tfevents.";
constexpr std::string_view kEventsEnding = ".darkroom.";
constexpr size_t kLeastDigits = 10;

std::string step_digits(int64_t step) { return fmt::format("{:010}", step); }

std::optional<int64_t> parse_step(std::string_view digits) {
  if (digits.size() < kLeastDigits || digits.size() > 18) {
    return std::nullopt;
  }
  int64_t step = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') {
      return std::nullopt;
    }
    step = step * 10 + (digit - '0');
  }
  return step;
}

/// The step of a line of metrics; nothing for what is none.
std::optional<int64_t> step_of_line(std::string_view line) {
  const nlohmann::json fields = parse_json(line);
  const auto step = fields.is_object() ? fields.find("step") : fields.end();
  return fields.is_object() && step != fields.end() && step->is_number_integer() ? std::optional(step->get<int64_t>()) : std::nullopt;
}

/// The whole lines before the first one of step `step` or later.
std::string_view lines_before(std::string_view text, int64_t step) {
  size_t end = 0;
  for (size_t next = text.find('\n'); next != std::string_view::npos; next = text.find('\n', end)) {
    if (const auto there = step_of_line(text.substr(end, next - end)); there && *there >= step) {
      break;
    }
    end = next + 1;
  }
  return text.substr(0, end);
}

/// What stands behind a checkpoint that the run went on from is in `bytes`, too: it went on from a copy of a local run folder.
Status cut_back(const std::string& path, std::string_view bytes) {
  const auto first = step_of_line(bytes.substr(0, bytes.find('\n')));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, first ? local_files().exists(path) : Result<bool>(false));
  if (!is_there) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(local_files(), path));
  const std::string_view kept = lines_before(text, *first);
  return kept.size() == text.size() ? Status::ok() : write_file_atomic(local_files(), path, kept);
}

Status append_part(const Location& part, const std::string& path, bool is_first, const std::stop_token& stop) {
  const std::string piece = path + ".part";
  DARKROOM_RETURN_IF_ERROR(copy_file_here(part, piece, {.stop = stop}));
  FileSystem& files = local_files();
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files, piece));
  DARKROOM_RETURN_IF_ERROR(is_first ? cut_back(path, bytes) : Status::ok());
  DARKROOM_ASSIGN_OR_RETURN(const auto whole, files.open_append(path));
  DARKROOM_RETURN_IF_ERROR(whole->write_text(bytes));
  DARKROOM_RETURN_IF_ERROR(whole->close());
  return files.remove_file(piece);
}

}  // namespace

std::string metrics_part_name(int64_t step) { return fmt::format("{}{}{}", kMetricsStem, step_digits(step), kMetricsEnding); }

std::string events_part_name(std::string_view events_file, int64_t step) { return fmt::format("{}.{}", events_file, step_digits(step)); }

std::optional<int64_t> step_of_metrics_part(std::string_view name) {
  if (!name.starts_with(kMetricsStem) || !name.ends_with(kMetricsEnding) || name.size() < kMetricsStem.size() + kMetricsEnding.size()) {
    return std::nullopt;
  }
  name.remove_prefix(kMetricsStem.size());
  name.remove_suffix(kMetricsEnding.size());
  return parse_step(name);
}

std::optional<int64_t> step_of_events_part(std::string_view name) {
  const size_t ending = name.rfind(kEventsEnding);
  return name.starts_with(kEventsStem) && ending != std::string_view::npos ? parse_step(name.substr(ending + kEventsEnding.size()))
                                                                           : std::nullopt;
}

Status fetch_run_files(const Location& run, const std::string& folder, int64_t last_step,
                       const std::function<bool(const std::string& name)>& takes, const std::stop_token& stop) {
  std::vector<std::string> metrics;  // In the order of their steps, because the digits are as many.
  bool has_whole_metrics = false;    // Of a local run folder that was copied there, before the parts.
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, run.store->list(run.path));
  for (const FileInfo& entry : entries) {
    const std::string name = file_name(entry.path);
    if (const auto step = step_of_metrics_part(name); step && *step <= last_step && !entry.is_folder) {
      metrics.push_back(name);
    }
    has_whole_metrics = has_whole_metrics || (name == kMetricsFile && !entry.is_folder);
  }
  const auto is_wanted = [&](const std::string& name) {
    const bool is_other = name.starts_with("checkpoints/") || name.starts_with("_") || name.starts_with(kEventsStem) ||
                          name == kMetricsFile || step_of_metrics_part(name).has_value();
    return !is_other && (!takes || takes(name));
  };
  // The tree is asked for by its pieces, because the checkpoints' names alone may be thousands.
  for (const FileInfo& entry : entries) {
    const std::string name = file_name(entry.path);
    const Location place = run / name;
    DARKROOM_RETURN_IF_ERROR(check_name_within(name, {.store = run.store, .path = entry.path}));
    if (!entry.is_folder && is_wanted(name)) {
      DARKROOM_RETURN_IF_ERROR(copy_file_here(place, join_path(folder, name), {.stop = stop}));
    } else if (entry.is_folder && is_wanted(name + "/")) {
      const auto below = [&](const std::string& within) { return is_wanted(name + "/" + within); };
      DARKROOM_RETURN_IF_ERROR(copy_tree_here(place, join_path(folder, name), {.takes = below, .wanted_bytes = {}, .stop = stop}));
    }
  }
  const std::string whole = join_path(folder, kMetricsFile);
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(folder));
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(whole));
  if (has_whole_metrics) {
    DARKROOM_RETURN_IF_ERROR(copy_file_here(run / kMetricsFile, whole, {.stop = stop}));
  }
  for (const std::string& name : metrics) {
    DARKROOM_RETURN_IF_ERROR(append_part(run / name, whole, name == metrics.front(), stop));
  }
  return Status::ok();
}

}  // namespace darkroom
