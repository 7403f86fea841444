#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace darkroom {

/// A speed that was measured at one resolution (0: it has none).
struct MeasuredRate {
  int64_t resolution = 0;
  double per_second = 0;
};

/// Where the time of a training run went, for the prediction of another on the same machine.
struct MeasuredSteps {
  int64_t resolution = 0;
  int64_t batch = 0;
  int64_t micro = 0;    ///< Samples a forward pass.
  int64_t workers = 1;  ///< Forward passes side by side, of all ranks.
  int64_t save_every = 0;
  double start_seconds = 0;    ///< Until the first step began.
  double pass_seconds = 0;     ///< Of a step, what grows with the batch: data, forward, backward; mean.
  double update_seconds = 0;   ///< Of a step, what does not: clipping, optimizer, EMA; mean.
  double between_seconds = 0;  ///< Per step, what no phase counts: logging; median.
  double save_seconds = 0;     ///< Per checkpoint, with previews and validations; mean.
};

/// What a run or a job measured, for a plan in place of the catalogue's lines.
struct MeasuredRates {
  std::string from = {};  ///< What was looked at; empty: nothing.
  std::optional<MeasuredRate> train = {};
  std::optional<MeasuredRate> encode = {};
  std::optional<MeasuredRate> download = {};
  std::optional<double> picture_bytes = {};
  std::optional<double> download_success = {};
  std::optional<MeasuredSteps> steps = {};
  std::vector<std::string> notes = {};  ///< What was assumed to get there.
};

/// Another run of the measured recipe: how long will it take there?
struct PredictRequest {
  int64_t steps = 0;
  int64_t batch = 0;  ///< 0: the measured run's.
};

}  // namespace darkroom
