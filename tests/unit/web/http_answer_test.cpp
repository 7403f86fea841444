#include "web/http_answer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace darkroom {
namespace {

// Takes an answer as a test says, and keeps it.
class KeptSink : public HttpSink {
 public:
  Want headers(const HttpHead& head) override {
    status = head.status;
    content_length = head.content_length;
    return want;
  }
  Take bytes(std::span<const std::byte> piece) override {
    if (take == Take::kTaken) {
      body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return take;
  }

  Want want = Want::kBody;
  Take take = Take::kTaken;
  int status = 0;
  std::optional<int64_t> content_length;
  std::string body;
};

class ReadAnswer : public testing::Test {
 protected:
  ReadAnswer() { answer_.begin(request_, sink_); }

  // Why it stops; "goes on" or "pauses" otherwise.
  std::string shown(const std::optional<HttpStop>& stop, bool is_pause = false) {
    return stop ? fmt::format("{}: {}", http_end_name(stop->end), stop->detail) : is_pause ? "pauses" : "goes on";
  }
  // A whole head, until it stops.
  std::string head(int status, std::initializer_list<std::string> lines) {
    std::optional<HttpStop> stop = answer_.take_line(fmt::format("HTTP/1.1 {} So\r\n", status), status);
    for (const std::string& line : lines) {
      stop = stop ? stop : answer_.take_line(line + "\r\n", status);
    }
    return shown(stop ? stop : answer_.take_line("\r\n", status));
  }
  std::string body(std::string_view bytes) {
    bool is_pause = false;
    const std::optional<HttpStop> stop = answer_.take_body(bytes, is_pause);
    return shown(stop, is_pause);
  }

