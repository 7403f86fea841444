#include "darkroom/prompts/picture_jobs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

JobFileOptions options_with(uint64_t max_pictures = 10'000) {
  JobFileOptions options;
  options.samplers = {"ddim", "euler"};
  options.max_pictures = max_pictures;
  return options;
}

PictureJobs expand(const std::string& text) {
  auto jobs = expand_picture_jobs(text, "my.toml", options_with());
  EXPECT_TRUE(jobs.is_ok()) << jobs.status().message();
  return jobs.is_ok() ? std::move(jobs).value() : PictureJobs();
}

std::string refused(const std::string& text, uint64_t max_pictures = 10'000) {
  const auto jobs = expand_picture_jobs(text, "my.toml", options_with(max_pictures));
  EXPECT_EQ(jobs.status().code(), StatusCode::kInvalidArgument) << text;
  return jobs.status().message();
}

std::vector<std::string> prompts_of(const PictureJobs& jobs) {
  std::vector<std::string> prompts;
  for (const PlannedPicture& picture : jobs.pictures) {
    prompts.push_back(picture.fields.prompt);
  }
  return prompts;
}

template <typename T>
std::vector<T> all(const PictureJobs& jobs, T PictureFields::*member) {
  std::vector<T> values;
  for (const PlannedPicture& picture : jobs.pictures) {
    values.push_back(picture.fields.*member);
  }
  return values;
}

constexpr const char* kLists = R"(
[lists]
animal = ["cat", "dog"]
place = ["forest", "city", "sea"]
one = ["1", "2"]
)";

TEST(PictureJobs, one_job_is_one_picture_with_the_fields_of_the_file) {
  const PictureJobs jobs = expand(R"(
steps = 20
guidance = 5
[[job]]
prompt = "a red apple"
negative = "blurry"
seed = 7
sampler = "euler"
size = "64x128"
prompt_syntax = "weighted"
long_prompts = "chunks"
guidance_rescale = 0.7
eta = 0.5
init_image = "a.png"
strength = 0.4
steps = 30
)");
  const PictureFields want{.prompt = "a red apple",
                           .negative = "blurry",
                           .seed = 7,
                           .sampler = "euler",
                           .steps = 30,
                           .guidance = 5,
                           .guidance_rescale = 0.7,
                           .eta = 0.5,
                           .width = 64,
                           .height = 128,
                           .prompt_syntax = "weighted",
                           .long_prompts = "chunks",
                           .init_image = "a.png",
                           .strength = 0.4};
  EXPECT_THAT(jobs.pictures, ElementsAre(PlannedPicture{.fields = want}));
  ASSERT_EQ(jobs.jobs.size(), 1U);
  EXPECT_EQ(jobs.jobs[0].name, "job-1");
  EXPECT_EQ(picture_file(jobs.jobs[0], 0), "job-1/00000.png");
}

TEST(PictureJobs, what_the_file_leaves_open_is_the_callers) {
  JobFileOptions options = options_with();
  options.defaults.steps = 3;
  options.defaults.seed = 18'446'744'073'709'551'615U;
  options.defaults.negative = "grey {braces}";
  options.images = 2;
  const PictureJobs jobs = expand_picture_jobs("[[job]]\nprompt = 'a'\n", "my.toml", options).value();
  EXPECT_THAT(all(jobs, &PictureFields::steps), ElementsAre(3, 3));
  EXPECT_THAT(all(jobs, &PictureFields::seed), ElementsAre(18'446'744'073'709'551'615U, 0));  // As --seed and --images count.
  EXPECT_THAT(all(jobs, &PictureFields::negative), ElementsAre("grey {braces}", "grey {braces}"));
  EXPECT_THAT(jobs.fields_set, ElementsAre("prompt"));
}

TEST(PictureJobs, fields_that_the_file_sets_anywhere_are_told) {
  const PictureJobs jobs = expand(R"(
eta = 1
negative_preset = "n"
[negatives]
n = "blurry"
[[job]]
prompt = "a"
seeds = [1, 2]
x = { field = "guidance", values = [1, 2] }
)");
  EXPECT_THAT(jobs.fields_set, ElementsAre("eta", "guidance", "images", "negative", "prompt", "seed"));
  EXPECT_THAT(expand("[negatives]\nn = 'b'\n[[job]]\nprompt = 'a'\nx = {field = 'negative_preset', values = ['n']}").fields_set,
              ElementsAre("negative", "prompt"));
}

