#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/check.h"
#include "fuzz/fuzz_targets.h"
#include "serve/request_head.h"

namespace darkroom {
namespace {

namespace http = boost::beast::http;

constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxBodyBytes = 8192;
constexpr size_t kLastChunkBytes = 5;  // "0", and two line ends.

/// What was made of a connection's bytes.
struct Reading {
  struct Question {
    std::string text;  // All of it, for comparison.
    size_t end = 0;    // Behind its last byte.
    bool operator==(const Question&) const = default;
  };
  std::vector<Question> questions;
  int refusal = 0;  // The status; 0: the bytes ended, or the connection did.
};

std::string text_of(const StringRequest& request) {
  const HttpQuestion head = head_of(request);
  std::string text = fmt::format("{} {}?{}", head.method, head.path, head.query);
  for (const auto& [name, value] : head.headers) {
    text += fmt::format("\n{}:{}", name, value);
  }
  return text + "\n\n" + request.body();
}

/// As a session reads them, when they come in pieces of that many bytes.
Reading read_in_pieces(std::string_view bytes, size_t piece) {
  HttpServerOptions options;
  options.max_header_bytes = kMaxHeaderBytes;
  options.max_body_bytes = kMaxBodyBytes;
  Reading reading;
  std::string waiting;
  size_t num_come = 0;
  std::optional<RequestParser> parser;
  bool has_head = false;
  while (true) {
    if (!parser) {
      parser.emplace();
      set_bounds(*parser, options);
      has_head = false;
    }
    const auto take_more = [&] {
      const std::string_view more = bytes.substr(num_come, piece);
      waiting += more;
      num_come += more.size();
      return !more.empty();
    };
    // With fewer no chunked body ends, and an assertion of Beast's wants as many of a last chunk that it has seen before.
    if (has_head && parser->chunked() && waiting.size() < kLastChunkBytes) {
      if (!take_more()) {
        return reading;
      }
      continue;
    }
    boost::system::error_code error;
    const size_t num_used = waiting.empty() ? 0 : parser->put(boost::asio::buffer(waiting), error);
    waiting.erase(0, num_used);
    DARKROOM_CHECK(parser->get().body().size() <= kMaxBodyBytes, "a body beyond its bound:", parser->get().body().size());
    if (error && error != http::error::need_more) {
      const auto refusal = refuse_unreadable(error);
      reading.refusal = refusal ? refusal->status : 0;
      return reading;
    }
    if (parser->is_header_done() && !std::exchange(has_head, true)) {
      if (const auto refusal = refuse_ambiguous(parser->get())) {
        reading.refusal = refusal->status;
        return reading;
      }
      parser->eager(true);  // The body, too.
    }
    if (parser->is_done()) {
      reading.questions.push_back({.text = text_of(parser->get()), .end = num_come - waiting.size()});
      if (!parser->get().keep_alive()) {
        return reading;
      }
      parser.reset();
      continue;
    }
    if ((error || num_used == 0) && !take_more()) {
      return reading;
    }
  }
}

/// A second reader of where a request ends, which takes nothing that could be read in two ways; nothing: it is no request, or none whole.
class PlainFraming {
 public:
  explicit PlainFraming(std::string_view bytes) : bytes_(bytes) {}

  std::optional<size_t> end_of_request() {
    const size_t head = bytes_.find("\r\n\r\n");
    if (head == std::string_view::npos || !read_fields(bytes_.substr(0, head + 2))) {
      return std::nullopt;
    }
    at_ = head + 4;
    if (is_chunked_) {
      return !length_ && skip_chunks() ? std::optional(at_) : std::nullopt;
    }
    at_ += length_.value_or(0);
    return at_ <= bytes_.size() ? std::optional(at_) : std::nullopt;
  }

 private:
  bool read_fields(std::string_view lines) {
    std::string unfolded(lines);
    for (size_t at = 0; (at = unfolded.find("\r\n", at)) != std::string::npos;) {
      const bool is_folded = at + 2 < unfolded.size() && (unfolded[at + 2] == ' ' || unfolded[at + 2] == '\t');
      is_folded ? unfolded.replace(at, 2, "  ") : unfolded;
      at += 2;
    }
    size_t begin = unfolded.find("\r\n") + 2;  // Behind the request line.
    while (begin < unfolded.size()) {
      const size_t end = unfolded.find("\r\n", begin);
      if (!read_field(std::string_view(unfolded).substr(begin, end - begin))) {
        return false;
      }
      begin = end + 2;
    }
    return true;
  }

  bool read_field(std::string_view line) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return false;
    }
    const std::string name = ascii_lower(std::string(line.substr(0, colon)));
    std::string_view value = line.substr(colon + 1);
    const size_t first = value.find_first_not_of(" \t");
    value = first == std::string_view::npos ? "" : value.substr(first, value.find_last_not_of(" \t") - first + 1);
    if (name == "content-length") {
      uint64_t length = 0;
      const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), length);
      if (length_ || failure != std::errc() || end != value.data() + value.size()) {
        return false;
      }
      length_ = length;
    }
    if (name == "transfer-encoding") {
      if (is_chunked_ || ascii_lower(std::string(value)) != "chunked") {
        return false;
      }
      is_chunked_ = true;
    }
    return true;
  }

  bool skip_chunks() {
    while (true) {
      uint64_t size = 0;
      const size_t line_end = bytes_.find("\r\n", at_);
      const auto [end, failure] = std::from_chars(bytes_.data() + at_, bytes_.data() + std::min(line_end, bytes_.size()), size, 16);
      if (line_end == std::string_view::npos || failure != std::errc()) {
        return false;
      }
      at_ = line_end + 2;
      if (size == 0) {
        return skip_trailers();
      }
      if (size > bytes_.size() - at_ || bytes_.substr(at_ + size, 2) != "\r\n") {
        return false;
      }
      at_ += size + 2;
    }
  }

  bool skip_trailers() {
    while (true) {
      const size_t line_end = bytes_.find("\r\n", at_);
      if (line_end == std::string_view::npos) {
        return false;
      }
      const bool is_last = line_end == at_;
      at_ = line_end + 2;
      if (is_last) {
        return true;
      }
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  std::optional<uint64_t> length_;
  bool is_chunked_ = false;
};

}  // namespace

// What is read does not depend on how it comes; what is taken for a request ends where every other reader would see its end, so that no
// bytes of one client can be taken for another request than a proxy in front of us took them for.
void fuzz_request(std::string_view bytes) {
  const Reading whole = read_in_pieces(bytes, bytes.size());
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    const Reading reading = read_in_pieces(bytes, piece);
    // A head about as long as its bound is over it or not as it comes; other refusals may differ in their words alone.
    const bool is_at_its_bound = reading.refusal == 431 || whole.refusal == 431;
    DARKROOM_CHECK(is_at_its_bound || reading.questions == whole.questions,
                   "what is read depends on how it comes; bytes at a time:", piece);
  }
  DARKROOM_CHECK(whole.refusal == 0 || whole.refusal == 400 || whole.refusal == 413 || whole.refusal == 431, "a refusal:", whole.refusal);
  size_t begin = 0;
  for (const Reading::Question& question : whole.questions) {
    const std::optional<size_t> end = PlainFraming(bytes.substr(begin)).end_of_request();
    DARKROOM_CHECK(end.has_value(), "a request was taken that can be read in two ways:", question.text);
    DARKROOM_CHECK(begin + *end == question.end, "a request ends elsewhere (ours, plainly):", question.end, begin + *end);
    begin = question.end;
  }
}

}  // namespace darkroom
