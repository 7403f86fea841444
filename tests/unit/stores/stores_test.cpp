#include "darkroom/stores/stores.h"
#include "darkroom/files/local_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/stores/input_listing.h"
#include "hub_caller.h"
#include "stores/s3_settings.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

TEST(path_fits, stands_for_levels) {
  const auto fits = [](std::vector<std::string> pattern, std::vector<std::string> names) { return path_fits(pattern, names); };
  EXPECT_TRUE(fits({"**"}, {"a"}));
  EXPECT_TRUE(fits({"**"}, {"a", "b"}));
  EXPECT_TRUE(fits({"**", "*.csv"}, {"x.csv"}));
  EXPECT_TRUE(fits({"**", "*.csv"}, {"a", "b", "x.csv"}));
  EXPECT_TRUE(fits({"**", "b", "**", "c?"}, {"b", "c1"}));
  EXPECT_TRUE(fits({"**", "b", "**", "c?"}, {"a", "b", "x", "y", "c1"}));
  EXPECT_FALSE(fits({"**", "b", "**", "c?"}, {"a", "x", "c1"}));
  EXPECT_FALSE(fits({"*", "x"}, {"x"}));
  EXPECT_FALSE(fits({"*"}, {"a", "b"}));
  EXPECT_FALSE(fits({"a"}, {}));
}

class stores : public HubTest {
 protected:
  StoreSetOptions options() {
    return {
        .hub = [this] { return Result<HubOptions>(HubOptions{.endpoint = hub_.endpoint()}); }, .web = quick_options(), .make_s3 = nullptr};
  }
  static std::vector<std::string> uris(const Result<std::vector<InputObject>>& found) {
    EXPECT_TRUE(found.is_ok()) << found.status().to_string();
    std::vector<std::string> names;
    for (const InputObject& object : found.is_ok() ? *found : std::vector<InputObject>()) {
      names.push_back(fmt::format("{} {}", object.place.uri(), object.size_bytes));
    }
    return names;
  }

  double num_out() {
    return metrics_
        .gauge("darkroom_stores_out_of_reach", "Stores that had answered before and cannot be reached now.", {{"scheme", "http"}})
        .value();
  }

  FakeClock clock_;
};

