#include "s3_client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <random>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/crc32.h"

namespace darkroom {
namespace {

constexpr const char* kWriterHeader = "x-amz-meta-darkroom-writer";
constexpr int kMaxListedKeys = 1000;
constexpr int64_t kErrorBytes = 64 << 10;  // Where few bytes are asked for, an error's text must fit, too.

constexpr size_t kBase64Triple = 3;

/// Of the four bytes of a checksum, most significant first (RFC 4648).
std::string base64_of_checksum(uint32_t value) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::array<uint8_t, 2 * kBase64Triple> bytes = {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
                                                        static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += kBase64Triple) {
    const uint32_t triple = uint32_t{bytes[i]} << 16 | uint32_t{bytes[i + 1]} << 8 | bytes[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6) {
      text += kDigits[triple >> shift & 63];
    }
  }
  return text.substr(0, 6) + "==";
}

uint32_t checksum_of(S3Pieces pieces) {
  uint32_t checksum = 0;
  for (const auto piece : pieces) {
    checksum = crc32c(piece, checksum);
  }
  return checksum;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

/// The offset and the object's size in "bytes 0-9/100" (RFC 9110, section 14.4).
bool read_content_range(std::string_view text, S3GetReply& reply) {
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) {
    return false;
  }
  const auto first = parse_number(text.substr(6, dash - 6));
  const auto last = parse_number(text.substr(dash + 1, slash - dash - 1));
  const auto size = parse_number(text.substr(slash + 1));
  if (!first || !last || !size || *last < *first || *last >= *size || *last - *first + 1 != static_cast<int64_t>(reply.bytes.size())) {
    return false;
  }
  reply.offset = *first;
  reply.size_bytes = *size;
  return true;
}

/// A reply that is not understood, with whose it is.
template <typename Value>
Result<Value> about(const S3Name& name, Result<Value> read) {
  return read.is_ok() ? std::move(read) : Result<Value>(read.status().with_context(name.uri()));
}

Status not_asked_for(const S3Name& prefix) {
  return Status::corrupt_data("the store lists what was not asked for (prefix):", prefix.uri());
}

/// The keys and prefixes of a page begin with what was asked for.
Status check_page(const S3Name& prefix, std::string_view delimiter, const S3ObjectPage& page) {
  const auto is_below = [&](const S3Object& object) { return object.key.starts_with(prefix.key); };
  const auto is_rolled = [&](const std::string& rolled) {
    return !delimiter.empty() && rolled.starts_with(prefix.key) && rolled.size() > prefix.key.size() && rolled.ends_with(delimiter);
  };
  const bool is_asked_for = std::ranges::all_of(page.objects, is_below) && std::ranges::all_of(page.prefixes, is_rolled);
  return is_asked_for ? Status::ok() : not_asked_for(prefix);
}

/// Pages follow each other in byte order; a store whose pages never end is found out.
class PageOrder {
 public:
  explicit PageOrder(const S3Name& prefix) : prefix_(prefix) {}

  /// `names`: those of a page, in any order. `may_repeat`: its first name may be the last one of the page before.
  Status add(const std::vector<std::string_view>& names, bool may_repeat) {
    const auto [first, last] = std::ranges::minmax_element(names);
    const bool has_names = !names.empty();
    if (has_names && last_ && (may_repeat ? *first < *last_ : *first <= *last_)) {
      return Status::corrupt_data("the store's pages do not follow each other in byte order (prefix):", prefix_.uri());
    }
    const bool is_further = has_names && last_ != *last;
    num_standing_ = is_further ? 0 : num_standing_ + 1;
    if (num_standing_ > kMaxStandingPages) {
      return Status::corrupt_data("the store lists page after page and comes no further (prefix, pages):", prefix_.uri(), num_standing_);
    }
    if (has_names) {
      last_ = std::string(*last);
    }
    return Status::ok();
  }

 private:
  static constexpr int kMaxStandingPages = 1000;  // Empty ones are allowed, and uploads of one key may fill several.

