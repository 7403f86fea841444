#include "comparison_report.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/result.h"

namespace darkroom {
namespace {

using ReportJson = nlohmann::json;

constexpr int64_t kReportVersion = 2;  // The first one that states standard errors.
constexpr const char* kWriteAnew = "the same compare command in its folder writes only the report anew";

const ReportJson& field_of(const ReportJson& object, const char* key) {
  static const ReportJson kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

std::string shown(const ReportJson& value) {
  return value.is_null() ? "nothing" : value.dump(-1, ' ', false, ReportJson::error_handler_t::replace).substr(0, 100);
}

Result<ReportJson> read_report(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  ReportJson report = parse_json<ReportJson>(text);
  if (!report.is_object() || field_of(report, "format") != "darkroom comparison report") {
    return Status::corrupt_data("this is no report.json of darkroom compare:", path);
  }
  const ReportJson& version = field_of(report, "version");
  if (!version.is_number_integer()) {
    return Status::corrupt_data(fmt::format("{}: version must be a number, got:", path), shown(version));
  }
  if (version < kReportVersion) {
    return Status::failed_precondition(
        fmt::format("{}: a report of version {} states no standard errors; {}, version:", path, kReportVersion - 1, kWriteAnew),
        shown(version));
  }
  if (version != kReportVersion) {
    return Status::failed_precondition(fmt::format("{}: only version {} is known, got:", path, kReportVersion), shown(version));
  }
  return report;
}

Result<ReportJson> find_measure(const ReportJson& report, const std::string& path, const std::string& name) {
  const ReportJson& measures = field_of(report, "measures");
  if (!measures.is_array()) {
    return Status::corrupt_data(fmt::format("{}: measures must be a list, got:", path), shown(measures));
  }
  std::string names;
  for (const ReportJson& measure : measures) {
    if (!measure.is_object() || !field_of(measure, "name").is_string()) {
      return Status::corrupt_data(fmt::format("{}: a measure has no name, got:", path), shown(measure));
    }
    if (measure["name"] == name) {
      return measure;
    }
    names += (names.empty() ? "" : ", ") + measure["name"].get<std::string>();
  }
  return Status::failed_precondition(fmt::format("{} has no such measure; it has: {}; got:", path, names.empty() ? "none" : names), name);
}

/// Takes the numbers of one measure and keeps the first failure.
class MeasureNumbers {
 public:
  MeasureNumbers(const ReportJson& measure, std::string place) : measure_(measure), place_(std::move(place)) {}

  double number(const char* key) {
    const ReportJson& value = field_of(measure_, key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fail(key, "must be a number");
      return 0;
    }
    return value.get<double>();
  }
  void fail(const char* key, std::string_view what) {
    if (status_.is_ok()) {
      status_ = Status::corrupt_data(fmt::format("{}: {} {}, got:", place_, key, what), shown(field_of(measure_, key)));
    }
  }
  const Status& status() const { return status_; }

 private:
  const ReportJson& measure_;
  std::string place_;
  Status status_;
};

// A score that gain can be in proportion to, measured on prompts enough to know how far it may be off.
Status check_is_score(const ReportJson& measure, const std::string& place) {
  if (field_of(measure, "higher_is_better") != true) {
    return Status::failed_precondition("gain cannot be in proportion to a measure of which less is better; take another measure:", place);
  }
  if (field_of(measure, "standard_error").is_null()) {
    return Status::failed_precondition("the measure has no standard error, as of one prompt alone; compare on more prompts:", place);
  }
  return Status::ok();
}

}  // namespace

Status read_comparison_report(FileSystem& files, ModelComparison& comparison) {
  DARKROOM_ASSIGN_OR_RETURN(const ReportJson report, read_report(files, comparison.report));
  DARKROOM_ASSIGN_OR_RETURN(const ReportJson measure, find_measure(report, comparison.report, comparison.metric));
  const std::string place = fmt::format("{}, measure {}", comparison.report, comparison.metric);
  DARKROOM_RETURN_IF_ERROR(check_is_score(measure, place));
  MeasureNumbers numbers(measure, place);
  const double a = numbers.number("a"), b = numbers.number("b"), difference = numbers.number("difference");
  comparison.difference_error = numbers.number("standard_error");
  const double num_prompts = numbers.number("num_prompts");
  if (comparison.difference_error < 0) {
    numbers.fail("standard_error", "must be from 0");
  }
  if (num_prompts < 2 || num_prompts > 1e9 || num_prompts != std::floor(num_prompts)) {
    numbers.fail("num_prompts", "must be a whole number from 2");
  }
  if (std::abs(difference - (a - b)) > 1e-9 * (std::abs(a) + std::abs(b))) {
    numbers.fail("difference", fmt::format("must be a - b ({} - {})", a, b));
  }
  DARKROOM_RETURN_IF_ERROR(numbers.status());
  const bool custom_is_a = comparison.custom_model == "A";
  comparison.custom = custom_is_a ? a : b;
  comparison.open = custom_is_a ? b : a;
  comparison.num_prompts = static_cast<int64_t>(num_prompts);
  if (comparison.custom <= 0 || comparison.open < 0) {
    return Status::failed_precondition(fmt::format("{}: gain can be in proportion only to scores above 0 (custom, open):", place),
                                       comparison.custom, comparison.open);
  }
  return Status::ok();
}

}  // namespace darkroom