TEST(PictureJobs, words_are_combined_in_the_order_of_the_places_the_last_fastest) {
  EXPECT_THAT(
      prompts_of(expand(std::string(kLists) + "[[job]]\nprompt = 'a {animal} in a {place}'")),
      ElementsAre("a cat in a forest", "a cat in a city", "a cat in a sea", "a dog in a forest", "a dog in a city", "a dog in a sea"));
  EXPECT_THAT(
      prompts_of(expand(std::string(kLists) + "[[job]]\nprompt = '{place}: {animal}, {place}'")),
      ElementsAre("forest: cat, forest", "forest: dog, forest", "city: cat, city", "city: dog, city", "sea: cat, sea", "sea: dog, sea"));
}

TEST(PictureJobs, zip_takes_word_i_of_every_list) {
  EXPECT_THAT(prompts_of(expand(std::string(kLists) + "[[job]]\nfill = 'zip'\nprompts = ['{animal} {one}', 'and {one}', 'alone']")),
              ElementsAre("cat 1", "dog 2", "and 1", "and 2", "alone"));
  EXPECT_EQ(refused(std::string(kLists) + "[[job]]\nfill = 'zip'\nprompt = '{animal} {place}'"),
            "my.toml, line 6: [[job]] 1 (job-1): fill = \"zip\" needs lists of one length, but 'animal' has 2 words and 'place' has 3");
  EXPECT_EQ(refused(std::string(kLists) + "fill = 'some'\n[[job]]\nprompt = 'a'"),
            "my.toml, line 6: [lists] fill must be a list that is not empty, got: 'some'");
  EXPECT_THAT(refused("fill = 'some'\n[[job]]\nprompt = 'a'"), HasSubstr("line 1: fill must be one of all, zip, got: 'some'"));
}

TEST(PictureJobs, styles_stand_around_the_prompt_and_join_the_negative_text) {
  const PictureJobs jobs = expand(R"(
negative = "blurry"
[styles.photo]
prefix = "a photo of "
suffix = ", 35 mm"
[styles.oil]
pattern = "oil {{on}} canvas: {prompt}!"
negative = "photo"
[styles.empty]
[[job]]
prompts = ["a cat", "a dog"]
styles = ["photo", "none", "oil", "empty"]
)");
  EXPECT_THAT(prompts_of(jobs), ElementsAre("a photo of a cat, 35 mm", "a cat", "oil {on} canvas: a cat!", "a cat",
                                            "a photo of a dog, 35 mm", "a dog", "oil {on} canvas: a dog!", "a dog"));
  EXPECT_EQ(jobs.pictures[0].fields.negative, "blurry");
  EXPECT_EQ(jobs.pictures[2].fields.negative, "blurry, photo");
  EXPECT_EQ(jobs.pictures[2].style, "oil");
  EXPECT_EQ(jobs.pictures[1].style, "");
  EXPECT_EQ(expand("[styles.a]\nnegative = 'n'\n[[job]]\nstyles = ['a']\nprompt = 'p'").pictures[0].fields.negative, "n");
}

TEST(PictureJobs, order_is_prompts_words_styles_seeds_rows_columns) {
  const PictureJobs jobs = expand(std::string(kLists) + R"(
[styles.s]
prefix = "s "
[[job]]
prompts = ["{animal}", "x"]
styles = ["none", "s"]
seeds = [5, 3]
y = { field = "steps", values = [1, 2] }
x = { field = "guidance", values = [7, 8.5] }
)");
  std::vector<std::string> told;
  for (const PlannedPicture& picture : jobs.pictures) {
    told.push_back(fmt::format("{} {} {} {}", picture.fields.prompt, picture.fields.seed, picture.fields.steps, picture.fields.guidance));
  }
  std::vector<std::string> want;
  for (const char* prompt : {"cat", "s cat", "dog", "s dog", "x", "s x"}) {
    for (const int seed : {5, 3}) {
      for (const int steps : {1, 2}) {
        for (const double guidance : {7.0, 8.5}) {
          want.push_back(fmt::format("{} {} {} {}", prompt, seed, steps, guidance));
        }
      }
    }
  }
  EXPECT_EQ(told, want);
}

