#include "web/fetch_queues.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

using Entry = FetchQueues::Entry;

ReadRequest request_of(uint64_t id) { return {id, RowError{RowErrorCode::kBadUrl}, id}; }

// What the fetch thread does with all that waits.
void answer_all(FetchQueues& queues) {
  std::vector<ReadRequest> requests;
  queues.take_requests(requests);
  std::vector<UntakenReply> replies;
  for (const ReadRequest& request : requests) {
    replies.push_back({{request.id, RowError{RowErrorCode::kBadUrl}}, request.id});
  }
  queues.publish(replies, {});
  EXPECT_TRUE(replies.empty());
}

TEST(FetchQueues, say_which_request_the_thread_may_wait_for) {
  FetchQueues queues(3);
  EXPECT_EQ(queues.submit(request_of(1)), Entry::kFirst);
  EXPECT_EQ(queues.submit(request_of(2)), Entry::kQueued);
  std::vector<ReadRequest> requests = {};
  requests.push_back(request_of(9));  // Of an earlier time.
  queues.take_requests(requests);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].id, 1u);
  EXPECT_EQ(requests[1].id, 2u);
  EXPECT_EQ(queues.submit(request_of(3)), Entry::kFirst);
}

TEST(FetchQueues, a_request_is_inside_until_its_reply_is_taken) {
  FetchQueues queues(1);
  ASSERT_EQ(queues.submit(request_of(1)), Entry::kFirst);
  answer_all(queues);
  bool takes = false;  // Ordered by the lock.
  std::jthread caller([&] {
    takes = true;
    EXPECT_EQ(queues.take_reply().value().row, 1u);
  });
  EXPECT_EQ(queues.submit(request_of(2)), Entry::kFirst);
  EXPECT_TRUE(takes);
}

TEST(FetchQueues, more_are_wanted_when_few_are_in_hand) {
  FetchQueues queues(9);
  EXPECT_TRUE(queues.wait_for_demand({.wanting = 1, .beyond_places = 1}));
  ASSERT_EQ(queues.submit(request_of(1)), Entry::kFirst);
  ASSERT_EQ(queues.submit(request_of(2)), Entry::kQueued);
  EXPECT_TRUE(queues.wait_for_demand({.wanting = 3, .beyond_places = 1})) << "two wait";
  int step = 0;  // Ordered by the lock.
  std::vector<ReadRequest> requests;
  std::vector<UntakenReply> replies;
  std::jthread thread([&] {
    queues.take_requests(requests);
    step = 1;
    queues.publish(replies, {.wanting = 2});
    step = 2;
    replies.push_back({{1, RowError{RowErrorCode::kBadUrl}}, 1});
    queues.publish(replies, {.wanting = 1});
    step = 3;
    EXPECT_TRUE(queues.take_reply());
  });
  EXPECT_TRUE(queues.wait_for_demand({.wanting = 2, .beyond_places = 1}));
  EXPECT_EQ(step, 3) << "a request that was taken, one in hand and an untaken reply count alike";
}

TEST(FetchQueues, no_more_are_wanted_while_too_many_wait_for_their_hosts) {
  FetchQueues queues(9);
  std::vector<UntakenReply> replies;
  queues.publish(replies, {.wanting = 0, .beyond_places = 5});
  EXPECT_TRUE(queues.wait_for_demand({.wanting = 1, .beyond_places = 6}));
  bool is_less = false;  // Ordered by the lock.
  std::jthread thread([&] {
    is_less = true;
    queues.publish(replies, {.wanting = 0, .beyond_places = 4});
  });
  EXPECT_TRUE(queues.wait_for_demand({.wanting = 1, .beyond_places = 5}));
  EXPECT_TRUE(is_less);
}

TEST(FetchQueues, closed_ones_give_out_what_is_inside_and_end) {
  FetchQueues queues(2);
  ASSERT_EQ(queues.submit(request_of(1)), Entry::kFirst);
  ASSERT_EQ(queues.submit(request_of(2)), Entry::kQueued);
  std::jthread caller([&] { answer_all(queues); });
  queues.close();
  EXPECT_EQ(queues.submit(request_of(3)), Entry::kRefused);
  EXPECT_EQ(queues.take_reply().value().row, 1u);
  EXPECT_EQ(queues.take_reply().value().row, 2u);
  EXPECT_FALSE(queues.take_reply());
}

TEST(FetchQueues, cancelled_ones_let_all_go_who_wait) {
  FetchQueues queues(1);
  ASSERT_EQ(queues.submit(request_of(1)), Entry::kFirst);
  std::jthread submits([&] { EXPECT_EQ(queues.submit(request_of(2)), Entry::kRefused); });
  std::jthread takes([&] { EXPECT_FALSE(queues.take_reply()); });
  std::jthread asks([&] { EXPECT_FALSE(queues.wait_for_demand({.wanting = 1, .beyond_places = 1})); });
  queues.cancel();
  asks.join();
  submits.join();
  takes.join();
  answer_all(queues);
  EXPECT_TRUE(queues.is_cancelled());
  EXPECT_FALSE(queues.take_reply());  // Although one is there.
}

TEST(FetchQueues, keep_the_first_failure) {
  FetchQueues queues(1);
  EXPECT_TRUE(queues.failure().is_ok());
  queues.note_failure(Status::internal("the first"));
  queues.note_failure(Status::internal("what followed from it"));
  EXPECT_EQ(queues.failure().message(), "the first");
  EXPECT_FALSE(queues.is_cancelled());
}

}  // namespace
}  // namespace darkroom
