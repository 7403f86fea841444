#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "darkroom/core/row_error.h"
#include "download_rules.h"

namespace darkroom {

/// The URL and the caption of a row as they are used.
struct RowText {
  std::string url = {};  ///< Without white space around it.
  std::string caption = {};
  bool caption_was_invalid = false;    ///< Invalid UTF-8 was replaced.
  std::optional<RowError> error = {};  ///< Why the row is not asked for: bad_url, empty_caption, denied.
};

/// Reads them out of what a table holds. Pure.
RowText read_row_text(const DownloadRules& rules, std::optional<std::string_view> url, std::optional<std::string_view> caption);

}  // namespace darkroom