  const S3Name& prefix_;
  std::optional<std::string> last_;
  int num_standing_ = 0;
};

std::string header_of(const S3Reply& reply, std::string_view name) { return std::string(reply.head.find(name).value_or("")); }

void add_source(S3Call& call, const S3Name& from, const std::string& if_match) {
  call.headers.push_back({"x-amz-copy-source", encode_s3_path(fmt::format("/{}/{}", from.bucket, from.key))});
  if (!if_match.empty()) {
    call.headers.push_back({"x-amz-copy-source-if-match", if_match});
  }
}

void add_condition(S3Call& call, S3Condition condition) {
  if (condition == S3Condition::kAbsent) {
    call.headers.push_back({"if-none-match", "*"});
  }
}

}  // namespace

std::string make_writer_mark() {
  std::random_device chance;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", chance(), chance(), chance(), chance());
}

Result<S3Reply> S3Client::send_well(const S3Call& call, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(S3Reply reply, sender_.send(call, std::move(stop)));
  return reply.is_ok() ? Result<S3Reply>(std::move(reply)) : sender_.failure_of(call, reply);
}

/// The answer to a HEAD, with a listing's reason where it has none: it has no body, and 400 alone may be another region or old keys.
Result<S3Reply> S3Client::send_head(const S3Name& name, const std::stop_token& stop) {
  const S3Call call{.doing = "looking for", .method = "HEAD", .name = name};
  DARKROOM_ASSIGN_OR_RETURN(S3Reply reply, sender_.send(call, stop));
  if (reply.status == 400 && reply.error.code.empty()) {
    S3Call asked{.doing = "looking for", .method = "GET", .name = {.bucket = name.bucket, .key = {}}};
    asked.query = {{"list-type", "2"}, {"max-keys", "1"}, {"prefix", name.key}};
    DARKROOM_ASSIGN_OR_RETURN(S3Reply told, sender_.send(asked, stop));
    if (told.is_ok()) {  // Perhaps because the sender knows region, time or keys now.
      DARKROOM_ASSIGN_OR_RETURN(reply, sender_.send(call, stop));
    } else if (told.status == 400) {
      reply.error = std::move(told.error);
    }
  }
  return reply.is_ok() ? Result<S3Reply>(std::move(reply)) : sender_.failure_of(call, reply);
}

Result<S3Head> S3Client::head(const S3Name& name, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_head(name, stop));
  S3Head head{.etag = header_of(reply, "etag"), .writer = header_of(reply, kWriterHeader)};
  if (reply.head.content_length) {
    head.size_bytes = *reply.head.content_length;
  } else {
    DARKROOM_ASSIGN_OR_RETURN(head.size_bytes, ask_size(name, head.etag, std::move(stop)));
  }
  return head;
}

/// A HEAD may say nothing of it (a proxy that packs answers): then the first byte does.
Result<int64_t> S3Client::ask_size(const S3Name& name, const std::string& etag, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(const S3GetReply got, get_range(name, {.offset = 0, .num_bytes = 1}, etag, std::move(stop)));
  return got.size_bytes;
}

Result<S3GetReply> S3Client::get_some(S3Call call, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(S3Reply reply, sender_.send(call, std::move(stop)));
  if (reply.status == 416) {  // Nothing of the range is there.
    return S3GetReply{};
  }
  if (!reply.is_ok()) {
    return sender_.failure_of(call, reply);
  }
  S3GetReply got{.bytes = std::move(reply.body), .offset = 0, .size_bytes = 0, .etag = header_of(reply, "etag")};
  if (reply.status != 206) {
    got.size_bytes = static_cast<int64_t>(got.bytes.size());
  } else if (const std::string range = header_of(reply, "content-range"); !read_content_range(range, got)) {
    return Status::corrupt_data("the store serves another range than it says (object, Content-Range):", call.name.uri(), range);
  }
  return got;
}

Result<S3GetReply> S3Client::get(const S3Name& name, int64_t max_bytes, std::stop_token stop) {
  const S3Call call{.doing = "reading", .method = "GET", .name = name, .max_answer_bytes = max_bytes + kErrorBytes};
  DARKROOM_ASSIGN_OR_RETURN(S3GetReply got, get_some(call, std::move(stop)));
  if (got.size_bytes > max_bytes) {
    return Status::corrupt_data("the object is larger than expected (object, bytes, limit):", name.uri(), got.size_bytes, max_bytes);
  }
  return got;
}

