#include "darkroom/core/row_error.h"

#include <fmt/format.h>

namespace darkroom {

std::string RowError::name() const {
  switch (code) {
    case RowErrorCode::kBadUrl:
      return "bad_url";
    case RowErrorCode::kDns:
      return "dns";
    case RowErrorCode::kConnect:
      return "connect";
    case RowErrorCode::kTls:
      return "tls";
    case RowErrorCode::kTimeout:
      return "timeout";
    case RowErrorCode::kHttpStatus:
      return fmt::format("http_{:03}", http_status);
    case RowErrorCode::kTooManyRedirects:
      return "too_many_redirects";
    case RowErrorCode::kBlockedHost:
      return "blocked_host";
    case RowErrorCode::kTooLarge:
      return "too_large";
    case RowErrorCode::kTruncated:
      return "truncated";
    case RowErrorCode::kNotAnImage:
      return "not_an_image";
    case RowErrorCode::kUnsupportedFormat:
      return "unsupported_format";
    case RowErrorCode::kTooSmall:
      return "too_small";
    case RowErrorCode::kBadAspect:
      return "bad_aspect";
    case RowErrorCode::kBomb:
      return "bomb";
    case RowErrorCode::kOptedOut:
      return "opted_out";
    case RowErrorCode::kDenied:
      return "denied";
    case RowErrorCode::kDuplicate:
      return "duplicate";
    case RowErrorCode::kEmptyCaption:
      return "empty_caption";
    case RowErrorCode::kNullImage:
      return "null_image";
    case RowErrorCode::kDecodeFailed:
      return "decode_failed";
    case RowErrorCode::kNanLatents:
      return "nan_latents";
  }
  return "unknown";
}

}  // namespace darkroom
