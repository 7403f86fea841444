#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// What one request may ask for.
struct RequestLimits {
  int max_images = 10;                    ///< Of all prompts together.
  int max_steps = 500;                    ///< Of one picture.
  int max_side = 2048;                    ///< Pixels.
  double max_guidance = 50;               ///< Guidance scale.
  size_t max_text_bytes = 10'000;         ///< Of a prompt or a negative prompt.
  int64_t max_nested_bytes = 25'000'000;  ///< Of pictures as nested arrays, which take up to 14 bytes a pixel.
};

/// How pictures go back.
enum class ReplyForm {
  kPng,           ///< The picture itself.
  kBase64Pngs,    ///< {"generated_images": [base64 PNG], "prompt", "seed"}.
  kBase64Jpegs,   ///< The same with JPEGs.
  kNestedArrays,  ///< {"generated_images": [rows of pixels of [R, G, B]], "prompt", "seed"}: JumpStart's.
  kOpenAi,        ///< {"created", "data": [{"b64_json"}], "seed"}.
  kA1111,         ///< {"images": [base64 PNG], "parameters", "info"}.
  kEvents,        ///< A text/event-stream: progress, previews, and last {"generated_images": [base64 PNG], "prompt", ...}.
  kOpenAiEvents,  ///< OpenAI's text/event-stream of partial images and completed ones.
  kKept,          ///< Not at all: they are fetched later, one by one.
};

/// A request for pictures, whoever's protocol it came in.
struct ImageRequest {
  std::vector<PictureSpec> pictures;  ///< Picture j of a prompt has the request's seed + j.
  ReplyForm form = ReplyForm::kPng;
  bool is_single = false;                        ///< JumpStart's text: {"generated_image": picture} instead of a list of one.
  HeldModel model = {};                          ///< What paints it; null: the batcher's own engine.
  std::string prompt_json = {};                  ///< The prompt as it came, to be sent back.
  uint64_t seed = 0;                             ///< Of the first picture.
  int64_t num_pixels = 0;                        ///< Of all pictures.
  std::vector<InputPicture> inputs = {};         ///< What all pictures start from: none, or one that is to be decoded.
  std::vector<std::string> settings_texts = {};  ///< Of each picture, for its PNG (png_settings.h).
  bool writes_settings = false;                  ///< Whether the PNGs get them.
  std::vector<std::string> warnings = {};        ///< Sentences that go back with the pictures: what of it is not as it was asked for.
  bool sends_images = true;                      ///< kA1111: false: the reply has none.
  std::string parameters_json = {};              ///< kA1111: what comes back as `parameters`; kKept: as the job's `request`.
  std::string info_json = {};                    ///< kA1111: what comes back, as a text, as `info`.
  int num_partial_images = 0;                    ///< Of each picture, at most: kOpenAiEvents.

  /// The settings that the PNGs get; empty: none.
  std::span<const std::string> written_settings() const { return writes_settings ? settings_texts : std::span<const std::string>(); }
  /// The most that the pictures and the reply with them take in memory; of kKept, what is kept after they are painted.
  int64_t bytes_held() const;
  /// Of kKept, what it takes beside until they are painted: the picture to start from.
  int64_t bytes_while_painted() const { return form == ReplyForm::kKept ? input_bytes() : 0; }

 private:
  int64_t input_bytes() const;
  int64_t text_bytes_kept() const;
};

/// Reads the body of POST /invocations: JumpStart's {"prompt", ...} or Hugging Face's {"inputs", "parameters"}; `accept` is the header. A
/// picture to start from is still to be decoded. A seed that is not given is drawn. Errors: kInvalidArgument naming the field;
/// kFailedPrecondition for a form of reply that is not built or cannot hold the pictures.
Result<ImageRequest> read_invocation(std::string_view body, std::string_view accept, const ModelFacts& model, const RequestLimits& limits);

/// Reads the body of POST /invocations that is JumpStart's application/x-text: the prompt. Errors: as above.
Result<ImageRequest> read_text_invocation(std::string_view body, std::string_view accept, const ModelFacts& model,
                                          const RequestLimits& limits);

/// Reads the body of POST /v1/images/generations: OpenAI's fields, and seed, steps, guidance_scale, negative_prompt and sampler.
/// Errors: kInvalidArgument naming the field; kNotFound (another model's name).
Result<ImageRequest> read_openai_generation(std::string_view body, const ModelFacts& model, const RequestLimits& limits);

/// The reply with a request's pictures, in their order. `created` is a time in seconds since 1970. REQUIRES: a form that is no stream.
HttpReply image_reply(const ImageRequest& request, const std::vector<Image>& images, int64_t created);

}  // namespace darkroom
