#include "darkroom/serve/image_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "darkroom/core/base64.h"
#include "darkroom/image/jpeg.h"
#include "darkroom/image/png.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

ModelFacts small_model() { return {.name = "tiny", .native_size = 64, .size_multiple = 8, .samplers = {"ddim", "euler"}}; }

Result<ImageRequest> invocation(std::string_view body, std::string_view accept = "") {
  return read_invocation(body, accept, small_model(), RequestLimits{});
}

Result<ImageRequest> generation(std::string_view body) { return read_openai_generation(body, small_model(), RequestLimits{}); }

TEST(image_requests, reads_jumpstarts_fields) {
  const ImageRequest request = invocation(R"({"prompt":["a cat","a dog"],"negative_prompt":["blurry","dark"],"width":128,"height":64,
    "num_inference_steps":7,"guidance_scale":3.5,"num_images_per_prompt":2,"seed":18446744073709551615,"sampler":"euler"})")
                                   .value();
  ASSERT_EQ(request.pictures.size(), 4U);
  const PictureSpec& third = request.pictures[2];
  EXPECT_EQ(third.prompt, "a dog");
  EXPECT_EQ(third.negative, "dark");
  EXPECT_EQ(third.width, 128);
  EXPECT_EQ(third.height, 64);
  EXPECT_EQ(third.num_steps, 7);
  EXPECT_EQ(third.guidance, 3.5);
  EXPECT_EQ(third.sampler, "euler");
  EXPECT_EQ(third.seed, UINT64_MAX);
  EXPECT_EQ(request.pictures[3].seed, 0U);  // Seeds go round.
  EXPECT_EQ(request.form, ReplyForm::kNestedArrays);
}

TEST(image_requests, reads_hugging_faces_fields_in_both_spellings) {
  for (const char* body : {R"({"inputs":"x","parameters":{"guidance_scale":2,"negative_prompt":"n","num_inference_steps":3,"width":72,
                               "height":80,"seed":5,"scheduler":"ddim"}})",
                           R"({"inputs":"x","parameters":{"guidanceScale":2,"negativePrompt":["n"],"numInferenceSteps":3,
                               "targetSize":{"width":72,"height":80},"seed":5,"scheduler":"ddim"}})"}) {
    const ImageRequest request = invocation(body).value();
    ASSERT_EQ(request.pictures.size(), 1U);
    const PictureSpec& picture = request.pictures[0];
    EXPECT_EQ(picture.prompt + picture.negative + picture.sampler, "xnddim");
    EXPECT_EQ(picture.guidance, 2.0);
    EXPECT_EQ(picture.num_steps, 3);
    EXPECT_EQ(picture.width, 72);
    EXPECT_EQ(picture.height, 80);
    EXPECT_EQ(picture.seed, 5U);
    EXPECT_EQ(request.form, ReplyForm::kBase64Pngs);
  }
  for (const char* name : {"num_images_per_prompt", "numImagesPerPrompt"}) {
    const std::string body = R"({"inputs":"x","parameters":{"seed":7,")" + std::string(name) + R"(":2}})";
    ASSERT_EQ(invocation(body)->pictures.size(), 2U) << name;
    EXPECT_EQ(invocation(body)->pictures[1].seed, 8U) << name;
  }
}

TEST(image_requests, an_invocation_may_start_from_a_picture_and_have_weights) {
  for (
      const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
          {R"json({"prompt":"(x:1.3)","image":"data:image/png;base64,aGk=","strength":0.5,"prompt_syntax":"weighted","mask_image":null})json",
           "image"},
          {R"json({"inputs":"(x:1.3)","parameters":{"image":"aGk=","strength":0.5,"prompt_syntax":"weighted"}})json",
           "parameters.image"}}) {
    const auto request = invocation(body);
    ASSERT_TRUE(request.is_ok()) << request.status().message();
    EXPECT_EQ(request->inputs, (std::vector<InputPicture>{{.field = field, .text = "aGk=", .is_base64 = true}}));
    EXPECT_EQ(request->pictures.front().strength, 0.5);
    EXPECT_TRUE(request->pictures.front().has_weight_syntax);
  }
  EXPECT_EQ(invocation(R"({"prompt":"x","image":"aGk="})")->pictures.front().strength, 0.8);
  EXPECT_FALSE(invocation(R"({"prompt":"x","prompt_syntax":"plain"})")->pictures.front().has_weight_syntax);
  EXPECT_THAT(invocation(R"({"prompt":"x"})")->inputs, testing::IsEmpty());
}

