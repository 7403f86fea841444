#pragma once

#include <string>

#include "opening/open_painter.h"
#include "verb.h"

namespace darkroom {

/// What verbs that paint let their users choose of the painter.
struct PainterFlags {
  PainterSource source;
  std::string device = "auto";
  std::string precision = "auto";
};

/// --weights, --frozen, --tokenizer-dialect and --prediction-type.
void add_source_flags(VerbDefinition& verb, PainterFlags& flags);
/// --device and --precision.
void add_place_flags(VerbDefinition& verb, PainterFlags& flags);

/// --prompt-syntax and --long-prompts.
void add_reading_flags(VerbDefinition& verb, PromptReading& reading);
/// --sampler, --steps, --guidance, --guidance-rescale and --eta.
void add_sampler_flags(VerbDefinition& verb, PaintRequest& request);

/// What is to be opened: with its place on this machine and the tokenizer that is shipped. Errors: those of find_network_place.
Result<PainterSource> chosen_source(const PainterFlags& flags);

}  // namespace darkroom
