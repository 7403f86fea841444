#include <arrow/api.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/ingest/job_inputs.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/table_reader.h"
#include "read_many.h"

namespace darkroom {
namespace {

constexpr const char* kPinsKey = "darkroom.inputs";
constexpr int kPinsVersion = 1;
constexpr int64_t kPinsABatch = 4096;

std::string pins_name(int64_t extension) {
  return extension == 0 ? std::string("_inputs.parquet") : fmt::format("_inputs-{}.parquet", extension);
}

/// The number of an extension; nothing for a name that pins_name() does not give one.
std::optional<int64_t> extension_of(std::string_view name) {
  constexpr std::string_view kPrefix = "_inputs-";
  int64_t extension = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), extension);
  return extension > 0 && pins_name(extension) == name ? std::optional(extension) : std::nullopt;
}

std::shared_ptr<arrow::Schema> pins_schema() {
  return arrow::schema({arrow::field("name", arrow::binary(), false), arrow::field("size_bytes", arrow::int64(), false),
                        arrow::field("tail_sha256", arrow::utf8(), false), arrow::field("num_rows", arrow::int64(), false)});
}

Result<std::shared_ptr<arrow::RecordBatch>> make_batch(const std::vector<JobInput>& pins, size_t first, size_t end) {
  arrow::BinaryBuilder names;
  arrow::StringBuilder hashes;
  arrow::Int64Builder sizes, rows;
  arrow::Status status;
  for (size_t i = first; i < end; ++i) {
    status &= names.Append(pins[i].name);
    status &= sizes.Append(pins[i].size_bytes);
    status &= hashes.Append(pins[i].tail_sha256);
    status &= rows.Append(pins[i].num_rows);
  }
  arrow::ArrayVector columns(4);
  status &= names.Finish(&columns[0]);
  status &= sizes.Finish(&columns[1]);
  status &= hashes.Finish(&columns[2]);
  status &= rows.Finish(&columns[3]);
  DARKROOM_RETURN_IF_ARROW_ERROR(status, "building the list of inputs");
  return arrow::RecordBatch::Make(pins_schema(), static_cast<int64_t>(end - first), std::move(columns));
}

Status corrupt_pins(const Location& list, std::string_view why) {
  return Status::corrupt_data(
      "the list of pinned inputs is damaged; delete it and every other _inputs*.parquet beside it and run again, they are rebuilt from the "
      "parts (why, list):",
      why, list.uri());
}

Status append_pins(const arrow::RecordBatch& batch, const Location& list, std::vector<JobInput>& pins) {
  const auto& names = static_cast<const arrow::BinaryArray&>(*batch.column(0));
  const auto& sizes = static_cast<const arrow::Int64Array&>(*batch.column(1));
  const auto& hashes = static_cast<const arrow::StringArray&>(*batch.column(2));
  const auto& rows = static_cast<const arrow::Int64Array&>(*batch.column(3));
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    if (rows.Value(i) < 0 || rows.Value(i) > kMaxInputRows || sizes.Value(i) < 0) {
      return corrupt_pins(list, "a file has an impossible number of rows or bytes");
    }
    pins.push_back(
        {.name = names.GetString(i), .size_bytes = sizes.Value(i), .tail_sha256 = hashes.GetString(i), .num_rows = rows.Value(i)});
  }
  return Status::ok();
}

Status read_list(const Location& list, const Location& output, const JobIdentity& wants, std::vector<JobInput>& pins) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(list));
  const std::string* text = footer.find(kPinsKey);
  const nlohmann::json fields = text == nullptr ? nlohmann::json() : parse_json(*text);
  if (!fields.is_object() || !footer.schema->Equals(*pins_schema(), /*check_metadata=*/false)) {
    return corrupt_pins(list, "it is no list of inputs");
  }
  if (fields.value("version", nlohmann::json()) != kPinsVersion) {
    return corrupt_pins(list, "it has another version");
  }
  const nlohmann::json had = fields.value("identity", nlohmann::json());
  if (!had.is_object()) {
    return corrupt_pins(list, "it names no job");
  }
  if (canonical_text(had) != canonical_text(wants.to_json())) {
    return refuse_other_job(output.uri(), had, wants);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(list));
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(0, footer.num_rows, {}));
  pins.reserve(pins.size() + static_cast<size_t>(footer.num_rows));
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
    if (batch == nullptr) {
      return Status::ok();
    }
    DARKROOM_RETURN_IF_ERROR(append_pins(*batch, list, pins));
  }
}

}  // namespace

Result<std::optional<PinnedList>> read_pins(const Location& output, const JobIdentity& wants) {
  PinnedList pins;
  while (true) {
    const Location list = output / pins_name(pins.num_lists);
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, list.exists());
    if (!is_there) {
      return pins.num_lists == 0 ? std::optional<PinnedList>() : std::optional(std::move(pins));
    }
    const Status status = read_list(list, output, wants, pins.inputs);
    if (!status.is_ok()) {
      const bool is_named = status.code() != StatusCode::kCorruptData || status.message().find("delete it") != std::string::npos;
      return is_named ? status : corrupt_pins(list, status.message());
    }
    ++pins.num_lists;
  }
}

Status remove_pin_extensions(const Location& output) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_pinned, (output / pins_name(0)).exists());
  if (is_pinned) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, output.store->list(output.path));
  std::vector<int64_t> extensions;
  for (const FileInfo& entry : entries) {
    if (const std::optional<int64_t> extension = entry.is_folder ? std::nullopt : extension_of(file_name(entry.path))) {
      extensions.push_back(*extension);
    }
  }
  std::sort(extensions.rbegin(), extensions.rend());
  for (const int64_t extension : extensions) {
    DARKROOM_RETURN_IF_ERROR(output.store->remove((output / pins_name(extension)).path));
  }
  return Status::ok();
}

