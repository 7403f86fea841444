#include "darkroom/ingest/job_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRowsPerFile = 3;

std::vector<JobInput> inputs_of(const std::vector<int64_t>& rows) {
  std::vector<JobInput> inputs;
  for (const int64_t num_rows : rows) {
    inputs.push_back({.name = fmt::format("f{}", inputs.size()), .num_rows = num_rows});
  }
  number_inputs(inputs, kRowsPerFile);
  return inputs;
}

TEST(WorkItems, never_span_two_files) {
  const auto inputs = inputs_of({0, 7, 0, 0, 3, 6, 0});
  const std::vector<WorkItem> expected = {{.number = 0, .input = 1, .first_row = 0, .num_rows = 3, .whole_rows = 3, .list_row = 0},
                                          {.number = 1, .input = 1, .first_row = 3, .num_rows = 3, .whole_rows = 3, .list_row = 3},
                                          {.number = 2, .input = 1, .first_row = 6, .num_rows = 1, .whole_rows = 1, .list_row = 6},
                                          {.number = 3, .input = 4, .first_row = 0, .num_rows = 3, .whole_rows = 3, .list_row = 7},
                                          {.number = 4, .input = 5, .first_row = 0, .num_rows = 3, .whole_rows = 3, .list_row = 10},
                                          {.number = 5, .input = 5, .first_row = 3, .num_rows = 3, .whole_rows = 3, .list_row = 13}};
  for (const WorkItem& item : expected) {
    EXPECT_EQ(find_item(inputs, kRowsPerFile, item.number), item) << item.number;
  }
}

TEST(WorkItems, one_that_a_limit_cuts_has_another_name) {
  WorkItem item{.number = 42, .num_rows = 300, .whole_rows = 300};
  EXPECT_EQ(item.part_name(), "part-000042.parquet");
  item.num_rows = 299;
  EXPECT_EQ(item.part_name(), "part-000042-r00299.parquet");
}

TEST(ItemFingerprint, changes_with_all_that_decides_the_bytes_and_with_nothing_else) {
  const auto inputs = inputs_of({7, 5});
  const WorkItem item = find_item(inputs, kRowsPerFile, 4);
  const std::string fingerprint = item_fingerprint("job", inputs[1], item);
  JobInput moved = inputs[1];
  moved.path = "/elsewhere";
  WorkItem cut = item;
  cut.num_rows = 1;
  EXPECT_EQ(item_fingerprint("job", moved, cut), fingerprint);
  EXPECT_NE(item_fingerprint("other", inputs[1], item), fingerprint);
  std::vector<JobInput> others(3, inputs[1]);
  others[0].name = "g";
  others[1].size_bytes += 1;
  others[2].tail_sha256 = "x";
  for (const JobInput& other : others) {
    EXPECT_NE(item_fingerprint("job", other, item), fingerprint);
  }
  // Keys are numbers in the list: rows that move there are other rows.
  const auto shifted = inputs_of({8, 5});
  EXPECT_NE(item_fingerprint("job", shifted[1], find_item(shifted, kRowsPerFile, 4)), fingerprint);
  JobInput latin{.name = "caf\xE9"};
  JobInput other_latin{.name = "caf\xE8"};
  EXPECT_NE(item_fingerprint("job", latin, item), item_fingerprint("job", other_latin, item));
}

TEST(JobIdentity, its_hash_changes_with_everything) {
  const JobIdentity identity{.verb = "download", .fields = {{"a", 1}}, .rows_per_file = 3};
  std::vector<JobIdentity> others(3, identity);
  others[0].verb = "process";
  others[1].fields["a"] = 2;
  others[2].rows_per_file = 4;
  for (const JobIdentity& other : others) {
    EXPECT_NE(other.hash(), identity.hash());
  }
}

TEST(JobIdentity, a_refusal_names_what_differs_and_nothing_else) {
  const JobIdentity wants{.verb = "download", .fields = {{"a", 1}, {"b", "x"}, {"same", 3}}, .rows_per_file = 3};
  const nlohmann::json had = {{"version", 1}, {"verb", "download"}, {"rows_per_file", 4}, {"fields", {{"a", 2}, {"c", "y"}, {"same", 3}}}};
  const Status status = refuse_other_job("out", had, wants, {"input x (changed)"});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* part : {"version (had 1, asked for 2)", "rows_per_file (had 4, asked for 3)", "a (had 2, asked for 1)",
                           "b (had null, asked for \"x\")", "c (had \"y\", asked for null)", "input x (changed)", "out"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_THAT(status.message(), Not(HasSubstr("same")));
  EXPECT_THAT(status.message(), Not(HasSubstr("verb (")));
  const std::vector<std::string> many(30, "input f (changed)");
  EXPECT_THAT(refuse_other_job("out", wants.to_json(), wants, many).message(), HasSubstr("and 22 more"));
}

TEST(RowKey, has_twelve_digits) {
  EXPECT_EQ(row_key(0), "000000000000");
  EXPECT_EQ(row_key(1234), "000000001234");
}

}  // namespace
}  // namespace darkroom
