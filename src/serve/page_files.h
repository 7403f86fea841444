#pragma once

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

/// The reply with a file of the page: 200, 304 where If-None-Match (`known_tags`) names it as it is, 404 where there is none.
HttpReply page_reply(std::string_view name, std::string_view known_tags);

}  // namespace darkroom
