#include "darkroom/web/spot_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "support/http_answers.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using SpotAnswer = ScriptedServer::Answer;
using SpotRequest = ScriptedServer::Request;

class SpotNoticeTest : public testing::Test {
 protected:
  std::optional<std::string> ask(const SpotSource& source) {
    const auto notice = ask_for_spot_notice(source, *http_, {});
    EXPECT_TRUE(notice.is_ok()) << notice.status().to_string();
    return notice.is_ok() ? *notice : std::nullopt;
  }
  static std::string service_at(const ScriptedServer& server) { return server_url(server, ""); }

  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> http_ = HttpClient::start({.num_loops = 1}, metrics_).value();
  TemporaryFolder folder_;
};

TEST_F(SpotNoticeTest, a_file_is_a_notice_once_it_is_there) {
  const SpotSource source = SpotSource::parse(folder_.path("notice")).value();
  EXPECT_EQ(ask(source), std::nullopt);
  std::ofstream(folder_.path("notice")) << "go";
  EXPECT_EQ(ask(source), folder_.path("notice"));
}

TEST_F(SpotNoticeTest, ec2_is_asked_with_a_token) {
  std::atomic<bool> is_to_go = false;
  const ScriptedServer server([&](const SpotRequest& request) {
    if (request.head.starts_with("PUT /latest/api/token ")) {
      EXPECT_THAT(request.head, HasSubstr("X-aws-ec2-metadata-token-ttl-seconds: "));
      return SpotAnswer{http_answer(200, "the token")};
    }
    EXPECT_THAT(request.head, HasSubstr("GET /latest/meta-data/spot/instance-action "));
    EXPECT_THAT(request.head, HasSubstr("X-aws-ec2-metadata-token: the token\r\n"));
    return SpotAnswer{is_to_go ? http_answer(200, R"({"action": "terminate",)"
                                                  "\n"
                                                  R"("time": "2026-11-23T08:22:00Z"})")
                               : http_answer(404, "no")};
  });
  const SpotSource source{SpotSource::Kind::kAws, service_at(server)};
  EXPECT_EQ(ask(source), std::nullopt);
  is_to_go = true;
  EXPECT_EQ(ask(source), R"({"action": "terminate", "time": "2026-11-23T08:22:00Z"})");
}

TEST_F(SpotNoticeTest, ec2_without_tokens_is_asked_as_well) {
  const ScriptedServer server([&](const SpotRequest& request) {
    EXPECT_EQ(request.head.find("X-aws-ec2-metadata-token: "), std::string::npos);
    return SpotAnswer{request.head.starts_with("PUT ") ? http_answer(405, "") : http_answer(200, "stop")};
  });
  EXPECT_EQ(ask({SpotSource::Kind::kAws, service_at(server)}), "stop");
}

TEST_F(SpotNoticeTest, compute_engine_says_true) {
  std::atomic<bool> is_to_go = false;
  const ScriptedServer server([&](const SpotRequest& request) {
    EXPECT_THAT(request.head, HasSubstr("GET /computeMetadata/v1/instance/preempted "));
    EXPECT_THAT(request.head, HasSubstr("Metadata-Flavor: Google\r\n"));
    return SpotAnswer{http_answer(200, is_to_go ? "TRUE" : "FALSE")};
  });
  const SpotSource source{SpotSource::Kind::kGcp, service_at(server)};
  EXPECT_EQ(ask(source), std::nullopt);
  is_to_go = true;
  EXPECT_EQ(ask(source), "TRUE");
}

TEST_F(SpotNoticeTest, a_url_answers_200_when_the_machine_is_to_go) {
  std::atomic<int> status = 404;
  const ScriptedServer server([&](const SpotRequest&) { return SpotAnswer{http_answer(status, "text")}; });
  const SpotSource source = SpotSource::parse(server_url(server, "/notice")).value();
  for (const int before : {404, 500, 204, 302}) {
    status = before;
    EXPECT_EQ(ask(source), std::nullopt) << before;
  }
  status = 200;
  EXPECT_EQ(ask(source), "text");
}

TEST_F(SpotNoticeTest, no_answer_is_an_error_and_no_notice) {
  std::string dead;
  {
    const ScriptedServer server([](const SpotRequest&) { return SpotAnswer{}; });
    dead = service_at(server);
  }
  EXPECT_EQ(ask_for_spot_notice({SpotSource::Kind::kAws, dead}, *http_, {}).status().code(), StatusCode::kUnavailable);
}

TEST_F(SpotNoticeTest, the_services_are_where_their_own_variables_say) {
  ASSERT_EQ(setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:99/", 1), 0);
  ASSERT_EQ(setenv("GCE_METADATA_HOST", "127.0.0.1:98", 1), 0);
  EXPECT_EQ(SpotSource::parse("aws").value().place, "http://127.0.0.1:99");
  EXPECT_EQ(SpotSource::parse("gcp").value().place, "http://127.0.0.1:98");
  unsetenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  unsetenv("GCE_METADATA_HOST");
  EXPECT_EQ(SpotSource::parse("aws").value().place, "http://169.254.169.254");
  EXPECT_EQ(SpotSource::parse("gcp").value().place, "http://metadata.google.internal");
}

TEST_F(SpotNoticeTest, a_word_is_a_service_in_any_case_or_a_file_that_is_there) {
  for (const char* aws : {"aws", "AWS", "Aws"}) {
    EXPECT_EQ(SpotSource::parse(aws).value().kind, SpotSource::Kind::kAws) << aws;
  }
  EXPECT_EQ(SpotSource::parse("GCP").value().kind, SpotSource::Kind::kGcp);
  for (const char* wrong : {"", "foo", "azure", "aws ", "ftp://host/notice", "file:///run/notice"}) {
    const Status refused = SpotSource::parse(wrong).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(refused.message(), HasSubstr("aws, gcp, an http or https URL, or a file"));
  }
  for (const char* file : {"./foo", "/run/notice", "aws/"}) {
    EXPECT_EQ(SpotSource::parse(file).value().kind, SpotSource::Kind::kFile) << file;
  }
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path(""));
  std::filesystem::create_directory("folder");
  EXPECT_FALSE(SpotSource::parse("folder").is_ok());
  EXPECT_FALSE(SpotSource::parse("notice").is_ok());
  std::ofstream("notice") << "go";
  EXPECT_TRUE(SpotSource::parse("notice").is_ok());
  std::filesystem::current_path(before);
}

TEST_F(SpotNoticeTest, the_watch_asks_every_five_seconds_and_tells_once) {
  FakeClock clock;
  std::promise<std::string> told;
  const SpotWatch watch(SpotSource::parse(folder_.path("notice")).value(), *http_, clock,
                        [&](const std::string& notice) { told.set_value(notice); });
  ASSERT_TRUE(clock.await_waiting(1));
  std::ofstream(folder_.path("notice")) << "go";
  EXPECT_EQ(clock.advance(SpotWatch::kPeriod - std::chrono::milliseconds(1)), 0U);
  EXPECT_EQ(clock.advance(std::chrono::milliseconds(1)), 1U);
  EXPECT_EQ(told.get_future().get(), folder_.path("notice"));
}

TEST_F(SpotNoticeTest, a_watch_without_a_notice_ends_with_its_owner) {
  FakeClock clock;
  const SpotWatch watch(SpotSource::parse(folder_.path("notice")).value(), *http_, clock, [](const std::string&) { FAIL(); });
  ASSERT_TRUE(clock.await_waiting(1));
}

}  // namespace
}  // namespace darkroom
