#include "web_part.h"

#include <algorithm>
#include <charconv>

#include "darkroom/core/check.h"
#include "darkroom/web/header_text.h"
#include "range_reads.h"

namespace darkroom {
namespace {

std::optional<int64_t> parse_position(std::string_view text) {
  int64_t position = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
  const bool is_number = !text.empty() && error == std::errc() && end == text.data() + text.size() && position >= 0;
  return is_number ? std::optional(position) : std::nullopt;
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view header) {
  header = trim_blanks(header);
  if (header.size() < 6 || !same_word(header.substr(0, 6), "bytes ")) {
    return std::nullopt;
  }
  header = trim_blanks(header.substr(6));
  const size_t slash = header.find('/');
  if (slash == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view place = header.substr(0, slash);
  const std::string_view whole = header.substr(slash + 1);
  ContentRange found{.range = std::nullopt, .size_bytes = parse_position(whole)};
  if (!found.size_bytes && whole != "*") {
    return std::nullopt;
  }
  if (place == "*") {
    return found;
  }
  const size_t dash = place.find('-');
  const auto first = parse_position(place.substr(0, dash));
  const auto last = dash == std::string_view::npos ? std::nullopt : parse_position(place.substr(dash + 1));
  if (!first || !last || *last < *first || (found.size_bytes && *last >= *found.size_bytes)) {
    return std::nullopt;
  }
  found.range = ByteRange{.offset = *first, .num_bytes = *last - *first + 1};
  return found;
}

std::string web_version(const HttpHead& head) {
  const auto etag = head.find("etag");
  return std::string(etag ? *etag : head.find("last-modified").value_or(""));
}

bool may_be_same_version(std::string_view a, std::string_view b) { return a == b || a.empty() || b.empty(); }

Status check_not_packed(const HttpHead& head, const std::string& what) {
  const auto coding = head.find("content-encoding");
  if (coding && !coding->empty() && !same_word(*coding, "identity")) {
    return Status::failed_precondition("the server packs the file although it was asked not to (address, Content-Encoding):", what,
                                       *coding);
  }
  return Status::ok();
}

WebRequest part_request(WebRequest request, ByteRange range) {
  DARKROOM_CHECK(range.offset >= 0 && range.num_bytes > 0, "no part of a file:", range.offset, range.num_bytes);
  request.headers.emplace_back("Range", fmt::format("bytes={}-{}", range.offset, range.offset + range.num_bytes - 1));
  request.max_body_bytes = range.num_bytes;
  return request;
}

Result<WebPart> read_web_part(WebAnswer answer, ByteRange range, const std::string& what) {
  const int status = answer.head.status;
  if (status == 416) {
    return Status::failed_precondition("the file is shorter than it was; begin again (address, offset):", what, range.offset);
  }
  if (status / 100 != 2) {
    return web_failure(answer, what);
  }
  DARKROOM_RETURN_IF_ERROR(check_not_packed(answer.head, what));
  const bool is_filled = answer.is_whole && static_cast<int64_t>(answer.body.size()) == range.num_bytes;
  if (status == 200 && is_filled && range.offset == 0) {
    return WebPart{.bytes = std::move(answer.body), .size_bytes = range.num_bytes, .version = web_version(answer.head)};
  }
  if (status != 206) {
    return Status::failed_precondition(
        "the server gives whole files alone, and this file must be read in parts; copy it to a local folder and name that:", what);
  }
  const auto got = parse_content_range(answer.head.find("content-range").value_or(""));
  if (!got || got->range != range || !is_filled) {
    return Status::unavailable("the server gave another part of the file than was asked for (address, offset, bytes):", what, range.offset,
                               range.num_bytes);
  }
  return WebPart{.bytes = std::move(answer.body), .size_bytes = got->size_bytes.value_or(-1), .version = web_version(answer.head)};
}

Result<size_t> RangedFile::read_at(int64_t offset, std::span<std::byte> out) const {
  DARKROOM_CHECK(offset >= 0, "an offset before the file:", offset);
  const int64_t num_bytes = std::clamp<int64_t>(size_bytes() - offset, 0, static_cast<int64_t>(out.size()));
  const ByteRange range{.offset = offset, .num_bytes = num_bytes};
  const std::span<std::byte> place = out.first(static_cast<size_t>(num_bytes));
  DARKROOM_RETURN_IF_ERROR(read_ranges(std::span(&range, 1), std::span(&place, 1)));
  return place.size();
}

Status RangedFile::read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const {
  for (const ByteRange& range : ranges) {
    if (range.num_bytes > 0 && range.offset > size_bytes() - range.num_bytes) {
      return Status::corrupt_data("the file ends before what is read (file, size, offset, bytes):", path(), size_bytes(), range.offset,
                                  range.num_bytes);
    }
  }
  return read_ranges_at_once(ranges, out, [this](ByteRange range, std::span<std::byte> place) { return read_part(range.offset, place); });
}

}  // namespace darkroom