Result<S3GetReply> S3Client::get_range(const S3Name& name, ByteRange range, const std::string& if_match, std::stop_token stop) {
  DARKROOM_CHECK(range.num_bytes > 0 && range.offset >= 0, "a range without bytes:", name.uri());
  S3Call call{.doing = "reading", .method = "GET", .name = name};
  call.max_answer_bytes = range.num_bytes + kErrorBytes;
  call.headers.push_back({"range", fmt::format("bytes={}-{}", range.offset, range.offset + range.num_bytes - 1)});
  if (!if_match.empty()) {
    call.headers.push_back({"if-match", if_match});
  }
  return get_some(std::move(call), std::move(stop));
}

Result<S3GetReply> S3Client::get_suffix(const S3Name& name, int64_t num_bytes, std::stop_token stop) {
  DARKROOM_CHECK(num_bytes > 0, "a range without bytes:", name.uri());
  S3Call call{.doing = "reading", .method = "GET", .name = name};
  call.max_answer_bytes = num_bytes + kErrorBytes;
  call.headers.push_back({"range", fmt::format("bytes=-{}", num_bytes)});
  return get_some(std::move(call), std::move(stop));
}

Result<S3Outcome> S3Client::settle(const S3Name& name, const std::string& writer, const std::stop_token& stop) {
  const Result<S3Reply> there = send_head(name, stop);
  if (!there.is_ok()) {
    return there.status().code() == StatusCode::kNotFound ? Result<S3Outcome>(S3Outcome::kGone) : there.status();
  }
  return header_of(*there, kWriterHeader) == writer ? S3Outcome::kStored : S3Outcome::kTaken;
}

Result<S3Outcome> S3Client::put(const S3Name& name, S3Pieces pieces, const std::string& writer, S3Condition condition, S3Patience patience,
                                std::stop_token stop) {
  S3Call call{.doing = "storing", .method = "PUT", .name = name, .patience = patience};
  call.headers = {{kWriterHeader, writer}, {"x-amz-checksum-crc32c", base64_of_checksum(checksum_of(pieces))}};
  add_condition(call, condition);
  call.body.assign(pieces.begin(), pieces.end());
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, sender_.send(call, stop));
  if (reply.status == 412 && condition == S3Condition::kAbsent) {
    // Perhaps our own, whose reply was lost.
    DARKROOM_ASSIGN_OR_RETURN(const S3Outcome outcome, settle(name, writer, stop));
    return outcome == S3Outcome::kStored ? outcome : S3Outcome::kTaken;  // Gone by now: somebody removed it.
  }
  if (reply.status == 501 && condition == S3Condition::kAbsent) {
    return S3Outcome::kUnsupported;
  }
  return reply.is_ok() ? Result<S3Outcome>(S3Outcome::kStored) : sender_.failure_of(call, reply);
}

Result<std::string> S3Client::create_upload(const S3Name& name, const std::string& writer, std::stop_token stop) {
  const S3Call call{.doing = "beginning an upload of",
                    .method = "POST",
                    .name = name,
                    .query = {{"uploads", std::nullopt}},
                    .headers = {{kWriterHeader, writer}}};
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_well(call, std::move(stop)));
  return about(name, read_upload_id(reply.body));
}

Result<std::string> S3Client::upload_part(const S3Name& name, const std::string& id, int number, S3Pieces pieces, std::stop_token stop) {
  S3Call call{.doing = "uploading a part of", .method = "PUT", .name = name};
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", id}};
  call.body.assign(pieces.begin(), pieces.end());
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_well(call, std::move(stop)));
  const std::string etag = header_of(reply, "etag");
  return etag.empty() ? Status::corrupt_data("the store took a part and gave it no ETag (object, part):", name.uri(), number)
                      : Result<std::string>(etag);
}

Result<S3Outcome> S3Client::complete(const S3Name& name, const std::string& id, std::span<const S3Part> parts, const std::string& writer,
                                     S3Condition condition, std::stop_token stop) {
  const std::string body = complete_upload_body(parts);
  S3Call call{.doing = "completing", .method = "POST", .name = name, .query = {{"uploadId", id}}};
  call.outcome_root = "CompleteMultipartUploadResult";
  call.may_be_silent = true;
  call.body = {std::as_bytes(std::span(body))};
  add_condition(call, condition);
  bool is_gone = false;  // Which radosgw calls an internal error, as it does a completion that is under way.
  call.is_in_vain = [&] { return is_gone = is_upload_gone(name, id, stop); };
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, sender_.send(call, stop));
  if (reply.is_ok()) {
    return S3Outcome::kStored;
  }
  if (reply.status == 501 && condition == S3Condition::kAbsent) {
    return S3Outcome::kUnsupported;
  }
  // Ours, by a try whose reply was lost or by somebody who completed it for us; another's; or nobody's.
  const bool is_ended =
      is_gone || reply.status == 412 || reply.error.code == "NoSuchUpload" || (reply.status == 404 && reply.error.code.empty());
  return is_ended ? settle(name, writer, stop) : sender_.failure_of(call, reply);
}

