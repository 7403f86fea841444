#include <algorithm>
#include <vector>

#include "darkroom/core/verbosity.h"
#include "range_reads.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

constexpr int64_t kPartsOfLargestCopy = 10;  // A part of 512 MB at Amazon's limit takes seconds, also where that limit is less.

/// The ranges that an object of so many bytes is copied by: as few as the number of parts allows, and no longer than needs be.
std::vector<ByteRange> ranges_of_copy(int64_t size_bytes, int64_t max_copy_bytes) {
  const int64_t least = (size_bytes + kMaxS3Parts - 1) / kMaxS3Parts;
  const int64_t part_bytes = std::max({int64_t{1}, max_copy_bytes / kPartsOfLargestCopy, least});
  std::vector<ByteRange> ranges;
  for (int64_t offset = 0; offset < size_bytes; offset += part_bytes) {
    ranges.push_back({.offset = offset, .num_bytes = std::min(part_bytes, size_bytes - offset)});
  }
  return ranges;
}

Status copy_by_upload(S3Client& client, const S3Name& from, const S3Head& head, const S3Name& to, const std::string& upload,
                      const std::string& writer) {
  const std::vector<ByteRange> ranges = ranges_of_copy(head.size_bytes, client.options().max_copy_bytes);
  std::vector<S3Part> parts(ranges.size());
  DARKROOM_RETURN_IF_ERROR(run_at_once(ranges.size(), kMostRequestsAtOnce, [&](size_t i) -> Status {
    const int number = static_cast<int>(i) + 1;
    DARKROOM_ASSIGN_OR_RETURN(std::string etag, client.copy_part(from, head.etag, ranges[i], to, upload, number));
    parts[i] = {.number = number, .etag = std::move(etag)};
    return Status::ok();
  }));
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome outcome, client.complete(to, upload, parts, writer, S3Condition::kNone));
  if (outcome == S3Outcome::kTaken) {
    return Status::already_exists("another object has the name (object):", to.uri());
  }
  return outcome == S3Outcome::kStored
             ? Status::ok()
             : Status::unavailable("the copy of an object was aborted before it was whole; run the same command again (object):", to.uri());
}

}  // namespace

Status copy_s3_object(S3Client& client, const S3Name& from, const S3Head& head, const S3Name& to) {
  if (head.size_bytes <= client.options().max_copy_bytes) {
    return client.copy(from, head.etag, to);
  }
  const std::string writer = head.writer.empty() ? make_writer_mark() : head.writer;
  DARKROOM_ASSIGN_OR_RETURN(const std::string upload, client.create_upload(to, writer));
  Status copied = copy_by_upload(client, from, head, to, upload, writer);
  if (!copied.is_ok()) {
    if (const Status aborted = client.abort(to, upload, S3Patience::kLeast); !aborted.is_ok()) {
      log_detail("an upload may stay until a sweep aborts it: {}", aborted.message());
    }
  }
  return copied;
}

}  // namespace darkroom
