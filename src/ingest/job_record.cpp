#include "darkroom/ingest/job_record.h"

#include <algorithm>
#include <optional>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/io/table_footer.h"
#include "job_json.h"

namespace darkroom {
namespace {

nlohmann::json inputs_json(const std::vector<JobInput>& inputs) {
  nlohmann::json list = nlohmann::json::array();
  for (const JobInput& input : inputs) {
    list.push_back(
        {{"name", input.name}, {"size_bytes", input.size_bytes}, {"edges_sha256", input.edges_sha256}, {"num_rows", input.num_rows}});
  }
  return list;
}

/// Canonical text: keys sorted, no white space, bytes of file names that are no UTF-8 replaced.
std::string canonical_text(const nlohmann::json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

/// Everything that is hashed, with the input list as its own hash so that it fits into every footer.
nlohmann::json identity_json(const JobRecord& record) {
  return {{"version", kJobFormatVersion},
          {"verb", record.verb},
          {"fields", record.fields},
          {"rows_per_file", record.rows_per_file},
          {"inputs_sha256", sha256_hex(canonical_text(inputs_json(record.inputs)))}};
}

void describe_difference(const std::string& name, const nlohmann::json& had, const nlohmann::json& wants,
                         std::vector<std::string>& differences) {
  if (had != wants) {
    differences.push_back(name + " (had " + canonical_text(had) + ", asked for " + canonical_text(wants) + ")");
  }
}

void describe_fields(const nlohmann::json& had, const nlohmann::json& wants, std::vector<std::string>& differences) {
  nlohmann::json names = nlohmann::json::object();
  names.update(had);
  names.update(wants);
  for (const auto& [name, unused] : names.items()) {
    describe_difference(name, had.value(name, nlohmann::json()), wants.value(name, nlohmann::json()), differences);
  }
}

void describe_inputs(const std::vector<JobInput>& had, const std::vector<JobInput>& wants, std::vector<std::string>& differences) {
  const auto find = [](const std::vector<JobInput>& inputs, const std::string& name) {
    return std::find_if(inputs.begin(), inputs.end(), [&](const JobInput& input) { return input.name == name; });
  };
  const size_t before = differences.size();
  for (const JobInput& input : had) {
    const auto found = find(wants, input.name);
    if (found == wants.end()) {
      differences.push_back("input " + input.name + " (missing now)");
    } else if (found->size_bytes != input.size_bytes || found->edges_sha256 != input.edges_sha256 || found->num_rows != input.num_rows) {
      differences.push_back("input " + input.name + " (changed)");
    }
  }
  for (const JobInput& input : wants) {
    if (find(had, input.name) == had.end()) {
      differences.push_back("input " + input.name + " (new)");
    }
  }
  if (differences.size() == before) {
    differences.push_back("inputs (another order)");
  }
}

/// `had` is an identity with "fields", perhaps with the input list.
Status refuse(const std::string& output, const nlohmann::json& had, const JobRecord& record) {
  const nlohmann::json wants = identity_json(record);
  std::vector<std::string> differences;
  for (const char* name : {"version", "verb", "rows_per_file"}) {
    describe_difference(name, had.value(name, nlohmann::json()), wants[name], differences);
  }
  describe_fields(had.value("fields", nlohmann::json::object()), wants["fields"], differences);
  if (had.value("inputs_sha256", nlohmann::json()) != wants["inputs_sha256"]) {
    if (had.contains("inputs")) {
      describe_inputs(pinned_inputs(had), record.inputs, differences);
    } else {
      differences.push_back("inputs");
    }
  }
  std::string text;
  for (const std::string& difference : differences) {
    text += (text.empty() ? "" : "; ") + difference;
  }
  return Status::failed_precondition(
      "the output folder belongs to another job: nothing was changed; use another folder or the flags of that job (folder, differences):",
      output, text);
}

Status corrupt_part(const std::string& path, std::string_view what) {
  return Status::corrupt_data("a part of the output folder cannot be used: move it away and run again to make it anew (why, part):", what,
                              path);
}

/// The item number of "part-000042.parquet".
std::optional<int64_t> part_number(const std::string& name) {
  constexpr std::string_view kPrefix = "part-", kSuffix = ".parquet";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() < kPrefix.size() + 6 + kSuffix.size()) {
    return std::nullopt;
  }
  const std::string digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  if (digits.size() > 15 || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

Result<CommittedPart> read_part_at(FileSystem& files, const std::string& output, const std::string& path, int64_t number,
                                   const JobRecord& record, const std::string& fingerprint) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(files, path));
  const std::string* text = footer.find(kShardKey);
  const nlohmann::json shard = text == nullptr ? nlohmann::json() : parse_json(*text);
  if (!shard.is_object()) {
    return corrupt_part(path, "it has no record of a job in its footer");
  }
  try {
    if (shard.at("job") != fingerprint) {
      return refuse(output, shard.at("identity"), record);
    }
    if (shard.at("item") != number) {
      return corrupt_part(path, "its footer names another item");
    }
    return CommittedPart{.path = path,
                         .tally = {.rows_in = shard.at("rows_in"),
                                   .rows_out = shard.at("rows_out"),
                                   .rows_by_error = shard.at("rows_by_error").get<RowsByError>(),
                                   .num_invalid_captions = shard.at("invalid_captions"),
                                   .num_unported_captions = shard.value("unported_captions", int64_t{0})},
                         .content_hash = shard.at("content_hash")};
  } catch (const nlohmann::json::exception&) {
    return corrupt_part(path, "the record in its footer is not complete");
  }
}

}  // namespace

std::string part_name(int64_t number) { return fmt::format("part-{:06d}.parquet", number); }

std::string WorkItem::part_name() const { return darkroom::part_name(number); }

std::string row_key(int64_t list_row) { return fmt::format("{:012d}", list_row); }

void ItemTally::add(const ItemTally& other) {
  rows_in += other.rows_in;
  rows_out += other.rows_out;
  num_invalid_captions += other.num_invalid_captions;
  num_unported_captions += other.num_unported_captions;
  for (const auto& [code, num_rows] : other.rows_by_error) {
    rows_by_error[code] += num_rows;
  }
}

std::string JobRecord::fingerprint() const { return sha256_hex(canonical_text(identity_json(*this))); }

int64_t JobRecord::num_rows() const { return inputs.empty() ? 0 : inputs.back().first_row + inputs.back().num_rows; }

std::vector<WorkItem> JobRecord::items(int64_t limit) const {
  DARKROOM_CHECK(rows_per_file > 0, "a work item needs a row:", rows_per_file);
  std::vector<WorkItem> items;
  const int64_t end = limit < 0 ? num_rows() : std::min(limit, num_rows());
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int64_t first = 0; first < inputs[i].num_rows; first += rows_per_file) {
      const int64_t list_row = inputs[i].first_row + first;
      if (list_row >= end) {
        return items;
      }
      const int64_t num_rows = std::min({rows_per_file, inputs[i].num_rows - first, end - list_row});
      items.push_back(
          {.number = static_cast<int64_t>(items.size()), .input = i, .first_row = first, .num_rows = num_rows, .list_row = list_row});
    }
  }
  return items;
}

