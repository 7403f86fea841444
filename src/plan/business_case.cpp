#include "darkroom/plan/business.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>

#include "comparison_report.h"
#include "darkroom/plan/catalogue.h"
#include "darkroom/toml/parse_toml.h"
#include "darkroom/toml/toml_fields.h"

namespace darkroom {
namespace {

ModelUse take_use(TomlFields& fields) {
  ModelUse use;
  use.where = fields.text("where");
  use.how = fields.text("how");
  use.pictures_per_year = fields.number("pictures_per_year", kAboveZero);
  use.dollars_per_picture = fields.number("dollars_per_picture");
  use.seconds_per_picture = fields.number("seconds_per_picture", kAboveZero);
  use.machine = fields.text("machine");
  return use;
}

ModelComparison take_comparison(TomlFields& fields) {
  ModelComparison comparison;
  if (fields.has("report")) {
    comparison.report = fields.text("report");
    comparison.metric = fields.text("measure");
    comparison.custom_model = fields.choice("custom_model", {"A", "B"});
    return comparison;
  }
  comparison.metric = fields.text("metric");
  comparison.custom = fields.number("custom", kAboveZero);
  comparison.custom_error = fields.number("custom_error");
  comparison.open = fields.number("open", kAboveZero);
  comparison.open_error = fields.number("open_error");
  return comparison;
}

void take_revenue(TomlFields& fields, BusinessCase& given) {
  given.revenue_now = fields.number("now_per_year");
  given.revenue_then = fields.number("then_per_year", kAboveZero);
  if (given.revenue_then <= given.revenue_now) {
    fields.fail("then_per_year", fmt::format("must be above now_per_year ({}), got: {}", given.revenue_now, given.revenue_then));
  }
  given.margin = fields.number_or("margin", given.margin, {.least = 0, .most = 1, .above_least = true});
  given.years = fields.number_or("years", given.years, kAboveZero);
}

void take_budget(TomlFields& fields, BusinessCase& given) {
  given.budget_share = fields.number_or("share_of_gain", given.budget_share, {.least = 0, .most = 1, .above_least = true});
  given.asked_dollars = fields.number_or("asked_dollars", 0);
  given.other_dollars = fields.number_or("other_dollars", 0);
  given.running_dollars = fields.number_or("running_dollars_per_year", 0);
  given.purchase = fields.has("purchase") ? fields.choice("purchase", {std::begin(kPurchases), std::end(kPurchases)})
                                          : fields.text_or("purchase", given.purchase);
  given.sensitivity_percent =
      fields.number_or("sensitivity_percent", given.sensitivity_percent, {.least = 0, .most = 90, .above_least = true});
}

// The one table of a name, where it is there.
Status take_one(TomlFields& file, const std::string& key, bool is_required, const std::function<void(TomlFields&)>& take) {
  std::vector<TomlFields> tables = file.tables(key);
  DARKROOM_RETURN_IF_ERROR(file.status());
  if (tables.size() > 1) {
    file.fail(key, "must be there once");
  } else if (tables.empty() && is_required) {
    file.fail("[" + key + "]", "is missing");
  } else if (!tables.empty()) {
    take(tables.front());
    return tables.front().finish();
  }
  return file.status();
}

}  // namespace

Result<BusinessCase> parse_business_case(std::string_view text, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const toml::table table, parse_toml(text, name));
  TomlFields file(table, name, "");
  BusinessCase given{.name = name};
  DARKROOM_RETURN_IF_ERROR(take_one(file, "revenue", true, [&](TomlFields& fields) { take_revenue(fields, given); }));
  DARKROOM_RETURN_IF_ERROR(take_one(file, "budget", false, [&](TomlFields& fields) { take_budget(fields, given); }));
  DARKROOM_RETURN_IF_ERROR(take_one(file, "comparison", false, [&](TomlFields& fields) { given.comparison = take_comparison(fields); }));
  for (TomlFields& fields : file.tables("use")) {
    given.uses.push_back(take_use(fields));
    DARKROOM_RETURN_IF_ERROR(fields.finish());
  }
  DARKROOM_RETURN_IF_ERROR(file.finish());
  return given;
}

Result<BusinessCase> load_business_case(FileSystem& files, const std::string& path) {
  const auto text = read_file(files, path);
  if (!text.is_ok()) {
    return Status::invalid_argument("cannot read the business case:", text.status().message());
  }
  DARKROOM_ASSIGN_OR_RETURN(BusinessCase given, parse_business_case(*text, path));
  if (given.comparison && !given.comparison->report.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_comparison_report(files, *given.comparison).with_context(path + ": [comparison] report"));
  }
  return given;
}

}  // namespace darkroom
