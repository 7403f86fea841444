#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "tokenizer_folder.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

Result<std::optional<Json>> read_optional_json(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (!is_there) {
    return std::optional<Json>();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  Json json = parse_json(text);
  if (!json.is_object()) {
    return Status::corrupt_data("reading a tokenizer: the file is not a JSON object:", path);
  }
  return std::optional<Json>(std::move(json));
}

// Tokens by id, from {token: id}.
Result<std::vector<std::string>> tokens_by_id(const Json& vocabulary, const std::string& path) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return Status::corrupt_data("reading a tokenizer: the vocabulary is not an object of tokens and ids:", path);
  }
  std::vector<std::string> tokens(vocabulary.size());
  std::vector<bool> is_taken(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= tokens.size() || is_taken[id.get<size_t>()]) {
      return Status::corrupt_data("reading a tokenizer: ids must be 0 to the number of tokens, each once (file, token, id):", path, token,
                                  id.dump());
    }
    tokens[id.get<size_t>()] = token;
    is_taken[id.get<size_t>()] = true;
  }
  return tokens;
}

Result<Vocabulary> read_vocabulary_and_merges(FileSystem& files, const std::string& folder) {
  const std::string vocabulary_path = join_path(folder, "vocab.json");
  const std::string merges_path = join_path(folder, "merges.txt");
  for (const std::string& path : {vocabulary_path, merges_path}) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
    if (!is_there) {
      return Status::not_found("reading a tokenizer: the folder needs tokenizer.json, or vocab.json and merges.txt; not there:", path);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto vocabulary, read_optional_json(files, vocabulary_path));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<std::string> tokens, tokens_by_id(*vocabulary, vocabulary_path));
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, merges_path));
  std::vector<std::string> merges;
  for (size_t at = 0; at < text.size();) {
    const size_t newline = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, newline - at);
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    if (!line.empty() && !line.starts_with("#version")) {
      merges.push_back(std::move(line));
    }
    at = newline + 1;
  }
  return Vocabulary::create(std::move(tokens), std::move(merges));
}

