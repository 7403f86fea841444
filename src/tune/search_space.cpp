#include "darkroom/tune/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace darkroom {
namespace {

constexpr double kLargestWhole = 1e15;  // Every whole number up to here is a double.

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
  return is_number ? std::optional(value) : std::nullopt;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status bad_axis(std::string_view what, std::string_view text) {
  return Status::invalid_argument(fmt::format("--set-range: {}, got:", what), text);
}

// Of "low..high", with ":log", ":int" or ":int-log" behind it.
Status read_range(std::string_view values, size_t dots, std::string_view text, SearchAxis& axis) {
  const size_t colon = std::min(values.find(':'), values.size());
  const std::string_view kind = values.substr(colon);
  const auto low = number_of(values.substr(0, dots));
  const auto high = number_of(values.substr(dots + 2, colon - std::min(colon, dots + 2)));
  if (!low || !high) {
    return bad_axis("both ends of a range are numbers, as in optimizer.lr=1e-5..1e-2:log", text);
  }
  if (!kind.empty() && kind != ":log" && kind != ":int" && kind != ":int-log") {
    return bad_axis("behind a range may stand :log, :int or :int-log", text);
  }
  axis.low = *low;
  axis.high = *high;
  axis.is_log = kind.ends_with("log");
  axis.is_whole = kind.starts_with(":int");
  if (!(axis.low < axis.high)) {
    return bad_axis("a range begins below its end", text);
  }
  if (!std::isfinite(axis.high - axis.low)) {
    return bad_axis("the ends of a range are further apart than a number can say", text);
  }
  if (axis.is_log && axis.low <= 0) {
    return bad_axis("a range by its logarithm begins above 0", text);
  }
  if (axis.is_whole && (axis.low != std::floor(axis.low) || axis.high != std::floor(axis.high) ||
                        std::max(std::abs(axis.low), std::abs(axis.high)) > kLargestWhole)) {
    return bad_axis("a range of whole numbers begins and ends with one", text);
  }
  return {};
}

/// Three digits that count, so that a recipe stays readable, and more where numbers `width` apart must stay apart.
class Rounding {
 public:
  Rounding(double value, double width) : value_(value) {
    if (value != 0 && width / 2 > 0) {  // No digits tell apart what lies at the same double.
      const int first = decade(value);
      digits_ = std::clamp(first - decade(width / 2) + 1, kFewestDigits, kMostDigits);
      unit_ = std::pow(10, first - digits_ + 1);
    }
  }
  double rounded() const { return rounded(value_); }
  // The nearest such number in [begin, end), which is as wide as was said; one at its edge where the digits of a double do not hold one.
  double rounded_within(double begin, double end) const {
    const double nearest = rounded();
    return nearest < begin ? rounded(nearest + unit_) : nearest >= end ? rounded(nearest - unit_) : nearest;
  }

 private:
  static constexpr int kFewestDigits = 3, kMostDigits = 17;

  static int decade(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)))); }
  double rounded(double value) const { return number_of(fmt::format("{:.{}e}", value, digits_ - 1)).value_or(value); }

  double value_;
  int digits_ = kMostDigits;
  double unit_ = 0;
};

}  // namespace

std::string setting_number(double value) {
  return std::abs(value) <= kLargestWhole && value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string settings_text(const TrialSettings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += (text.empty() ? "" : " ") + key + "=" + value;
  }
  return text.empty() ? "the recipe" : text;
}

Result<SearchAxis> parse_search_axis(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return bad_axis("takes section.key=a,b,c or section.key=low..high", text);
  }
  SearchAxis axis{.key = std::string(text.substr(0, equals))};
  const std::string_view values = text.substr(equals + 1);
  if (const size_t dots = values.find(".."); dots != std::string_view::npos) {
    DARKROOM_RETURN_IF_ERROR(read_range(values, dots, text, axis));
    return axis;
  }
  axis.values = split(values, ',');
  for (size_t i = 0; i < axis.values.size(); ++i) {
    if (axis.values[i].empty()) {
      return bad_axis("a value between two commas is empty", text);
    }
    if (std::find(axis.values.begin(), axis.values.begin() + static_cast<std::ptrdiff_t>(i), axis.values[i]) !=
        axis.values.begin() + static_cast<std::ptrdiff_t>(i)) {
      return bad_axis(fmt::format("the value {} comes twice", axis.values[i]), text);
    }
  }
  return axis;
}

std::string SearchAxis::to_text() const {
  if (is_range()) {
    const char* kind = is_whole && is_log ? ":int-log" : is_whole ? ":int" : is_log ? ":log" : "";
    return fmt::format("{}={}..{}{}", key, setting_number(low), setting_number(high), kind);
  }
  return fmt::format("{}={}", key, fmt::join(values, ","));
}

double SearchAxis::number_at(double share) const {
  return is_log ? std::exp(std::log(low) * (1 - share) + std::log(high) * share) : low + share * (high - low);
}

std::string SearchAxis::value_at(double share, int64_t num_parts) const {
  if (!is_range()) {
    const auto index = static_cast<size_t>(share * static_cast<double>(values.size()));
    return values[std::min(index, values.size() - 1)];
  }
  if (is_whole) {
    // Each whole number has an equal part of the axis, from half a step before it to half a step behind it.
    const double first = low - 0.5, last = high + 0.5;
    const double at =
        is_log ? std::exp(std::log(std::max(first, 0.5)) * (1 - share) + std::log(last) * share) : first + share * (last - first);
    return setting_number(std::clamp(std::round(at), low, high));
  }
  const auto parts = static_cast<double>(num_parts);
  const double part = std::floor(share * parts), begin = number_at(part / parts), end = number_at((part + 1) / parts);
  return setting_number(std::clamp(Rounding(number_at(share), end - begin).rounded_within(begin, end), low, high));
}

std::vector<std::string> SearchAxis::grid_values(int64_t points) const {
  if (!is_range()) {
    return values;
  }
  std::vector<std::string> grid;
  for (int64_t i = 0; i < points; ++i) {
    const double share = points == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(points - 1);
    const double at = number_at(share);
    const double gap = points == 1 ? high - low : at - number_at(share - 1 / static_cast<double>(points - 1));
    const double inside = i == 0 && points > 1            ? low
                          : i == points - 1 && points > 1 ? high
                          : is_whole                      ? std::round(at)
                                                          : std::clamp(Rounding(at, gap).rounded(), low, high);
    const std::string value = setting_number(inside);
    if (std::find(grid.begin(), grid.end(), value) == grid.end()) {
      grid.push_back(value);
    }
  }
  return grid;
}

}  // namespace darkroom