  HttpRequest request_{.url = "http://a.example/"};
  KeptSink sink_;
  HttpAnswer answer_;
};

TEST_F(ReadAnswer, gives_the_sink_the_final_head_alone) {
  EXPECT_EQ(head(103, {"Link: <a.css>", "Content-Length: 9"}), "goes on");
  EXPECT_FALSE(answer_.has_head());
  EXPECT_EQ(sink_.status, 0);
  EXPECT_EQ(head(200, {"Content-Length: 4", "ETag: a"}), "goes on");
  EXPECT_EQ(body("abcd"), "goes on");
  EXPECT_EQ(shown(answer_.take_line("Server: a\r\n", 200)), "goes on");  // A trailer.
  EXPECT_EQ(sink_.status, 200);
  EXPECT_EQ(sink_.content_length, 4);
  EXPECT_EQ(sink_.body, "abcd");
  EXPECT_EQ(answer_.body_bytes(), 4);
  const HttpHead kept = answer_.end();
  EXPECT_EQ(kept.find("etag"), "a");
  EXPECT_EQ(kept.find("link"), std::nullopt);
  EXPECT_EQ(kept.find("server"), std::nullopt);
}

TEST_F(ReadAnswer, has_no_head_before_its_last_line) {
  EXPECT_EQ(shown(answer_.take_line("HTTP/1.1 200 So\r\n", 200)), "goes on");
  EXPECT_EQ(shown(answer_.take_line("ETag: a\r\n", 200)), "goes on");
  EXPECT_FALSE(answer_.has_head());
  EXPECT_EQ(body("a"), "not_http: a body before the end of the headers");
  EXPECT_EQ(answer_.end().status, 0);
}

TEST_F(ReadAnswer, begins_anew_with_each_exchange) {
  sink_.want = HttpSink::Want::kDrop;
  EXPECT_EQ(head(404, {"ETag: a"}), "goes on");
  EXPECT_EQ(body("abcd"), "goes on");
  EXPECT_TRUE(answer_.is_dropped());
  answer_.begin(request_, sink_);
  EXPECT_FALSE(answer_.has_head());
  EXPECT_FALSE(answer_.is_dropped());
  EXPECT_EQ(answer_.body_bytes(), 0);
  sink_.want = HttpSink::Want::kBody;
  EXPECT_EQ(head(200, {}), "goes on");
  EXPECT_EQ(answer_.end().find("etag"), std::nullopt);
}

TEST_F(ReadAnswer, counts_provisional_heads_and_trailers_as_headers) {
  request_.limits.max_header_bytes = 2 * (17 + 2);  // Of two heads without a field.
  EXPECT_EQ(head(100, {}), "goes on");
  EXPECT_EQ(head(200, {}), "goes on");
  EXPECT_EQ(shown(answer_.take_line("\n", 200)), "headers_too_large: the headers are longer than 38 bytes");
}

TEST_F(ReadAnswer, takes_no_transfer_coding_but_chunks_which_have_no_announced_length) {
  EXPECT_EQ(head(200, {"Transfer-Encoding: Chunked", "Content-Length: 4"}), "goes on");
  EXPECT_EQ(sink_.content_length, std::nullopt);
  answer_.begin(request_, sink_);
  sink_.status = 0;
  EXPECT_EQ(head(200, {"Transfer-Encoding: gzip"}), "not_http: a transfer coding that was not asked for: gzip");
  EXPECT_EQ(sink_.status, 0);
  answer_.begin(request_, sink_);
  const std::string told = head(200, {"Transfer-Encoding: " + std::string(100'000, ',')});
  EXPECT_LT(told.size(), 200U) << "rows keep what they are told";
}

TEST_F(ReadAnswer, takes_no_length_that_is_none) {
  for (const char* text : {"-1", "4x", "", "99999999999999999999"}) {
    answer_.begin(request_, sink_);
    EXPECT_EQ(head(200, {std::string("Content-Length: ") + text}), "goes on") << text;
    EXPECT_EQ(sink_.content_length, std::nullopt) << text;
  }
}

TEST_F(ReadAnswer, bounds_a_wanted_body_as_announced_and_as_counted) {
  request_.limits.max_body_bytes = 4;
  EXPECT_EQ(head(200, {"Content-Length: 5"}), "body_too_large: the body is longer than 4 bytes: 5");
  answer_.begin(request_, sink_);
  EXPECT_EQ(head(200, {"Content-Length: 4"}), "goes on");
  EXPECT_EQ(body("abc"), "goes on");
  EXPECT_EQ(body("de"), "body_too_large: the body is longer than 4 bytes");
  EXPECT_EQ(sink_.body, "abc");
  EXPECT_EQ(answer_.body_bytes(), 3);
  request_.method = "HEAD";  // Announces what it does not send.
  answer_.begin(request_, sink_);
  EXPECT_EQ(head(200, {"Content-Length: 5"}), "goes on");
}

TEST_F(ReadAnswer, drops_so_much_of_an_unwanted_body_and_then_has_its_answer) {
  request_.limits.max_body_bytes = 1;
  request_.limits.max_dropped_bytes = 4;
  sink_.want = HttpSink::Want::kDrop;
  EXPECT_EQ(head(404, {"Content-Length: 5"}), "goes on");
  EXPECT_EQ(body("abcd"), "goes on");
  EXPECT_EQ(body("e"), "answered: ");
  EXPECT_EQ(sink_.body, "");
}

TEST_F(ReadAnswer, counts_paused_bytes_once_they_are_taken) {
  EXPECT_EQ(head(200, {}), "goes on");
  sink_.take = HttpSink::Take::kPause;
  EXPECT_EQ(body("abcd"), "pauses");
  EXPECT_EQ(answer_.body_bytes(), 0);
  sink_.take = HttpSink::Take::kTaken;
  EXPECT_EQ(body("abcd"), "goes on");
  EXPECT_EQ(answer_.body_bytes(), 4);
  sink_.take = HttpSink::Take::kStop;
  EXPECT_EQ(body("e"), "stopped: after 4 body bytes");
}

TEST_F(ReadAnswer, stops_at_the_headers_where_the_sink_wants_no_more) {
  sink_.want = HttpSink::Want::kStop;
  EXPECT_EQ(head(200, {}), "stopped: at the headers");
  EXPECT_TRUE(answer_.has_head());
}

}  // namespace
}  // namespace darkroom
