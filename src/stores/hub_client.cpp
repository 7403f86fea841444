#include <algorithm>
#include <charconv>
#include <set>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/hub.h"
#include "hub_documents.h"
#include "s3_signature.h"

namespace darkroom {
namespace {

constexpr size_t kCommitHexDigits = 40;
constexpr int64_t kMaxDocumentBytes = int64_t{64} << 20;
constexpr size_t kMaxPages = 10'000;               // Of 1,000 files; the hub advises against more than 100,000 files.
constexpr std::string_view kPartial = "partial-";  ///< Before a split whose conversion stopped at the hub's limit.

bool is_same_origin(const std::string& a, const std::string& b) {
  const auto first = UrlHop::parse(a, any_place());
  const auto second = UrlHop::parse(b, any_place());
  return first.is_ok() && second.is_ok() && first->has_same_origin(*second);
}

/// What the hub says for an error: https://huggingface.co's X-Error-Code.
Status hub_failure(const WebAnswer& answer, const std::string& uri, bool has_token, const std::string& page) {
  const int status = answer.head.status;
  const std::string_view code = answer.head.find("x-error-code").value_or("");
  if (code == "GatedRepo" || (status == 403 && code.empty())) {
    return Status::failed_precondition(
        fmt::format("the hub gives this to those alone who asked for access: ask for it on {}, then {} (address, status):", page,
                    has_token ? "use a token of that account" : "set HF_TOKEN to a token of that account"),
        uri, status);
  }
  if (status == 401 || status == 403) {
    return Status::failed_precondition(
        has_token ? "the hub has no such repository, or the token may not read it; check HF_TOKEN (address, status):"
                  : "the hub has no such repository, or it is private; then set HF_TOKEN (address, status):",
        uri, status);
  }
  if (status == 404 && code == "RevisionNotFound") {
    return Status::not_found("the repository has no such branch, tag or commit:", uri);
  }
  if (status == 404 && code == "RepoNotFound") {
    return Status::not_found("the hub has no such repository, or it is private and the token may not read it:", uri);
  }
  if (status == 404) {
    return Status::not_found("the hub has no such file or folder:", uri);
  }
  return web_failure(answer, uri);
}

template <typename Map>
std::string names_of(const Map& map) {
  std::string names;
  for (const auto& [name, value] : map) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

/// The entry of `name`; where none is given the only one, or that of `otherwise`.
template <typename Map>
Result<typename Map::const_iterator> choose(const Map& map, const std::string& name, const std::string& otherwise, const char* kind,
                                            const std::string& uri) {
  auto found = map.find(name.empty() ? otherwise : name);
  if (name.empty() && map.size() == 1) {
    found = map.begin();
  }
  if (found != map.end()) {
    return found;
  }
  const std::string what =
      name.empty() ? fmt::format("the dataset has more than one {0}; give ?{0}=", kind) : fmt::format("the dataset has no such {}", kind);
  return Status::not_found(fmt::format("{}, one of {} (address, {}):", what, map.empty() ? "none" : names_of(map), kind), uri, name);
}

/// Of the redirects and the answer, the first that has this header; "" without.
std::string first_header(const WebAnswer& answer, std::string_view name) {
  for (const HttpHead& head : answer.passed) {
    if (const auto value = head.find(name)) {
      return std::string(*value);
    }
  }
  return std::string(answer.head.find(name).value_or(""));
}

Result<std::string> absolute_url(const std::string& from, const std::string& to, const std::string& uri) {
  const auto hop = UrlHop::parse(from, any_place());
  const auto next = hop.is_ok() ? hop->follow(to, any_place()) : hop;
  return next.is_ok() ? Result<std::string>(next->url())
                      : Status::corrupt_data("the hub sent us to what is no address (of, why):", uri, next.error().detail);
}

}  // namespace

HubClient::HubClient(WebClient& web, HubOptions options) : web_(web), options_(std::move(options)) {
  DARKROOM_CHECK(options_.validate().is_ok(), "options of the hub:", options_.validate().to_string());
}

WebRequest HubClient::request_to(const std::string& url) const {
  WebRequest request{.url = url, .max_body_bytes = kMaxDocumentBytes};
  if (options_.token && is_same_origin(url, options_.endpoint)) {
    request.headers.emplace_back("Authorization", "Bearer " + *options_.token);
  }
  return request;
}

std::string HubClient::uri_of(const HubRepo& repo, const std::string& revision, const std::string& path) {
  return HubUri{.repo = repo, .revision = revision, .path = path}.to_string();
}

std::string HubClient::api_url(const HubRepo& repo) const {
  return fmt::format("{}/api/{}/{}", options_.endpoint, repo.kind == HubRepoKind::kDataset ? "datasets" : "models", repo.id);
}

Result<WebAnswer> HubClient::ask(WebRequest request, const HubRepo& repo, const std::string& uri, std::stop_token stop) {
  if (options_.is_offline) {
    return Status::failed_precondition("the hub may not be asked while HF_HUB_OFFLINE is set; unset it, or name files of this machine:",
                                       uri);
  }
  Result<WebAnswer> answer = web_.ask(request, std::move(stop));
  if (!answer.is_ok()) {
    return answer.status().with_context("asking the hub for " + uri);
  }
  if (!answer->is_whole) {
    return Status::corrupt_data("the hub's answer is too large (address, most bytes):", uri, request.max_body_bytes);
  }
  const int status = answer->head.status;
  if (status / 100 == 2 || (status / 100 == 3 && !request.may_leave_origin)) {
    return answer;
  }
  return hub_failure(*answer, uri, options_.token.has_value(), fmt::format("{}/{}", shown_url(options_.endpoint), repo.prefix()));
}

Result<std::string> HubClient::commit_of(const HubRepo& repo, const std::string& revision, std::stop_token stop) {
  if (is_hex(revision, kCommitHexDigits)) {
    return revision;
  }
  const auto key = std::pair(repo, revision);
  {
    const std::lock_guard hold(mutex_);
    if (const auto found = commits_.find(key); found != commits_.end()) {
      return found->second;
    }
  }
  const std::string uri = uri_of(repo, revision, "");
  const std::string url = api_url(repo) + "/revision/" + encode_s3_value(revision);
  DARKROOM_ASSIGN_OR_RETURN(const WebAnswer answer, ask(request_to(url), repo, uri, std::move(stop)));
  DARKROOM_ASSIGN_OR_RETURN(std::string commit, read_hub_commit(answer.body, uri));
  const std::lock_guard hold(mutex_);
  return commits_.emplace(key, std::move(commit)).first->second;  // The first answer stays, whoever asked at the same time.
}

Result<std::vector<HubFile>> HubClient::list(const HubRepo& repo, const std::string& revision, const std::string& folder, bool is_recursive,
                                             std::stop_token stop) {
  const std::string uri = uri_of(repo, revision, folder);
  std::string url = fmt::format("{}/tree/{}{}?recursive={}", api_url(repo), encode_s3_value(revision),
                                folder.empty() ? "" : "/" + encode_s3_path(folder), is_recursive);
  std::vector<HubFile> files;
  std::set<std::string> pages;
  while (true) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped while listing:", uri);
    }
    if (!pages.insert(url).second || !is_same_origin(url, options_.endpoint)) {
      return Status::corrupt_data("the hub's pages of files lead in a circle or to another host (of):", uri);
    }
    if (pages.size() > kMaxPages) {
      return Status::corrupt_data("the hub's pages of files do not end (of, pages):", uri, pages.size());
    }
    DARKROOM_ASSIGN_OR_RETURN(const WebAnswer answer, ask(request_to(url), repo, uri, stop));
    DARKROOM_ASSIGN_OR_RETURN(std::vector<HubFile> page, read_hub_tree(answer.body, uri));
    std::move(page.begin(), page.end(), std::back_inserter(files));
    const auto next = next_link(answer.head.find("link").value_or(""));
    if (!next) {
      break;
    }
    DARKROOM_ASSIGN_OR_RETURN(url, absolute_url(answer.url, *next, uri));
  }
  std::ranges::sort(files, {}, &HubFile::path);
  return files;
}

