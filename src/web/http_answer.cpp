#include "http_answer.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr size_t kMaxShownBytes = 100;  // Of what a server says, in an error.

std::optional<int64_t> parse_length(std::string_view text) {
  int64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  return error == std::errc() && end == text.data() + text.size() && length >= 0 ? std::optional(length) : std::nullopt;
}

}  // namespace

void HttpAnswer::begin(const HttpRequest& request, HttpSink& sink) {
  request_ = &request;
  sink_ = &sink;
  head_.clear();
  want_ = HttpSink::Want::kBody;
  has_head_ = is_chunked_ = false;
  header_bytes_ = body_bytes_ = 0;
}

std::optional<HttpStop> HttpAnswer::take_line(std::string_view line, int status) {
  header_bytes_ += static_cast<int64_t>(line.size());
  if (header_bytes_ > request_->limits.max_header_bytes) {
    return HttpStop{HttpEnd::kHeadersTooLarge, fmt::format("the headers are longer than {} bytes", request_->limits.max_header_bytes)};
  }
  if (has_head_) {
    return std::nullopt;  // A trailer: it changes nothing that was said.
  }
  if (head_.status == 0) {
    head_.status = status;
    return std::nullopt;
  }
  if (line == "\r\n" || line == "\n") {
    return end_of_head();
  }
  head_.add_line(line);
  return std::nullopt;
}

std::optional<HttpStop> HttpAnswer::end_of_head() {
  if (head_.status < 200) {  // Another one follows.
    head_.clear();
    return std::nullopt;
  }
  has_head_ = true;
  std::optional<std::string> refused_coding;
  head_.for_each([&](std::string_view name, std::string_view value) {
    if (same_word(name, "transfer-encoding")) {
      is_chunked_ = true;
      if (!same_word(value, "chunked")) {
        refused_coding = value.substr(0, kMaxShownBytes);  // libcurl would decode some of them.
      }
    }
  });
  if (refused_coding) {
    return HttpStop{HttpEnd::kNotHttp, fmt::format("a transfer coding that was not asked for: {}", *refused_coding)};
  }
  if (const auto length = head_.find("content-length"); length && !is_chunked_) {
    head_.content_length = parse_length(*length);
  }
  want_ = sink_->headers(head_);
  if (want_ == HttpSink::Want::kStop) {
    return HttpStop{HttpEnd::kStopped, "at the headers"};
  }
  const int64_t limit = request_->limits.max_body_bytes;
  if (want_ == HttpSink::Want::kBody && request_->method != "HEAD" && head_.content_length.value_or(0) > limit) {
    return HttpStop{HttpEnd::kBodyTooLarge, fmt::format("the body is longer than {} bytes: {}", limit, *head_.content_length)};
  }
  return std::nullopt;
}

std::optional<HttpStop> HttpAnswer::take_body(std::string_view bytes, bool& is_pause) {
  if (!has_head_) {
    return HttpStop{HttpEnd::kNotHttp, "a body before the end of the headers"};
  }
  if (want_ == HttpSink::Want::kDrop) {
    return drop(bytes.size());
  }
  const int64_t new_size = body_bytes_ + static_cast<int64_t>(bytes.size());
  if (new_size > request_->limits.max_body_bytes) {
    return HttpStop{HttpEnd::kBodyTooLarge, fmt::format("the body is longer than {} bytes", request_->limits.max_body_bytes)};
  }
  switch (sink_->bytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()})) {
    case HttpSink::Take::kTaken:
      body_bytes_ = new_size;
      return std::nullopt;
    case HttpSink::Take::kPause:
      is_pause = true;
      return std::nullopt;
    case HttpSink::Take::kStop:
      break;
  }
  return HttpStop{HttpEnd::kStopped, fmt::format("after {} body bytes", body_bytes_)};
}

std::optional<HttpStop> HttpAnswer::drop(size_t num_bytes) {
  body_bytes_ += static_cast<int64_t>(num_bytes);
  return body_bytes_ <= request_->limits.max_dropped_bytes ? std::nullopt : std::optional(HttpStop{HttpEnd::kAnswered, {}});
}

HttpHead HttpAnswer::end() {
  request_ = nullptr;
  sink_ = nullptr;
  HttpHead head = has_head_ ? std::move(head_) : HttpHead();
  head_.clear();
  return head;
}

}  // namespace darkroom
