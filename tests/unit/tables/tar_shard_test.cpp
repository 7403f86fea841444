// Shards that are tars: their members, and the record that is the last of them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/sealed_record.h"
#include "darkroom/tables/tar_samples.h"
#include "darkroom/tables/tar_shard_writer.h"
#include "darkroom/tables/verify_shard.h"
#include "table_rows.h"

namespace darkroom {
namespace {

class TarShard : public testing::Test {
 protected:
  std::string write(int num_samples, const std::string& more = "value") {
    TarShardWriter writer(*store_->begin_object("out", "part-000000.tar"));
    for (int i = 0; i < num_samples; ++i) {
      const std::string key = "00000000000" + std::to_string(i);
      EXPECT_TRUE(writer.add(key + ".jpg", std::string(static_cast<size_t>(i) * 511, 'j')).is_ok());
      EXPECT_TRUE(writer.add(key + ".txt", "a caption").is_ok());
    }
    auto shard = writer.finish({{kShardKey, "{\"item\":0}"}, {"more", more}}, num_samples);
    EXPECT_TRUE(shard.is_ok()) << shard.status().to_string();
    EXPECT_TRUE(shard->object->publish().is_ok());
    std::string bytes = *read_file(files_, "out/part-000000.tar");
    EXPECT_EQ(shard->num_bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(files_.remove_file("out/part-000000.tar").is_ok());
    return bytes;
  }
  static StatusCode verify(const std::string& bytes) {
    MemoryFileSystem files;
    EXPECT_TRUE(put_file(files, "part-000000.tar", bytes).is_ok());
    return verify_shard(files, "part-000000.tar").code();
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
};

TEST_F(TarShard, its_record_belongs_to_no_sample) {
  for (const int num_samples : {0, 1, 3}) {
    ASSERT_TRUE(put_file(files_, "a.tar", write(num_samples)).is_ok());
    const std::unique_ptr<InputFile> file = *files_.open_input("a.tar");
    TarReader tar(*file);
    TarSampleReader samples(tar);
    for (int i = 0; i < num_samples; ++i) {
      const auto sample = samples.next();
      ASSERT_TRUE(sample.is_ok() && *sample) << sample.status().to_string();
      EXPECT_EQ((*sample)->key, "00000000000" + std::to_string(i));
      EXPECT_EQ((*sample)->parts.size(), 2u);
    }
    const auto end = samples.next();
    ASSERT_TRUE(end.is_ok()) << end.status().to_string();
    EXPECT_FALSE(*end);
    EXPECT_EQ(samples.num_left_out(), 1);
  }
}

TEST_F(TarShard, its_record_is_found_from_the_end) {
  for (const size_t padding : {0, 1, 300, 5000}) {
    ASSERT_TRUE(put_file(files_, "part-000000.tar", write(2, std::string(padding, 'x'))).is_ok());
    const auto pairs = read_shard_pairs({.store = store_.get(), .path = "part-000000.tar"});
    ASSERT_TRUE(pairs.is_ok()) << pairs.status().to_string();
    EXPECT_EQ(nlohmann::json::parse(*find_value(*pairs, kShardKey))["item"], 0);
    EXPECT_EQ(find_value(*pairs, "more")->size(), padding);
    EXPECT_EQ(find_value(*pairs, "less"), nullptr);
    EXPECT_TRUE(verify_shard(files_, "part-000000.tar").is_ok());
  }
}

TEST_F(TarShard, every_flipped_byte_and_every_cut_is_found) {
  const std::string bytes = write(2);
  EXPECT_EQ(verify(bytes), StatusCode::kOk);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_EQ(verify(damaged), StatusCode::kCorruptData) << i;
    EXPECT_EQ(verify(bytes.substr(0, i)), StatusCode::kCorruptData) << i;
  }
  EXPECT_EQ(verify(bytes + std::string(512, '\0')), StatusCode::kCorruptData);
}

TEST(SealedRecord, lies_about_its_place_are_damage) {
  const SealOptions options{.content_bytes = 10, .content_hash = "h"};
  std::string record = print_unsealed_record({{kShardKey, "{}"}}, options).value();
  seal_record("", record);
  const std::string good = std::string(10, 'c') + record;
  const auto read = [](const std::string& bytes) {
    MemoryFileSystem files;
    EXPECT_TRUE(put_file(files, "part-000000.mds", bytes).is_ok());
    return read_sealed_record(**files.open_input("part-000000.mds"));
  };
  ASSERT_TRUE(read(good).is_ok());
  EXPECT_EQ(read(good)->content_bytes, 10);
  for (const std::string number : {"00000000000000000011", "00000000000000000009", "99999999999999999999", "-0000000000000000010"}) {
    std::string bytes = good;
    bytes.replace(bytes.rfind("00000000000000000010 00000000000000000010"), 20, number);
    EXPECT_EQ(read(bytes).status().code(), StatusCode::kCorruptData) << number;
  }
  EXPECT_EQ(read("").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read(std::string(1000, 'x')).status().code(), StatusCode::kCorruptData);
}

TEST(SealedRecord, one_that_no_reader_takes_is_not_written) {
  const auto shard_of = [](size_t num_bytes) {
    MemoryFileSystem files;
    const auto store = make_posix_store(files, "memory");
    TarShardWriter writer(store->begin_object("out", "part-000000.tar").value());
    auto shard = writer.finish({{kShardKey, "{}"}, {"more", std::string(num_bytes, 'x')}}, 0);
    if (!shard.is_ok()) {
      return shard.status();
    }
    EXPECT_TRUE(shard->object->publish().is_ok());
    return read_sealed_record(**files.open_input("out/part-000000.tar")).status();
  };
  constexpr size_t kMost = size_t{64} << 20;
  EXPECT_TRUE(shard_of(kMost - (size_t{4} << 10)).is_ok());
  const Status refused = shard_of(kMost);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("--rows-per-file"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace darkroom