bool S3Client::is_upload_gone(const S3Name& name, const std::string& id, const std::stop_token& stop) {
  S3Call call{.doing = "looking for an upload of", .method = "GET", .name = name, .patience = S3Patience::kLeast};
  call.query = {{"max-parts", "1"}, {"uploadId", id}};
  const Result<S3Reply> reply = sender_.send(call, stop);
  if (!reply.is_ok() || reply->error.code != "NoSuchKey") {  // As radosgw says it, and who takes this for a GET of the object.
    return reply.is_ok() && reply->error.code == "NoSuchUpload";
  }
  bool is_listed = false;
  const auto look = [&](const S3UploadPage& page) {
    is_listed = is_listed || std::ranges::any_of(page.uploads, [&](const S3Upload& upload) { return upload.id == id; });
    return Status::ok();
  };
  return list_uploads(name, look, stop).is_ok() && !is_listed;
}

Status S3Client::abort(const S3Name& name, const std::string& id, S3Patience patience, std::stop_token stop) {
  const S3Call call{.doing = "aborting an upload of", .method = "DELETE", .name = name, .query = {{"uploadId", id}}, .patience = patience};
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, sender_.send(call, std::move(stop)));
  return reply.is_ok() || reply.status == 404 ? Status::ok() : sender_.failure_of(call, reply);
}

Status S3Client::abort_all(const S3Name& name, std::stop_token stop) {
  std::vector<std::string> ids;
  const auto add = [&](const S3UploadPage& page) {
    for (const S3Upload& upload : page.uploads) {
      if (upload.key == name.key) {
        ids.push_back(upload.id);
      }
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(list_uploads(name, add, stop));
  for (const std::string& id : ids) {
    DARKROOM_RETURN_IF_ERROR(abort(name, id, S3Patience::kFull, stop));
  }
  return Status::ok();
}

Result<S3ObjectPage> S3Client::list_page(const S3Name& prefix, std::string_view delimiter, int max_keys, const std::string& token,
                                         std::stop_token stop) {
  S3Call call{.doing = "listing", .method = "GET", .name = {.bucket = prefix.bucket, .key = {}}};
  call.query = {{"list-type", "2"}, {"encoding-type", "url"}, {"max-keys", std::to_string(max_keys)}, {"prefix", prefix.key}};
  if (!delimiter.empty()) {
    call.query.push_back({"delimiter", std::string(delimiter)});
  }
  if (!token.empty()) {
    call.query.push_back({"continuation-token", token});
  }
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_well(call, std::move(stop)));
  DARKROOM_ASSIGN_OR_RETURN(S3ObjectPage page, about(prefix, read_object_page(reply.body)));
  DARKROOM_RETURN_IF_ERROR(check_page(prefix, delimiter, page));
  return page;
}

Status S3Client::list(const S3Name& prefix, std::string_view delimiter, const std::function<Status(S3ObjectPage)>& page,
                      std::stop_token stop) {
  std::string token;
  PageOrder order(prefix);
  do {
    DARKROOM_ASSIGN_OR_RETURN(S3ObjectPage found, list_page(prefix, delimiter, kMaxListedKeys, token, stop));
    if (!token.empty() && found.next_token == token) {
      return Status::corrupt_data("the store lists the same page again and again (prefix):", prefix.uri());
    }
    token = found.next_token;
    std::vector<std::string_view> names(found.prefixes.begin(), found.prefixes.end());
    std::ranges::transform(found.objects, std::back_inserter(names), [](const S3Object& object) { return std::string_view(object.key); });
    DARKROOM_RETURN_IF_ERROR(order.add(names, /*may_repeat=*/false));
    DARKROOM_RETURN_IF_ERROR(page(std::move(found)));
  } while (!token.empty());
  return Status::ok();
}

Result<S3ObjectPage> S3Client::list_some(const S3Name& prefix, int max_keys, std::stop_token stop) {
  return list_page(prefix, {}, max_keys, {}, std::move(stop));
}

Result<S3UploadPage> S3Client::list_upload_page(const S3Name& prefix, const S3UploadPage& marker, S3Patience patience,
                                                std::stop_token stop) {
  S3Call call{.doing = "listing the uploads of", .method = "GET", .name = {.bucket = prefix.bucket, .key = {}}, .patience = patience};
  call.query = {{"uploads", std::nullopt}, {"encoding-type", "url"}, {"prefix", prefix.key}};
  if (!marker.next_key.empty()) {
    call.query.push_back({"key-marker", marker.next_key});
  }
  if (!marker.next_id.empty()) {
    call.query.push_back({"upload-id-marker", marker.next_id});
  }
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_well(call, std::move(stop)));
  DARKROOM_ASSIGN_OR_RETURN(S3UploadPage found, about(prefix, read_upload_page(reply.body)));
  if (!found.next_key.empty() && found.next_key == marker.next_key && found.next_id == marker.next_id) {
    return Status::corrupt_data("the store lists the same uploads again and again (prefix):", prefix.uri());
  }
  if (!std::ranges::all_of(found.uploads, [&](const S3Upload& upload) { return upload.key.starts_with(prefix.key); })) {
    return not_asked_for(prefix);
  }
  return found;
}

