#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// What a trial changes of the recipe: fields by "section.key" and their values as `--set` takes them, in the order of the axes.
using TrialSettings = std::vector<std::pair<std::string, std::string>>;

/// "optimizer.lr=0.001 batch.global=64"; "the recipe" where nothing is changed.
std::string settings_text(const TrialSettings& settings);

/// One field of a recipe and what it may be: one of a few values, or any number of a range. Thread safety: a value type.
struct SearchAxis {
  std::string key = {};                  ///< "optimizer.lr".
  std::vector<std::string> values = {};  ///< As `--set` takes them; empty: a range.
  double low = 0;                        ///< Of a range, as are the following; low < high.
  double high = 0;
  bool is_log = false;    ///< Drawn evenly by the logarithm; low > 0.
  bool is_whole = false;  ///< Whole numbers, both ends among them.

  bool is_range() const { return values.empty(); }
  /// As parse_search_axis() takes it.
  std::string to_text() const;
  /// The value at `share` in [0, 1) of the axis; of a range rounded to three digits that count, or to as many more as keep it in its own
  /// one of `num_parts` equal parts of the axis, so that values of two parts are two values.
  std::string value_at(double share, int64_t num_parts) const;
  /// What a grid takes: the values, or `points` values of the range, its ends among them, each once.
  std::vector<std::string> grid_values(int64_t points) const;

  bool operator==(const SearchAxis&) const = default;

 private:
  double number_at(double share) const;  // Of a range of any numbers, not rounded.
};

/// Reads "key=a,b,c", or a range "key=1e-5..1e-2" with ":log", ":int" or ":int-log" behind it.
/// Errors: kInvalidArgument naming the text: no key or value, an end that is no number, ends the wrong way round, a logarithm of what is
/// not above 0, ends of whole numbers that are none, a value that comes twice.
Result<SearchAxis> parse_search_axis(std::string_view text);

/// A number as settings and messages state it: the shortest text that reads back to the same value.
std::string setting_number(double value);

}  // namespace darkroom