nlohmann::json JobRecord::to_json() const {
  nlohmann::json json = identity_json(*this);
  json["fingerprint"] = fingerprint();
  json["inputs"] = inputs_json(inputs);
  return json;
}

std::string shard_footer(const JobRecord& record, const std::string& fingerprint, const WorkItem& item, const ItemTally& tally) {
  const nlohmann::json json = {
      {"version", kJobFormatVersion},
      {"job", fingerprint},
      {"identity", identity_json(record)},
      {"item", item.number},
      {"input", {{"name", record.inputs[item.input].name}, {"first_row", item.first_row}, {"num_rows", item.num_rows}}},
      {"rows_in", tally.rows_in},
      {"rows_out", tally.rows_out},
      {"rows_by_error", tally.rows_by_error},
      {"invalid_captions", tally.num_invalid_captions},
      {"unported_captions", tally.num_unported_captions},
  };
  return canonical_text(json);
}

Result<nlohmann::json> read_job_json(FileSystem& files, const std::string& output) {
  const std::string path = join_path(output, kJobFile);
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  const nlohmann::json job = parse_json(text);
  const bool is_whole = job.is_object() && job.contains("fingerprint") && job.contains("inputs") && job["inputs"].is_array();
  if (!is_whole) {
    return Status::corrupt_data("the job file is damaged; delete it and run again, it is rebuilt from the parts:", path);
  }
  return job;
}

