#include "flags.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace darkroom {

Result<Flags> Flags::parse(int argc, char** argv, const std::vector<std::string>& known) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--")) {
      flags.names_.emplace_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Status::invalid_argument("there is no flag:", std::string(argument));
    }
    if (equals == std::string_view::npos && i + 1 == argc) {
      return Status::invalid_argument("a flag without its value:", std::string(argument));
    }
    const std::string value = equals == std::string_view::npos ? std::string(argv[++i]) : std::string(argument.substr(equals + 1));
    if (!flags.values_.emplace(name, value).second) {
      return Status::invalid_argument("a flag given twice:", name);
    }
  }
  return flags;
}

std::string Flags::text(const std::string& flag, const std::string& otherwise) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? otherwise : found->second;
}

Result<int64_t> Flags::number(const std::string& flag, int64_t otherwise) const {
  const auto found = values_.find(flag);
  if (found == values_.end()) {
    return otherwise;
  }
  int64_t value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto [stop, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc() || stop != end) {
    return Status::invalid_argument("a flag wants a whole number (flag, value):", flag, found->second);
  }
  return value;
}

}  // namespace darkroom
