#include "ingest/deny_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/core/sha256.h"
#include "ingest/md5.h"
#include "support/download_web.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string md5_hex(std::string_view text) {
  std::string hex;
  for (const std::byte byte : md5(std::as_bytes(std::span(text)))) {
    hex += fmt::format("{:02x}", static_cast<int>(byte));
  }
  return hex;
}

TEST(Md5, is_that_of_the_rfc) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
  // Around the length that takes one more block; by Python's hashlib.
  EXPECT_EQ(md5_hex(std::string(55, 'x')), "04364420e25c512fd958a70738aa8f72");
  EXPECT_EQ(md5_hex(std::string(56, 'x')), "668a72d5ba17f08e62dabcafad6db14b");
  EXPECT_EQ(md5_hex(std::string(64, 'x')), "c1bb4f81d892b2d57947682aeb252456");
}

TEST(DenyList, knows_texts_by_either_hash) {
  const std::string text =
      "# pictures that were withdrawn\n" + md5_hex("one") + "  first\n\n" + sha256_hex("two") + "#second\r\n" + sha256_hex("two");
  const DenyList list = DenyList::parse(text, "list").value();
  EXPECT_EQ(list.size(), 2u);
  EXPECT_TRUE(list.denies("one"));
  EXPECT_TRUE(list.denies("two"));
  EXPECT_FALSE(list.denies("three"));
}

TEST(DenyList, is_the_same_in_any_order) {
  const std::string one = md5_hex("one"), two = sha256_hex("two");
  const std::string want = DenyList::parse(one + "\n" + two + "\n", "a")->fingerprint();
  EXPECT_EQ(DenyList::parse(two + "\n" + one + "\n" + two, "b")->fingerprint(), want);
  EXPECT_NE(DenyList::parse(one, "c")->fingerprint(), want);
}

TEST(DenyList, that_holds_something_else_is_refused_with_the_line) {
  for (const std::string& bad : {std::string("abc"), std::string(31, 'a'), std::string(64, 'g'), std::string("  ") + md5_hex("x")}) {
    const Status status = DenyList::parse(md5_hex("one") + "\n" + bad + "\n", "withdrawn.txt").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << bad;
    EXPECT_THAT(status.message(), HasSubstr("withdrawn.txt 2 "));
  }
}

TEST(DenyList, without_a_hash_is_refused) {
  for (const char* text : {"", "\n\n", "# nothing yet\n"}) {
    const Status status = DenyList::parse(text, "withdrawn.txt").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << text;
    EXPECT_THAT(status.message(), HasSubstr("withdrawn.txt"));
  }
}

class DeniedRows : public ::testing::Test {
 protected:
  DeniedRows() {
    for (int i = 0; i < 5; ++i) {
      web_.add_picture(i);
    }
    web_.start();
    options_ = web_.options(folder_.path("images"));
    options_.deny_list = folder_.path("withdrawn.txt");
  }
  Result<StageSummary> run() { return run_download(stores_, options_, {}); }

  TemporaryFolder folder_;
  DownloadWeb web_;
  MetricsRegistry metrics_;
  StoreSet stores_{StoreSetOptions(), system_clock(), metrics_};
  DownloadOptions options_;
};

TEST_F(DeniedRows, are_not_asked_for_by_url_and_not_kept_by_their_bytes) {
  const std::string url = web_.web().url() + "/picture1.png";
  write_bytes(options_.deny_list, sha256_hex(url) + "\n" + md5_hex(numbered_png(3)) + "\n");
  const StageSummary summary = run().value();
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"denied", 2}}));
  EXPECT_EQ(summary.rows_out, 3);
  EXPECT_EQ(web_.web().num_requests("/picture1.png"), 0);
  EXPECT_EQ(web_.web().num_requests("/picture3.png"), 1);
  EXPECT_EQ(run()->rows_this_run, 0);
}

TEST_F(DeniedRows, are_known_by_the_urls_of_the_table_as_they_stand_there) {
  const std::string first = web_.web().url() + "/picture1.png", second = web_.web().url() + "/picture2.png";
  write_bytes(folder_.path("urls.csv"), "url,caption\n" + first + " ,one\n" + second + "?\xE9,two\n");
  options_.metadata = {folder_.path("urls.csv")};
  write_bytes(options_.deny_list, sha256_hex(first + " ") + "\n" + md5_hex(second + "?\xE9") + "\n");
  EXPECT_EQ(run()->rows_by_error, (RowsByError{{"denied", 2}}));
  EXPECT_EQ(web_.web().num_requests(), 0);
}

TEST_F(DeniedRows, are_not_asked_for_where_a_redirect_leads_to_a_denied_url) {
  DownloadWeb web;
  web.add_picture(0);
  web.add_trouble("moved", {{"trouble", "redirect"}, {"location", "/again#part"}});
  web.add_trouble("again", {{"trouble", "redirect"}, {"location", "/withdrawn"}});
  web.add_trouble("withdrawn", nlohmann::json::object());
  web.start();
  options_ = web.options(folder_.path("moved"));
  options_.deny_list = folder_.path("withdrawn.txt");
  const auto num_asked = [&](const char* path) { return web.web().num_requests(path); };
  write_bytes(options_.deny_list, md5_hex(web.web().url() + "/withdrawn"));
  EXPECT_EQ(run()->rows_by_error, (RowsByError{{"denied", 3}}));
  EXPECT_EQ(num_asked("/moved"), 1);
  EXPECT_EQ(num_asked("/again"), 2);  // Of its own row, too.
  EXPECT_EQ(num_asked("/withdrawn"), 0);
  options_.output = folder_.path("between");
  write_bytes(options_.deny_list, sha256_hex(web.web().url() + "/again"));  // As it is asked for, without the fragment.
  EXPECT_EQ(run()->rows_by_error, (RowsByError{{"denied", 2}}));
  EXPECT_EQ(num_asked("/again"), 2);
}

TEST_F(DeniedRows, belong_to_the_job) {
  write_bytes(options_.deny_list, md5_hex("one"));
  ASSERT_TRUE(run().is_ok());
  write_bytes(options_.deny_list, md5_hex("two"));
  const Status status = run().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("deny_list"));
}

TEST_F(DeniedRows, of_a_list_that_is_not_there_are_an_error_before_anything_is_written) {
  EXPECT_EQ(run().status().code(), StatusCode::kNotFound);
  write_bytes(options_.deny_list, "no hash");
  EXPECT_EQ(run().status().code(), StatusCode::kCorruptData);
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

}  // namespace
}  // namespace darkroom
