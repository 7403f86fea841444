#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"

namespace darkroom {

/// One scrape: Prometheus' text as samples. Thread safety: a value type.
class MetricsPage {
 public:
  struct Sample {
    Labels labels;  ///< As they came.
    double value = 0;

    /// The value of a label; "": it has none of that name.
    std::string label(std::string_view name) const;
  };

  /// Bytes of names and labels that no terminal should get become '?'.
  /// Errors: kCorruptData naming the first line that is no sample.
  static Result<MetricsPage> parse(std::string_view text);

  /// The samples of a name in the order of the page.
  const std::vector<Sample>& samples(const std::string& name) const;
  /// The first sample of this name whose labels have all of these.
  std::optional<double> find(const std::string& name, const Labels& labels = {}) const;
  double value_or(const std::string& name, double otherwise, const Labels& labels = {}) const {
    return find(name, labels).value_or(otherwise);
  }
  /// Of all samples of this name whose labels have all of these.
  double sum(const std::string& name, const Labels& labels = {}) const;

 private:
  std::map<std::string, std::vector<Sample>> samples_;
};

}  // namespace darkroom
