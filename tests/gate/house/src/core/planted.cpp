#include "darkroom/core/planted.h"

#include <cstdlib>

namespace darkroom {

bool is_planted(const std::string& fault) {
  const char* planted = std::getenv("DARKROOM_PLANTED");
  return planted != nullptr && fault == planted;
}

}  // namespace darkroom
