#include "painting/painter_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/tensor/kept_memory.h"
#include "resources.h"

namespace darkroom {
namespace {

ValueDefinition sampler_value(std::string& target) {
  const auto names = sampler_names();
  ValueDefinition definition = value::choice(target, std::vector<std::string>(names.begin(), names.end()));
  definition.shown = "NAME";
  definition.default_text = "the model's scheduler";
  return definition;
}

/// Each value by the name that pictures keep of it.
template <typename T>
std::vector<std::pair<std::string, T>> named(std::string_view (*name)(T), std::initializer_list<T> values) {
  std::vector<std::pair<std::string, T>> choices;
  for (const T value : values) {
    choices.emplace_back(name(value), value);
  }
  return choices;
}

}  // namespace

void add_source_flags(VerbDefinition& verb, PainterFlags& flags) {
  verb.flag("--weights", value::choice(flags.source.weights, {"ema", "unet"}), "of a checkpoint: averaged or last");
  verb.flag("--frozen", value::uri(flags.source.frozen, "DIR", "the one that it names"), "model folder of a checkpoint's frozen parts");
  const std::vector<std::pair<std::string, std::string>> dialects = {{"auto", ""}, {"hf", "hf"}, {"open_clip", "open_clip"}};
  verb.flag("--tokenizer-dialect", value::choice(flags.source.tokenizer_dialect, dialects),
            "cleaning and padding; auto: the checkpoint's, else hf");
  verb.flag("--prediction-type", value::choice(flags.source.prediction_type, prediction_choices()),
            "what the U-Net predicts; a single file of version 2 does not say it. Given for several models, it is for those that do not");
}

void add_place_flags(VerbDefinition& verb, PainterFlags& flags) {
  verb.flag("--device", value::device(flags.device, false), "where the networks run; auto: the first GPU, else the CPU");
  verb.flag("--precision", value::choice(flags.precision, {"auto", "float32", "float16", "bfloat16"}),
            "in which the U-Net and the text encoder compute; auto: float32 on the CPU, bfloat16 on a GPU");
}

void add_reading_flags(VerbDefinition& verb, PromptReading& reading) {
  verb.flag("--prompt-syntax", value::choice(reading.syntax, named(prompt_syntax_name, {PromptSyntax::kPlain, PromptSyntax::kWeighted})),
            "weighted: (word), [word] and (word:1.3) weigh words more or less, BREAK begins a new chunk; plain: every character is itself");
  verb.flag(
      "--long-prompts",
      value::choice(reading.long_prompts, named(long_prompts_name, {LongPrompts::kAuto, LongPrompts::kTruncate, LongPrompts::kChunks})),
      "of more than 75 tokens: truncate loses the rest, with a warning; chunks takes 75 at a time; auto: chunks of weighted prompts");
}

void add_sampler_flags(VerbDefinition& verb, PaintRequest& request) {
  verb.flag("--sampler", sampler_value(request.sampler.name), fmt::format("{}", fmt::join(sampler_names(), ", ")));
  verb.flag("--steps", value::count(request.sampler.num_steps).least(1), "sampling steps");
  verb.flag("--guidance", value::number(request.guidance).shown("S"), "classifier-free guidance scale; at most 1: off");
  verb.flag("--guidance-rescale", value::number(request.guidance_rescale).least(0).most(1).shown("R"),
            "share of the guided output's deviation that is corrected");
  verb.flag("--eta", value::number(request.sampler.eta).least(0).most(1).shown("E"), "noise that ddim adds");
}

Result<PainterSource> chosen_source(const PainterFlags& flags) {
  PainterSource source = flags.source;
  DARKROOM_ASSIGN_OR_RETURN(source.place, find_network_place(flags.device, flags.precision, torch::kBFloat16));
  keep_freed_memory(source.place.device);
  const Result<std::string> shipped = find_resource(kShippedTokenizer);
  source.shipped_tokenizer = shipped.is_ok() ? *shipped : std::string();
  return source;
}

}  // namespace darkroom
