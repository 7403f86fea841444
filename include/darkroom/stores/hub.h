#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/stores/web_client.h"

namespace darkroom {

enum class HubRepoKind { kModel, kDataset };

/// A repository of the hub.
struct HubRepo {
  HubRepoKind kind = HubRepoKind::kModel;
  std::string id = {};  ///< "ORG/NAME".

  std::string prefix() const;  ///< "ORG/NAME" or "datasets/ORG/NAME": how addresses of its files begin.
  auto operator<=>(const HubRepo&) const = default;
};

/// The branch that holds the hub's own conversion of a dataset to Parquet.
inline constexpr std::string_view kHubParquetRevision = "refs/convert/parquet";

/// What an hf:// address names:
///   hf://[datasets/]ORG/NAME[@REVISION][/PATH]
///   hf://datasets/ORG/NAME?config=CONFIG&split=SPLIT (either of both may be left out)
/// REVISION is a commit, branch or tag; "/" in it is written %2F, except in refs/convert/NAME and refs/pr/NUMBER. "~parquet" is
/// kHubParquetRevision. PATH is taken literally (no escapes) and may be a pattern.
struct HubUri {
  HubRepo repo;
  std::string revision = {};  ///< Empty: none was given.
  std::string path = {};      ///< Within the repository, without slashes at its ends; empty: all of it.
  bool is_table = false;      ///< `config` and `split` name files, in place of `revision` and `path`.
  std::string config = {};    ///< Empty: none was given.
  std::string split = {};     ///< Likewise.

  /// Errors: kInvalidArgument: no such form.
  static Result<HubUri> parse(std::string_view uri);
  /// parse() reads it as the same.
  std::string to_string() const;
};

/// Which hub, and as whom.
struct HubOptions {
  std::string endpoint = "https://huggingface.co";  ///< http or https; a path before that of the hub is kept.
  std::optional<std::string> token = std::nullopt;  ///< Secret: never in a message, sent to the endpoint's own scheme, host and port only.
  bool is_offline = false;                          ///< Every request is refused.

  /// kInvalidArgument naming the first bad field; never shows the token.
  Status validate() const;
};

/// What find_hub_options() may look at.
struct HubSurroundings {
  std::function<std::optional<std::string>(const std::string& name)> environment;  ///< Nothing: the variable is not set.
  std::function<Result<std::string>(const std::string& path)> read_file;           ///< kNotFound: there is none.
};

/// As huggingface_hub does ("Environment variables" of its documentation): the token is that of HF_TOKEN, else HUGGING_FACE_HUB_TOKEN,
/// else the file HF_TOKEN_PATH, else the file `token` in HF_HOME (else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface). Line
/// ends are cut out of it, blanks off its ends; an empty one is none. HF_HUB_DISABLE_IMPLICIT_TOKEN: none of these. HF_ENDPOINT: another
/// hub. HF_HUB_OFFLINE: is_offline. A switch is on when it is 1, on, yes or true, in any case.
/// Errors: those of validate() and read_file (a token file that is not there is none).
Result<HubOptions> find_hub_options(const HubSurroundings& surroundings);
/// Of this process' environment and disk.
Result<HubOptions> hub_from_environment();

/// A file as the hub's tree tells of it.
struct HubFile {
  std::string path = {};  ///< Within the repository; relative, without "." and "..".
  int64_t size_bytes = 0;
  bool is_folder = false;
  std::string git_sha1 = {};  ///< Of a file in git: SHA-1 of "blob SIZE\0" and its bytes, 40 hex digits. Of a large one: of its pointer.
  std::string sha256 = {};    ///< Of a large file (LFS): of its bytes, 64 hex digits. Otherwise empty.
};

/// Where the bytes of a file lie at the moment.
struct HubPlace {
  std::string commit = {};  ///< 40 hex digits, where the hub says it.
  int64_t size_bytes = 0;
  std::string etag = {};  ///< Without quotes: SHA-256 of a large file's bytes, the git blob's SHA-1 of another one.
  std::string url = {};   ///< Of another host it is signed, holds for some minutes and is secret.
};

/// The Hugging Face hub's interface for reading (huggingface_hub's HfApi is its documentation).
/// Errors of every method: kFailedPrecondition (not authorised: says to set HF_TOKEN, or to ask for access; offline), kNotFound
/// (repository, revision or path; a private repository looks the same), kUnavailable (hub or network, after the tries of WebOptions),
/// kCorruptData (an answer that is none), kCancelled when `stop` is asked for. Thread safety: any thread.
class HubClient {
 public:
  /// `web` outlives the client. REQUIRES: options.validate() is ok.
  HubClient(WebClient& web, HubOptions options);

  const HubOptions& options() const { return options_; }
  WebClient& web() const { return web_; }

  /// The commit that a branch or tag stands for now; remembers the answer, so that a branch that moves is one commit to this client.
  /// A commit (40 hex digits) is its own answer, without a request.
  Result<std::string> commit_of(const HubRepo& repo, const std::string& revision, std::stop_token stop);
  /// What lies in `folder` ("" the repository): with `is_recursive` at any depth. Folders are told as well. In byte order of the paths.
  /// Errors: also kCorruptData when the pages lead in a circle or to another host, or are more than 10,000.
  Result<std::vector<HubFile>> list(const HubRepo& repo, const std::string& revision, const std::string& folder, bool is_recursive,
                                    std::stop_token stop);
  /// The files of a split of a dataset's configuration, in order, in the commit of kHubParquetRevision. An empty `config` is the only one
  /// or "default", an empty `split` the only one. A conversion that stopped at the hub's limit (5 GB) is told by a warning in the log.
  /// Errors: also kNotFound naming those that exist.
  Result<std::vector<HubFile>> parquet_files(const HubRepo& repo, const std::string& config, const std::string& split,
                                             std::stop_token stop);
  /// Asks the hub where a file's bytes lie.
  Result<HubPlace> resolve(const HubRepo& repo, const std::string& revision, const std::string& path, std::stop_token stop);

  /// A GET of `url`, with the token when that is the endpoint's own.
  WebRequest request_to(const std::string& url) const;
  /// "hf://ORG/NAME@REVISION/PATH".
  static std::string uri_of(const HubRepo& repo, const std::string& revision, const std::string& path);

 private:
  Result<WebAnswer> ask(WebRequest request, const HubRepo& repo, const std::string& uri, std::stop_token stop);
  std::string api_url(const HubRepo& repo) const;

  WebClient& web_;
  HubOptions options_;
  std::mutex mutex_;  // Guards commits_.
  std::map<std::pair<HubRepo, std::string>, std::string> commits_;
};

}  // namespace darkroom
