#include "s3_documents.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/utf8.h"
#include "xml_text.h"

namespace darkroom {
namespace {

constexpr std::string_view kErrorRoot = "Error";
constexpr size_t kMaxErrorTextBytes = 500;

/// Fit for a log: no line breaks or other control characters, at most kMaxErrorTextBytes without a cut character.
std::string one_line(std::string_view raw) {
  std::string text(raw);
  for (char& c : text) {
    c = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  }
  if (text.size() > kMaxErrorTextBytes) {
    size_t end = kMaxErrorTextBytes;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;
    }
    text.resize(end);
  }
  return text;
}

/// The one child of that name; null when there is none.
Result<const XmlElement*> find_only(const XmlElement& parent, std::string_view name) {
  const XmlElement* found = nullptr;
  for (const XmlElement& child : parent.children) {
    if (child.name != name) {
      continue;
    }
    if (found != nullptr) {
      return Status::corrupt_data("an element stands twice:", name);
    }
    found = &child;
  }
  return found;
}

Result<std::string> text_or_empty(const XmlElement& parent, std::string_view name) {
  DARKROOM_ASSIGN_OR_RETURN(const XmlElement* child, find_only(parent, name));
  return child == nullptr ? std::string() : child->text;
}

Result<std::string> required_text(const XmlElement& parent, std::string_view name) {
  DARKROOM_ASSIGN_OR_RETURN(const XmlElement* child, find_only(parent, name));
  if (child == nullptr || child->text.empty()) {
    return Status::corrupt_data("an element lacks or is empty:", name);
  }
  return child->text;
}

/// Digits only, at most `largest`.
std::optional<int64_t> whole_number(std::string_view text, int64_t largest) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !text.starts_with('-');
  return is_number && number <= largest ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<std::chrono::sys_seconds> parse_s3_time(std::string_view text) {
  const auto fail = [&] { return Status::corrupt_data("a time is not written like 2010-11-10T20:48:33.000Z:", one_line(text)); };
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (text.size() <= kShape.size() || !text.ends_with('Z')) {
    return fail();
  }
  const std::string_view fraction = text.substr(kShape.size(), text.size() - kShape.size() - 1);
  if (!fraction.empty() && (fraction.front() != '.' || !whole_number(fraction.substr(1), 999'999'999))) {
    return fail();
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (is_digit(kShape[i]) ? !is_digit(text[i]) : text[i] != kShape[i]) {
      return fail();
    }
  }
  const auto number = [&](size_t at, size_t digits) { return static_cast<int>(*whole_number(text.substr(at, digits), 9999)); };
  const std::chrono::year_month_day date(std::chrono::year(number(0, 4)), std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok() || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59) {
    return fail();
  }
  return std::chrono::sys_days(date) + std::chrono::hours(number(11, 2)) + std::chrono::minutes(number(14, 2)) +
         std::chrono::seconds(number(17, 2));
}

namespace {

/// What encoding-type=url made of a key: %XX, and "+" for a space.
Result<std::string> decode_key(std::string_view text) {
  std::string key;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      key += text[at] == '+' ? ' ' : text[at];
      continue;
    }
    const std::string_view digits = text.substr(at + 1, 2);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) {
      return Status::corrupt_data("a % in an encoded key is not followed by two hexadecimal digits:", one_line(text));
    }
    key += static_cast<char>(value);
    at += 2;
  }
  if (replace_invalid_utf8(key).second) {
    return Status::corrupt_data("a key is no UTF-8:", one_line(text));
  }
  return key;
}

