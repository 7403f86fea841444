#include "darkroom/tables/input_name.h"

#include <algorithm>

namespace darkroom {

std::string input_name(const std::string& name, const std::vector<std::string>& names) {
  std::string renamed = "input_" + name;
  while (std::ranges::find(names, renamed) != names.end()) {
    renamed = "input_" + renamed;
  }
  return renamed;
}

}  // namespace darkroom
