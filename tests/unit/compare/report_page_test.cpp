#include "compare/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/image/png.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostile = "</script><b>&";

CompareRecord hostile_record() {
  CompareJob job;
  job.a = {.model = kHostile, .weights = "all", .identity = "11"};
  job.b = {.model = "models/b", .weights = "all", .identity = "22"};
  job.num_seeds = 2;
  return {.settings = compared_settings(job, {kHostile, "two"}), .shared = {.sampler = "ddim", .width = 8, .height = 8}};
}

Json measure(const char* name, const char* preference, bool higher_is_better, const Json& low, const Json& high) {
  return {{"name", name},
          {"label", std::string(name) + " label"},
          {"unit", "dB"},
          {"higher_is_better", higher_is_better},
          {"a", 12.5},
          {"b", 10.0},
          {"difference", 2.5},
          {"low", low},
          {"high", high},
          {"p", 0.0005},
          {"p_adjusted", low.is_null() ? Json() : Json(0.0005)},
          {"num_prompts", 2},
          {"preference", preference}};
}

Json some_report() {
  Json settings = hostile_record().settings;
  settings.erase("prompts");
  const Json score = {{"prompt", kHostile}, {"between_psnr", 20.0}, {"between_palette", 3.0}};
  Json with_reference = score;
  for (const char* name : {"psnr", "palette", "top1", "top5"}) {
    with_reference[name] = {11.0, 9.0};
  }
  return {{"settings", settings},
          {"num_prompts", 2},
          {"num_seeds", 2},
          {"num_references", 3},
          {"num_identical", 1},
          {"error_rate", 0.05},
          {"num_resamples", 2000},
          {"notes", {"a note"}},
          {"verdict", {{"preferred", "A"}, {"decided_by", "psnr"}, {"contradictory", false}, {"text", "A is better."}}},
          {"between", {{{"label", "PSNR of both"}, {"unit", "dB"}, {"value", 20.0}, {"low", 19.0}, {"high", 21.0}}}},
          {"measures", {measure("psnr", "A", true, 1.0, 4.0), measure("fid", "none", false, nullptr, nullptr)}},
          {"prompts", {with_reference, score}}};
}

// Pictures of one colour a side.
void write_pictures(FileSystem& files, const CompareRecord& record) {
  for (size_t prompt = 0; prompt < 2; ++prompt) {
    for (size_t seed = 0; seed < 2; ++seed) {
      for (const Side side : kSides) {
        const Image picture = Image::filled(8, 8, 3, side == Side::kA ? 50 : 200);
        ASSERT_TRUE(write_file_atomic(files, picture_path("out", side, prompt, seed), encode_png(picture, {{"model", "secret"}})).is_ok());
      }
    }
  }
  ASSERT_TRUE(write_file_atomic(files, reference_path("out", 1), encode_png(Image::filled(8, 8, 3, 100))).is_ok());
  ASSERT_EQ(record.shared.width, 8);
}

TEST(ComparePage, says_what_the_report_says_and_escapes_it) {
  MemoryFileSystem files;
  write_pictures(files, hostile_record());
  const auto shown = read_shown_prompts(files, "out", hostile_record());
  ASSERT_TRUE(shown.is_ok()) << shown.status().to_string();
  const std::string page = render_compare_page(some_report(), *shown);
  for (const char* words :
       {"A is better.", "psnr label", "+2.5", "+1 to +4", "&lt; 0.001", "decides nothing", "a note", "20 dB", "vote.html"}) {
    EXPECT_THAT(page, HasSubstr(words));
  }
  EXPECT_THAT(page, Not(HasSubstr("</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<b>&<")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(ComparePage, puts_better_a_to_the_right_whichever_way_a_measure_goes) {
  Json report = some_report();
  report["measures"] = {measure("higher", "A", true, 1.0, 4.0), measure("lower", "B", false, 1.0, 4.0)};
  const std::string page = render_compare_page(report, {});
  // 240 wide, 0 in the middle, the farthest end 112 from it.
  EXPECT_THAT(page, HasSubstr("x1=\"148.0\" x2=\"232.0\""));
  EXPECT_THAT(page, HasSubstr("x1=\"8.0\" x2=\"92.0\""));
}

TEST(ComparePage, tells_of_votes_once_there_are_some) {
  Json report = some_report();
  report["votes"] = {{"num_voters", 2},    {"num_votes", 30}, {"for_a", 9},    {"for_b", 1}, {"undecided", 5},
                     {"share_for_a", 0.9}, {"low", 0.555},    {"high", 0.997}, {"p", 0.021}, {"preference", "A"}};
  const std::string page = render_compare_page(report, {});
  EXPECT_THAT(page, HasSubstr("9, 1, 5"));
  EXPECT_THAT(page, HasSubstr("90 % (interval 55.5 % to 99.7 %)"));
  report["votes"]["share_for_a"] = nullptr;
  EXPECT_THAT(render_compare_page(report, {}), HasSubstr("nobody decided"));
}

TEST(ComparePage, without_measures_says_what_they_would_take) {
  Json report = some_report();
  report["measures"] = Json::array();
  EXPECT_THAT(render_compare_page(report, {}), HasSubstr("--references"));
}

TEST(CompareSheet, has_a_row_a_prompt_and_a_column_a_picture) {
  MemoryFileSystem files;
  write_pictures(files, hostile_record());
  const auto shown = read_shown_prompts(files, "out", hostile_record());
  const Image sheet = draw_compare_sheet(*shown, hostile_record());
  EXPECT_GT(sheet.width, 5 * 128);  // The reference, and A and B of two seeds.
  EXPECT_LT(sheet.width, 6 * 160);
  EXPECT_GT(sheet.height, 2 * 128);
}

TEST(VotePage, says_nowhere_whose_picture_is_which) {
  MemoryFileSystem files;
  const CompareRecord record = hostile_record();
  write_pictures(files, record);
  const auto page = render_vote_page(files, "out", record, {{.prompt = 1, .a_is_left = false}, {.prompt = 0, .a_is_left = true}});
  ASSERT_TRUE(page.is_ok()) << page.status().to_string();
  EXPECT_THAT(*page, Not(HasSubstr("secret")));
  EXPECT_THAT(*page, Not(HasSubstr("models/b")));
  EXPECT_THAT(*page, Not(HasSubstr("pictures/a")));
  EXPECT_THAT(*page, HasSubstr("\"" + record.id() + "\""));
  EXPECT_THAT(*page, HasSubstr("\\u003c/script>\\u003cb>&"));
  const size_t begin = page->find("const ballots = ") + 16;
  const Json ballots = Json::parse(page->substr(begin, page->find(";\n", begin) - begin));
  ASSERT_EQ(ballots.size(), 2U);
  EXPECT_EQ(ballots[0]["prompt"], "two");
  EXPECT_EQ(ballots[0]["right"], ballots[1]["left"]);
  EXPECT_NE(ballots[0]["left"], ballots[0]["right"]);
}

TEST(VotePage, a_damaged_picture_is_named) {
  MemoryFileSystem files;
  write_pictures(files, hostile_record());
  const std::string path = picture_path("out", Side::kB, 0, 0);
  ASSERT_TRUE(write_file_atomic(files, path, encode_png(Image::filled(8, 9, 3, 1))).is_ok());
  const auto page = render_vote_page(files, "out", hostile_record(), {{.prompt = 0, .a_is_left = true}});
  ASSERT_FALSE(page.is_ok());
  EXPECT_EQ(page.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(page.status().message(), HasSubstr(path));
}

}  // namespace
}  // namespace darkroom
