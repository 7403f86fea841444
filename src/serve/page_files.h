#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "darkroom/serve/http_server.h"

namespace darkroom {

/// A file within the program (cmake/embed_files.cmake).
struct EmbeddedFile {
  std::string_view name;
  std::string_view sha256;  ///< In hexadecimal digits.
  std::string_view bytes;
};

/// The files of the folder src/serve/page.
std::span<const EmbeddedFile> page_files();

/// Whether a path is the page's: "/", which others may share with another method, or "/page/NAME".
bool is_page_path(std::string_view path);

/// The reply to GET and HEAD of the page ("/" is index.html) and of its files: 200, 304 where the client has the file, or 404 and 405 below
/// "/page/". Nothing: the question is not the page's.
std::optional<HttpReply> page_reply(const HttpQuestion& head);

}  // namespace darkroom
