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
    const HttpReply reply = page_reply(name, "");
    EXPECT_EQ(reply.status, 200) << name;
    EXPECT_TRUE(reply.body == bytes_of(entry.path())) << name;  // Not EXPECT_EQ, which would print both files.
    EXPECT_NE(reply.type, "application/octet-stream") << name;
    ++num_files;
  }
  EXPECT_THAT(page_files(), SizeIs(num_files));
}

TEST(page_files, each_has_its_type) {
  for (const auto& [name, type] : {std::pair("index.html", "text/html; charset=utf-8"), std::pair("style.css", "text/css; charset=utf-8"),
                                   std::pair("page.js", "text/javascript; charset=utf-8"), std::pair("templates.json", "application/json"),
                                   std::pair("icon.svg", "image/svg+xml")}) {
    EXPECT_EQ(page_reply(name, "").type, type) << name;
  }
}

TEST(page_files, its_policy_lets_no_other_server_and_no_inline_script_in) {
  const std::string policy = header_of(page_reply("index.html", ""), "Content-Security-Policy");
  EXPECT_THAT(policy, AllOf(StartsWith("default-src 'self'; img-src 'self' data: blob:;"), HasSubstr("frame-ancestors 'none'"),
                            HasSubstr("base-uri 'none'"), HasSubstr("object-src 'none'"), HasSubstr("form-action 'none'")));
  EXPECT_THAT(policy, AllOf(Not(HasSubstr("unsafe")), Not(HasSubstr("http")), Not(HasSubstr("*"))));
  EXPECT_THAT(page_reply("index.html", "").headers, Contains(Pair("Referrer-Policy", "no-referrer")));
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
  const HttpReply whole = page_reply("page.js", "");
  const std::string tag = header_of(whole, "ETag");
  EXPECT_THAT(tag, AllOf(SizeIs(34), StartsWith("\"")));
  EXPECT_EQ(header_of(whole, "Cache-Control"), "no-cache");
  EXPECT_NE(tag, header_of(page_reply("index.html", ""), "ETag"));
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpReply reply = page_reply("page.js", known);
    EXPECT_EQ(reply.status, 304) << known;
    EXPECT_EQ(reply.body, "") << known;
    EXPECT_EQ(header_of(reply, "ETag"), tag) << known;
  }
  for (const std::string& unknown : {std::string("\"other\""), tag.substr(1, 32), std::string("\"\"")}) {
    EXPECT_EQ(page_reply("page.js", unknown).status, 200) << unknown;
  }
}

TEST(page_files, other_names_are_no_files) {
  for (const char* name : {"", "nothing.js", "../page.js", "page.js/", "PAGE.JS", "page"}) {
    EXPECT_EQ(page_reply(name, "*").status, 404) << name;
  }
}

}  // namespace
}  // namespace darkroom
