#include "demo/corpus_web.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

// Instead of the corpus tool: notes the URL that it was given and writes a web of nothing.
constexpr const char* kTool = R"(printf '%s' "$5" >"$1/base_url"; printf '{"routes": {}}' >"$1/web.json")";

std::string base_url(const std::string& folder) {
  std::ostringstream text;
  text << std::ifstream(folder + "/base_url").rdbuf();
  return text.str();
}

TEST(CorpusWeb, two_at_a_time_have_ports_of_their_own_and_the_urls_name_them) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("tool")) << kTool;
  const DemoTools tools{.python = "/bin/sh", .corpus_tool = folder.path("tool")};
  for (const char* name : {"first", "second"}) {
    std::filesystem::create_directories(folder.path(name));
  }
  const auto first = make_corpus_web(tools, folder.path("first"), 0, {});
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  const auto second = make_corpus_web(tools, folder.path("second"), 0, {});
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_NE(base_url(folder.path("first")), base_url(folder.path("second")));
  EXPECT_EQ(base_url(folder.path("first")), "http://127.0.0.1:" + std::to_string((*first)->port()));
  EXPECT_EQ(base_url(folder.path("second")), "http://127.0.0.1:" + std::to_string((*second)->port()));
}

TEST(CorpusWeb, the_next_one_has_the_same_urls) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("tool")) << kTool;
  const DemoTools tools{.python = "/bin/sh", .corpus_tool = folder.path("tool")};
  std::string urls[2];
  for (std::string& url : urls) {
    const auto web = make_corpus_web(tools, folder.path(), 0, {});
    ASSERT_TRUE(web.is_ok()) << web.status().to_string();
    url = base_url(folder.path());
  }
  EXPECT_EQ(urls[0], urls[1]);
}

}  // namespace
}  // namespace darkroom
