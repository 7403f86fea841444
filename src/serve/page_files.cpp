#include "page_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace darkroom {
namespace {

constexpr std::string_view kFolder = "/page/";
// The page runs its own files alone, asks its own server alone, and stands in no other page. Pictures are made in the page, too.
constexpr const char* kPolicy =
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view type_of(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{".html", "text/html; charset=utf-8"},
                                                                             {".css", "text/css; charset=utf-8"},
                                                                             {".js", "text/javascript; charset=utf-8"},
                                                                             {".json", "application/json"},
                                                                             {".svg", "image/svg+xml"}};
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) { return name.ends_with(type.first); });
  return found == std::end(kTypes) ? "application/octet-stream" : found->second;
}

HttpReply refused(int status, const char* sentence) { return {.status = status, .type = "text/plain; charset=utf-8", .body = sentence}; }

HttpReply reply_with(const EmbeddedFile& file, std::string_view known_tags) {
  const std::string tag = fmt::format("\"{}\"", file.sha256.substr(0, 32));
  HttpReply reply{.type = std::string(type_of(file.name))};
  reply.headers = {{"ETag", tag},
                   {"Cache-Control", "no-cache"},  // Kept, but asked for each time: another version of the program has another page.
                   {"Content-Security-Policy", kPolicy},
                   {"Referrer-Policy", "no-referrer"}};
  if (known_tags == "*" || known_tags.find(tag) != std::string_view::npos) {
    reply.status = 304;
  } else {
    reply.body = std::string(file.bytes);
  }
  return reply;
}

}  // namespace

bool is_page_path(std::string_view path) { return path == "/" || path.starts_with(kFolder); }

std::optional<HttpReply> page_reply(const HttpQuestion& head) {
  const bool reads = head.method == "GET" || head.method == "HEAD";
  if (!is_page_path(head.path) || (head.path == "/" && !reads)) {
    return std::nullopt;
  }
  const std::string_view name = head.path == "/" ? std::string_view("index.html") : std::string_view(head.path).substr(kFolder.size());
  const auto files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& one) { return one.name == name; });
  if (file == files.end()) {
    return refused(404, "the page has no such file\n");
  }
  if (!reads) {
    HttpReply reply = refused(405, "the page's files take GET and HEAD only\n");
    reply.headers.emplace_back("Allow", "GET, HEAD");
    return reply;
  }
  return reply_with(*file, head.header("if-none-match"));
}

}  // namespace darkroom