// Hugging Face's image to image, as huggingface_hub's InferenceClient.image_to_image sends it.
TEST(image_requests, inputs_are_the_picture_where_the_prompt_is_a_parameter) {
  const auto request = invocation(
      R"({"inputs":"aGk=","parameters":{"prompt":"x","negative_prompt":"n","num_inference_steps":4,"guidance_scale":2,"strength":0.5,
      "target_size":{"height":72,"width":80}}})");
  ASSERT_TRUE(request.is_ok()) << request.status().message();
  EXPECT_EQ(request->inputs, (std::vector<InputPicture>{{.field = "inputs", .text = "aGk=", .is_base64 = true}}));
  const PictureSpec& picture = request->pictures.front();
  EXPECT_EQ(picture.prompt, "x");
  EXPECT_EQ(picture.negative, "n");
  EXPECT_EQ(picture.num_steps, 4);
  EXPECT_EQ(picture.strength, 0.5);
  EXPECT_EQ(picture.width, 80);
  EXPECT_EQ(picture.height, 72);
  EXPECT_EQ(request->prompt_json, "\"x\"");
  EXPECT_EQ(invocation(R"({"inputs":"aGk=","parameters":{"prompt":""}})")->inputs.size(), 1U);
  EXPECT_THAT(invocation(R"({"inputs":"a","parameters":{"prompt":null}})")->inputs, testing::IsEmpty());
}

TEST(image_requests, what_is_left_out_is_the_models_or_diffusers) {
  const PictureSpec picture = generation(R"({"prompt":"x","seed":null})")->pictures.front();
  EXPECT_EQ(picture.width, 64);
  EXPECT_EQ(picture.height, 64);
  EXPECT_EQ(picture.num_steps, 50);
  EXPECT_EQ(picture.guidance, 7.5);
  EXPECT_EQ(picture.sampler, "");
  EXPECT_LE(picture.seed, UINT32_MAX);
}

TEST(image_requests, what_is_left_out_is_within_the_limits) {
  const RequestLimits limits{.max_images = 1, .max_steps = 20, .max_side = 50};
  const PictureSpec picture = read_invocation(R"({"prompt":"x"})", "", small_model(), limits)->pictures.front();
  EXPECT_EQ(picture.num_steps, 20);
  EXPECT_EQ(picture.width, 48);  // A multiple of 8, where the model's own size is 64.
  EXPECT_EQ(picture.height, 48);
  EXPECT_THAT(read_invocation(R"({"prompt":"x","width":56})", "", small_model(), limits).status().message(), HasSubstr("width"));
  EXPECT_THAT(read_invocation(R"({"prompt":"x","num_inference_steps":21})", "", small_model(), limits).status().message(),
              HasSubstr("num_inference_steps"));
}

TEST(image_requests, reads_openais_fields_and_ours) {
  const ImageRequest request =
      generation(R"({"model":"tiny","prompt":"x","n":3,"size":"128x72","response_format":"b64_json","quality":"auto",
    "user":"me","stream":false,"seed":4,"steps":2,"guidance_scale":1,"negative_prompt":"n","sampler":"ddim"})")
          .value();
  ASSERT_EQ(request.pictures.size(), 3U);
  EXPECT_EQ(request.pictures[2].seed, 6U);
  EXPECT_EQ(request.pictures[2].width, 128);
  EXPECT_EQ(request.pictures[2].height, 72);
  EXPECT_EQ(request.pictures[2].negative, "n");
  EXPECT_EQ(request.form, ReplyForm::kOpenAi);
}

struct Refusal {
  const char* body;
  const char* named;
};

