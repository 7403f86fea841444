#include "darkroom/stores/https_store.h"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"
#include "read_only_store.h"
#include "web_part.h"

namespace darkroom {
namespace {

/// Of a server that gives whole files alone.
constexpr int64_t kMostWholeBytes = int64_t{64} << 20;

/// The version of a file that its readers hold to.
struct WebPin {
  int64_t size_bytes = 0;
  std::string version = {};
  std::string whole = {};  ///< Its bytes, where they had to be read to know the size.
};

Status gives_whole_files(const std::string& url) {
  return Status::failed_precondition(
      "the server gives whole files alone, and one of more than 64 MB must be read in parts; copy it to a local folder and name that:",
      url);
}

Result<std::string> read_whole_file(WebClient& web, const std::string& url, int64_t max_bytes, const std::stop_token& stop,
                                    std::string* version = nullptr) {
  DARKROOM_ASSIGN_OR_RETURN(WebAnswer answer, web.ask({.url = url, .max_body_bytes = max_bytes}, stop));
  const std::string what = shown_url(url);
  if (answer.head.status != 200) {
    return answer.head.status / 100 == 2
               ? Status::unavailable("the server gave a part of the file unasked (address, status):", what, answer.head.status)
               : web_failure(answer, what);
  }
  DARKROOM_RETURN_IF_ERROR(check_not_packed(answer.head, what));
  if (!answer.is_whole) {
    return Status::corrupt_data("the file is larger than what is read at once (address, most bytes):", what, max_bytes);
  }
  if (version != nullptr) {
    *version = web_version(answer.head);
  }
  return std::move(answer.body);
}

class HttpsFile final : public RangedFile {
 public:
  HttpsFile(WebClient& web, std::string path, std::string url, WebPin pin, std::stop_token stop)
      : web_(web),
        path_(std::move(path)),
        url_(std::move(url)),
        stop_(std::move(stop)),
        size_bytes_(pin.size_bytes),
        gives_whole_(!pin.whole.empty()),
        version_(std::move(pin.version)),
        whole_(std::move(pin.whole)) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }

 protected:
  Status read_part(int64_t offset, std::span<std::byte> out) const override {
    const ByteRange range{.offset = offset, .num_bytes = static_cast<int64_t>(out.size())};
    if (gives_whole_) {
      return copy_of_whole(range, out);
    }
    DARKROOM_ASSIGN_OR_RETURN(WebAnswer answer, web_.ask(part_request({.url = url_}, range), stop_));
    if (answer.head.status == 200 && range.num_bytes < size_bytes_) {
      gives_whole_ = true;
      return copy_of_whole(range, out);
    }
    DARKROOM_ASSIGN_OR_RETURN(const WebPart part, read_web_part(std::move(answer), range, shown_url(url_)));
    DARKROOM_RETURN_IF_ERROR(check_version(part.size_bytes, part.version));
    std::ranges::copy(std::as_bytes(std::span(part.bytes)), out.begin());
    return Status::ok();
  }

 private:
  /// `size_bytes`: negative where the server does not say it.
  Status check_version(int64_t size_bytes, const std::string& version) const {
    const std::lock_guard hold(mutex_);
    if ((size_bytes >= 0 && size_bytes != size_bytes_) || !may_be_same_version(version, version_)) {
      return Status::failed_precondition("the file on the server changed while it was read; begin again (address, bytes before, now):",
                                         shown_url(url_), size_bytes_, size_bytes);
    }
    version_ = version_.empty() ? version : version_;
    return Status::ok();
  }

  /// Of the file in memory, which the first read fetches.
  Status copy_of_whole(ByteRange range, std::span<std::byte> out) const {
    if (size_bytes_ > kMostWholeBytes) {
      return gives_whole_files(shown_url(url_));
    }
    const std::lock_guard hold(whole_mutex_);
    if (whole_.empty()) {
      std::string version;
      DARKROOM_ASSIGN_OR_RETURN(std::string bytes, read_whole_file(web_, url_, kMostWholeBytes, stop_, &version));
      DARKROOM_RETURN_IF_ERROR(check_version(static_cast<int64_t>(bytes.size()), version));
      whole_ = std::move(bytes);
    }
    std::ranges::copy(std::as_bytes(std::span(whole_)).subspan(static_cast<size_t>(range.offset), out.size()), out.begin());
    return Status::ok();
  }

