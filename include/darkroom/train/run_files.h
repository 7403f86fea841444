#pragma once

namespace darkroom {

// What lies in a run folder (docs/formats/run_folder.md), by path within it.

inline constexpr const char* kRunRecipeFile = "recipe.toml";         ///< The resolved recipe of the last start.
inline constexpr const char* kRunFactsFile = "run.json";             ///< What is trained, where, and for how long.
inline constexpr const char* kRunIndexFile = "index.json";           ///< The dataset index.
inline constexpr const char* kRunMetricsFile = "metrics.jsonl";      ///< One JSON object a logged step.
inline constexpr const char* kRunGoodputFile = "goodput.jsonl";      ///< What the wall time went into.
inline constexpr const char* kRunSamplesFolder = "samples";          ///< step-NNNNNNNN/ with prompt-NNN.png, sheet.png, samples.json.
inline constexpr const char* kRunCheckpointsFolder = "checkpoints";  ///< step-NNNNNNNN/.
inline constexpr const char* kRunLockFile = "_lock";                 ///< Empty; held by who trains where a folder has no lock.
inline constexpr const char* kRunReportFile = "report.html";         ///< Self-contained report.

}  // namespace darkroom
