#include <algorithm>
#include <array>
#include <cctype>

#include "darkroom/core/shown_uri.h"
#include "darkroom/stores/hub.h"
#include "percent_escapes.h"
#include "s3_signature.h"

namespace darkroom {
namespace {

constexpr std::string_view kHubScheme = "hf://";
constexpr std::string_view kDatasets = "datasets/";

Status no_hub_uri(std::string_view why, std::string_view uri) {
  return Status::invalid_argument(
      fmt::format("{}; an address of the hub is hf://[datasets/]ORG/NAME[@REVISION][/PATH] or hf://datasets/ORG/NAME?config=C&split=S:",
                  why),
      shown_uri(uri));
}

/// What stands before the next `separator`, which is taken away too.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

bool is_repo_name(std::string_view name) {
  constexpr size_t kMaxNameBytes = 96;
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' && name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

/// "refs/convert/NAME" and "refs/pr/NUMBER" are revisions although slashes are in them: takes the rest of such a one off `path`.
std::string take_revision_rest(std::string_view& path) {
  for (const std::string_view space : {"convert/", "pr/"}) {
    if (path.starts_with(space)) {
      path.remove_prefix(space.size());
      return std::string(space) + std::string(take_until(path, '/'));
    }
  }
  return {};
}

Status read_query(std::string_view query, HubUri& uri, std::string_view text) {
  while (!query.empty()) {
    std::string_view value = take_until(query, '&');
    const std::string_view name = take_until(value, '=');
    if (name != "config" && name != "split") {
      return no_hub_uri("after ? stand config= and split=, and nothing else", text);
    }
    std::string& field = name == "config" ? uri.config : uri.split;
    const auto decoded = decode_escapes(value);
    if (!decoded || decoded->empty() || !field.empty()) {
      return no_hub_uri("config= and split= take one value each", text);
    }
    field = *decoded;
  }
  return Status::ok();
}

bool is_query(std::string_view text) { return text.starts_with("config=") || text.starts_with("split="); }

Status check_path(std::string_view path, std::string_view text) {
  while (!path.empty()) {
    const std::string_view name = take_until(path, '/');
    if (name.empty() || name == "." || name == "..") {
      return no_hub_uri("a path within a repository has no empty parts, \".\" and \"..\"", text);
    }
  }
  return Status::ok();
}

}  // namespace

std::string HubRepo::prefix() const { return (kind == HubRepoKind::kDataset ? std::string(kDatasets) : std::string()) + id; }

Result<HubUri> HubUri::parse(std::string_view text) {
  if (!text.starts_with(kHubScheme)) {
    return no_hub_uri("this does not begin with hf://", text);
  }
  HubUri uri;
  std::string_view rest = text.substr(kHubScheme.size());
  const size_t mark = rest.rfind('?');  // Elsewhere "?" belongs to a pattern.
  if (mark != std::string_view::npos && is_query(rest.substr(mark + 1))) {
    uri.is_table = true;
    DARKROOM_RETURN_IF_ERROR(read_query(rest.substr(mark + 1), uri, text));
    rest = rest.substr(0, mark);
  }
  if (rest.starts_with(kDatasets)) {
    uri.repo.kind = HubRepoKind::kDataset;
    rest.remove_prefix(kDatasets.size());
  }
  const std::string_view organisation = take_until(rest, '/');
  std::string_view revision = take_until(rest, '/');
  const std::string_view name = take_until(revision, '@');
  if (!is_repo_name(organisation) || !is_repo_name(name)) {
    return no_hub_uri("ORG and NAME are letters, digits, \"-\", \"_\" and \".\"", text);
  }
  uri.repo.id = fmt::format("{}/{}", organisation, name);
  const auto decoded = decode_escapes(revision);
  if (!decoded || decoded->find("..") != std::string::npos) {
    return no_hub_uri("the revision is none", text);
  }
  uri.revision = *decoded == "~parquet" ? std::string(kHubParquetRevision) : *decoded;
  if (uri.revision == "refs") {
    uri.revision += "/" + take_revision_rest(rest);
  }
  while (rest.ends_with('/')) {
    rest.remove_suffix(1);
  }
  DARKROOM_RETURN_IF_ERROR(check_path(rest, text));
  uri.path = rest;
  if (uri.is_table && (uri.repo.kind != HubRepoKind::kDataset || !uri.path.empty() || !uri.revision.empty())) {
    return no_hub_uri("config= and split= belong to a dataset, without a revision and a path", text);
  }
  return uri;
}

std::string HubUri::to_string() const {
  std::string text = std::string(kHubScheme) + repo.prefix();
  text += revision.empty() ? "" : "@" + encode_s3_value(revision);
  text += path.empty() ? "" : "/" + path;
  char mark = '?';
  for (const auto& [key, value] : std::array<std::pair<const char*, const std::string*>, 2>{{{"config", &config}, {"split", &split}}}) {
    if (!value->empty()) {
      text += fmt::format("{}{}={}", std::exchange(mark, '&'), key, encode_s3_value(*value));
    }
  }
  return text;
}

}  // namespace darkroom