std::vector<JobInput> pinned_inputs(const nlohmann::json& job) {
  std::vector<JobInput> inputs;
  for (const nlohmann::json& entry : job.at("inputs")) {
    inputs.push_back({.path = {},
                      .name = entry.value("name", ""),
                      .size_bytes = entry.value("size_bytes", int64_t{-1}),
                      .edges_sha256 = entry.value("edges_sha256", ""),
                      .num_rows = entry.value("num_rows", int64_t{-1})});
  }
  return inputs;
}

Result<std::map<int64_t, CommittedPart>> find_parts(FileSystem& files, const std::string& output, const JobRecord& record) {
  std::map<int64_t, CommittedPart> parts;
  DARKROOM_ASSIGN_OR_RETURN(const bool has_output, files.exists(output));
  if (!has_output) {
    return parts;
  }
  const std::string fingerprint = record.fingerprint();
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(output));
  for (const FileInfo& entry : entries) {
    if (file_name(entry.path) == kJobFile) {
      DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json job, read_job_json(files, output));
      if (job["fingerprint"] != fingerprint) {
        return refuse(output, job, record);
      }
    }
  }
  for (const FileInfo& entry : entries) {
    if (const std::optional<int64_t> number = part_number(file_name(entry.path))) {
      DARKROOM_ASSIGN_OR_RETURN(CommittedPart part, read_part_at(files, output, entry.path, *number, record, fingerprint));
      parts.emplace(*number, std::move(part));
    }
  }
  return parts;
}

Result<CommittedPart> read_part(FileSystem& files, const std::string& output, int64_t number, const JobRecord& record) {
  return read_part_at(files, output, join_path(output, part_name(number)), number, record, record.fingerprint());
}

Status prepare_job_folder(FileSystem& files, const std::string& output, const JobRecord& record) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(output));
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files, output));
  const std::string path = join_path(output, kJobFile);
  DARKROOM_ASSIGN_OR_RETURN(const bool has_job, files.exists(path));
  return has_job ? Status()
                 : write_file_atomic(files, path, record.to_json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Status write_job_summary(FileSystem& files, const std::string& output, const JobRecord& record,
                         const std::map<int64_t, CommittedPart>& parts) {
  ItemTally total;
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [number, part] : parts) {
    total.add(part.tally);
    entries.push_back({{"name", file_name(part.path)},
                       {"rows_in", part.tally.rows_in},
                       {"rows_out", part.tally.rows_out},
                       {"rows_by_error", part.tally.rows_by_error},
                       {"content_hash", part.content_hash}});
  }
  const nlohmann::json summary = {{"version", kJobFormatVersion},
                                  {"job", record.fingerprint()},
                                  {"rows_in", total.rows_in},
                                  {"rows_out", total.rows_out},
                                  {"rows_by_error", total.rows_by_error},
                                  {"invalid_captions", total.num_invalid_captions},
                                  {"unported_captions", total.num_unported_captions},
                                  {"parts", entries}};
  return write_file_atomic(files, join_path(output, kSummaryFile), summary.dump(1) + "\n");
}

}  // namespace darkroom