Result<PublishOutcome> write_pins(const Location& output, const JobIdentity& identity, int64_t extension,
                                  const std::vector<JobInput>& pins) {
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, pins_name(extension)));
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, PagedShardWriter::open(std::move(object), pins_schema()));
  for (size_t first = 0; first < pins.size(); first += kPinsABatch) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, make_batch(pins, first, std::min(pins.size(), first + kPinsABatch)));
    DARKROOM_RETURN_IF_ERROR(writer->write(*batch));
  }
  const nlohmann::json fields = {{"version", kPinsVersion}, {"identity", identity.to_json()}};
  DARKROOM_ASSIGN_OR_RETURN(const FinishedShard written, writer->finish({{kPinsKey, canonical_text(fields)}}));
  return written.object->publish();
}

namespace {

/// A pin whose file is not listed, and the listed one of the same item.
struct ReplacedPin {
  const JobInput* pin = nullptr;
  JobInput* listed = nullptr;
};

std::vector<ReplacedPin> find_replaced_pins(const std::vector<JobInput>& pins, std::vector<JobInput>& listed) {
  std::set<std::string> names;
  std::map<std::pair<std::string, int64_t>, JobInput*> parts;  // By folder and item.
  for (JobInput& input : listed) {
    names.insert(input.name);
    if (const auto part = PartName::parse(file_name(input.name))) {
      parts.emplace(std::pair(parent_folder(input.name), part->item), &input);
    }
  }
  std::vector<ReplacedPin> replaced;
  for (const JobInput& pin : pins) {
    const auto part = PartName::parse(file_name(pin.name));
    const auto later = part && !names.contains(pin.name) ? parts.find({parent_folder(pin.name), part->item}) : parts.end();
    if (later != parts.end() && PartName::parse(file_name(later->second->name))->generation > part->generation) {
      replaced.push_back({.pin = &pin, .listed = later->second});
    }
  }
  return replaced;
}

}  // namespace

Status take_pinned_generations(Store* store, const std::vector<JobInput>& pins, const std::stop_token& stop,
                               std::vector<JobInput>& listed) {
  const std::vector<ReplacedPin> replaced = find_replaced_pins(pins, listed);
  return read_many(replaced.size(), stop, [&](size_t i) -> Status {
    JobInput& input = *replaced[i].listed;
    const Location folder = place_of(store, input).parent();
    const std::string name = file_name(replaced[i].pin->name);
    for (const Location& place : {folder / name, folder / kSupersededFolder / name}) {
      const Result<FileInfo> info = place.store->stat(place.path);
      if (info.is_ok()) {
        input.path = place.path;
        input.name = replaced[i].pin->name;
        input.size_bytes = info->size_bytes;
        return Status::ok();
      }
      if (info.status().code() != StatusCode::kNotFound) {
        return info.status();
      }
    }
    return Status::ok();
  });
}

namespace {

/// An input as parts know it.
struct KnownInput {
  JobInput input;
  int64_t first_item = 0;
};

/// Where a file lay when it was listed: a generation that was replaced has moved aside.
std::string listed_path(const JobInput& input) {
  const std::string folder = parent_folder(input.path);
  return file_name(folder) == kSupersededFolder ? join_path(parent_folder(folder), file_name(input.path)) : input.path;
}

std::vector<KnownInput> known_inputs(const std::map<int64_t, PartRecord>& parts, int64_t rows_per_file) {
  std::vector<KnownInput> known;
  for (const auto& [item, record] : parts) {
    const int64_t first_item = item - record.first_row / rows_per_file;
    if (known.empty() || known.back().first_item != first_item) {
      known.push_back({.input = record.input, .first_item = first_item});
    }
  }
  return known;
}

}  // namespace

Result<std::vector<JobInput>> rebuild_pins(const std::vector<JobInput>& measured, const std::map<int64_t, PartRecord>& parts,
                                           const std::string& output, const JobIdentity& wants) {
  const std::vector<KnownInput> known = known_inputs(parts, wants.rows_per_file);
  std::vector<JobInput> known_list;
  for (const KnownInput& input : known) {
    known_list.push_back(input.input);
  }
  DARKROOM_ASSIGN_OR_RETURN(PinnedInputs joined, join_pins(measured, known_list, output, wants));
  std::vector<JobInput> pins;
  int64_t num_rows = 0;
  size_t next_late = 0;
  for (size_t i = 0; i <= joined.inputs.size(); ++i) {
    // What lies before the next known file fills the gap in the numbers of rows; what is left behind came late.
    std::vector<JobInput> between;
    while (next_late < joined.late.size() && (i == joined.inputs.size() || joined.late[next_late].path < listed_path(joined.inputs[i]))) {
      between.push_back(joined.late[next_late++]);
    }
    if (i == joined.inputs.size()) {
      pins.insert(pins.end(), between.begin(), between.end());
      break;
    }
    const int64_t missing_rows = joined.inputs[i].first_row - num_rows;
    int64_t rows_between = 0;
    for (const JobInput& input : between) {
      rows_between += input.num_rows;
    }
    if (missing_rows != 0 && missing_rows != rows_between) {
      return refuse_other_job(output, wants.to_json(), wants,
                              {fmt::format("the lost list of inputs cannot be rebuilt: {} rows are missing before input {}, and the files "
                                           "there hold {}; move away what came late and run again",
                                           missing_rows, joined.inputs[i].name, rows_between)});
    }
    if (missing_rows != 0) {
      pins.insert(pins.end(), between.begin(), between.end());
    }
    num_rows = joined.inputs[i].first_row + joined.inputs[i].num_rows;
    pins.push_back(joined.inputs[i]);
  }
  return pins;
}

}  // namespace darkroom