TEST_F(stores, local_places) {
  StoreSet set(options(), clock_, metrics_);
  const Location plain = set.resolve("/data/a b", Access::kWrite).value();
  EXPECT_EQ(plain.store, &local_store());
  EXPECT_EQ(plain.path, "/data/a b");
  EXPECT_EQ(set.resolve("file:///data/a%20b", Access::kRead).value().path, "/data/a b");
  EXPECT_EQ(set.resolve("", Access::kRead).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(set.resolve("gopher://x/y", Access::kRead).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(set.resolve("s3://bucket/key", Access::kWrite).status().message(), local_path("s3://bucket/key").status().message());
}

TEST_F(stores, lists_local_inputs_in_byte_order) {
  const TemporaryFolder folder;
  for (const char* path : {"b.csv", "a.parquet", "a.txt", "_tmp/x.csv", ".hidden.csv", "sub/c.csv", "sub/_x.csv", "sub/deep/d.parquet",
                           "sub-2/c.csv", "sub/[x].csv"}) {
    ASSERT_TRUE(write_file_atomic(local_files(), join_path(folder.path(), path), path).is_ok());
  }
  StoreSet set(options(), clock_, metrics_);
  const std::map<std::string, std::vector<std::string>> wanted = {
      {"", {"a.parquet", "b.csv", "sub-2/c.csv", "sub/[x].csv", "sub/c.csv", "sub/deep/d.parquet"}},
      {"/a.txt", {"a.txt"}},
      {"/sub", {"sub/[x].csv", "sub/c.csv", "sub/deep/d.parquet"}},
      {"/*", {"a.parquet", "a.txt", "b.csv"}},
      {"/*.csv", {"b.csv"}},
      {"/*/c.csv", {"sub-2/c.csv", "sub/c.csv"}},
      {"/**", {"a.parquet", "a.txt", "b.csv", "sub-2/c.csv", "sub/[x].csv", "sub/c.csv", "sub/deep/d.parquet"}},
      {"/**/*.csv", {"b.csv", "sub-2/c.csv", "sub/[x].csv", "sub/c.csv"}},
      {"/sub/**", {"sub/[x].csv", "sub/c.csv", "sub/deep/d.parquet"}},
      {"/**/deep/*", {"sub/deep/d.parquet"}},
      {"/s*/c.???", {"sub-2/c.csv", "sub/c.csv"}},
      {"/sub/[x].csv", {"sub/[x].csv"}},
      {"/[ab].*", {"a.parquet", "a.txt", "b.csv"}},
      {"/**/**/d.*", {"sub/deep/d.parquet"}},
      {"/_tmp/*", {"_tmp/x.csv"}},
  };
  for (const auto& [pattern, names] : wanted) {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      found.push_back(fmt::format("{}/{} {}", folder.path(), name, name.size()));
    }
    EXPECT_EQ(uris(set.resolve_inputs(folder.path() + pattern)), found) << pattern;
  }
  for (const char* pattern : {"/nothing", "/nothing*", "/sub/nothing/*.csv"}) {
    EXPECT_EQ(set.resolve_inputs(folder.path() + pattern).status().code(), StatusCode::kNotFound) << pattern;
  }
}

// An image dataset is found the same way among a file system's files and in a store.
TEST_F(stores, lists_image_datasets_of_one_kind) {
  const TemporaryFolder folder;
  FileSystem& files = local_files();
  for (const char* path :
       {"tars/b.tar", "tars/a.tar", "tars/a.parquet", "tars/_x.tar", "tars/a_stats.json", "plain/x/a.jpg", "plain/b.png", "plain/b.txt",
        "named/metadata.jsonl", "named/a.png", "mds/x.mds", "mixed/a.tar", "mixed/b.parquet", "none/a.txt", "tables/a.csv"}) {
    ASSERT_TRUE(write_file_atomic(files, join_path(folder.path(), path), path).is_ok());
  }
  StoreSet set(options(), clock_, metrics_);
  for (const char* place : {"/tars", "/tars/", "/plain", "/plain/", "/named", "/named/metadata.jsonl", "/mds", "/mds/*", "/mixed",
                            "/mixed/*.tar", "/none", "/tables", "/plain/*.png", "/*/metadata.jsonl", "/tars/a.tar", "/missing", ""}) {
    const std::string uri = folder.path() + place;
    const Result<std::vector<FileInfo>> local = list_image_inputs(files, uri);
    const Result<std::vector<InputObject>> stored = set.resolve_image_inputs(uri);
    ASSERT_EQ(stored.is_ok(), local.is_ok()) << place << ": " << stored.status().to_string() << " / " << local.status().to_string();
    EXPECT_EQ(stored.status().code(), local.status().code()) << place;
    ASSERT_EQ(stored.is_ok() ? stored->size() : 0, local.is_ok() ? local->size() : 0) << place;
    for (size_t i = 0; stored.is_ok() && i < stored->size(); ++i) {
      EXPECT_EQ((*stored)[i].place.path, (*local)[i].path) << place;
    }
  }
  const std::string root = folder.path();
  const auto paths = [&](const std::string& place) {
    std::vector<std::string> found;
    const std::vector<FileInfo> inputs = list_image_inputs(files, root + place).value();
    for (const FileInfo& input : inputs) {
      found.push_back(input.path.substr(root.size()));
    }
    return found;
  };
  EXPECT_THAT(paths("/tars"), ElementsAre("/tars/a.tar", "/tars/b.tar"));
  EXPECT_THAT(paths("/plain/"), ElementsAre("/plain/"));
  EXPECT_THAT(paths("/named/metadata.jsonl"), ElementsAre("/named/"));
  EXPECT_EQ(set.resolve_image_inputs(root + "/mixed").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(set.resolve_image_inputs(root + "/none").status().code(), StatusCode::kNotFound);
}

TEST_F(stores, further_stores_by_their_scheme) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "/d/x.csv", "1").is_ok());
  ASSERT_TRUE(write_file_atomic(files, "/d/e/y.csv", "22").is_ok());
  const auto memory = make_posix_store(files, "memory");
  StoreSetOptions with_memory = options();
  with_memory.others = {memory.get()};
  StoreSet set(with_memory, clock_, metrics_);
  EXPECT_EQ(set.resolve("memory:///d", Access::kWrite).value().store, memory.get());
  EXPECT_THAT(uris(set.resolve_inputs("memory:///d")), ElementsAre("memory:///d/e/y.csv 2", "memory:///d/x.csv 1"));
  EXPECT_THAT(uris(set.resolve_inputs("memory:///d/**/*.csv")), ElementsAre("memory:///d/e/y.csv 2", "memory:///d/x.csv 1"));
}

