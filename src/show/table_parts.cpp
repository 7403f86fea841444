#include "table_parts.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/sealed_record.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/tar_reader.h"
#include "darkroom/tables/tar_shard_writer.h"

namespace darkroom {
namespace {

constexpr const char* kLatentsKey = "darkroom.latents";

nlohmann::json parse_key(const TableFooter& footer, const char* key) {
  const std::string* text = footer.find(key);
  nlohmann::json value = text == nullptr ? nlohmann::json() : parse_json(*text);
  return value.is_object() ? value : nlohmann::json();
}

// Errors: kCorruptData when the record is not whole or does not fit the file, if its rows were counted.
Status add_record(const TableFooter& footer, const nlohmann::json& record, TableParts& parts) {
  ItemTally tally;
  std::string job;
  try {
    record.at("rows_in").get_to(tally.rows_in);
    record.at("rows_out").get_to(tally.rows_out);
    record.at("rows_by_error").get_to(tally.rows_by_error);
    tally.num_invalid_captions = record.value("invalid_captions", int64_t{0});
    tally.num_unported_captions = record.value("unported_captions", int64_t{0});
    record.at("job").get_to(job);
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the shard record in the footer is not whole (path, why):", footer.path, error.what());
  }
  int64_t num_failed = 0;
  for (const auto& [code, count] : tally.rows_by_error) {
    num_failed += count;
  }
  // With --keep-failed the failed rows are rows of the file too.
  const int64_t want_rows = footer.schema->GetFieldIndex("error") >= 0 ? tally.rows_in : tally.rows_out;
  if (tally.rows_in != tally.rows_out + num_failed || (footer.num_rows >= 0 && want_rows != footer.num_rows)) {
    return Status::corrupt_data("the shard record does not fit the file (path, rows in, rows out, failed rows, rows of the file):",
                                footer.path, tally.rows_in, tally.rows_out, num_failed, footer.num_rows);
  }
  parts.tally.add(tally);
  parts.num_ours += 1;
  if (parts.first_record.is_null()) {
    parts.first_record = record;
    parts.latents_record = parse_key(footer, kLatentsKey);
  } else if (parts.first_record["job"] != job) {
    parts.num_other_jobs += 1;
  }
  return Status::ok();
}

// `has_rows`: false of a tar without samples, which lacks the columns that its dataset's other ones have.
void note_schema(const std::shared_ptr<arrow::Schema>& schema, bool has_rows, TableParts& parts) {
  if (parts.schema == nullptr || (has_rows && !parts.schema_has_rows)) {
    parts.schema = schema;
    parts.schema_has_rows = has_rows;
  } else if (has_rows && !parts.schema->Equals(*schema, /*check_metadata=*/false)) {
    parts.num_other_schemas += 1;
  }
}

// What the shard record says of the part; nothing where another program wrote it.
Status take_record(const TableFooter& footer, TablePart& part, TableParts& parts) {
  const nlohmann::json record = parse_key(footer, kShardKey);
  if (record.is_null()) {
    return Status::ok();
  }
  part.is_ours = true;
  const auto item = record.find("item");
  part.item = item != record.end() && item->is_number_integer() ? item->get<int64_t>() : -1;
  const auto hash = record.find("content_hash");
  part.content_hash = hash != record.end() && hash->is_string() ? hash->get<std::string>() : std::string();
  return add_record(footer, record, parts);
}

Status add_shard(FileSystem& files, TablePart& part, TableParts& parts) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(files, part.path));
  part.num_rows = footer.num_rows;
  note_schema(footer.schema, true, parts);
  return take_record(footer, part, parts);
}

// Whether a member of the archive is a record of ours, whole or not.
Result<bool> has_record_member(const InputFile& file) {
  TarReader tar(file);
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<TarMember> member, tar.next());
    if (!member || member->name == kTarRecordName) {
      return member.has_value();
    }
  }
}

// Of a tar of ours. A tar of another program may have such a name, too: it has no record, and only --verify (`is_walked`) looks for a
// damaged one.
Status add_tar_record(FileSystem& files, bool is_walked, TablePart& part, TableParts& parts) {
  const auto name = PartName::parse(file_name(part.path));
  if (!name || name->container != PartContainer::kTar) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(part.path));
  Result<SealedRecord> record = read_sealed_record(*file);
  if (!record.is_ok()) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_damaged, is_walked ? has_record_member(*file) : Result<bool>(false));
    return is_damaged || record.status().code() != StatusCode::kCorruptData ? record.status() : Status::ok();
  }
  const TableFooter footer{
      .path = part.path, .num_rows = part.num_rows, .row_groups = {}, .schema = arrow::schema({}), .key_values = std::move(record->pairs)};
  return take_record(footer, part, parts);
}

