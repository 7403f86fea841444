#include "darkroom/ingest/part_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace darkroom {
namespace {

using ::testing::HasSubstr;

PartRecord whole_record() {
  const JobIdentity identity{.verb = "download", .fields = {{"a", 1}}, .rows_per_file = 5};
  PartRecord record{.job = identity.hash(), .identity = identity.to_json(), .fingerprint = "f", .item = 42};
  record.considered = 4;
  record.input = {.name = "sub/caf\xC3\xA9.parquet", .size_bytes = 123, .tail_sha256 = "t", .num_rows = 213, .first_row = 7};
  record.first_row = 205;
  record.num_rows = 5;
  record.tally = {.rows_in = 3, .rows_out = 1, .rows_filtered = 1, .rows_by_error = {{"dns", 2}}, .num_invalid_captions = 6};
  record.tally.num_unported_captions = 8;
  record.tally.failed_rows = {{"dns", {0, 3}}};
  return record;
}

TEST(PartRecord, is_read_as_it_was_written) {
  const PartRecord want = whole_record();
  const auto got = parse_part_record(print_part_record(want));
  ASSERT_TRUE(got.is_ok()) << got.status().to_string();
  EXPECT_EQ(print_part_record(*got), print_part_record(want));
  EXPECT_EQ(got->input.name, want.input.name);
  EXPECT_EQ(got->input.first_row, 7);
  EXPECT_EQ(got->considered, 4);
  EXPECT_EQ(got->tally.failed_rows, want.tally.failed_rows);
}

TEST(PartRecord, a_file_name_of_any_bytes_survives) {
  for (const std::string name : {"a.parquet", "\xFF\xFE", "caf\xE9.parquet", "%41", "name_hex", "\"\\\n", "\xED\xA0\x80"}) {
    PartRecord record = whole_record();
    record.input.name = name;
    EXPECT_EQ(parse_part_record(print_part_record(record))->input.name, name);
  }
}

// As 0.1.0 wrote it.
constexpr const char* kVersion1 =
    R"({"content_hash":"abc","identity":{"fields":{"algorithm_version":2},"inputs_sha256":"i","rows_per_file":5,"verb":"download",)"
    R"("version":1},"input":{"first_row":5,"name":"urls.jsonl","num_rows":3},"invalid_captions":1,"item":1,"job":"j",)"
    R"("rows_by_error":{"dns":1},"rows_in":3,"rows_out":2,"version":1})";

TEST(PartRecord, version_1_is_read) {
  const auto record = parse_part_record(kVersion1);
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  EXPECT_EQ(record->version, 1);
  EXPECT_EQ(record->job, "j");
  EXPECT_EQ(record->item, 1);
  EXPECT_EQ(record->input.name, "urls.jsonl");
  EXPECT_EQ(record->first_row, 5);
  EXPECT_EQ(record->num_rows, 3);
  EXPECT_EQ(record->tally.rows_in, 3);
  EXPECT_EQ(record->tally.rows_by_error, (RowsByError{{"dns", 1}}));
  EXPECT_EQ(record->tally.num_unported_captions, 0);
  EXPECT_EQ(record->content_hash, "abc");
}

TEST(PartRecord, a_later_version_is_refused_by_its_number) {
  nlohmann::json json = nlohmann::json::parse(print_part_record(whole_record()));
  json["version"] = 3;
  const Status status = parse_part_record(json.dump()).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("3"));
}

TEST(PartRecord, what_is_not_whole_is_damaged) {
  const nlohmann::json whole = nlohmann::json::parse(print_part_record(whole_record()));
  for (const auto& [name, unused] : whole.items()) {
    if (name == "rows_filtered" || name == "unported_captions" || name == "failed_rows") {
      continue;  // Absent: none.
    }
    nlohmann::json json = whole;
    json.erase(name);
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << "without " << name;
    json[name] = nlohmann::json::array({"odd"});
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << "odd " << name;
  }
  for (const char* text : {"", "null", "[]", "{", "{}", "7"}) {
    EXPECT_EQ(parse_part_record(text).status().code(), StatusCode::kCorruptData) << text;
  }
  for (const char* name : {"item", "considered", "first_row", "num_rows", "rows_in"}) {
    nlohmann::json json = whole;
    json[name] = -1;
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << name;
  }
  for (const int64_t absurd : {int64_t{1'000'000'001}, INT64_MAX}) {
    nlohmann::json json = whole;
    json["generation"] = absurd;
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << absurd;
    json["generation"] = 1;
    json["retried"] = {{"dns", absurd}};
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << absurd;
  }
  for (const auto& [name, value] : whole.items()) {
    for (const auto& number : {nlohmann::json(2.7), nlohmann::json(1e49), nlohmann::json(UINT64_MAX)}) {
      nlohmann::json json = whole;
      if (value.is_number()) {
        json[name] = number;
        EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << name << " " << number;
      } else if (name == "rows_by_error" || name == "retried") {
        json[name]["dns"] = number;
        EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << name << " " << number;
      } else if (name == "input") {
        for (const char* field : {"size_bytes", "num_rows", "list_row"}) {
          json = whole;
          json[name][field] = number;
          EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << field << " " << number;
        }
      }
    }
  }
  nlohmann::json json = whole;
  json["considered"] = 6;
  EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData);
}

TEST(PartRecord, counts_that_do_not_add_up_are_damaged) {
  const nlohmann::json whole = nlohmann::json::parse(print_part_record(whole_record()));
  for (const char* name : {"rows_in", "rows_out", "rows_filtered", "considered"}) {
    for (const int64_t change : {-1, 1}) {
      nlohmann::json json = whole;
      json[name] = whole[name].get<int64_t>() + change;
      EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << name << " " << change;
    }
  }
  for (const RowsByError& errors : {RowsByError{}, RowsByError{{"dns", 1}}, RowsByError{{"dns", 3}}, RowsByError{{"a", -1}, {"dns", 3}},
                                    RowsByError{{"a", INT64_MAX}, {"b", INT64_MAX}, {"c", 4}}}) {
    nlohmann::json json = whole;
    json["rows_by_error"] = errors;
    EXPECT_EQ(parse_part_record(json.dump()).status().code(), StatusCode::kCorruptData) << json["rows_by_error"];
  }
}

TEST(PackedRows, are_unpacked_as_they_were) {
  std::mt19937_64 random(11);
  for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{
           {}, {0}, {127}, {128}, {0, 1, 2}, {0, 0}, {5, 132, 16'516, 16'516 + 2'097'152}, {INT64_MAX}, {INT64_MAX - 1, INT64_MAX}}) {
    EXPECT_EQ(*unpack_rows(pack_rows(rows)), rows);
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> rows(random() % 50);
    for (int64_t& row : rows) {
      row = static_cast<int64_t>(random() % 1'000'000'000);
    }
    std::sort(rows.begin(), rows.end());
    EXPECT_EQ(*unpack_rows(pack_rows(rows)), rows);
  }
}

TEST(PackedRows, take_a_byte_a_row_where_rows_are_close) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 10'000; row += 3) {
    rows.push_back(row);
  }
  EXPECT_LE(pack_rows(rows).size(), rows.size() * 4 / 3 + 4);
}

TEST(PackedRows, odd_text_is_damaged) {
  for (const char* text : {"A", "AA", "AAA", "????", "gA==", "////////////////", "gICAgICAgICAgIAB", "A===A"}) {
    EXPECT_EQ(unpack_rows(text).status().code(), StatusCode::kCorruptData) << text;
  }
}

}  // namespace
}  // namespace darkroom
