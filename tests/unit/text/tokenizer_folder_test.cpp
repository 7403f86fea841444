#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/files/memory_files.h"
#include "darkroom/text/clip_tokenizer.h"
#include "tiny_tokenizer.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

// A vocabulary small enough to read: bytes a b !, their word ends, one merge, the special tokens.
Json small_vocabulary() {
  return {
      {"a", 0}, {"b", 1}, {"!", 2}, {"a</w>", 3}, {"b</w>", 4}, {"!</w>", 5}, {"ab</w>", 6}, {"<|startoftext|>", 7}, {"<|endoftext|>", 8}};
}

class TokenizerFolder : public testing::Test {
 protected:
  TokenizerFolder() {
    write("vocab.json", small_vocabulary().dump());
    write("merges.txt", "#version: 0.2\na b</w>\n");
  }
  void write(const std::string& name, const std::string& text) { ASSERT_TRUE(write_file_atomic(files_, "t/" + name, text).is_ok()); }
  void remove(const std::string& name) { ASSERT_TRUE(files_.remove_file("t/" + name).is_ok()); }
  Result<std::unique_ptr<ClipTokenizer>> load() { return ClipTokenizer::load(files_, "t", TokenizerDialect::kHuggingFace); }
  std::vector<int32_t> first_ids(const std::string& caption, size_t count) {
    std::vector<int32_t> ids = encode(*load().value(), caption);
    ids.resize(count);
    return ids;
  }
  Status failure() { return load().status(); }

  MemoryFileSystem files_;
};

TEST_F(TokenizerFolder, reads_vocabulary_and_merges) { EXPECT_EQ(first_ids("ab ba !", 7), (std::vector<int32_t>{7, 6, 1, 3, 5, 8, 8})); }

TEST_F(TokenizerFolder, reads_tokenizer_json_alone_with_merges_in_both_spellings) {
  remove("vocab.json");
  remove("merges.txt");
  for (const Json& merge : {Json("a b</w>"), Json::array({"a", "b</w>"})}) {
    const Json model = {{"type", "BPE"}, {"end_of_word_suffix", "</w>"}, {"vocab", small_vocabulary()}, {"merges", Json::array({merge})}};
    write("tokenizer.json", Json{{"model", model}}.dump());
    EXPECT_EQ(first_ids("ab", 4), (std::vector<int32_t>{7, 6, 8, 8}));
  }
}

TEST_F(TokenizerFolder, the_special_tokens_map_overrules_the_config_as_in_stable_diffusion_2) {
  write("tokenizer_config.json", R"({"pad_token": "<|endoftext|>", "tokenizer_class": "CLIPTokenizer"})");
  EXPECT_EQ(load().value()->pad_id(), 8);
  write("special_tokens_map.json", R"({"pad_token": "!"})");
  EXPECT_EQ(load().value()->pad_id(), 2);
  EXPECT_EQ(first_ids("a!b", 6), (std::vector<int32_t>{7, 3, 2, 4, 8, 2}));
}

TEST_F(TokenizerFolder, a_list_of_added_tokens_in_the_config_makes_the_map_irrelevant) {
  write("tokenizer_config.json", R"({"pad_token": "a", "added_tokens_decoder": {"0": {"content": "a", "special": true}}})");
  write("special_tokens_map.json", R"({"pad_token": "!"})");
  EXPECT_EQ(load().value()->pad_id(), 0);
}

TEST_F(TokenizerFolder, only_normalized_special_tokens_are_found_whatever_their_case) {
  write("special_tokens_map.json", R"({"eos_token": {"content": "<|endoftext|>", "normalized": true}})");
  EXPECT_EQ(first_ids("<|ENDOFTEXT|>a", 4), (std::vector<int32_t>{7, 8, 3, 8}));
  write("special_tokens_map.json", R"({"eos_token": {"content": "<|endoftext|>", "normalized": false}})");
  EXPECT_NE(first_ids("<|ENDOFTEXT|>a", 4)[2], 3);
  EXPECT_EQ(first_ids("<|endoftext|>a", 4), (std::vector<int32_t>{7, 8, 3, 8}));
}

