#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/sha256.h"
#include "stores/sha1.h"
#include "support/http_answers.h"

namespace darkroom {

/// A hub on 127.0.0.1 and, at another port and so of another origin, the place of its large files, whose URLs expire. What it answers is
/// that of huggingface.co where HubClient looks.
class FakeHub {
 public:
  using Request = ScriptedServer::Request;
  using Answer = ScriptedServer::Answer;
  struct File {
    std::string bytes;
    bool is_large = false;
  };
  using Files = std::map<std::string, File>;
  /// What a test answers itself; nothing: the fake does.
  using Fault = std::function<std::optional<Answer>(const Request&)>;

  std::string endpoint() const { return server_url(hub_); }
  std::vector<Request> hub_requests() const { return hub_.requests(); }
  std::vector<Request> bytes_requests() const { return bytes_.requests(); }

  /// Puts a commit at a revision of "models/ORG/NAME" or "datasets/ORG/NAME".
  std::string add(const std::string& repo, const std::string& revision, Files files) {
    const std::lock_guard lock(mutex_);
    const std::string commit = sha256_hex(fmt::format("{} {} {}", repo, revision, ++num_commits_)).substr(0, 40);
    revisions_[repo][revision] = commit;
    revisions_[repo][commit] = commit;
    commits_[commit] = std::move(files);
    return commit;
  }
  /// What /parquet answers for a dataset.
  void set_parquet(const std::string& repo, const std::string& json) {
    set([&] { parquet_[repo] = json; });
  }
  void set_token(const std::string& token, bool is_gated) {
    set([&] {
      token_ = token;
      is_gated_ = is_gated;
    });
  }
  void set_page_size(size_t size) {
    set([&] { page_size_ = size; });
  }
  void set_hub_fault(Fault fault) {
    set([&] { hub_fault_ = std::move(fault); });
  }
  void set_bytes_fault(Fault fault) {
    set([&] { bytes_fault_ = std::move(fault); });
  }
  /// Every URL of large files that was given out serves no more.
  void expire_urls() {
    set([&] { ++ticket_; });
  }

  static std::string git_sha1(const std::string& bytes) {
    Sha1 sha1;
    const std::string head = fmt::format("blob {}", bytes.size());
    sha1.update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
    sha1.update(std::as_bytes(std::span(bytes)));
    return sha1.finish_hex();
  }

 private:
  template <typename Change>
  void set(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
  }

