#include "painter_flags.h"

#include <utility>
#include <vector>

#include "resources.h"

namespace darkroom {

void add_source_flags(VerbDefinition& verb, PainterFlags& flags) {
  verb.flag("--weights", value::choice(flags.source.weights, {"ema", "unet"}), "of a checkpoint: averaged or last");
  verb.flag("--frozen", value::uri(flags.source.frozen, "DIR", "the one that it names"), "model folder of a checkpoint's frozen parts");
  const std::vector<std::pair<std::string, std::string>> dialects = {{"auto", ""}, {"hf", "hf"}, {"open_clip", "open_clip"}};
  verb.flag("--tokenizer-dialect", value::choice(flags.source.tokenizer_dialect, dialects),
            "cleaning and padding; auto: the checkpoint's, else hf");
  verb.flag("--prediction-type", value::choice(flags.source.prediction_type, prediction_choices()),
            "what the U-Net predicts; a single file of version 2 does not say it");
}

void add_place_flags(VerbDefinition& verb, PainterFlags& flags) {
  verb.flag("--device", value::device(flags.device, false), "where the networks run; auto: the first GPU, else the CPU");
  verb.flag("--precision", value::choice(flags.precision, {"auto", "float32", "float16", "bfloat16"}),
            "in which the U-Net and the text encoder compute; auto: float32 on the CPU, bfloat16 on a GPU");
}

Result<PainterSource> chosen_source(const PainterFlags& flags) {
  PainterSource source = flags.source;
  DARKROOM_ASSIGN_OR_RETURN(source.place, find_network_place(flags.device, flags.precision, torch::kBFloat16));
  const Result<std::string> shipped = find_resource(kShippedTokenizer);
  source.shipped_tokenizer = shipped.is_ok() ? *shipped : std::string();
  return source;
}

}  // namespace darkroom
