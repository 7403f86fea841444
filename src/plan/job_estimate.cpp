#include "darkroom/plan/job_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kBytesPerGib = 1 << 30;
// What docs/stores.md and docs/ingest.md say of one run: it looks for parts, claims, leftovers and the job's own files, and writes those.
constexpr Range kWritesPerRun = {8, 40};
constexpr Range kReadsPerRun = {10, 60};
// A claim is made and given back (DELETE costs nothing); a slow item renews it every three minutes.
constexpr Range kWritesPerClaim = {1, 10};
constexpr Range kReadsPerItem = {3, 12};

Range operator*(const Range& a, const Range& b) { return {a.low * b.low, a.high * b.high}; }
Range operator*(const Range& a, double factor) { return {a.low * factor, a.high * factor}; }
Range operator+(const Range& a, const Range& b) { return {a.low + b.low, a.high + b.high}; }
Range exactly(double value) { return {value, value}; }

/// Requests that make one object of so many bytes: one PUT, or the begin, the parts and the end of an upload.
double writes_of_object(double num_bytes) {
  const double num_parts = std::ceil(num_bytes / static_cast<double>(kObjectPartBytes));
  return num_parts <= 1 ? 1 : num_parts + 2;
}

/// Hours that rows take at rows per second; the best case is the highest rate.
Range hours_of(double num_rows, const Range& rate) {
  const auto hours = [&](double rows_per_second) { return rows_per_second > 0 ? num_rows / rows_per_second / kSecondsPerHour : 0; };
  return {hours(rate.high), hours(rate.low)};
}

void count_requests(const JobOutlook& outlook, JobEstimate& estimate) {
  const auto num_pending = static_cast<double>(outlook.num_pending);
  if (outlook.writes_objects && outlook.num_pending > 0) {
    const Range object = estimate.bytes_out * (1 / num_pending);
    estimate.writes = Range{writes_of_object(object.low), writes_of_object(object.high)} * num_pending + kWritesPerClaim * num_pending;
    estimate.reads = kReadsPerItem * num_pending;
    estimate.writes = estimate.writes + kWritesPerRun;
    estimate.reads = estimate.reads + kReadsPerRun;
  }
  if (outlook.reads_objects) {
    // The end of every input once; then ranges: at most a part's size each, at best all of a row group's columns at once.
    const double num_ranges = std::ceil(static_cast<double>(outlook.input_bytes) / static_cast<double>(kObjectPartBytes));
    constexpr double kRangesPerMegabyte = 8;  // One per column and page run, where columns are small.
    estimate.reads = estimate.reads + Range{num_ranges, num_ranges * kRangesPerMegabyte + 8 * num_pending} +
                     exactly(static_cast<double>(2 * outlook.num_inputs));
    estimate.writes = estimate.writes + exactly(1 + std::ceil(static_cast<double>(outlook.num_inputs) / 1000));  // Listing them.
  }
}

std::string shown_count(const Range& range) {
  return range.low == range.high ? fmt::format("{:.0f}", range.low) : fmt::format("{:.0f} to {:.0f}", range.low, range.high);
}

std::string shown_bytes(const Range& range) {
  const double unit = range.high >= 1e12 ? 1e12 : range.high >= 1e9 ? 1e9 : range.high >= 1e6 ? 1e6 : 1e3;
  const char* name = range.high >= 1e12 ? "TB" : range.high >= 1e9 ? "GB" : range.high >= 1e6 ? "MB" : "kB";
  return range.low == range.high ? fmt::format("{:.1f} {}", range.low / unit, name)
                                 : fmt::format("{:.1f} to {:.1f} {}", range.low / unit, range.high / unit, name);
}

std::string shown_small(const Range& range) {
  const auto shown = [](double value) { return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value); };
  return range.low == range.high ? shown(range.low) : fmt::format("{} to {}", shown(range.low), shown(range.high));
}

nlohmann::json json_of(const Range& range) { return {{"low", range.low}, {"high", range.high}}; }

nlohmann::json json_of(const Known& known) { return {{"low", known.value.low}, {"high", known.value.high}, {"from", known.from}}; }

void assume(JobEstimate& estimate, std::string_view what, const Known& known) {
  if (!known.from.empty()) {
    estimate.assumptions.push_back(fmt::format("{}: {} ({})", what, shown_small(known.value), known.from));
  }
}