TEST_F(TokenizerFolder, bytes_without_a_token_are_unknown) { EXPECT_EQ(first_ids("zb", 4), (std::vector<int32_t>{7, 8, 4, 8})); }

TEST_F(TokenizerFolder, a_folder_without_vocabulary_says_what_it_needs) {
  remove("merges.txt");
  EXPECT_EQ(failure().code(), StatusCode::kNotFound);
  EXPECT_NE(failure().message().find("t/merges.txt"), std::string::npos);
  EXPECT_EQ(ClipTokenizer::load(files_, "nowhere", TokenizerDialect::kOpenClip).status().code(), StatusCode::kNotFound);
}

TEST_F(TokenizerFolder, damaged_files_are_corrupt_data) {
  const std::map<std::string, std::vector<std::string>> damaged = {
      {"vocab.json", {"", "{\"a\": 0", "[]", "{}", R"({"a": 0, "b": 2})", R"({"a": 0, "b": 0})", R"({"a": -1})", R"({"a": "0"})"}},
      {"merges.txt", {"a b</w> c\n", "ab\n", "a x\n", "b a</w>\n"}},
      {"tokenizer_config.json", {"{", R"({"pad_token": 3})", R"({"pad_token": {"name": "x"}})", R"({"tokenizer_class": 1})"}},
      {"special_tokens_map.json", {"null", R"({"eos_token": []})"}},
      {"tokenizer.json", {"nonsense", R"({"model": {"end_of_word_suffix": "</w>", "vocab": {}}})"}},
  };
  for (const auto& [name, texts] : damaged) {
    for (const std::string& text : texts) {
      MemoryFileSystem files;
      ASSERT_TRUE(write_file_atomic(files, "t/vocab.json", small_vocabulary().dump()).is_ok());
      ASSERT_TRUE(write_file_atomic(files, "t/merges.txt", "a b</w>\n").is_ok());
      ASSERT_TRUE(write_file_atomic(files, "t/" + name, text).is_ok());
      const Status status = ClipTokenizer::load(files, "t", TokenizerDialect::kHuggingFace).status();
      EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name << ": " << text << "\n" << status.to_string();
    }
  }
}

TEST_F(TokenizerFolder, a_tokenizer_of_another_kind_is_refused) {
  for (const char* config :
       {R"({"tokenizer_class": "T5Tokenizer"})", R"({"pad_token": "[PAD]"})", R"({"pad_token": {"content": "!", "lstrip": true}})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(failure().code(), StatusCode::kFailedPrecondition) << config;
  }
  remove("tokenizer_config.json");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  EXPECT_EQ(failure().code(), StatusCode::kFailedPrecondition);
}

TEST_F(TokenizerFolder, saving_gives_the_files_that_the_tiny_model_ships) {
  ASSERT_TRUE(tiny_tokenizer(TokenizerDialect::kHuggingFace).save(files_, "copy").is_ok());
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string want = read_file(local_files(), source_path(std::string("models/tiny/tokenizer/") + name)).value();
    EXPECT_TRUE(read_file(files_, std::string("copy/") + name).value() == want) << name;
  }
}

TEST_F(TokenizerFolder, a_saved_folder_has_the_same_fingerprint_in_either_form) {
  write("special_tokens_map.json", R"({"pad_token": "!", "eos_token": {"content": "<|endoftext|>", "normalized": true}})");
  const auto tokenizer = load().value();
  ASSERT_TRUE(tokenizer->save(files_, "u").is_ok());
  const auto fingerprint = [&] { return ClipTokenizer::load(files_, "u", TokenizerDialect::kHuggingFace).value()->fingerprint(); };
  EXPECT_EQ(fingerprint(), tokenizer->fingerprint());
  ASSERT_TRUE(files_.remove_file("u/tokenizer.json").is_ok());
  EXPECT_EQ(fingerprint(), tokenizer->fingerprint());
}

}  // namespace
}  // namespace darkroom
