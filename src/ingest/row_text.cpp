#include "row_text.h"

#include <tuple>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/row_dialects.h"

namespace darkroom {
namespace {

std::string_view trim_url(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// A list may have been made of the table's own bytes, with white space around them or text that is no UTF-8.
bool is_denied(const DenyList& list, std::string_view url, std::string_view as_stored) {
  return list.denies(url) || (as_stored != url && list.denies(as_stored));
}

}  // namespace

RowText read_row_text(const DownloadRules& rules, std::optional<std::string_view> url, std::optional<std::string_view> caption) {
  RowText row;
  row.url = replace_invalid_utf8(trim_url(url.value_or(""))).first;
  std::tie(row.caption, row.caption_was_invalid) = replace_invalid_utf8(caption.value_or(""));
  if (row.url.empty()) {
    row.error = RowError{.code = RowErrorCode::kBadUrl, .detail = "no URL"};
  } else if (is_blank(row.caption)) {
    row.error = RowError{.code = RowErrorCode::kEmptyCaption};
  } else if (rules.denied && is_denied(*rules.denied, row.url, *url)) {
    row.error = RowError{.code = RowErrorCode::kDenied};
  }
  return row;
}

}  // namespace darkroom
