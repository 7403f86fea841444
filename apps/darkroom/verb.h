#pragma once

#include "command_line.h"

namespace darkroom {

inline constexpr int kExitOverErrorBudget = 3;  ///< A job finished, but more of its rows failed than is bearable.

inline constexpr const char* kEncoderTokenVariable = "DARKROOM_ENCODER_TOKEN";  ///< What encoders and trainers know of each other.

// One function a verb, each in its own file verb_NAME.cpp: defines its flags and its action.
void add_download_verb(CommandLine& line);
void add_process_verb(CommandLine& line);
void add_train_verb(CommandLine& line);
void add_encoder_verb(CommandLine& line);
void add_transformer_verb(CommandLine& line);
void add_tune_verb(CommandLine& line);
void add_sample_verb(CommandLine& line);
void add_inspect_verb(CommandLine& line);
void add_models_verbs(CommandLine& line);
void add_models_fetch_verb(CommandLine& line);
void add_tokenize_verb(CommandLine& line);
void add_transform_verb(CommandLine& line);
void add_demo_verb(CommandLine& line);
void add_bench_verb(CommandLine& line);
void add_doctor_verb(CommandLine& line);
void add_plan_verb(CommandLine& line);
void add_serve_verb(CommandLine& line);
void add_compare_verb(CommandLine& line);
void add_top_verb(CommandLine& line);

}  // namespace darkroom
