#include "darkroom/ingest/retry_codes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

using testing::HasSubstr;

TEST(RetryCodes, the_same_codes_are_the_same_text) {
  EXPECT_EQ(RetryCodes::parse("timeout,http_5xx,dns,timeout")->text(), "dns,http_5xx,timeout");
  EXPECT_EQ(RetryCodes::parse("http_404")->text(), "http_404");
  EXPECT_TRUE(RetryCodes().is_empty());
  EXPECT_FALSE(RetryCodes().contain("timeout"));
}

TEST(RetryCodes, a_class_stands_for_all_codes_of_its_first_digit) {
  const RetryCodes codes = *RetryCodes::parse("http_5xx,http_404,tls");
  for (const char* code : {"http_500", "http_599", "http_404", "tls"}) {
    EXPECT_TRUE(codes.contain(code)) << code;
  }
  for (const char* code : {"http_403", "http_50", "http_5000", "timeout", "tl", "tlsx", ""}) {
    EXPECT_FALSE(codes.contain(code)) << code;
  }
}

TEST(RetryCodes, what_is_no_code_is_refused_with_the_nearest_one) {
  for (const auto& [text, nearest] : std::vector<std::pair<std::string, std::string>>{{"timeot", "timeout"},
                                                                                      {"dns,bad_ur", "bad_url"},
                                                                                      {"http_4x4", "http_404"},
                                                                                      {"http_5x", "http_5xx"},
                                                                                      {"TIMEOUT", ""},
                                                                                      {" dns", "dns"},
                                                                                      {std::string(100'000, 'x'), ""}}) {
    const Status status = RetryCodes::parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, 40);
    EXPECT_THAT(status.message(), HasSubstr("the nearest is " + nearest));
    EXPECT_LT(status.message().size(), 300u);
  }
  for (const char* text : {"", ",", "dns,", ",dns", "dns,,tls"}) {
    EXPECT_THAT(RetryCodes::parse(text).status().message(), HasSubstr("must be codes of failed rows")) << text;
  }
}

}  // namespace
}  // namespace darkroom
