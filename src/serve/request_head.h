#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <boost/beast/http.hpp>

#include "darkroom/serve/http_server.h"

namespace darkroom {

// How a connection's bytes become questions; Beast parses, what it lets through and we do not read is refused here.
using StringRequest = boost::beast::http::request<boost::beast::http::string_body>;
using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

/// What a connection may hold unparsed, beside the header.
inline constexpr size_t kReadAhead = 65'536;

void set_bounds(RequestParser& parser, const HttpServerOptions& options);

/// What the parser lets through and this server does not read, because somebody before or behind it may read it in another way; nothing:
/// it is fine.
std::optional<HttpReply> refuse_ambiguous(const StringRequest& request);

/// The reply to bytes that are no request, or too large; nothing: the connection is over.
std::optional<HttpReply> refuse_unreadable(const boost::system::error_code& error);

/// The question without its body.
HttpQuestion head_of(const StringRequest& request);

/// A reply of one line of text.
HttpReply words(int status, std::string_view sentence);

}  // namespace darkroom
