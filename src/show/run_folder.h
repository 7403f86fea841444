#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/files/file_system.h"
#include "darkroom/show/inspect.h"
#include "run_metrics.h"

namespace darkroom {

/// What a run folder says of its run (docs/formats/run_folder.md), checkpoints and samples aside.
struct RunFolder {
  std::string path;
  std::string name;                   ///< Of the folder, for people.
  RunMetrics metrics;                 ///< Of metrics.jsonl.
  nlohmann::json facts;               ///< run.json; null in the folder of a program that wrote none.
  nlohmann::json goodput;             ///< The last line of goodput.jsonl; null without one.
  std::optional<DatasetIndex> index;  ///< Rows that the run trains on; none without index.json.
  std::string recipe_toml;            ///< Empty without recipe.toml.

  /// A field of the recipe as run.json has it; null where it is not known.
  nlohmann::json recipe_field(const char* section, const char* key) const;
  /// The dataset's URI; empty where it is not known.
  std::string dataset() const;
};

/// Reads it. Errors: kNotFound (no metrics.jsonl), kCorruptData (naming the file, and of the metrics the line), those of the
/// file system.
Result<RunFolder> read_run_folder(FileSystem& files, const std::string& path);

/// What a run amounts to. What is not known is empty.
struct RunFigures {
  int64_t step = 0;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> samples;
  std::optional<int64_t> rows;
  std::optional<int64_t> parameters;
  std::optional<double> loss_first;          ///< Mean over the first 50 logged steps, or the first half.
  std::optional<double> loss_last;           ///< Mean over the last 50, or the last half.
  std::optional<double> validation_loss;     ///< The last one.
  std::optional<double> images_per_second;   ///< Of all ranks: median over the logged steps.
  std::optional<double> steps_per_second;    ///< Of the optimizer, likewise.
  std::optional<int64_t> ranks;              ///< Where all starts had as many.
  std::optional<double> tflops;              ///< Of all ranks, in 10^12 operations per second: median over the logged steps.
  std::optional<double> mfu;                 ///< Share of their peak that this is, likewise.
  std::optional<int64_t> peak_memory_bytes;  ///< Of rank 0, the largest.
  std::optional<double> seconds;             ///< Wall time of all starts.
  std::string component;                     ///< "U-Net", "autoencoder" or "".
  std::vector<std::string> machines;         ///< Each kind once, in the order of the starts.
  int64_t num_starts = 0;

  /// Steps of all ranks, as trainers show them whose counter adds each rank's step; empty: one rank, or not known.
  std::optional<double> world_scaled_steps_per_second() const;
};

RunFigures figures_of(const RunFolder& run);

/// The figures, and what the recipe essentially says, as rows of name and value; unknown ones left out.
std::vector<std::pair<std::string, std::string>> run_facts_rows(const RunFolder& run);

/// Two runs beside each other: their figures, then the fields of the recipe that differ.
ReportTable comparison_table(const RunFolder& run, const RunFolder& other);

/// Names to tell two runs apart: the folders' names, or the paths where these are the same.
std::pair<std::string, std::string> run_names(const RunFolder& run, const RunFolder& other);

/// What the wall time of all starts went into, by name for people, in seconds, what took none left out; empty where it is not known. The
/// first is training.
std::vector<std::pair<std::string, double>> run_spendings(const RunFolder& run);

/// "2 h 5 min", "5 min 32 s", "12.3 s".
std::string duration_text(double seconds);

/// "41.2 %", of a share.
std::string mfu_text(double share);

/// "4.2 million", "866 million", "123,456", "512".
std::string count_text(int64_t count);

}  // namespace darkroom