Result<std::vector<HubFile>> HubClient::parquet_files(const HubRepo& repo, const std::string& config, const std::string& split,
                                                      std::stop_token stop) {
  const std::string uri = uri_of(repo, "", "");
  DARKROOM_ASSIGN_OR_RETURN(const WebAnswer answer, ask(request_to(api_url(repo) + "/parquet"), repo, uri, stop));
  DARKROOM_ASSIGN_OR_RETURN(const HubSplits configs, read_hub_splits(answer.body, uri));
  DARKROOM_ASSIGN_OR_RETURN(const auto chosen, choose(configs, config, "default", "config", uri));
  DARKROOM_ASSIGN_OR_RETURN(const auto listed, choose(chosen->second, split, "", "split", uri));

  // The listed URLs lead to the conversion's branch; its tree names the same files, their sizes, and one commit of all of them.
  DARKROOM_ASSIGN_OR_RETURN(const std::string commit, commit_of(repo, std::string(kHubParquetRevision), stop));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<HubFile> files, list(repo, commit, chosen->first, /*is_recursive=*/true, stop));
  const std::string whole = fmt::format("{}/{}", chosen->first, listed->first);
  const std::string part = fmt::format("{}/{}{}", chosen->first, kPartial, listed->first);
  std::erase_if(files, [&](const HubFile& file) {
    const std::string folder = parent_folder(file.path);
    return file.is_folder || !file.path.ends_with(".parquet") || (folder != whole && folder != part);
  });
  if (static_cast<int64_t>(files.size()) != listed->second || files.empty()) {
    return Status::unavailable(
        "the hub lists other Parquet files than it holds: it may be converting the dataset now, try later (address, "
        "config, split, listed, there):",
        uri, chosen->first, listed->first, listed->second, files.size());
  }
  if (parent_folder(files.front().path) == part) {
    log_warning("the hub converted only a first part of {} (config {}, split {}) to Parquet; the rest is not read", uri, chosen->first,
                listed->first);
  }
  return files;
}