/// How a listing writes keys: as they are, or encoded.
class KeyReader {
 public:
  static Result<KeyReader> of(const XmlElement& listing) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string encoding, text_or_empty(listing, "EncodingType"));
    if (!encoding.empty() && encoding != "url") {
      return Status::corrupt_data("keys in an unknown encoding (EncodingType):", one_line(encoding));
    }
    return KeyReader(!encoding.empty());
  }
  Result<std::string> decode(std::string text) const { return encoded_ ? decode_key(text) : Result<std::string>(std::move(text)); }
  Result<std::string> required(const XmlElement& parent, std::string_view name) const {
    DARKROOM_ASSIGN_OR_RETURN(std::string text, required_text(parent, name));
    return decode(std::move(text));
  }

 private:
  explicit KeyReader(bool encoded) : encoded_(encoded) {}
  bool encoded_;
};

/// The reply's root, which is one of the two.
Result<XmlElement> parse_reply(std::string_view xml, std::string_view root, std::string_view other_root) {
  Result<XmlElement> reply = parse_xml(xml);
  if (!reply.is_ok()) {
    return reply.status().with_context(root);
  }
  if (reply->name != root && reply->name != other_root) {
    return Status::corrupt_data("the store answered with another element than expected (want, got):", root, reply->name);
  }
  return reply;
}

Result<bool> read_is_truncated(const XmlElement& listing) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, required_text(listing, "IsTruncated"));
  if (text != "true" && text != "false") {
    return Status::corrupt_data("IsTruncated is neither true nor false:", one_line(text));
  }
  return text == "true";
}

/// Nothing: it is not known.
Result<std::optional<std::chrono::sys_seconds>> read_time(const XmlElement& entry, std::string_view name) {
  std::optional<std::chrono::sys_seconds> time;
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, text_or_empty(entry, name));
  if (!text.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(time, parse_s3_time(text));
  }
  return time && *time < std::chrono::sys_seconds{} ? std::nullopt : time;
}

