#include "stores/s3_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "s3_server.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Conditions = FakeS3::Conditions;
using S3Fault = FakeS3::Fault;

/// The fault at the first call of an operation, and none afterwards.
void fail_once(FakeS3& fake, const std::string& operation, S3Fault fault, int num_times = 1) {
  fake.fault = [operation, fault, left = std::make_shared<std::atomic<int>>(num_times)](const FakeS3::Call& call) {
    return call.operation == operation && (*left)-- > 0 ? fault : S3Fault::kNone;
  };
}

TEST(s3_client, stores_finds_and_reads_keys_of_any_characters) {
  S3Server server;
  const auto client = server.make_client();
  for (const std::string& key : {std::string("a b"), std::string("=+%/..//.?#&;"), std::string("\xc3\xa4~"), std::string("%25+"),
                                 std::string("k\x01"), std::string("*'()!")}) {
    ASSERT_EQ(put_text(*client, key, "bytes of " + key, "w1").value(), S3Outcome::kStored) << key;
    EXPECT_EQ(server.fake.bytes_of(key), "bytes of " + key);
    const S3Head head = client->head(in_bucket(key)).value();
    EXPECT_EQ(head.size_bytes, static_cast<int64_t>(key.size() + 9));
    EXPECT_EQ(head.writer, "w1");
    const S3GetReply got = client->get(in_bucket(key), 1000).value();
    EXPECT_EQ(got.bytes, "bytes of " + key);
    EXPECT_EQ(got.etag, head.etag);
  }
}

TEST(s3_client, asks_at_the_buckets_own_host) {
  S3Server server;
  S3Options options = server.options();
  options.endpoint = fmt::format("localhost:{}", server.fake.port());
  options.path_style = false;
  const auto client = server.make_client(options);
  ASSERT_EQ(put_text(*client, "a b/=+%", "bytes", "w1").value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.bytes_of("a b/=+%"), "bytes");
  EXPECT_EQ(client->list_some(in_bucket("a"), 5).value().objects.size(), 1u);
  EXPECT_THAT(server.fake.requests().back().head, HasSubstr("ost: pictures.localhost:"));
}

TEST(s3_client, names_the_place_of_an_answer_that_it_does_not_understand) {
  const ScriptedServer garbage(
      [](const ScriptedServer::Request&) { return ScriptedServer::Answer{"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<a><b/>x"}; });
  S3Server server;
  S3Options options = server.options();
  options.endpoint = fmt::format("127.0.0.1:{}", garbage.port());
  const auto client = server.make_client(options);
  for (const Status& failure : {client->list_some(in_bucket("k"), 1).status(), client->create_upload(in_bucket("k"), "w").status(),
                                client->list_uploads(in_bucket("k"), [](const S3UploadPage&) { return Status::ok(); })}) {
    EXPECT_EQ(failure.code(), StatusCode::kCorruptData);
    EXPECT_THAT(failure.message(), HasSubstr("s3://pictures/k"));
  }
  EXPECT_EQ(client->complete(in_bucket("k"), "id", std::vector<S3Part>{{1, "e"}}, "w", S3Condition::kAbsent).status().code(),
            StatusCode::kUnavailable);  // Neither done nor failed.
}

TEST(s3_client, asks_for_a_byte_where_a_head_does_not_say_the_size) {
  S3Server server;
  server.fake.tells_size_to_head = false;
  const auto client = server.make_client();
  ASSERT_TRUE(put_text(*client, "k", "0123456789", "w").is_ok());
  ASSERT_TRUE(put_text(*client, "empty", "", "w").is_ok());
  const S3Head head = client->head(in_bucket("k")).value();
  EXPECT_EQ(head.size_bytes, 10);
  EXPECT_EQ(head.writer, "w");
  EXPECT_EQ(client->head(in_bucket("empty")).value().size_bytes, 0);
  EXPECT_EQ(client->head(in_bucket("none")).status().code(), StatusCode::kNotFound);
}

