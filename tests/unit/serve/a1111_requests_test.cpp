#include "darkroom/serve/a1111_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"
#include "darkroom/serve/png_settings.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

ModelFacts webui_model() {
  return {.name = "tiny",
          .native_size = 64,
          .size_multiple = 8,
          .samplers = {"ddim", "pndm", "euler", "euler_a", "dpmpp_2m", "dpmpp_2m_karras", "unipc", "lcm"},
          .default_sampler = "pndm"};
}

Result<ImageRequest> txt2img(std::string_view body) { return read_txt2img(body, webui_model(), RequestLimits{}); }
Result<ImageRequest> img2img(std::string_view body) { return read_img2img(body, webui_model(), RequestLimits{}); }

std::string refusal_of(const Result<ImageRequest>& request) {
  EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
  return std::string(request.status().message());
}

TEST(a1111_requests, what_is_left_out_is_webuis_or_the_models) {
  const ImageRequest request = txt2img("{}").value();
  ASSERT_EQ(request.pictures.size(), 1U);
  const PictureSpec& picture = request.pictures.front();
  EXPECT_EQ(picture.prompt + picture.negative + picture.sampler, "");
  EXPECT_EQ(picture.num_steps, 50);
  EXPECT_EQ(picture.guidance, 7.0);
  EXPECT_EQ(picture.width, 64);
  EXPECT_EQ(picture.height, 64);
  EXPECT_EQ(picture.eta, 0.0);
  EXPECT_LE(picture.seed, UINT32_MAX);
  EXPECT_TRUE(picture.has_weight_syntax);
  EXPECT_EQ(request.form, ReplyForm::kA1111);
  EXPECT_TRUE(request.sends_images);
  EXPECT_TRUE(request.inputs.empty());
}

TEST(a1111_requests, reads_webuis_fields) {
  const ImageRequest request = txt2img(R"json({"prompt":"a (cat:1.2)","negative_prompt":"dog","seed":18446744073709551615,"steps":7,
    "cfg_scale":3.5,"width":128,"height":72,"sampler_name":"Euler a","batch_size":2,"n_iter":3,"send_images":false,"eta":1.0,
    "styles":[],"denoising_strength":0.7,"enable_hr":false,"hr_scale":2,"hr_upscaler":"Latent","restore_faces":false,"tiling":false,
    "override_settings":{"sd_model_checkpoint":"tiny"},"script_args":[],"alwayson_scripts":{},"subseed":-1,"subseed_strength":0.0,
    "s_noise":1,"s_churn":0,"do_not_save_samples":true,"comments":{"a":1}})json")
                                   .value();
  ASSERT_EQ(request.pictures.size(), 6U);
  const PictureSpec& second = request.pictures[1];
  EXPECT_EQ(second.prompt, "a (cat:1.2)");
  EXPECT_EQ(second.negative, "dog");
  EXPECT_EQ(second.seed, 0U);  // Seeds go round.
  EXPECT_EQ(second.num_steps, 7);
  EXPECT_EQ(second.guidance, 3.5);
  EXPECT_EQ(second.width, 128);
  EXPECT_EQ(second.height, 72);
  EXPECT_EQ(second.sampler, "euler_a");
  EXPECT_FALSE(request.sends_images);
  const nlohmann::json info = nlohmann::json::parse(request.info_json);
  EXPECT_EQ(info["all_seeds"], (nlohmann::json{UINT64_MAX, 0, 1, 2, 3, 4}));
  EXPECT_EQ(info["sampler_name"], "Euler a");
  EXPECT_EQ(info["infotexts"][1], settings_text(second, webui_model()));
  EXPECT_EQ(nlohmann::json::parse(request.parameters_json)["comments"], (nlohmann::json{{"a", 1}}));
}

TEST(a1111_requests, a_seed_of_minus_one_is_drawn) {
  EXPECT_NE(txt2img(R"({"seed":-1})")->seed, txt2img(R"({"seed":-1})")->seed);
  EXPECT_EQ(txt2img(R"({"seed":0})")->seed, 0U);
  EXPECT_THAT(refusal_of(txt2img(R"({"seed":-2})")), HasSubstr("seed"));
  EXPECT_THAT(refusal_of(txt2img(R"({"seed":1.5})")), HasSubstr("seed"));
}

