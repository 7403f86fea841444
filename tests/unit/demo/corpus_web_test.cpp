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
  uint16_t usual_port = 0;  // First whatever is free: the demo's own port may be taken by a demo.
  for (int turn = 0; turn < 3; ++turn) {
    const auto web = make_corpus_web(tools, folder.path(), 0, {}, usual_port);
    ASSERT_TRUE(web.is_ok()) << web.status().to_string();
    EXPECT_EQ(base_url(folder.path()), "http://127.0.0.1:" + std::to_string((*web)->port()));
    if (turn > 0) {
      EXPECT_EQ((*web)->port(), usual_port);
    }
    usual_port = (*web)->port();
  }
}

TEST(CorpusWeb, takes_another_port_where_the_usual_one_is_taken) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("tool")) << kTool;
  const DemoTools tools{.python = "/bin/sh", .corpus_tool = folder.path("tool")};
  const auto first = make_corpus_web(tools, folder.path(), 0, {}, 0);
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  const auto second = make_corpus_web(tools, folder.path(), 0, {}, (*first)->port());
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_NE((*second)->port(), (*first)->port());
  EXPECT_EQ(base_url(folder.path()), "http://127.0.0.1:" + std::to_string((*second)->port()));
}

}  // namespace
}  // namespace darkroom