TEST(PictureJobs, seeds_are_a_list_a_range_or_as_many_as_images) {
  const auto seeds = [](const std::string& keys) { return all(expand("[[job]]\nprompt = 'a'\n" + keys), &PictureFields::seed); };
  EXPECT_THAT(seeds(""), ElementsAre(0));
  EXPECT_THAT(seeds("seed = 4"), ElementsAre(4));
  EXPECT_THAT(seeds("images = 3"), ElementsAre(0, 1, 2));
  EXPECT_THAT(seeds("seed = 4\nimages = 2"), ElementsAre(4, 5));
  EXPECT_THAT(seeds("seeds = [9, 9, 1]"), ElementsAre(9, 9, 1));
  EXPECT_THAT(seeds("seeds = { start = 10, count = 3 }"), ElementsAre(10, 11, 12));
  EXPECT_THAT(seeds("seeds = { count = 2 }"), ElementsAre(0, 1));
  EXPECT_THAT(seeds("seeds = { start = 9223372036854775807, count = 2 }"),
              ElementsAre(9'223'372'036'854'775'807U, 9'223'372'036'854'775'808U));
}

TEST(PictureJobs, a_job_takes_over_what_the_top_says_and_may_say_otherwise) {
  const std::string top = "prompts = ['a', 'b']\nseeds = [1, 2]\nnegative = 'n'\nwidth = 64\n";
  EXPECT_THAT(prompts_of(expand(top + "[[job]]")), ElementsAre("a", "a", "b", "b"));
  EXPECT_THAT(prompts_of(expand(top + "[[job]]\nprompt = 'c'")), ElementsAre("c", "c"));
  EXPECT_THAT(all(expand(top + "[[job]]\nseed = 7"), &PictureFields::seed), ElementsAre(7, 7));
  EXPECT_THAT(all(expand("images = 2\n[[job]]\nprompt = 'a'\nseed = 7"), &PictureFields::seed), ElementsAre(7, 8));
  EXPECT_THAT(all(expand("images = 2\n[[job]]\nprompt = 'a'\nseeds = [4]"), &PictureFields::seed), ElementsAre(4));
  const PictureJobs jobs =
      expand(top + "[negatives]\np = 'preset'\n[[job]]\nprompt = 'c'\nseed = 1\nimages = 1\nnegative_preset = 'p'\nsize = '32x32'");
  EXPECT_EQ(jobs.pictures[0].fields.negative, "preset");
  EXPECT_EQ(jobs.pictures[0].fields.width, 32U);
}

TEST(PictureJobs, axes_take_any_field) {
  const auto job = [](const std::string& axis) {
    return expand(R"(
[styles.s]
prefix = "s "
[negatives]
bad = "bad {{x}}"
[[job]]
prompt = "a"
x = )" + axis);
  };
  EXPECT_THAT(all(job("{ field = 'seed', values = [3, 1] }"), &PictureFields::seed), ElementsAre(3, 1));
  EXPECT_THAT(all(job("{ field = 'sampler', values = ['ddim', 'euler'] }"), &PictureFields::sampler), ElementsAre("ddim", "euler"));
  EXPECT_THAT(all(job("{ field = 'size', values = ['8x16', '24x8'] }"), &PictureFields::height), ElementsAre(16, 8));
  EXPECT_THAT(all(job("{ field = 'style', values = ['none', 's'] }"), &PictureFields::prompt), ElementsAre("a", "s a"));
  EXPECT_THAT(all(job("{ field = 'prompt', values = ['b', '{{c}}'] }"), &PictureFields::prompt), ElementsAre("b", "{c}"));
  EXPECT_THAT(all(job("{ field = 'negative', values = ['', 'n'] }"), &PictureFields::negative), ElementsAre("", "n"));
  EXPECT_THAT(all(job("{ field = 'negative_preset', values = ['bad'] }"), &PictureFields::negative), ElementsAre("bad {x}"));
  EXPECT_THAT(all(job("{ field = 'init_image', values = ['', 'a.png'] }"), &PictureFields::init_image), ElementsAre("", "a.png"));
  EXPECT_THAT(all(job("{ field = 'eta', values = [0, 0.5] }"), &PictureFields::eta), ElementsAre(0, 0.5));
}

