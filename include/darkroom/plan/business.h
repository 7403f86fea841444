#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// A place where the model paints.
struct ModelUse {
  std::string where;
  std::string how;
  double pictures_per_year = 0;
  double dollars_per_picture = 0;  ///< What a picture brings in.
  double seconds_per_picture = 0;  ///< Of one accelerator of `machine`.
  std::string machine;             ///< Of the catalogue.
};

/// What a comparison of the custom model with an open one measured: a score where more is better. Either both scores with their standard
/// errors, of measurements that have nothing in common, or those of a report of `darkroom compare`, whose models painted the same prompts
/// from the same noise, with the standard error of their difference.
struct ModelComparison {
  std::string metric;  ///< Of a report: the name of its measure.
  double custom = 0;
  double custom_error = 0;
  double open = 0;
  double open_error = 0;
  std::string report = {};        ///< Path of a report.json; empty: both scores are given.
  std::string custom_model = {};  ///< Which model of the report is the custom one: "A" or "B".
  double difference_error = 0;    ///< Of a report: standard error of custom - open.
  int64_t num_prompts = 0;        ///< Of a report: prompts that the measure is of.
};

/// A stakeholder's case (docs/plan.md).
struct BusinessCase {
  std::string name;  ///< Of its file.
  double revenue_now = 0;
  double revenue_then = 0;
  double margin = 1;
  double years = 1;
  double budget_share = 0.1;
  double asked_dollars = 0;  ///< 0: nobody asked for a sum.
  double other_dollars = 0;
  double running_dollars = 0;
  double sensitivity_percent = 20;
  std::string purchase = "on_demand";
  std::vector<ModelUse> uses = {};
  std::optional<ModelComparison> comparison = {};
};

/// Reads a case. Errors: kInvalidArgument naming file, line, key and value. The numbers of a report are still missing.
Result<BusinessCase> parse_business_case(std::string_view text, const std::string& name);
/// Reads a case and the report that its comparison names. Errors: as above; where the report is missing, damaged, or lacks the measure,
/// those of the report with the case's name before them.
Result<BusinessCase> load_business_case(FileSystem& files, const std::string& path);

/// What the outcome becomes when one input is lower or higher.
struct SensitivityRow {
  std::string figure;
  std::string label;
  double low_input = 0;
  double high_input = 0;
  double low_outcome = 0;
  double high_outcome = 0;
};

/// A question and its answer, in sentences.
struct BusinessReply {
  std::string question;
  std::string answer;
};

struct BusinessAnswer {
  BusinessCase given;
  std::string outcome_figure;  ///< What the sensitivity is of.
  std::vector<BusinessReply> replies = {};
  std::vector<SensitivityRow> sensitivity = {};  ///< Widest first.
  /// Of the comparison: the outcome for draws of what was measured, ascending; empty without one.
  std::vector<double> outcomes = {};
  double share_worth_it = 0;  ///< Of the draws.
};

}  // namespace darkroom