Result<S3Object> read_object(const XmlElement& entry, const KeyReader& keys) {
  S3Object object;
  DARKROOM_ASSIGN_OR_RETURN(object.key, keys.required(entry, "Key"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string size, required_text(entry, "Size"));
  constexpr int64_t kMost = int64_t{1} << 60;
  const std::optional<int64_t> size_bytes = whole_number(size, kMost);
  if (!size_bytes) {
    return Status::corrupt_data("Size is no number of bytes:", one_line(size));
  }
  object.size_bytes = *size_bytes;
  DARKROOM_ASSIGN_OR_RETURN(object.etag, text_or_empty(entry, "ETag"));
  DARKROOM_ASSIGN_OR_RETURN(object.modified, read_time(entry, "LastModified"));
  return object;
}

Result<S3Upload> read_upload(const XmlElement& entry, const KeyReader& keys) {
  S3Upload upload;
  DARKROOM_ASSIGN_OR_RETURN(upload.key, keys.required(entry, "Key"));
  DARKROOM_ASSIGN_OR_RETURN(upload.id, required_text(entry, "UploadId"));
  DARKROOM_ASSIGN_OR_RETURN(upload.initiated, read_time(entry, "Initiated"));
  return upload;
}

/// `read` of every child of `listing` called `name`; a failure says which.
template <typename Entry, typename Read>
Result<std::vector<Entry>> read_entries(const XmlElement& listing, std::string_view name, const Read& read) {
  std::vector<Entry> entries;
  for (const XmlElement& child : listing.children) {
    if (child.name != name) {
      continue;
    }
    Result<Entry> entry = read(child);
    if (!entry.is_ok()) {
      return entry.status().with_context(fmt::format("{} {}", name, entries.size() + 1));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

Result<S3ObjectPage> object_page_of(const XmlElement& listing) {
  DARKROOM_ASSIGN_OR_RETURN(const KeyReader keys, KeyReader::of(listing));
  S3ObjectPage page;
  DARKROOM_ASSIGN_OR_RETURN(page.objects,
                            read_entries<S3Object>(listing, "Contents", [&](const XmlElement& entry) { return read_object(entry, keys); }));
  DARKROOM_ASSIGN_OR_RETURN(page.prefixes, read_entries<std::string>(listing, "CommonPrefixes", [&](const XmlElement& entry) {
                              return keys.required(entry, "Prefix");
                            }));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_truncated, read_is_truncated(listing));
  if (is_truncated) {
    DARKROOM_ASSIGN_OR_RETURN(page.next_token, required_text(listing, "NextContinuationToken"));
  }
  return page;
}

Result<S3UploadPage> upload_page_of(const XmlElement& listing) {
  DARKROOM_ASSIGN_OR_RETURN(const KeyReader keys, KeyReader::of(listing));
  S3UploadPage page;
  DARKROOM_ASSIGN_OR_RETURN(page.uploads,
                            read_entries<S3Upload>(listing, "Upload", [&](const XmlElement& entry) { return read_upload(entry, keys); }));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_truncated, read_is_truncated(listing));
  if (is_truncated) {
    DARKROOM_ASSIGN_OR_RETURN(page.next_key, keys.required(listing, "NextKeyMarker"));
    DARKROOM_ASSIGN_OR_RETURN(page.next_id, required_text(listing, "NextUploadIdMarker"));
  }
  return page;
}

Result<S3Error> error_element_of(const XmlElement& element) {
  S3Error error;
  DARKROOM_ASSIGN_OR_RETURN(error.code, required_text(element, "Code"));
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.'; };
  if (error.code.size() > 100 || !std::all_of(error.code.begin(), error.code.end(), fits)) {
    return Status::corrupt_data("Code is no name of an error:", one_line(error.code));
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string message, text_or_empty(element, "Message"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string request_id, text_or_empty(element, "RequestId"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string region, text_or_empty(element, "Region"));
  error.message = one_line(message);
  error.request_id = one_line(request_id);
  error.region = one_line(region);
  return error;
}

/// Parses, and puts the reply's name before a failure of `read`.
template <typename Value>
Result<Value> read_reply(std::string_view xml, std::string_view root, Result<Value> (*read)(const XmlElement&)) {
  DARKROOM_ASSIGN_OR_RETURN(const XmlElement reply, parse_reply(xml, root, root));
  Result<Value> value = read(reply);
  return value.is_ok() ? std::move(value) : Result<Value>(value.status().with_context(root));
}

}  // namespace

Result<S3ObjectPage> read_object_page(std::string_view xml) { return read_reply(xml, "ListBucketResult", object_page_of); }

Result<S3UploadPage> read_upload_page(std::string_view xml) { return read_reply(xml, "ListMultipartUploadsResult", upload_page_of); }

Result<std::string> read_upload_id(std::string_view xml) {
  return read_reply<std::string>(xml, "InitiateMultipartUploadResult",
                                 [](const XmlElement& reply) { return required_text(reply, "UploadId"); });
}

Result<std::string> read_copied_part(std::string_view xml) {
  return read_reply<std::string>(xml, "CopyPartResult", [](const XmlElement& reply) { return required_text(reply, "ETag"); });
}

Result<S3Error> read_error(std::string_view xml) { return read_reply(xml, kErrorRoot, error_element_of); }

Result<std::optional<S3Error>> read_outcome(std::string_view xml, std::string_view root) {
  DARKROOM_ASSIGN_OR_RETURN(const XmlElement reply, parse_reply(xml, root, kErrorRoot));
  if (reply.name == root) {
    return std::optional<S3Error>();
  }
  Result<S3Error> error = error_element_of(reply);
  return error.is_ok() ? std::optional(*std::move(error)) : Result<std::optional<S3Error>>(error.status().with_context(kErrorRoot));
}

std::string complete_upload_body(std::span<const S3Part> parts) {
  DARKROOM_CHECK(!parts.empty(), "an upload of no parts cannot be completed");
  int previous = 0;
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const S3Part& part : parts) {
    DARKROOM_CHECK(part.number > previous && part.number <= kMaxS3Parts, "parts are numbered upwards from 1 (previous, number):", previous,
                   part.number);
    previous = part.number;
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", part.number, escape_xml(part.etag));
  }
  return body + "</CompleteMultipartUpload>";
}

}  // namespace darkroom
