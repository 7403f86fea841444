#include "compare/comparison_record.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CompareJob some_job() {
  CompareJob job;
  job.a = {.model = "models/a", .weights = "all", .identity = "1111"};
  job.b = {.model = "models/b", .weights = "all", .identity = "2222"};
  job.output = "out";
  return job;
}

CompareRecord some_record() {
  return {.settings = compared_settings(some_job(), {"a cat", ""}), .shared = {.sampler = "ddim", .width = 64, .height = 32}};
}

void write(FileSystem& files, const std::string& path, const std::string& text) {
  ASSERT_TRUE(write_file_atomic(files, path, text).is_ok());
}

void expect_refused(const Status& status, StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code);
  EXPECT_THAT(status.message(), HasSubstr(words));
}

TEST(ComparedPrompts, are_the_lines_of_a_file) {
  MemoryFileSystem files;
  write(files, "p.txt", "a cat\r\n\na dog");
  EXPECT_THAT(*read_compared_prompts(files, "p.txt"), ElementsAre("a cat", "", "a dog"));
}

TEST(ComparedPrompts, must_be_there_once_and_in_utf8) {
  MemoryFileSystem files;
  write(files, "none.txt", "");
  expect_refused(read_compared_prompts(files, "none.txt").status(), StatusCode::kInvalidArgument, "none.txt");
  write(files, "twice.txt", "a\nb\na\n");
  expect_refused(read_compared_prompts(files, "twice.txt").status(), StatusCode::kInvalidArgument, "twice.txt 1 and 3 a");
  write(files, "latin.txt", "a\ncaf\xe9\n");
  expect_refused(read_compared_prompts(files, "latin.txt").status(), StatusCode::kInvalidArgument, "latin.txt 2");
  EXPECT_EQ(read_compared_prompts(files, "gone.txt").status().code(), StatusCode::kNotFound);
}

TEST(CompareRecord, is_read_as_it_was_written) {
  MemoryFileSystem files;
  const CompareRecord record = some_record();
  ASSERT_TRUE(write_compare_record(files, "out", record).is_ok());
  const auto found = find_compare_record(files, "out");
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->settings, record.settings);
  EXPECT_EQ((*found)->shared, record.shared);
  EXPECT_EQ((*found)->id(), record.id());
  EXPECT_TRUE(check_same_settings(**found, record.settings, "out").is_ok());
}

TEST(CompareRecord, is_the_same_whatever_the_models_are_called) {
  CompareJob moved = some_job();
  moved.a.model = "elsewhere/a";
  const auto settings = compared_settings(moved, {"a cat", ""});
  EXPECT_TRUE(check_same_settings(some_record(), settings, "out").is_ok());
  EXPECT_EQ((CompareRecord{.settings = settings}).id(), some_record().id());
}

TEST(CompareRecord, names_what_differs) {
  const auto refused = [](const CompareJob& job, const std::vector<std::string>& prompts, const std::string& words) {
    expect_refused(check_same_settings(some_record(), compared_settings(job, prompts), "out"), StatusCode::kFailedPrecondition, words);
    EXPECT_NE((CompareRecord{.settings = compared_settings(job, prompts)}).id(), some_record().id());
  };
  const std::vector<std::string> prompts = {"a cat", ""};
  CompareJob job = some_job();
  job.b.identity = "3333";
  refused(job, prompts, "out models/b models/b");
  job = some_job();
  job.request.guidance = 2;
  refused(job, prompts, "guidance 7.5 2.0");
  job = some_job();
  job.threads = 2;
  refused(job, prompts, "threads 1 2");
  refused(some_job(), {"a cat"}, "prompts 2 prompts 1 prompts");
}

TEST(CompareRecord, is_looked_for_in_new_and_empty_folders_only) {
  MemoryFileSystem files;
  EXPECT_FALSE(find_compare_record(files, "new")->has_value());
  ASSERT_TRUE(files.create_folders("empty").is_ok());
  EXPECT_FALSE(find_compare_record(files, "empty")->has_value());
  write(files, "full/thing.txt", "x");
  expect_refused(find_compare_record(files, "full").status(), StatusCode::kFailedPrecondition, "full/thing.txt");
}

TEST(CompareRecord, gives_no_two_pictures_of_a_model_one_seed) {
  CompareJob job = some_job();
  job.seed = 7;
  job.num_seeds = 3;
  const CompareRecord record{.settings = compared_settings(job, {"a cat", "", "a dog"})};
  std::vector<uint64_t> seeds;
  for (size_t prompt = 0; prompt < 3; ++prompt) {
    for (size_t picture = 0; picture < 3; ++picture) {
      seeds.push_back(record.seed_of(prompt, picture));
    }
  }
  EXPECT_THAT(seeds, ElementsAre(7, 8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(CompareRecord, that_is_damaged_or_of_another_version_is_refused) {
  MemoryFileSystem files;
  for (const char* text : {"", "{}", "[1]", R"({"format": "darkroom comparison", "version": 2})",
                           R"({"format": "darkroom comparison", "version": 2, "settings": {"prompts": []}, "shared": {}})"}) {
    SCOPED_TRACE(text);
    write(files, "out/comparison.json", text);
    expect_refused(find_compare_record(files, "out").status(), StatusCode::kCorruptData, "out/comparison.json");
  }
  for (const char* version : {"1", "3"}) {  // In 1 all prompts had the same seeds.
    write(files, "out/comparison.json", fmt::format(R"({{"format": "darkroom comparison", "version": {}}})", version));
    expect_refused(find_compare_record(files, "out").status(), StatusCode::kFailedPrecondition, version);
  }
}

TEST(CompareJob, names_the_first_bad_field) {
  const auto refused = [](const CompareJob& job, const std::string& words) {
    expect_refused(job.validate(), StatusCode::kInvalidArgument, words);
  };
  EXPECT_TRUE(some_job().validate().is_ok());
  CompareJob job = some_job();
  job.num_seeds = 0;
  refused(job, "--seeds");
  job = some_job();
  job.error_rate = 0.5;
  refused(job, "50 %");
  job = some_job();
  job.num_resamples = 99;
  refused(job, "99");
  job = some_job();
  job.metrics = {"ssim"};
  refused(job, "ssim");
  job.metrics = {"clip"};
  refused(job, "--weights-dir: clip");
  job.metrics = {"retrieval"};
  refused(job, "--references: retrieval");
  job.weights_dir = "networks";
  job.metrics = {"kid"};
  refused(job, "--references: kid");
  for (const char* metric : {"psnr", "palette"}) {
    job.metrics = {"clip", metric};
    refused(job, std::string("--references: ") + metric);
  }
  job.metrics = {"clip"};
  EXPECT_TRUE(job.validate().is_ok());
}

}  // namespace
}  // namespace darkroom
