#include <algorithm>
#include <nlohmann/json.hpp>

#include "darkroom/files/paths.h"
#include "tokenizer_folder.h"

namespace darkroom {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSplitExpression = R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

OrderedJson added_token(const std::string& content, bool is_normalized) {
  return {{"content", content}, {"single_word", false},        {"lstrip", false},
          {"rstrip", false},    {"normalized", is_normalized}, {"special", true}};
}

// Written by hand: a JSON object keeps neither the order of the ids nor linear time for 49,408 of them.
std::string vocabulary_text(const Vocabulary& vocabulary) {
  std::string text;
  for (size_t id = 0; id < vocabulary.tokens().size(); ++id) {
    text += id == 0 ? '{' : ',';
    text += OrderedJson(vocabulary.tokens()[id]).dump();
    text += fmt::format(":{}", id);
  }
  return text + "}";
}

std::string merges_text(const Vocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const std::string& merge : vocabulary.merges()) {
    text += merge + "\n";
  }
  return text;
}

OrderedJson normalizer_json() {
  return {{"type", "Sequence"},
          {"normalizers",
           {{{"type", "NFC"}}, {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}}, {{"type", "Lowercase"}}}}};
}

OrderedJson pre_tokenizer_json() {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", kSplitExpression}}}, {"behavior", "Removed"}, {"invert", true}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}}}};
}

// tokenizer.json up to the vocabulary, and what follows it.
std::string tokenizer_text(const TokenizerFolder& folder) {
  const std::vector<std::string>& tokens = folder.vocabulary.tokens();
  const std::string& start = tokens[folder.start_id];
  const std::string& end = tokens[folder.end_id];
  OrderedJson json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", OrderedJson::array()}};
  for (const SpecialToken& token : folder.special_tokens) {
    OrderedJson entry = {{"id", token.id}};
    entry.update(added_token(token.content, token.is_normalized));
    json["added_tokens"].push_back(entry);
  }
  json["normalizer"] = normalizer_json();
  json["pre_tokenizer"] = pre_tokenizer_json();
  json["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", OrderedJson::array({end, folder.end_id})},
                            {"cls", OrderedJson::array({start, folder.start_id})},
                            {"trim_offsets", false},
                            {"add_prefix_space", false}};
  json["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const OrderedJson model = {{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", tokens[folder.unknown_id]},
                             {"continuing_subword_prefix", ""},
                             {"end_of_word_suffix", kEndOfWord},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"ignore_merges", false}};
  std::string text = json.dump();
  std::string model_text = model.dump();
  text.pop_back();
  model_text.pop_back();
  text += ",\"model\":" + model_text + ",\"vocab\":" + vocabulary_text(folder.vocabulary);
  return text + ",\"merges\":" + OrderedJson(folder.vocabulary.merges()).dump() + "}}\n";
}

OrderedJson named_tokens(const TokenizerFolder& folder) {
  const auto token_of = [&](int32_t id) {
    const auto is_it = [&](const SpecialToken& token) { return token.id == id; };
    const auto found = std::ranges::find_if(folder.special_tokens, is_it);
    return added_token(found->content, found->is_normalized);
  };
  return {{"bos_token", token_of(folder.start_id)},
          {"eos_token", token_of(folder.end_id)},
          {"pad_token", token_of(folder.pad_id)},
          {"unk_token", token_of(folder.unknown_id)}};
}

OrderedJson config_json(const TokenizerFolder& folder) {
  OrderedJson config = {{"add_prefix_space", false}};
  const OrderedJson named = named_tokens(folder);
  for (const auto& [name, token] : named.items()) {
    config[name] = {{"__type", "AddedToken"}};
    config[name].update(token);
  }
  config.update(
      OrderedJson{{"do_lower_case", true}, {"errors", "replace"}, {"model_max_length", 77}, {"tokenizer_class", "CLIPTokenizer"}});
  return config;
}

}  // namespace

Status write_tokenizer_folder(FileSystem& files, const std::string& folder, const TokenizerFolder& contents) {
  const auto write = [&](const char* name, const std::string& text) { return write_file_atomic(files, join_path(folder, name), text); };
  DARKROOM_RETURN_IF_ERROR(write("vocab.json", vocabulary_text(contents.vocabulary) + "\n"));
  DARKROOM_RETURN_IF_ERROR(write("merges.txt", merges_text(contents.vocabulary)));
  DARKROOM_RETURN_IF_ERROR(write("tokenizer.json", tokenizer_text(contents)));
  DARKROOM_RETURN_IF_ERROR(write("tokenizer_config.json", config_json(contents).dump(2) + "\n"));
  return write("special_tokens_map.json", named_tokens(contents).dump(2) + "\n");
}

}  // namespace darkroom