TEST(s3_client, reads_ranges_and_ends) {
  S3Server server;
  const auto client = server.make_client();
  ASSERT_TRUE(put_text(*client, "k", "0123456789", "w").is_ok());
  ASSERT_TRUE(put_text(*client, "empty", "", "w").is_ok());
  const S3GetReply middle = client->get_range(in_bucket("k"), {.offset = 3, .num_bytes = 4}, {}).value();
  EXPECT_EQ(middle.bytes, "3456");
  EXPECT_EQ(middle.offset, 3);
  EXPECT_EQ(middle.size_bytes, 10);
  EXPECT_EQ(client->get_range(in_bucket("k"), {.offset = 8, .num_bytes = 9}, {}).value().bytes, "89");
  EXPECT_EQ(client->get_range(in_bucket("k"), {.offset = 10, .num_bytes = 1}, {}).value().bytes, "");
  const S3GetReply end = client->get_suffix(in_bucket("k"), 3).value();
  EXPECT_EQ(end.bytes, "789");
  EXPECT_EQ(end.offset, 7);
  EXPECT_EQ(client->get_suffix(in_bucket("k"), 100).value().bytes, "0123456789");
  EXPECT_EQ(client->get_suffix(in_bucket("empty"), 100).value().bytes, "");
  EXPECT_EQ(client->get_range(in_bucket("k"), {.offset = 0, .num_bytes = 1}, "\"other\"").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(client->get(in_bucket("k"), 9).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(client->get(in_bucket("none"), 9).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client->head(in_bucket("none")).status().code(), StatusCode::kNotFound);
}

TEST(s3_client, stores_only_where_nothing_is_when_asked_to) {
  S3Server server;
  const auto client = server.make_client();
  EXPECT_EQ(put_text(*client, "k", "one", "w1").value(), S3Outcome::kStored);
  EXPECT_EQ(put_text(*client, "k", "two", "w2").value(), S3Outcome::kTaken);
  EXPECT_EQ(server.fake.bytes_of("k"), "one");
  EXPECT_EQ(put_text(*client, "k", "three", "w3", S3Condition::kNone).value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.bytes_of("k"), "three");
}

TEST(s3_client, says_that_a_condition_is_not_known) {
  S3Server server(Conditions::kNone);
  server.fake.state.refuses_conditions = true;
  const auto client = server.make_client();
  EXPECT_EQ(put_text(*client, "k", "one", "w1").value(), S3Outcome::kUnsupported);
  const OneUpload upload = upload_text(*client, "k", "one", "w1");
  EXPECT_EQ(client->complete(in_bucket("k"), upload.id, upload.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kUnsupported);
}

TEST(s3_client, completes_an_upload_of_parts) {
  S3Server server;
  const auto client = server.make_client();
  const std::string id = client->create_upload(in_bucket("k"), "w").value();
  std::vector<S3Part> parts;
  for (int number = 1; number <= 3; ++number) {
    const std::string text = std::string(100, static_cast<char>('a' + number));
    const auto piece = bytes_of(text);
    parts.push_back({number, client->upload_part(in_bucket("k"), id, number, std::span(&piece, 1)).value()});
  }
  EXPECT_EQ(server.fake.bytes_of("k"), std::nullopt);
  EXPECT_EQ(client->complete(in_bucket("k"), id, parts, "w", S3Condition::kAbsent).value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.bytes_of("k").value(), std::string(100, 'b') + std::string(100, 'c') + std::string(100, 'd'));
  EXPECT_EQ(client->head(in_bucket("k")).value().writer, "w");
}

TEST(s3_client, settles_a_lost_reply_of_a_put_by_the_mark_of_its_writer) {
  S3Server server;
  const auto client = server.make_client();
  for (const S3Fault fault : {S3Fault::kLostReply, S3Fault::kInternalDone}) {
    const std::string key = fmt::format("k{}", static_cast<int>(fault));
    fail_once(server.fake, "put", fault);
    EXPECT_EQ(put_text(*client, key, "one", "w1").value(), S3Outcome::kStored) << key;
    fail_once(server.fake, "put", fault);
    EXPECT_EQ(put_text(*client, key, "two", "w2").value(), S3Outcome::kTaken) << key;
    EXPECT_EQ(server.fake.bytes_of(key), "one");
    EXPECT_EQ(server.fake.state.past[key].size(), 1u);
  }
}

TEST(s3_client, settles_a_lost_reply_of_a_completion) {
  for (const Conditions conditions : {Conditions::kEverywhere, Conditions::kPutOnly, Conditions::kNone}) {
    for (const bool completes_twice : {false, true}) {
      S3Server server(conditions);
      server.fake.state.completes_twice = completes_twice;
      const auto client = server.make_client();
      fail_once(server.fake, "complete", S3Fault::kLostReply);
      const OneUpload ours = upload_text(*client, "ours", "one", "w1");
      EXPECT_EQ(client->complete(in_bucket("ours"), ours.id, ours.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kStored);

      const OneUpload none = upload_text(*client, "none", "one", "w1");
      ASSERT_TRUE(client->abort(in_bucket("none"), none.id).is_ok());
      EXPECT_EQ(client->complete(in_bucket("none"), none.id, none.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kGone);
      ASSERT_TRUE(put_text(*client, "none", "two", "w2").is_ok());
      EXPECT_EQ(client->complete(in_bucket("none"), none.id, none.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kTaken);
    }
  }
}

TEST(s3_client, finds_anothers_object_after_a_lost_completion) {
  S3Server server;
  const auto client = server.make_client();
  const OneUpload upload = upload_text(*client, "k", "one", "w1");
  ASSERT_TRUE(put_text(*client, "k", "two", "w2").is_ok());
  fail_once(server.fake, "complete", S3Fault::kLostReply);
  EXPECT_EQ(client->complete(in_bucket("k"), upload.id, upload.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kTaken);
  EXPECT_EQ(server.fake.bytes_of("k"), "two");
}

TEST(s3_client, takes_an_error_in_a_good_status_for_a_failure) {
  S3Server server;
  const auto client = server.make_client();
  const OneUpload upload = upload_text(*client, "k", "one", "w1");
  fail_once(server.fake, "complete", S3Fault::kErrorIn200, 2);
  EXPECT_EQ(client->complete(in_bucket("k"), upload.id, upload.parts, "w1", S3Condition::kAbsent).value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.num_calls("complete"), 3);
  fail_once(server.fake, "copy", S3Fault::kErrorIn200);
  EXPECT_TRUE(client->copy(in_bucket("k"), {}, in_bucket("copy")).is_ok());
  EXPECT_EQ(server.fake.bytes_of("copy"), "one");
}

TEST(s3_client, tries_again_what_may_pass_and_gives_up_after_its_tries) {
  S3Server server;
  const auto client = server.make_client();
  ASSERT_TRUE(put_text(*client, "k", "bytes", "w").is_ok());
  for (const S3Fault fault : {S3Fault::kSlowDown, S3Fault::kInternal, S3Fault::kReset, S3Fault::kLostReply}) {
    const int before = server.fake.num_calls("get");
    fail_once(server.fake, "get", fault, 7);
    EXPECT_EQ(client->get(in_bucket("k"), 100).value().bytes, "bytes");
    EXPECT_EQ(server.fake.num_calls("get") - before, 8);
    fail_once(server.fake, "get", fault, 100);  // libcurl asks again unseen after a reset.
    const Status failure = client->get(in_bucket("k"), 100).status();
    EXPECT_EQ(failure.code(), StatusCode::kUnavailable) << failure.to_string();
    EXPECT_THAT(failure.message(), AllOf(HasSubstr("gave up after 8 tries"), HasSubstr("s3://pictures/k")));
  }
}

TEST(s3_client, waits_longer_each_time_and_slows_the_bucket_down) {
  S3Server server;
  const auto client = server.make_client();
  ASSERT_TRUE(put_text(*client, "k", "bytes", "w").is_ok());
  const auto began = server.clock.now();
  fail_once(server.fake, "get", S3Fault::kInternal, 7);
  ASSERT_TRUE(client->get(in_bucket("k"), 100).is_ok());
  const double waited = std::chrono::duration<double>(server.clock.now() - began).count();
  EXPECT_GE(waited, 0.5 * (0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 12.8) - 0.1);
  EXPECT_LE(waited, 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 0.1);
  fail_once(server.fake, "get", S3Fault::kSlowDown);
  ASSERT_TRUE(client->get(in_bucket("k"), 100).is_ok());
  const auto slowed = server.clock.now();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client->get(in_bucket("k"), 100).is_ok());
  }
  EXPECT_GE(server.clock.now() - slowed, std::chrono::seconds(2));  // About one per second, growing.
}

TEST(s3_client, does_not_try_again_what_stands) {
  S3Server server;
  server.used_keys.secret = "another/secret";
  const auto client = server.make_client();
  const Status failure = put_text(*client, "k", "bytes", "w").status();
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("SignatureDoesNotMatch"), HasSubstr("check keys, profile and region")));
  EXPECT_EQ(server.fake.num_calls("put"), 1);
}

TEST(s3_client, names_a_missing_bucket_and_unknown_keys) {
  S3Server server;
  const auto client = server.make_client();
  const Status no_bucket = client->get({.bucket = "other", .key = "k"}, 10).status();
  EXPECT_EQ(no_bucket.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(no_bucket.message(), AllOf(HasSubstr("there is no such bucket"), HasSubstr("s3://other/k")));
  server.used_keys.id = "NOBODY";
  const Status no_keys = client->get(in_bucket("k"), 10).status();
  EXPECT_EQ(no_keys.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(no_keys.message(), HasSubstr("InvalidAccessKeyId"));
}

TEST(s3_client, is_anonymous_where_there_are_no_keys) {
  S3Server server;
  server.fake.is_anonymous = true;
  const auto client = server.make_client();
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  for (const auto& request : server.fake.requests()) {
    EXPECT_THAT(request.head, AllOf(Not(HasSubstr("uthorization")), Not(HasSubstr("x-amz-date"))));
  }
}

TEST(s3_client, signs_for_the_region_of_the_bucket_once_it_is_told) {
  S3Server server;
  server.fake.region = "eu-central-1";
  const auto client = server.make_client();
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.num_calls("put"), 2);
  EXPECT_TRUE(client->head(in_bucket("k")).is_ok());
  EXPECT_EQ(server.fake.num_calls("head"), 1);                      // It is remembered.
  EXPECT_TRUE(server.make_client()->head(in_bucket("k")).is_ok());  // The answer to a HEAD has no body.

  server.fake.tells_region = false;
  for (const Status& failure :
       {server.make_client()->get(in_bucket("k"), 10).status(), server.make_client()->head(in_bucket("k")).status()}) {
    EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(failure.message(), HasSubstr("the bucket is in another region; give its own with ?region="));
  }
}

TEST(s3_client, signs_with_the_servers_time_when_the_clocks_differ) {
  S3Server server;
  server.fake.clock = server.clock.wall() + std::chrono::hours(0);
  LeapClock wrong(server.clock.wall() + std::chrono::hours(30));
  S3Client client(server.options(), server.keys(), StoreTools{*server.http, wrong});
  EXPECT_EQ(put_text(client, "k", "bytes", "w").value(), S3Outcome::kStored);
  EXPECT_EQ(server.fake.num_calls("put"), 2);
  EXPECT_TRUE(client.head(in_bucket("k")).is_ok());
  EXPECT_EQ(server.fake.num_calls("head"), 1);
  server.fake.clock = server.clock.wall() + std::chrono::hours(60);  // Its Date and its clock do not fit.
  EXPECT_THAT(client.get(in_bucket("k"), 10).status().message(), HasSubstr("clock differs too much"));
}

TEST(s3_client, asks_for_new_keys_when_the_token_has_expired) {
  S3Server server;
  server.fake.keys.token = "new/token";
  server.used_keys.token = "old/token";
  server.renewed_keys = server.fake.keys;
  const auto client = server.make_client();
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  EXPECT_EQ(server.num_renewals, 1);
  server.renewed_keys = server.used_keys;
  const Status failure = put_text(*client, "k2", "bytes", "w").status();
  EXPECT_THAT(failure.message(), HasSubstr("the credentials for the store have expired"));
  EXPECT_EQ(server.num_renewals, 2);
}

TEST(s3_client, an_answer_to_a_head_that_says_nothing_is_explained_by_a_listing) {
  S3Server server;
  ASSERT_EQ(put_text(*server.make_client(), "k", "bytes", "w").value(), S3Outcome::kStored);
  server.fake.keys.token = "new/token";
  server.used_keys.token = "old/token";
  bool has_new = false;
  const S3KeySource keys = [&](bool anew) -> Result<std::optional<S3Keys>> {
    has_new = has_new || anew;
    return std::optional(has_new ? server.fake.keys : server.used_keys);
  };
  S3Client renewing(server.options(), keys, StoreTools{*server.http, server.clock});
  const Result<S3Head> head = renewing.head(in_bucket("k"));
  ASSERT_TRUE(head.is_ok()) << head.status().to_string();
  EXPECT_EQ(head->size_bytes, 5);
  EXPECT_THAT(server.make_client()->head(in_bucket("k")).status().message(), HasSubstr("the credentials for the store have expired"));
}

TEST(s3_client, gives_up_on_a_dead_server_within_its_first_contact) {
  S3Server server;
  S3Options options = server.options();
  {
    const ScriptedServer gone([](const ScriptedServer::Request&) { return ScriptedServer::Answer{}; });
    options.endpoint = fmt::format("127.0.0.1:{}", gone.port());
  }
  options.max_tries = 100;
  const auto began = server.clock.now();
  const Status dead = server.make_client(options)->head(in_bucket("k")).status();
  EXPECT_EQ(dead.code(), StatusCode::kUnavailable);
  EXPECT_THAT(dead.message(), AllOf(HasSubstr("the host refuses the connection"), HasSubstr("s3://pictures/k")));
  EXPECT_LE(server.clock.now() - began, std::chrono::seconds(12));
  options.endpoint = "nobody.invalid";
  EXPECT_THAT(server.make_client(options)->head(in_bucket("k")).status().message(), HasSubstr("the name of the host is not known"));
}

TEST(s3_client, waits_for_a_silent_server_as_long_as_the_timeout_says) {
  S3Server server;
  S3Options options = server.options();
  options.timeout = std::chrono::milliseconds(2'500);
  const auto client = server.make_client(options);
  server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kHang; };
  EXPECT_THAT(client->head(in_bucket("k")).status().message(),
              AllOf(HasSubstr("no whole answer came in time"), HasSubstr("gave up after 3 tries")));
  EXPECT_EQ(server.fake.num_calls("head"), 3);
  fail_once(server.fake, "head", S3Fault::kHang);
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  EXPECT_TRUE(client->head(in_bucket("k")).is_ok());  // One that has answered before is asked again.
  server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kHang; };
  const int before = server.fake.num_calls("head");
  EXPECT_EQ(client->head(in_bucket("k")).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(server.fake.num_calls("head") - before, 3);
}

TEST(s3_client, a_silence_or_two_at_first_contact_cost_nothing) {
  for (const int num_silent : {1, 2}) {
    S3Server server;
    S3Options options = server.options();
    options.timeout = std::chrono::milliseconds(2'500);
    const auto client = server.make_client(options);
    fail_once(server.fake, "put", S3Fault::kHang, num_silent);
    EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
    EXPECT_GE(server.fake.num_calls("put"), num_silent + 1);  // More where an answer came late.
  }
}

TEST(s3_client, stops_on_request) {
  S3Server server;
  const auto client = server.make_client();
  std::stop_source stop;
  server.fake.before = [stop](const FakeS3::Call&) mutable { stop.request_stop(); };
  server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kHang; };
  EXPECT_EQ(client->head(in_bucket("k"), stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client->head(in_bucket("k"), stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(s3_client, lists_pages_folders_and_uploads) {
  S3Server server;
  server.fake.max_page = 2;
  const auto client = server.make_client();
  for (const std::string key : {"a/1", "a/2", "a/b/3", "a/b/4", "a/c d", "b"}) {
    ASSERT_TRUE(put_text(*client, key, key, "w").is_ok());
  }
  std::vector<std::string> names;
  int num_pages = 0;
  const auto page = [&](const S3ObjectPage& found) {
    ++num_pages;
    for (const S3Object& object : found.objects) {
      names.push_back(object.key);
    }
    names.insert(names.end(), found.prefixes.begin(), found.prefixes.end());
    return Status::ok();
  };
  ASSERT_TRUE(client->list(in_bucket("a/"), "", page).is_ok());
  EXPECT_THAT(names, ElementsAre("a/1", "a/2", "a/b/3", "a/b/4", "a/c d"));
  EXPECT_EQ(num_pages, 3);
  names.clear();
  ASSERT_TRUE(client->list(in_bucket("a/"), "/", page).is_ok());
  EXPECT_THAT(names, ElementsAre("a/1", "a/2", "a/c d", "a/b/"));
  EXPECT_EQ(client->list_some(in_bucket("a/"), 1).value().objects.size(), 1u);
  const auto refuse = [](const S3ObjectPage&) { return Status::cancelled("enough"); };
  EXPECT_EQ(client->list(in_bucket("a/"), "", refuse).message(), "enough");

  const std::string id = client->create_upload(in_bucket("a/up"), "w").value();
  std::vector<std::string> uploads;
  const auto upload_page = [&](const S3UploadPage& found) {
    for (const S3Upload& upload : found.uploads) {
      uploads.push_back(upload.key + " " + upload.id);
    }
    return Status::ok();
  };
  ASSERT_TRUE(client->list_uploads(in_bucket("a/"), upload_page).is_ok());
  EXPECT_THAT(uploads, ElementsAre("a/up " + id));
}

/// A server whose every answer is a listing made of the count of those before.
template <typename Page>
std::unique_ptr<ScriptedServer> listing_server(std::string root, Page page) {
  return std::make_unique<ScriptedServer>([root, page, count = std::make_shared<std::atomic<int>>(0)](const ScriptedServer::Request&) {
    const std::string body = fmt::format("<{}>{}</{}>", root, page((*count)++), root);
    return ScriptedServer::Answer{fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body)};
  });
}

S3Options options_of(const S3Server& server, const ScriptedServer& listing) {
  S3Options options = server.options();
  options.endpoint = fmt::format("127.0.0.1:{}", listing.port());
  return options;
}

TEST(s3_client, a_completion_that_fails_is_tried_again_where_nobody_says_that_its_upload_is_gone) {
  for (const auto& [lists_parts, listed] :
       {std::pair(true, S3Fault::kNone), {true, S3Fault::kForbid}, {true, S3Fault::kInternal}, {false, S3Fault::kNone}}) {
    S3Server server;
    server.fake.lists_parts = lists_parts;
    const auto client = server.make_client();
    const OneUpload upload = upload_text(*client, "k", "bytes", "w");
    server.fake.fault = [listed = listed](const FakeS3::Call& call) {
      return call.operation == "complete" ? S3Fault::kInternal : call.operation == "list_parts" ? listed : S3Fault::kNone;
    };
    EXPECT_EQ(client->complete(in_bucket("k"), upload.id, upload.parts, "w", S3Condition::kNone).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(server.fake.num_calls("complete"), server.options().max_tries);
  }
}

TEST(s3_client, lists_the_uploads_of_a_bucket_in_any_order_and_not_without_end) {
  S3Server server;
  const auto uploads = listing_server("ListMultipartUploadsResult", [](int page) {
    return fmt::format(
        "<IsTruncated>true</IsTruncated><NextKeyMarker>x</NextKeyMarker><NextUploadIdMarker>{0}</NextUploadIdMarker>"
        "<Upload><Key>{1}</Key><UploadId>{0}</UploadId></Upload>",
        page, 9 - page % 10);
  });
  int num_pages = 0;
  const auto take = [&](const S3UploadPage&) { return ++num_pages, Status::ok(); };
  const Status listed = server.make_client(options_of(server, *uploads))->list_first_uploads(FakeS3::kBucket, 7, take);
  EXPECT_TRUE(listed.is_ok()) << listed.to_string();
  EXPECT_EQ(num_pages, 7);
  EXPECT_EQ(uploads->requests().size(), 7u);
}

TEST(s3_client, takes_no_listing_that_it_did_not_ask_for) {
  S3Server server;
  for (const std::string entry :
       {"<Contents><Key>other/x</Key><Size>1</Size></Contents>", "<Contents><Key>a</Key><Size>1</Size></Contents>",
        "<CommonPrefixes><Prefix>other/</Prefix></CommonPrefixes>", "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>",
        "<CommonPrefixes><Prefix>a/b</Prefix></CommonPrefixes>"}) {
    const auto listing = listing_server("ListBucketResult", [&](int) { return "<IsTruncated>false</IsTruncated>" + entry; });
    const auto client = server.make_client(options_of(server, *listing));
    bool was_called = false;
    const auto take = [&](const S3ObjectPage&) { return was_called = true, Status::ok(); };
    const Status listed = client->list(in_bucket("a/"), "/", take);
    EXPECT_EQ(listed.code(), StatusCode::kCorruptData) << entry;
    EXPECT_THAT(listed.message(), HasSubstr("not asked for"));
    EXPECT_FALSE(was_called);
  }
  const auto rolled = listing_server("ListBucketResult", [](int) {
    return std::string("<IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes>");
  });
  EXPECT_EQ(
      server.make_client(options_of(server, *rolled))->list(in_bucket("a/"), "", [](const S3ObjectPage&) { return Status::ok(); }).code(),
      StatusCode::kCorruptData);
  const auto uploads = listing_server("ListMultipartUploadsResult", [](int) {
    return std::string(
        "<IsTruncated>false</IsTruncated><Upload><Key>b</Key><UploadId>i</UploadId><Initiated>2026-01-01T00:00:00.000Z"
        "</Initiated></Upload>");
  });
  EXPECT_THAT(server.make_client(options_of(server, *uploads))
                  ->list_uploads(in_bucket("a/"), [](const S3UploadPage&) { return Status::ok(); })
                  .message(),
              HasSubstr("not asked for"));
}

TEST(s3_client, finds_out_that_pages_do_not_end) {
  S3Server server;
  const auto object_page = [](const std::string& token, const std::string& keys) {
    return fmt::format("<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>{}", token, keys);
  };
  const auto list = [&](const ScriptedServer& listing) {
    return server.make_client(options_of(server, listing))->list(in_bucket("a/"), "", [](const S3ObjectPage&) { return Status::ok(); });
  };
  const auto circle = listing_server("ListBucketResult", [&](int page) {
    return object_page(std::to_string(page), fmt::format("<Contents><Key>a/{}</Key><Size>1</Size></Contents>", page % 3));
  });
  EXPECT_THAT(list(*circle).message(), HasSubstr("do not follow each other"));
  EXPECT_EQ(circle->requests().size(), 4u);
  const auto empty = listing_server("ListBucketResult", [&](int page) { return object_page(std::to_string(page), ""); });
  EXPECT_THAT(list(*empty).message(), HasSubstr("comes no further"));
  EXPECT_EQ(empty->requests().size(), 1001u);
  const auto uploads = listing_server("ListMultipartUploadsResult", [](int page) {
    return fmt::format(
        "<IsTruncated>true</IsTruncated><NextKeyMarker>a/x</NextKeyMarker><NextUploadIdMarker>{0}</NextUploadIdMarker>"
        "<Upload><Key>a/{1}</Key><UploadId>{0}</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>",
        page, page < 3 ? "x" : "w");
  });
  EXPECT_THAT(server.make_client(options_of(server, *uploads))
                  ->list_uploads(in_bucket("a/"), [](const S3UploadPage&) { return Status::ok(); })
                  .message(),
              HasSubstr("do not follow each other"));
  EXPECT_EQ(uploads->requests().size(), 4u);
}

TEST(s3_client, removes_and_copies_and_can_do_both_again) {
  S3Server server;
  const auto client = server.make_client();
  ASSERT_TRUE(put_text(*client, "from =%+", "bytes", "w").is_ok());
  ASSERT_TRUE(client->copy(in_bucket("from =%+"), {}, in_bucket("to")).is_ok());
  EXPECT_EQ(server.fake.bytes_of("to"), "bytes");
  EXPECT_EQ(client->head(in_bucket("to")).value().writer, "w");
  EXPECT_EQ(client->copy(in_bucket("from =%+"), "\"other\"", in_bucket("to2")).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(client->remove(in_bucket("from =%+")).is_ok());
  EXPECT_TRUE(client->remove(in_bucket("from =%+")).is_ok());
  EXPECT_EQ(client->copy(in_bucket("from =%+"), {}, in_bucket("to")).code(), StatusCode::kNotFound);
  EXPECT_TRUE(client->abort(in_bucket("k"), "no/such").is_ok());
}

TEST(s3_options, are_checked) {
  EXPECT_TRUE(S3Options{}.validate().is_ok());
  EXPECT_THAT(S3Options{.endpoint = "https://h"}.validate().message(), HasSubstr("endpoint"));
  EXPECT_THAT(S3Options{.scheme = "ftp"}.validate().message(), HasSubstr("scheme"));
  EXPECT_THAT(S3Options{.region = "a/b"}.validate().message(), HasSubstr("region"));
  EXPECT_THAT(S3Options{.timeout = std::chrono::milliseconds(0)}.validate().message(), HasSubstr("timeout"));
  EXPECT_THAT(S3Options{.max_tries = 0}.validate().message(), HasSubstr("max_tries"));
  EXPECT_THAT(S3Options{.part_bytes = 0}.validate().message(), HasSubstr("part_bytes"));
  EXPECT_THAT(S3Options{.least_patience = std::chrono::milliseconds(0)}.validate().message(), HasSubstr("least_patience"));
  EXPECT_THAT(S3Options{.endpoint = "user:secret@h"}.validate().message(), Not(HasSubstr("secret")));
}

TEST(s3_name, shows_keys_so_that_a_uri_can_be_read_again) {
  EXPECT_EQ(in_bucket("a b/=+\xc3\xa4?#%\n").uri(), "s3://pictures/a b/=+\xc3\xa4%3F%23%25%0A");
  EXPECT_EQ(in_bucket("").uri(), "s3://pictures");
}

}  // namespace
}  // namespace darkroom
