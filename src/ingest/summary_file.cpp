#include "summary_file.h"

#include <algorithm>

#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

constexpr int64_t kMaxSummaryBytes = int64_t{1} << 30;
constexpr int64_t kMaxSpeedBytes = 4096;
constexpr int kSpeedVersion = 1;

nlohmann::json entry_of(const CommittedPart& part) {
  nlohmann::json entry = {{"name", part.name.text()},
                          {"size_bytes", part.size_bytes},
                          {"fingerprint", part.fingerprint},
                          {"rows_in", part.tally.rows_in},
                          {"rows_out", part.tally.rows_out},
                          {"rows_filtered", part.tally.rows_filtered},
                          {"rows_by_error", part.tally.rows_by_error},
                          {"invalid_captions", part.tally.num_invalid_captions},
                          {"unported_captions", part.tally.num_unported_captions},
                          {"content_hash", part.content_hash}};
  if (!part.retried.empty()) {
    entry["retried"] = part.retried;
  }
  return entry;
}

std::optional<CommittedPart> part_of(const nlohmann::json& entry) {
  try {
    const auto name = PartName::parse(entry.at("name").get<std::string>());
    if (!name) {
      return std::nullopt;
    }
    CommittedPart part{.name = *name, .size_bytes = whole_number(entry.at("size_bytes")), .fingerprint = entry.at("fingerprint")};
    part.tally.rows_in = whole_number(entry.at("rows_in"));
    part.tally.rows_out = whole_number(entry.at("rows_out"));
    part.tally.rows_filtered = whole_number(entry.at("rows_filtered"));
    part.tally.rows_by_error = whole_numbers(entry.at("rows_by_error"));
    part.tally.num_invalid_captions = whole_number(entry.at("invalid_captions"));
    part.tally.num_unported_captions = whole_number(entry.at("unported_captions"));
    part.retried = whole_numbers(entry.value("retried", nlohmann::json::object()));
    part.content_hash = entry.at("content_hash");
    const auto is_sound = [](const auto& round) { return round.second >= 0 && round.second <= kMostGenerations; };
    return std::ranges::all_of(part.retried, is_sound) ? std::optional(std::move(part)) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string print_summary_file(const std::string& job_hash, const std::map<int64_t, CommittedPart>& parts) {
  ItemTally total;
  for (const auto& [item, part] : parts) {
    total.add(part.tally);
  }
  const nlohmann::json head = {{"version", kJobFormatVersion},
                               {"job", job_hash},
                               {"rows_in", total.rows_in},
                               {"rows_out", total.rows_out},
                               {"rows_filtered", total.rows_filtered},
                               {"rows_by_error", total.rows_by_error},
                               {"invalid_captions", total.num_invalid_captions},
                               {"unported_captions", total.num_unported_captions}};
  std::string text = canonical_text(head);
  text.pop_back();
  text += ",\"parts\":[";
  const char* separator = "\n";
  for (const auto& [item, part] : parts) {
    text.append(separator).append(canonical_text(entry_of(part)));
    separator = ",\n";
  }
  text += "\n]}\n";
  return text;
}

Result<std::map<std::string, CommittedPart>> read_summary_file(const Location& output) {
  std::map<std::string, CommittedPart> entries;
  const Location file = output / kSummaryFile;
  const Result<std::string> text = file.store->read_small(file.path, kMaxSummaryBytes);
  if (!text.is_ok()) {
    const StatusCode code = text.status().code();
    return code == StatusCode::kNotFound || code == StatusCode::kCorruptData ? Result<std::map<std::string, CommittedPart>>(entries)
                                                                             : text.status();
  }
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with(',')) {
      line.remove_suffix(1);
    }
    const nlohmann::json entry = line.starts_with("{\"content_hash\"") ? parse_json(line) : nlohmann::json();
    if (std::optional<CommittedPart> part = entry.is_object() ? part_of(entry) : std::nullopt) {
      entries.insert_or_assign(part->name.text(), *std::move(part));
    }
  }
  return entries;
}

Status write_speed_file(const Location& output, const std::string& job_hash, const RunSpeed& speed) {
  const nlohmann::json fields = {{"version", kSpeedVersion}, {"job", job_hash}, {"rows", speed.num_rows}, {"seconds", speed.seconds}};
  const Location file = output / kSpeedFile;
  return file.store->replace_small(file.path, fields.dump() + "\n");
}

Result<std::optional<RunSpeed>> read_speed_file(const Location& output) {
  const Location file = output / kSpeedFile;
  const Result<std::string> text = file.store->read_small(file.path, kMaxSpeedBytes);
  if (!text.is_ok()) {
    const bool is_nothing = text.status().code() == StatusCode::kNotFound || text.status().code() == StatusCode::kCorruptData;
    return is_nothing ? Result<std::optional<RunSpeed>>(std::nullopt) : text.status();
  }
  const nlohmann::json fields = parse_json(*text);
  const auto number = [&](const char* key) {
    const auto field = fields.is_object() ? fields.find(key) : fields.end();
    return field != fields.end() && field->is_number() ? field->get<double>() : 0.0;
  };
  const double rows = number("rows"), seconds = number("seconds");
  const bool is_sound = number("version") == kSpeedVersion && rows >= 1 && rows < 1e15 && seconds > 0;
  return is_sound ? std::optional(RunSpeed{.num_rows = static_cast<int64_t>(rows), .seconds = seconds}) : std::optional<RunSpeed>();
}

}  // namespace darkroom
