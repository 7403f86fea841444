#include "darkroom/stores/fetch_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/folder_lock.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/stores/hub_store.h"
#include "model_files.h"
#include "sha1.h"

namespace darkroom {
namespace {

/// The hash by which the hub knows a file.
class HubHash {
 public:
  explicit HubHash(const HubFile& file) : want_(file.sha256.empty() ? file.git_sha1 : file.sha256), is_git_(file.sha256.empty()) {
    if (is_git_) {
      const std::string head = fmt::format("blob {}", file.size_bytes);
      sha1_.update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));  // With its zero byte.
    }
  }
  void update(std::span<const std::byte> bytes) { is_git_ ? sha1_.update(bytes) : sha256_.update(bytes); }
  /// Once, when all bytes were given: nothing where they are right, else what they hash to.
  std::optional<std::string> finish() {
    const std::string got = is_git_ ? sha1_.finish_hex() : sha256_.finish_hex();
    return got == want_ ? std::nullopt : std::optional(got);
  }
  const std::string& want() const { return want_; }

 private:
  std::string want_;
  bool is_git_;
  Sha1 sha1_;
  Sha256 sha256_;
};

/// One call of fetch_model, once it is known what to fetch.
class ModelFetch {
 public:
  ModelFetch(Store& hub_store, std::string source, FileSystem& files, std::string folder, const ModelFetchOptions& options,
             std::stop_token stop)
      : hub_store_(hub_store),
        source_(std::move(source)),
        files_(files),
        folder_(std::move(folder)),
        options_(options),
        stop_(std::move(stop)),
        buffer_(static_cast<size_t>(options.chunk_bytes)) {}

  /// Fetches the files one after the other. `so_far` names the commit.
  Status fetch_all(const std::vector<HubFile>& wanted, FetchedModel& so_far) {
    for (const HubFile& file : wanted) {
      ++so_far.num_wanted_files;
      so_far.num_wanted_bytes += file.size_bytes;
    }
    tell(so_far, 0, 0);
    for (const HubFile& file : wanted) {
      if (options_.on_file) {
        options_.on_file(file.path, file.size_bytes);
      }
      DARKROOM_ASSIGN_OR_RETURN(const int64_t num_stored, fetch(file, so_far));
      so_far.num_resumed_bytes += num_stored;
      so_far.num_bytes += file.size_bytes;
      ++so_far.num_files;
      tell(so_far, 0, 0);
    }
    return Status::ok();
  }

 private:
  /// How many bytes of it were there.
  Result<int64_t> fetch(const HubFile& file, const FetchedModel& before) {
    const std::string path = join_path(folder_, file.path);
    DARKROOM_RETURN_IF_ERROR(files_.create_folders(parent_folder(path)));
    for (bool is_anew = false;; is_anew = true) {
      HubHash hash(file);
      DARKROOM_ASSIGN_OR_RETURN(const int64_t num_stored, read_stored(path, file.size_bytes, hash));
      tell(before, num_stored, num_stored);
      DARKROOM_RETURN_IF_ERROR(append_rest(path, file, num_stored, hash, before));
      const auto wrong = hash.finish();
      if (!wrong) {
        return num_stored;
      }
      DARKROOM_RETURN_IF_ERROR(files_.remove_file(path));
      tell(before, 0, 0);
      if (is_anew || num_stored == 0) {
        return Status::corrupt_data("the bytes of a file are not those that the hub names (file, hash named, hash of the bytes):",
                                    join_path(source_, file.path), hash.want(), *wrong);
      }
    }
  }

  void tell(FetchedModel so_far, int64_t num_more_bytes, int64_t num_more_resumed_bytes) const {
    so_far.num_bytes += num_more_bytes;
    so_far.num_resumed_bytes += num_more_resumed_bytes;
    if (options_.on_progress) {
      options_.on_progress(so_far);
    }
  }

  /// Hashes what an earlier call stored; a file that is too long goes.
  Result<int64_t> read_stored(const std::string& path, int64_t size_bytes, HubHash& hash) {
    const Result<std::unique_ptr<InputFile>> file = files_.open_input(path);
    if (!file.is_ok()) {
      return file.status().code() == StatusCode::kNotFound ? Result<int64_t>(0) : file.status();
    }
    if ((*file)->size_bytes() > size_bytes) {
      DARKROOM_RETURN_IF_ERROR(files_.remove_file(path));
      return 0;
    }
    int64_t num_stored = 0;
    while (true) {
      DARKROOM_RETURN_IF_ERROR(check_stop());
      DARKROOM_ASSIGN_OR_RETURN(const size_t num_bytes, (*file)->read_at(num_stored, buffer_));
      if (num_bytes == 0) {
        return num_stored;
      }
      hash.update(std::span(buffer_).first(num_bytes));
      num_stored += static_cast<int64_t>(num_bytes);
    }
  }

