#include "metrics_page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace darkroom {
namespace {

bool has_all(const Labels& labels, const Labels& wanted) {
  return std::ranges::all_of(wanted, [&](const auto& label) { return std::ranges::find(labels, label) != labels.end(); });
}

char shown(char c) { return c >= 0x20 && c < 0x7f ? c : '?'; }

std::optional<double> parse_value(std::string_view text) {
  if (text == "+Inf" || text == "-Inf") {
    return text.front() == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  if (text == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Takes `name="value"` off the front of `rest`. False: there is none.
bool take_label(std::string_view& rest, Labels& labels) {
  const size_t equals = rest.find("=\"");
  if (equals == std::string_view::npos) {
    return false;
  }
  std::string name;
  std::ranges::transform(rest.substr(0, equals), std::back_inserter(name), shown);
  std::string value;
  size_t i = equals + 2;
  for (; i < rest.size() && rest[i] != '"'; ++i) {
    const bool is_escaped = rest[i] == '\\' && i + 1 < rest.size();
    i += is_escaped ? 1 : 0;
    value += is_escaped && rest[i] == 'n' ? '?' : shown(rest[i]);
  }
  if (i == rest.size()) {
    return false;
  }
  labels.emplace_back(std::move(name), std::move(value));
  rest.remove_prefix(i + 1);
  return true;
}

/// Takes `{...}` off the front of `rest`, where there is one. False: it has no end.
bool take_labels(std::string_view& rest, Labels& labels) {
  if (!rest.starts_with('{')) {
    return true;
  }
  rest.remove_prefix(1);
  while (!rest.starts_with('}')) {
    if (!take_label(rest, labels)) {
      return false;
    }
    rest.remove_prefix(rest.starts_with(',') ? 1 : 0);
  }
  rest.remove_prefix(1);
  return true;
}

}  // namespace

std::string MetricsPage::Sample::label(std::string_view name) const {
  const auto found = std::ranges::find(labels, name, [](const auto& label) { return std::string_view(label.first); });
  return found == labels.end() ? std::string() : found->second;
}

Result<MetricsPage> MetricsPage::parse(std::string_view text) {
  MetricsPage page;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') {
      continue;
    }
    std::string_view rest = line.substr(std::min(line.find_first_of("{ "), line.size()));
    const std::string name(line.substr(0, line.size() - rest.size()));
    Sample sample;
    const bool has_labels = take_labels(rest, sample.labels) && rest.starts_with(' ');
    const auto value = has_labels ? parse_value(rest.substr(1)) : std::nullopt;
    if (!value) {
      return Status::corrupt_data("what was answered are no metrics; is it a darkroom's address? Line:", number);
    }
    sample.value = *value;
    page.samples_[name].push_back(std::move(sample));
  }
  return page;
}

const std::vector<MetricsPage::Sample>& MetricsPage::samples(const std::string& name) const {
  static const std::vector<Sample> none;
  const auto found = samples_.find(name);
  return found == samples_.end() ? none : found->second;
}

std::optional<double> MetricsPage::find(const std::string& name, const Labels& labels) const {
  for (const Sample& sample : samples(name)) {
    if (has_all(sample.labels, labels)) {
      return sample.value;
    }
  }
  return std::nullopt;
}

double MetricsPage::sum(const std::string& name, const Labels& labels) const {
  double sum = 0;
  for (const Sample& sample : samples(name)) {
    sum += has_all(sample.labels, labels) ? sample.value : 0;
  }
  return sum;
}

}  // namespace darkroom
