#include "darkroom/ingest/part_record.h"

#include <algorithm>
#include <array>

#include "darkroom/core/base64.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/sealed_record.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {
namespace {

void append_leb128(std::string& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) {
    bytes += static_cast<char>(number | 0x80);
  }
  bytes += static_cast<char>(number);
}

nlohmann::json input_json(const JobInput& input) {
  nlohmann::json json = {
      {"size_bytes", input.size_bytes}, {"tail_sha256", input.tail_sha256}, {"num_rows", input.num_rows}, {"list_row", input.first_row}};
  set_file_name(json, input.name);
  return json;
}

void read_item_of_version_1(const nlohmann::json& json, PartRecord& record) {
  const nlohmann::json& input = json.at("input");
  record.input.name = get_file_name(input);
  record.first_row = whole_number(input.at("first_row"));
  record.num_rows = whole_number(input.at("num_rows"));
  record.considered = record.num_rows;
}

void read_item_of_version_2(const nlohmann::json& json, PartRecord& record) {
  record.fingerprint = json.at("fingerprint");
  record.generation = whole_number(json.at("generation"));
  record.considered = whole_number(json.at("considered"));
  record.first_row = whole_number(json.at("first_row"));
  record.num_rows = whole_number(json.at("num_rows"));
  const nlohmann::json& input = json.at("input");
  record.input.name = get_file_name(input);
  record.input.size_bytes = whole_number(input.at("size_bytes"));
  record.input.tail_sha256 = input.at("tail_sha256");
  record.input.num_rows = whole_number(input.at("num_rows"));
  record.input.first_row = whole_number(input.at("list_row"));
}

Status read_tally(const nlohmann::json& json, ItemTally& tally) {
  tally.rows_in = whole_number(json.at("rows_in"));
  tally.rows_out = whole_number(json.at("rows_out"));
  tally.rows_filtered = whole_number(json.value("rows_filtered", nlohmann::json(0)));
  tally.rows_by_error = whole_numbers(json.at("rows_by_error"));
  tally.num_invalid_captions = whole_number(json.at("invalid_captions"));
  tally.num_unported_captions = whole_number(json.value("unported_captions", nlohmann::json(0)));
  const nlohmann::json failed = json.value("failed_rows", nlohmann::json::object());  // Named: items() keeps a reference.
  for (const auto& [code, packed] : failed.items()) {
    DARKROOM_ASSIGN_OR_RETURN(tally.failed_rows[code], unpack_rows(packed.get<std::string>()));
  }
  return Status::ok();
}

Status check_numbers(const PartRecord& record) {
  for (const int64_t number :
       {record.item, record.generation, record.considered, record.first_row, record.num_rows, record.input.size_bytes,
        record.input.num_rows, record.input.first_row, record.tally.rows_in, record.tally.rows_out, record.tally.rows_filtered}) {
    if (number < 0) {
      return Status::corrupt_data("the record holds a negative number:", number);
    }
  }
  const auto is_absurd = [](int64_t generation) { return generation < 0 || generation > kMostGenerations; };
  if (is_absurd(record.generation) || std::ranges::any_of(record.retried, is_absurd, &RetryRounds::value_type::second)) {
    return Status::corrupt_data("the record counts more generations or rounds than there can be, its generation:", record.generation);
  }
  if (record.considered > record.num_rows) {
    return Status::corrupt_data("the record counts more rows than its item has (rows, counted):", record.num_rows, record.considered);
  }
  return record.version == 1 || record.tally.adds_up_to(record.considered)
             ? Status::ok()
             : Status::corrupt_data("the counts of the record do not add up (rows considered, in, out, filtered):", record.considered,
                                    record.tally.rows_in, record.tally.rows_out, record.tally.rows_filtered);
}

Status corrupt_part(const Location& part, std::string_view why) {
  return Status::corrupt_data(
      "a part of the output folder cannot be used: move it away and run again to make it anew; where _superseded/ has an older generation "
      "of it, put that back first (why, part):",
      why, part.uri());
}

}  // namespace

void ItemTally::add(const ItemTally& other) {
  rows_in += other.rows_in;
  rows_out += other.rows_out;
  rows_filtered += other.rows_filtered;
  num_invalid_captions += other.num_invalid_captions;
  num_unported_captions += other.num_unported_captions;
  for (const auto& [code, num_rows] : other.rows_by_error) {
    rows_by_error[code] += num_rows;
  }
  for (const auto& [code, rows] : other.failed_rows) {
    failed_rows[code].insert(failed_rows[code].end(), rows.begin(), rows.end());
  }
}