Result<HubPlace> HubClient::resolve(const HubRepo& repo, const std::string& revision, const std::string& path, std::stop_token stop) {
  const std::string uri = uri_of(repo, revision, path);
  WebRequest request =
      request_to(fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, repo.prefix(), encode_s3_value(revision), encode_s3_path(path)));
  request.method = "HEAD";
  request.may_leave_origin = false;
  DARKROOM_ASSIGN_OR_RETURN(const WebAnswer answer, ask(std::move(request), repo, uri, std::move(stop)));
  const auto elsewhere = redirect_location(answer.head);
  const std::string linked_etag = first_header(answer, "x-linked-etag");
  const std::string linked_size = first_header(answer, "x-linked-size");
  HubPlace place{.commit = first_header(answer, "x-repo-commit"),
                 .size_bytes = elsewhere ? -1 : answer.head.content_length.value_or(-1),
                 .etag = plain_etag(linked_etag.empty() ? answer.head.find("etag").value_or("") : linked_etag),
                 .url = answer.url};
  if (!linked_size.empty()) {
    std::from_chars(linked_size.data(), linked_size.data() + linked_size.size(), place.size_bytes);
  }
  if (place.size_bytes < 0 || place.etag.empty() || (!place.commit.empty() && !is_hex(place.commit, kCommitHexDigits))) {
    return Status::corrupt_data("the hub does not say size and hash of a file (X-Linked-Size, X-Linked-Etag, X-Repo-Commit):", uri);
  }
  if (elsewhere) {
    DARKROOM_ASSIGN_OR_RETURN(place.url, absolute_url(answer.url, *elsewhere, uri));
  }
  return place;
}

}  // namespace darkroom