TEST_F(stores, a_hub_address_is_pinned_to_a_commit) {
  const std::string commit = hub_.add("datasets/org/data", "main",
                                      {{"README.md", {"x"}},
                                       {"data/b.parquet", {"22", true}},
                                       {"data/a.parquet", {"1"}},
                                       {"data/_x.parquet", {"1"}},
                                       {"more/c.csv", {"333"}}});
  StoreSet set(options(), clock_, metrics_);
  const std::string root = "hf://datasets/org/data@" + commit;
  EXPECT_EQ(set.resolve("hf://datasets/org/data/data/a.parquet", Access::kRead).value().uri(), root + "/data/a.parquet");
  EXPECT_THAT(uris(set.resolve_inputs("hf://datasets/org/data")),
              ElementsAre(root + "/data/a.parquet 1", root + "/data/b.parquet 2", root + "/more/c.csv 3"));
  EXPECT_THAT(uris(set.resolve_inputs("hf://datasets/org/data@main/data/*.parquet")),
              ElementsAre(root + "/data/a.parquet 1", root + "/data/b.parquet 2"));
  EXPECT_THAT(uris(set.resolve_inputs("hf://datasets/org/data/**/?.csv")), ElementsAre(root + "/more/c.csv 3"));
  EXPECT_THAT(uris(set.resolve_inputs("hf://datasets/org/data/README.md")), ElementsAre(root + "/README.md 1"));
  EXPECT_EQ(set.resolve_inputs("hf://datasets/org/data/nothing/*").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(set.resolve_inputs("hf://datasets/org/none").status().code(), StatusCode::kNotFound);
}

TEST_F(stores, config_and_split_are_files_of_the_conversion) {
  const std::string commit = hub_.add("datasets/org/data", "refs/convert/parquet", {{"default/train/0000.parquet", {"abc"}}});
  hub_.set_parquet("datasets/org/data", R"({"default":{"train":["u0"]}})");
  StoreSet set(options(), clock_, metrics_);
  const auto found = set.resolve_inputs("hf://datasets/org/data?config=default&split=train");
  EXPECT_THAT(uris(found), ElementsAre("hf://datasets/org/data@" + commit + "/default/train/0000.parquet 3"));
  EXPECT_EQ(found->at(0).place.store->read_small(found->at(0).place.path).value(), "abc");
  EXPECT_EQ(set.resolve("hf://datasets/org/data?split=train", Access::kRead).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(stores, a_web_file_is_one_input) {
  const ScriptedServer server([](const Request& request) { return Answer{ranged_answer(request, "rows", "")}; });
  StoreSet set(options(), clock_, metrics_);
  const std::string url = server_url(server, "/a.csv");
  EXPECT_THAT(uris(set.resolve_inputs(url + "?sig=s3cret")), ElementsAre(url + " 4"));
  EXPECT_EQ(set.resolve(server_url(server, "/*.csv"), Access::kRead).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(stores, web_and_hub_are_not_written) {
  StoreSet set(options(), clock_, metrics_);
  for (const char* uri : {"https://host/a?sig=s3cret", "http://host/a", "hf://org/model"}) {
    const Status refused = set.resolve(uri, Access::kWrite).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), Not(HasSubstr("s3cret")));
  }
}

TEST_F(stores, s3_stores_are_made_once_for_each_setting) {
  MemoryFileSystem files;
  std::vector<std::string> made;
  StoreSetOptions with_s3 = options();
  with_s3.make_s3 = [&](std::string_view settings, const StoreTools&) -> Result<std::unique_ptr<Store>> {
    made.emplace_back(settings);
    return make_posix_store(files, "s3");
  };
  StoreSet set(with_s3, clock_, metrics_);
  const Location one = set.resolve("s3://bucket/what?/a", Access::kWrite).value();
  EXPECT_EQ(one.path, "bucket/what?/a");
  EXPECT_EQ(set.resolve("s3://bucket/b", Access::kRead).value().store, one.store);
  const Location two = set.resolve("s3://bucket/b?region=x&anonymous=true", Access::kRead).value();
  EXPECT_EQ(set.resolve("s3://bucket/b?timeout=20s", Access::kRead).value().path, "bucket/b");
  EXPECT_EQ(set.resolve("s3://bucket/b?tries=4", Access::kRead).value().path, "bucket/b");
  EXPECT_EQ(two.path, "bucket/b");
  EXPECT_NE(two.store, one.store);
  EXPECT_THAT(made, ElementsAre("", "region=x&anonymous=true", "timeout=20s", "tries=4"));
}

TEST_F(stores, a_secret_in_an_s3_address_is_in_no_message) {
  MemoryFileSystem files;
  StoreSetOptions with_s3 = options();
  with_s3.make_s3 = [&](std::string_view, const StoreTools&) -> Result<std::unique_ptr<Store>> { return make_posix_store(files, "s3"); };
  StoreSet set(with_s3, clock_, metrics_);
  for (const char* uri :
       {"s3://AKID:s3cret@bucket/key", "s3://AKID:s3cret@bucket", "S3://AKID:s3cret@bucket/key", "s3://AKID:s3cret@bucket/key?region=x",
        "s3://AKID:s3cret/more@bucket/key", "s3://bucket/key?X-Amz-Signature=s3cret",
        "s3://bucket/key?region=x&x-amz-security-token=s3cret", "s3://bucket/key?AWSAccessKeyId=A&Signature=s3cret",
        "hf://u:s3cret@datasets/o/n", "hf://datasets/o/n?config=c&token=s3cret", "file://u:s3cret@host/x", "HTTPS://user:s3cret@host/x",
        "gopher://user:s3cret@host/x"}) {
    for (const Status& status : {set.resolve(uri, Access::kRead).status(), set.resolve(uri, Access::kWrite).status(),
                                 set.resolve_inputs(uri).status(), local_path(uri).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << uri;
      EXPECT_THAT(status.message(), Not(HasSubstr("s3cret"))) << uri;
    }
  }
  for (const char* uri : {"s3://", "s3:///key", "s3://ab/key", "s3://buck et/key", "s3://bucket/x/..", "s3://bucket/x/../",
                          "s3://bucket/./x", "s3://bucket/../x?region=eu", "s3://bucket/."}) {
    EXPECT_EQ(set.resolve(uri, Access::kRead).status().code(), StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_EQ(set.resolve("s3://bucket/out//", Access::kRead).value().path, "bucket/out");
  EXPECT_EQ(set.resolve("s3://bucket/", Access::kRead).value().path, "bucket");
  EXPECT_EQ(set.resolve("s3://bucket/.a/..b//c.", Access::kRead).value().path, "bucket/.a/..b//c.");
}

TEST_F(stores, a_stop_ends_a_call_to_the_hub) {
  std::stop_source stop;
  const ScriptedServer silent([&](const Request&) {
    stop.request_stop();
    return Answer{"", Answer::Then::kHang};
  });
  StoreSetOptions to_silent = options();
  to_silent.hub = [&] { return Result<HubOptions>(HubOptions{.endpoint = server_url(silent)}); };
  StoreSet set(to_silent, clock_, metrics_, stop.get_token());
  EXPECT_EQ(set.resolve("hf://org/model/a.csv", Access::kRead).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(silent.requests().size(), 1u);
}

TEST_F(stores, of_a_set_that_is_given_up_nobody_waits_for_a_server_out_of_reach) {
  std::atomic<bool> is_down = false;
  const ScriptedServer server([&](const Request&) { return is_down ? Answer{"", Answer::Then::kReset} : Answer{http_answer(200, "x")}; });
  StoreSetOptions patient = options();
  patient.outage_patience = std::chrono::hours(12);
  StoreSet set(patient, clock_, metrics_);
  const Location place = set.resolve(server_url(server, "/a.csv"), Access::kRead).value();
  ASSERT_TRUE(place.store->read_small(place.path, 10).is_ok());
  is_down = true;
  std::jthread reader([&] { EXPECT_EQ(place.store->read_small(place.path, 10).status().code(), StatusCode::kCancelled); });
  while (num_out() == 0) {
    ASSERT_TRUE(clock_.await_waiting(1));
    clock_.advance(std::chrono::seconds(20));
  }
  set.give_up();
  reader.join();
  is_down = false;
  EXPECT_EQ(place.store->read_small(place.path, 10).status().code(), StatusCode::kCancelled) << "for good";
}

TEST(s3_settings, are_those_of_the_address_and_then_of_the_environment) {
  std::map<std::string, std::string> variables;
  const auto environment = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  S3Options options = read_s3_settings("", environment).value();
  EXPECT_EQ(options.endpoint, "");
  EXPECT_EQ(options.scheme, "https");
  variables = {{"AWS_ENDPOINT_URL", "http://one:1/"}, {"AWS_DEFAULT_REGION", "there"}};
  options = read_s3_settings("", environment).value();
  EXPECT_EQ(options.endpoint, "one:1");
  EXPECT_EQ(options.scheme, "http");
  EXPECT_EQ(options.region, "there");
  options = read_s3_settings("region=x&endpoint_override=other", environment).value();
  EXPECT_EQ(options.endpoint, "other");
  EXPECT_EQ(options.scheme, "https");  // That of the environment is the other endpoint's.
  variables["AWS_ENDPOINT_URL_S3"] = "https://two";
  variables["AWS_REGION"] = "here";
  EXPECT_EQ(read_s3_settings("", environment)->endpoint, "two");
  options = read_s3_settings("endpoint_override=three%3A3&scheme=http&region=x&profile=p&anonymous=true", environment).value();
  EXPECT_EQ(options.endpoint, "three:3");
  EXPECT_EQ(options.scheme, "http");
  EXPECT_EQ(options.region, "x");
  EXPECT_EQ(options.profile, "p");
  EXPECT_TRUE(options.anonymous);
}

TEST(s3_settings, tell_how_long_and_how_often_a_store_is_asked) {
  const auto from = [](std::optional<std::string> attempts) {
    return [attempts](const std::string& name) { return name == "AWS_MAX_ATTEMPTS" ? attempts : std::nullopt; };
  };
  const S3Options standard = read_s3_settings("", from(std::nullopt)).value();
  EXPECT_EQ(standard.timeout, std::chrono::seconds(30));
  EXPECT_EQ(standard.max_tries, 8);
  const S3Options named = read_s3_settings("timeout=20s&tries=4", from("9")).value();
  EXPECT_EQ(named.timeout, std::chrono::seconds(20));
  EXPECT_EQ(named.max_tries, 4);
  EXPECT_EQ(read_s3_settings("timeout=500ms", from("9"))->max_tries, 9);
  EXPECT_EQ(read_s3_settings("timeout=500ms", from("9"))->timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(read_s3_settings("timeout=3600s&tries=100", from(""))->max_tries, 100);

  for (const char* settings : {"timeout=20", "timeout=", "timeout=s", "timeout=ms", "timeout=-1s", "timeout=1.5s", "timeout=2 s",
                               "timeout=0s", "timeout=3601s", "timeout=99999999999s", "timeout=20m", "tries=", "tries=0", "tries=101",
                               "tries=-1", "tries=4x", "tries=2.0", "tries=99999999999"}) {
    const Status refused = read_s3_settings(settings, from(std::nullopt)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << settings;
  }
  EXPECT_THAT(read_s3_settings("timeout=20", from(std::nullopt)).status().message(), HasSubstr("timeout=20"));
  for (const char* attempts : {"0", "-1", "many", "101", "4 "}) {
    const Status refused = read_s3_settings("", from(attempts)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << attempts;
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("AWS_MAX_ATTEMPTS"), HasSubstr(attempts)));
  }
}

TEST(s3_settings, tell_whether_buckets_have_hosts_of_their_own) {
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  EXPECT_TRUE(read_s3_settings("endpoint_override=host", nothing)->path_style);
  EXPECT_FALSE(read_s3_settings("force_virtual_addressing=true&endpoint_override=host", nothing)->path_style);
  EXPECT_TRUE(read_s3_settings("endpoint_override=host&force_virtual_addressing=false", nothing)->path_style);
}

TEST(s3_settings, refuse_what_is_none) {
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  for (const char* settings : {"region", "region=", "region=%2", "scheme=ftp", "anonymous=1", "anonymous=maybe",
                               "force_virtual_addressing=1", "profile=", "other=1", "endpoint_override=", "endpoint_override=host/path",
                               "endpoint_override=user@host", "region=x&&scheme=http"}) {
    EXPECT_EQ(read_s3_settings(settings, nothing).status().code(), StatusCode::kInvalidArgument) << settings;
  }
  const auto bad = [](const std::string& name) {
    return name == "AWS_ENDPOINT_URL" ? std::optional<std::string>("http://") : std::nullopt;
  };
  EXPECT_THAT(read_s3_settings("", bad).status().message(), HasSubstr("AWS_ENDPOINT_URL"));
}

TEST(s3_settings, of_one_that_is_none_the_value_is_not_shown) {
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  for (const char* settings : {"token=s3cret", "region=x&token=s3cret", "region=%2&s3cret", "region=x&s3cret", "profile=%2s3cret",
                               "endpoint_override=u:s3cret@host", "endpoint_override=http://u:s3cret@host/"}) {
    const Status failure = read_s3_settings(settings, nothing).status();
    EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument) << settings;
    EXPECT_THAT(failure.message(), Not(HasSubstr("s3cret"))) << settings;
  }
}

}  // namespace
}  // namespace darkroom