  static std::string decoded(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool is_escape = text[i] == '%' && i + 2 < text.size();
      out += is_escape ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
      i += is_escape ? 2 : 0;
    }
    return out;
  }
  static std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> names;
    for (size_t begin = 1; begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      names.push_back(decoded(path.substr(begin, end - begin)));
      begin = end + 1;
    }
    return names;
  }
  static std::string join(const std::vector<std::string>& names, size_t begin) {
    std::string path;
    for (size_t i = begin; i < names.size(); ++i) {
      path += (i > begin ? "/" : "") + names[i];
    }
    return path;
  }
  static Answer error(int status, const std::string& code) {
    return {http_answer(status, "{\"error\":\"no\"}", "X-Error-Code: " + code + "\r\n")};
  }

  Answer answer_hub(const Request& request) {
    const std::lock_guard lock(mutex_);
    if (hub_fault_) {
      if (auto answer = hub_fault_(request)) {
        return *std::move(answer);
      }
    }
    const std::string authorization = request_header(request, "Authorization");
    if (!token_.empty() && authorization != "Bearer " + token_) {
      return is_gated_ ? error(authorization.empty() ? 401 : 403, "GatedRepo") : error(401, "RepoNotFound");
    }
    const std::string target = request_target_of(request);
    const size_t mark = std::min(target.find('?'), target.size());
    std::vector<std::string> names = split(target.substr(0, mark));
    return names.front() == "api" ? answer_api(names, target.substr(mark)) : answer_file(request, std::move(names));
  }

  Answer answer_api(const std::vector<std::string>& names, const std::string& query) {
    const std::string repo = names[1] + "/" + names[2] + "/" + names[3];
    if (!revisions_.contains(repo)) {
      return error(404, "RepoNotFound");
    }
    if (names[4] == "parquet") {
      return parquet_.contains(repo) ? Answer{http_answer(200, parquet_[repo])} : error(404, "EntryNotFound");
    }
    const auto revision = revisions_[repo].find(names[5]);
    if (revision == revisions_[repo].end()) {
      return error(404, "RevisionNotFound");
    }
    return names[4] == "revision" ? Answer{http_answer(200, fmt::format("{{\"id\":\"x\",\"sha\":\"{}\"}}", revision->second))}
                                  : answer_tree(commits_[revision->second], names, query);
  }

  Answer answer_tree(const Files& files, const std::vector<std::string>& names, const std::string& query) const {
    const std::string folder = join(names, 6);
    std::map<std::string, std::string> entries;
    for (const auto& [path, file] : files) {
      if (!folder.empty() && !path.starts_with(folder + "/")) {
        continue;
      }
      for (size_t slash = path.find('/', folder.empty() ? 0 : folder.size() + 1); slash != std::string::npos;
           slash = path.find('/', slash + 1)) {
        entries[path.substr(0, slash)] = fmt::format(R"({{"type":"directory","oid":"","size":0,"path":"{}"}})", path.substr(0, slash));
      }
      const std::string lfs =
          file.is_large ? fmt::format(R"(,"lfs":{{"oid":"{}","size":{},"pointerSize":130}})", sha256_hex(file.bytes), file.bytes.size())
                        : "";
      entries[path] =
          fmt::format(R"({{"type":"file","oid":"{}","size":{},"path":"{}"{}}})", git_sha1(file.bytes), file.bytes.size(), path, lfs);
    }
    if (query.find("recursive=true") == std::string::npos) {
      std::erase_if(entries,
                    [&](const auto& entry) { return entry.first.find('/', folder.empty() ? 0 : folder.size() + 1) != std::string::npos; });
    }
    if (entries.empty() && !folder.empty()) {
      return error(404, "EntryNotFound");
    }
    const size_t cursor = query.find("cursor=");
    const size_t begin = cursor == std::string::npos ? 0 : std::stoul(query.substr(cursor + 7));
    std::string body = "[";
    size_t i = 0;
    for (const auto& [path, entry] : entries) {
      body += i >= begin && i < begin + page_size_ ? (body.size() > 1 ? "," : "") + entry : "";
      ++i;
    }
    std::string link;
    if (begin + page_size_ < entries.size()) {
      const bool is_recursive = query.find("recursive=true") != std::string::npos;
      std::string at = fmt::format("{}/api/{}/{}/{}/tree/{}", endpoint(), names[1], names[2], names[3], names[5]);
      at += folder.empty() ? "" : "/" + folder;
      link = fmt::format("Link: <{}?recursive={}&cursor={}>; rel=\"next\"\r\n", at, is_recursive, begin + page_size_);
    }
    return {http_answer(200, body + "]", link)};
  }

  /// [datasets/]ORG/NAME/resolve/REVISION/PATH
  Answer answer_file(const Request& request, std::vector<std::string> names) {
    if (names.front() != "datasets") {
      names.insert(names.begin(), "models");
    }
    const std::string repo = join({names.begin(), names.begin() + 3}, 0);
    if (!revisions_.contains(repo)) {
      return error(404, "RepoNotFound");
    }
    const auto revision = revisions_[repo].find(names[4]);
    if (revision == revisions_[repo].end()) {
      return error(404, "RevisionNotFound");
    }
    const Files& files = commits_[revision->second];
    const auto found = files.find(join(names, 5));
    if (found == files.end()) {
      return error(404, "EntryNotFound");
    }
    const File& file = found->second;
    const std::string commit = fmt::format("X-Repo-Commit: {}\r\n", revision->second);
    if (!file.is_large) {
      return {ranged_answer(request, file.bytes, commit + fmt::format("ETag: \"{}\"\r\n", git_sha1(file.bytes)))};
    }
    const std::string hash = sha256_hex(file.bytes);
    blobs_[hash] = file.bytes;
    return {http_answer(302, "",
                        commit + fmt::format("X-Linked-Size: {}\r\nX-Linked-Etag: \"{}\"\r\nLocation: http://127.0.0.1:{}/{}?ticket={}\r\n",
                                             file.bytes.size(), hash, bytes_.port(), hash, ticket_))};
  }

  Answer answer_bytes(const Request& request) {
    const std::lock_guard lock(mutex_);
    if (bytes_fault_) {
      if (auto answer = bytes_fault_(request)) {
        return *std::move(answer);
      }
    }
    const std::string target = request_target_of(request);
    const size_t mark = target.find("?ticket=");
    if (mark == std::string::npos || target.substr(mark + 8) != std::to_string(ticket_)) {
      return {http_answer(403, "expired")};
    }
    return {ranged_answer(request, blobs_[target.substr(1, mark - 1)], "ETag: \"of the other server\"\r\n")};
  }

  std::mutex mutex_;  // Guards what follows, down to the servers.
  std::map<std::string, std::map<std::string, std::string>> revisions_;
  std::map<std::string, Files> commits_;
  std::map<std::string, std::string> parquet_;
  std::map<std::string, std::string> blobs_;
  std::string token_;
  bool is_gated_ = false;
  size_t page_size_ = 1000;
  int num_commits_ = 0;
  int ticket_ = 1;
  Fault hub_fault_;
  Fault bytes_fault_;
  ScriptedServer bytes_{[this](const Request& request) { return answer_bytes(request); }};
  ScriptedServer hub_{[this](const Request& request) { return answer_hub(request); }};
};

}  // namespace darkroom
