#include "page_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "protocols.h"

namespace darkroom {
namespace {

// The page runs its own files alone, asks its own server alone, and stands in no other page. Pictures are made in the page, too.
constexpr const char* kPagePolicy =
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view type_of_page_file(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{".html", "text/html; charset=utf-8"},
                                                                             {".css", "text/css; charset=utf-8"},
                                                                             {".js", "text/javascript; charset=utf-8"},
                                                                             {".json", "application/json"},
                                                                             {".svg", "image/svg+xml"}};
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) { return name.ends_with(type.first); });
  return found == std::end(kTypes) ? "application/octet-stream" : found->second;
}

HttpReply reply_to_page_call(const RouteCall& call) {
  const std::string_view name = call.parameters.empty() ? std::string_view("index.html") : std::string_view(call.parameters.front());
  return page_reply(name, call.question.header("if-none-match"));
}

}  // namespace

HttpReply page_reply(std::string_view name, std::string_view known_tags) {
  const auto files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& one) { return one.name == name; });
  if (file == files.end()) {
    return problem_reply(http_status::kNotFound, "the page has no such file");
  }
  const std::string tag = fmt::format("\"{}\"", file->sha256.substr(0, 32));
  HttpReply reply{.type = std::string(type_of_page_file(file->name))};
  reply.headers = {{"ETag", tag},
                   {"Cache-Control", "no-cache"},  // Kept, but asked for each time: another version of the program has another page.
                   {"Content-Security-Policy", kPagePolicy},
                   {"Referrer-Policy", "no-referrer"}};
  if (known_tags == "*" || known_tags.find(tag) != std::string_view::npos) {
    reply.status = http_status::kNotModified;
  } else {
    reply.body = std::string(file->bytes);
  }
  return reply;
}

// Open: the files hold no secret, and the page itself asks for a key.
void add_page_routes(RouteTable& table) {
  const auto answer = answer_at_once(reply_to_page_call);
  const RouteReply not_modified{.status = http_status::kNotModified, .type = "", .what = "The client has it as it is."};
  for (const char* method : {"GET", "HEAD"}) {
    table.add({.method = method,
               .path = "/",
               .summary = "The page",
               .answer = answer,
               .is_open = true,
               .replies = {{.type = "text/html", .what = "The page."}, not_modified}});
    table.add({.method = method,
               .path = "/page/{file}",
               .summary = "A file of the page",
               .answer = answer,
               .is_open = true,
               .replies = {{.type = "*/*", .what = "The file."}, not_modified}});
  }
}

}  // namespace darkroom
