#include "darkroom/core/row_error.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace darkroom {
namespace {

// The closed list as it is written to disk (docs/formats/image_dataset.md): scripts count by these names.
TEST(row_error, every_code_has_its_stable_name) {
  const std::vector<std::pair<RowErrorCode, const char*>> names = {
      {RowErrorCode::kBadUrl, "bad_url"},
      {RowErrorCode::kDns, "dns"},
      {RowErrorCode::kConnect, "connect"},
      {RowErrorCode::kTls, "tls"},
      {RowErrorCode::kTimeout, "timeout"},
      {RowErrorCode::kTooManyRedirects, "too_many_redirects"},
      {RowErrorCode::kBlockedHost, "blocked_host"},
      {RowErrorCode::kTooLarge, "too_large"},
      {RowErrorCode::kTruncated, "truncated"},
      {RowErrorCode::kNotAnImage, "not_an_image"},
      {RowErrorCode::kUnsupportedFormat, "unsupported_format"},
      {RowErrorCode::kTooSmall, "too_small"},
      {RowErrorCode::kBadAspect, "bad_aspect"},
      {RowErrorCode::kBomb, "bomb"},
      {RowErrorCode::kOptedOut, "opted_out"},
      {RowErrorCode::kDenied, "denied"},
      {RowErrorCode::kDuplicate, "duplicate"},
      {RowErrorCode::kEmptyCaption, "empty_caption"},
      {RowErrorCode::kNullImage, "null_image"},
      {RowErrorCode::kDecodeFailed, "decode_failed"},
      {RowErrorCode::kNanLatents, "nan_latents"},
  };
  for (const auto& [code, name] : names) {
    EXPECT_EQ(RowError{.code = code}.name(), name);
  }
  EXPECT_EQ(names.back().first, RowErrorCode{static_cast<int>(names.size())}) << "a new code needs its name here";
}

TEST(row_error, an_http_status_is_part_of_the_name) {
  EXPECT_EQ((RowError{.code = RowErrorCode::kHttpStatus, .http_status = 404}.name()), "http_404");
  EXPECT_EQ((RowError{.code = RowErrorCode::kHttpStatus, .http_status = 99}.name()), "http_099");
}

}  // namespace
}  // namespace darkroom
