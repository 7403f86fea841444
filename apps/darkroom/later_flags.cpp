#include "later_flags.h"

#include <string>
#include <vector>

namespace darkroom {

void refuse_later_flags(CLI::App& command, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    command
        .add_option_function<std::vector<std::string>>(
            name, [name](const std::vector<std::string>&) { throw CLI::ValidationError(name, "this flag is not built yet"); })
        ->expected(0, 1)
        ->group("");
  }
}

}  // namespace darkroom