  WebClient& web_;
  const std::string path_;
  const std::string url_;
  const std::stop_token stop_;
  const int64_t size_bytes_;
  mutable std::atomic<bool> gives_whole_;
  mutable std::mutex mutex_;
  mutable std::string version_;  // Guarded by mutex_; empty: the server has named none yet.
  mutable std::mutex whole_mutex_;
  mutable std::string whole_;  // Guarded by whole_mutex_; empty: not fetched yet.
};

class WebServers final : public ReadOnly<HttpsStore> {
 public:
  WebServers(WebClient& web, std::string scheme, std::stop_token stop) : web_(web), scheme_(std::move(scheme)), stop_(std::move(stop)) {
    DARKROOM_CHECK(scheme_ == "https" || scheme_ == "http", "no scheme of the web:", scheme_);
  }

  Result<std::string> add(std::string_view url) override;
  std::string_view scheme() const override { return scheme_; }
  std::string uri_of(const std::string& path) const override { return fmt::format("{}://{}", scheme_, path); }
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return no_listing(folder); }
  Status list_tree(const std::string& folder, std::stop_token /*stop*/,
                   const std::function<Status(std::span<const FileInfo>)>& /*page*/) override {
    return no_listing(folder);
  }
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path, std::optional<int64_t> known_size) override;
  Result<ObjectTail> read_tail(const std::string& path, int64_t num_bytes) override;
  Result<std::string> read_small(const std::string& path, int64_t max_bytes) override;

 private:
  struct Probe {
    WebPin pin;
    bool has_ranges = false;
  };
  Result<Probe> probe(const std::string& path);
  Result<Probe> probe_by_reading(const std::string& path);
  Result<ObjectTail> read_pinned_tail(const std::string& path, int64_t num_bytes);
  std::string url_of(const std::string& path);
  Status no_listing(const std::string& folder) const {
    return Status::failed_precondition("a web server does not list its files; name each of them (address):", uri_of(folder));
  }

  WebClient& web_;
  const std::string scheme_;
  const std::stop_token stop_;
  std::mutex mutex_;                            // Guards queries_.
  std::map<std::string, std::string> queries_;  // By path; from "?" on, or "".
};

Result<std::string> WebServers::add(std::string_view url) {
  const RowResult<UrlHop> hop = UrlHop::parse(url, any_place());
  if (!hop.is_ok() || hop->is_https() != (scheme_ == "https")) {
    return Status::invalid_argument(fmt::format("no address of a file on a web server, {}://HOST/PATH:", scheme_), shown_url(url));
  }
  const std::string whole = hop->url().substr(scheme_.size() + 3);
  const size_t mark = std::min(whole.find('?'), whole.size());
  const std::string path = whole.substr(0, mark);
  if (path.ends_with('/') || path.find('*') != std::string::npos) {
    return Status::invalid_argument("a web server has no folders and no patterns; name a file:", uri_of(path));
  }
  const std::lock_guard hold(mutex_);
  const auto [known, is_new] = queries_.emplace(path, whole.substr(mark));
  if (!is_new && known->second != whole.substr(mark)) {
    return Status::failed_precondition("two addresses differ only in what follows \"?\"; give one of them (address):", uri_of(path));
  }
  return path;
}

std::string WebServers::url_of(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const auto found = queries_.find(path);
  return uri_of(path) + (found != queries_.end() ? found->second : "");
}

/// The first byte tells more than HEAD: whether there are parts; and signed URLs often allow GET alone.
Result<WebServers::Probe> WebServers::probe(const std::string& path) {
  const std::string what = uri_of(path);
  DARKROOM_ASSIGN_OR_RETURN(const WebAnswer answer, web_.ask(part_request({.url = url_of(path)}, {.offset = 0, .num_bytes = 1}), stop_));
  const HttpHead& head = answer.head;
  const auto range = parse_content_range(head.find("content-range").value_or(""));
  if (head.status == 416 && range && range->size_bytes == 0) {
    return Probe{.pin = {.size_bytes = 0, .version = web_version(head)}, .has_ranges = true};
  }
  if (head.status / 100 != 2) {
    return web_failure(answer, what);
  }
  DARKROOM_RETURN_IF_ERROR(check_not_packed(head, what));
  const bool is_part = head.status == 206;
  if (head.status == 200 && !head.content_length) {
    return probe_by_reading(path);
  }
  const auto size = is_part && range ? range->size_bytes : head.content_length;
  if (!size || (is_part && !range)) {
    return Status::failed_precondition("the server does not say how large the file is; copy it to a local folder and name that:", what);
  }
  return Probe{.pin = {.size_bytes = *size, .version = web_version(head)}, .has_ranges = is_part};
}

