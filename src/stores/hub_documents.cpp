#include "hub_documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr size_t kCommitDigits = 40;
constexpr size_t kSha256Digits = 64;

Status bad_document(std::string_view why, const std::string& what) {
  return Status::corrupt_data(fmt::format("the hub's answer is not understood: {} (of):", why), what);
}

/// A member of an object; null when it is no object or has none.
const json* member(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? &*found : nullptr;
}

std::string text_member(const json& object, const char* name) {
  const json* found = member(object, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t size_member(const json& object) {
  const json* found = member(object, "size");
  const bool fits = found != nullptr && found->is_number_integer() && (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
  return fits ? found->get<int64_t>() : -1;
}

/// Relative, and in itself: it is joined to folders of this machine.
bool is_inner_path(std::string_view path) {
  const bool has_control = std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; });
  bool is_good = !path.empty() && !has_control;
  while (is_good && !path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    is_good = !name.empty() && name != "." && name != ".." && slash != path.size() - 1;
    path.remove_prefix(std::min(name.size() + 1, path.size()));
  }
  return is_good;
}

/// On one line, whatever it holds.
std::string shown_text(const std::string& text) { return json(text).dump(-1, ' ', true, json::error_handler_t::replace); }

Result<HubFile> read_entry(const json& entry, const std::string& what) {
  HubFile file{.path = text_member(entry, "path"), .size_bytes = 0, .is_folder = false, .git_sha1 = {}, .sha256 = {}};
  if (!is_inner_path(file.path)) {
    return bad_document("a path that is none: " + shown_text(file.path), what);
  }
  const std::string type = text_member(entry, "type");
  if (type == "directory") {
    file.is_folder = true;
    return file;
  }
  file.size_bytes = size_member(entry);
  file.git_sha1 = text_member(entry, "oid");
  if (type != "file" || file.size_bytes < 0 || (!file.git_sha1.empty() && !is_hex(file.git_sha1, kCommitDigits))) {
    return bad_document("type, size or oid of " + file.path, what);
  }
  const json* lfs = member(entry, "lfs");
  if (lfs != nullptr && lfs->is_object()) {
    file.sha256 = text_member(*lfs, "oid");
    if (!is_hex(file.sha256, kSha256Digits)) {
      return bad_document("lfs.oid of " + file.path, what);
    }
    file.size_bytes = size_member(*lfs) >= 0 ? size_member(*lfs) : file.size_bytes;
  }
  return file;
}

}  // namespace

bool is_hex(std::string_view text, size_t num_digits) {
  return text.size() == num_digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<std::string> read_hub_commit(std::string_view text, const std::string& what) {
  const std::string commit = text_member(parse_json(text), "sha");
  return is_hex(commit, kCommitDigits) ? Result<std::string>(commit) : bad_document("it names no commit (sha)", what);
}

Result<std::vector<HubFile>> read_hub_tree(std::string_view text, const std::string& what) {
  const json entries = parse_json(text);
  if (!entries.is_array()) {
    return bad_document("it is no list of files", what);
  }
  std::vector<HubFile> files;
  for (const json& entry : entries) {
    DARKROOM_ASSIGN_OR_RETURN(HubFile file, read_entry(entry, what));
    files.push_back(std::move(file));
  }
  return files;
}

Result<HubSplits> read_hub_splits(std::string_view text, const std::string& what) {
  const json configs = parse_json(text);
  if (!configs.is_object()) {
    return bad_document("it is no object of configurations", what);
  }
  HubSplits splits;
  for (const auto& [config, of_config] : configs.items()) {
    if (!is_inner_path(config)) {
      return bad_document("a config that is no name: " + shown_text(config), what);
    }
    if (!of_config.is_object()) {
      return bad_document("the splits of " + config, what);
    }
    for (const auto& [split, urls] : of_config.items()) {
      if (!is_inner_path(split)) {
        return bad_document("a split that is no name: " + shown_text(split), what);
      }
      if (!urls.is_array()) {
        return bad_document(fmt::format("the files of {}, {}", config, split), what);
      }
      splits[config][split] = static_cast<int64_t>(urls.size());
    }
  }
  return splits;
}

std::optional<std::string> next_link(std::string_view header) {
  while (!header.empty()) {
    const size_t open = header.find('<');
    const size_t close = header.find('>', open == std::string_view::npos ? open : open + 1);
    if (open == std::string_view::npos || close == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view url = header.substr(open + 1, close - open - 1);
    header.remove_prefix(close + 1);
    std::string_view parameters = header.substr(0, std::min(header.find(",<"), header.find(", <")));
    header.remove_prefix(parameters.size());
    while (!parameters.empty()) {
      const size_t end = std::min(parameters.find(';'), parameters.size());
      const std::string_view parameter = trim_blanks(parameters.substr(0, end));
      parameters.remove_prefix(std::min(end + 1, parameters.size()));
      if (same_word(parameter, "rel=\"next\"") || same_word(parameter, "rel=next")) {
        return std::string(url);
      }
    }
  }
  return std::nullopt;
}

std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) {
    etag.remove_prefix(2);
  }
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

}  // namespace darkroom
