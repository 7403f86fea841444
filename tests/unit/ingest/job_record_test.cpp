#include "darkroom/ingest/job_record.h"

#include <gtest/gtest.h>

#include "support/download_web.h"

namespace darkroom {
namespace {

JobRecord record_of(const std::vector<int64_t>& rows, int64_t rows_per_file) {
  JobRecord record{.verb = "download", .fields = {{"a", 1}}, .inputs = {}, .rows_per_file = rows_per_file};
  int64_t first_row = 0;
  for (const int64_t num_rows : rows) {
    JobInput input;
    input.path = "x";
    input.name = fmt::format("f{}", record.inputs.size());  // GCC 12 warns of "f" + to_string() wrongly.
    input.num_rows = num_rows;
    input.first_row = first_row;
    record.inputs.push_back(input);
    first_row += num_rows;
  }
  return record;
}

TEST(JobRecord, an_item_never_spans_two_files) {
  const auto items = record_of({7, 0, 3, 6}, 3).items();
  const std::vector<std::array<int64_t, 4>> expected = {{0, 0, 3, 0}, {0, 3, 3, 3},  {0, 6, 1, 6},
                                                        {2, 0, 3, 7}, {3, 0, 3, 10}, {3, 3, 3, 13}};
  ASSERT_EQ(items.size(), expected.size());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].number, static_cast<int64_t>(i));
    const std::array<int64_t, 4> got = {static_cast<int64_t>(items[i].input), items[i].first_row, items[i].num_rows, items[i].list_row};
    EXPECT_EQ(got, expected[i]);
  }
}

TEST(JobRecord, a_limit_cuts_the_last_item_and_shifts_none) {
  const JobRecord record = record_of({7, 5}, 3);
  for (int64_t limit = 0; limit <= 13; ++limit) {
    const auto items = record.items(limit);
    int64_t num_rows = 0;
    for (const WorkItem& item : items) {
      EXPECT_EQ(item.list_row, record.items()[item.number].list_row);
      num_rows += item.num_rows;
    }
    EXPECT_EQ(num_rows, std::min<int64_t>(limit, 12));
  }
}

TEST(JobRecord, no_inputs_give_no_items) { EXPECT_TRUE(record_of({}, 3).items().empty()); }

TEST(JobRecord, the_fingerprint_changes_with_everything_but_paths) {
  const JobRecord record = record_of({7, 5}, 3);
  JobRecord moved = record;
  moved.inputs[0].path = "/elsewhere";
  EXPECT_EQ(moved.fingerprint(), record.fingerprint());
  std::vector<JobRecord> others(6, record);
  others[0].verb = "process";
  others[1].fields["a"] = 2;
  others[2].rows_per_file = 4;
  others[3].inputs[1].size_bytes = 1;
  others[4].inputs[1].edges_sha256 = "x";
  std::swap(others[5].inputs[0], others[5].inputs[1]);
  for (const JobRecord& other : others) {
    EXPECT_NE(other.fingerprint(), record.fingerprint());
  }
}

TEST(RowKey, has_twelve_digits) {
  EXPECT_EQ(row_key(0), "000000000000");
  EXPECT_EQ(row_key(1234), "000000001234");
  EXPECT_EQ(part_name(42), "part-000042.parquet");
  EXPECT_EQ(part_name(1234567), "part-1234567.parquet");
}

class PinInputs : public ::testing::Test {
 protected:
  PinInputs() {
    std::filesystem::create_directories(folder_.path("in/deep"));
    write_bytes(folder_.path("in/b.csv"), "url,caption\n1,2\n");
    write_bytes(folder_.path("in/a.csv"), "url,caption\n1,2\n3,4\n");
    write_bytes(folder_.path("in/deep/c.csv"), "url,caption\n");
  }
  std::vector<JobInput> pin(const std::vector<std::string>& uris) {
    auto inputs = pin_inputs(local_files(), uris, folder_.path("out"));
    EXPECT_TRUE(inputs.is_ok()) << inputs.status().to_string();
    return *inputs;
  }
  TemporaryFolder folder_;
};

TEST_F(PinInputs, lists_files_in_byte_order_with_names_relative_to_what_was_asked_for) {
  const auto inputs = pin({folder_.path("in")});
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[0].name, "a.csv");
  EXPECT_EQ(inputs[1].name, "b.csv");
  EXPECT_EQ(inputs[2].name, "deep/c.csv");
  EXPECT_EQ(inputs[0].num_rows, 2);
  EXPECT_EQ(inputs[1].first_row, 2);
  EXPECT_EQ(inputs[2].num_rows, 0);
}

TEST_F(PinInputs, a_file_named_twice_counts_once) {
  EXPECT_EQ(pin({folder_.path("in/a.csv"), folder_.path("in"), folder_.path("in/*.csv")}).size(), 3u);
}

TEST_F(PinInputs, a_folder_with_a_slash_a_pattern_and_a_file_name_alike) {
  EXPECT_EQ(pin({folder_.path("in/")})[0].name, "a.csv");
  EXPECT_EQ(pin({folder_.path("in/*.csv")})[0].name, "a.csv");
  EXPECT_EQ(pin({folder_.path("in/a.csv")})[0].name, "a.csv");
}

TEST_F(PinInputs, nothing_there_is_not_found) {
  EXPECT_EQ(pin_inputs(local_files(), {folder_.path("nowhere")}, folder_.path("out")).status().code(), StatusCode::kNotFound);
}

TEST_F(PinInputs, a_damaged_job_file_says_that_it_may_be_deleted) {
  std::filesystem::create_directory(folder_.path("out"));
  write_bytes(folder_.path("out/_job.json"), "{");
  const Status status = pin_inputs(local_files(), {folder_.path("in")}, folder_.path("out")).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("delete it"), std::string::npos);
}

}  // namespace
}  // namespace darkroom