  Status append_rest(const std::string& path, const HubFile& file, const int64_t num_stored, HubHash& hash, const FetchedModel& before) {
    int64_t begin = num_stored;
    DARKROOM_ASSIGN_OR_RETURN(const auto from, hub_store_.open_input(join_path(source_, file.path), file.size_bytes));
    DARKROOM_ASSIGN_OR_RETURN(const auto to, files_.open_append(path));
    while (begin < file.size_bytes) {
      DARKROOM_RETURN_IF_ERROR(check_stop());
      const auto wanted = std::span(buffer_).first(static_cast<size_t>(std::min(options_.chunk_bytes, file.size_bytes - begin)));
      DARKROOM_ASSIGN_OR_RETURN(const size_t num_bytes, from->read_at(begin, wanted));
      DARKROOM_CHECK(num_bytes == wanted.size(), "a short read of:", file.path);
      DARKROOM_RETURN_IF_ERROR(to->write(wanted));
      hash.update(wanted);
      begin += static_cast<int64_t>(num_bytes);
      tell(before, begin, num_stored);
    }
    DARKROOM_RETURN_IF_ERROR(to->sync());
    return to->close();
  }

  Status check_stop() const {
    return stop_.stop_requested() ? Status::cancelled("stopped; the same command goes on from here (folder):", folder_) : Status::ok();
  }

  Store& hub_store_;
  const std::string source_;  // In hub_store_.
  FileSystem& files_;
  const std::string folder_;
  const ModelFetchOptions& options_;
  const std::stop_token stop_;
  std::vector<std::byte> buffer_;
};

Status taken(const std::string& output) { return Status::already_exists("there is something already; name a new folder:", output); }

/// Removes what an earlier call fetched of another revision, then makes the folder visible under its name.
Status publish_fetched(FileSystem& files, const std::string& folder, const std::vector<HubFile>& fetched, const std::string& output) {
  std::set<std::string> wanted;
  for (const HubFile& file : fetched) {
    wanted.insert(join_path(folder, file.path));
    wanted.insert(parent_folder(join_path(folder, file.path)));
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list_tree(folder));
  for (const FileInfo& entry : entries) {
    if (!wanted.contains(entry.path)) {
      DARKROOM_RETURN_IF_ERROR(files.remove_file(entry.path));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> tops, files.list(folder));
  for (const FileInfo& top : tops) {
    if (!wanted.contains(top.path)) {
      DARKROOM_RETURN_IF_ERROR(files.remove_tree(top.path));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, publish_folder(files, parent_folder(output), folder, file_name(output)));
  return outcome == PublishOutcome::kPublished ? Status::ok() : taken(output);
}

/// Those of a model folder, or of a single network.
Result<std::vector<HubFile>> wanted_files(Store& hub_store, const std::string& source, const std::vector<HubFile>& tree,
                                          const std::string& what) {
  if (!has_file(tree, "model_index.json") && has_file(tree, "config.json")) {
    return choose_network_files(tree, what);
  }
  DARKROOM_RETURN_IF_ERROR(choose_model_files(tree, {}, what).status());  // Whether there is an index.
  DARKROOM_ASSIGN_OR_RETURN(const std::string index, hub_store.read_small(join_path(source, "model_index.json"), 1 << 20));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<std::string> parts, read_model_parts(index, what));
  return choose_model_files(tree, parts, what);
}

Status check_free(FileSystem& files, const std::string& output) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_taken, files.exists(output));
  return is_taken ? taken(output) : Status::ok();
}

}  // namespace

Result<FetchedModel> fetch_model(HubClient& hub, Store& hub_store, const HubUri& model, FileSystem& files, const std::string& output,
                                 const ModelFetchOptions& options, std::stop_token stop) {
  DARKROOM_CHECK(options.chunk_bytes > 0, "a chunk of no bytes:", options.chunk_bytes);
  if (model.repo.kind != HubRepoKind::kModel || !model.path.empty() || model.is_table) {
    return Status::invalid_argument("this names no model of the hub; give hf://ORG/NAME or hf://ORG/NAME@REVISION:", model.to_string());
  }
  const std::string target(without_trailing_slashes(output));
  DARKROOM_RETURN_IF_ERROR(check_free(files, target));
  FetchedModel fetched;
  DARKROOM_ASSIGN_OR_RETURN(fetched.commit, hub.commit_of(model.repo, model.revision.empty() ? "main" : model.revision, stop));
  const std::string source = fmt::format("{}@{}", model.repo.prefix(), fetched.commit);
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<HubFile> tree, hub.list(model.repo, fetched.commit, "", /*is_recursive=*/true, stop));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<HubFile> wanted, wanted_files(hub_store, source, tree, model.to_string()));

  const std::string folder = join_path(parent_folder(target), fmt::format("_tmp.{}.fetch", file_name(target)));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock,
                            lock_folder(files, folder, "another process is fetching into the same place (folder):"));
  DARKROOM_RETURN_IF_ERROR(check_free(files, target));  // Who held the lock before may have published meanwhile.
  ModelFetch fetch(hub_store, source, files, folder, options, stop);
  DARKROOM_RETURN_IF_ERROR(fetch.fetch_all(wanted, fetched));
  DARKROOM_RETURN_IF_ERROR(publish_fetched(files, folder, wanted, target));
  return fetched;
}

Result<FetchedModel> fetch_model(const std::string& uri, const std::string& output, const ModelFetchOptions& options,
                                 MetricsRegistry& metrics, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(const HubUri model, HubUri::parse(uri));
  DARKROOM_ASSIGN_OR_RETURN(HubOptions hub_options, hub_from_environment());
  DARKROOM_ASSIGN_OR_RETURN(const auto http, HttpClient::start({}, metrics));
  WebClient web(*http, system_clock(), {});
  HubClient hub(web, std::move(hub_options));
  const auto store = make_hub_store(hub, system_clock(), stop);
  return fetch_model(hub, *store, model, local_files(), output, options, stop);
}

}  // namespace darkroom
