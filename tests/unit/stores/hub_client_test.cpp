#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hub_caller.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

class hub_client : public HubTest {
 protected:
  static std::vector<std::string> paths(const Result<std::vector<HubFile>>& files) {
    EXPECT_TRUE(files.is_ok()) << files.status().to_string();
    std::vector<std::string> names;
    for (const HubFile& file : files.is_ok() ? *files : std::vector<HubFile>()) {
      names.push_back(file.path + (file.is_folder ? "/" : ""));
    }
    return names;
  }
};

TEST_F(hub_client, pins_a_branch_once) {
  HubClient hub = client();
  EXPECT_EQ(hub.commit_of(model_, "main", {}).value(), model_commit_);
  hub_.add("models/org/model", "main", {});
  EXPECT_EQ(hub.commit_of(model_, "main", {}).value(), model_commit_);
  EXPECT_EQ(hub.commit_of(model_, model_commit_, {}).value(), model_commit_);
  EXPECT_EQ(hub_.hub_requests().size(), 1u);
}

TEST_F(hub_client, a_revision_with_slashes_is_escaped) {
  const std::string commit = hub_.add("datasets/org/data", "refs/convert/parquet", {});
  HubClient hub = client();
  EXPECT_EQ(hub.commit_of(dataset_, "refs/convert/parquet", {}).value(), commit);
  EXPECT_EQ(request_target_of(hub_.hub_requests().at(0)), "/api/datasets/org/data/revision/refs%2Fconvert%2Fparquet");
}

TEST_F(hub_client, lists_over_pages_in_byte_order) {
  hub_.add("models/org/model", "v", {{"b", {"1"}}, {"a/x", {"22"}}, {"a/y/z z#?", {"333"}}, {"a-b", {"4"}}, {"c", {"5"}}});
  hub_.set_page_size(2);
  HubClient hub = client();
  EXPECT_THAT(paths(hub.list(model_, "v", "", true, {})), ElementsAre("a/", "a-b", "a/x", "a/y/", "a/y/z z#?", "b", "c"));
  EXPECT_EQ(hub_.hub_requests().size(), 4u);
  EXPECT_THAT(paths(hub.list(model_, "v", "a", false, {})), ElementsAre("a/x", "a/y/"));
  EXPECT_THAT(paths(hub.list(model_, "v", "a/y", true, {})), ElementsAre("a/y/z z#?"));
  EXPECT_EQ(hub.list(model_, "v", "nothing", true, {}).status().code(), StatusCode::kNotFound);
}

