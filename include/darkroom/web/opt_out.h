#pragma once

#include <optional>
#include <string_view>

#include "darkroom/core/row_error.h"

namespace darkroom {

/// Which signals of the web are obeyed (--respect).
struct OptOutRules {
  bool robots = false;  ///< robots.txt: Allow and Disallow (RFC 9309).
  bool noai = true;     ///< The header X-Robots-Tag: noai, noimageai.
  bool aipref = false;  ///< Content-Usage and Content-Signal, as headers and as lines of robots.txt.

  bool operator==(const OptOutRules&) const = default;
};

/// What a usage preference says of training generative models: true: may, false: must not, nullopt: nothing.
///
/// `value` is that of Content-Usage (draft-ietf-aipref-vocab: "train-ai=n, search=y") or Content-Signal
/// (draft-romm-aipref-contentsignals: "search=yes, ai-train=no"). Of its keys the one that says most exactly what we do decides:
/// train-genai, then train-ai or ai-train, then bots (all of them names of one of the drafts). Read leniently, because a slip of the
/// pen is no consent: both spellings in both places, letters of either case, "n" and "no", parameters after ";" ignored, a part that
/// is not understood costs only itself. Of equal keys the last one counts (RFC 9651). Thread safety: pure.
std::optional<bool> training_preference(std::string_view value);

/// Whether this response header takes the body out of training: kOptedOut, its detail names header and value; nullopt: it does not.
/// To be asked of every header of the final response before the body is read; one that says so is enough.
///
/// X-Robots-Tag: directives for everybody, or after "agent:" for one agent; a header may name several agents one after the other.
/// `agent` is our product token ("darkroom"), compared without case. Thread safety: pure.
std::optional<RowError> header_opt_out(std::string_view name, std::string_view value, const OptOutRules& rules, std::string_view agent);

}  // namespace darkroom
