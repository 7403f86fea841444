#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

// What S3 answers and is told in XML (Amazon S3 API reference). Elements that are not named here are ignored; one that is named and
// stands twice, lacks or holds another kind of value is kCorruptData with the reply's kind, the entry and the element. Where a
// listing was asked for with encoding-type=url, as it must be for keys with control characters, keys are decoded.
// Times are whole seconds. One that lacks, or is before 1970 (some servers write 0001-01-01 where they know none), is not known.
// Pure functions: any thread.

/// "2010-11-10T20:48:33.000Z" of the years 0 to 9999, which nanoseconds cannot hold: compare it with seconds. The fraction may lack, and
/// what is below a second is dropped. Errors: kCorruptData.
Result<std::chrono::sys_seconds> parse_s3_time(std::string_view text);

struct S3Object {
  std::string key;
  int64_t size_bytes = 0;
  std::string etag;  ///< As sent, with its quotes; empty where the server sends none.
  std::optional<std::chrono::sys_seconds> modified;
};

/// One page of ListObjectsV2.
struct S3ObjectPage {
  std::vector<S3Object> objects;
  std::vector<std::string> prefixes;  ///< What a delimiter rolled up.
  std::string next_token;             ///< Continuation token of the next page; empty: the last page.
};
Result<S3ObjectPage> read_object_page(std::string_view xml);

struct S3Upload {
  std::string key;
  std::string id;
  std::optional<std::chrono::sys_seconds> initiated;
};

/// One page of ListMultipartUploads.
struct S3UploadPage {
  std::vector<S3Upload> uploads;
  std::string next_key;  ///< key-marker and upload-id-marker of the next page.
  std::string next_id;

  bool is_last() const { return next_key.empty() && next_id.empty(); }
};
Result<S3UploadPage> read_upload_page(std::string_view xml);

/// The id in the answer to InitiateMultipartUpload.
Result<std::string> read_upload_id(std::string_view xml);

/// An Error element. Only these elements are read: others of some errors hold the access key's id and the signed text.
struct S3Error {
  std::string code;        ///< "NoSuchKey"; letters and digits.
  std::string message;     ///< For people: one line of at most 500 bytes.
  std::string request_id;  ///< For the server's operator; likewise.
  std::string region;      ///< Of AuthorizationHeaderMalformed: the bucket's own region; else empty.
};
Result<S3Error> read_error(std::string_view xml);

/// The ETag in the answer to UploadPartCopy, as it names the part.
Result<std::string> read_copied_part(std::string_view xml);

/// What the answer to CompleteMultipartUpload (root "CompleteMultipartUploadResult"), CopyObject ("CopyObjectResult") or UploadPartCopy
/// ("CopyPartResult") says: all may fail after their status 200. Nothing: it is done.
Result<std::optional<S3Error>> read_outcome(std::string_view xml, std::string_view root);

inline constexpr int kMaxS3Parts = 10'000;

struct S3Part {
  int number = 0;    ///< 1 to kMaxS3Parts.
  std::string etag;  ///< As UploadPart answered it.
};
/// The body of CompleteMultipartUpload. REQUIRES: at least one part, numbers ascending, etags in valid UTF-8.
std::string complete_upload_body(std::span<const S3Part> parts);

}  // namespace darkroom