TEST_F(hub_client, refuses_pages_that_lead_in_a_circle_or_elsewhere) {
  const ScriptedServer canary([](const Request&) { return Answer{http_answer(200, "[]")}; });
  for (const std::string& link : {std::string("/api/models/org/model/tree/main?recursive=true"), server_url(canary, "/x")}) {
    hub_.set_hub_fault([link](const Request&) { return Answer{http_answer(200, "[]", "Link: <" + link + ">; rel=\"next\"\r\n")}; });
    HubClient hub = client("s3cret");
    const Status status = hub.list(model_, "main", "", true, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << link;
  }
  EXPECT_TRUE(canary.requests().empty());
}

TEST_F(hub_client, a_stop_ends_a_listing) {
  std::stop_source stop;
  stop.request_stop();
  HubClient hub = client();
  EXPECT_EQ(hub.list(model_, "main", "", true, stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST_F(hub_client, tells_where_bytes_lie_and_follows_no_further) {
  HubClient hub = client();
  const HubPlace large = hub.resolve(model_, "main", "unet/a.safetensors", {}).value();
  EXPECT_EQ(large.commit, model_commit_);
  EXPECT_EQ(large.size_bytes, 5000);
  EXPECT_EQ(large.etag, sha256_hex(large_));
  EXPECT_THAT(large.url, HasSubstr("?ticket="));
  EXPECT_TRUE(hub_.bytes_requests().empty());
  const HubPlace small = hub.resolve(model_, "main", "README.md", {}).value();
  EXPECT_EQ(small.size_bytes, 7);
  EXPECT_EQ(small.etag, FakeHub::git_sha1("read me"));
  EXPECT_EQ(small.url, hub_.endpoint() + "/org/model/resolve/main/README.md");
}

TEST_F(hub_client, follows_a_redirect_on_its_own_host_and_keeps_what_it_said) {
  hub_.set_hub_fault([](const Request& request) {
    return Answer{request_target_of(request).starts_with("/cache/")
                      ? "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 7\r\n\r\n"
                      : http_answer(307, "", "Location: /cache/1\r\nX-Linked-Etag: \"real\"\r\n")};
  });
  HubClient hub = client("s3cret");
  const HubPlace place = hub.resolve(model_, "main", "README.md", {}).value();
  EXPECT_EQ(place.etag, "real");
  EXPECT_EQ(place.size_bytes, 7);
  EXPECT_EQ(place.url, hub_.endpoint() + "/cache/1");
}

TEST_F(hub_client, a_file_without_size_or_hash_is_corrupt) {
  for (const char* headers :
       {"Location: http://127.0.0.1:1/x\r\nX-Linked-Etag: \"a\"\r\n", "Location: http://127.0.0.1:1/x\r\nX-Linked-Size: 5\r\n",
        "Location: http://127.0.0.1:1/x\r\nX-Linked-Size: five\r\nX-Linked-Etag: \"a\"\r\n",
        "Location: http://127.0.0.1:1/x\r\nX-Linked-Size: 5\r\nX-Linked-Etag: \"a\"\r\nX-Repo-Commit: main\r\n"}) {
    hub_.set_hub_fault([headers](const Request&) { return Answer{http_answer(302, "", headers)}; });
    HubClient hub = client();
    EXPECT_EQ(hub.resolve(model_, "main", "README.md", {}).status().code(), StatusCode::kCorruptData) << headers;
  }
}

TEST_F(hub_client, says_what_to_do_where_access_is_missing) {
  hub_.set_token("right", /*is_gated=*/true);
  Status status = client().commit_of(model_, "main", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("set HF_TOKEN"), HasSubstr("hf://org/model@main"), HasSubstr("/org/model,")));
  status = client("wr0ng").commit_of(model_, "main", {}).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("token of that account"), Not(HasSubstr("wr0ng"))));
  EXPECT_TRUE(client("right").commit_of(model_, "main", {}).is_ok());
  hub_.set_token("right", /*is_gated=*/false);
  EXPECT_THAT(client().commit_of(model_, "main", {}).status().message(), HasSubstr("set HF_TOKEN"));
  EXPECT_THAT(client("wr0ng").commit_of(model_, "main", {}).status().message(), HasSubstr("check HF_TOKEN"));
}

TEST_F(hub_client, tells_what_is_not_there) {
  HubClient hub = client();
  EXPECT_THAT(hub.commit_of(model_, "v9", {}).status().message(), HasSubstr("no such branch"));
  EXPECT_THAT(hub.commit_of({HubRepoKind::kModel, "org/other"}, "main", {}).status().message(), HasSubstr("no such repository"));
  const Status file = hub.resolve(model_, "main", "nothing.json", {}).status();
  EXPECT_EQ(file.code(), StatusCode::kNotFound);
  EXPECT_TRUE(file.message().ends_with("hf://org/model@main/nothing.json")) << file.message();
  hub_.set_hub_fault([](const Request&) { return Answer{http_answer(503, "")}; });
  EXPECT_EQ(hub.resolve(model_, "main", "README.md", {}).status().code(), StatusCode::kUnavailable);
}

TEST_F(hub_client, asks_nothing_offline) {
  HubClient hub(web_, {.endpoint = hub_.endpoint(), .is_offline = true});
  const Status status = hub.commit_of(model_, "main", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("HF_HUB_OFFLINE"));
  EXPECT_TRUE(hub_.hub_requests().empty());
}

TEST_F(hub_client, a_stop_ends_every_request) {
  std::stop_source stop;
  const ScriptedServer silent([&](const Request&) {
    stop.request_stop();
    return Answer{"", Answer::Then::kHang};
  });
  HubClient hub(web_, {.endpoint = server_url(silent)});
  const auto begin = [&] { return stop = std::stop_source(), stop.get_token(); };
  EXPECT_EQ(hub.commit_of(model_, "main", begin()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(hub.resolve(model_, "main", "README.md", begin()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(hub.list(model_, "main", "", true, begin()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(hub.parquet_files(dataset_, "", "", begin()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(make_hub_store(hub, system_clock(), begin())->stat("org/model@main/README.md").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(make_hub_store(hub, system_clock(), begin())->stat("org/model").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(silent.requests().size(), 6u);
}

class hub_parquet : public hub_client {
 protected:
  hub_parquet() {
    commit_ = hub_.add("datasets/org/data", "refs/convert/parquet",
                       {{"default/train/0000.parquet", {"a"}},
                        {"default/train/0001.parquet", {"b"}},
                        {"default/test/0000.parquet", {"c"}},
                        {"en/partial-train/0000.parquet", {"d"}}});
    hub_.set_parquet("datasets/org/data", R"({"default":{"train":["u0","u1"],"test":["u2"]},"en":{"train":["u3"]}})");
  }
  std::string commit_;
};

TEST_F(hub_parquet, config_and_split_name_files) {
  HubClient hub = client();
  EXPECT_THAT(paths(hub.parquet_files(dataset_, "default", "train", {})),
              ElementsAre("default/train/0000.parquet", "default/train/0001.parquet"));
  EXPECT_THAT(paths(hub.parquet_files(dataset_, "", "test", {})), ElementsAre("default/test/0000.parquet"));
  EXPECT_THAT(paths(hub.parquet_files(dataset_, "en", "", {})), ElementsAre("en/partial-train/0000.parquet"));
}

TEST_F(hub_parquet, names_those_that_exist) {
  HubClient hub = client();
  Status status = hub.parquet_files(dataset_, "de", "train", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("default, en"), HasSubstr("de")));
  EXPECT_THAT(hub.parquet_files(dataset_, "default", "validation", {}).status().message(), HasSubstr("test, train"));
  EXPECT_THAT(hub.parquet_files(dataset_, "default", "", {}).status().message(), HasSubstr("give ?split="));
}

TEST_F(hub_parquet, a_conversion_under_way_is_told) {
  hub_.set_parquet("datasets/org/data", R"({"default":{"train":["u0","u1","u2"]}})");
  EXPECT_EQ(client().parquet_files(dataset_, "default", "train", {}).status().code(), StatusCode::kUnavailable);
}

TEST_F(hub_parquet, takes_names_of_a_hub_that_mean_harm) {
  hub_.set_parquet("datasets/org/data", R"({"x?config=y":{"train":["u0"]}})");
  EXPECT_EQ(client().parquet_files(dataset_, "", "", {}).status().code(), StatusCode::kNotFound);  // Such a folder is not there.
  for (const char* configs : {R"({"../x":{"train":["u0"]}})", R"({"":{"train":["u0"]}})", R"({"default":{"..":["u0"]}})",
                              R"({"a\nb":{"train":["u0"]}})", R"({"default":{"":["u0"]}})"}) {
    hub_.set_parquet("datasets/org/data", configs);
    EXPECT_EQ(client().parquet_files(dataset_, "", "", {}).status().code(), StatusCode::kCorruptData) << configs;
  }
}

TEST_F(hub_client, the_token_goes_to_the_endpoint_alone) {
  hub_.set_token("s3cret", false);
  HubClient hub = client("s3cret");
  const auto store = make_hub_store(hub, system_clock());
  EXPECT_EQ(store->read_small("org/model@main/unet/a.safetensors").value(), large_);
  EXPECT_EQ(store->read_small("org/model@main/README.md").value(), "read me");
  ASSERT_FALSE(hub_.bytes_requests().empty());
  for (const Request& request : hub_.bytes_requests()) {
    EXPECT_THAT(request.head, Not(HasSubstr("s3cret")));
  }
  for (const Request& request : hub_.hub_requests()) {
    EXPECT_EQ(request_header(request, "Authorization"), "Bearer s3cret");
  }
}

}  // namespace
}  // namespace darkroom
