#include "darkroom/io/http_loop.h"

#include <gtest/gtest.h>

#include <string>

#include "fetch_web.h"
#include "http_caller.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

TEST(http_loop, gets_a_body_and_its_headers) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  HttpCaller caller;
  RecordingSink sink;
  const HttpResult result = caller.perform({.url = web.url("/a.jpg")}, sink);
  EXPECT_EQ(result.end, HttpEnd::kAnswered) << result.detail;
  EXPECT_EQ(result.head.status, 200);
  EXPECT_EQ(result.head.find("CONTENT-type"), "image/jpeg");
  EXPECT_EQ(result.head.content_length, static_cast<int64_t>(FetchWeb::kPictureBytes));
  EXPECT_EQ(sink.body, web.picture());
  EXPECT_EQ(sink.num_heads, 1);
  EXPECT_LE(sink.longest_piece, 16'384u);
  EXPECT_EQ(result.num_bytes, static_cast<int64_t>(FetchWeb::kPictureBytes));
  ASSERT_TRUE(result.peer.has_value());
  EXPECT_EQ(result.peer->to_string(), "127.0.0.1:" + std::to_string(web.web().port()));
  ASSERT_TRUE(result.connected_after && result.first_byte_after);
  EXPECT_LE(*result.connected_after, *result.first_byte_after);
  EXPECT_LE(*result.first_byte_after, result.ended_after);
}

}  // namespace
}  // namespace darkroom
