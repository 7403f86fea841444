#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "darkroom/web/path_rules.h"

namespace darkroom {

/// What one robots.txt says to us (RFC 9309), with the usage preferences that draft-ietf-aipref-attach and Content-Signal add.
///
/// Rules are those of all groups that name our product token, without regard to case; if none does, those of all groups for "*". Lines
/// end with LF, CR or CRLF; a byte order mark at the start is skipped; lines that are no rule end no group; Allow and Disallow before
/// the first User-agent count for nobody. Of the file the first 500 KiB count, up to the last line that is whole.
///
/// Thread safety: immutable after parse().
class RobotsRules {
 public:
  static constexpr size_t kMaxBytes = 500 * 1024;

  /// Never fails: what is not understood is no rule. `agent`: our product token; what follows its letters ("/1.0") is ignored.
  static RobotsRules parse(std::string_view text, std::string_view agent);

  /// Whether we may fetch this path and query (as in the URL). The longest pattern decides, Allow before Disallow; none: yes. robots.txt
  /// itself: yes. Too many slow patterns (PathRules): no.
  bool allows(std::string_view path_and_query) const;

  /// What Content-Usage and Content-Signal lines say of training on this path: true: may, false: must not, nullopt: nothing. A line's
  /// value is a preference or a path pattern, a blank and a preference; the longest pattern decides, "no" before "yes". Such a line
  /// before the first User-agent counts for everybody.
  std::optional<bool> trains(std::string_view path_and_query) const;

  size_t num_bytes() const { return access_.num_bytes() + usage_.num_bytes(); }  ///< Memory held, about.

 private:
  class Parser;
  PathRules access_{true};
  PathRules usage_{false};
};

}  // namespace darkroom
