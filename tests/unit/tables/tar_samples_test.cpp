#include "darkroom/tables/tar_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Samples {
  std::vector<std::string> told;  ///< "key: ext ext | duplicates"
  Status status;
  int64_t num_left_out = 0;
};

Samples list_samples(const std::string& bytes) {
  const BytesFile file(bytes);
  TarReader tar(file);
  TarSampleReader reader(tar);
  Samples samples;
  while (true) {
    const auto sample = reader.next();
    samples.num_left_out = reader.num_left_out();
    samples.status = sample.status();
    if (!sample.is_ok() || !*sample) {
      return samples;
    }
    std::string told = (*sample)->key + ":";
    for (const TarPart& part : (*sample)->parts) {
      told += " " + part.extension;
    }
    for (const TarPart& part : (*sample)->duplicates) {
      told += " | " + part.extension;
    }
    samples.told.push_back(told);
  }
}

std::string sample_files(const std::vector<std::string>& names) {
  std::string bytes;
  for (const std::string& name : names) {
    bytes += tar_member(name, "data of " + name);
  }
  return bytes;
}

TEST(SampleName, splits_at_the_first_dot_of_the_last_part) {
  using Names = std::optional<std::pair<std::string, std::string>>;
  const auto names = [](const char* key, const char* extension) { return Names(std::in_place, key, extension); };
  EXPECT_EQ(split_sample_name("000012.jpg"), names("000012", "jpg"));
  EXPECT_EQ(split_sample_name("000012.seg.PNG"), names("000012", "seg.png"));
  EXPECT_EQ(split_sample_name("a.b/000012.jpg"), names("a.b/000012", "jpg"));
  EXPECT_EQ(split_sample_name("./x.y"), names("./x", "y"));
  EXPECT_EQ(split_sample_name("../x.y"), names("../x", "y"));
  EXPECT_EQ(split_sample_name("a..jpg"), names("a", ".jpg"));
  EXPECT_EQ(split_sample_name("x.J\xC3\x84"), names("x", "j\xC3\x84"));  // ASCII letters alone.
  for (const char* name : {"", "README", "a.b/README", ".hidden.jpg", "a/._x.jpg", "a.", "a/", "a.b/", "..", "/"}) {
    EXPECT_EQ(split_sample_name(name), std::nullopt) << name;
  }
}

TEST(TarSampleReader, groups_consecutive_files_of_one_key) {
  const Samples samples = list_samples(sample_files({"0.jpg", "0.json", "0.txt", "1.txt", "1.jpg", "2.webp", "a/2.png"}) + tar_end());
  EXPECT_TRUE(samples.status.is_ok()) << samples.status.to_string();
  EXPECT_THAT(samples.told, ElementsAre("0: jpg json txt", "1: txt jpg", "2: webp", "a/2: png"));
  EXPECT_EQ(samples.num_left_out, 0);
}

TEST(TarSampleReader, a_key_that_comes_again_is_another_sample) {
  EXPECT_THAT(list_samples(sample_files({"0.jpg", "1.jpg", "0.txt"}) + tar_end()).told, ElementsAre("0: jpg", "1: jpg", "0: txt"));
}

TEST(TarSampleReader, reports_duplicates_and_keeps_the_first) {
  const BytesFile file(sample_files({"0.jpg", "0.txt", "0.JPG", "0.jpg", "1.jpg"}) + tar_end());
  TarReader tar(file);
  TarSampleReader reader(tar);
  const auto sample = reader.next();
  ASSERT_TRUE(sample.is_ok() && *sample) << sample.status().to_string();
  EXPECT_EQ((*sample)->find("jpg")->data_offset, 512);
  EXPECT_EQ((*sample)->find("webp"), nullptr);
  ASSERT_EQ((*sample)->duplicates.size(), 2u);
  EXPECT_EQ((*sample)->duplicates[0].member.name, "0.JPG");
  EXPECT_EQ((*sample)->duplicates[1].member.data_offset, 512 + 3 * 1024);
}

TEST(TarSampleReader, what_is_no_part_of_a_sample_separates_none) {
  const Samples samples = list_samples(TarBlock{.name = "./", .type = '5'}.bytes() + sample_files({"0.jpg", "README"}) +
                                       TarBlock{.name = "0.png", .type = '2'}.bytes() + TarBlock{.name = "0.webp", .type = '3'}.bytes() +
                                       tar_member("0.label", "x", 'Z') + sample_files({"0.txt"}) + tar_end());
  EXPECT_THAT(samples.told, ElementsAre("0: jpg txt"));
  EXPECT_EQ(samples.num_left_out, 4);
}

TEST(TarSampleReader, an_archive_without_samples_has_none) {
  EXPECT_THAT(list_samples(tar_end()).told, IsEmpty());
  EXPECT_THAT(list_samples(sample_files({"README", ".jpg"}) + tar_end()).told, IsEmpty());
}

TEST(TarSampleReader, a_sample_that_damage_cuts_is_not_handed_out) {
  const std::string bytes = sample_files({"0.jpg", "0.txt", "1.jpg", "1.txt"});
  const Samples samples = list_samples(bytes.substr(0, bytes.size() - 100));
  EXPECT_THAT(samples.told, ElementsAre("0: jpg txt"));
  EXPECT_EQ(samples.status.code(), StatusCode::kCorruptData);
}

TEST(TarSampleReader, after_a_failure_of_the_store_the_sample_is_whole) {
  for (int num_reads = 0; num_reads < 6; ++num_reads) {
    const BytesFile file(sample_files({"0.jpg", "0.json", "0.txt", "1.jpg"}) + tar_end());
    file.fail_after_reads = num_reads;
    TarReader tar(file, {.window_bytes = 512});
    TarSampleReader reader(tar);
    std::vector<size_t> num_parts;
    int num_failures = 0;
    while (num_parts.size() < 2 && num_failures < 2) {
      const auto sample = reader.next();
      sample.is_ok() ? num_parts.push_back((*sample)->parts.size()) : void(++num_failures);
    }
    EXPECT_THAT(num_parts, ElementsAre(3u, 1u)) << num_reads;
    EXPECT_EQ(num_failures, 1) << num_reads;
  }
}

TEST(TarSampleReader, too_many_files_stay_an_error) {
  std::string bytes;
  for (int i = 0; i < 1002; ++i) {
    bytes += TarBlock{.name = fmt::format("0.{}", i)}.bytes();
  }
  const BytesFile file(bytes + TarBlock{.name = "1.jpg"}.bytes() + tar_end());
  TarReader tar(file);
  TarSampleReader reader(tar);
  const Status first = reader.next().status();
  EXPECT_EQ(first.code(), StatusCode::kCorruptData);
  for (int i = 0; i < 3; ++i) {  // Not the first thousand as a whole sample.
    EXPECT_EQ(reader.next().status().to_string(), first.to_string());
  }
}

TEST(TarSampleReader, a_sample_has_at_most_a_thousand_files) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes += TarBlock{.name = fmt::format("0.{}", i)}.bytes();
  }
  EXPECT_EQ(list_samples(bytes + tar_end()).told.size(), 1u);
  const Samples samples = list_samples(bytes + TarBlock{.name = "0.jpg"}.bytes() + tar_end());
  EXPECT_THAT(samples.status.to_string(),
              HasSubstr("a sample of a tar archive has too many files (archive, offset, limit): in/x.tar 512512 1000"));
}

}  // namespace
}  // namespace darkroom