TEST(a1111_requests, samplers_have_webuis_names_and_schedules) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("sampler_name":"DPM++ 2M")", "dpmpp_2m_karras"},  // As release 1.10.
      {R"("sampler_name":"DPM++ 2M Karras")", "dpmpp_2m_karras"},
      {R"("sampler_name":"DPM++ 2M","scheduler":"Karras")", "dpmpp_2m_karras"},
      {R"("sampler_name":"DPM++ 2M","scheduler":"Uniform")", "dpmpp_2m"},
      {R"("sampler_name":"dpmpp_2m")", "dpmpp_2m"},
      {R"("sampler_name":"k_euler_ancestral","scheduler":"Automatic")", "euler_a"},
      {R"("sampler_name":"Euler","scheduler":"uniform")", "euler"},
      {R"("sampler_index":"PLMS")", "pndm"},
      {R"("sampler_index":"Euler","sampler_name":"DDIM")", "ddim"},
      {R"("sampler_name":"UniPC","scheduler":"Karras")", "unipc"},  // Which reads no schedule.
      {R"("sampler_name":"LCM")", "lcm"},
      {R"("sampler_name":"","scheduler":"automatic")", ""},
  };
  for (const auto& [fields, sampler] : cases) {
    const auto request = txt2img("{" + fields + "}");
    ASSERT_TRUE(request.is_ok()) << fields << request.status().to_string();
    EXPECT_EQ(request->pictures.front().sampler, sampler) << fields;
  }
  EXPECT_THAT(refusal_of(txt2img(R"({"sampler_name":"Heun"})")),
              HasSubstr("sampler_name must be one of DPM++ 2M, DPM++ 2M Karras, Euler a"));
  EXPECT_THAT(refusal_of(txt2img(R"({"sampler_name":"Euler","scheduler":"Karras"})")), HasSubstr("scheduler"));
  EXPECT_THAT(refusal_of(txt2img(R"({"scheduler":"Karras"})")), HasSubstr("sampler_index"));
}

TEST(a1111_requests, eta_is_ddims) {
  EXPECT_EQ(txt2img(R"({"sampler_name":"DDIM","eta":0.5})")->pictures.front().eta, 0.5);
  EXPECT_EQ(txt2img(R"({"sampler_name":"Euler","eta":1})")->pictures.front().eta, 0.0);
  EXPECT_THAT(refusal_of(txt2img(R"({"sampler_name":"Euler a","eta":0.5})")), HasSubstr("eta"));
}

TEST(a1111_requests, a_known_field_that_would_change_the_picture_is_refused_by_name) {
  for (const char* body : {R"({"restore_faces":true})",
                           R"({"tiling":true})",
                           R"({"subseed_strength":0.1})",
                           R"({"seed_resize_from_w":64})",
                           R"({"styles":["x"]})",
                           R"({"enable_hr":true})",
                           R"({"s_churn":1})",
                           R"({"s_noise":1.1})",
                           R"({"s_min_uncond":1})",
                           R"({"refiner_checkpoint":"x"})",
                           R"({"script_name":"x"})",
                           R"({"alwayson_scripts":{"ADetailer":{"args":[]}}})",
                           R"({"save_images":true})",
                           R"({"infotext":"x"})",
                           R"({"firstpass_image":"x"})",
                           R"({"eta":2})",
                           R"({"denoising_strength":2})",
                           R"({"send_images":1})",
                           R"({"override_settings":[]})",
                           R"({"override_settings.CLIP_stop_at_last_layers":2})",
                           R"({"mask":"x"})",
                           R"({"init_images":[]})",
                           R"({"stepz":4})",
                           R"({"steps":0})",
                           R"({"steps":"4"})",
                           R"({"cfg_scale":"much"})",
                           R"({"width":63})",
                           R"({"batch_size":11})",
                           R"({"n_iter":0})",
                           R"({"prompt":5})",
                           R"({"sampler_name":[]})"}) {
    const std::string field = nlohmann::json::parse(body).begin().key();
    EXPECT_THAT(refusal_of(txt2img(body)), HasSubstr(field)) << body;
  }
  EXPECT_THAT(refusal_of(txt2img(R"({"override_settings":{"CLIP_stop_at_last_layers":2}})")),
              HasSubstr("override_settings.CLIP_stop_at_last_layers"));
  EXPECT_THAT(refusal_of(txt2img(R"({"batch_size":4,"n_iter":3})")), HasSubstr("12"));
  EXPECT_THAT(refusal_of(txt2img(R"({"prompt":"a <lora:x:1>"})")), HasSubstr("<lora:"));
}

TEST(a1111_requests, hostile_bodies_are_refused_at_once) {
  EXPECT_THAT(refusal_of(txt2img(R"({"comments":)" + std::string(1'000'000, '[') + "}")), HasSubstr("nests"));
  EXPECT_THAT(refusal_of(txt2img(R"({"prompt":")" + std::string(1'000'000, 'a') + R"("})")), HasSubstr("prompt"));
  EXPECT_THAT(refusal_of(txt2img("[]")), HasSubstr("JSON object"));
  EXPECT_THAT(refusal_of(txt2img("")), HasSubstr("JSON object"));
  EXPECT_THAT(refusal_of(img2img(R"({"init_images":["a"],"steps":1e400})")), HasSubstr("JSON object"));
}

