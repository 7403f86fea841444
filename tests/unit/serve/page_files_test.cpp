#include "serve/page_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::SizeIs;
using testing::StartsWith;

HttpReply reply_to(const std::string& method, const std::string& path, HttpHeaders headers = {}) {
  return page_reply({.method = method, .path = path, .headers = std::move(headers), .body = {}}).value();
}

std::string header_of(const HttpReply& reply, const std::string& name) {
  const auto found = std::find_if(reply.headers.begin(), reply.headers.end(), [&](const auto& field) { return field.first == name; });
  return found == reply.headers.end() ? "" : found->second;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(page_files, every_file_of_the_folder_is_in_the_program) {
  size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("src/serve/page"))) {
    const std::string name = entry.path().filename();
    const HttpReply reply = reply_to("GET", "/page/" + name);
    EXPECT_EQ(reply.status, 200) << name;
    EXPECT_TRUE(reply.body == bytes_of(entry.path())) << name;  // Not EXPECT_EQ, which would print both files.
    EXPECT_NE(reply.type, "application/octet-stream") << name;
    ++num_files;
  }
  EXPECT_THAT(page_files(), SizeIs(num_files));
  EXPECT_EQ(reply_to("GET", "/").body, reply_to("GET", "/page/index.html").body);
}

TEST(page_files, each_has_its_type) {
  for (const auto& [path, type] : {std::pair("/", "text/html; charset=utf-8"), std::pair("/page/style.css", "text/css; charset=utf-8"),
                                   std::pair("/page/page.js", "text/javascript; charset=utf-8"),
                                   std::pair("/page/templates.json", "application/json"), std::pair("/page/icon.svg", "image/svg+xml")}) {
    EXPECT_EQ(reply_to("GET", path).type, type) << path;
  }
}

TEST(page_files, its_policy_lets_no_other_server_and_no_inline_script_in) {
  const std::string policy = header_of(reply_to("GET", "/"), "Content-Security-Policy");
  EXPECT_THAT(policy, AllOf(StartsWith("default-src 'self'; img-src 'self' data: blob:;"), HasSubstr("frame-ancestors 'none'"),
                            HasSubstr("base-uri 'none'"), HasSubstr("object-src 'none'"), HasSubstr("form-action 'none'")));
  EXPECT_THAT(policy, AllOf(Not(HasSubstr("unsafe")), Not(HasSubstr("http")), Not(HasSubstr("*"))));
  EXPECT_THAT(reply_to("GET", "/").headers, Contains(Pair("Referrer-Policy", "no-referrer")));
}

// What the policy would forbid is not there to be forbidden; and nothing of another server is named, which would be a request.
TEST(page_files, none_asks_another_server_or_makes_markup_of_text) {
  for (const EmbeddedFile& file : page_files()) {
    const std::string text(file.bytes);
    for (const char* part : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://", "//cdn",
                             "@import", "url(", " onclick=", "javascript:"}) {
      EXPECT_THAT(text, Not(HasSubstr(part))) << file.name;
    }
    const std::string without_names = file.name == "icon.svg" ? "" : text;  // A namespace of XML looks like an address.
    EXPECT_THAT(without_names, Not(HasSubstr("http://"))) << file.name;
  }
}

TEST(page_files, a_file_that_the_client_has_is_not_sent_again) {
  const HttpReply whole = reply_to("GET", "/page/page.js");
  const std::string tag = header_of(whole, "ETag");
  EXPECT_THAT(tag, AllOf(SizeIs(34), StartsWith("\"")));
  EXPECT_EQ(header_of(whole, "Cache-Control"), "no-cache");
  EXPECT_NE(tag, header_of(reply_to("GET", "/"), "ETag"));
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpReply reply = reply_to("GET", "/page/page.js", {{"if-none-match", known}});
    EXPECT_EQ(reply.status, 304) << known;
    EXPECT_EQ(reply.body, "") << known;
    EXPECT_EQ(header_of(reply, "ETag"), tag) << known;
  }
  for (const std::string& unknown : {std::string("\"other\""), tag.substr(1, 32), std::string("\"\"")}) {
    EXPECT_EQ(reply_to("GET", "/page/page.js", {{"if-none-match", unknown}}).status, 200) << unknown;
  }
}

TEST(page_files, other_paths_and_methods) {
  for (const char* path : {"/page/", "/page/nothing.js", "/page/../page.js", "/page/page.js/", "/page/%70age.js"}) {
    EXPECT_EQ(reply_to("GET", path).status, 404) << path;
  }
  EXPECT_EQ(reply_to("HEAD", "/").status, 200);
  EXPECT_EQ(reply_to("POST", "/page/page.js").status, 405);
  EXPECT_THAT(reply_to("DELETE", "/page/page.js").headers, Contains(Pair("Allow", "GET, HEAD")));
  for (const auto& [method, path] : {std::pair("POST", "/"), std::pair("GET", "/page"), std::pair("GET", "/ping"), std::pair("GET", "")}) {
    EXPECT_FALSE(page_reply({.method = method, .path = path, .headers = {}, .body = {}}).has_value()) << method << path;
  }
}

}  // namespace
}  // namespace darkroom
