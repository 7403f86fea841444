#pragma once

#include <map>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A command line of the form PROGRAM [NAME...] [--flag VALUE | --flag=VALUE]...
class Flags {
 public:
  /// Errors: kInvalidArgument for a flag that is not in `known` (names without dashes), one without its value, one given twice.
  static Result<Flags> parse(int argc, char** argv, const std::vector<std::string>& known);

  const std::vector<std::string>& names() const { return names_; }
  std::string text(const std::string& flag, const std::string& otherwise) const;
  /// Errors: kInvalidArgument for what is no whole number.
  Result<int64_t> number(const std::string& flag, int64_t otherwise) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> values_;
};

}  // namespace darkroom
