#include "nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace darkroom {
namespace {

// Typing mistakes that count as one: a letter too many, missing or wrong, or two letters swapped (optimal string alignment).
size_t typing_mistakes(std::string_view a, std::string_view b) {
  std::vector<size_t> two_above(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
    std::swap(two_above, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

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