TEST(PictureJobs, an_axis_of_search_and_replace_puts_each_text_for_the_first) {
  const PictureJobs jobs = expand(R"(
negative = "red border"
[styles.s]
suffix = ", red"
[[job]]
prompt = "a red apple"
styles = ["s"]
x = { field = "S/R", values = ["red", "green", ""] }
y = { field = "S/R", values = ["apple", "pear"] }
)");
  EXPECT_THAT(prompts_of(jobs),
              ElementsAre("a red apple, red", "a green apple, green", "a  apple, ", "a red pear, red", "a green pear, green", "a  pear, "));
  EXPECT_EQ(jobs.pictures[1].fields.negative, "green border");
  EXPECT_THAT(jobs.jobs[0].column_titles, ElementsAre("red", "green", ""));
  EXPECT_EQ(
      refused("[[job]]\nprompt = 'a cat'\nx = { field = 'S/R', values = ['dog', 'cow'] }"),
      "my.toml, line 1: [[job]] 1 (job-1): S/R searches for 'dog', which neither prompt nor negative text of a picture has; the prompt: "
      "'a cat'");
  EXPECT_THAT(refused("[[job]]\nprompt = 'a cat'\nx = { field = 'S/R', values = ['', 'cow'] }"),
              HasSubstr("x values of S/R must not search for an empty text"));
  // What the first axis took away the second does not find: a column that shows nothing new is no answer.
  EXPECT_THAT(
      refused("[[job]]\nprompt = 'a red cat'\nx = {field = 'S/R', values = ['red', 'big']}\ny = {field = 'S/R', values = ['red cat', "
              "'dog']}"),
      HasSubstr("searches for 'red cat'"));
}

TEST(PictureJobs, sheets_have_the_axes_else_seeds_else_styles_as_columns) {
  const auto sheet = [](const std::string& job) {
    return expand("[styles.s]\nprefix = 's'\n[styles.t]\nprefix = 't'\n[[job]]\n" + job).jobs[0];
  };
  const PictureJob grid =
      sheet("prompt = 'a'\nimages = 2\nx = {field = 'steps', values = [1, 2, 3]}\ny = {field = 'eta', values = [0, 1]}");
  EXPECT_EQ(grid.num_columns, 3U);
  EXPECT_EQ(grid.num_pictures, 12U);
  EXPECT_THAT(grid.column_titles, ElementsAre("steps 1", "steps 2", "steps 3"));
  EXPECT_THAT(grid.row_titles, ElementsAre("eta 0", "eta 1"));
  EXPECT_TRUE(grid.captions_tell_seed);
  EXPECT_FALSE(grid.captions_tell_prompt);
  const PictureJob seeds = sheet("prompts = ['a', 'b']\nseeds = [4, 2]\nstyles = ['s', 't']");
  EXPECT_THAT(seeds.column_titles, ElementsAre("seed 4", "seed 2"));
  EXPECT_THAT(seeds.row_titles, IsEmpty());
  EXPECT_TRUE(seeds.captions_tell_prompt);
  EXPECT_FALSE(seeds.captions_tell_seed);
  EXPECT_THAT(sheet("prompts = ['a', 'b']\nstyles = ['s', 'none', 't']").column_titles, ElementsAre("s", "no style", "t"));
  const PictureJob square = sheet("prompts = ['a', 'b', 'c', 'd', 'e']");
  EXPECT_EQ(square.num_columns, 3U);
  EXPECT_THAT(square.column_titles, IsEmpty());
}

TEST(PictureJobs, captions_and_headings_tell_what_differs_and_what_does_not) {
  const PictureJobs jobs = expand(
      "steps = 9\n[[job]]\nname = 'both'\nprompts = ['a', 'b']\nimages = 2\nx = {field = 'guidance', values = [1, 2]}\n"
      "[[job]]\nprompt = 'c'\nnegative = 'grey'");
  EXPECT_EQ(picture_caption(jobs.jobs[0], jobs.pictures[3]), "a; seed 1");
  EXPECT_EQ(picture_caption(jobs.jobs[1], jobs.pictures[8]), "");
  EXPECT_EQ(sheet_heading(jobs.jobs[0], std::span(jobs.pictures).first(8)), "both; steps 9");
  EXPECT_EQ(sheet_heading(jobs.jobs[1], std::span(jobs.pictures).subspan(8)), "job-2: c; negative grey; seed 0; steps 9; guidance 7.5");
}

