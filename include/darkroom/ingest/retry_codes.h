#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Codes of failed rows that --retry-failed names. A value; empty: none.
class RetryCodes {
 public:
  /// Reads "timeout,http_429,http_5xx": stable codes (core/row_error.h), http_NNN and whole classes of these. Errors: kInvalidArgument, as
  /// the end of a sentence that begins with the flag; of an unknown code with the nearest one.
  static Result<RetryCodes> parse(std::string_view text);

  bool is_empty() const { return codes_.empty(); }
  bool contain(std::string_view code) const;
  /// The same text for the same codes, in whatever order and how often they were named.
  std::string text() const;

 private:
  std::vector<std::string> codes_;  // Ascending, each once.
};

}  // namespace darkroom
