#include "darkroom/tune/trial_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPath = "tuned/trials.jsonl";

nlohmann::ordered_json head(double lr = 0.001) {
  return {{"search", {{"strategy", "halving"}, {"seed", 0}}}, {"recipe", {{"optimizer", {{"lr", lr}}}}}};
}

TunePlan small_plan() {
  return {.unit = "samples",
          .length = 900,
          .rungs = make_rungs(TuneStrategy::kHalving, 3),
          .trials = {{.settings = {}, .batch = 8, .full_steps = 112},
                     {.settings = {{"optimizer.lr", "0.01"}}, .batch = 8, .full_steps = 112},
                     {.settings = {{"batch.global", "7"}}, .batch = 8, .full_steps = 0, .refusal = "does not divide"}}};
}

StageEnd scored(int64_t trial, int64_t rung, double loss) {
  return {.result = {.stage = {trial, rung}, .outcome = StageOutcome::kScored, .loss = loss},
          .step = 37,
          .seconds = 1.5,
          .peak_bytes = 1 << 20,
          .num_sharing = 3};
}

class TrialLedgerTest : public ::testing::Test {
 protected:
  TrialLedgerTest() { EXPECT_TRUE(files_.create_folders("tuned").is_ok()); }

  std::unique_ptr<TrialLedger> open() {
    auto ledger = TrialLedger::open(files_, kPath, head());
    EXPECT_TRUE(ledger.is_ok()) << ledger.status().message();
    return std::move(ledger).value();
  }
  std::string text() { return read_file(files_, kPath).value(); }
  void write(const std::string& bytes) { ASSERT_TRUE(write_file_atomic(files_, kPath, bytes).is_ok()); }
  Status open_failure() { return TrialLedger::open(files_, kPath, head()).status(); }

  // A ledger with everything in it.
  void fill() {
    const auto ledger = open();
    ASSERT_TRUE(ledger->add_speed({.batch = 8, .micro = 4, .steps_per_second = 12.5, .start_seconds = 2.25}, 3).is_ok());
    ASSERT_TRUE(ledger->add_plan(small_plan(), 4).is_ok());
    ASSERT_TRUE(ledger->add_begin({.stage = {0, 0}, .num_sharing = 2}, 5).is_ok());
    ASSERT_TRUE(ledger->add_begin({.stage = {1, 0}, .num_sharing = 2}, 5).is_ok());
    ASSERT_TRUE(ledger->add_end(scored(0, 0, 0.1 + 0.2), 8).is_ok());
    StageEnd refused{.result = {.stage = {2, 0}, .outcome = StageOutcome::kFailed}, .reason = "refused: \"no\"\n\xff"};
    ASSERT_TRUE(ledger->add_end(refused, 8.5).is_ok());
  }

  MemoryFileSystem files_;
};

TEST_F(TrialLedgerTest, reads_back_what_was_written) {
  fill();
  const auto ledger = open();
  const TuneRecord& record = ledger->record();
  EXPECT_THAT(record.speeds, ElementsAre(SpeedRecord{.batch = 8, .micro = 4, .steps_per_second = 12.5, .start_seconds = 2.25}));
  EXPECT_EQ(record.speeds[0].images_per_second(), 100);
  EXPECT_EQ(record.plan, small_plan());
  ASSERT_EQ(record.unfinished.size(), 1U);
  EXPECT_EQ(record.unfinished[0].stage, (Stage{1, 0}));
  EXPECT_EQ(record.unfinished[0].num_sharing, 2);
  EXPECT_EQ(record.ends[0].num_sharing, 3);
  EXPECT_EQ(record.ends[1].num_sharing, 0);  // A refused one, and every one of an earlier program.
  ASSERT_EQ(record.ends.size(), 2U);
  EXPECT_EQ(record.ends[0].result.loss, 0.1 + 0.2);  // The same bits.
  EXPECT_EQ(record.ends[0].step, 37);
  EXPECT_EQ(record.ends[0].peak_bytes, 1 << 20);
  EXPECT_EQ(record.ends[1].result.outcome, StageOutcome::kFailed);
  EXPECT_THAT(record.ends[1].reason, HasSubstr("refused: \"no\"\n"));
  EXPECT_EQ(record.spent_seconds, 8.5);
  EXPECT_FALSE(record.is_out_of_budget);
}

