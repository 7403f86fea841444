#pragma once

#include <map>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

/// From what to what a number may be. Both ends are 0 or more, low <= high.
struct Range {
  double low = 0;
  double high = 0;

  bool operator==(const Range&) const = default;
};

/// A measured rate, a price or an assumption, and where it comes from.
struct Figure {
  Range value = {};
  std::string unit = {};
  std::string date = {};
  std::string source = {};
};

/// The figures that estimates are made of, by name (recipes/catalogue.json). Thread safety: immutable after loading.
class Catalogue {
 public:
  /// Reads the figures of a catalogue file; those whose names are known already are replaced: own figures over those that are shipped.
  /// `source`: the file's path, for messages. Errors: kInvalidArgument naming file, figure and field.
  Status add(std::string_view json, const std::string& source);

  /// Errors: kFailedPrecondition (no such figure).
  Result<Figure> find(const std::string& name) const;
  const std::map<std::string, Figure>& figures() const { return figures_; }

 private:
  std::map<std::string, Figure> figures_;
};

}  // namespace darkroom