Status add_prices(const Catalogue& catalogue, JobEstimate& estimate) {
  struct Price {
    const char* name;
    Range amount;
    Range* target;
  };
  const Price prices[] = {{"dollars_per_thousand_writes", estimate.writes * 1e-3, &estimate.dollars_for_requests},
                          {"dollars_per_thousand_reads", estimate.reads * 1e-3, &estimate.dollars_for_requests},
                          {"storage_dollars_per_gib_month", estimate.bytes_out * (1 / kBytesPerGib), &estimate.dollars_per_month}};
  for (const Price& price : prices) {
    if (price.target == &estimate.dollars_per_month && !estimate.outlook.writes_objects) {
      continue;  // On a disk nothing has a price.
    }
    DARKROOM_ASSIGN_OR_RETURN(const RangedFigure figure, catalogue.find(price.name));
    *price.target = *price.target + price.amount * figure.value;
    assume(estimate, figure.unit, {figure.value, fmt::format("{}, {}", figure.origin.date, figure.origin.source)});
  }
  return Status::ok();
}

}  // namespace

Result<JobEstimate> estimate_job(const JobOutlook& outlook, const Catalogue& catalogue) {
  DARKROOM_CHECK(outlook.num_rows >= 0 && outlook.num_pending >= 0 && outlook.input_bytes >= 0, "an outlook has no negative counts");
  JobEstimate estimate{.outlook = outlook};
  const auto num_rows = static_cast<double>(outlook.num_rows);
  estimate.rows_out = outlook.good_percent.value * (num_rows / 100);
  const Range rewritten = exactly(static_cast<double>(outlook.rewritten_bytes));
  estimate.bytes_out = estimate.rows_out * outlook.row_bytes.value + rewritten;
  estimate.bytes_in = estimate.rows_out * outlook.row_bytes_in.value + rewritten + exactly(static_cast<double>(outlook.input_bytes));
  estimate.hours = hours_of(num_rows, outlook.rows_per_second.value);
  count_requests(outlook, estimate);
  assume(estimate, "% of the rows that arrive", outlook.good_percent);
  assume(estimate, "bytes per row of the output", outlook.row_bytes);
  assume(estimate, "bytes fetched per row", outlook.row_bytes_in);
  assume(estimate, "rows per second", outlook.rows_per_second);
  if (outlook.writes_objects || outlook.reads_objects) {
    DARKROOM_RETURN_IF_ERROR(add_prices(catalogue, estimate));
  }
  return estimate;
}

std::string JobEstimate::to_text() const {
  std::string text = fmt::format("to do: {} of {} items, {} rows; {} rows come out\n", outlook.num_pending, outlook.num_items,
                                 outlook.num_rows, shown_count(rows_out));
  text += fmt::format("bytes: {} in, {} out\n", shown_bytes(bytes_in), shown_bytes(bytes_out));
  text += fmt::format("time: {} hours on this machine alone, by {} rate (below)\n", shown_small(hours),
                      outlook.is_rate_measured ? "a measured" : "an estimated");
  if (outlook.writes_objects || outlook.reads_objects) {
    text += fmt::format("requests to the store: {} that write or list, {} that read; {} dollars\n", shown_count(writes), shown_count(reads),
                        shown_small(dollars_for_requests));
  } else {
    text += "requests to the store: none, all is on disks of this machine\n";
  }
  text += outlook.writes_objects ? fmt::format("keeping the output: {} dollars a month\n", shown_small(dollars_per_month))
                                 : "keeping the output: no price, it goes to a disk of this machine\n";
  for (const std::string& assumption : assumptions) {
    text += "  " + assumption + "\n";
  }
  return text;
}

nlohmann::json JobEstimate::to_json() const {
  nlohmann::json json = {{"items", outlook.num_items},
                         {"items_pending", outlook.num_pending},
                         {"rows_pending", outlook.num_rows},
                         {"rows_out", json_of(rows_out)},
                         {"bytes_in", json_of(bytes_in)},
                         {"bytes_out", json_of(bytes_out)},
                         {"hours", json_of(hours)},
                         {"requests_writing", json_of(writes)},
                         {"requests_reading", json_of(reads)},
                         {"good_percent", json_of(outlook.good_percent)},
                         {"row_bytes", json_of(outlook.row_bytes)},
                         {"rows_per_second", json_of(outlook.rows_per_second)},
                         {"assumptions", assumptions}};
  if (outlook.writes_objects || outlook.reads_objects) {
    json["dollars_for_requests"] = json_of(dollars_for_requests);
  }
  if (outlook.writes_objects) {  // On a disk nothing has a price.
    json["dollars_per_month"] = json_of(dollars_per_month);
  }
  return json;
}

}  // namespace darkroom