TEST_F(TrialLedgerTest, tells_that_the_budget_was_spent_until_something_follows) {
  fill();
  ASSERT_TRUE(open()->add_close(true, 60).is_ok());
  EXPECT_TRUE(open()->record().is_out_of_budget);
  ASSERT_TRUE(open()->add_begin({.stage = {1, 0}}, 61).is_ok());
  EXPECT_FALSE(open()->record().is_out_of_budget);
  ASSERT_TRUE(open()->add_close(false, 62).is_ok());
  EXPECT_FALSE(open()->record().is_out_of_budget);
}

TEST_F(TrialLedgerTest, wherever_the_file_is_torn_no_whole_line_is_lost) {
  fill();
  const std::string whole = text();
  for (size_t size = 0; size <= whole.size(); ++size) {
    write(whole.substr(0, size));
    const size_t end_of_lines = whole.substr(0, size).rfind('\n') + 1;
    {
      const auto ledger = open();
      const std::string first_lines = end_of_lines == 0 ? whole.substr(0, whole.find('\n') + 1) : whole.substr(0, end_of_lines);
      ASSERT_EQ(text(), first_lines) << size;
      ASSERT_TRUE(ledger->add_close(false, 9).is_ok());
    }
    ASSERT_TRUE(open_failure().is_ok()) << size;
  }
}

TEST_F(TrialLedgerTest, a_damaged_line_is_refused_with_file_and_line) {
  fill();
  const std::string whole = text();
  const size_t second = whole.find('\n') + 1;
  for (const char* bad : {"x", "[]", "{}", "{\"event\":\"speed\",\"spent_seconds\":1}", "{\"event\":\"dance\",\"spent_seconds\":1}",
                          "{\"event\":\"begin\",\"trial\":0,\"rung\":0,\"spent_seconds\":1}", "{\"event\":\"close\",\"why\":\"end\"}"}) {
    write(whole.substr(0, second) + bad + "\n" + whole.substr(second));
    EXPECT_EQ(open_failure().code(), StatusCode::kCorruptData) << bad;
    EXPECT_THAT(open_failure().message(), HasSubstr("tuned/trials.jsonl 2")) << bad;
  }
}

TEST_F(TrialLedgerTest, stages_that_cannot_be_are_refused) {
  fill();
  const std::string whole = text();
  for (const char* bad :
       {R"({"event":"begin","trial":3,"rung":0,"spent_seconds":1})", R"({"event":"begin","trial":0,"rung":2,"spent_seconds":1})",
        R"({"event":"begin","trial":-1,"rung":0,"spent_seconds":1})",
        R"({"event":"begin","trial":18446744073709551615,"rung":0,"spent_seconds":1})",
        R"({"event":"end","trial":0,"rung":0,"outcome":"scored","loss":1,"step":1,"seconds":1,"peak_bytes":0,"spent_seconds":1})",
        R"({"event":"end","trial":1,"rung":0,"outcome":"won","loss":1,"step":1,"seconds":1,"peak_bytes":0,"spent_seconds":1})",
        R"({"event":"end","trial":1,"rung":0,"outcome":"scored","step":1,"seconds":1,"peak_bytes":0,"spent_seconds":1})"}) {
    write(whole + bad + "\n");
    EXPECT_EQ(open_failure().code(), StatusCode::kCorruptData) << bad;
  }
}

TEST_F(TrialLedgerTest, another_search_is_refused_with_what_differs) {
  fill();
  const auto refused = TrialLedger::open(files_, kPath, head(0.002));
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("recipe.optimizer.lr (was 0.001, is 0.002)"));
  EXPECT_THAT(refused.status().message(), HasSubstr(kPath));
}

TEST_F(TrialLedgerTest, a_newer_version_is_refused) {
  write("{\"format_version\":2,\"event\":\"tune\",\"search\":{}}\n");
  EXPECT_EQ(open_failure().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(open_failure().message(), HasSubstr("newer program"));
}

TEST(trial_ledger, differences_name_fields_that_are_new_gone_or_changed) {
  const nlohmann::ordered_json before = {{"a", {{"x", 1}, {"y", "s"}}}, {"old", true}};
  const nlohmann::ordered_json now = {{"a", {{"x", 2}, {"y", "s"}}}, {"new", nlohmann::ordered_json::array({1, 2})}};
  EXPECT_THAT(differing_fields(now, before), ElementsAre("a.x (was 1, is 2)", "new (was absent, is [1,2])", "old (was true, is absent)"));
  EXPECT_THAT(differing_fields(now, now), IsEmpty());
}

TEST(trial_ledger, a_text_without_a_whole_line_is_no_ledger) {
  EXPECT_EQ(read_ledger("", "x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_ledger("{\"format_version\":1", "x").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
