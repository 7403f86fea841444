#include "darkroom/core/check.h"

namespace darkroom {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckFailure(fmt::format("{}:{}: check failed: {}{}{}", file, line, condition, message.empty() ? "" : ": ", message));
}

}  // namespace darkroom
