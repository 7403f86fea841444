#include "web_answer.h"

#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace darkroom {
namespace {

constexpr std::string_view kPage = "<!DOCTYPE html><html><body>Please sign in to see this picture.</body></html>\n";

std::string http_date(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

std::string head(int status, std::string_view type, int64_t length, std::string_view extra_headers) {
  return fmt::format("HTTP/1.1 {} -\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n", status, type, length, extra_headers);
}

TroubledAnswer file_answer(const WebRoute& route, std::string_view extra_headers = "") {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(route.file_path, error));
  if (error) {
    return plain_answer(500, "", "the file is gone\n");
  }
  TroubledAnswer answer;
  answer.bytes = head(200, route.content_type, size, extra_headers);
  answer.file_path = route.file_path;
  answer.file_bytes = size;
  return answer;
}

TroubledAnswer truncated(const WebRoute& route) {
  TroubledAnswer answer = file_answer(route);
  answer.file_bytes /= 2;
  answer.then = TroubledAnswer::Then::kClose;
  return answer;
}

TroubledAnswer slow_drip(const WebRoute& route) {
  TroubledAnswer answer = file_answer(route);
  answer.bytes_per_second = route.bytes_per_second;
  return answer;
}

TroubledAnswer chunked(const WebRoute& route, bool is_cut) {
  std::ifstream file(route.file_path, std::ios::binary);
  const std::string body{std::istreambuf_iterator<char>(file), {}};
  TroubledAnswer answer;
  answer.bytes = fmt::format("HTTP/1.1 200 -\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n", route.content_type);
  constexpr size_t kChunkBytes = 1000;
  for (size_t at = 0; at < body.size(); at += kChunkBytes) {
    const std::string_view chunk = std::string_view(body).substr(at, kChunkBytes);
    answer.bytes += fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
  }
  if (is_cut) {
    answer.then = TroubledAnswer::Then::kClose;
  } else {
    answer.bytes += "0\r\n\r\n";
  }
  return answer;
}

TroubledAnswer repeating(std::string start, std::string repeated) {
  TroubledAnswer answer;
  answer.bytes = std::move(start);
  answer.repeated = std::move(repeated);
  answer.then = TroubledAnswer::Then::kRepeat;
  return answer;
}

TroubledAnswer endless(const WebRoute& route) {
  constexpr size_t kChunkBytes = 16'384;
  return repeating(fmt::format("HTTP/1.1 {} -\r\nContent-Type: image/jpeg\r\nTransfer-Encoding: chunked\r\n\r\n",
                               route.status != 0 ? route.status : 200),
                   fmt::format("{:x}\r\n{}\r\n", kChunkBytes, std::string(kChunkBytes, '\0')));
}

TroubledAnswer bytes_then(std::string bytes, TroubledAnswer::Then then) {
  TroubledAnswer answer;
  answer.bytes = std::move(bytes);
  answer.then = then;
  return answer;
}

TroubledAnswer redirect(const WebRoute& route, std::string_view default_location) {
  const std::string_view location = route.location.empty() ? default_location : std::string_view(route.location);
  return plain_answer(route.status != 0 ? route.status : 302, fmt::format("Location: {}\r\n", location), "moved\n");
}

TroubledAnswer retry_after(const WebRoute& route) {
  const std::string value = route.as_date ? http_date(std::time(nullptr) + route.seconds) : fmt::format("{}", route.seconds);
  return plain_answer(route.status != 0 ? route.status : 429, fmt::format("Retry-After: {}\r\n", value), "too many requests\n");
}

TroubledAnswer troubled_answer(const WebRoute& route, std::string_view path) {
  switch (route.trouble) {
    case Trouble::kNone:
      return file_answer(route);
    case Trouble::kStatus:
      return plain_answer(route.status != 0 ? route.status : 500, "", "trouble\n");
    case Trouble::kRetryAfter:
      return retry_after(route);
    case Trouble::kTruncated:
      return truncated(route);
    case Trouble::kHtml:
      if (!route.file_path.empty() && route.content_type == "text/html") {
        return file_answer(route);
      }
      return plain_answer(200, "", kPage, "text/html");
    case Trouble::kRedirect:
    case Trouble::kRedirectPrivate:
      return redirect(route, "http://10.0.0.1/");
    case Trouble::kRedirectLoop:
      return redirect(route, path);
    case Trouble::kSlowDrip:
      return slow_drip(route);
    case Trouble::kReset:
      // A client may resend silently when a kept connection breaks without a byte; a header line rules that out.
      return bytes_then("HTTP/1.1 200 -\r\nServer: troubled\r\n", TroubledAnswer::Then::kReset);
    case Trouble::kHang:
      return bytes_then("", TroubledAnswer::Then::kHang);
    case Trouble::kGarbage:
      return bytes_then("\x89PNG this is no HTTP\r\n\r\n", TroubledAnswer::Then::kClose);
    case Trouble::kChunked:
      return chunked(route, false);
    case Trouble::kCutChunks:
      return chunked(route, true);
    case Trouble::kEndless:
      return endless(route);
    case Trouble::kHugeHeaders:
      return repeating("HTTP/1.1 200 -\r\n", fmt::format("X-Filler: {}\r\n", std::string(1'000, 'x')));
    case Trouble::kNoai:
      return file_answer(route, fmt::format("X-Robots-Tag: {}\r\n", route.value));
    case Trouble::kGzipLabel:
      return file_answer(route, "Content-Encoding: gzip\r\n");
  }
  return plain_answer(500, "", "unknown trouble\n");
}

}  // namespace

TroubledAnswer plain_answer(int status, std::string_view extra_headers, std::string_view text, std::string_view type) {
  TroubledAnswer answer;
  answer.bytes = head(status, type, static_cast<int64_t>(text.size()), extra_headers);
  answer.bytes += text;
  return answer;
}

TroubledAnswer answer_request(WebRoute& route, std::string_view path) {
  const int64_t num_before = route.num_requests.fetch_add(1);
  if (route.times > 0 && num_before >= route.times) {
    return file_answer(route);
  }
  return troubled_answer(route, path);
}

}  // namespace darkroom