Result<Vocabulary> read_model(const Json& tokenizer, const std::string& path) {
  const Json model = tokenizer.value("model", Json::object());
  if (!model.is_object() || model.value("type", Json("BPE")) != "BPE" || model.value("end_of_word_suffix", Json()) != kEndOfWord) {
    return Status::failed_precondition(
        "reading a tokenizer: darkroom knows CLIP's byte-pair encoding with '</w>'; this file holds another kind:", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<std::string> tokens, tokens_by_id(model.value("vocab", Json()), path));
  std::vector<std::string> merges;
  for (const Json& merge : model.value("merges", Json::array())) {
    if (merge.is_string()) {
      merges.push_back(merge);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      return Status::corrupt_data("reading a tokenizer: a merge is neither a string nor a pair (file, merge):", path, merge.dump());
    }
  }
  return Vocabulary::create(std::move(tokens), std::move(merges));
}

// The special tokens as transformers 5 collects them: named ones, and the list of added ones with their flags.
class SpecialTokens {
 public:
  Status read(const std::optional<Json>& config, const std::optional<Json>& map, const std::optional<Json>& tokenizer) {
    if (config) {
      DARKROOM_RETURN_IF_ERROR(read_named(*config, /*default_normalized=*/true));
    }
    if (config && config->contains("added_tokens_decoder")) {
      for (const Json& token : (*config)["added_tokens_decoder"]) {
        DARKROOM_RETURN_IF_ERROR(add(token, !token.value("special", false)));
      }
      return Status::ok();
    }
    if (map) {
      DARKROOM_RETURN_IF_ERROR(read_named(*map, /*default_normalized=*/false));
    }
    if (tokenizer) {
      for (const Json& token : tokenizer->value("added_tokens", Json::array())) {
        DARKROOM_RETURN_IF_ERROR(add(token, false));
      }
    }
    return Status::ok();
  }

  // Looks every token up and names the four that have a role.
  Status resolve(TokenizerFolder& folder) {
    for (const auto& [name, content] : named_) {
      added_.emplace(content, named_normalized_[content]);
    }
    for (const auto& [content, is_normalized] : added_) {
      const auto id = folder.vocabulary.find(content);
      if (!id || content.empty()) {
        return Status::failed_precondition("reading a tokenizer: a special token is not in the vocabulary:", content);
      }
      folder.special_tokens.push_back({content, *id, is_normalized});
    }
    std::ranges::sort(folder.special_tokens, {}, &SpecialToken::id);
    folder.start_id = *folder.vocabulary.find(named_["bos_token"]);
    folder.end_id = *folder.vocabulary.find(named_["eos_token"]);
    folder.pad_id = *folder.vocabulary.find(named_["pad_token"]);
    folder.unknown_id = *folder.vocabulary.find(named_["unk_token"]);
    return Status::ok();
  }

 private:
  Status read_named(const Json& json, bool default_normalized) {
    for (auto& [name, content] : named_) {
      const Json value = json.value(name, Json());
      if (value.is_null()) {
        continue;
      }
      if (value.is_string()) {
        content = value;
        named_normalized_[content] = false;
      } else {
        DARKROOM_RETURN_IF_ERROR(check(value));
        content = value["content"];
        named_normalized_[content] = value.value("normalized", default_normalized);
      }
    }
    for (const char* list : {"extra_special_tokens", "additional_special_tokens"}) {
      for (const Json& token : json.value(list, Json::array())) {
        if (token.is_string()) {
          added_.emplace(token, false);
        } else {
          DARKROOM_RETURN_IF_ERROR(add(token, default_normalized));
        }
      }
    }
    return Status::ok();
  }

  Status add(const Json& token, bool default_normalized) {
    DARKROOM_RETURN_IF_ERROR(check(token));
    added_[token["content"]] = token.value("normalized", default_normalized);
    return Status::ok();
  }

  static Status check(const Json& token) {
    if (!token.is_object() || !token.value("content", Json()).is_string()) {
      return Status::corrupt_data("reading a tokenizer: a special token without content:", token.dump());
    }
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (token.value(flag, Json(false)) != false) {
        return Status::failed_precondition(
            "reading a tokenizer: special tokens with strip or word rules are not CLIP's (rule, token):", flag, token.dump());
      }
    }
    return Status::ok();
  }

  std::map<std::string, std::string> named_ = {
      {"bos_token", "<|startoftext|>"}, {"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
  std::map<std::string, bool> named_normalized_;
  std::map<std::string, bool> added_;  // Content -> looked for after cleaning.
};

Status check_class(const Json& config, const std::string& path) {
  const std::string name = config.value("tokenizer_class", "CLIPTokenizer");
  if (name == "CLIPTokenizer" || name == "CLIPTokenizerFast") {
    return Status::ok();
  }
  return Status::failed_precondition("reading a tokenizer: want the class CLIPTokenizer (file, class):", path, name);
}

}  // namespace

Result<TokenizerFolder> read_tokenizer_folder(FileSystem& files, const std::string& folder) try {
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  const std::string tokenizer_path = join_path(folder, "tokenizer.json");
  DARKROOM_ASSIGN_OR_RETURN(const auto config, read_optional_json(files, config_path));
  if (config) {
    DARKROOM_RETURN_IF_ERROR(check_class(*config, config_path));
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto map, read_optional_json(files, join_path(folder, "special_tokens_map.json")));
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, read_optional_json(files, tokenizer_path));
  TokenizerFolder contents;
  if (tokenizer) {  // As transformers: it wins where both forms are there.
    DARKROOM_ASSIGN_OR_RETURN(contents.vocabulary, read_model(*tokenizer, tokenizer_path));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(contents.vocabulary, read_vocabulary_and_merges(files, folder));
  }
  SpecialTokens special;
  DARKROOM_RETURN_IF_ERROR(special.read(config, map, tokenizer));
  DARKROOM_RETURN_IF_ERROR(special.resolve(contents));
  return contents;
} catch (const Json::exception& error) {
  return Status::corrupt_data("reading a tokenizer: a field has the wrong type (folder, error):", folder, error.what());
}

}  // namespace darkroom
