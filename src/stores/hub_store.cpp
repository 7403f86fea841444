#include "darkroom/stores/hub_store.h"

#include <map>
#include <mutex>

#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"
#include "read_only_store.h"
#include "web_part.h"

namespace darkroom {
namespace {

constexpr size_t kMaxKnownPlaces = 16'384;
constexpr size_t kPageEntries = 1000;

/// Where the bytes of files lie, as far as the hub was asked lately. Thread safety: any thread.
class HubPlaces {
 public:
  HubPlaces(HubClient& hub, Clock& clock, std::stop_token stop) : hub_(hub), clock_(clock), stop_(std::move(stop)) {}

  /// `refused`: a URL that does not serve any more, "" for none.
  Result<HubPlace> find(const HubUri& file, const std::string& refused = {}) {
    const std::string key = file.to_string();
    {
      const std::lock_guard hold(mutex_);
      const auto known = known_.find(key);
      if (known != known_.end() && clock_.now() - known->second.asked < kHubPlaceAge && known->second.place.url != refused) {
        return known->second.place;
      }
    }
    const Clock::Instant asked = clock_.now();
    DARKROOM_ASSIGN_OR_RETURN(HubPlace place, hub_.resolve(file.repo, file.revision, file.path, stop_));
    const std::lock_guard hold(mutex_);
    if (known_.size() >= kMaxKnownPlaces) {
      known_.clear();  // They are asked for again.
    }
    known_.insert_or_assign(key, Known{.place = place, .asked = asked});
    return place;
  }
  HubClient& hub() const { return hub_; }

 private:
  struct Known {
    HubPlace place;
    Clock::Instant asked;
  };

  HubClient& hub_;
  Clock& clock_;
  const std::stop_token stop_;
  std::mutex mutex_;  // Guards known_.
  std::map<std::string, Known> known_;
};

bool is_refusal(int status) { return status == 401 || status == 403 || status == 404 || status == 410; }

class HubInput final : public RangedFile {
 public:
  HubInput(HubPlaces& places, std::string path, HubUri file, int64_t size_bytes, std::stop_token stop)
      : places_(places), path_(std::move(path)), file_(std::move(file)), size_bytes_(size_bytes), stop_(std::move(stop)) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }

 protected:
  Status read_part(int64_t offset, std::span<std::byte> out) const override {
    const ByteRange range{.offset = offset, .num_bytes = static_cast<int64_t>(out.size())};
    DARKROOM_ASSIGN_OR_RETURN(WebAnswer answer, ask(range));
    DARKROOM_ASSIGN_OR_RETURN(const WebPart part, read_web_part(std::move(answer), range, file_.to_string()));
    if (part.size_bytes >= 0 && part.size_bytes != size_bytes_) {
      return changed();
    }
    std::ranges::copy(std::as_bytes(std::span(part.bytes)), out.begin());
    return Status::ok();
  }

 private:
  /// The answer of where the bytes lie; of where they lie now, when the place known refuses.
  Result<WebAnswer> ask(ByteRange range) const {
    DARKROOM_ASSIGN_OR_RETURN(HubPlace place, pinned_place(""));
    DARKROOM_ASSIGN_OR_RETURN(WebAnswer answer, ask_at(place, range));
    if (!is_refusal(answer.head.status)) {
      return answer;
    }
    DARKROOM_ASSIGN_OR_RETURN(place, pinned_place(place.url));
    return ask_at(place, range);
  }
  Result<WebAnswer> ask_at(const HubPlace& place, ByteRange range) const {
    HubClient& hub = places_.hub();
    Result<WebAnswer> answer = hub.web().ask(part_request(hub.request_to(place.url), range), stop_);
    return answer.is_ok() ? std::move(answer) : answer.status().with_context("reading " + file_.to_string());
  }
  Result<HubPlace> pinned_place(const std::string& refused) const {
    DARKROOM_ASSIGN_OR_RETURN(HubPlace place, places_.find(file_, refused));
    const std::lock_guard hold(mutex_);
    etag_ = etag_.empty() ? place.etag : etag_;
    return place.etag == etag_ && place.size_bytes == size_bytes_ ? Result<HubPlace>(std::move(place)) : changed();
  }
  Status changed() const {
    return Status::failed_precondition(
        "the file on the hub changed while it was read; begin again (address, bytes before):", file_.to_string(), size_bytes_);
  }

  HubPlaces& places_;
  const std::string path_;
  const HubUri file_;
  const int64_t size_bytes_;
  const std::stop_token stop_;
  mutable std::mutex mutex_;
  mutable std::string etag_;  // Guarded by mutex_; empty: not asked yet.
};

class HubStore final : public ReadOnly<Store> {
 public:
  HubStore(HubClient& hub, Clock& clock, std::stop_token stop) : places_(hub, clock, stop), stop_(std::move(stop)) {}

  std::string_view scheme() const override { return "hf"; }
  std::string uri_of(const std::string& path) const override { return "hf://" + path; }
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return entries_of(folder, /*is_recursive=*/false, stop_); }
  Status list_tree(const std::string& folder, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page) override;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path, std::optional<int64_t> known_size) override;
  Result<ObjectTail> read_tail(const std::string& path, int64_t num_bytes) override;
  Result<std::string> read_small(const std::string& path, int64_t max_bytes) override;

 private:
  Result<HubUri> parse(const std::string& path) const;
  Result<std::vector<FileInfo>> entries_of(const std::string& folder, bool is_recursive, const std::stop_token& stop);

  HubPlaces places_;
  const std::stop_token stop_;
};