Status S3Client::list_uploads(const S3Name& prefix, const std::function<Status(S3UploadPage)>& page, std::stop_token stop) {
  S3UploadPage marker;
  PageOrder order(prefix);
  do {
    DARKROOM_ASSIGN_OR_RETURN(S3UploadPage found, list_upload_page(prefix, marker, S3Patience::kFull, stop));
    std::vector<std::string_view> names;
    std::ranges::transform(found.uploads, std::back_inserter(names), [](const S3Upload& upload) { return std::string_view(upload.key); });
    DARKROOM_RETURN_IF_ERROR(order.add(names, /*may_repeat=*/true));
    marker = {.uploads = {}, .next_key = found.next_key, .next_id = found.next_id};
    DARKROOM_RETURN_IF_ERROR(page(std::move(found)));
  } while (!marker.is_last());
  return Status::ok();
}

Status S3Client::list_first_uploads(const std::string& bucket, int max_pages, const std::function<Status(S3UploadPage)>& page,
                                    std::stop_token stop) {
  S3UploadPage marker;
  for (int i = 0; i < max_pages && (i == 0 || !marker.is_last()); ++i) {
    DARKROOM_ASSIGN_OR_RETURN(S3UploadPage found, list_upload_page({.bucket = bucket, .key = {}}, marker, S3Patience::kTries, stop));
    marker = {.uploads = {}, .next_key = found.next_key, .next_id = found.next_id};
    DARKROOM_RETURN_IF_ERROR(page(std::move(found)));
  }
  return Status::ok();
}

Status S3Client::remove(const S3Name& name, std::stop_token stop) {
  const S3Call call{.doing = "removing", .method = "DELETE", .name = name};
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, sender_.send(call, std::move(stop)));
  const bool is_gone = reply.status == 404 && reply.error.code != "NoSuchBucket";
  return reply.is_ok() || is_gone ? Status::ok() : sender_.failure_of(call, reply);
}

Status S3Client::copy(const S3Name& from, const std::string& if_match, const S3Name& to, std::stop_token stop) {
  S3Call call{.doing = "copying to", .method = "PUT", .name = to};
  add_source(call, from, if_match);
  call.outcome_root = "CopyObjectResult";
  call.may_be_silent = true;
  return send_well(call, std::move(stop)).status();
}

Result<std::string> S3Client::copy_part(const S3Name& from, const std::string& if_match, ByteRange range, const S3Name& to,
                                        const std::string& id, int number, std::stop_token stop) {
  S3Call call{.doing = "copying a part to", .method = "PUT", .name = to};
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", id}};
  add_source(call, from, if_match);
  call.headers.push_back({"x-amz-copy-source-range", fmt::format("bytes={}-{}", range.offset, range.offset + range.num_bytes - 1)});
  call.outcome_root = "CopyPartResult";
  call.may_be_silent = true;
  DARKROOM_ASSIGN_OR_RETURN(const S3Reply reply, send_well(call, std::move(stop)));
  return about(to, read_copied_part(reply.body));
}

}  // namespace darkroom
