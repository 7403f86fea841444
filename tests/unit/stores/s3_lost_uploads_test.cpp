#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "darkroom/stores/s3_store.h"
#include "s3_server.h"
#include "stores/s3_object_store.h"

namespace darkroom {
namespace {

/// Uploads that a server began and whose ids nobody was told.
class LostUploads : public testing::TestWithParam<FakeS3::Fault> {
 protected:
  static std::string at(const std::string& key) { return std::string(FakeS3::kBucket) + "/" + key; }
  /// The next so many requests to begin an upload are carried out, and their replies lost.
  void lose_replies(int count) {
    server_.fake.fault = [left = std::make_shared<std::atomic<int>>(count)](const FakeS3::Call& call) {
      return call.operation == "create_upload" && (*left)-- > 0 ? GetParam() : FakeS3::Fault::kNone;
    };
  }

  S3Server server_{FakeS3::Conditions::kPutOnly};  // Small objects are uploads, too.
  S3Store store_{server_.make_client()};
};

INSTANTIATE_TEST_SUITE_P(Replies, LostUploads, testing::Values(FakeS3::Fault::kLostReply, FakeS3::Fault::kInternalDone),
                         [](const auto& info) { return info.param == FakeS3::Fault::kLostReply ? "broken" : "failed"; });

// A reply that is lost on a connection that was used before is not even seen here: libcurl asks again by itself.
TEST_P(LostUploads, of_a_probe_are_aborted_at_once) {
  for (const int num_lost : {1, 2, 3}) {
    lose_replies(num_lost);
    const int num_before = server_.fake.num_calls("create_upload");
    S3Store store(server_.make_client());  // One that has not tried its server out.
    EXPECT_EQ(store.first_wins(at("out")).value(), FirstWins::kCommitRecord);
    EXPECT_EQ(server_.fake.num_calls("create_upload") - num_before, num_lost + 1);
    EXPECT_EQ(server_.fake.num_uploads(), 0u) << num_lost;
  }
}

TEST_P(LostUploads, of_a_probe_are_left_to_the_sweep_where_the_server_does_not_list_them) {
  server_.fake.fault = [left = std::make_shared<std::atomic<int>>(1)](const FakeS3::Call& call) {
    const bool is_lost = call.operation == "create_upload" && (*left)-- > 0;
    return is_lost ? GetParam() : call.operation == "list_uploads" ? FakeS3::Fault::kInternal : FakeS3::Fault::kNone;
  };
  EXPECT_EQ(store_.first_wins(at("out")).value(), FirstWins::kCommitRecord);
  EXPECT_EQ(server_.fake.num_uploads(), 1u);
  server_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  EXPECT_EQ(store_.sweep(at("out"), std::chrono::hours(24), server_.fake.state.now + std::chrono::hours(25)).value().num_uploads, 1);
  EXPECT_EQ(server_.fake.num_uploads(), 0u);
}

// No listing tells whose an upload is: of a name that others write, too, nothing is aborted before its time.
TEST_P(LostUploads, of_an_object_wait_for_the_sweep_and_another_writers_upload_stays_as_it_is) {
  ASSERT_TRUE(store_.first_wins(at("out")).is_ok());
  const OneUpload others = upload_text(store_.client(), "out/part", "the other's rows", "other");
  lose_replies(1);
  const auto object = store_.begin_object(at("out"), "part").value();
  ASSERT_TRUE(object->write_text("our rows").is_ok());
  EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(server_.fake.num_uploads(), 2u);
  EXPECT_EQ(store_.sweep(at("out"), std::chrono::hours(24), server_.fake.state.now + std::chrono::hours(1)).value().num_uploads, 0);
  EXPECT_TRUE(server_.fake.with_state([&](const FakeS3Objects& state) { return state.uploads.contains(others.id); }));
  EXPECT_EQ(store_.sweep(at("out"), std::chrono::hours(24), server_.fake.state.now + std::chrono::hours(25)).value().num_uploads, 2);
  EXPECT_EQ(server_.fake.num_uploads(), 0u);
}

}  // namespace
}  // namespace darkroom
