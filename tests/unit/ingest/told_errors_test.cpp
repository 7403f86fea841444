#include "darkroom/ingest/told_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class ToldErrorsTest : public testing::Test {
 protected:
  /// What one failure adds to the log.
  std::string said(const RowError& error, std::string_view place = {}) {
    testing::internal::CaptureStderr();
    told_.tell(error, place);
    return testing::internal::GetCapturedStderr();
  }

  ToldErrors told_{"download"};
};

TEST_F(ToldErrorsTest, says_the_first_detail_of_each_code_once) {
  EXPECT_EQ(said({.code = RowErrorCode::kTls}), "") << "nothing to say";
  EXPECT_THAT(said({.code = RowErrorCode::kTls, .detail = "the certificate has expired"}, "https://host/a.jpg"),
              EndsWith(" download: a row failed, tls: the certificate has expired; the first is of https://host/a.jpg\n"));
  EXPECT_EQ(said({.code = RowErrorCode::kTls, .detail = "another"}), "");
  EXPECT_THAT(said({.code = RowErrorCode::kBomb, .detail = "large"}), EndsWith(" download: a row failed, bomb: large\n"));
  EXPECT_THAT(told_.told(),
              ElementsAre(Pair("bomb", "large"), Pair("tls", "the certificate has expired; the first is of https://host/a.jpg")));
}

TEST_F(ToldErrorsTest, shows_no_secrets_of_addresses) {
  EXPECT_THAT(said({.code = RowErrorCode::kBlockedHost, .detail = "goes on to http://user:secret@host/b?token=secret"},
                   "https://user:secret@host/a?signature=secret"),
              AllOf(Not(HasSubstr("secret")), HasSubstr("http://host/b?..."), HasSubstr("https://host/a?...")));
  EXPECT_THAT(told_.told(), ElementsAre(Pair("blocked_host", AllOf(Not(HasSubstr("secret")), HasSubstr("https://host/a?...")))));
}

TEST_F(ToldErrorsTest, is_one_short_line_without_control_characters) {
  const std::string line =
      said({.code = RowErrorCode::kNotAnImage, .detail = "\x1b[2J\r\n\xC2\x9B\xFF" + std::string(5000, 'x')}, std::string(5000, 'y'));
  EXPECT_THAT(line, AllOf(HasSubstr("not_an_image: ?[2J???\xEF\xBF\xBDx"), HasSubstr("x...;"), EndsWith("y...\n")));
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_LT(line.size(), 600u);
}

TEST_F(ToldErrorsTest, says_a_bounded_number_of_lines) {
  std::string lines;
  for (int status = 400; status < 600; ++status) {
    lines += said({.code = RowErrorCode::kHttpStatus, .http_status = status, .detail = "no"});
  }
  EXPECT_EQ(std::ranges::count(lines, '\n'), 64);
}

TEST_F(ToldErrorsTest, is_told_by_a_decoder_whatever_is_asked) {
  const auto decoder = decoder_that_tells(told_, decoder_in_process());
  const std::string bytes = "GIF89a no picture of ours";
  const auto view = std::as_bytes(std::span(bytes));
  testing::internal::CaptureStderr();
  EXPECT_EQ(decoder->check(view, kAnySize)->error().name(), "unsupported_format");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), EndsWith("unsupported_format: GIF\n"));
  std::vector<uint8_t> out(3);
  testing::internal::CaptureStderr();
  EXPECT_EQ(decoder->transform(view.first(0), {.resolution = 1}, kAnySize, CropDraw{}, out)->error().name(), "not_an_image");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), EndsWith("not_an_image: no bytes\n"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(decoder->resize_to(std::as_bytes(std::span("\xFF\xD8\xFF", 3)), {1, 1}, kAnySize, out)->error().name(), "truncated");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), EndsWith("truncated: the JPEG header is cut\n"));
}

}  // namespace
}  // namespace darkroom
