#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// What one request may ask for.
struct RequestLimits {
  int max_images = 10;             ///< Of all prompts together.
  int max_steps = 500;             ///< Of one picture.
  int max_side = 2048;             ///< Pixels.
  double max_guidance = 50;        ///< Guidance scale.
  size_t max_text_bytes = 10'000;  ///< Of a prompt or a negative prompt.
};

/// How pictures go back.
enum class ReplyForm {
  kPng,           ///< The picture itself.
  kBase64Pngs,    ///< {"generated_images": [base64 PNG], "prompt"}.
  kNestedArrays,  ///< {"generated_images": [rows of pixels of [R, G, B]], "prompt"}: JumpStart's.
  kOpenAi,        ///< {"created", "data": [{"b64_json"}]}.
};

/// A request for pictures, whoever's protocol it came in.
struct ImageRequest {
  std::vector<PictureSpec> pictures;  ///< Picture j of a prompt has the request's seed + j.
  ReplyForm form = ReplyForm::kPng;
  std::string prompt_json;  ///< The prompt as it came, to be sent back.
};

/// Reads the body of POST /invocations: JumpStart's {"prompt", ...} or Hugging Face's {"inputs", "parameters"}; `accept` is the header.
/// A seed that is not given is drawn. Errors: kInvalidArgument naming the field; kFailedPrecondition for a form of reply that is not built.
Result<ImageRequest> read_invocation(std::string_view body, std::string_view accept, const ModelFacts& model, const RequestLimits& limits);

/// Reads the body of POST /v1/images/generations: OpenAI's fields, and seed, steps, guidance_scale, negative_prompt and sampler.
/// Errors: kInvalidArgument naming the field; kNotFound (another model's name).
Result<ImageRequest> read_openai_generation(std::string_view body, const ModelFacts& model, const RequestLimits& limits);

/// The reply with a request's pictures, in their order. `created` is a time in seconds since 1970.
HttpReply image_reply(const ImageRequest& request, const std::vector<Image>& images, int64_t created);

}  // namespace darkroom
