#include "request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include <boost/beast/core/string.hpp>

#include "darkroom/core/ascii_case.h"

namespace darkroom {

namespace beast = boost::beast;
namespace http = boost::beast::http;

HttpReply words(int status, std::string_view sentence) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = fmt::format("{}\n", sentence)};
}

void set_bounds(RequestParser& parser, const HttpServerOptions& options) {
  parser.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
}

std::optional<HttpReply> refuse_ambiguous(const StringRequest& request) {
  const auto codings = request.equal_range(http::field::transfer_encoding);
  if (codings.first != codings.second &&
      (request.version() != 11 || std::next(codings.first) != codings.second || !beast::iequals(codings.first->value(), "chunked"))) {
    return words(400, "the only transfer coding here is chunked, of HTTP/1.1");
  }
  const auto lengths = request.equal_range(http::field::content_length);
  if (lengths.first != lengths.second &&
      (std::next(lengths.first) != lengths.second || lengths.first->value().find(',') != beast::string_view::npos)) {
    return words(400, "a request names one Content-Length");
  }
  const auto hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() == 11)) {
    return words(400, "a request names one Host");
  }
  if (request.target().empty() || request.target().front() != '/') {
    return words(400, "a request's target is a path, beginning with /");
  }
  return std::nullopt;
}

std::optional<HttpReply> refuse_unreadable(const boost::system::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return words(431, "the request's header is too large");
  }
  if (error == http::error::body_limit) {
    return words(413, "the request's body is too large");
  }
  const bool is_parsers = error.category() == make_error_code(http::error::bad_method).category();
  return is_parsers && error != http::error::end_of_stream && error != http::error::partial_message
             ? std::optional(words(400, fmt::format("this is no proper HTTP/1 request: {}", error.message())))
             : std::nullopt;
}

HttpQuestion head_of(const StringRequest& request) {
  HttpQuestion question;
  question.method = std::string(request.method_string());
  const std::string target(request.target());
  const size_t end = std::min(target.find('?'), target.size());
  question.path = target.substr(0, end);
  question.query = target.substr(std::min(end + 1, target.size()));
  for (const auto& field : request) {
    question.headers.emplace_back(ascii_lower(std::string(field.name_string())), std::string(field.value()));
  }
  return question;
}

}  // namespace darkroom
