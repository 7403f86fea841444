#include "darkroom/core/printable.h"

#include "darkroom/core/shown_uri.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

std::string without_controls(std::string_view text, std::u32string_view kept) {
  std::string result;
  for (const char32_t c : decode_utf8(text)) {
    const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    append_utf8(result, is_control && kept.find(c) == std::u32string_view::npos ? U'?' : c);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return without_controls(text, U""); }
std::string printable_message(std::string_view message) { return without_controls(without_uri_secrets(message), U"\n\t"); }

}  // namespace darkroom
