#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "range_reads.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

class S3Input final : public InputFile {
 public:
  S3Input(S3Client& client, S3Name name, int64_t size_bytes, std::string etag)
      : client_(client),
        name_(std::move(name)),
        path_(S3Store::path_of(name_.bucket, name_.key)),
        size_bytes_(size_bytes),
        etag_(std::move(etag)) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }
  bool is_remote() const override { return true; }

  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    const int64_t num_bytes = std::clamp<int64_t>(size_bytes_ - offset, 0, static_cast<int64_t>(out.size()));
    const ByteRange range{.offset = offset, .num_bytes = num_bytes};
    const std::span<std::byte> place = out.first(static_cast<size_t>(num_bytes));
    DARKROOM_RETURN_IF_ERROR(read_ranges(std::span(&range, 1), std::span(&place, 1)));
    return static_cast<size_t>(num_bytes);
  }

  Status read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const override {
    for (const ByteRange& range : ranges) {
      if (range.num_bytes < 0 || (range.num_bytes > 0 && (range.offset < 0 || range.num_bytes > size_bytes_ - range.offset))) {
        return Status::corrupt_data("the object ends before what is read (object, offset, bytes, size):", name_.uri(), range.offset,
                                    range.num_bytes, size_bytes_);
      }
    }
    return read_ranges_at_once(ranges, out, [this](ByteRange range, std::span<std::byte> place) { return fetch(range, place); });
  }

 private:
  Status fetch(ByteRange range, std::span<std::byte> out) const {
    const std::string etag = known_etag();
    DARKROOM_ASSIGN_OR_RETURN(const S3GetReply got, client_.get_range(name_, range, etag));
    if (got.bytes.size() != out.size() || got.offset != range.offset || got.size_bytes != size_bytes_) {
      return Status::corrupt_data("the object is not the one that was opened (object, size when opened, size now):", name_.uri(),
                                  size_bytes_, got.size_bytes);
    }
    std::memcpy(out.data(), got.bytes.data(), out.size());
    return remember(got.etag);
  }
  std::string known_etag() const {
    const std::lock_guard hold(mutex_);
    return etag_;
  }
  /// All reads are of one version, also the first ones, which do not know it yet and go at once.
  Status remember(const std::string& etag) const {
    const std::lock_guard hold(mutex_);
    if (!etag_.empty() && etag != etag_) {
      return Status::failed_precondition("the object changed while it was read (object):", name_.uri());
    }
    etag_ = etag;
    return Status::ok();
  }

  S3Client& client_;
  const S3Name name_;
  const std::string path_;
  const int64_t size_bytes_;
  mutable std::mutex mutex_;
  mutable std::string etag_;  // Empty: not known yet.
};

}  // namespace

Result<std::unique_ptr<InputFile>> open_s3_input(S3Store& store, const std::string& path, std::optional<int64_t> known_size) {
  const S3Name name = S3Store::name_of(path);
  if (known_size) {
    return std::unique_ptr<InputFile>(std::make_unique<S3Input>(store.client(), name, *known_size, std::string()));
  }
  const Result<S3Head> head = store.client().head(name);
  if (head.status().code() == StatusCode::kNotFound) {
    DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, store.stat(path));  // Tells a missing bucket from a missing object.
    return Status::not_found("this is a folder and no object (object):", store.uri_of(info.path));
  }
  DARKROOM_RETURN_IF_ERROR(head.status());
  return std::unique_ptr<InputFile>(std::make_unique<S3Input>(store.client(), name, head->size_bytes, head->etag));
}

}  // namespace darkroom
