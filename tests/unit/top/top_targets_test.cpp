#include "top_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "darkroom/web/metrics_server.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class TopTargetsTest : public testing::Test {
 protected:
  /// A process that shows how many rows it has read.
  std::string serve(int64_t rows) {
    auto& registry = registries_.emplace_back(std::make_unique<MetricsRegistry>());
    registry->counter("darkroom_rows_total", "Rows.", {{"stage", "read"}}).add(rows);
    auto server = MetricsServer::start(*registry, {.address = *parse_metrics_address("0")});
    EXPECT_TRUE(server.is_ok()) << server.status().message();
    servers_.push_back(std::move(server).value());
    return servers_.back()->address().to_string();
  }
  void leave(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_.path("_metrics"));
    std::ofstream(folder_.path("_metrics/" + name)) << text;
  }
  std::vector<ProcessLook> look(const std::string& target) {
    const auto targets = TopTargets::open({target});
    EXPECT_TRUE(targets.is_ok()) << targets.status().message();
    return (*targets)->look({}).processes;
  }
  std::vector<ProcessLook> look() { return look(folder_.path()); }

  const TemporaryFolder folder_;
  std::vector<std::unique_ptr<MetricsRegistry>> registries_;
  std::vector<std::unique_ptr<MetricsServer>> servers_;
};

TEST(MetricsUrl, is_of_a_port_an_address_or_a_url) {
  EXPECT_EQ(metrics_url("9100"), "http://127.0.0.1:9100/metrics");
  EXPECT_EQ(metrics_url("node-3:9100"), "http://node-3:9100/metrics");
  EXPECT_EQ(metrics_url("[::1]:9100"), "http://[::1]:9100/metrics");
  EXPECT_EQ(metrics_url("http://node-3:9100"), "http://node-3:9100/metrics");
  EXPECT_EQ(metrics_url("http://node-3:9100/"), "http://node-3:9100/metrics");
  EXPECT_EQ(metrics_url("https://proxy/darkroom/metrics"), "https://proxy/darkroom/metrics");
  for (const char* path : {"run", "./9100", "runs/a:1", "s3://bucket/run", "123456", ":9100", "run:x"}) {
    EXPECT_EQ(metrics_url(path), "") << path;
  }
}

TEST_F(TopTargetsTest, an_address_is_asked) {
  const auto looks = look(serve(5));
  ASSERT_EQ(looks.size(), 1U);
  EXPECT_EQ(looks[0].failure, "");
  EXPECT_EQ(looks[0].page.sum("darkroom_rows_total"), 5);
}

TEST_F(TopTargetsTest, a_folder_shows_every_process_that_left_its_address) {
  leave("a.json", R"({"address": ")" + serve(5) + R"(", "pid": 1})");
  leave("b.json", R"({"address": ")" + serve(7) + R"(", "pid": 2})");
  leave("c.json", "torn");
  leave("d.json", R"({"address": 3})");
  leave("e.json.tmp", R"({"address": "127.0.0.1:1"})");
  const auto looks = look();
  ASSERT_EQ(looks.size(), 2U);
  EXPECT_EQ(looks[0].page.sum("darkroom_rows_total") + looks[1].page.sum("darkroom_rows_total"), 12);
}

TEST_F(TopTargetsTest, the_address_of_a_process_that_was_killed_is_passed_over_where_another_one_answers) {
  const std::string dead = serve(3);
  leave("a.json", R"({"address": ")" + dead + R"("})");
  servers_.clear();
  EXPECT_THAT(look().at(0).failure, HasSubstr(dead));
  leave("b.json", R"({"address": ")" + serve(5) + R"("})");
  const auto looks = look();
  ASSERT_EQ(looks.size(), 2U);
  EXPECT_EQ(looks[0].page.sum("darkroom_rows_total"), 5);
}

TEST_F(TopTargetsTest, a_process_of_another_host_is_asked_there) {
  const std::string address = serve(5);
  const std::string port = address.substr(address.rfind(':'));
  leave("a.json", R"({"address": "0.0.0.0)" + port + R"(", "host": "127.0.0.1"})");
  leave("b.json", R"({"address": "[::])" + port + R"(", "host": "127.0.0.1"})");  // The same, listed once.
  auto looks = look();
  ASSERT_EQ(looks.size(), 1U);
  EXPECT_EQ(looks[0].where, "127.0.0.1" + port);
  EXPECT_EQ(looks[0].page.sum("darkroom_rows_total"), 5);
  leave("b.json", R"({"address": "127.0.0.1)" + port + R"(", "host": "node-9"})");  // Here somebody else listens at that port.
  looks = look();
  ASSERT_EQ(looks.size(), 2U);
  EXPECT_EQ(looks[0].failure, "");
  std::filesystem::remove(folder_.path("_metrics/a.json"));
  looks = look();
  ASSERT_EQ(looks.size(), 1U);
  EXPECT_EQ(looks[0].where, "node-9" + port);
  EXPECT_THAT(looks[0].failure, HasSubstr("told on node-9 alone"));
  leave("b.json", R"({"address": "0.0.0.0)" + port + R"(", "host": "user@node/9"})");
  EXPECT_THAT(look().at(0).failure, HasSubstr("no process left its address"));
}

TEST_F(TopTargetsTest, a_run_that_nobody_serves_tells_its_last_whole_line) {
  std::ofstream(folder_.path("metrics.jsonl")) << "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3";
  const auto looks = look();
  ASSERT_EQ(looks.size(), 1U);
  EXPECT_EQ(looks[0].failure, "");
  EXPECT_EQ(looks[0].last_line["step"], 2);
  std::ofstream(folder_.path("metrics.jsonl")) << "no json\n";
  EXPECT_EQ(look().at(0).failure, "its last line is no JSON object");
  std::ofstream(folder_.path("metrics.jsonl")) << "";
  EXPECT_THAT(look().at(0).failure, HasSubstr("no step was logged yet"));
}

TEST_F(TopTargetsTest, a_folder_without_addresses_says_what_to_do) {
  EXPECT_THAT(look().at(0).failure, HasSubstr("--metrics-port"));
  EXPECT_THAT(look(folder_.path("none")).at(0).failure, HasSubstr("--metrics-port"));
}

}  // namespace
}  // namespace darkroom