TEST(a1111_requests, image_to_image_has_one_picture_and_a_strength) {
  const ImageRequest request = img2img(R"({"init_images":["data:image/png;base64,aGk="],"denoising_strength":0.5,"steps":8,"mask":null,
    "mask_blur":4,"inpainting_fill":0,"resize_mode":0,"include_init_images":false,"initial_noise_multiplier":1,"image_cfg_scale":1.5})")
                                   .value();
  EXPECT_EQ(request.inputs, (std::vector<InputPicture>{{.field = "init_images[0]", .text = "aGk=", .is_base64 = true}}));
  EXPECT_EQ(request.pictures.front().strength, 0.5);
  EXPECT_EQ(nlohmann::json::parse(request.parameters_json)["init_images"], nullptr);
  EXPECT_EQ(nlohmann::json::parse(request.info_json)["denoising_strength"], 0.5);
  EXPECT_THAT(request.settings_texts.front(), HasSubstr("Denoising strength: 0.5"));
  EXPECT_EQ(img2img(R"({"init_images":["aGk="]})")->pictures.front().strength, 0.75);
}

TEST(a1111_requests, image_to_image_names_what_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "init_images"},
      {R"({"init_images":"aGk="})", "init_images"},
      {R"({"init_images":[]})", "a list of 0"},
      {R"({"init_images":["a","b"]})", "a list of 2"},
      {R"({"init_images":[7]})", "init_images"},
      {R"({"init_images":["http://127.0.0.1/x.png"]})", "init_images[0]"},
      {R"({"init_images":["aGk="],"mask":"aGk="})", "mask"},
      {R"({"init_images":["aGk="],"resize_mode":1})", "resize_mode"},
      {R"({"init_images":["aGk="],"denoising_strength":0})", "denoising_strength"},
      {R"({"init_images":["aGk="],"denoising_strength":0.1,"steps":9})", "denoising_strength"},
      {R"({"init_images":["aGk="],"initial_noise_multiplier":1.1})", "initial_noise_multiplier"},
      {R"({"init_images":["aGk="],"enable_hr":false})", "enable_hr"},
  };
  for (const auto& [body, part] : cases) {
    EXPECT_THAT(refusal_of(img2img(body)), HasSubstr(part)) << body;
  }
}

TEST(a1111_requests, lists_what_the_model_takes) {
  ModelFacts model = webui_model();
  model.samplers = {"ddim", "dpmpp_2m_karras"};
  const nlohmann::json samplers = a1111_samplers(model);
  ASSERT_EQ(samplers.size(), 2U);
  EXPECT_EQ(samplers[0]["name"], "DPM++ 2M Karras");
  EXPECT_EQ(samplers[1], (nlohmann::json{{"name", "DDIM"}, {"aliases", {"ddim"}}, {"options", nlohmann::json::object()}}));
  EXPECT_EQ(a1111_models({model.name})[0]["title"], "tiny");
  EXPECT_EQ(a1111_schedulers()[2]["label"], "Karras");
}

TEST(a1111_requests, options_are_taken_at_their_values) {
  const ModelFacts model = webui_model();
  EXPECT_TRUE(check_a1111_options(a1111_options(model, true), model, true).is_ok());
  EXPECT_TRUE(check_a1111_options({{"sd_model_checkpoint", "tiny"}, {"sd_vae", nullptr}}, model, true).is_ok());
  EXPECT_THAT(std::string(check_a1111_options({{"sd_model_checkpoint", "other"}}, model, true).message()),
              HasSubstr("sd_model_checkpoint"));
  EXPECT_THAT(std::string(check_a1111_options({{"enable_pnginfo", true}}, model, false).message()), HasSubstr("enable_pnginfo"));
  EXPECT_THAT(std::string(check_a1111_options({{"nonsense", 1}}, model, true).message()), HasSubstr("nonsense"));
}

TEST(a1111_requests, a_reply_holds_the_pictures_with_their_settings) {
  ImageRequest request = txt2img(R"({"batch_size":2,"seed":5,"prompt":"x"})").value();
  request.writes_settings = true;
  const std::vector<Image> images(2, Image::filled(64, 64, 3, 1));
  const nlohmann::json reply = nlohmann::json::parse(image_reply(request, images, 0).body);
  ASSERT_EQ(reply["images"].size(), 2U);
  const std::string png = decode_base64(reply["images"][1].get<std::string>()).value();
  EXPECT_EQ(png_info(std::as_bytes(std::span(png)))->at("parameters")["Seed"], "6");
  EXPECT_EQ(reply["parameters"]["batch_size"], 2);
  EXPECT_EQ(nlohmann::json::parse(reply["info"].get<std::string>())["seed"], 5);
  request.writes_settings = false;
  EXPECT_EQ(nlohmann::json::parse(image_reply(request, images, 0).body)["images"][0], encode_base64(encode_png(images[0])));
  request.sends_images = false;
  EXPECT_TRUE(nlohmann::json::parse(image_reply(request, images, 0).body)["images"].empty());
}

}  // namespace
}  // namespace darkroom