Status add_part(FileSystem& files, bool count_text, bool verify, TablePart& part, TableParts& parts) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, container_format(part.path));
  parts.format = parts.parts.empty() ? format : parts.format;
  if (format == TableFormat::kParquet || part.path.ends_with(".mds")) {
    return add_shard(files, part, parts);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto reader, open_table(files, part.path));
  if (count_text) {
    DARKROOM_ASSIGN_OR_RETURN(part.num_rows, reader->num_rows());
  }
  note_schema(reader->schema(), format != TableFormat::kTar || part.num_rows != 0, parts);
  return format == TableFormat::kTar ? add_tar_record(files, verify, part, parts) : Status::ok();
}

}  // namespace

int64_t TableParts::num_bytes() const {
  int64_t sum = 0;
  for (const TablePart& part : parts) {
    sum += part.size_bytes;
  }
  return sum;
}

int64_t TableParts::num_rows() const {
  int64_t sum = 0;
  for (const TablePart& part : parts) {
    if (part.num_rows < 0) {
      return -1;
    }
    sum += part.num_rows;
  }
  return sum;
}

Result<TableParts> find_table_parts(FileSystem& files, const std::vector<FileInfo>& inputs, const std::string& uri,
                                    int64_t max_bytes_counted, DamageLog& damage, const std::stop_token& stop) {
  TableParts parts;
  for (const FileInfo& input : inputs) {
    if (stop.stop_requested()) {
      return Status::cancelled("inspect was stopped while it read footers; files read:", parts.parts.size());
    }
    TablePart part{.path = input.path, .size_bytes = input.size_bytes};
    DARKROOM_RETURN_IF_ERROR(
        damage.take(add_part(files, damage.is_on() || part.size_bytes <= max_bytes_counted, damage.is_on(), part, parts)));
    parts.parts.push_back(std::move(part));
  }
  if (parts.num_other_jobs > 0) {
    DARKROOM_RETURN_IF_ERROR(damage.is_on()
                                 ? damage.take(Status::corrupt_data(
                                       "parts belong to another job than the first one (number, folder):", parts.num_other_jobs, uri))
                                 : Status::ok());
  }
  return parts;
}

Result<int64_t> visit_rows(FileSystem& files, const TablePart& part, const RowSpan& rows, const std::vector<std::string>& columns,
                           const std::stop_token& stop, const BatchVisitor& visit) {
  if (part.num_rows == 0) {  // A tar without samples lacks columns of its dataset's other ones.
    return int64_t{0};
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto reader, open_table(files, part.path));
  const ReadOptions options{.max_batch_rows = std::clamp<int64_t>(rows.count, 64, 4096)};  // Few rows that are asked for inflate few.
  DARKROOM_ASSIGN_OR_RETURN(const auto range, reader->read_rows(rows.first, rows.count, columns, options));
  int64_t first_row = rows.first;
  while (true) {
    if (stop.stop_requested()) {
      return Status::cancelled("inspect was stopped while it read (path, row):", part.path, first_row);
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<arrow::RecordBatch> batch, range->next());
    if (batch == nullptr) {
      return range->num_malformed_rows();
    }
    DARKROOM_RETURN_IF_ERROR(visit(*batch, {part, first_row}));
    first_row += batch->num_rows();
  }
}

Status visit_dataset_rows(FileSystem& files, const TableParts& parts, const RowSpan& rows, const std::vector<std::string>& columns,
                          const std::stop_token& stop, const BatchVisitor& visit) {
  int64_t num_skipped = rows.first;
  int64_t num_wanted = rows.count;
  for (const TablePart& part : parts.parts) {
    if (num_wanted <= 0) {
      break;
    }
    if (num_skipped > 0 && part.num_rows <= num_skipped) {
      num_skipped -= std::max(int64_t{0}, part.num_rows);
      continue;
    }
    const auto count = [&](const arrow::RecordBatch& batch, const BatchPlace& place) {
      num_wanted -= batch.num_rows();
      return visit(batch, place);
    };
    const RowSpan span{.first = std::exchange(num_skipped, 0), .count = num_wanted};
    DARKROOM_RETURN_IF_ERROR(visit_rows(files, part, span, columns, stop, count).status());
  }
  return Status::ok();
}

}  // namespace darkroom
