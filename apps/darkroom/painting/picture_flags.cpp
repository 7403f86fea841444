#include "painting/picture_flags.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "verb.h"

namespace darkroom {

/// NAME,NAME,...: the names, none empty.
ValueDefinition column_names(std::vector<std::string>& target) {
  ValueDefinition definition{.kind = "text", .shown = "NAME,...", .default_text = "none"};
  definition.take = [target = &target](const std::vector<std::string>& values) -> Status {
    std::vector<std::string> names;
    std::string_view rest = values.back();
    while (true) {
      const size_t comma = rest.find(',');
      names.emplace_back(rest.substr(0, comma));
      if (names.back().empty()) {
        return Status::invalid_argument("must be names of columns with commas between them, got:", quote_value(values.back()));
      }
      if (comma == std::string_view::npos) {
        break;
      }
      rest.remove_prefix(comma + 1);
    }
    *target = std::move(names);
    return Status::ok();
  };
  return definition;
}

void add_transform_flags(VerbDefinition& verb, TransformOptions& transform, uint64_t& seed, const std::string& seeds) {
  verb.flag("--resolution", value::count(transform.resolution).least(1).unit("pixels"), "target square, a multiple of the VAE's factor");
  verb.flag(
      "--resize",
      value::choice(transform.filter, {{"bilinear", Filter::kBilinear}, {"bicubic", Filter::kBicubic}, {"lanczos", Filter::kLanczos}}),
      "filter");
  verb.flag("--crop",
            value::choice(transform.crop, {{"center", Crop::kCenter}, {"center_round", Crop::kCenterRound}, {"random", Crop::kRandom}}),
            "which part of the resized picture");
  verb.flag("--orientation", value::choice(transform.orientation, {{"ignore", Orientation::kIgnore}, {"apply", Orientation::kApply}}),
            "what to do with the EXIF orientation");
  verb.flag("--seed", value::count(seed).shown("S"), "of " + seeds);
}

std::string encoder_token() {
  const char* token = std::getenv(kEncoderTokenVariable);
  return token == nullptr ? "" : token;
}

}  // namespace darkroom
