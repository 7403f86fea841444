#include "darkroom/files/local_path.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "darkroom/core/shown_uri.h"

namespace darkroom {
namespace {

Result<std::string> decode_percent(std::string_view text, const std::string& uri) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto is_hex = [&](size_t at) { return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0; };
    if (!is_hex(i + 1) || !is_hex(i + 2)) {
      return Status::invalid_argument("a % in a file:// address must be followed by two hexadecimal digits:", shown_uri(uri));
    }
    decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return decoded;
}

}  // namespace

Result<std::string> local_path(const std::string& uri) {
  const size_t colon = uri.find("://");
  if (colon == std::string::npos) {
    return uri.empty() ? Result<std::string>(Status::invalid_argument("an empty path was given")) : uri;
  }
  std::string scheme = uri.substr(0, colon);
  std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (scheme == "s3" || scheme == "hf" || scheme == "https" || scheme == "http") {
    return Status::invalid_argument("local paths alone are taken here; name one, and copy between it and the address:", shown_uri(uri));
  }
  if (scheme != "file") {
    return Status::invalid_argument("unknown kind of address; give a path or a file:// address:", shown_uri(uri));
  }
  const std::string_view rest = std::string_view(uri).substr(colon + 3);
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || (slash > 0 && rest.substr(0, slash) != "localhost")) {
    return Status::invalid_argument("a file:// address needs an absolute path and no host (file:///folder/name):", shown_uri(uri));
  }
  return decode_percent(rest.substr(slash), uri);
}

}  // namespace darkroom