/// Of a server that sends chunks, which do not say beforehand how large the file is.
Result<WebServers::Probe> WebServers::probe_by_reading(const std::string& path) {
  WebPin pin;
  Result<std::string> whole = read_whole_file(web_, url_of(path), kMostWholeBytes, stop_, &pin.version);
  if (whole.status().code() == StatusCode::kCorruptData) {
    return gives_whole_files(uri_of(path));
  }
  DARKROOM_ASSIGN_OR_RETURN(pin.whole, std::move(whole));
  pin.size_bytes = static_cast<int64_t>(pin.whole.size());
  return Probe{.pin = std::move(pin), .has_ranges = false};
}

Result<FileInfo> WebServers::stat(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const Probe found, probe(path));
  return FileInfo{.path = path, .size_bytes = found.pin.size_bytes, .is_folder = false};
}

Result<std::unique_ptr<InputFile>> WebServers::open_input(const std::string& path, std::optional<int64_t> known_size) {
  WebPin pin{.size_bytes = known_size.value_or(0)};
  if (!known_size) {
    DARKROOM_ASSIGN_OR_RETURN(Probe found, probe(path));
    if (!found.has_ranges && found.pin.size_bytes > kMostWholeBytes) {
      return gives_whole_files(uri_of(path));
    }
    pin = std::move(found.pin);
  }
  return std::unique_ptr<InputFile>(std::make_unique<HttpsFile>(web_, path, url_of(path), std::move(pin), stop_));
}

Result<ObjectTail> WebServers::read_pinned_tail(const std::string& path, int64_t num_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(Probe found, probe(path));
  ObjectTail tail{.size_bytes = found.pin.size_bytes, .bytes = {}, .version = found.pin.version};
  tail.bytes.resize(static_cast<size_t>(std::min(num_bytes, tail.size_bytes)));
  const HttpsFile file(web_, path, url_of(path), std::move(found.pin), stop_);
  const int64_t begin = tail.size_bytes - static_cast<int64_t>(tail.bytes.size());
  DARKROOM_ASSIGN_OR_RETURN(const size_t read, file.read_at(begin, std::as_writable_bytes(std::span(tail.bytes))));
  DARKROOM_CHECK(read == tail.bytes.size(), "a short tail of:", path);
  return tail;
}

Result<ObjectTail> WebServers::read_tail(const std::string& path, int64_t num_bytes) {
  DARKROOM_CHECK(num_bytes >= 0, "a tail of fewer than no bytes:", num_bytes);
  if (num_bytes == 0) {
    return read_pinned_tail(path, 0);
  }
  WebRequest request{.url = url_of(path), .headers = {{"Range", fmt::format("bytes=-{}", num_bytes)}}, .max_body_bytes = num_bytes};
  DARKROOM_ASSIGN_OR_RETURN(WebAnswer answer, web_.ask(request, stop_));
  const auto range = parse_content_range(answer.head.find("content-range").value_or(""));
  const bool is_end = answer.head.status == 206 && answer.is_whole && range && range->range && range->size_bytes &&
                      range->range->offset + range->range->num_bytes == *range->size_bytes &&
                      range->range->num_bytes == std::min(num_bytes, *range->size_bytes) &&
                      static_cast<int64_t>(answer.body.size()) == range->range->num_bytes;
  const bool is_all = answer.head.status == 200 && answer.is_whole;
  if (!is_end && !is_all) {
    return read_pinned_tail(path, num_bytes);  // No suffix ranges, other troubles, or an empty file.
  }
  DARKROOM_RETURN_IF_ERROR(check_not_packed(answer.head, uri_of(path)));
  const int64_t size_bytes = is_end ? *range->size_bytes : static_cast<int64_t>(answer.body.size());
  return ObjectTail{.size_bytes = size_bytes, .bytes = std::move(answer.body), .version = web_version(answer.head)};
}

Result<std::string> WebServers::read_small(const std::string& path, int64_t max_bytes) {
  return read_whole_file(web_, url_of(path), max_bytes, stop_);
}

}  // namespace

std::unique_ptr<HttpsStore> make_https_store(WebClient& web, std::string scheme, std::stop_token stop) {
  return std::make_unique<WebServers>(web, std::move(scheme), std::move(stop));
}

}  // namespace darkroom