TEST(PictureJobs, words_and_other_texts_hold_no_places) {
  EXPECT_EQ(refused("[lists]\na = ['x', 'y {b}']\nb = ['z']\n[[job]]\nprompt = '{a}'"),
            "my.toml, line 2: [lists] a has a place {b}, which only prompts may have; write {{b}} for the text itself");
  EXPECT_EQ(refused("[lists]\na = ['{a}']\n[[job]]\nprompt = '{a}'"),
            "my.toml, line 2: [lists] a has a place {a}, which only prompts may have; write {{a}} for the text itself");
  EXPECT_THAT(prompts_of(expand("[lists]\na = ['{{a}}']\n[[job]]\nprompt = '{a}'")), ElementsAre("{a}"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nnegative = '{b}'"), HasSubstr("[[job]] 1 (job-1) negative has a place {b}"));
  EXPECT_THAT(refused("[negatives]\nn = '{b}'\n[[job]]\nprompt = 'a'"), HasSubstr("[negatives] n has a place {b}"));
  EXPECT_THAT(refused("[styles.s]\nprefix = '{b}'\n[[job]]\nprompt = 'a'"), HasSubstr("[styles] s prefix has a place {b}"));
}

TEST(PictureJobs, lists_and_styles_that_are_not_there_are_named_with_the_nearest) {
  EXPECT_EQ(refused(std::string(kLists) + "[[job]]\nprompt = 'a {anymal}'"),
            "my.toml, line 7: [[job]] 1 (job-1) prompt names the list 'anymal', which is not there; did you mean 'animal'?");
  EXPECT_EQ(refused("[[job]]\nprompt = 'a {x}'"), "my.toml, line 2: [[job]] 1 (job-1) prompt names the list 'x', which is not there");
  EXPECT_THAT(refused("[styles.photo]\n[[job]]\nprompt = 'a'\nstyles = ['foto']"),
              HasSubstr("styles names the style 'foto', which is not there; did you mean 'photo'?"));
  EXPECT_THAT(refused("[negatives]\nbad = 'x'\n[[job]]\nprompt = 'a'\nnegative_preset = 'bat'"),
              HasSubstr("names the preset 'bat', which is not there; did you mean 'bad'?"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nx = {field = 'style', values = ['s']}"),
              HasSubstr("[[job]] 1 (job-1) x values names the style 's'"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nx = {field = 'negative_preset', values = ['s']}"), HasSubstr("names the preset 's'"));
}

TEST(PictureJobs, keys_that_nobody_knows_are_named_with_the_nearest) {
  EXPECT_EQ(refused("stepps = 3\n[[job]]\nprompt = 'a'"), "my.toml, line 1: there is no field 'stepps'; did you mean 'steps'?");
  EXPECT_EQ(refused("[[job]]\nname = 'n'\nprompt = 'a'\n[[job]]\npromt = 'a'\nprompt = 'b'\n"),
            "my.toml, line 5: [[job]] 2 (job-2): there is no field 'promt'; did you mean 'prompt'?");
  EXPECT_THAT(refused("[[job]]\npromt = 'a'"), HasSubstr("there is no field 'promt'; did you mean 'prompt'?"));
  EXPECT_THAT(refused("[style.a]\n[[job]]\nprompt = 'a'"), HasSubstr("there is no field 'style'; did you mean 'styles'?"));
  EXPECT_THAT(refused("[styles.a]\nprefx = 'a'\n[[job]]\nprompt = 'a'"),
              HasSubstr("[styles] a: there is no field 'prefx'; did you mean 'prefix'?"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nx = {feld = 'eta', field = 'eta', values = [1]}"), HasSubstr("did you mean 'field'?"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nseeds = {count = 1, end = 2}"),
              HasSubstr("[[job]] 1 (job-1) seeds: there is no field 'end'"));
}

TEST(PictureJobs, bad_values_are_named_with_file_line_job_key_and_value) {
  const struct {
    std::string keys;
    std::string message;
  } cases[] = {
      {"steps = 0", "steps must be a whole number from 1 to 1000000, got: 0"},
      {"steps = '3'", "steps must be a whole number from 1 to 1000000, got: '3'"},
      {"guidance = true", "guidance must be a number or a text in quotes, got: true"},
      {"guidance = nan", "guidance must be a number, got: nan"},
      {"sampler = 'eular'", "sampler must be one of ddim, euler, got: 'eular'"},
      {"seed = -1", "seed must be a whole number from 0, got: -1"},
      {"images = 0", "images must be a whole number from 1 to 4294967296, got: 0"},
      {"seeds = []", "seeds must be a list that is not empty, got: []"},
      {"seeds = [1, -1]", "seeds must be whole numbers from 0, or { start = 0, count = 4 }, got: -1"},
      {"seeds = {start = 1}", "seeds count is missing"},
      {"seeds = {count = 0}", "seeds count must be a whole number from 1 to 4294967296, got: 0"},
      {"seeds = 7", "seeds must be a list that is not empty, got: 7"},
      {"styles = []", "styles must be a list that is not empty, got: []"},
      {"styles = [1]", "styles must be a list of texts in quotes, got: 1"},
      {"styles = ['none', 'none']", "styles names 'none' twice"},
      {"size = '64'", "size must be a size in quotes such as \"512x768\", got: '64'"},
      {"negative = 3", "negative must be a text in quotes, got: 3"},
      {"name = 'a/b'", "name must be 1 to 64 letters, digits, - and _, and begin with a letter or digit, because it becomes a folder"},
      {"x = 3", "x must be a table, got: 3"},
      {"x = {values = [1]}", "x field is missing"},
      {"x = {field = 'eta'}", "x values is missing"},
      {"x = {field = 'eta', values = []}", "x values must be a list that is not empty, got: []"},
      {"x = {field = 'eta', values = [2]}", "x values of eta must be a number from 0 to 1, got: 2"},
      {"x = {field = 'eta', values = [[1]]}", "x values must be a number or a text in quotes, got: [ 1 ]"},
      {"x = {field = 'style', values = [1]}", "x values of style must be texts in quotes, got: 1"},
      {"x = {field = 'S/R', values = ['{b}']}", "x values has a place {b}, which only prompts may have; write {{b}} for the text itself"},
      {"y = {field = 'eta', values = [1]}", "y stands without x; a grid of one axis has the axis x"},
      {"x = {field = 'eta', values = [1]}\ny = {field = 'eta', values = [0]}", "y varies a field of x: eta"},
      {"x = {field = 'size', values = ['8x8']}\ny = {field = 'width', values = [8]}", "y varies a field of x: size"},
      {"x = {field = 'height', values = [8]}\ny = {field = 'size', values = ['8x8']}", "y varies a field of x: height"},
      {"x = {field = 'negative', values = ['a']}\ny = {field = 'negative', values = ['b']}", "y varies a field of x: negative"},
      {"styles = ['none', 'none2']\nx = {field = 'style', values = ['none']}", "styles names the style 'none2', which is not there"},
      {"images = 2\nx = {field = 'seed', values = [1]}",
       "x and y cannot vary the seed of a job with several seeds or images; set images = 1"},
  };
  for (const auto& [keys, message] : cases) {
    EXPECT_THAT(refused("[[job]]\nprompt = 'a'\n" + keys),
                testing::AllOf(StartsWith("my.toml, line "), HasSubstr("[[job]] 1 ("), testing::EndsWith(message)))
        << keys;
  }
  EXPECT_EQ(refused("[[job]]\nprompt = 'a'\nname = 'apples'\nsteps = 0"),
            "my.toml, line 4: [[job]] 1 (apples) steps must be a whole number from 1 to 1000000, got: 0");
  EXPECT_EQ(refused("[[job]]"),
            "my.toml, line 1: [[job]] 1 (job-1) prompt is missing: give prompt or prompts, here or at the top of the file");
  EXPECT_EQ(refused("[[job]]\nprompt = 3"), "my.toml, line 2: [[job]] 1 (job-1) prompt must be a text in quotes, got: 3");
  EXPECT_EQ(refused("[[job]]\nprompts = []"), "my.toml, line 2: [[job]] 1 (job-1) prompts must be a list that is not empty, got: []");
  EXPECT_THAT(refused("[[job]]\nprompt = 'a {b'"), HasSubstr("prompt has a '{' at character 3 that stands alone"));
}

TEST(PictureJobs, an_axis_over_what_the_job_has_several_of_is_refused) {
  EXPECT_THAT(refused("[styles.s]\n[[job]]\nprompt = 'a'\nstyles = ['s', 'none']\nx = {field = 'style', values = ['s']}"),
              HasSubstr("x and y cannot vary the style of a job with several styles"));
  EXPECT_THAT(refused("[[job]]\nprompts = ['a', 'b']\nx = {field = 'prompt', values = ['c']}"),
              HasSubstr("x and y cannot vary the prompt of a job with several prompts or lists"));
  EXPECT_THAT(refused(std::string(kLists) + "[[job]]\nprompt = '{one}'\nx = {field = 'prompt', values = ['c']}"),
              HasSubstr("x and y cannot vary the prompt of a job with several prompts or lists"));
  EXPECT_THAT(
      refused(
          "[negatives]\nn = 'b'\n[[job]]\nprompt = 'a'\nx = {field = 'negative', values = ['c']}\ny = {field = 'negative_preset', values = "
          "['n']}"),
      HasSubstr("y varies a field of x: negative"));
  EXPECT_THAT(prompts_of(expand("[[job]]\nx = {field = 'prompt', values = ['c', 'd']}")), ElementsAre("c", "d"));
}

TEST(PictureJobs, two_ways_to_say_one_thing_are_refused) {
  for (const auto& [keys, key] : {std::pair("prompt = 'a'\nprompts = ['b']", "prompt stands beside prompts"),
                                  std::pair("prompt = 'a'\nseed = 1\nseeds = [1]", "seeds stands beside seed or images"),
                                  std::pair("prompt = 'a'\nimages = 1\nseeds = [1]", "seeds stands beside seed or images"),
                                  std::pair("prompt = 'a'\nnegative = ''\nnegative_preset = 'n'", "negative stands beside negative_preset"),
                                  std::pair("prompt = 'a'\nsize = '8x8'\nwidth = 8", "size stands beside width or height")}) {
    EXPECT_THAT(refused(std::string("[[job]]\n") + keys), HasSubstr(key));
  }
  EXPECT_THAT(refused("[styles.s]\npattern = '{prompt}'\nprefix = 'a'\n[[job]]\nprompt = 'a'"),
              HasSubstr("pattern stands beside prefix or suffix"));
}

TEST(PictureJobs, patterns_of_styles_have_the_prompt_once) {
  for (const char* pattern : {"a", "{prompt} {prompt}", "{prompt} {artist}", "{artist}", "{{prompt}}"}) {
    EXPECT_THAT(refused(fmt::format("[styles.s]\npattern = '{}'\n[[job]]\nprompt = 'a'", pattern)),
                HasSubstr("[styles] s pattern must have the place {prompt}, once"))
        << pattern;
  }
  EXPECT_THAT(refused("[styles.none]\n[[job]]\nprompt = 'a'"), HasSubstr("must not be the name of a style"));
}

TEST(PictureJobs, names_of_jobs_are_unlike_also_without_capitals) {
  EXPECT_THAT(refused("[[job]]\nname = 'a'\nprompt = 'a'\n[[job]]\nname = 'A'\nprompt = 'b'"),
              HasSubstr("[[job]] 2 (A) name is that of an earlier job"));
  EXPECT_THAT(refused("[[job]]\nname = 'job-2'\nprompt = 'a'\n[[job]]\nprompt = 'b'"),
              HasSubstr("[[job]] 2 (job-2) name is that of an earlier job"));
  EXPECT_THAT(refused("[[job]]\nname = '_tmp'\nprompt = 'a'"), HasSubstr("name must be"));
  EXPECT_THAT(refused("[[job]]\nname = '..'\nprompt = 'a'"), HasSubstr("name must be"));
  EXPECT_THAT(refused("[[job]]\nname = 'é'\nprompt = 'a'"), HasSubstr("name must be"));
  EXPECT_THAT(refused("[lists]\nprompt = ['a']\n[[job]]\nprompt = 'a'"), HasSubstr("[lists] prompt must be called by"));
}

TEST(PictureJobs, what_is_no_job_file_is_refused) {
  EXPECT_THAT(refused("[[job]]\nprompt = 'a"), StartsWith("my.toml, line 2, column "));
  EXPECT_THAT(refused("prompt = 'a'\nprompt = 'b'"), HasSubstr("line 2"));
  EXPECT_THAT(refused(""), HasSubstr("there is no [[job]]"));
  EXPECT_THAT(refused("steps = 3"), HasSubstr("there is no [[job]]"));
  EXPECT_THAT(refused("job = 3"), HasSubstr("job must be tables ([[job]]), got: 3"));
  EXPECT_THAT(refused("lists = 3\n[[job]]\nprompt = 'a'"), HasSubstr("lists must be a table, got: 3"));
  EXPECT_THAT(refused("version = 2\n[[job]]\nprompt = 'a'"), HasSubstr("version must be 1"));
  EXPECT_THAT(prompts_of(expand("version = 1\n[job]\nprompt = 'a'")), ElementsAre("a"));
}

TEST(PictureJobs, weights_are_checked_before_anything_is_painted) {
  EXPECT_THAT(refused("prompt_syntax = 'weighted'\n[[job]]\nprompt = 'a (cat:1.2.3)'"),
              testing::AllOf(HasSubstr("[[job]] 1 (job-1): the prompt 'a (cat:1.2.3)'"), HasSubstr("1.2.3")));
  EXPECT_THAT(refused("prompt_syntax = 'weighted'\n[[job]]\nprompt = 'a'\nnegative = '(b:1.2.3)'"),
              HasSubstr("the negative text '(b:1.2.3)'"));
  EXPECT_EQ(expand("[[job]]\nprompt = 'a (cat:1.2.3)'").pictures.size(), 1U);
}

TEST(PictureJobs, more_pictures_than_allowed_are_refused_with_their_number) {
  const std::string two = std::string(kLists) + "[[job]]\nprompt = 'a'\n[[job]]\nname = 'many'\nprompt = '{animal} {place}'\nimages = ";
  EXPECT_EQ(
      refused(two + "1000000"),
      "my.toml asks for 6000001 pictures, more than the 10000 that --max-pictures allows; most are of my.toml, line 8: [[job]] 2 (many): "
      "6000000");
  EXPECT_THAT(refused(two + "1", 6), StartsWith("my.toml asks for 7 pictures, more than the 6 that"));
  EXPECT_EQ(expand_picture_jobs(two + "1", "my.toml", options_with(7))->pictures.size(), 7U);
}

TEST(PictureJobs, numbers_that_nobody_can_count_are_refused_without_making_a_picture) {
  std::string text = "[lists]\na = [";
  for (int i = 0; i < 1000; ++i) {
    text += "'w', ";
  }
  text += "]\n";
  for (char name = 'b'; name <= 'h'; ++name) {
    text += fmt::format("{} = ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10']\n", name);
  }
  text += "[[job]]\nprompt = '{a}{b}{c}{d}{e}{f}{g}{h}'\nseeds = {count = 4294967296}\n[[job]]\nprompt = '{a}'\n";
  EXPECT_THAT(refused(text),
              AllOf(StartsWith("my.toml asks for uncountably many pictures, more than the 10000"), HasSubstr("(job-1): uncountably many")));
}

TEST(PictureJobs, prompts_are_bounded_once_they_are_filled) {
  const std::string half(40'000, 'x');
  EXPECT_THAT(refused("[lists]\na = ['" + half + "']\n[[job]]\nprompt = '{a}{a}'"), HasSubstr("a prompt has more than 65536 bytes: 80000"));
  EXPECT_THAT(refused("[styles.s]\nprefix = '" + half + "'\n[[job]]\nstyles = ['s']\nprompt = '" + half + "'"),
              HasSubstr("a prompt has more than 65536 bytes"));
  EXPECT_THAT(refused("[[job]]\nprompt = '" + half + "'\nx = {field = 'S/R', values = ['x', '" + half + "']}"),
              HasSubstr("a prompt has more than 65536 bytes"));
  EXPECT_THAT(refused("[[job]]\nprompt = 'a'\nnegative = '" + half + half + "'"), HasSubstr("negative has more than 65536 bytes: 80000"));
}

TEST(PictureJobs, unicode_comes_through) {
  const PictureJobs jobs = expand("[lists]\ntier = ['Bär', '熊', '🐻']\n[[job]]\nprompt = 'ein {tier} – “groß”'\nnegative = 'häßlich'");
  EXPECT_THAT(prompts_of(jobs), ElementsAre("ein Bär – “groß”", "ein 熊 – “groß”", "ein 🐻 – “groß”"));
  EXPECT_EQ(jobs.pictures[0].fields.negative, "häßlich");
}

TEST(PictureJobs, a_hundred_thousand_pictures_are_made_in_the_order_of_the_file) {
  std::string words = "[lists]\nn = [";
  for (int i = 0; i < 1000; ++i) {
    words += fmt::format("'{}', ", i);
  }
  const auto jobs =
      expand_picture_jobs(words + "]\n[[job]]\nprompt = 'number {n}'\nimages = 100", "my.toml", options_with(100'000)).value();
  ASSERT_EQ(jobs.pictures.size(), 100'000U);
  EXPECT_EQ(jobs.pictures[12'345].fields.prompt, "number 123");
  EXPECT_EQ(jobs.pictures[12'345].fields.seed, 45U);
  EXPECT_EQ(picture_file(jobs.jobs[0], 99'999), "job-1/99999.png");
  EXPECT_EQ(picture_file(jobs.jobs[0], 100'000), "job-1/100000.png");
}

TEST(PictureJobs, ten_thousand_jobs_share_what_the_top_of_the_file_says) {
  std::string text = "prompts = [";
  for (int i = 0; i < 5'000; ++i) {
    text += "'" + std::string(100, 'p') + "', ";
  }
  text += "]\n";
  for (int i = 0; i < 10'000; ++i) {
    text += "[[job]]\nprompt = 'a'\n";
  }
  EXPECT_EQ(expand(text).pictures.size(), 10'000U);  // A copy per job would take 5 GB.
}

}  // namespace
}  // namespace darkroom
