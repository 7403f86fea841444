#include "nearest_name.h"

#include <algorithm>

#include "darkroom/core/typing_mistakes.h"

namespace darkroom {

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kLongestName = 64;  // The cost is the product of both lengths; no name of ours is longer.
  if (name.size() > kLongestName) {
    return {};
  }
  std::string nearest;
  size_t least = name.size();
  for (const std::string& candidate : candidates) {
    // Half of a longer name is near, too: --negative-prompt for --negative.
    const bool begins_alike = name.size() >= 4 && (candidate.starts_with(name) || (candidate.size() >= 5 && name.starts_with(candidate)));
    const size_t mistakes = begins_alike ? 1 : typing_mistakes(name, candidate);
    if (mistakes <= std::max<size_t>(1, (std::max(name.size(), candidate.size()) + 1) / 3) && mistakes < least) {
      least = mistakes;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string suggestion(std::string_view name, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? std::string() : "; did you mean " + nearest + "?";
}

}  // namespace darkroom
