#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "s3_documents.h"
#include "s3_sender.h"

namespace darkroom {

struct S3Head {
  int64_t size_bytes = 0;
  std::string etag = {};    ///< As sent, with its quotes.
  std::string writer = {};  ///< The mark of who wrote it; empty: none of ours.
};

struct S3GetReply {
  std::string bytes = {};
  int64_t offset = 0;      ///< Of the bytes within the object.
  int64_t size_bytes = 0;  ///< Of the whole object.
  std::string etag = {};
};

/// What became of a write that may happen only where nothing is.
enum class S3Outcome {
  kStored,       ///< Ours is the object.
  kTaken,        ///< Another object has the name; ours is not stored.
  kGone,         ///< Of an upload: it is not there any more, and no object has the name.
  kUnsupported,  ///< The server does not have this condition (501).
};

enum class S3Condition {
  kNone,    ///< Replaces what is there.
  kAbsent,  ///< Only where nothing is (If-None-Match: *). A server without this condition ignores it: probe before.
};

using S3Pieces = std::span<const std::span<const std::byte>>;

/// The operations on objects that the store needs, each with its retries. `writer` is a mark that is never used twice; it goes with the
/// object as `x-amz-meta-darkroom-writer`, and by it a lost reply is settled.
/// Errors of all: those of S3Sender::send and failure_of. Thread safety: any thread.
class S3Client {
 public:
  S3Client(S3Options options, S3KeySource keys, StoreTools tools) : sender_(std::move(options), std::move(keys), std::move(tools)) {}

  const S3Options& options() const { return sender_.options(); }
  /// As S3Sender's.
  bool is_stopped() const { return sender_.is_stopped(); }

  Result<S3Head> head(const S3Name& name, std::stop_token stop = {});
  /// At most `max_bytes` of the object, else kCorruptData.
  Result<S3GetReply> get(const S3Name& name, int64_t max_bytes, std::stop_token stop = {});
  /// REQUIRES: range.num_bytes > 0. Bytes that the object has, so fewer at its end; none behind it. With `if_match` (an etag):
  /// kFailedPrecondition when the object is another one.
  Result<S3GetReply> get_range(const S3Name& name, ByteRange range, const std::string& if_match, std::stop_token stop = {});
  /// The last bytes, or all where there are fewer. REQUIRES: num_bytes > 0.
  Result<S3GetReply> get_suffix(const S3Name& name, int64_t num_bytes, std::stop_token stop = {});

  /// kStored, kTaken or kUnsupported.
  Result<S3Outcome> put(const S3Name& name, S3Pieces pieces, const std::string& writer, S3Condition condition,
                        S3Patience patience = S3Patience::kFull, std::stop_token stop = {});

  /// The upload's id. A try whose reply was lost, perhaps one that only the HTTP library knows of, leaves another upload, without a part,
  /// that a sweep takes: who of several writers of a name began which upload, no listing tells.
  Result<std::string> create_upload(const S3Name& name, const std::string& writer, std::stop_token stop = {});
  /// The part's etag. Errors: kUnavailable also when the upload is gone.
  Result<std::string> upload_part(const S3Name& name, const std::string& id, int number, S3Pieces pieces, std::stop_token stop = {});
  /// Any outcome. The upload was made with the mark `writer`.
  Result<S3Outcome> complete(const S3Name& name, const std::string& id, std::span<const S3Part> parts, const std::string& writer,
                             S3Condition condition, std::stop_token stop = {});
  /// Fine when it is gone. `patience` kLeast: of an upload that a sweep finds, too.
  Status abort(const S3Name& name, const std::string& id, S3Patience patience = S3Patience::kFull, std::stop_token stop = {});
  /// Every upload of this very name. REQUIRES: nobody else writes to it.
  Status abort_all(const S3Name& name, std::stop_token stop = {});

  /// Every object whose key begins with `prefix.key`, in byte order, in pages; with a delimiter what follows it is rolled up. Errors of all
  /// listings: also kCorruptData when the store lists what was not asked for, or pages that do not follow each other.
  Status list(const S3Name& prefix, std::string_view delimiter, const std::function<Status(S3ObjectPage)>& page, std::stop_token stop = {});
  /// The first page only, of at most `max_keys` entries.
  Result<S3ObjectPage> list_some(const S3Name& prefix, int max_keys, std::stop_token stop = {});
  Status list_uploads(const S3Name& prefix, const std::function<Status(S3UploadPage)>& page, std::stop_token stop = {});
  /// Those of a whole bucket in whatever order, from so many pages at most.
  Status list_first_uploads(const std::string& bucket, int max_pages, const std::function<Status(S3UploadPage)>& page,
                            std::stop_token stop = {});

  /// Fine when it is gone.
  Status remove(const S3Name& name, std::stop_token stop = {});
  /// With its mark, by one request. `if_match` (an etag; empty: any) of what is copied. Errors: kNotFound; kFailedPrecondition above
  /// S3Options::max_copy_bytes.
  Status copy(const S3Name& from, const std::string& if_match, const S3Name& to, std::stop_token stop = {});
  /// As upload_part, with bytes of another object of the server.
  Result<std::string> copy_part(const S3Name& from, const std::string& if_match, ByteRange range, const S3Name& to, const std::string& id,
                                int number, std::stop_token stop = {});

 private:
  /// The reply where it is good, else its failure.
  Result<S3Reply> send_well(const S3Call& call, std::stop_token stop);
  Result<S3Reply> send_head(const S3Name& name, const std::stop_token& stop);
  Result<S3GetReply> get_some(S3Call call, std::stop_token stop);
  Result<S3ObjectPage> list_page(const S3Name& prefix, std::string_view delimiter, int max_keys, const std::string& token,
                                 std::stop_token stop);
  /// `marker`: the page before.
  Result<S3UploadPage> list_upload_page(const S3Name& prefix, const S3UploadPage& marker, S3Patience patience, std::stop_token stop);
  Result<int64_t> ask_size(const S3Name& name, const std::string& etag, std::stop_token stop);
  /// Whether the server says so of this very upload. Not known: false.
  bool is_upload_gone(const S3Name& name, const std::string& id, const std::stop_token& stop);
  /// Whose the object is that stands where ours should.
  Result<S3Outcome> settle(const S3Name& name, const std::string& writer, const std::stop_token& stop);

  S3Sender sender_;
};

/// A mark that is never used twice: 32 hex digits of chance.
std::string make_writer_mark();

}  // namespace darkroom
