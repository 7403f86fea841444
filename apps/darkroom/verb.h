#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"

namespace darkroom {

/// What a verb's action gets from main and hands back to it.
struct VerbContext {
  std::stop_token stop;                               ///< Requested by SIGINT and SIGTERM.
  nlohmann::json summary = nlohmann::json::object();  ///< Written to --json-summary, also when the verb fails.
};

/// Exit code of a verb that ended by itself: 0 done, 3 finished over the error budget. A Status otherwise: main maps
/// kInvalidArgument to 2, kCancelled to 130 / 143 (by the signal), everything else to 1.
using VerbAction = std::function<Result<int>(VerbContext&)>;

/// One verb: its subcommand (flags bound to an options struct that the action captures) and its action.
struct Verb {
  CLI::App* command;
  VerbAction action;
};

// One function a verb, each in its own file verb_NAME.cpp: adds the subcommand and returns it with its action.
Verb add_download_verb(CLI::App& program);
Verb add_process_verb(CLI::App& program);
Verb add_train_verb(CLI::App& program);
Verb add_sample_verb(CLI::App& program);
Verb add_inspect_verb(CLI::App& program);
Verb add_models_verb(CLI::App& program);
Verb add_tokenize_verb(CLI::App& program);
Verb add_transform_verb(CLI::App& program);
Verb add_demo_verb(CLI::App& program);
Verb add_bench_verb(CLI::App& program);

}  // namespace darkroom
