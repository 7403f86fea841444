#include "darkroom/core/printable.h"

#include "darkroom/core/utf8.h"

namespace darkroom {

std::string printable(std::string_view text) {
  std::string result;
  for (const char32_t c : decode_utf8(text)) {
    append_utf8(result, c < 0x20 || (c >= 0x7F && c < 0xA0) ? U'?' : c);
  }
  return result;
}

}  // namespace darkroom
