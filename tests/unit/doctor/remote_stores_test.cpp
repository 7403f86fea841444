#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "examination.h"
#include "support/http_answers.h"

namespace darkroom {
namespace {

using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

constexpr const char* kSecret = "wJalrXUtnFEMI+hidden";

/// Variables of this process for a while: what S3 and the hub look at, and nothing else of the machine's.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, std::string>> variables) {
    for (const char* name : {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION",
                             "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                             "AWS_CONTAINER_CREDENTIALS_FULL_URI", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"}) {
      set(name, "");
    }
    for (const char* name : {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "HF_TOKEN_PATH"}) {
      set(name, "/no/such/file");
    }
    set("AWS_EC2_METADATA_DISABLED", "true");
    for (const auto& [name, value] : variables) {
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* name, const std::string& value) {
    const char* before = std::getenv(name);
    before_.emplace(before_.begin(), name, before == nullptr ? "" : before);  // The last one set is put back first.
    setenv(name, value.c_str(), 1);
  }

  std::vector<std::pair<std::string, std::string>> before_;
};

Finding examined(const std::string& uri) {
  const auto found = examine_stores({uri}, {}, {});
  EXPECT_TRUE(found.is_ok()) << found.status().to_string();
  return found->at(0);
}

bool says(const Finding& finding, const std::string& words) {
  const bool is_said = finding.text.find(words) != std::string::npos;
  return is_said || (ADD_FAILURE() << finding.name << ": " << finding.text, false);
}

bool shows(const Finding& finding, const std::string& secret) {
  return findings_text({finding}).find(secret) != std::string::npos || findings_json({finding}).dump().find(secret) != std::string::npos;
}

/// S3 with the bucket "pictures", in which "images/a.jpg" lies.
Answer answer_as_s3(const Request& request) {
  const std::string target = request_target_of(request);
  if (!target.starts_with("/pictures")) {
    return {http_answer(404, "<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>")};
  }
  if (request.head.starts_with("HEAD")) {
    return {http_answer(target == "/pictures/images/a.jpg" ? 200 : 404, "12345", "ETag: \"e\"\r\n", true)};
  }
  const bool has_objects = target.find("prefix=images%2F&") != std::string::npos || target.ends_with("prefix=images%2F");
  return {http_answer(200, has_objects ? "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>images/a.jpg</Key><Size>5</Size>"
                                         "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag></Contents>"
                                         "</ListBucketResult>"
                                       : "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")};
}

std::string s3_uri(const ScriptedServer& server, const std::string& path, const std::string& more = "") {
  return fmt::format("s3://{}?endpoint_override=127.0.0.1%3A{}&scheme=http{}", path, server.port(), more);
}

TEST(DoctorS3, says_what_lies_there_with_whose_credentials_and_in_which_region) {
  const ScriptedServer server(answer_as_s3);
  const Environment environment{{"AWS_ACCESS_KEY_ID", "AKHIDDEN"}, {"AWS_SECRET_ACCESS_KEY", kSecret}, {"AWS_REGION", "eu-west-1"}};
  const Finding folder = examined(s3_uri(server, "pictures/images"));
  EXPECT_EQ(folder.verdict, Finding::Verdict::kGood) << folder.text;
  EXPECT_TRUE(says(folder, "objects lie in it; credentials were found, AWS_REGION is eu-west-1"));
  EXPECT_EQ(folder.name, "s3://pictures/images?...");
  EXPECT_TRUE(says(examined(s3_uri(server, "pictures/images/a.jpg")), "an object of 5 B"));
  EXPECT_TRUE(says(examined(s3_uri(server, "pictures/new")), "nothing has that name yet"));
  EXPECT_TRUE(says(examined(s3_uri(server, "pictures")), "it is empty"));
  EXPECT_TRUE(says(examined(s3_uri(server, "pictures", "&anonymous=true&region=x-1")), "without credentials, the region is the address's"));
  for (const Request& request : server.requests()) {
    EXPECT_TRUE(request.head.starts_with("GET") || request.head.starts_with("HEAD")) << request.head;  // It writes nothing.
  }
}

TEST(DoctorS3, what_is_refused_is_a_problem_that_shows_no_key) {
  const ScriptedServer forbidding([](const Request&) {
    return Answer{http_answer(403, "<Error><Code>AccessDenied</Code><Message>AKHIDDEN may not</Message></Error>")};
  });
  const ScriptedServer server(answer_as_s3);
  const Environment environment{{"AWS_ACCESS_KEY_ID", "AKHIDDEN"}, {"AWS_SECRET_ACCESS_KEY", kSecret}};
  for (const auto& [uri, words] :
       {std::pair(s3_uri(forbidding, "pictures/images"), "is refused: "), std::pair(s3_uri(server, "absent"), "there is no such bucket"),
        std::pair(std::string("s3://AKHIDDEN:secret@pictures/x"), "is no address of a store: ")}) {
    const Finding finding = examined(uri);
    EXPECT_EQ(finding.verdict, Finding::Verdict::kProblem) << finding.text;
    EXPECT_TRUE(says(finding, words));
    EXPECT_FALSE(shows(finding, "AKHIDDEN") || shows(finding, kSecret) || shows(finding, "secret@")) << findings_text({finding});
  }
}

TEST(DoctorS3, without_credentials_it_says_where_it_looked_and_asks_nobody) {
  const ScriptedServer server(answer_as_s3);
  const Environment environment{};
  const Finding finding = examined(s3_uri(server, "pictures/images"));
  EXPECT_EQ(finding.verdict, Finding::Verdict::kProblem);
  EXPECT_TRUE(says(finding, "is refused: no credentials for S3"));
  EXPECT_TRUE(server.requests().empty());
}

/// A hub with the dataset org/set, whose token is kSecret.
Answer answer_as_hub(const Request& request) {
  const std::string target = request_target_of(request);
  const std::string commit(40, 'a');
  if (request_header(request, "Authorization") != std::string("Bearer ") + kSecret) {
    return {http_answer(401, "{}", "X-Error-Code: GatedRepo\r\n")};
  }
  if (target.starts_with("/api/datasets/org/set/revision/")) {
    return {http_answer(200, fmt::format(R"({{"id":"x","sha":"{}"}})", commit))};
  }
  if (target.starts_with("/api/datasets/org/set/tree/")) {
    return {http_answer(200, fmt::format(R"([{{"type":"file","oid":"{}","size":3,"path":"a.csv"}}])", std::string(40, 'b')))};
  }
  return {http_answer(404, "{}", "X-Error-Code: RepoNotFound\r\n")};
}

TEST(DoctorHub, says_what_lies_there_and_whether_a_token_was_found) {
  const ScriptedServer server(answer_as_hub);
  const Environment environment{{"HF_ENDPOINT", server_url(server)}, {"HF_TOKEN", kSecret}};
  const Finding folder = examined("hf://datasets/org/set");
  EXPECT_EQ(folder.verdict, Finding::Verdict::kGood) << folder.text;
  EXPECT_TRUE(says(folder, "a folder of 1 entries; a token was found"));
  const Finding absent = examined("hf://datasets/org/none");
  EXPECT_EQ(absent.verdict, Finding::Verdict::kProblem);
  EXPECT_TRUE(says(absent, "is not there: "));
  EXPECT_FALSE(shows(folder, kSecret) || shows(absent, kSecret));
}

TEST(DoctorHub, what_is_refused_or_is_no_hub_is_a_problem) {
  const ScriptedServer server(answer_as_hub);
  {
    const Environment environment{{"HF_ENDPOINT", server_url(server)}};
    EXPECT_TRUE(says(examined("hf://datasets/org/set"), "is refused: "));
  }
  const Environment environment{{"HF_ENDPOINT", "gopher://hub"}};
  EXPECT_TRUE(says(examined("hf://datasets/org/set"), "is no address of a store: "));
}

TEST(Doctor, a_stop_ends_the_wait_for_a_store) {
  for (const bool is_s3 : {true, false}) {
    std::stop_source stop;  // Outlives the server's threads.
    const ScriptedServer server([&](const Request&) {
      stop.request_stop();
      return Answer{"", Answer::Then::kHang};
    });
    const Environment environment{{"HF_ENDPOINT", server_url(server)}};
    const std::string uri = is_s3 ? s3_uri(server, "pictures/images", "&anonymous=true") : "hf://datasets/org/set";
    EXPECT_EQ(examine_stores({uri}, {}, stop.get_token()).status().code(), StatusCode::kCancelled) << uri;
  }
}

}  // namespace
}  // namespace darkroom