TEST(image_requests, a_wrong_field_of_an_invocation_is_named) {
  const std::vector<Refusal> refusals = {
      {"", "JSON object"},
      {R"({"prompt":"a",})", "at byte: 15"},
      {R"({"prompt":"a","guidance_scale":1e999})", "1e999"},
      {R"({"inputs":"a","parameters":{"guidance_scale":1,"guidanceScale":2}})", "parameters.guidance_scale parameters.guidanceScale"},
      {R"({"inputs":"a","parameters":{"negativePrompt":["a",5]}})", "parameters.negativePrompt"},
      {"[]", "JSON object"},
      {"{}", "prompt or inputs"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":"a","strength":0.5})", "strength goes with image"},
      {R"({"prompt":"a","image":"aGk=","strength":0.01})", "strength must leave at least one of the steps"},
      {R"({"prompt":"a","image":5})", "image"},
      {R"({"prompt":"a","image":"http://127.0.0.1/x.png"})", "image"},
      {R"({"prompt":"a","image":"aGk=","mask_image":"aGk="})", "mask_image is not built"},
      {R"({"prompt":"a","prompt_syntax":"heavy"})", "prompt_syntax must be plain or weighted"},
      {R"({"inputs":"a","parameters":{"strength":0.5}})", "parameters.strength goes with parameters.image"},
      {R"({"inputs":"a","image":"aGk="})", "no such field: image"},
      {R"({"inputs":"","parameters":{"prompt":"x"}})", "inputs must be"},
      {R"({"inputs":5,"parameters":{"prompt":"x"}})", "inputs must be"},
      {R"({"inputs":"http://127.0.0.1/x.png","parameters":{"prompt":"x"}})", "inputs"},
      {R"({"inputs":"aGk=","parameters":{"prompt":5}})", "parameters.prompt must be a text"},
      {R"({"inputs":"aGk=","parameters":{"prompt":"x","image":"aGk="}})", "no such field: parameters.image"},
      {R"({"inputs":"aGk=","parameters":{"prompt":"x","strength":0.01}})", "parameters.strength must leave at least one of the steps"},
      {R"({"inputs":"aGk=","parameters":{"prompt":"x"},"image":"aGk="})", "no such field: image"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":["a",1]})", "prompt"},
      {R"({"prompt":"a","width":65})", "width must be a multiple of 8, got: 65"},
      {R"({"prompt":"a","height":4096})", "height"},
      {R"({"prompt":"a","width":64.5})", "width"},
      {R"({"prompt":"a","num_inference_steps":0})", "num_inference_steps"},
      {R"({"prompt":"a","num_inference_steps":501})", "num_inference_steps"},
      {R"({"prompt":"a","guidance_scale":"7"})", "guidance_scale"},
      {R"({"prompt":"a","guidance_scale":51})", "guidance_scale"},
      {R"({"prompt":"a","seed":-1})", "seed"},
      {R"({"prompt":"a","seed":1.5})", "seed"},
      {R"({"prompt":"a","sampler":"heun"})", "ddim, euler"},
      {R"({"prompt":["a","b"],"num_images_per_prompt":6})", "12"},
      {R"({"prompt":["a","b","c"],"negative_prompt":["d","e"]})", "negative prompts"},
      {R"({"inputs":"a","parameters":5})", "parameters"},
      {R"({"inputs":"a","parameters":{"num_images_per_prompt":11}})", "parameters.num_images_per_prompt"},
      {R"({"inputs":"a","parameters":{"steps":5}})", "parameters.steps"},
      {R"({"inputs":"a","parameters":{"target_size":{"depth":5}}})", "parameters.target_size.depth"},
  };
  for (const Refusal& refusal : refusals) {
    const Status status = invocation(refusal.body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.body;
    EXPECT_THAT(status.message(), HasSubstr(refusal.named)) << refusal.body;
  }
  EXPECT_THAT(invocation(R"({"prompt":")" + std::string(10'001, 'x') + R"("})").status().message(), HasSubstr("10000 bytes"));
}

TEST(image_requests, a_wrong_or_unbuilt_field_of_openais_is_named) {
  const std::vector<Refusal> refusals = {{R"({"n":1})", "prompt"},
                                         {R"({"prompt":"a","n":11})", "n must"},
                                         {R"({"prompt":"a","size":"64"})", "size"},
                                         {R"({"prompt":"a","size":"64x"})", "size"},
                                         {R"({"prompt":"a","size":"64x65"})", "size"},
                                         {R"({"prompt":"a","size":"64x64x64"})", "size"},
                                         {R"({"prompt":"a","response_format":"url"})", "response_format is not built"},
                                         {R"({"prompt":"a","output_format":"webp"})", "output_format is not built"},
                                         {R"({"prompt":"a","stream":1})", "stream must be true or false"},
                                         {R"({"prompt":"a","partial_images":1})", "partial_images come in streams"},
                                         {R"({"prompt":"a","colour":1})", "no such field: colour"}};
  for (const Refusal& refusal : refusals) {
    const Status status = generation(refusal.body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.body;
    EXPECT_THAT(status.message(), HasSubstr(refusal.named)) << refusal.body;
  }
  EXPECT_EQ(generation(R"({"prompt":"a","model":"dall-e-3"})").status().code(), StatusCode::kNotFound);
}

TEST(image_requests, accept_chooses_how_pictures_go_back) {
  const auto form = [](std::string_view body, std::string_view accept) { return invocation(body, accept)->form; };
  constexpr std::string_view kPrompt = R"({"prompt":"a"})";
  constexpr std::string_view kInputs = R"({"inputs":"a"})";
  EXPECT_EQ(form(kPrompt, "*/*"), ReplyForm::kNestedArrays);
  EXPECT_EQ(form(kPrompt, "application/json"), ReplyForm::kNestedArrays);
  EXPECT_EQ(form(kPrompt, "application/json;png"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(kPrompt, "image/png"), ReplyForm::kPng);
  EXPECT_EQ(form(kPrompt, "application/json;jpeg"), ReplyForm::kBase64Jpegs);
  EXPECT_EQ(form(kInputs, "Application/JSON; JPEG"), ReplyForm::kBase64Jpegs);
  EXPECT_EQ(form(kInputs, ""), ReplyForm::kBase64Pngs);  // As SageMaker's clients ask that say nothing of it.
  EXPECT_EQ(form(kInputs, "*/*"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(kInputs, "image/png, */*"), ReplyForm::kPng);
  EXPECT_EQ(form(kInputs, "application/json"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(kInputs, "IMAGE/PNG"), ReplyForm::kPng);
  EXPECT_EQ(form(kPrompt, "text/html, application/json;png;q=0.9, */*"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(R"({"prompt":["a","b"]})", "image/png, application/json; png"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(kInputs, "application/json; charset=utf-8"), ReplyForm::kBase64Pngs);
  EXPECT_EQ(form(kInputs, "application/json;charset=utf-8;jpeg; q=0.5"), ReplyForm::kBase64Jpegs);
  EXPECT_EQ(form(R"({"prompt":null,"inputs":"a"})", ""), ReplyForm::kBase64Pngs);
  EXPECT_EQ(invocation(kPrompt, "application/json;webp").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(invocation(kPrompt, "text/html").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(invocation(R"({"prompt":["a","b"]})", "image/png").status().code(), StatusCode::kFailedPrecondition);
}

TEST(image_requests, replies_hold_the_pictures) {
  Image image = Image::filled(2, 1, 3, 7);
  image.pixels[5] = 255;
  ImageRequest request = invocation(R"({"prompt":"a \"cat\"","seed":9})").value();
  HttpReply reply = image_reply(request, {image}, 0);
  EXPECT_EQ(nlohmann::json::parse(reply.body),
            nlohmann::json::parse(R"({"generated_images":[[[[7,7,7],[7,7,255]]]],"prompt":"a \"cat\"","seed":9,"finish_reasons":[null]})"));
  EXPECT_EQ(reply.headers, (HttpHeaders{{"X-Darkroom-Seed", "9"}, {"X-Amzn-SageMaker-Custom-Attributes", "seed=9"}}));
  request.form = ReplyForm::kBase64Pngs;
  EXPECT_EQ(nlohmann::json::parse(image_reply(request, {image}, 0).body)["generated_images"][0], encode_base64(encode_png(image)));
  request.form = ReplyForm::kBase64Jpegs;
  EXPECT_EQ(nlohmann::json::parse(image_reply(request, {image}, 0).body)["generated_images"][0], encode_base64(encode_jpeg(image)));
  request.is_single = true;
  EXPECT_EQ(nlohmann::json::parse(image_reply(request, {Image()}, 0).body),
            nlohmann::json::parse(R"({"generated_image":null,"prompt":"a \"cat\"","seed":9,"finish_reasons":["content_filter"]})"));
  request.is_single = false;
  request.form = ReplyForm::kPng;
  reply = image_reply(request, {image}, 0);
  EXPECT_EQ(reply.type, "image/png");
  EXPECT_EQ(reply.body, encode_png(image));
  request.form = ReplyForm::kOpenAi;
  const auto openai = nlohmann::json::parse(image_reply(request, {image, image}, 77).body);
  EXPECT_EQ(openai["created"], 77);
  EXPECT_EQ(openai["data"].size(), 2U);
  EXPECT_EQ(decode_base64(openai["data"][1]["b64_json"].get<std::string>()), encode_png(image));
}

TEST(image_requests, a_job_holds_its_start_picture_no_longer_than_it_is_painted) {
  ImageRequest request{.pictures = {PictureSpec{.width = 16, .height = 8}}, .form = ReplyForm::kKept, .num_pixels = 128};
  const int64_t kept = request.bytes_held();
  EXPECT_EQ(request.bytes_while_painted(), 0);
  request.pictures.front().init_image = std::make_shared<const Image>(Image::filled(16, 8, 3, 7));
  EXPECT_EQ(request.bytes_held(), kept);
  EXPECT_EQ(request.bytes_while_painted(), 384);
  request.form = ReplyForm::kA1111;
  EXPECT_EQ(request.bytes_held(), 128 * 11 + 384);
  EXPECT_EQ(request.bytes_while_painted(), 0);
}

TEST(image_requests, warnings_of_a_job_are_held_with_its_texts) {
  ImageRequest request{.pictures = {PictureSpec{.prompt = "abc"}}, .form = ReplyForm::kKept};
  const int64_t without = request.bytes_held();
  request.warnings = {"12345", "67"};
  EXPECT_EQ(request.bytes_held(), without + 6 * 7);
}

}  // namespace
}  // namespace darkroom
