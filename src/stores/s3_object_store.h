#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/files/commit_record.h"
#include "darkroom/files/store.h"
#include "s3_client.h"

namespace darkroom {

inline constexpr const char* kS3TemporaryFolder = "_tmp";   ///< That of commit_record.h.
inline constexpr const char* kS3TemporaryPrefix = "_tmp.";  ///< Of folders on their way.

/// Whether a sweep also takes what was begun within the folders that lie in its own.
enum class S3SweepScope { kFolder, kFoldersToo };

/// What make_s3_store gives (s3_store.h).
class S3Store final : public Store {
 public:
  explicit S3Store(std::unique_ptr<S3Client> client) : client_(std::move(client)) {}

  std::string_view scheme() const override { return "s3"; }
  std::string uri_of(const std::string& path) const override { return name_of(path).uri(); }
  bool is_writable() const override { return true; }

  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override;
  Status list_tree(const std::string& folder, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page) override;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path, std::optional<int64_t> known_size) override;
  Result<ObjectTail> read_tail(const std::string& path, int64_t num_bytes) override;
  Result<std::string> read_small(const std::string& path, int64_t max_bytes) override;

  Result<std::unique_ptr<PendingObject>> begin_object(const std::string& folder, const std::string& name) override;
  Result<std::unique_ptr<PendingFolder>> begin_folder(const std::string& folder, const std::string& name) override;

  Status replace_small(const std::string& path, std::string_view bytes) override { return replace(path, bytes, S3Patience::kFull); }
  Status replace_small_now(const std::string& path, std::string_view bytes) override { return replace(path, bytes, S3Patience::kTries); }
  Result<bool> create_small(const std::string& path, std::string_view bytes) override;
  Status remove(const std::string& path) override { return client_->remove(name_of(path)); }
  Status remove_tree(const std::string& folder) override;
  Status move_object(const std::string& from, const std::string& to) override;
  Status move_over(const std::string& from, const std::string& to) override;

  Result<SweepReport> sweep(const std::string& folder, std::chrono::seconds age, std::chrono::system_clock::time_point now) override;
  Result<SweepReport> sweep_folders(const std::string& folder, std::chrono::seconds age,
                                    std::chrono::system_clock::time_point now) override;
  Result<SweepReport> sweep_name(const std::string& path, std::chrono::seconds age, std::chrono::system_clock::time_point now) override;
  Result<FirstWins> first_wins(const std::string& folder) override;

  S3Client& client() { return *client_; }
  /// BUCKET/KEY; of a path without a slash the key is empty.
  static S3Name name_of(const std::string& path);
  static std::string path_of(const std::string& bucket, const std::string& key) { return bucket + "/" + key; }
  /// What the keys of a folder's objects begin with.
  static S3Name prefix_of(const std::string& folder);

 private:
  Result<FirstWins> probe_first_wins(const std::string& folder);
  Result<FirstWins> probe_taken_name(const S3Name& probe, S3Pieces pieces, const std::string& writer);
  Result<S3Outcome> probe_upload(const S3Name& probe, const std::string& upload, S3Pieces pieces, const std::string& writer);
  Status replace(const std::string& path, std::string_view bytes, S3Patience patience);
  Status try_to_move(const S3Name& from, const S3Name& to);
  Result<bool> hold_same_bytes(const S3Name& one, const S3Head& one_head, const S3Name& other, const S3Head& other_head);

  const std::unique_ptr<S3Client> client_;
  std::mutex mutex_;                             // Guards first_wins_; held while the first one tries.
  std::map<std::string, FirstWins> first_wins_;  // By bucket.
};

/// Copies an object that a look has shown, with its mark: by one request, or above S3Options::max_copy_bytes by an upload whose parts the
/// server copies, several at once. Errors: S3Client::copy's; kUnavailable when the upload is gone.
Status copy_s3_object(S3Client& client, const S3Name& from, const S3Head& head, const S3Name& to);

/// Reads an object by ranges.
Result<std::unique_ptr<InputFile>> open_s3_input(S3Store& store, const std::string& path, std::optional<int64_t> known_size);

/// begin_object: what fits into one part is one PUT, more is an upload.
std::unique_ptr<PendingObject> begin_s3_object(S3Store& store, std::string path);
/// "_tmp.NAME", NAME cut to 80 bytes: what the names of the folders on their way to NAME begin with, before ".MARK".
std::string s3_temporary_stem(const std::string& name);
/// begin_folder: files below FOLDER/_tmp.NAME.MARK, copied by publish(), the record last.
std::unique_ptr<PendingFolder> begin_s3_folder(S3Store& store, const std::string& folder, const std::string& name);

/// Completes what a commit record names: an upload or a folder. CompleteContender.
Result<Completion> complete_s3_contender(S3Store& store, const Location& object, const CommitRecord& record);
/// The same for a record that names a folder on its way.
Result<Completion> complete_s3_folder(S3Store& store, const Location& object, const CommitRecord& record);

Result<SweepReport> sweep_s3_folder(S3Store& store, const std::string& folder, S3SweepScope scope, std::chrono::sys_seconds oldest);
/// Of one object or folder.
Result<SweepReport> sweep_s3_name(S3Store& store, const std::string& path, std::chrono::sys_seconds oldest);

}  // namespace darkroom
