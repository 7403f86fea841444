#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "darkroom/plan/job_estimate.h"

namespace darkroom {
namespace {

constexpr int64_t kRowsThatTell = 100;  // Fewer rows of a job's own say little.

Known from_catalogue(const RangedFigure& figure) { return {figure.value, fmt::format("{}, {}", figure.origin.date, figure.origin.source)}; }

Range times(const Range& a, double factor) { return {a.low * factor, a.high * factor}; }

JobOutlook begin_outlook(const StageSummary& summary) {
  const PendingWork& work = summary.pending_work;
  return {.num_items = summary.num_items,
          .num_pending = summary.num_pending,
          .num_rows = work.num_rows,
          .num_inputs = work.num_inputs,
          .input_bytes = work.input_bytes,
          .rewritten_bytes = work.rewritten_bytes,
          .reads_objects = work.reads_objects,
          .writes_objects = work.writes_objects};
}

/// The share of good rows among those of this job that are done, with two standard errors to either side.
std::optional<Known> good_rows_so_far(const PendingWork& work) {
  if (work.part_rows_in < kRowsThatTell) {
    return std::nullopt;
  }
  const auto num_rows = static_cast<double>(work.part_rows_in);
  const double share = static_cast<double>(work.part_rows_out) / num_rows;
  const double error = 2 * std::sqrt(share * (1 - share) / num_rows);
  return Known{{100 * std::max(0.0, share - error), 100 * std::min(1.0, share + error)},
               fmt::format("of the {} rows of this job that are done", work.part_rows_in)};
}

/// The bytes of a picture where the job tells.
std::optional<Known> told_picture_bytes(const PendingWork& work) {
  if (work.part_rows_out >= kRowsThatTell) {
    const double mean = static_cast<double>(work.part_bytes) / static_cast<double>(work.part_rows_out);
    return Known{{mean, mean}, fmt::format("mean of the {} good rows of this job that are done", work.part_rows_out)};
  }
  if (work.sized_rows > 0) {
    return Known{{work.sized_bytes, work.sized_bytes},
                 fmt::format("mean of the column {} in the first {} pending rows", work.size_column, work.sized_rows)};
  }
  return std::nullopt;
}

std::optional<Known> good_rows_of(const MeasuredRates& measured) {
  if (!measured.download_success) {
    return std::nullopt;
  }
  const double percent = 100 * *measured.download_success;
  return Known{{percent, percent}, "measured by " + measured.from};
}

std::optional<Known> picture_bytes_of(const MeasuredRates& measured) {
  return measured.picture_bytes ? std::optional(Known{{*measured.picture_bytes, *measured.picture_bytes}, "measured by " + measured.from})
                                : std::nullopt;
}

/// Of the job that was named, else of this job's last run.
std::optional<Known> measured_speed(const PendingWork& work, const MeasuredRates& measured) {
  if (measured.download) {
    return Known{{measured.download->per_second, measured.download->per_second}, "measured by " + measured.from};
  }
  if (work.run_rows < kRowsThatTell || !(work.run_seconds > 0)) {
    return std::nullopt;
  }
  const double rate = static_cast<double>(work.run_rows) / work.run_seconds;
  return Known{{rate, rate}, fmt::format("measured: the last run of this job, {} rows in {:.0f} s", work.run_rows, work.run_seconds)};
}

}  // namespace

Range slower_of(const Range& a, const Range& b) { return {std::min(a.low, b.low), std::min(a.high, b.high)}; }

Range shared_by(const Range& a, const Range& b) {
  const auto share = [](double first, double second) { return first > 0 && second > 0 ? first * second / (first + second) : 0; };
  return {share(a.low, b.low), share(a.high, b.high)};
}

Result<JobOutlook> download_outlook(const StageSummary& summary, const Catalogue& catalogue, int num_cores, const MeasuredRates& measured) {
  const PendingWork& work = summary.pending_work;
  if (!measured.from.empty() && !measured.download && !measured.download_success) {
    return Status::failed_precondition("nothing of a download was measured there (run or job):", measured.from);
  }
  JobOutlook outlook = begin_outlook(summary);
  DARKROOM_ASSIGN_OR_RETURN(const RangedFigure good, catalogue.find("good_rows_percent"));
  DARKROOM_ASSIGN_OR_RETURN(const RangedFigure picture, catalogue.find("picture_bytes"));
  DARKROOM_ASSIGN_OR_RETURN(const RangedFigure fetch, catalogue.find("fetch_rows_per_core_second"));
  DARKROOM_ASSIGN_OR_RETURN(const RangedFigure line, catalogue.find("line_bytes_per_second"));
  outlook.good_percent = work.rewritten_bytes > 0 ? Known{{0, 100}, "nothing tells how many of the rows that failed arrive now"}
                                                  : good_rows_so_far(work).value_or(good_rows_of(measured).value_or(from_catalogue(good)));
  outlook.row_bytes_in = told_picture_bytes(work).value_or(picture_bytes_of(measured).value_or(from_catalogue(picture)));
  outlook.row_bytes = outlook.row_bytes_in;
  if (work.part_rows_out < kRowsThatTell && work.num_rows > 0) {  // Else the parts' mean holds the other columns, too.
    const double table_bytes = static_cast<double>(work.input_bytes) / static_cast<double>(work.num_rows);
    outlook.row_bytes.value = {outlook.row_bytes.value.low + table_bytes, outlook.row_bytes.value.high + table_bytes};
    outlook.row_bytes.from += fmt::format("; and {:.0f} bytes of the table per row", table_bytes);
  }
  if (const std::optional<Known> speed = measured_speed(work, measured)) {
    outlook.rows_per_second = *speed;
    outlook.is_rate_measured = true;
    return outlook;
  }
  // Bytes that a row brings on average, dead ones included; the fastest line goes with the smallest pictures.
  const Range row_on_line = times(
      {outlook.row_bytes_in.value.low * outlook.good_percent.value.low, outlook.row_bytes_in.value.high * outlook.good_percent.value.high},
      0.01);
  const Range by_cores = times(fetch.value, num_cores);
  const Range by_line = {row_on_line.high > 0 ? line.value.low / row_on_line.high : by_cores.low,
                         row_on_line.low > 0 ? line.value.high / row_on_line.low : by_cores.high};
  outlook.rows_per_second = {
      slower_of(by_cores, by_line),
      fmt::format("assumed: the lower of {} cores at {:.0f} to {:.0f} rows/s each ({}, {}) and a line of {:.3g} to {:.3g} "
                  "bytes/s ({}, {})",
                  num_cores, fetch.value.low, fetch.value.high, fetch.origin.date, fetch.origin.source, line.value.low, line.value.high,
                  line.origin.date, line.origin.source)};
  return outlook;
}

Result<JobOutlook> process_outlook(const StageSummary& summary, const Catalogue& catalogue, int num_cores) {
  const PendingWork& work = summary.pending_work;
  JobOutlook outlook = begin_outlook(summary);
  DARKROOM_ASSIGN_OR_RETURN(const RangedFigure transform, catalogue.find("transform_rows_per_core_second"));
  outlook.good_percent = good_rows_so_far(work).value_or(Known{{100, 100}, "pictures that download has looked at are taken to be good"});
  if (work.part_rows_out >= kRowsThatTell) {
    outlook.row_bytes = *told_picture_bytes(work);
  } else {
    outlook.row_bytes = {{work.encoded_row_bytes, work.encoded_row_bytes},
                         "what the tensors of a row take; columns kept besides are not in it"};
  }
  const Range encoders = times({work.encoder_rows_per_second_low, work.encoder_rows_per_second_high}, work.num_encoders);
  const Range transforms = times(transform.value, num_cores);
  const std::string decoding = fmt::format("decoding and resizing at {:.0f} to {:.0f} rows/s each ({}, {})", transform.value.low,
                                           transform.value.high, transform.origin.date, transform.origin.source);
  const std::string trial =
      fmt::format("tried here at {:.3g} to {:.3g} rows/s", work.encoder_rows_per_second_low, work.encoder_rows_per_second_high);
  if (work.encodes_on_gpu) {  // Stages side by side, each with what it works on to itself.
    outlook.rows_per_second = {slower_of(transforms, encoders),
                               fmt::format("the lower of the GPU's encoder, just {}, and {} cores {}", trial, num_cores, decoding)};
  } else {
    outlook.rows_per_second = {shared_by(transforms, encoders),
                               fmt::format("{} encoder workers that were just {} each, on the same {} cores as {}", work.num_encoders,
                                           trial, num_cores, decoding)};
  }
  return outlook;
}

}  // namespace darkroom