bool ItemTally::adds_up_to(int64_t considered) const {
  // Every subtraction is of numbers between 0 and what is left: nothing overflows.
  if (rows_in < 0 || rows_in > considered || rows_filtered != considered - rows_in || rows_out < 0 || rows_out > rows_in) {
    return false;
  }
  int64_t left = rows_in - rows_out;
  for (const auto& [code, num_rows] : rows_by_error) {
    if (num_rows < 0 || num_rows > left) {
      return false;
    }
    left -= num_rows;
  }
  return left == 0;
}

std::string pack_rows(const std::vector<int64_t>& rows) {
  std::string bytes;
  int64_t last = 0;
  for (const int64_t row : rows) {
    DARKROOM_CHECK(row >= last, "rows are packed in ascending order (before, row):", last, row);
    append_leb128(bytes, static_cast<uint64_t>(row - last));
    last = row;
  }
  return encode_base64(bytes);
}

Result<std::vector<int64_t>> unpack_rows(std::string_view text) {
  const std::optional<std::string> bytes = decode_base64(text);
  if (!bytes) {
    return Status::corrupt_data("a list of rows is no base64:", text.substr(0, 32));
  }
  std::vector<int64_t> rows;
  uint64_t number = 0;
  int num_bits = 0;
  uint64_t last = 0;
  for (const char byte : *bytes) {
    number |= static_cast<uint64_t>(byte & 0x7F) << num_bits;
    num_bits += 7;
    if ((byte & 0x80) == 0) {
      last += number;
      rows.push_back(static_cast<int64_t>(last));
      number = 0;
      num_bits = 0;
    }
    if (num_bits > 56 || number > INT64_MAX || last > INT64_MAX) {
      return Status::corrupt_data("a list of rows holds a number that is too large, after so many rows:", rows.size());
    }
  }
  return num_bits == 0 ? Result<std::vector<int64_t>>(std::move(rows))
                       : Status::corrupt_data("a list of rows ends within a number, after so many rows:", rows.size());
}

std::string print_part_record(const PartRecord& record) {
  nlohmann::json failed = nlohmann::json::object();
  for (const auto& [code, rows] : record.tally.failed_rows) {
    failed[code] = pack_rows(rows);
  }
  nlohmann::json json = {{"version", kJobFormatVersion},
                         {"job", record.job},
                         {"identity", record.identity},
                         {"fingerprint", record.fingerprint},
                         {"item", record.item},
                         {"generation", record.generation},
                         {"considered", record.considered},
                         {"input", input_json(record.input)},
                         {"first_row", record.first_row},
                         {"num_rows", record.num_rows},
                         {"rows_in", record.tally.rows_in},
                         {"rows_out", record.tally.rows_out},
                         {"rows_filtered", record.tally.rows_filtered},
                         {"rows_by_error", record.tally.rows_by_error},
                         {"failed_rows", std::move(failed)},
                         {"invalid_captions", record.tally.num_invalid_captions},
                         {"unported_captions", record.tally.num_unported_captions}};
  if (!record.retried.empty()) {
    json["retried"] = record.retried;
  }
  return canonical_text(json);
}

Result<PartRecord> parse_part_record(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object()) {
    return Status::corrupt_data("the record in its footer is no JSON object");
  }
  try {
    const int64_t version = whole_number(json.at("version"));
    if (version > kJobFormatVersion) {
      return Status::failed_precondition("the record in its footer has a later version than this program reads:", version);
    }
    if (version < 1) {
      return Status::corrupt_data("the record in its footer has no such version:", version);
    }
    PartRecord record{.version = static_cast<int>(version),
                      .job = json.at("job"),
                      .identity = json.at("identity"),
                      .item = whole_number(json.at("item"))};
    record.version == 1 ? read_item_of_version_1(json, record) : read_item_of_version_2(json, record);
    DARKROOM_RETURN_IF_ERROR(read_tally(json, record.tally));
    record.retried = whole_numbers(json.value("retried", nlohmann::json::object()));
    record.content_hash = json.value("content_hash", "");
    DARKROOM_RETURN_IF_ERROR(check_numbers(record));
    if (!record.identity.is_object()) {
      return Status::corrupt_data("the record in its footer names no job");
    }
    return record;
  } catch (const nlohmann::json::exception& failure) {
    return Status::corrupt_data("the record in its footer is not complete:", failure.what());
  }
}

Result<PartRecord> read_part_record(const Location& part) {
  DARKROOM_ASSIGN_OR_RETURN(const KeyValues pairs, read_shard_pairs(part));
  const std::string* text = find_value(pairs, kShardKey);
  if (text == nullptr) {
    return corrupt_part(part, "it has no record of a job in its footer");
  }
  Result<PartRecord> record = parse_part_record(*text);
  if (!record.is_ok()) {
    return record.status().code() == StatusCode::kCorruptData ? corrupt_part(part, record.status().message())
                                                              : record.status().with_context(part.uri());
  }
  return record;
}

}  // namespace darkroom