Result<HubUri> HubStore::parse(const std::string& path) const {
  DARKROOM_ASSIGN_OR_RETURN(HubUri uri, HubUri::parse(uri_of(path)));
  if (uri.is_table) {
    return Status::failed_precondition("config= and split= name several files, and here one is wanted:", uri_of(path));
  }
  uri.revision = uri.revision.empty() ? "main" : uri.revision;
  return uri;
}

Result<std::vector<FileInfo>> HubStore::entries_of(const std::string& folder, bool is_recursive, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const HubUri uri, parse(folder));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<HubFile> files, places_.hub().list(uri.repo, uri.revision, uri.path, is_recursive, stop));
  std::vector<FileInfo> entries;
  for (const HubFile& file : files) {
    const std::string within = uri.path.empty() ? file.path : file.path.substr(std::min(uri.path.size() + 1, file.path.size()));
    entries.push_back({.path = join_path(folder, within), .size_bytes = file.size_bytes, .is_folder = file.is_folder});
  }
  return entries;
}

Result<FileInfo> HubStore::stat(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const HubUri uri, parse(path));
  if (uri.path.empty()) {
    DARKROOM_RETURN_IF_ERROR(places_.hub().commit_of(uri.repo, uri.revision, stop_).status());
    return FileInfo{.path = path, .size_bytes = 0, .is_folder = true};
  }
  const Result<HubPlace> place = places_.find(uri);
  if (place.is_ok()) {
    return FileInfo{.path = path, .size_bytes = place->size_bytes, .is_folder = false};
  }
  if (place.status().code() != StatusCode::kNotFound) {
    return place.status();
  }
  const Status listed = list(path).status();
  if (listed.is_ok()) {
    return FileInfo{.path = path, .size_bytes = 0, .is_folder = true};
  }
  return listed.code() == StatusCode::kNotFound ? place.status() : listed;  // A hub that cannot be asked has not said that it is not there.
}

Status HubStore::list_tree(const std::string& folder, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page) {
  std::stop_source ends;  // The caller's stop, or that of the store.
  const auto end = [&ends] { ends.request_stop(); };
  const std::stop_callback at_caller(std::move(stop), end);
  const std::stop_callback at_store(stop_, end);
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> files, entries_of(folder, /*is_recursive=*/true, ends.get_token()));
  std::erase_if(files, [](const FileInfo& entry) { return entry.is_folder; });
  for (size_t i = 0; i < files.size(); i += kPageEntries) {
    if (ends.stop_requested()) {
      return Status::cancelled("stopped while listing:", uri_of(folder));
    }
    DARKROOM_RETURN_IF_ERROR(page(std::span(files).subspan(i, std::min(kPageEntries, files.size() - i))));
  }
  return Status::ok();
}

Result<std::unique_ptr<InputFile>> HubStore::open_input(const std::string& path, std::optional<int64_t> known_size) {
  DARKROOM_ASSIGN_OR_RETURN(HubUri uri, parse(path));
  if (!known_size) {
    DARKROOM_ASSIGN_OR_RETURN(const HubPlace place, places_.find(uri));
    known_size = place.size_bytes;
  }
  return std::unique_ptr<InputFile>(std::make_unique<HubInput>(places_, path, std::move(uri), *known_size, stop_));
}

Result<ObjectTail> HubStore::read_tail(const std::string& path, int64_t num_bytes) {
  DARKROOM_CHECK(num_bytes >= 0, "a tail of fewer than no bytes:", num_bytes);
  DARKROOM_ASSIGN_OR_RETURN(const HubUri uri, parse(path));
  DARKROOM_ASSIGN_OR_RETURN(const HubPlace place, places_.find(uri));
  ObjectTail tail{.size_bytes = place.size_bytes, .bytes = {}, .version = place.etag};
  tail.bytes.resize(static_cast<size_t>(std::min(num_bytes, tail.size_bytes)));
  const HubInput file(places_, path, uri, tail.size_bytes, stop_);
  const int64_t begin = tail.size_bytes - static_cast<int64_t>(tail.bytes.size());
  DARKROOM_RETURN_IF_ERROR(file.read_at(begin, std::as_writable_bytes(std::span(tail.bytes))).status());
  return tail;
}

Result<std::string> HubStore::read_small(const std::string& path, int64_t max_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, open_input(path, std::nullopt));
  if (file->size_bytes() > max_bytes) {
    return Status::corrupt_data("the file is larger than what is read at once (address, most bytes):", uri_of(path), max_bytes);
  }
  std::string bytes(static_cast<size_t>(file->size_bytes()), '\0');
  DARKROOM_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(bytes))).status());
  return bytes;
}

}  // namespace

std::unique_ptr<Store> make_hub_store(HubClient& hub, Clock& clock, std::stop_token stop) {
  return std::make_unique<HubStore>(hub, clock, std::move(stop));
}

}  // namespace darkroom
